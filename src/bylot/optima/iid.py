"""The best fixed policy of M independent draws: the optimum of the paper, and its variants.

Owns what the variants differ in: floor, contexts, surrogate or exact costs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bylot.errors import ProblemError, ValuesError
from bylot.numerics.iid_sets import iid_inclusion
from bylot.numerics.jit import Floats, announce_compilation
from bylot.optima.objective import (
    RELATIVE_GAP,
    ContextLabels,
    Objective,
    ValueStack,
    describe_budget,
    split_values,
)
from bylot.optima.policy_search import Subproblem, maximise_surrogate, search_exact_optimum
from bylot.problem import Problem
from bylot.problem.window_bounds import restate_per_request


@dataclass(frozen=True, eq=False)
class IidOptimum:
    """The best expected reward per round of independent draws, and their probabilities.

    Attributes
    ----------
    value
        Mean over rounds of Phi^{r_t}(policy), evaluated exactly.
    policy
        Draw probabilities (K,), or (X, K) with a row for each of the `contexts`.
    gap
        No feasible policy earns more than value + gap. Exact costs: the proof uses a convex
        superset of the feasible policies, so the gap can be large when upper limits bind.
    prices
        (d,) shadow prices, d value / d bound in the bound's own unit: >= 0 for `at_most`, <= 0
        for `at_least`; one of the possible values at a kink.
    spread
        Best minus worst local maximum over the starts (exact costs only, else 0).
    starts
        Starts that led to a feasible policy; the search ends once one is proved best.
    contexts
        Labels of the rows of `policy`; None without contexts.
    exact
        Whether limits are on exact expected costs or on the paper's surrogate.
    question
        What `value` is the best of, in words.
    """

    value: float
    policy: Floats
    gap: float
    prices: Floats
    spread: float = 0.0
    starts: int = 1
    contexts: ContextLabels | None = None
    exact: bool = False
    question: str = ""

    def require(self, exact: bool) -> None:
        """Raise `ValuesError` if this is the optimum of the other kind."""
        if self.exact != exact:
            kinds = {True: "the exact limits", False: "the paper's surrogate of the limits"}
            raise ValuesError(
                f"expected an optimum under {kinds[exact]}, got one under {kinds[self.exact]}",
                remedy=f"pass exact={self.exact} here, or use iid_optimum(..., exact={exact})",
            )

    def inclusion(self, draws: int) -> Floats:
        """(X, K), probability of each expert to be asked in a request: 1 - (1 - q)^M."""
        return np.array([iid_inclusion(q, draws) for q in np.atleast_2d(self.policy)])

    @property
    def ceiling(self) -> float:
        """value + gap, which no feasible policy exceeds."""
        return self.value + self.gap


@announce_compilation("the optimum")
def iid_optimum(
    problem: Problem,
    values: ArrayLike | ValueStack,
    *,
    floor: bool | float = False,
    contexts: ArrayLike | None = None,
    each_context: bool = False,
    exact: bool = False,
    start: ArrayLike | None = None,
    starts: int = 8,
    seed: int = 0,
) -> IidOptimum:
    """Maximise mean_t Phi^{r_t}(q) over q on the simplex, under the limits.

    With `floor=True` and `each_context=True` it is the optimum of the paper, OPT or OPT^ctx. An
    expert that is drawn twice is asked once, so `optimum`, for panels of different experts, is
    larger unless smaller panels are worth more.

    Parameters
    ----------
    problem, values
        As for `optimum`.
    floor
        True: q >= problem.floor; False: q >= 0; or a floor of your own.
    contexts
        (T,) labels. There is one policy per context:
        (1/T) sum_x max_{q_x} sum_{t: x_t = x} Phi^{r_t}(q_x).
    each_context
        Every context keeps the limits by itself. Otherwise all share one budget: only
        sum_x (T_x / T) cost(q_x) is limited.
    exact
        Limit sum_i c_i (1 - (1 - q_i)^M), the expected cost of the distinct experts, itself.
        Otherwise limit the paper's surrogate: sum_i c_i q_i in problem.box, a safe inner set.
    start
        A policy to start from, which may be infeasible; without `exact`, returned if optimal.
    starts, seed
        Starts under exact upper limits, whose feasible set is not convex; seed of random ones.

    Returns
    -------
    Optimum
        Its gap is at most 1e-9 of the mean reward of asking everyone unless `.gap` says
        otherwise; for exact upper limits see `Optimum`.

    Raises
    ------
    InfeasibleLimits
        If no policy keeps the limits (or the surrogate), or none was found.
    ValuesError, ProblemError
        If values, contexts, start or floor do not fit the problem.

    Examples
    --------
    >>> from bylot.problem import Problem, at_most
    >>> pair = Problem(["a", "b"], {"usd": [0.0, 1.0]}, [at_most("usd", 0.5)], draws=2)
    >>> best = iid_optimum(pair, [[0.0, 1.0]])
    >>> round(best.value, 6), best.policy.round(6), best.prices.round(6)
    (0.4375, array([0.75, 0.25]), array([0.75]))
    """
    problem = restate_per_request(problem)
    labels, parts = split_values(problem, values, contexts)
    q, shape = None, (len(parts), problem.size)
    if start is not None:
        q = np.atleast_2d(np.asarray(start, dtype=np.float64))
        if q.shape != shape or not ((q >= 0.0).all() and np.allclose(q.sum(axis=1), 1.0)):
            raise ValuesError(
                f"start has shape {q.shape} and row sums {q.sum(axis=-1)}",
                remedy=f"give probabilities of shape {shape}, one row per context, that sum to 1",
            )
    found = []
    for task, rows in split_subproblems(problem, parts, floor, each_context):
        first = None if q is None else q[rows]
        if exact:
            found.append(search_exact_optimum(task, first, starts, seed))
        else:
            best = maximise_surrogate(task, first)
            found.append((best, [best.value]))
    policy = np.concatenate([best.q for best, _ in found])
    limits = "the exact limits" if exact else "the paper's surrogate of the limits"
    least = f" with floor {problem.floor if floor is True else floor:.3g}" if floor else ""
    question = f"the best independent draws{least} under {limits}"
    return IidOptimum(
        value=sum(best.value for best, _ in found),
        policy=policy if labels is not None else policy[0],
        gap=sum(best.gap for best, _ in found),
        prices=np.sum([best.prices for best, _ in found], axis=0),
        spread=sum(max(local) - min(local) for _, local in found),
        starts=min(len(local) for _, local in found),
        contexts=labels,
        exact=exact,
        question=question + describe_budget(labels, each_context),
    )


def split_subproblems(
    problem: Problem, parts: tuple[ValueStack, ...], floor: bool | float, each_context: bool
) -> list[tuple[Subproblem, slice]]:
    """All contexts under one budget, or each under the limits; with its rows of q."""
    least = floor * problem.floor if isinstance(floor, bool) else float(floor)
    if not isinstance(floor, bool) and not 0.0 <= least <= 1.0 / problem.size:
        raise ProblemError(
            "floor",
            got=floor,
            expected=f"a number from 0 to 1/{problem.size}",
            remedy="use floor=True for the problem's own, floor=False for none",
        )
    shares = np.array([part.weights.sum() for part in parts])
    tolerance = RELATIVE_GAP * sum(part.reward_of_all for part in parts)
    if not each_context or len(parts) == 1:
        F = Objective(parts, problem.draws)
        return [(Subproblem(problem, F, shares / shares.sum(), least, tolerance), slice(None))]
    split = []
    for x, part in enumerate(parts):
        F = Objective((part,), problem.draws)
        task = Subproblem(problem, F, np.ones(1), least, tolerance * shares[x])
        split.append((task, slice(x, x + 1)))
    return split
