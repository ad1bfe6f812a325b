"""Mixing: the best chances for sets of experts under limits, by columns.

A linear program over the sets found so far prices the limits; at these prices the panels hand out
better sets, until there are none. Its prices prove what no mixture exceeds.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats, Ints
from bylot.optima.iid_optimum import RELATIVE_GAP, ContextLabels, split_by_context, stack_values
from bylot.optima.objective import ValueStack
from bylot.optima.polytope import LinearProgram, Vertex
from bylot.optima.pricing_problem import PricingProblem, SetValues
from bylot.problem import Problem
from bylot.problem.feasibility import full_panels_polytope, reachable_polytope

NEGLIGIBLE_PROBABILITY = 1e-12
"""Chances below this are rounding."""


class PanelColumns(NamedTuple):
    """Sets that may be mixed: of which context, who is in them, what they are worth there."""

    context: Ints
    members: Ints
    f: Floats

    def plus(self, context: int, members: Ints, f: Floats) -> "PanelColumns":
        """More of them."""
        which = np.full(len(f), context)
        return PanelColumns(
            np.append(self.context, which),
            np.concatenate([self.members, members]),
            np.append(self.f, f),
        )


class MixtureSolution(NamedTuple):
    """A mixture: how likely each column is in its context, and the proof.

    value, ceiling: what it earns, and what none exceeds
    prices:         (d,), of each limit, in its own unit and with the sign of what it earns
    """

    columns: PanelColumns
    chances: Floats
    value: float
    ceiling: float
    prices: Floats


@dataclass(eq=False)
class MixtureProgram:
    """Contexts under one budget, context x counting for share_x of the costs; remembers the sets
    found, so that the mixture for another bound is quickly made.
    """

    covers: tuple[SetValues, ...]
    shares: Floats
    tolerance: float

    def __post_init__(self) -> None:
        self.panels: list[PricingProblem] = [cover.panels() for cover in self.covers]
        none = np.zeros((0, self.covers[0].most), np.int64)
        self.columns = PanelColumns(np.zeros(0, np.int64), none, np.zeros(0))

    def best(self, problem: Problem) -> MixtureSolution:
        """The best mixture under the limits of a problem, which may differ from others in them."""
        while True:
            away, corner, charges = self.climbed(problem)
            proofs = [panel.proof(one) for panel, one in zip(self.panels, charges, strict=True)]
            if not self.grown(charges, [proof[:2] for proof in proofs]):
                break
        value = float(self.columns.f @ corner.x)
        proved = float(corner.prices @ (away * problem.bounds))
        ceiling = max(value, proved + sum(proof.ceiling for proof in proofs))
        return MixtureSolution(self.columns, corner.x, value, ceiling, corner.prices * away)

    def value(self, problem: Problem) -> float:
        """What the best mixture that can be found without a proof earns."""
        corner = self.climbed(problem)[1]
        return float(self.columns.f @ corner.x)

    def climbed(self, problem: Problem) -> tuple[Floats, Vertex, Floats]:
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
                raise infeasible_mixture_error(problem, self.covers[0])
            charges = self.shares[:, None] * (corner.prices @ rows)
            if not self.picked(charges, corner.x):
                return away, corner, charges

    def begin(self, problem: Problem) -> None:
        """Sets of which some mixture keeps the limits, in every context the same."""
        cover = self.covers[0]
        region = (full_panels_polytope if cover.fewest == cover.most else reachable_polytope)(
            problem
        )
        p = region.witness(region.every)
        if p is None:
            raise infeasible_mixture_error(problem, cover)
        sets = list_systematic_sets(p)
        for x, cover in enumerate(self.covers):
            rows = np.array([cover.row(members) for members in sets])
            self.columns = self.columns.plus(x, rows, np.array([cover.f(one) for one in sets]))

    def corner(self, rows: Floats, bounds: Floats) -> Vertex | None:
        """The best mixture of the columns, and the prices of the limits."""
        context, members, f = self.columns
        if not f.size:
            return None
        padded = np.hstack([rows, np.zeros((len(rows), 1))])
        costs = self.shares[context] * padded[:, members].sum(axis=2)
        each = (context == np.arange(len(self.shares))[:, None]).astype(np.float64)
        low, high = np.zeros(len(f)), np.full(len(f), np.inf)
        corner = LinearProgram(f, costs, bounds, each, np.ones(len(each)), low, high).corner()
        if corner is None:
            return None
        x = np.where(corner.x > NEGLIGIBLE_PROBABILITY, corner.x, 0.0)
        return Vertex(x / (each @ x)[context], corner.prices)

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


def infeasible_mixture_error(problem: Problem, cover: SetValues) -> InfeasibleLimits:
    """Make the error that no mixture keeps the limits."""
    if cover.fewest < cover.most:
        what = f"no mixture of panels of 1 to {cover.most} experts keeps {{limits}}"
        return InfeasibleLimits(what, limits=problem.limits, remedy="loosen some of the limits")
    conflict = problem.full_conflict
    return InfeasibleLimits(
        f"no mixture of panels of {cover.most} different experts keeps {{limits}}",
        limits=problem.limits if conflict is None else conflict.limits,
        remedy="use fewer=True for smaller panels, fewer draws, or looser limits",
    )


def list_systematic_sets(p: Floats) -> list[tuple[int, ...]]:
    """Sets of which a mixture asks each expert with chance p_i: whoever is met by steps of 1 along
    the chances laid end to end, for every start. Each has sum p members, rounded up or down.

    >>> list_systematic_sets(np.array([0.5, 0.5, 1.0]))
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


