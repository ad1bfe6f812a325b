"""Mixing: the best chances for sets of experts under limits, by columns.

A linear program over the sets found so far prices the limits; at these prices the panels hand out
better sets, until there are none. Its prices prove what no mixture exceeds.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.kernels.compile import Floats, Ints
from bylot.optima.linear import Corner, Linear
from bylot.optima.panels import Coverage, Panels
from bylot.problem import Problem
from bylot.problem.feasibility import always_full, within_reach

RARE = 1e-12
"""Chances below this are rounding."""


class Columns(NamedTuple):
    """Sets that may be mixed: of which context, who is in them, what they are worth there."""

    context: Ints
    members: Ints
    f: Floats

    def plus(self, context: int, members: Ints, f: Floats) -> "Columns":
        """More of them."""
        which = np.full(len(f), context)
        return Columns(
            np.append(self.context, which),
            np.concatenate([self.members, members]),
            np.append(self.f, f),
        )


class Mix(NamedTuple):
    """A mixture: how likely each column is in its context, and the proof.

    value, ceiling: what it earns, and what none exceeds
    prices:         (d,), of each limit, in its own unit and with the sign of what it earns
    """

    columns: Columns
    chances: Floats
    value: float
    ceiling: float
    prices: Floats


@dataclass(eq=False)
class Mixing:
    """Contexts under one budget, context x counting for share_x of the costs; remembers the sets
    found, so that the mixture for another bound is quickly made.
    """

    covers: tuple[Coverage, ...]
    shares: Floats
    tolerance: float

    def __post_init__(self) -> None:
        self.panels: list[Panels] = [cover.panels() for cover in self.covers]
        none = np.zeros((0, self.covers[0].most), np.int64)
        self.columns = Columns(np.zeros(0, np.int64), none, np.zeros(0))

    def best(self, problem: Problem) -> Mix:
        """The best mixture under the limits of a problem, which may differ from others in them."""
        while True:
            away, corner, charges = self.climbed(problem)
            proofs = [panel.proof(one) for panel, one in zip(self.panels, charges, strict=True)]
            if not self.grown(charges, [proof[:2] for proof in proofs]):
                break
        value = float(self.columns.f @ corner.x)
        proved = float(corner.prices @ (away * problem.bounds))
        ceiling = max(value, proved + sum(proof.ceiling for proof in proofs))
        return Mix(self.columns, corner.x, value, ceiling, corner.prices * away)

    def value(self, problem: Problem) -> float:
        """What the best mixture that can be found without a proof earns."""
        corner = self.climbed(problem)[1]
        return float(self.columns.f @ corner.x)

    def climbed(self, problem: Problem) -> tuple[Floats, Corner, Floats]:
        """The mixture that panels have no better sets for; what turns limits into "at most", in
        units of the largest cost, and (X, K), what each expert is charged.
        """
        away = -problem.signs / problem.peaks
        rows, bounds = away[:, None] * problem.rows, away * problem.bounds
        if self.corner(rows, bounds) is None:
            self.begin(problem)
        while True:
            corner = self.corner(rows, bounds)
            if corner is None:
                raise InfeasibleLimits(refusal(problem, self.covers[0]))
            charges = self.shares[:, None] * (corner.prices @ rows)
            if not self.picked(charges, corner.x):
                return away, corner, charges

    def begin(self, problem: Problem) -> None:
        """Sets of which some mixture keeps the limits, in every context the same."""
        cover = self.covers[0]
        region = (always_full if cover.fewest == cover.most else within_reach)(problem)
        p = region.witness(region.every)
        if p is None:
            raise InfeasibleLimits(refusal(problem, cover))
        sets = systematic(p)
        for x, cover in enumerate(self.covers):
            rows = np.array([cover.row(members) for members in sets])
            self.columns = self.columns.plus(x, rows, np.array([cover.f(one) for one in sets]))

    def corner(self, rows: Floats, bounds: Floats) -> Corner | None:
        """The best mixture of the columns, and the prices of the limits."""
        context, members, f = self.columns
        if not f.size:
            return None
        padded = np.hstack([rows, np.zeros((len(rows), 1))])
        costs = self.shares[context] * padded[:, members].sum(axis=2)
        each = (context == np.arange(len(self.shares))[:, None]).astype(np.float64)
        low, high = np.zeros(len(f)), np.full(len(f), np.inf)
        corner = Linear(f, costs, bounds, each, np.ones(len(each)), low, high).corner()
        if corner is None:
            return None
        x = np.where(corner.x > RARE, corner.x, 0.0)
        return Corner(x / (each @ x)[context], corner.prices)

    def picked(self, charges: Floats, chances: Floats) -> bool:
        """Did panels have better sets to hand out?"""
        context, members, _ = self.columns
        used = [members[(context == x) & (chances > 0.0)] for x in range(len(self.panels))]
        given = zip(self.panels, charges, used, strict=True)
        return self.grown(charges, [panel.pick(one, start) for panel, one, start in given])

    def grown(self, charges: Floats, found: Sequence[tuple[Ints, Floats]]) -> bool:
        """Were sets found, of each context, of more merit at these charges than all it had?"""
        context, members, f = self.columns
        padded = np.hstack([charges, np.zeros((len(charges), 1))])
        merits = f - np.take_along_axis(padded[context], members, axis=1).sum(axis=1)
        for x, (rows, worth) in enumerate(found):
            gain = worth - padded[x][rows].sum(axis=1) - merits[context == x].max()
            better = gain > self.tolerance / len(self.panels)
            self.columns = self.columns.plus(x, rows[better], worth[better])
        return len(self.columns.f) > len(f)


def refusal(problem: Problem, cover: Coverage) -> str:
    """That no mixture keeps the limits, by which of them, and what to do."""
    if cover.fewest < cover.most:
        return f"no mixture of panels of 1 to {cover.most} experts keeps the limits; loosen some"
    conflict = problem.full_conflict
    return (
        f"no mixture of panels of {cover.most} different experts keeps "
        f"{'the limits' if conflict is None else conflict}; use fewer=True for panels that may "
        "have fewer members, fewer draws, or looser limits"
    )


def systematic(p: Floats) -> list[tuple[int, ...]]:
    """Sets of which a mixture asks each expert with chance p_i: whoever is met by steps of 1 along
    the chances laid end to end, for every start. Each has sum p members, rounded up or down.

    >>> systematic(np.array([0.5, 0.5, 1.0]))
    [(0, 2), (1, 2)]
    """
    ends = np.cumsum(np.clip(p, 0.0, 1.0))
    if abs(ends[-1] - round(ends[-1])) < 1e-6:
        ends *= round(ends[-1]) / ends[-1]
    cuts = np.unique(np.concatenate([[0.0, 1.0], np.mod(ends, 1.0)]))
    sets: dict[tuple[int, ...], None] = {}
    for low, high in itertools.pairwise(cuts):
        steps = np.arange((low + high) / 2, ends[-1], 1.0)
        if high - low > 1e-13:
            sets[tuple(np.searchsorted(ends, steps).tolist())] = None
    return list(sets)
