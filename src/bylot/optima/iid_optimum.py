"""optimum: the best fixed policy for a problem and a stack of values, by any of the definitions.

Owns what the definitions differ in: floor, contexts, surrogate or exact costs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bylot.errors import ProblemError, ValuesError
from bylot.numerics.inclusion import iid_inclusion
from bylot.numerics.jit import Floats
from bylot.optima.exact_search import MultistartSearch
from bylot.optima.objective import Objective, ValueStack
from bylot.optima.surrogate import Subproblem, maximise_surrogate
from bylot.problem import Problem

ContextLabels = NDArray[np.int64] | NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best expected reward per round under the limits, and a policy that has it.

    value:    mean over rounds of Phi^{r_t}(policy), evaluated exactly
    policy:   (K,), or (X, K) with a row for each of the `contexts`
    gap:      no allowed policy has more than value + gap. Under the surrogate this is a proof of
              optimality; under the exact costs it also contains what is lost by proving it with
              a convex superset of the allowed policies, and can be large when upper limits bind
    prices:   (d,), what a bound is worth: d value / d bound in the bound's own unit, so >= 0 for
              `at_most` and <= 0 for `at_least`; one of the possible values at a kink
    spread:   best minus worst local optimum over the starts (exact costs only, else 0)
    starts:   how many starts led to an allowed policy; there are no more once one is proved best
    contexts: the labels of the rows of `policy`; None without contexts
    exact:    is it of the limits themselves, or of the paper's surrogate?
    """

    value: float
    policy: Floats
    gap: float
    prices: Floats
    spread: float = 0.0
    starts: int = 1
    contexts: ContextLabels | None = None
    exact: bool = False

    def require(self, exact: bool) -> None:
        """Refuse an optimum of the other kind than the one that is wanted."""
        if self.exact != exact:
            kinds = {True: "the limits themselves", False: "the paper's surrogate of the limits"}
            raise ValuesError(
                f"best is the optimum under {kinds[self.exact]}, but one under {kinds[exact]} is "
                f"wanted; give exact={self.exact} here, or make it by optimum(..., exact={exact})"
            )

    def asked(self, draws: int) -> Floats:
        """(X, K), the chance of each expert to be asked in a request: 1 - (1 - q)^M, a row for each
        context.
        """
        return np.array([iid_inclusion(q, draws) for q in np.atleast_2d(self.policy)])

    @property
    def ceiling(self) -> float:
        """value + gap, which no allowed policy exceeds."""
        return self.value + self.gap


RELATIVE_GAP = 1e-9
"""The gap aimed at, relative to the mean reward of asking everyone."""


def optimum(
    problem: Problem,
    values: ArrayLike | ValueStack,
    *,
    floor: bool | float = True,
    contexts: ArrayLike | None = None,
    aggregate: bool = False,
    exact: bool = False,
    start: ArrayLike | None = None,
    starts: int = 8,
    seed: int = 0,
) -> Optimum:
    """The best fixed policy: max of mean_t Phi^{r_t}(q) over q on the simplex, under the limits.

    values:    (T, N, K) or (N, K), or a `ValueStack`, which keeps its sorting from one call to the next
    floor:     True: q >= problem.floor; False: q >= 0; or a floor of your own
    contexts:  (T,) labels. A policy per context, each under the limits: the paper's OPT^ctx,
               (1/T) sum_x max_{q_x} sum_{t: x_t = x} Phi^{r_t}(q_x)
    aggregate: with contexts, one budget for all: only sum_x (T_x / T) cost(q_x) is limited
    exact:     limit sum_i c_i (1 - (1 - q_i)^M), the expected cost of the distinct experts, itself.
               Otherwise limit the paper's surrogate: sum_i c_i q_i in problem.box, a safe inner set
    start:     a policy to start from, such as the optimum of a like problem; need not be allowed.
               If it is the optimum, as that of looser limits may be, it is returned as it is
               (not with exact)
    starts:    how many starts exact upper limits are given, as what they allow is not convex,
    seed:      and the seed of those among them that are random

    The gap is at most 1e-9 of the mean reward of asking everyone, hence at most 1e-8 for rewards up
    to 10, or else `.gap` says what was reached. With exact upper limits see `Optimum.gap`.

    >>> from bylot.problem import Problem, at_most
    >>> pair = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 0.5)], draws=2)
    >>> best = optimum(pair, [[0.0, 1.0]])
    >>> round(best.value, 6), best.policy.round(6), best.prices.round(6)
    (0.4375, array([0.75, 0.25]), array([0.75]))
    """
    stack = stack_values(problem, values)
    labels, parts = split_by_context(stack, contexts)
    q = None if start is None else check_start(start, (len(parts), problem.size))
    solved = [
        solve_subproblem(
            task, None if q is None else q[rows], MultistartSearch(starts, seed) if exact else None
        )
        for task, rows in split_subproblems(
            problem, parts, resolve_floor(problem, floor), aggregate
        )
    ]
    policy = np.concatenate([one.policy for one in solved])
    return Optimum(
        value=sum(one.value for one in solved),
        policy=policy if labels is not None else policy[0],
        gap=sum(one.gap for one in solved),
        prices=np.sum([one.prices for one in solved], axis=0),
        spread=sum(one.spread for one in solved),
        starts=min(one.starts for one in solved),
        contexts=labels,
        exact=exact,
    )


