"""The best policies under the paper's surrogate, and under exact expected costs.

The surrogate, mean costs sum_i q_i c_i inside the box S, is a polytope: one maximisation with its
certificate suffices. Upper limits on exact costs, which are concave, leave a non-convex set. Each
of several starts is improved within the tangents at the current point; a maximum over the chords
bounds what any policy can earn.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.numerics import iid_sets
from bylot.numerics.jit import Bools, Floats
from bylot.optima.newton import CertifiedMaximum, ConcaveProgram, Point, QuadraticModel
from bylot.optima.objective import Objective
from bylot.optima.polytope import Polytope
from bylot.problem import Problem

LIMIT_SLACK = 1e-9  # units by which a limit may be violated
BOUND_MARGIN = 1e-10  # units by which bounds are tightened first, so that they are kept exactly
MAX_LOCAL_STEPS = 300  # of one local search
MAX_HALVINGS = 20  # of a step until it improves the value


class Subproblem(NamedTuple):
    """Maximise F over q (X, K), q >= floor, where context x has share_x of the costs.

    The tolerance is a difference of values: a smaller gap counts as none.
    """

    problem: Problem
    F: Objective
    shares: Floats
    floor: float
    tolerance: float

    @property
    def floor_remedy(self) -> str:
        """A remedy that applies while there is a floor."""
        return "floor=False, " if self.floor > 0.0 else ""

    def surrogate_program(self) -> ConcaveProgram:
        """Maximise F over {q: sum_x share_x rows @ q_x in S}, as rows "at most"."""
        problem = self.problem
        away = -problem.signs[:, None] * problem.rows
        ends = np.where(problem.signs < 0, problem.box.high, -problem.box.low)
        rows = np.tile(away, len(self.shares)) * np.repeat(self.shares, problem.size)
        polytope = Polytope(self.F.shape, self.floor, rows, ends)
        return ConcaveProgram(self.F, polytope, self.tolerance)


def maximise_surrogate(task: Subproblem, start: Floats | None = None) -> CertifiedMaximum:
    """The best policies under S; prices in the unit of each limit's own bound."""
    program = task.surrogate_program()
    best = None if start is None else program.certify(start)
    if best is None:
        q = program.polytope.feasible
        if q is None:
            raise InfeasibleLimits(
                f"no policy with floor {task.floor:.6g} has mean costs within the surrogate of "
                "{limits}, which is stricter than the limits",
                limits=task.problem.limits,
                remedy=f"use exact=True for the exact limits, {task.floor_remedy}or looser limits",
            )
        q = q if start is None else start
        for F in task.F.stages():
            best = program._replace(F=F).maximise(q)
            q = best.q
    assert best is not None, "there is at least one stage"
    unit = np.where(task.problem.signs < 0, 1.0 / task.problem.draws, -1.0)  # S has u/M for u
    return best._replace(prices=best.prices * unit)


