"""strict: M i.i.d. draws on a fixed safe set, for adversarial environments.

Mirror ascent in the entropy over {q : A q <= b*}, the largest half-spaces that imply the limits
(`iid_limits`; the paper's are inside them), with steps that only get shorter, no clipping, no
pacing, and by default no guard: what the regret bound of mirror ascent on a concave reward assumes,
and nothing else.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.numerics.jit import Floats
from bylot.numerics.kl_projection import kl_project
from bylot.policies.constraint_rows import (
    ConstraintRows,
    find_slater_point,
    make_constraint_rows,
    solve_max_entropy,
)
from bylot.policies.guard import (
    LIMIT_TOLERANCE,
    Guard,
    get_period,
    make_guard,
    plan_fallback_schedule,
)
from bylot.policies.iid_draws import IidPolicy, IidState, register_iid_steps
from bylot.policies.iid_limits import fill_mixture, make_safe_rows
from bylot.policies.mirror_ascent import AscentSettings, check_ascent_settings
from bylot.policies.multipliers import average_shadow_prices
from bylot.policies.validation import check_bools
from bylot.problem import Problem


class StrictRule(NamedTuple):
    """The settings of one run, bound to a problem."""

    draws: int  # M
    ascent: AscentSettings
    eps: float  # share of the exploration distribution
    explore: Floats  # (K,) f0
    safe: ConstraintRows
    guard: Guard


def project_strict(rule: StrictRule, state: IidState, x: int, multipliers: Floats) -> None:
    """`project_iid`: onto the safe set."""
    theta, q, safe = state.theta[x], state.q[x], rule.safe
    pi = np.empty(q.size)
    kl_project(theta, pi, multipliers, theta, safe.A, safe.b, 1, rule.eps, rule.explore)
    fill_mixture(q, pi, rule.eps, rule.explore)


register_iid_steps(StrictRule, project_strict)


@dataclass(frozen=True)
class Strict(IidPolicy):
    """Settings of `strict`.

    eta:      step size, in units of what a regret bound would have
    patience: batches that count as seen before the first, so that early steps are short
    batch:    decisions of a context between two steps
    eps:      share of the exploration distribution in every draw
    guard:    replace panels after which the limits could not be guaranteed; the regret bound does
              not cover replaced panels
    """

    eta: float = 1.0
    patience: float = 100.0
    batch: int = 10
    eps: float = 0.02
    guard: bool = False

    name: ClassVar[str] = "strict"
    label: ClassVar[str] = "strict"
    summary: ClassVar[str] = (
        "draws independently with probabilities that keep the limits in expectation for every "
        "request; meant for adversarial environments"
    )

    def __post_init__(self) -> None:
        check_ascent_settings(self.eta, self.patience, self.batch, self.eps)
        check_bools(guard=self.guard)

    def bind(self, problem: Problem, horizon: int | None = None) -> StrictRule:
        """Make the rule, if the safe set is not empty."""
        rows, M = make_constraint_rows(problem), problem.draws
        safe = make_safe_rows(rows, M)
        period = get_period(problem, horizon)
        plan = plan_fallback_schedule(rows, find_slater_point(problem, fewer=True).quota, period)
        entropy = math.log(max(2, problem.size))
        return StrictRule(
            draws=M,
            ascent=AscentSettings(
                float(self.eta), float(self.patience), self.batch, False, True, entropy
            ),
            eps=float(self.eps),
            explore=find_safe_distribution(problem, safe),
            safe=safe,
            guard=make_guard(rows, plan, period, full=False, on=self.guard),
        )

    def prices(self, problem: Problem, rule: StrictRule, state: IidState) -> Floats:
        """Averaged multipliers, in units of the limits: b* is assumed to move as b does."""
        safe, b = rule.safe.b, rule.guard.b
        moves: Floats = np.divide(safe, b, out=np.full(b.size, 1.0 / rule.draws), where=b != 0)
        return average_shadow_prices(problem, state.multipliers) * moves


def find_safe_distribution(problem: Problem, safe: ConstraintRows) -> Floats:
    """The maximum-entropy distribution inside the safe set, with some slack if there is any."""
    for margin in (1.0, 0.0):
        found = solve_max_entropy(safe, 1, margin)
        if (safe.A @ found.inclusion - safe.b).max(initial=0.0) <= LIMIT_TOLERANCE:
            return found.inclusion
    raise PolicyError(
        "no fixed set of distributions keeps {limits} with certainty, as 'strict' requires",
        limits=problem.limits,
        remedy="use 'tangent', whose set moves with its distribution, or loosen the limits",
    )
