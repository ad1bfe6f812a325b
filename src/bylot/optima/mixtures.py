"""The optimum: the best mixture of panels of different experts under the limits.

It is a linear program over sets, as their costs are sums over members, solved by column generation:
`pricing_problem` finds sets to add.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bylot._text import format_sizes
from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats, Ints
from bylot.optima.objective import (
    RELATIVE_GAP,
    ContextLabels,
    ValueStack,
    describe_budget,
    split_values,
)
from bylot.optima.polytope import PricedPoint, maximise_linear
from bylot.optima.set_search import SetValues, sum_members
from bylot.problem import Problem
from bylot.problem.feasibility import full_panels_polytope, reachable_polytope
from bylot.problem.window_bounds import restate_per_request

NEGLIGIBLE_PROBABILITY = 1e-12  # smaller probabilities in a solution are rounding

PanelNames = tuple[str, ...]
PanelTable = tuple[tuple[PanelNames, float], ...]  # panels and their probabilities


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best expected reward per round under the limits, and a mixture of panels that earns it.

    Attributes
    ----------
    value
        Mean over rounds of sum_A P(A) r_t(A).
    panels
        For each context, panels and their probabilities, the most probable first. Without
        contexts, `policy` is the only table.
    inclusion
        (K,), probability that each expert is asked, or (X, K) with a row for each context.
    gap
        No mixture under the limits earns more than value + gap: 0 up to rounding if all sets
        could be listed, else also what the search may have missed.
    prices, contexts
        Shadow prices, and labels of the contexts, as in `IidOptimum`.
    sizes
        The fewest and the most members of a panel.
    question
        What `value` is the best of, in words.
    """

    value: float
    panels: tuple[PanelTable, ...]
    inclusion: Floats
    gap: float
    prices: Floats
    contexts: ContextLabels | None = None
    sizes: tuple[int, int] = (0, 0)
    question: str = ""

    @property
    def policy(self) -> PanelTable | tuple[PanelTable, ...]:
        """Panels and their probabilities; with contexts, a table for each."""
        return self.panels[0] if self.contexts is None else self.panels

    @property
    def ceiling(self) -> float:
        """value + gap, which no mixture under the limits exceeds."""
        return self.value + self.gap


def optimum(
    problem: Problem,
    values: ArrayLike | ValueStack,
    *,
    contexts: ArrayLike | None = None,
    each_context: bool = False,
    fewer: bool | None = None,
) -> Optimum:
    """Find the best that panels of different experts can earn under the limits, with a proof.

    These are the panels that `distinct` and `noisy-or` play, and `bylot optimum` answers the same
    question. `iid_optimum` has the optimum of independent draws, which is the paper's.

    Maximises (1/T) sum_t sum_A P_{x_t}(A) r_t(A) over the probabilities P_x(A) of sets A in each
    context x, with expected costs within the limits. Up to 200,000 sets of a context are listed;
    more are searched, and `.gap` bounds what was missed.

    Parameters
    ----------
    problem
        Experts, costs, limits and the number of draws M. Budgets of the calendar count per request,
        at the traffic of the problem; all requests are of one tenant.
    values
        Array (T, N, K) or (N, K), or a `ValueStack`, which keeps its sorting between calls.
    contexts
        (T,) labels. There is one mixture for each context.
    each_context
        Every context keeps the limits by itself. Otherwise all share one budget: only
        sum_x (T_x / T) cost_x is limited.
    fewer
        True: panels may have 1 to M members. Then no policy earns more under the limits, on
        average over these rounds, unless it knows the values of a round in advance.
        False: they have M members. None: as False, or as True if panels of M members cannot keep
        the limits. Where the problem declares `min_draws`, they always have that many to M.

    Returns
    -------
    Optimum
        The mixture with its certificate, and the question that it answers.

    Raises
    ------
    InfeasibleLimits
        If no such mixture keeps the limits.
    ValuesError, ProblemError
        If values or contexts do not fit the problem, or its optimum is not known.

    Examples
    --------
    >>> from bylot.problem import at_most
    >>> trio = Problem(["a", "b", "c"], {"usd": [0, 1, 2]}, [at_most("usd", 1.5)], draws=2)
    >>> best = optimum(trio, [[0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    >>> round(best.value, 6), best.inclusion.round(6), best.prices.round(6)
    (2.0, array([1. , 0.5, 0.5]), array([2.]))
    """
    problem = restate_per_request(problem)
    labels, parts = split_values(problem, values, contexts)
    smaller = problem.full_conflict is not None if fewer is None else fewer
    programs = make_mixture_programs(problem, parts, each_context, smaller)
    sizes = programs[0].sets[0].fewest, programs[0].sets[0].most
    question = f"the best mixture of panels of {format_sizes(*sizes)} experts under the limits"
    mixtures = [program.solve(problem) for program in programs]
    inclusion = np.concatenate([mixture.inclusion for mixture in mixtures])
    return Optimum(
        value=sum(mixture.value for mixture in mixtures),
        panels=tuple(table for mixture in mixtures for table in mixture.panels),
        inclusion=inclusion if labels is not None else inclusion[0],
        gap=sum(mixture.gap for mixture in mixtures),
        prices=np.sum([mixture.prices for mixture in mixtures], axis=0),
        contexts=labels,
        sizes=sizes,
        question=question + describe_budget(labels, each_context),
    )