class ExactCosts(NamedTuple):
    """h_j(q) = sum_x share_x sum_i rows[j, i] (1 - (1 - q_xi)^M), at most or at least its bound.

    h is concave: its tangents lie above it and its chords below. So `h <= u` is implied by
    "tangent <= u" and implies "chord <= u"; `h >= l` implies "tangent >= l".
    """

    shape: tuple[int, int]
    floor: float
    rows: Floats  # (d, X K), shares included
    bounds: Floats
    upper: Bools
    draws: int
    slack: float = LIMIT_SLACK  # units by which a limit may be violated

    @classmethod
    def of(cls, problem: Problem, shares: Floats, floor: float) -> "ExactCosts":
        rows = np.tile(problem.rows, len(shares)) * np.repeat(shares, problem.size)
        shape = (len(shares), problem.size)
        return cls(shape, floor, rows, problem.bounds, problem.signs < 0, problem.draws)

    @property
    def away(self) -> Floats:
        """+1 for an upper limit, -1 for a lower one: turns both into "at most"."""
        return np.where(self.upper, 1.0, -1.0)

    @property
    def units(self) -> Floats:
        """The unit of a cost difference: each row's largest entry, 1 if it is zero."""
        most = self.rows.max(axis=1, initial=0.0)
        return np.where(most > 0.0, most, 1.0)

    def tighten(self, margin: float) -> "ExactCosts":
        """Every bound of a row with costs moved inwards by this many units."""
        most = self.rows.max(axis=1, initial=0.0)
        return self._replace(bounds=self.bounds - margin * self.away * most)

    def variants(self) -> tuple["ExactCosts", "ExactCosts"]:
        """What to search within: tightened bounds, then the bounds as they are."""
        return self.tighten(BOUND_MARGIN)._replace(slack=BOUND_MARGIN / 2), self

    def excess(self, q: Floats) -> Floats:
        """By how many units q violates each limit; negative if there is room."""
        costs = iid_sets.expected_panel_costs(q.ravel(), self.rows, self.draws)
        return self.away * (costs - self.bounds) / self.units

    def violated_lower(self, q: Floats) -> Bools:
        """Which lower limits q violates by more than the slack."""
        return ~self.upper & (self.excess(q) > self.slack)

    def simplex(self) -> Polytope:
        return Polytope(self.shape, self.floor, np.zeros((0, self.rows.shape[1])), np.zeros(0))

    def tangents(self, q: Floats, which: Bools) -> tuple[Floats, Floats]:
        """Rows and bounds of "the tangent at q is within the limit", for some of the limits."""
        p, rows, sign = q.ravel(), self.rows[which], self.away[which, None]
        slope = iid_sets.expected_panel_costs_slope(p, rows, self.draws)
        costs = iid_sets.expected_panel_costs(p, rows, self.draws)
        return sign * slope, sign[:, 0] * (self.bounds[which] - costs + slope @ p)

    def curvature(self, q: Floats, prices: Floats) -> Floats:
        """(X, K) diagonal of the Hessian of v.h: -sum_j v_j M (M-1) rows[j, i] (1 - q_i)^(M-2),
        for lower limits j with multipliers v.
        """
        if self.draws == 1:
            return np.zeros(self.shape)
        weight = np.where(self.upper, 0.0, prices) @ self.rows
        slope = iid_sets.iid_inclusion_slope(q.ravel(), self.draws - 1)
        return (-self.draws * weight * slope).reshape(self.shape)

    def chords(self) -> tuple[Floats, Floats]:
        """Rows and bounds of "the chord is within the limit", for the upper limits.

        Expert by expert over [floor, top_i], where no feasible q_i exceeds top_i: because of the
        simplex, or because c_i p_i alone would use up what a limit leaves when all others are at
        the floor.
        """
        rows, bounds = self.rows[self.upper], self.bounds[self.upper]
        least = float(iid_sets.iid_inclusion(np.array([self.floor]), self.draws)[0])
        most = float(1.0 - (self.shape[1] - 1) * self.floor)
        spare = bounds[:, None] - least * (rows.sum(axis=1, keepdims=True) - rows)
        share = np.divide(spare, rows, out=np.ones_like(rows), where=rows > 0.0)
        p = np.clip(share, least, 1.0).min(axis=0, initial=1.0)
        top = np.minimum(1.0 - (1.0 - p) ** (1.0 / self.draws), most)
        width = top - self.floor
        steep = iid_sets.iid_inclusion_slope(np.full_like(top, self.floor), self.draws)
        rise = iid_sets.iid_inclusion(top, self.draws) - least
        slope = np.divide(rise, width, out=steep, where=width > 1e-9)  # no width: the tangent
        return rows * slope, bounds - rows @ (least - slope * self.floor)

    def tangent_polytope(self, q: Floats) -> Polytope:
        """The policies within the tangents at q."""
        return self.simplex().with_rows(*self.tangents(q, np.ones_like(self.upper)))

    def outer_polytope(self, q: Floats) -> Polytope:
        """A superset of the feasible policies: chords of upper limits, tangents at q of others."""
        return self.simplex().with_rows(*self.chords()).with_rows(*self.tangents(q, ~self.upper))


