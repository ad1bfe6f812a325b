"""What a play was worth: true regret, distance from the limits, and what the theorems allow."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bylot import theory
from bylot._text import format_table
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats
from bylot.numerics.sum_max import expected_rewards_along
from bylot.optima import Optimum, ValueStack, optimum
from bylot.policies import Adaptive, Anytime, Omd, Policy
from bylot.problem import Problem
from bylot.simulation import Trace, running_mean

LIMIT_TOLERANCES = (0.0, 1e-3, 1e-2)


@dataclass(frozen=True)
class Score:
    """Measured figures, each next to the right-hand side of its theorem.

    expected:   mean of Phi^{r_t}(q_t); of the rewards themselves, where panels are not i.i.d. draws
    regret:     R1 = OPT - expected, on rewards as they were given
    aggregate:  the same against one budget for all contexts; equal to R1 without contexts
    violation:  R2, the distance of the mean cost from the limits, each cost in units of its
                largest value
    feasible:   were all limits kept, up to each tolerance in those units?
    exact:      is `best` the optimum under the limits themselves, not under the paper's surrogate?
    empty:      is the surrogate empty, so that it has no optimum to compare with?
    applies:    False if the play was batched or had a baseline, which the theorems do not cover,
                or if the surrogate is empty
    theorem:    the one about R1, and its bounds; None, and NaN, for all policies but the paper's
    """

    rounds: int
    reward: float
    expected: float
    best: Optimum
    exact: bool
    empty: bool
    regret: float
    regret_bound: float
    aggregate: float
    violation: float
    violation_bound: float
    feasible: dict[float, bool]
    theorem: str | None
    applies: bool

    def beside(self, bound: float, theorem: str, exact: bool = False) -> tuple[str, str]:
        """The cells next to a measured figure: its bound, and whose it is."""
        if self.theorem is None:
            return "-", "no theorem"
        notes = [] if self.applies else ["of the plain algorithm"]
        notes += ["against the surrogate"] if exact else []
        return f"{bound:.4f}", theorem + (f" ({', '.join(notes)})" if notes else "")

    @property
    def benchmark(self) -> str:
        """What regret is against: which optimum it is, and how well that is known."""
        limits = "the exact limits" if self.exact else "the paper's surrogate of the limits"
        why = ", as the surrogate is empty" if self.empty else ""
        known = f"proved to within {format_gap(self.best.gap)}"
        return f"OPT {self.best.value:.6f} under {limits}{why}, {known}"

    def __str__(self) -> str:
        R1 = self.beside(self.regret_bound, self.theorem or "", self.exact)
        R2 = self.beside(self.violation_bound, "Theorem 2")
        rows = [
            (f"{self.rounds} rounds", "measured", "bound", ""),
            ("mean reward", f"{self.reward:.4f}", "", ""),
            ("R1, regret", f"{self.regret:.4f}", *R1),
            ("R2, violation", f"{self.violation:.4f}", *R2),
        ]
        if self.aggregate != self.regret:
            rows.insert(3, ("R1, one budget for all", f"{self.aggregate:.4f}", "", ""))
        kept = ", ".join(f"{'yes' if ok else 'no'} at {tol:g}" for tol, ok in self.feasible.items())
        return "\n".join([*format_table(rows), f"limits kept: {kept}", self.benchmark])


def format_gap(gap: float) -> str:
    """A gap in two digits; one below a millionth in its order only, as its digits are rounding.

    >>> format_gap(0.00418), format_gap(3e-10)
    ('0.0042', '1e-9')
    """
    order = math.log10(max(gap, 1e-9))
    if order < -6:
        return f"1e{math.ceil(order)}"
    step = 10.0 ** (math.floor(order) - 1)
    return f"{math.ceil(gap / step) * step:.2g}"


def score(
    trace: Trace,
    values: ArrayLike | ValueStack,
    best: Optimum | None = None,
    *,
    exact: bool = False,
) -> Score:
    """Judge a play on the values it met, against the best fixed policy in hindsight.

    exact: under the limits themselves; otherwise under the paper's surrogate, which is stricter and
           has less to offer, unless the surrogate is empty
    best:  that policy, of the same kind, if it is known already

    With several contexts the benchmark is the paper's OPT^ctx. Of a policy that draws its panel
    i.i.d. the expected reward is judged, which needs the distributions it played (keep_law=True);
    of any other the reward that came.
    """
    problem, record = trace.problem, trace.record
    stack = values if isinstance(values, ValueStack) else ValueStack(values)
    T, multinomial = len(record.rewards), trace.policy.multinomial
    if stack.rounds != T or (multinomial and len(record.law) != T):
        raise ValuesError(
            f"a trace of {T} rounds with {len(record.law)} distributions, and {stack.rounds} "
            "rounds of values; give the values of the same rounds, and keep_law=True to simulate"
        )
    several = np.unique(record.contexts).size > 1
    contexts = record.contexts if several else None
    empty = problem.surrogate_conflict is not None
    exact = exact or empty
    if best is None:
        best = optimum(problem, stack, contexts=contexts, exact=exact)
    best.require(exact)
    shared = best
    if several:
        shared = optimum(problem, stack, contexts=contexts, aggregate=True, exact=exact)
    earned = record.rewards
    if multinomial:
        earned = expected_rewards_along(record.law, stack.values, stack.order, problem.draws)
    expected = float(earned.mean())
    theorem, regret_bound = find_regret_bound(trace)
    return Score(
        rounds=T,
        reward=float(record.rewards.mean()),
        expected=expected,
        best=best,
        exact=exact,
        empty=empty,
        regret=best.value - expected,
        regret_bound=regret_bound,
        aggregate=shared.value - expected,
        violation=float(compute_running_violations(trace)[-1]),
        violation_bound=find_violation_bound(trace),
        feasible={
            tolerance: measure_worst_violation(trace) <= tolerance for tolerance in LIMIT_TOLERANCES
        },
        theorem=theorem,
        applies=has_theorem(trace.policy) and not empty,
    )


def compute_running_violations(trace: Trace) -> Floats:
    """R2 after every round: distance of the running mean cost from the limits."""
    return measure_distance_from_limits(trace.problem, running_mean(trace.spend))


def measure_distance_from_limits(problem: Problem, means: Floats) -> Floats:
    """How far each row of mean costs (n, d) is from the limits, costs in units of their largest
    value.

    >>> from bylot.problem import Problem, at_most
    >>> pair = Problem(["a", "b"], {"usd": [2.0, 4.0]}, [at_most("usd", 3.0)], draws=1)
    >>> measure_distance_from_limits(pair, np.array([[2.5], [4.0]]))
    array([0.  , 0.25])
    """
    away = np.maximum(means - problem.target.high, problem.target.low - means) / problem.peaks
    return np.asarray(np.sqrt((np.maximum(away, 0.0) ** 2).sum(axis=1)))


def measure_worst_violation(trace: Trace) -> float:
    """How far the mean cost of the whole play is outside its worst limit; 0 if all hold."""
    return measure_worst_excess(trace.problem, trace.spend.mean(axis=0))


def measure_worst_excess(problem: Problem, mean: Floats) -> float:
    """How far a mean cost (d,) is outside its worst limit, in units of the largest cost; 0 if none.

    A mean of T numbers is known to rounding only; a millionth of a millionth is no violation.
    """
    away = problem.signs * (problem.bounds - mean) - 1e-12 * problem.bounds
    return float((away / problem.peaks).max(initial=0.0))


def find_regret_bound(trace: Trace) -> tuple[str | None, float]:
    """The theorem that speaks of this play, and its right-hand side in units of the rewards."""
    problem, policy, T = trace.problem, trace.policy, len(trace.rewards)
    if not isinstance(policy, Omd):
        return None, math.nan
    K, M, floor = problem.size, problem.draws, problem.floor
    span = trace.range[1] - trace.range[0]
    # A play that the theorems do not cover is put beside the algorithm that they do cover.
    eta = policy.proximal(problem, trace.horizon) if has_theorem(policy) else None
    if policy.eta is None and trace.horizon is None:
        visits = np.bincount(trace.record.contexts)
        return "Corollary", span * theory.corollary_by_visits(visits, K, M, floor, eta)
    # Each context starts its own telescoping sum, worth eta.
    more = np.unique(trace.record.contexts).size - 1
    extra = more * (theory.eta_star(T, K, M, floor) if eta is None else eta) / T
    return "Theorem 1", span * (theory.theorem_1(T, K, M, floor, eta) + extra)


def has_theorem(policy: Policy) -> bool:
    """Do the theorems speak of this policy? They know neither batches nor a baseline."""
    return isinstance(policy, Omd) and policy.batch == 1 and not policy.baseline


def find_violation_bound(trace: Trace) -> float:
    """The right-hand side of Theorem 2 for the dual player that was used; NaN if it is another."""
    if not isinstance(trace.policy, Omd):
        return math.nan
    problem, T = scale_problem_costs(trace.problem), len(trace.rewards)
    most = problem.rows.max(axis=1, initial=0.0)
    return theory.theorem_2(T, problem.draws, most, bound_dual_regret(trace.policy, problem, T))


def bound_dual_regret(policy: Omd, problem: Problem, T: int) -> float:
    """Regret_T of the policy's dual player."""
    slope, step = theory.slope_bound(problem), policy.dual.step
    if isinstance(policy.dual, Anytime):
        return theory.anytime_regret(step, slope, T)
    if isinstance(policy.dual, Adaptive):
        return theory.adaptive_regret(step, slope, T)
    return theory.fixed_step_regret(step, slope, T)


def scale_problem_costs(problem: Problem) -> Problem:
    """The same problem as the dual sees it: limited costs in units of their largest value."""
    peak = {limit.name: p for limit, p in zip(problem.limits, problem.peaks, strict=True)}
    costs = {name: row / peak.get(name, 1.0) for name, row in problem.costs.items()}
    limits = [limit.at(float(limit.bound / peak[limit.name])) for limit in problem.limits]
    return Problem(problem.experts, costs, limits, draws=problem.draws, floor=problem.floor)
