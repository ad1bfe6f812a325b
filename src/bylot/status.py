"""How a router stands: its promises, what they cost, what it has learned; as data and as text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bylot.problem import Limit
from bylot.text import table


@dataclass(frozen=True)
class Standing:
    """One limit: where the average is, how far from the bound, and what the bound costs."""

    limit: Limit
    mean: float
    slack: float  # distance inside the bound; negative: outside
    price: float  # reward per request that loosening the bound by one unit would buy; NaN: unknown

    @property
    def kept(self) -> bool:
        """Is the average so far inside the bound, up to the rounding of a mean?"""
        return self.slack >= -1e-12 * self.limit.bound


@dataclass(frozen=True)
class Status:
    """A router at one moment; means are per decision, or per reward, since the first.

    q:           the distribution that panels are drawn from
    multinomial: False if the policy has none; q is then how often each expert was drawn so far
    """

    rounds: int
    rewards: int
    waiting: int
    contexts: int
    mean_reward: float | None
    limits: tuple[Standing, ...]
    mean_cost: Mapping[str, float]
    expected_cost: Mapping[str, float]
    q: Mapping[str, float]
    multinomial: bool

    @property
    def kept(self) -> bool:
        """Are all limits kept so far?"""
        return all(standing.kept for standing in self.limits)

    def __str__(self) -> str:
        reward = "none yet" if self.mean_reward is None else f"{self.mean_reward:.4f} on average"
        head = (
            f"{self.rounds} decisions, {self.rewards} rewards ({reward}), {self.waiting} waiting, "
            f"{self.contexts} context{'s' * (self.contexts != 1)}"
        )
        if self.rounds == 0:
            return head
        rows: list[tuple[str, ...]] = [("limit", "average", "bound", "slack", "price", "")]
        rows += [
            (
                f"{one.limit.name} {'<=' if one.limit.sign < 0 else '>='}",
                *(f"{x:.4g}" for x in (one.mean, one.limit.bound, one.slack)),
                "-" if math.isnan(one.price) else f"{one.price:.4g}",
                "kept" if one.kept else "outside",
            )
            for one in self.limits
        ]
        best = sorted(self.q.items(), key=lambda item: -item[1])[:5]
        word = "odds now" if self.multinomial else "drawn so far"
        tail = ", ".join(f"{name} {share:.1%}" for name, share in best)
        return "\n".join([head, *table(rows), f"{word}: {tail}"])
