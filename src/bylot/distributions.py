"""Laws that panels can be drawn from, for one context and whoever is up: what a target is made of.

Owns the chance of a panel and of its members; which law holds where is the target's to say.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from bylot.numerics.conditional_poisson import (
    fill_count_table,
    fill_inclusion,
    log_fixed_set_probability,
)
from bylot.numerics.group_counts import fixed_size_group_counts, iid_group_counts
from bylot.numerics.iid_sets import log_iid_set_probability
from bylot.numerics.inclusion import iid_inclusion
from bylot.numerics.jit import Bools, Floats, Ints


class PanelDistribution(Protocol):
    """A distribution over panels of K experts."""

    def log_chance(self, members: Ints) -> float:
        """log P(A) of the *set* A of these different experts; -inf if it cannot be drawn."""
        ...

    @property
    def included(self) -> Floats:
        """(K,) the chance of each expert to be in the panel."""
        ...

    def counts(self, group: Bools) -> Floats:
        """[j, l]: the chance of j members of the group and l others in the panel."""
        ...

    def widened(self, more: int) -> "PanelDistribution":
        """The same law among so many experts more, who have no chance."""
        ...


@dataclass(frozen=True, eq=False)
class IidSets:
    """M independent draws from q; the panel is who came at least once.

    >>> law = IidSets(np.array([0.5, 0.25, 0.25]), 2)
    >>> round(np.exp(law.log_chance(np.array([0, 1]))), 12).item()
    0.25
    """

    q: Floats
    draws: int

    def log_chance(self, members: Ints) -> float:
        """log of sum over B in A of (-1)^|A - B| q(B)^M, without its cancellation."""
        masses = self.q[members]
        if not masses.all():
            return -np.inf
        return float(log_iid_set_probability(masses, self.draws))

    def log_odds(self, draws: Ints) -> float:
        """log prod_j q(draw_j): of the draws in their order."""
        with np.errstate(divide="ignore"):  # log 0 is what it should be
            return float(np.log(self.q[draws]).sum())

    @cached_property
    def included(self) -> Floats:
        """1 - (1 - q_i)^M."""
        return iid_inclusion(self.q, self.draws)

    def counts(self, group: Bools) -> Floats:
        """By generating functions."""
        return iid_group_counts(self.q, group, self.draws)

    def widened(self, more: int) -> "IidSets":
        """q = 0 for them."""
        return IidSets(np.append(self.q, np.zeros(more)), self.draws)


@dataclass(frozen=True, eq=False)
class FixedSizeSets:
    """Exactly m different experts, P(A) ~ prod_{i in A} e^{theta_i}; -inf: never.

    >>> law = FixedSizeSets(np.log([1.0, 2.0, 3.0]), 2)
    >>> round(11 * np.exp(law.log_chance(np.array([1, 2]))), 12).item()
    6.0
    """

    theta: Floats
    members: int

    @cached_property
    def table(self) -> tuple[Floats, Floats, float]:
        """What chances are read from: table, coins and log Z of `kernels.poisson`."""
        K, m = self.theta.size, self.members
        table, coins = np.empty((K + 1, m + 1)), np.empty(K)
        return table, coins, fill_count_table(table, coins, self.theta, m)

    def log_chance(self, members: Ints) -> float:
        """sum_{i in A} theta_i - log Z, if A has m members."""
        if members.size != self.members:
            return -np.inf
        return float(log_fixed_set_probability(members, self.theta, self.table[2]))

    @cached_property
    def included(self) -> Floats:
        """From the table, see `kernels.poisson.fill_inclusion`."""
        table, coins, _ = self.table
        pi = np.empty(coins.size)
        fill_inclusion(pi, table, coins, self.members)
        return pi

    def counts(self, group: Bools) -> Floats:
        """By tosses of the coins, given m heads."""
        return fixed_size_group_counts(self.table[1], group, self.members)

    def widened(self, more: int) -> "FixedSizeSets":
        """theta = -inf for them."""
        return FixedSizeSets(np.append(self.theta, np.full(more, -np.inf)), self.members)


@dataclass(frozen=True, eq=False)
class MixedSets:
    """One law with a chance of 1 - share, another with a chance of share."""

    one: PanelDistribution
    other: PanelDistribution
    share: float

    def log_chance(self, members: Ints) -> float:
        """log((1 - share) P(A) + share P'(A))."""
        one, other = self.one.log_chance(members), self.other.log_chance(members)
        with np.errstate(divide="ignore"):  # a share may be 0
            logs = np.log1p(-self.share) + one, np.log(self.share) + other
        return float(np.logaddexp(*logs))

    @cached_property
    def included(self) -> Floats:
        """The mixture of the chances."""
        return (1.0 - self.share) * self.one.included + self.share * self.other.included

    def counts(self, group: Bools) -> Floats:
        """The mixture of the counts; both laws have panels of the same most members."""
        return (1.0 - self.share) * self.one.counts(group) + self.share * self.other.counts(group)

    def widened(self, more: int) -> "MixedSets":
        """Both of them."""
        return MixedSets(self.one.widened(more), self.other.widened(more), self.share)


@dataclass(frozen=True, eq=False)
class ConstantSet:
    """The same set every time."""

    inside: Bools  # (K,)

    def log_chance(self, members: Ints) -> float:
        """0 for the set itself."""
        same = members.size == self.inside.sum() and self.inside[members].all()
        return 0.0 if same else -np.inf

    @property
    def included(self) -> Floats:
        """1 for its members."""
        return self.inside.astype(np.float64)

    def counts(self, group: Bools) -> Floats:
        """Certain."""
        size = int(self.inside.sum())
        chances = np.zeros((size + 1, size + 1))
        j = int((self.inside & group).sum())
        chances[j, size - j] = 1.0
        return chances

    def widened(self, more: int) -> "ConstantSet":
        """None of them is in it."""
        return ConstantSet(np.append(self.inside, np.zeros(more, np.bool_)))