PanelNames = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Mixture:
    """The best expected reward per round of panels drawn by lot, and the lot that has it.

    value:    mean over rounds of sum_A P(A) r_t(A)
    panels:   for each context, panels and their chances, the likeliest first
    asked:    (K,), the chance that each expert is asked, or (X, K) with a row for each context
    gap:      no mixture under the limits has more than value + gap: 0 but for rounding where all
              sets could be listed, else also what the search may have missed and the proof gives
              away
    prices:   (d,), what a bound is worth: d value / d bound in the bound's own unit, so >= 0 for
              `at_most` and <= 0 for `at_least`; one of the possible values at a kink
    fewer:    might panels have fewer than M members?
    contexts: the labels of the contexts; None without contexts
    """

    value: float
    panels: tuple[tuple[tuple[PanelNames, float], ...], ...]
    asked: Floats
    gap: float
    prices: Floats
    fewer: bool = False
    contexts: ContextLabels | None = None

    @property
    def ceiling(self) -> float:
        """value + gap, which no mixture under the limits exceeds."""
        return self.value + self.gap


def best_mixture(
    problem: Problem,
    values: ArrayLike | ValueStack,
    *,
    contexts: ArrayLike | None = None,
    aggregate: bool = False,
    fewer: bool = False,
) -> Mixture:
    """The best chances P_x(A) for sets A of min(M, K) different experts, in each context x:

    max of (1/T) sum_t sum_A P_{x_t}(A) r_t(A), with expected costs within the limits

    values:    (T, N, K) or (N, K), or a `ValueStack`, as for `optimum`
    contexts:  (T,) labels. A mixture per context, each under the limits
    aggregate: with contexts, one budget for all: only the mean cost over contexts is limited
    fewer:     sets of 1 to min(M, K) experts: no policy whatever earns more under the limits, on
               average over these rounds, unless it knows what a round will be worth

    Costs of a set are sums over its members, so limits are linear in P and this is a linear
    program, solved by columns: at the prices of the limits, sets that would do better are added
    until there are none. Up to 200,000 sets of a context are all looked at; among more, greedy
    search and swaps look for them, and `.gap` has a proof of what may have been missed.

    >>> from bylot.problem import at_most
    >>> trio = Problem(["a", "b", "c"], {"usd": [0, 1, 2]}, [at_most("usd", 1.5)], draws=2)
    >>> best = best_mixture(trio, [[0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    >>> round(best.value, 6), best.asked.round(6), best.prices.round(6)
    (2.0, array([1. , 0.5, 0.5]), array([2.]))
    """
    stack = stack_values(problem, values)
    labels, parts = split_by_context(stack, contexts)
    mixes = [
        mixing.best(problem) for mixing in make_mixture_programs(problem, parts, aggregate, fewer)
    ]
    panels = [told for mix in mixes for told in sort_panels_by_probability(problem, mix)]
    asked = np.array([compute_panel_inclusion(problem, told) for told in panels])
    return Mixture(
        value=sum(mix.value for mix in mixes),
        panels=tuple(panels),
        asked=asked if labels is not None else asked[0],
        gap=sum(mix.ceiling - mix.value for mix in mixes),
        prices=np.sum([mix.prices for mix in mixes], axis=0),
        fewer=fewer,
        contexts=labels,
    )


def make_mixture_programs(
    problem: Problem, parts: tuple[ValueStack, ...], aggregate: bool, fewer: bool
) -> list[MixtureProgram]:
    """All contexts under one budget, or each under the limits."""
    tolerance = RELATIVE_GAP * sum(part.everyone() for part in parts) / len(parts)
    groups = [parts] if aggregate else [(part,) for part in parts]
    made = []
    for group in groups:
        shares = np.array([part.weights.sum() for part in group])
        covers = tuple(SetValues.of(part, problem.draws, fewer) for part in group)
        made.append(MixtureProgram(covers, shares / shares.sum(), tolerance))
    return made


def sort_panels_by_probability(
    problem: Problem, mix: MixtureSolution
) -> list[tuple[tuple[PanelNames, float], ...]]:
    """For each context, panels and their chances, the likeliest first."""
    made: list[dict[PanelNames, float]] = [{} for _ in range(int(mix.columns.context.max()) + 1)]
    for x, row, chance in zip(mix.columns.context, mix.columns.members, mix.chances, strict=True):
        if chance > 0.0:
            panel = tuple(problem.experts[i] for i in row if i < problem.size)
            made[x][panel] = made[x].get(panel, 0.0) + float(chance)
    return [tuple(sorted(one.items(), key=lambda pair: (-pair[1], pair[0]))) for one in made]


def compute_panel_inclusion(
    problem: Problem, panels: tuple[tuple[PanelNames, float], ...]
) -> Floats:
    """(K,), the chance that each expert is in a panel."""
    place = {name: i for i, name in enumerate(problem.experts)}
    asked = np.zeros(problem.size)
    for panel, chance in panels:
        asked[[place[name] for name in panel]] += chance
    return asked
