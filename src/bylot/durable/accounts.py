"""Accounts: what a router has counted, and what its panels were stated to cost.

What they cost in fact is in the ledger of the router itself, which its limits are judged by.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct


class Accounts(Struct):
    """Counts since the first decision, and sums by the names of costs.

    learned:    rewards that the policy has learned from, those of `defaulted` not among them
    noted:      rewards of decisions that had one already, or were made before the pool changed
    late:       rewards that came when the time was up, or when the decision was no longer held
    missing:    decisions whose time was up without any reward, and nothing was learned
    defaulted:  those of them for which the default was learned
    cancelled:  decisions that were never used, of which nothing is in `stated`
    replaced:   panels that the guard replaced
    infeasible: decisions at which limits were out of reach
    """

    learned: int = 0
    noted: int = 0
    late: int = 0
    missing: int = 0
    defaulted: int = 0
    cancelled: int = 0
    replaced: int = 0
    infeasible: int = 0
    stated: dict[str, float] = {}

    def decided(self, spend: Mapping[str, float], replaced: bool, feasible: bool) -> None:
        """One more decision."""
        stated = self.stated
        for name, cost in spend.items():
            stated[name] += cost
        self.replaced += replaced
        self.infeasible += not feasible

    def take_back(self, spend: Mapping[str, float]) -> None:
        """A decision of this cost was never used."""
        for name, cost in spend.items():
            self.stated[name] -= cost
        self.cancelled += 1

    def rename(self, costs: Iterable[str]) -> None:
        """Go on with these costs: nothing was stated of new ones."""
        self.stated = {name: self.stated.get(name, 0.0) for name in costs}