class MixtureProgram:
    """The linear program for contexts under one budget; context x has share_x of the costs.

    A column is a set: its context, members (positions; K stands for no expert) and value f. All
    that were found are kept, so that solving for other bounds is fast.
    """

    def __init__(self, sets: tuple[SetValues, ...], shares: Floats, tolerance: float) -> None:
        self.sets, self.shares, self.tolerance = sets, shares, tolerance
        self.pricing = [one.pricing_problem() for one in sets]
        self.context, self.f = np.zeros(0, np.int64), np.zeros(0)
        self.members = np.zeros((0, sets[0].most), np.int64)

    def append_columns(self, context: int, members: Ints, f: Floats) -> None:
        self.context = np.append(self.context, np.full(len(f), context))
        self.members = np.concatenate([self.members, members])
        self.f = np.append(self.f, f)

    def solve(self, problem: Problem) -> Optimum:
        """The best mixture under the limits of a problem, a row of inclusion for each context."""
        while True:
            away, vertex, charges = self.generate_columns(problem)
            proofs = [one.prove(charge) for one, charge in zip(self.pricing, charges, strict=True)]
            if not self.add_columns(charges, [proof[:2] for proof in proofs]):
                break
        value = float(self.f @ vertex.x)
        proved = float(vertex.prices @ (away * problem.bounds))
        ceiling = max(value, proved + sum(proof.ceiling for proof in proofs))
        found: list[dict[PanelNames, float]] = [defaultdict(float) for _ in self.sets]
        columns = zip(self.context.tolist(), self.members, vertex.x.tolist(), strict=True)
        for x, row, probability in columns:
            if probability > 0.0:
                found[x][tuple(problem.experts[i] for i in row if i < problem.size)] += probability
        panels = [tuple(sorted(one.items(), key=lambda pair: (-pair[1], pair[0]))) for one in found]
        inclusion = np.zeros((len(panels), problem.size))
        for x, table in enumerate(panels):
            for names, probability in table:
                inclusion[x, [problem.experts.index(name) for name in names]] += probability
        return Optimum(value, tuple(panels), inclusion, ceiling - value, vertex.prices * away)

    def find_value(self, problem: Problem) -> float:
        """The value of the best mixture, without a certificate."""
        vertex = self.generate_columns(problem)[1]  # first: it appends to f
        return float(self.f @ vertex.x)

    def generate_columns(self, problem: Problem) -> tuple[Floats, PricedPoint, Floats]:
        """Add sets until the pricing problems find no better ones; returns the factors that turn
        limits into "at most", in units of the largest cost, the solution, and the charges (X, K).
        """
        away = -problem.signs / problem.peaks
        rows, bounds = away[:, None] * problem.rows, away * problem.bounds
        if self.solve_columns(rows, bounds) is None:
            self.add_feasible_columns(problem)
        while True:
            vertex = self.solve_columns(rows, bounds)
            if vertex is None:
                raise make_infeasible_mixture_error(problem, self.sets[0])
            charges = self.shares[:, None] * (vertex.prices @ rows)
            found = [
                pricing.find_sets(charges[x], self.members[(self.context == x) & (vertex.x > 0.0)])
                for x, pricing in enumerate(self.pricing)
            ]
            if not self.add_columns(charges, found):
                return away, vertex, charges

    def add_feasible_columns(self, problem: Problem) -> None:
        """Add sets of which some mixture, the same in every context, keeps the limits."""
        full = self.sets[0].fewest == self.sets[0].most
        region = full_panels_polytope(problem) if full else reachable_polytope(problem)
        p = region.find_point(region.every)
        if p is None:
            raise make_infeasible_mixture_error(problem, self.sets[0])
        found = list_systematic_sets(p)
        for x, sets in enumerate(self.sets):
            self.append_columns(x, *sets.columns(found))

    def solve_columns(self, rows: Floats, bounds: Floats) -> PricedPoint | None:
        """The best mixture of the columns, and the multipliers of the limits."""
        context, f = self.context, self.f
        if not f.size:
            return None
        costs = self.shares[context] * sum_members(rows, self.members)
        each = (context == np.arange(len(self.shares))[:, None]).astype(np.float64)
        low, high = np.zeros(len(f)), np.full(len(f), np.inf)
        vertex = maximise_linear(f, costs, bounds, each, np.ones(len(each)), low, high)
        if vertex is None:
            return None
        x = np.where(vertex.x > NEGLIGIBLE_PROBABILITY, vertex.x, 0.0)
        return PricedPoint(x / (each @ x)[context], vertex.prices)

    def add_columns(self, charges: Floats, found: Sequence[tuple[Ints, Floats]]) -> bool:
        """Add those sets of each context that are better than all it has; False if none is."""
        before = len(self.f)
        for x, (rows, values) in enumerate(found):
            known = self.context == x
            merits = self.f[known] - sum_members(charges[x], self.members[known])
            gain = values - sum_members(charges[x], rows) - merits.max()
            better = gain > self.tolerance / len(self.pricing)
            self.append_columns(x, rows[better], values[better])
        return len(self.f) > before


