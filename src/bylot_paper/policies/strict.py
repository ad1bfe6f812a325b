"""strict: i.i.d. draws as `tangent` makes them, from a fixed set of distributions.

It projects its steps onto {q : A q <= b*}, the largest half-spaces that imply the limits (those of
the paper are inside them), with steps that only get shorter, no clipping, no pacing, and by default
no guard: what the regret bound of mirror ascent on a concave reward assumes, and nothing else.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.limits.binding import Pace, bind_limits, get_rows
from bylot.limits.guard import LIMIT_TOLERANCE
from bylot.limits.records import LimitRule, Limits
from bylot.limits.rows import ConstraintRows, solve_max_entropy
from bylot.numerics.dispatch import step
from bylot.numerics.jit import Floats, jit
from bylot.numerics.kl_projection import kl_project
from bylot.policies.base import FeedbackKind
from bylot.policies.iid_limits import bisect_threshold
from bylot.policies.mirror_ascent import AscentSettings, fill_mixture
from bylot.policies.tangent import IidPolicy, IidState, project_iid, register_iid_steps
from bylot.policies.validation import check_iid_panels
from bylot.problem import Problem

SAFE_BOUND_HALVINGS = 60
MAX_SAFE_BOUND_PRICE = 1e6  # of h in units of c.q: cost does not matter
MAX_ROW_VALUES = 500  # different costs of a row; pairs of more take long, and have little to gain


class StrictRule(NamedTuple):
    draws: int  # M
    ascent: AscentSettings
    eps: float  # share of the exploration distribution
    explore: Floats  # (K,) f0
    safe: ConstraintRows
    bounds: Floats  # (d,) of the limits
    limits: int  # d


def make_safe_rows(rows: ConstraintRows, M: int) -> ConstraintRows:
    """Return A q <= b* for one-sided limits h(q) <= b.

    >>> make_safe_rows(ConstraintRows(np.array([[1.0, 0.0]]), np.array([0.75])), 2).b.round(9)
    array([0.5])
    >>> make_safe_rows(ConstraintRows(np.array([[-1.0, 0.0]]), np.array([-0.75])), 2).b.round(9)
    array([-0.5])
    """
    sides = [
        find_safe_upper_bound(row, b, M) if b >= 0 else -find_safe_lower_bound(-row, -b, M)
        for row, b in zip(rows.A, rows.b, strict=True)
    ]
    return ConstraintRows(rows.A, np.array(sides))


def compute_hit_probability(q: Floats, M: int) -> Floats:
    """1 - (1 - q)^M, also where q is tiny."""
    return np.asarray(-np.expm1(M * np.log1p(-np.minimum(q, 1.0 - 2.0**-53))))


def find_safe_upper_bound(c: Floats, u: float, M: int) -> float:
    """Return b* of an upper limit.

    The q that maximise mu h(q) - c.q spend least for their h(q), which grows with the price mu and
    is u at b*.
    """

    def kept(mu: float) -> bool:
        return float(c @ compute_hit_probability(maximize_priced_cost(c, mu, M), M)) <= u

    least = 1.0 / MAX_SAFE_BOUND_PRICE
    if M == 1 or not kept(least):
        return u / M
    low, high = bisect_threshold(least, MAX_SAFE_BOUND_PRICE, kept, SAFE_BOUND_HALVINGS)
    if high == MAX_SAFE_BOUND_PRICE:  # no distribution costs more than u
        return float(c.max())
    return max(u / M, float(c @ maximize_priced_cost(c, low, M)))


def maximize_priced_cost(c: Floats, mu: float, M: int) -> Floats:
    """Return the q on the simplex that maximises mu h(q) - c.q, zero where nothing is paid.

    (1 - q_i)^(M-1) = (1 + nu / c_i) / (mu M), nu such that the q_i sum to 1: to at most 1, with
    nu = 0, where there is someone to be had for nothing.
    """
    paid = c[c > 0]

    def at(nu: float) -> Floats:
        root = np.maximum(1.0 + nu / paid, 0.0) / (mu * M)
        return np.clip(1.0 - root ** (1.0 / (M - 1)), 0.0, 1.0)

    nu = 0.0
    if paid.size == c.size or at(0.0).sum() > 1.0:
        _, nu = bisect_threshold(
            -paid.max(), mu * M * paid.max(), lambda nu: at(nu).sum() > 1.0, SAFE_BOUND_HALVINGS
        )
    q = np.zeros(c.size)
    q[c > 0] = at(nu)
    return q


def find_safe_lower_bound(c: Floats, l: float, M: int) -> float:  # noqa: E741
    """Return b* of a lower limit.

    h is concave, so its least value where c.q >= b is at a corner of that set: one expert alone, or
    two of them with c.q = b.
    """
    values = np.unique(c)
    if values.size > MAX_ROW_VALUES or l > values[-1]:  # one expert gives less: nothing is safe
        return l

    def least(b: float) -> float:
        high = values[values >= b][:, None]
        low = values[values < b][None, :]
        share = (b - low) / (high - low)
        pairs = high * compute_hit_probability(share, M)
        pairs = pairs + low * compute_hit_probability(1.0 - share, M)
        return float(min(high.min(initial=np.inf), pairs.min(initial=np.inf)))

    return bisect_threshold(0.0, l, lambda b: least(b) < l, SAFE_BOUND_HALVINGS)[1]


def find_safe_distribution(problem: Problem, safe: ConstraintRows) -> Floats:
    """Return the maximum-entropy distribution of the safe set, with some slack if possible."""
    for margin in (1.0, 0.0):
        _, q = solve_max_entropy(safe, 1, margin)
        if (safe.A @ q - safe.b).max(initial=0.0) <= LIMIT_TOLERANCE:
            return q
    raise PolicyError(
        "no fixed set of distributions keeps {limits} with certainty, as 'strict' requires",
        limits=problem.limits,
        remedy="use 'tangent', whose set moves with its distribution, or loosen the limits",
    )


@jit
def project_onto_rows(
    theta: Floats, q: Floats, prices: Floats, rows: ConstraintRows, eps: float, explore: Floats
) -> None:
    """KL-project theta so that q = (1 - eps) softmax(theta) + eps f0 satisfies A q <= b."""
    pi = np.empty(q.size)
    kl_project(theta, pi, prices, theta, rows.A, rows.b, 1, eps, explore)
    fill_mixture(q, pi, eps, explore)


@step(project_iid, StrictRule)
def project_strict(
    rule: StrictRule, state: IidState, limits: Limits, x: int, multipliers: Floats
) -> None:
    """Project onto the safe set."""
    project_onto_rows(state.theta[x], state.q[x], multipliers, rule.safe, rule.eps, rule.explore)


register_iid_steps(StrictRule)


@dataclass(frozen=True)
class Strict(IidPolicy):
    """Settings of `strict`.

    eta, patience, batch, eps: as in `Distinct`
    guard: replace panels after which the limits could not be guaranteed; the regret bound does not
           cover replaced panels
    """

    name = "strict"
    label = "strict"
    summary = (
        "draws independently with probabilities that keep the limits in expectation for every "
        "request; meant for adversarial environments"
    )

    def bind_limits(self, problem: Problem, horizon: int | None = None) -> LimitRule:
        """Return the limits for panels of one member or more, whose bounds do not move."""
        check_iid_panels(self.name, problem)
        return bind_limits(problem, horizon, 1, self.guard, Pace(None, self.batch))

    def bind(
        self,
        problem: Problem,
        horizon: int | None = None,
        feedback: FeedbackKind = "panel",
        limits: LimitRule | None = None,
    ) -> StrictRule:
        limits = limits or self.bind_limits(problem, horizon)
        rows = get_rows(limits)
        safe = make_safe_rows(rows, problem.draws)
        return StrictRule(
            draws=problem.draws,
            ascent=self.bind_ascent(math.log(max(2, problem.size)), clip=False, monotone=True),
            eps=float(self.eps),
            explore=find_safe_distribution(problem, safe),
            safe=safe,
            bounds=rows.b,
            limits=rows.b.size,
        )

    def prices(self, problem: Problem, rule: StrictRule, state: IidState) -> Floats:
        """Return averaged multipliers in units of the limits, as if b* moved as b does."""
        b = rule.bounds
        moves: Floats = np.full(b.size, 1.0 / rule.draws)
        np.divide(rule.safe.b, b, out=moves, where=b != 0)
        return state.multipliers.compute_prices(problem) * moves
