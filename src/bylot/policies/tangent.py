"""tangent: M i.i.d. draws as in the paper, under limits on their exact expected cost.

Mirror ascent in the entropy, with the score of the drawn *set* as its gradient, projected onto
tangents of the exact costs (`iid_limits`), paced and guarded.
"""

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from bylot.errors import OutOfReachWarning
from bylot.numerics.jit import Floats
from bylot.policies.budget import DEFAULT_PACE, Pace, check_pace, fill_paced_bounds, make_pace
from bylot.policies.constraint_rows import ConstraintRows, find_slater_point, make_constraint_rows
from bylot.policies.guard import (
    LIMIT_TOLERANCE,
    Guard,
    get_period,
    make_guard,
    plan_fallback_schedule,
)
from bylot.policies.iid_draws import IidPolicy, IidState, register_iid_steps
from bylot.policies.iid_limits import (
    find_iid_floor,
    find_iid_margin,
    project_onto_tangents,
    solve_max_entropy_draws,
)
from bylot.policies.mirror_ascent import AscentSettings, check_ascent_settings
from bylot.policies.multipliers import average_shadow_prices
from bylot.policies.validation import check_bools
from bylot.problem import Problem


class TangentRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    ascent: AscentSettings
    eps: float  # share of the exploration distribution
    explore: Floats  # (K,) f0
    pace: Pace
    guard: Guard


def project_tangent(rule: TangentRule, state: IidState, x: int, multipliers: Floats) -> None:
    """`project_iid`: onto tangents of the bounds in force."""
    theta, q, guard, M = state.theta[x], state.q[x], rule.guard, rule.draws
    fill_paced_bounds(state.bounds, guard, state.budget, rule.pace)
    b = state.bounds
    project_onto_tangents(theta, q, multipliers, guard.A, b, M, rule.eps, rule.explore)


register_iid_steps(TangentRule, project_tangent)


@dataclass(frozen=True)
class Tangent(IidPolicy):
    """Settings of `tangent`; one default for every pool.

    eta:      step size, in units of what a regret bound would have
    patience: batches that count as seen before the first, so that early steps are short
    batch:    decisions of a context between two steps
    eps:      share of the exploration distribution in every draw
    pace:     factor by which bounds in force may exceed the limits after cheap rounds; 1 keeps
              every round inside the limits in expectation, None keeps the bounds fixed
    guard:    replace panels after which the limits could not be guaranteed
    clip:     let no step change a logit by more than 1
    """

    eta: float = 1.0
    patience: float = 100.0
    batch: int = 10
    eps: float = 0.02
    pace: float | None = DEFAULT_PACE
    guard: bool = True
    clip: bool = True

    name: ClassVar[str] = "tangent"
    label: ClassVar[str] = "tangent"
    summary: ClassVar[str] = (
        "draws independently, so that a panel may have fewer members, and learns the probabilities"
    )

    def __post_init__(self) -> None:
        check_ascent_settings(self.eta, self.patience, self.batch, self.eps)
        check_pace(self.pace)
        check_bools(guard=self.guard, clip=self.clip)

    def bind(self, problem: Problem, horizon: int | None = None) -> TangentRule:
        """Make the rule; limits hold at the end of the horizon, or of every period."""
        rows, M = make_constraint_rows(problem), problem.draws
        slater = find_slater_point(problem, fewer=True)
        margin = find_iid_margin(rows, M, slater.margin)
        if margin <= 0.0:
            warn_if_iid_infeasible(problem, rows)
        period = get_period(problem, horizon)
        plan = plan_fallback_schedule(rows, slater.quota, period)
        entropy = math.log(max(2, problem.size))
        return TangentRule(
            draws=M,
            ascent=AscentSettings(
                float(self.eta), float(self.patience), self.batch, self.clip, False, entropy
            ),
            eps=float(self.eps),
            explore=find_iid_floor(rows, M, margin),
            pace=make_pace(self.pace, margin, rows.A, min(M, problem.size), full=False),
            guard=make_guard(rows, plan, period, full=False, on=self.guard),
        )

    def prices(self, problem: Problem, rule: TangentRule, state: IidState) -> Floats:
        """Averaged multipliers; a tangent row is divided by M."""
        return average_shadow_prices(problem, state.multipliers, problem.draws)


def warn_if_iid_infeasible(problem: Problem, rows: ConstraintRows) -> None:
    """Warn if no independent draws were found that satisfy the limits in expectation."""
    if solve_max_entropy_draws(rows, problem.draws, 0.0).excess > LIMIT_TOLERANCE:
        warnings.warn(
            OutOfReachWarning(
                "no distribution of independent draws was found that keeps all limits, so the "
                "guard will replace many panels",
                remedy="use 'distinct': it asks different experts, which helps minimum shares",
            ),
            stacklevel=3,
        )