def make_mixture_programs(
    problem: Problem, parts: tuple[ValueStack, ...], each_context: bool, fewer: bool
) -> list[MixtureProgram]:
    """One program for all contexts under one budget, or one for each context."""
    tolerance = RELATIVE_GAP * sum(part.reward_of_all for part in parts) / len(parts)
    programs = []
    for group in [(part,) for part in parts] if each_context else [parts]:
        shares = np.array([part.weights.sum() for part in group])
        sets = tuple(SetValues.of(part, problem, fewer) for part in group)
        programs.append(MixtureProgram(sets, shares / shares.sum(), tolerance))
    return programs


def make_infeasible_mixture_error(problem: Problem, sets: SetValues) -> InfeasibleLimits:
    """Make the error that no mixture keeps the limits."""
    sizes, limits = f"{sets.fewest} to {sets.most}", problem.limits
    remedy = "loosen some of the limits"
    if sets.fewest == sets.most:
        sizes, conflict = f"{sets.most} different", problem.full_conflict
        limits = limits if conflict is None else conflict.limits
        remedy = "use fewer=True for smaller panels, fewer draws, or looser limits"
    return InfeasibleLimits(
        f"no mixture of panels of {sizes} experts keeps {{limits}}", limits=limits, remedy=remedy
    )


def list_systematic_sets(p: Floats) -> list[tuple[int, ...]]:
    """Sets of which some mixture has these inclusion probabilities, by systematic sampling.

    Lay the probabilities end to end and take the experts met by steps of 1, for every start. Each
    set has sum p members, rounded up or down.

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