def search_exact_optimum(
    task: Subproblem, start: Floats | None, starts: int, seed: int
) -> tuple[CertifiedMaximum, list[float]]:
    """The best local maximum over several starts, with its gap; and the values of all of them."""
    costs = ExactCosts.of(task.problem, task.shares, task.floor)
    roof = find_ceiling(task, costs.tighten(-LIMIT_SLACK))
    if roof is None:
        raise InfeasibleLimits(
            f"no fixed policy with floor {task.floor:.6g} keeps {{limits}} on average",
            limits=task.problem.limits,
            remedy=f"use {task.floor_remedy}more draws, or looser limits",
        )
    first = [roof.q] if start is None else [start, roof.q]
    ceiling = roof.value + roof.gap
    for bounded in costs.variants():
        found: list[CertifiedMaximum] = []
        for q in list_starts(task, bounded, first, starts, seed):
            local = maximise_from_start(task, bounded, q)
            if local is not None:
                gap = costs.outer_polytope(local.q).certify(local.q, task.F.slope(local.q)[1]).gap
                gap = max(0.0, min(gap, ceiling - local.value))
                found.append(local._replace(gap=gap))
                if gap <= task.tolerance:
                    break
        if found:
            return max(found, key=lambda local: local.value), [local.value for local in found]
    raise InfeasibleLimits(
        f"none of {starts} starts led to a policy with floor {task.floor:.6g} that keeps "
        "{limits} on average, which does not prove that there is none",
        limits=task.problem.limits,
        remedy=f"try more starts, {task.floor_remedy}or looser limits",
    )


def find_ceiling(task: Subproblem, costs: ExactCosts) -> CertifiedMaximum | None:
    """The maximum over a convex superset of the feasible policies; None if even that is empty."""
    q, best = np.full(task.F.shape, 1.0 / task.problem.size), None
    for F in task.F.stages():
        polytope = costs.outer_polytope(q)
        for _ in range(3):  # a few tangents are enough for a start and a first ceiling
            if polytope.feasible is None:
                return None
            best = ConcaveProgram(F, polytope, task.tolerance).maximise(q)
            q, violated = best.q, costs.violated_lower(best.q)
            if not violated.any():
                break
            polytope = polytope.with_rows(*costs.tangents(q, violated))
    return best


