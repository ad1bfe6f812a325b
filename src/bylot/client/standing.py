"""How a router stands, from what its server tells."""

import math

from msgspec import Struct, structs

from bylot.client.answers import Written
from bylot.codec import read_limit
from bylot.problem import Limit
from bylot.status import Current, Period, Standing, Status


class Now(Struct):
    """A limit in the current period."""

    mean: float | None
    in_force: float
    within_reach: bool
    short: bool
    lost: bool
    missed: int


class Kept(Struct):
    """A limit; JSON has no NaN, so that a price that is not known is null."""

    mean: float
    slack: float
    price: float | None
    current: Now | None

    def standing(self, limit: Limit) -> Standing:
        """As a router in memory has it."""
        price = math.nan if self.price is None else self.price
        now = self.current
        current = None if now is None else Current(**structs.asdict(now))
        return Standing(limit, self.mean, self.slack, price, current)


class Cost(Struct):
    """Sums over the decisions that it was known for, and how many those are."""

    expected: float | None
    settled: float
    decisions: int

    def mean(self, total: float | None) -> float:
        """Per decision; NaN of what is not known."""
        return math.nan if total is None else total / max(1, self.decisions)


class Course(Struct):
    """Where the current period stands."""

    length: int
    played: int
    replaced: int


class Stands(Struct):
    """What `bylot.Status` needs of all that a server tells."""

    decisions: int
    rewards: int
    waiting: int
    contexts: int
    max_contexts: int
    mean_reward: float | None
    limits: tuple[Kept, ...]
    costs: dict[str, Cost]
    q: dict[str, float]
    multinomial: bool
    whole: bool
    period: Course | None


class Stood(Struct):
    """A router at one moment, and its terms: they tell who the members of a share are."""

    terms: Written
    status: Stands


def status(stood: Stood) -> Status:
    """As a router in memory has it."""
    told, at = stood.status, stood.status.period
    limits = map(read_limit, stood.terms.problem["limits"])
    return Status(
        rounds=told.decisions,
        rewards=told.rewards,
        waiting=told.waiting,
        contexts=told.contexts,
        max_contexts=told.max_contexts,
        mean_reward=told.mean_reward,
        limits=tuple(k.standing(limit) for k, limit in zip(told.limits, limits, strict=True)),
        mean_cost={name: one.mean(one.settled) for name, one in told.costs.items()},
        expected_cost={name: one.mean(one.expected) for name, one in told.costs.items()},
        q=told.q,
        multinomial=told.multinomial,
        whole=told.whole,
        period=None if at is None else Period(at.length, at.played, at.replaced),
    )