def stack_values(problem: Problem, values: ArrayLike | ValueStack) -> ValueStack:
    """Values as a stack, with as many experts as the problem has."""
    stack = values if isinstance(values, ValueStack) else ValueStack(values)
    if stack.size != problem.size:
        raise ValuesError(
            f"values are for {stack.size} experts, the problem has {problem.size}; "
            "give the last axis of values one entry per expert"
        )
    return stack


def split_subproblems(
    problem: Problem, parts: tuple[ValueStack, ...], floor: float, aggregate: bool
) -> list[tuple[Subproblem, slice]]:
    """All contexts under one budget, or each under the limits; with the rows of q it is about."""
    shares = np.array([part.weights.sum() for part in parts])
    tolerance = RELATIVE_GAP * sum(part.everyone() for part in parts)
    if aggregate or len(parts) == 1:
        hill = Objective(parts, problem.draws)
        return [(Subproblem(problem, hill, shares / shares.sum(), floor, tolerance), slice(None))]
    return [
        (
            Subproblem(
                problem, Objective((part,), problem.draws), np.ones(1), floor, tolerance * share
            ),
            slice(x, x + 1),
        )
        for x, (part, share) in enumerate(zip(parts, shares, strict=True))
    ]


def solve_subproblem(
    task: Subproblem, start: Floats | None, search: MultistartSearch | None
) -> Optimum:
    """One task, under the surrogate or by a search under the exact costs."""
    if search is None:
        top = maximise_surrogate(task, start)
        return Optimum(top.value, top.q, top.gap, top.prices)
    top, values = search.best(task, start)
    return Optimum(top.value, top.q, top.gap, top.prices, max(values) - min(values), len(values))


def split_by_context(
    stack: ValueStack, contexts: ArrayLike | None
) -> tuple[ContextLabels | None, tuple[ValueStack, ...]]:
    """The labels in increasing order, and the rounds of each."""
    if contexts is None:
        return None, (stack,)
    given = np.asarray(contexts)
    if given.shape != (stack.rounds,) or given.dtype.kind not in "iuU":
        raise ValuesError(
            f"contexts have shape {given.shape} and type {given.dtype}; "
            f"give one whole number or string for each of the {stack.rounds} rounds"
        )
    labels, places = np.unique(given, return_inverse=True)
    return labels, tuple(stack.part(np.flatnonzero(places == x)) for x in range(len(labels)))


def resolve_floor(problem: Problem, floor: bool | float) -> float:
    """The least probability of an expert: the problem's, none, or the one given."""
    if isinstance(floor, bool):
        return problem.floor if floor else 0.0
    if not 0.0 <= floor <= 1.0 / problem.size:
        raise ProblemError(
            f"floor={floor} is not between 0 and 1/{problem.size}, and probabilities sum to 1; "
            "use floor=True for the problem's own, floor=False for none"
        )
    return float(floor)


def check_start(start: ArrayLike, shape: tuple[int, int]) -> Floats:
    """A start as (X, K), on the simplex but for rounding."""
    q = np.atleast_2d(np.asarray(start, dtype=np.float64))
    if q.shape != shape or not ((q >= 0.0).all() and np.allclose(q.sum(axis=1), 1.0)):
        raise ValuesError(
            f"start has shape {q.shape} and sums {q.sum(axis=-1)}; "
            f"give probabilities of shape {shape}, a row for each context, that sum to 1"
        )
    return q
