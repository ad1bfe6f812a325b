"""CostSums: what decisions have cost, by name, and which of them each cost is averaged over."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from bylot.limits.book import CostsByName
from bylot.numerics.jit import Floats
from bylot.policies.compiled_handle import Totals


class UncountedDecisions(Struct):
    """The decisions that the sums of each cost are not averaged over."""

    since: dict[str, int] = {}  # decisions made before the cost was introduced, by name
    unused: dict[str, int] = {}  # decisions since then that were cancelled, by name


class PeriodStart(NamedTuple):
    """Where the current period began.

    first:  decisions with smaller numbers are of earlier periods
    offset: decisions so far minus rounds played in this period. It is constant within a period,
            unless decisions are cancelled: if it differs, a new period has begun.
    edited: decisions of this period with smaller numbers are from before its last edit
    """

    first: int
    offset: int
    edited: int = 0


class CostSums:
    """The sums of each cost since the first decision, and before the current period.

    totals: sums that compiled code adds to, in the order of the names
    before: decisions and sum of each cost before the current period
    """

    def __init__(self, names: Iterable[str], totals: Totals) -> None:
        self.names = tuple(names)
        self.totals = totals
        self.uncounted = UncountedDecisions()
        self.period = PeriodStart(0, 0)
        self.before: dict[str, tuple[int, float]] = {}

    @property
    def t(self) -> int:
        """Decisions so far."""
        return self.totals.rounds.item(0)

    def list_spent(self) -> dict[str, float]:
        """Return the sum of each cost, as settled."""
        return dict(zip(self.names, self.totals.spent.tolist(), strict=True))

    def list_expected(self) -> dict[str, float]:
        """Return the sum of each cost that was expected before the draws."""
        return dict(zip(self.names, self.totals.expected.tolist(), strict=True))

    def count_decisions(self, cost: str) -> int:
        """Return the number of decisions that the sum of a cost is averaged over."""
        gone = self.uncounted
        return self.t - gone.since.get(cost, 0) - gone.unused.get(cost, 0)

    def find_period(self, played: int) -> PeriodStart:
        """Return where the current period, of so many rounds, began: it may have begun since that
        was noted.
        """
        offset = self.t - played
        return self.period if self.period.offset == offset else PeriodStart(offset, offset)

    def end_period(self) -> None:
        """Let what was spent so far be before the current period."""
        spent = self.list_spent()
        self.before = {name: (self.count_decisions(name), spent[name]) for name in spent}

    def correct(self, corrections: CostsByName, *, in_period: bool) -> None:
        """Add what a decision cost beyond what is booked."""
        self.totals.spent[:] += [corrections.get(name, 0.0) for name in self.names]
        if not in_period:
            for name, (n, cost) in self.before.items():
                self.before[name] = n, cost + float(corrections.get(name, 0.0))

    def exclude(
        self, t: int, spend: CostsByName, expected: CostsByName, played: int, *, in_period: bool
    ) -> list[str]:
        """Exclude decision t, of these costs, from all averages; return the names it counted for.

        played: rounds of the current period. If the decision is one of them, there is one less.
        """
        counted = [
            name for name in self.names if name in spend and t >= self.uncounted.since.get(name, 0)
        ]
        for sums, given in ((self.totals.spent, spend), (self.totals.expected, expected)):
            sums[:] -= [given[name] if name in counted else 0.0 for name in self.names]
        for name in counted:
            self.uncounted.unused[name] = self.uncounted.unused.get(name, 0) + 1
        if in_period:
            period = self.find_period(played)
            self.period = period._replace(offset=period.offset + 1)
        else:
            for name in counted:
                n, cost = self.before.get(name, (0, 0.0))
                self.before[name] = n - 1, cost - spend[name]
        return counted

    def rename(self, names: Iterable[str]) -> Totals:
        """Continue with these costs; new ones are averaged over the decisions from now on."""
        was = self.uncounted
        old = self.names
        spent = self.list_spent()
        expected = self.list_expected()
        self.names = tuple(names)
        self.uncounted = UncountedDecisions(
            {name: was.since.get(name, 0) if name in old else self.t for name in self.names},
            {name: n for name, n in was.unused.items() if name in self.names},
        )
        for name in set(self.names).difference(old):
            self.before.pop(name, None)
        self.totals = self.totals._replace(
            spent=self.arrange(spent), expected=self.arrange(expected)
        )
        return self.totals

    def arrange(self, sums: CostsByName) -> Floats:
        """Return sums in the order of the names."""
        return np.array([sums.get(name, 0.0) for name in self.names])

    def continue_period(self, period: PeriodStart, played: int, *, edited: bool) -> None:
        """Let an edit continue a period, which may count other rounds than before."""
        offset = self.t - played
        first = period.first if offset == period.offset else max(period.first, offset)
        self.period = PeriodStart(first, offset, self.t if edited else period.edited)
