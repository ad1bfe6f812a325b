"""optimum: the best fixed policy for a problem and a stack of values, by any of the definitions.

Owns what the definitions differ in: floor, contexts, surrogate or exact costs.
"""

import numpy as np
from numpy.typing import ArrayLike

from bylot.errors import ProblemError, ValuesError
from bylot.kernels.compile import Floats
from bylot.optima.landscape import Landscape
from bylot.optima.result import Labels, Optimum
from bylot.optima.search import Search
from bylot.optima.stack import Stack
from bylot.optima.surrogate import surrogate_top
from bylot.optima.task import Task
from bylot.problem import Problem

PRECISION = 1e-9
"""The gap aimed at, relative to the mean reward of asking everyone."""


def optimum(
    problem: Problem,
    values: ArrayLike | Stack,
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

    values:    (T, N, K) or (N, K), or a `Stack`, which keeps its sorting from one call to the next
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
    stack = agreeing(problem, values)
    labels, parts = by_context(stack, contexts)
    q = None if start is None else starting(start, (len(parts), problem.size))
    solved = [
        solve(task, None if q is None else q[rows], Search(starts, seed) if exact else None)
        for task, rows in tasks(problem, parts, floor_of(problem, floor), aggregate)
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


def agreeing(problem: Problem, values: ArrayLike | Stack) -> Stack:
    """Values as a stack, with as many experts as the problem has."""
    stack = values if isinstance(values, Stack) else Stack(values)
    if stack.size != problem.size:
        raise ValuesError(
            f"values are for {stack.size} experts, the problem has {problem.size}; "
            "give the last axis of values one entry per expert"
        )
    return stack


def tasks(
    problem: Problem, parts: tuple[Stack, ...], floor: float, aggregate: bool
) -> list[tuple[Task, slice]]:
    """All contexts under one budget, or each under the limits; with the rows of q it is about."""
    shares = np.array([part.weights.sum() for part in parts])
    tolerance = PRECISION * sum(part.everyone() for part in parts)
    if aggregate or len(parts) == 1:
        hill = Landscape(parts, problem.draws)
        return [(Task(problem, hill, shares / shares.sum(), floor, tolerance), slice(None))]
    return [
        (
            Task(problem, Landscape((part,), problem.draws), np.ones(1), floor, tolerance * share),
            slice(x, x + 1),
        )
        for x, (part, share) in enumerate(zip(parts, shares, strict=True))
    ]


def solve(task: Task, start: Floats | None, search: Search | None) -> Optimum:
    """One task, under the surrogate or by a search under the exact costs."""
    if search is None:
        top = surrogate_top(task, start)
        return Optimum(top.value, top.q, top.gap, top.prices)
    top, values = search.best(task, start)
    return Optimum(top.value, top.q, top.gap, top.prices, max(values) - min(values), len(values))


def by_context(stack: Stack, contexts: ArrayLike | None) -> tuple[Labels | None, tuple[Stack, ...]]:
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


def floor_of(problem: Problem, floor: bool | float) -> float:
    """The least probability of an expert: the problem's, none, or the one given."""
    if isinstance(floor, bool):
        return problem.floor if floor else 0.0
    if not 0.0 <= floor <= 1.0 / problem.size:
        raise ProblemError(
            f"floor={floor} is not between 0 and 1/{problem.size}, and probabilities sum to 1; "
            "use floor=True for the problem's own, floor=False for none"
        )
    return float(floor)


def starting(start: ArrayLike, shape: tuple[int, int]) -> Floats:
    """A start as (X, K), on the simplex but for rounding."""
    q = np.atleast_2d(np.asarray(start, dtype=np.float64))
    if q.shape != shape or not ((q >= 0.0).all() and np.allclose(q.sum(axis=1), 1.0)):
        raise ValuesError(
            f"start has shape {q.shape} and sums {q.sum(axis=-1)}; "
            f"give probabilities of shape {shape}, a row for each context, that sum to 1"
        )
    return q