def list_starts(
    task: Subproblem, costs: ExactCosts, first: list[Floats], starts: int, seed: int
) -> Iterator[Floats]:
    """The given starts and, if there can be several local maxima, others up to `starts`.

    The surrogate's maximum, uniform play, then by turns one expert alone and a random policy:
    upper limits count distinct experts, so some local maxima play few experts often.
    """
    yield from first
    if not costs.upper.any() or costs.draws == 1:
        return
    X, K = task.F.shape
    more = [np.full((X, K), 1.0 / K)]
    with suppress(InfeasibleLimits):  # the surrogate may be infeasible when the limits are not
        more.insert(0, maximise_surrogate(task).q)
    yield from more[: max(0, starts - len(first))]
    single = [lift_above_floor(np.tile(e, (X, 1)), task.floor) for e in np.eye(K)]
    single.sort(key=lambda q: (bool(costs.excess(q).max() > 0.0), -task.F.slope(q)[0]))
    rng = np.random.default_rng(seed)
    for n in range(starts - len(first) - len(more)):
        mix = rng.dirichlet(np.full(K, 0.3), size=X)
        yield single[n // 2] if n % 2 == 0 and n // 2 < K else lift_above_floor(mix, task.floor)


def lift_above_floor(x: Floats, floor: float) -> Floats:
    """x moved onto the simplex above the floor: its excess over the floor, rescaled."""
    over = np.maximum(x - floor, 0.0) + 1e-300  # equal shares if nothing exceeds the floor
    spare = 1.0 - over.shape[1] * floor
    return np.asarray(floor + spare * over / over.sum(axis=1, keepdims=True))


def maximise_from_start(
    task: Subproblem, costs: ExactCosts, start: Floats
) -> CertifiedMaximum | None:
    """A local maximum by way of a feasible policy near the start; None if none is found."""
    q, best = find_feasible_policy(costs, start), None
    if q is not None:
        for F in task.F.stages():
            best = maximise_locally(F, costs, q, task.tolerance)
            q = best.q
    return best


def find_feasible_policy(costs: ExactCosts, start: Floats, steps: int = 100) -> Floats | None:
    """A feasible policy near the start, or None: upper limits by their tangents, which are safe,
    lower ones by all tangents so far.
    """
    q = lift_above_floor(start, costs.floor)
    cuts, least = costs.simplex(), np.inf
    for _ in range(steps):
        if (costs.excess(q) <= costs.slack).all():
            return q
        cuts = cuts.with_rows(*costs.tangents(q, ~costs.upper))
        polytope = cuts.with_rows(*costs.tangents(q, costs.upper))
        near = polytope.find_nearest(q)
        if near is not None:
            q = near
            continue
        last = polytope.find_least_violation()
        if last is None or last[1] > least - costs.slack:
            return None
        q, least = last
    return None


def maximise_locally(
    F: Objective, costs: ExactCosts, start: Floats, tolerance: float
) -> CertifiedMaximum:
    """Improve a feasible start within the tangents at each point until these allow no more.

    The gap is that of the last tangents: it proves a stationary point, not a global maximum.
    """
    at = Point.of(F, start)
    trail = [start]
    for step in range(MAX_LOCAL_STEPS + 1):
        around = costs.tangent_polytope(at.q)
        gap, prices = around.certify(at.q, at.slope)
        if gap <= tolerance or step == MAX_LOCAL_STEPS:
            break
        # A model that bends with the lower limits needs few cuts to stay within them.
        H = F.curvature(at.q) + costs.curvature(at.q, prices)[:, :, None] * np.eye(start.shape[1])
        further = step_uphill(F, costs, QuadraticModel(at, H), around)
        if further is None:
            break
        at = further
        trail.append(at.q)
        if len(trail) == 3:
            at = extrapolate_steps(F, costs, trail, at)
            trail = [at.q]
    return CertifiedMaximum(at.q, at.value, gap, costs.away * prices, step)


def extrapolate_steps(F: Objective, costs: ExactCosts, trail: list[Floats], at: Point) -> Point:
    """Extrapolate three points (SQUAREM, Varadhan and Roland 2008) if that is feasible and better:
    steps within tangents shrink by nearly the same factor each time.
    """
    a, b, c = trail
    r, v = b - a, c - 2 * b + a
    bend = float(np.linalg.norm(v))
    far = float(np.linalg.norm(r)) / bend if bend > 0.0 else 0.0
    if far <= 1.0:
        return at
    p = find_feasible_policy(costs, a + 2 * far * r + far**2 * v, steps=4)
    there = at if p is None else Point.of(F, p)
    return there if there.value > at.value else at


def step_uphill(
    F: Objective, costs: ExactCosts, model: QuadraticModel, around: Polytope
) -> Point | None:
    """Go to the model's maximum within the tangents; if a lower limit does not hold there, back to
    feasibility, half as far until the value rises. Returns None if it never does.

    A tangent is above the cost, so a straight step that keeps `cost <= u` lowers the cost. If u is
    also the lower limit, no straight step is feasible.
    """
    at = model.at
    aim = model.maximise(around)
    if aim is None:
        return None
    if not costs.violated_lower(aim.x).any():
        return at.climb_towards(F, aim.x)
    for n in range(MAX_HALVINGS):
        p = find_feasible_policy(costs, at.q + 0.5**n * (aim.x - at.q), steps=10)
        there = at if p is None else Point.of(F, p)
        if there.value > at.value:
            return there
    return None
