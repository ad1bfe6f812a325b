"""Metrics of a simulation: regret, distance from the limits, and the bounds of the theorems."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bylot import theory
from bylot._text import format_table
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, announce_compilation
from bylot.numerics.sum_max import expected_rewards
from bylot.optima import IidOptimum, Optimum, ValueStack, iid_optimum, optimum
from bylot.policies import Omd, Policy
from bylot.problem import Problem
from bylot.trace import Trace, running_mean

LIMIT_TOLERANCES = (0.0, 1e-3, 1e-2)


@dataclass(frozen=True)
class Score:
    """Metrics of a simulation, each with the right-hand side of its theorem.

    Attributes
    ----------
    rounds, reward
        The number of rounds and their mean reward.
    expected
        Mean of Phi^{r_t}(q_t) for i.i.d. draws; of other policies, the mean reward.
    best, optimum_name
        OPT, the optimum among the distributions that the policy can play, and what it is.
    exact
        Whether the limits of OPT are exact, and not the paper's surrogate of them.
    regret, aggregate
        R1 = OPT - expected; the same against one budget for all contexts.
    violation
        R2, the distance of the mean cost from the limits, costs in units of their largest value.
    feasible
        Whether all limits were kept, up to each tolerance in those units.
    theorem, regret_bound, violation_bound
        The theorem on R1 and the bounds on R1 and R2; None and NaN if there is none.
    applies
        False if batches, a baseline or an empty surrogate put the run outside the theorems.
    """

    rounds: int
    reward: float
    expected: float
    best: IidOptimum | Optimum
    optimum_name: str
    exact: bool
    regret: float
    regret_bound: float
    aggregate: float
    violation: float
    violation_bound: float
    feasible: dict[float, bool]
    theorem: str | None
    applies: bool

    def describe_bound(self, bound: float, theorem: str, exact: bool = False) -> tuple[str, str]:
        if self.theorem is None:
            return "-", "no theorem"
        notes = [] if self.applies else ["of the plain algorithm"]
        notes += ["against the surrogate"] if exact else []
        return f"{bound:.4f}", theorem + (f" ({', '.join(notes)})" if notes else "")

    def __str__(self) -> str:
        rows = [
            (f"{self.rounds} rounds", "measured", "bound", ""),
            ("mean reward", f"{self.reward:.4f}", "", ""),
            (
                *("R1, regret", f"{self.regret:.4f}"),
                *self.describe_bound(self.regret_bound, self.theorem or "", self.exact),
            ),
            (
                *("R2, violation", f"{self.violation:.4f}"),
                *self.describe_bound(self.violation_bound, "Theorem 2"),
            ),
        ]
        if self.aggregate != self.regret:
            rows.insert(3, ("R1, one budget for all", f"{self.aggregate:.4f}", "", ""))
        kept = ", ".join(f"{'yes' if ok else 'no'} at {tol:g}" for tol, ok in self.feasible.items())
        earned = f"{self.expected / self.best.value:.1%} of " if self.best.value > 0 else ""
        best = (
            f"{earned}OPT {self.best.value:.6f}: {self.optimum_name}, proved to within "
            f"{format_gap(self.best.gap)}"
        )
        return "\n".join([*format_table(rows), f"limits kept: {kept}", best])


def format_gap(gap: float) -> str:
    """A gap rounded up to two digits; below a millionth, to a power of ten.

    >>> format_gap(0.00418), format_gap(3e-10)
    ('0.0042', '1e-9')
    """
    order = math.log10(max(gap, 1e-9))
    if order < -6:
        return f"1e{math.ceil(order)}"
    step = 10.0 ** (math.floor(order) - 1)
    return f"{math.ceil(gap / step) * step:.2g}"


@announce_compilation("the rewards of a policy")
def score(
    trace: Trace,
    values: ArrayLike | ValueStack,
    best: IidOptimum | Optimum | None = None,
    *,
    exact: bool | None = None,
) -> Score:
    """Compare a simulation with the best fixed policy in hindsight among those of its kind.

    The optimum is that of the distributions which the policy can play: independent draws with
    the paper's floor, under its surrogate of the limits, for `omd`; independent draws under the
    limits for other policies of i.i.d. draws; mixtures of full panels of different experts for
    all others, or of smaller panels too if full ones cannot keep the limits. With several
    contexts, that of `omd` is OPT^ctx; the others have one budget for all contexts.

    Parameters
    ----------
    trace
        The simulation. Policies of i.i.d. draws are scored by their expected reward, which needs
        the distributions played (keep_distributions=True), others by the rewards received.
    values
        The values of the same rounds, (T, N, K), or a `ValueStack`.
    best
        The optimum of this kind, if it is known already.
    exact
        Whether independent draws are compared under the exact limits or under the surrogate;
        exact if the surrogate is empty, and by default for all policies but `omd`.

    Returns
    -------
    Score
        The metrics; `print` shows them as a table.

    Raises
    ------
    ValuesError
        If values or optimum do not belong to the simulation.
    """
    problem, record = trace.problem, trace.record
    stack = values if isinstance(values, ValueStack) else ValueStack(values)
    T, multinomial = len(record.rewards), trace.policy.draws_iid
    if stack.rounds != T or (multinomial and len(record.distributions) != T):
        raise ValuesError(
            f"the trace has {T} rounds and {len(record.distributions)} distributions, the values "
            f"have {stack.rounds} rounds",
            remedy="give values of the same rounds, and simulate with keep_distributions=True",
        )
    best, exact = find_fitting_optimum(trace, stack, best, exact)
    shared = best
    if isinstance(trace.policy, Omd) and best.contexts is not None:
        shared = iid_optimum(problem, stack, contexts=record.contexts, exact=exact, floor=True)
    earned = record.rewards
    if multinomial:
        drawn = expected_rewards(record.distributions, stack.values, stack.order, problem.draws)
        earned = np.where(record.replaced, earned, drawn)
    expected = float(earned.mean())
    theorem, regret_bound = find_regret_bound(trace)
    excess = measure_worst_violation(trace)
    return Score(
        rounds=T,
        reward=float(record.rewards.mean()),
        expected=expected,
        best=best,
        optimum_name=best.question,
        exact=exact,
        regret=best.value - expected,
        regret_bound=regret_bound,
        aggregate=shared.value - expected,
        violation=float(compute_running_violations(trace)[-1]),
        violation_bound=find_violation_bound(trace),
        feasible={tolerance: excess <= tolerance for tolerance in LIMIT_TOLERANCES},
        theorem=theorem,
        applies=has_theorem(trace.policy) and problem.surrogate_conflict is None,
    )


def find_fitting_optimum(
    trace: Trace, stack: ValueStack, best: IidOptimum | Optimum | None, exact: bool | None
) -> tuple[IidOptimum | Optimum, bool]:
    """The optimum among the distributions that a policy can play, or `best` if it is of this kind.

    Also whether it is under exact limits.
    """
    problem, policy, labels = trace.problem, trace.policy, trace.record.contexts
    options: dict[str, Any] = {"contexts": labels if np.unique(labels).size > 1 else None}
    options["each_context"] = isinstance(policy, Omd)
    if not policy.draws_iid:
        best = best or optimum(problem, stack, **options)
        if isinstance(best, IidOptimum):
            raise ValuesError(
                f"panels of {policy.name} are no independent draws",
                remedy="give what bylot.optimum returned",
            )
        return best, True
    paper, empty = isinstance(policy, Omd), problem.surrogate_conflict is not None
    exact = empty or (not paper if exact is None else exact)
    best = best or iid_optimum(problem, stack, exact=exact, floor=paper, **options)
    if isinstance(best, Optimum):
        raise ValuesError(
            f"the draws of {policy.name} are independent",
            remedy="give what bylot.iid_optimum returned",
        )
    best.require(exact)
    if empty and paper:
        best = replace(best, question=f"{best.question}, as the surrogate is empty")
    return best, exact


def compute_running_violations(trace: Trace) -> Floats:
    """R2 after every round: distance of the running mean cost from the limits."""
    return measure_distance_from_limits(trace.problem, running_mean(trace.spend))


def measure_distance_from_limits(problem: Problem, means: Floats) -> Floats:
    """Distance of each row of mean costs (n, d) from the limits, in units of the largest costs.

    >>> from bylot.problem import Problem, at_most
    >>> pair = Problem(["a", "b"], {"usd": [2.0, 4.0]}, [at_most("usd", 3.0)], draws=1)
    >>> measure_distance_from_limits(pair, np.array([[2.5], [4.0]]))
    array([0.  , 0.25])
    """
    away = np.maximum(means - problem.target.high, problem.target.low - means) / problem.peaks
    return np.asarray(np.sqrt((np.maximum(away, 0.0) ** 2).sum(axis=1)))


def measure_worst_violation(trace: Trace) -> float:
    """The largest violation by the mean cost of a whole simulation; 0 if all limits hold."""
    return measure_worst_excess(trace.problem, trace.spend.mean(axis=0))


def measure_worst_excess(problem: Problem, mean: Floats) -> float:
    """The largest violation by a mean cost (d,), in units of the largest cost; 0 if none.

    Up to 1e-12 of a bound is rounding of the mean and no violation.
    """
    away = problem.signs * (problem.bounds - mean) - 1e-12 * problem.bounds
    return float((away / problem.peaks).max(initial=0.0))


def find_regret_bound(trace: Trace) -> tuple[str | None, float]:
    """The theorem on the regret of this simulation, and its bound in units of the rewards."""
    problem, policy, T = trace.problem, trace.policy, len(trace.rewards)
    if not isinstance(policy, Omd):
        return None, math.nan
    K, M, floor = problem.size, problem.draws, problem.floor
    span = trace.range[1] - trace.range[0]
    # A run outside the theorems gets the bound of the plain algorithm.
    eta = policy.proximal(problem, trace.horizon) if has_theorem(policy) else None
    if policy.eta is None and trace.horizon is None:
        visits = np.bincount(trace.record.contexts)
        return "Corollary", span * theory.corollary_by_visits(visits, K, M, floor, eta)
    # Each context starts its own telescoping sum, worth eta.
    more = np.unique(trace.record.contexts).size - 1
    extra = more * (theory.eta_star(T, K, M, floor) if eta is None else eta) / T
    return "Theorem 1", span * (theory.theorem_1(T, K, M, floor, eta) + extra)


def has_theorem(policy: Policy) -> bool:
    """Whether the theorems cover this policy: they know neither batches nor a baseline."""
    return isinstance(policy, Omd) and policy.batch == 1 and not policy.baseline


def find_violation_bound(trace: Trace) -> float:
    """The bound of Theorem 2 for the dual player of the policy; NaN for other policies."""
    if not isinstance(trace.policy, Omd):
        return math.nan
    problem = scale_problem_costs(trace.problem)
    T = len(trace.rewards)
    regret = theory.fixed_step_regret(trace.policy.dual, theory.slope_bound(problem), T)
    return theory.theorem_2(T, problem.draws, problem.rows.max(axis=1, initial=0.0), regret)


def scale_problem_costs(problem: Problem) -> Problem:
    """The problem as the dual player sees it: limited costs in units of their largest value."""
    peak = {limit.name: p for limit, p in zip(problem.limits, problem.peaks, strict=True)}
    costs = {name: row / peak.get(name, 1.0) for name, row in problem.costs.items()}
    limits = [limit.at(float(limit.bound / peak[limit.name])) for limit in problem.limits]
    return problem.replace(costs=costs, limits=limits)
