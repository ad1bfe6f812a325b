"""Distributions over panels of K experts, for one context and one set of available experts.

Owns the probability of a panel and of its members. Targets of an evaluation, policies and optima
say which distribution holds where.
"""

from collections.abc import Sequence
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
from bylot.numerics.iid_sets import iid_inclusion, log_iid_set_probability
from bylot.numerics.jit import Bools, Floats, Ints


class PanelDistribution(Protocol):
    """A distribution over panels of K experts."""

    def log_probability(self, members: Ints) -> float:
        """log P(A) of the *set* A of these different experts; -inf if it cannot be drawn."""

    @property
    def inclusion(self) -> Floats:
        """(K,) probability of each expert to be in the panel."""

    def group_counts(self, group: Bools) -> Floats:
        """[j, l]: probability of j members of the group and l other experts in the panel."""

    def pad(self, extra: int) -> "PanelDistribution":
        """The same distribution over `extra` more experts, which are never drawn."""


@dataclass(frozen=True, eq=False)
class IidSets:
    """The different experts among M independent draws from q.

    >>> pairs = IidSets(np.array([0.5, 0.25, 0.25]), 2)
    >>> round(np.exp(pairs.log_probability(np.array([0, 1]))), 12).item()
    0.25
    """

    q: Floats
    draws: int

    def log_probability(self, members: Ints) -> float:
        """log of sum over B in A of (-1)^|A - B| q(B)^M, without its cancellation."""
        masses = self.q[members]
        return float(log_iid_set_probability(masses, self.draws)) if masses.all() else -np.inf

    def log_draw_probability(self, draws: Ints) -> float:
        """log prod_j q(draw_j): of the draws in their order."""
        with np.errstate(divide="ignore"):  # log 0 = -inf is the right answer
            return float(np.log(self.q[draws]).sum())

    @cached_property
    def inclusion(self) -> Floats:
        """1 - (1 - q_i)^M."""
        return iid_inclusion(self.q, self.draws)

    def group_counts(self, group: Bools) -> Floats:
        return iid_group_counts(self.q, group, self.draws)

    def pad(self, extra: int) -> "IidSets":
        return IidSets(np.append(self.q, np.zeros(extra)), self.draws)


@dataclass(frozen=True, eq=False)
class FixedSizeSets:
    """Sets of exactly m experts, P(A) ~ prod_{i in A} e^{theta_i}; theta = -inf: never drawn.

    >>> pairs = FixedSizeSets(np.log([1.0, 2.0, 3.0]), 2)
    >>> round(11 * np.exp(pairs.log_probability(np.array([1, 2]))), 12).item()
    6.0
    """

    theta: Floats
    members: int

    @cached_property
    def table(self) -> tuple[Floats, Floats, float]:
        """Count table, coins and log Z, see `numerics.conditional_poisson`."""
        K, m = self.theta.size, self.members
        table, coins = np.empty((K + 1, m + 1)), np.empty(K)
        return table, coins, fill_count_table(table, coins, self.theta, m)

    def log_probability(self, members: Ints) -> float:
        """sum_{i in A} theta_i - log Z, if A has m members."""
        if members.size != self.members:
            return -np.inf
        return float(log_fixed_set_probability(members, self.theta, self.table[2]))

    @cached_property
    def inclusion(self) -> Floats:
        table, coins, _ = self.table
        pi = np.empty(coins.size)
        fill_inclusion(pi, table, coins, self.members)
        return pi

    def group_counts(self, group: Bools) -> Floats:
        """By tosses of the coins, given m heads."""
        return fixed_size_group_counts(self.table[1], group, self.members)

    def pad(self, extra: int) -> "FixedSizeSets":
        return FixedSizeSets(np.append(self.theta, np.full(extra, -np.inf)), self.members)


@dataclass(frozen=True, eq=False)
class MixedSets:
    """A mixture: part n with probability weights[n]. All parts have the same largest panel."""

    parts: Sequence[PanelDistribution]
    weights: Floats

    def log_probability(self, members: Ints) -> float:
        """log sum_n weights_n P_n(A)."""
        with np.errstate(divide="ignore"):  # a weight may be 0
            logs = np.log(self.weights) + [part.log_probability(members) for part in self.parts]
        return float(np.logaddexp.reduce(logs))

    @cached_property
    def inclusion(self) -> Floats:
        return np.asarray(self.weights @ np.array([part.inclusion for part in self.parts]))

    def group_counts(self, group: Bools) -> Floats:
        counts = np.array([part.group_counts(group) for part in self.parts])
        return np.asarray(np.tensordot(self.weights, counts, 1))

    def pad(self, extra: int) -> "MixedSets":
        return MixedSets([part.pad(extra) for part in self.parts], self.weights)
