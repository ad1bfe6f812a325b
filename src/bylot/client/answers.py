"""What a server answers, and what that is in the words of `bylot.Router`."""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from bylot import codec, policies
from bylot.client.failures import Trouble, failure
from bylot.decision import Decision, Receipt
from bylot.errors import BylotError, DecisionError, RewardError, ServiceError
from bylot.problem import Problem

Numbers = dict[str, float | None]  # JSON has no NaN


class Made(Struct):
    """A decision."""

    id: str
    t: int
    context: str | None
    draws: tuple[str, ...]
    subset: tuple[str, ...]
    odds: tuple[float, ...]
    chance: float | None
    spend: Numbers
    expected: Numbers
    feasible: bool
    replaced: bool

    def decision(self) -> Decision:
        """As a router in memory would hand it out, but for its id."""
        return Decision(
            id=self.id,
            t=self.t,
            context=self.context,
            draws=self.draws,
            odds=self.odds,
            subset=self.subset,
            spend=known(self.spend),
            expected=known(self.expected),
            feasible=self.feasible,
            chance=self.chance,
            replaced=self.replaced,
        )


class Credited(Struct):
    """What became of a reward."""

    receipt: Receipt


class MadeOrNot(Struct):
    """A decision of a batch."""

    status: int
    decision: Made | None = None
    error: Trouble | None = None

    def outcome(self) -> Decision | BylotError:
        """The decision, or the error that it would have raised alone."""
        if self.decision is not None:
            return self.decision.decision()
        return failure(self.status, self.error, DecisionError)


class CreditedOrNot(Struct):
    """A reward of a batch."""

    status: int
    credited: Credited | None = None
    error: Trouble | None = None

    def outcome(self) -> Receipt | BylotError:
        """The receipt, or the error that it would have raised alone."""
        if self.credited is not None:
            return self.credited.receipt
        if self.error is not None and self.error.code == "no_such_decision":
            return Receipt.UNKNOWN
        return failure(self.status, self.error, RewardError)


class Decisions(Struct):
    """A batch of decisions."""

    results: tuple[MadeOrNot, ...]


class Receipts(Struct):
    """A batch of rewards."""

    results: tuple[CreditedOrNot, ...]


class Terms(Struct, frozen=True):
    """What a router is declared with at present; a change makes a new version."""

    version: int
    problem: Problem
    policy: policies.Policy
    seed: int
    horizon: int | None
    rewards: tuple[float, float]
    max_contexts: int
    memory: int
    wait: float | None
    default: float | None
    aggregate: str
    paused: tuple[str, ...]


class Written(Struct):
    """The same as plain data, what is as usual left out."""

    problem: dict[str, Any]
    policy: dict[str, Any]
    version: int = 1
    seed: int = 0
    horizon: int | None = None
    rewards: tuple[float, float] = (0.0, 1.0)
    max_contexts: int = 1_000
    memory: int = 100_000
    wait: float | None = None
    default: float | None = None
    aggregate: str = "earliest"
    paused: tuple[str, ...] = ()

    def terms(self) -> Terms:
        """With a problem and a policy."""
        try:
            problem, policy = codec.read_problem(self.problem), policies.read(self.policy)
        except (LookupError, TypeError) as error:
            raise ServiceError(f"the server's terms of a router are no such: {error!r}") from None
        told = {name: getattr(self, name) for name in self.__struct_fields__}
        return Terms(**{**told, "problem": problem, "policy": policy})


class View(Struct):
    """A router at one moment."""

    name: str
    number: int
    created: str
    seq: int
    terms: Written
    status: dict[str, Any]


class Listed(Struct, frozen=True):
    """A router of the list; created: RFC 3339, UTC."""

    name: str
    number: int
    created: str


class Listing(Struct):
    """A page of the list; next: where the next one begins."""

    routers: tuple[Listed, ...]
    next: str | None


class Line(Struct, frozen=True):
    """A line of a router's log; of: the line of the decision that it speaks of."""

    seq: int
    kind: str
    of: int | None
    key: str | None
    at: str  # RFC 3339, UTC
    body: Raw  # JSON
    seal: str


class Lines(Struct):
    """A page of a log; next: where the next one begins."""

    events: tuple[Line, ...]
    next: int | None


def known(numbers: Numbers) -> Mapping[str, float]:
    """Numbers, NaN where there is none."""
    return {name: math.nan if one is None else one for name, one in numbers.items()}
