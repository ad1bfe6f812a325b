"""The optimum under exact expected costs: a local search from several starts, and a ceiling.

Upper limits on a concave cost leave a non-convex set. Each start is improved within the tangents
at the current point; a maximum over the chords bounds what any policy can earn.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.optima.exact_costs import ExactCosts
from bylot.optima.newton import (
    CertifiedMaximum,
    ConcaveFunction,
    Point,
    QuadraticModel,
    maximise_concave,
    search_along_line,
)
from bylot.optima.polytope import Polytope
from bylot.optima.surrogate import COARSE_ROUNDS, THINNING_STEP, Subproblem, maximise_surrogate

LIMIT_SLACK = 1e-9  # units by which a limit may be violated while cuts are added
BOUND_MARGIN = 1e-10  # units by which bounds are tightened first, so that they are kept exactly
MAX_CUTS = 10  # cuts added for one step before the step is shortened instead
NARROW_BAND = 1e-2  # units; opposite limits on one cost that are closer count as meeting
MAX_HALVINGS = 20  # of a step between such limits until it improves the value


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
    for bounded, slack in list_bound_variants(costs):
        found: list[CertifiedMaximum] = []
        for q in list_starts(task, bounded, first, starts, seed):
            local = maximise_from_start(task, bounded, slack, q)
            if local is not None:
                around = make_outer_polytope(costs, local.q)
                gap = around.certify(local.q, task.F.slope(local.q)[1]).gap
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


def list_bound_variants(costs: ExactCosts) -> tuple[tuple[ExactCosts, float], ...]:
    """Bounds to search within and the slack they allow: tightened, then as they are."""
    return (costs.tighten(BOUND_MARGIN), BOUND_MARGIN / 2), (costs, LIMIT_SLACK)


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


def find_ceiling(task: Subproblem, costs: ExactCosts) -> CertifiedMaximum | None:
    """The maximum over a superset of the feasible policies, from few rounds first."""
    start = np.full(task.F.shape, 1.0 / task.problem.size)
    if task.F.rounds > COARSE_ROUNDS:
        near = maximise_relaxation(task.F.thin(THINNING_STEP), costs, start, task.tolerance)
        start = start if near is None else near.q
    return maximise_relaxation(task.F, costs, start, task.tolerance)


def maximise_from_start(
    task: Subproblem, costs: ExactCosts, slack: float, start: Floats
) -> CertifiedMaximum | None:
    """A local maximum by way of a feasible policy near the start; None if none is found."""
    q = find_feasible_policy(costs, start, slack)
    if q is None:
        return None
    if task.F.rounds > COARSE_ROUNDS:
        q = maximise_locally(task.F.thin(THINNING_STEP), costs, q, slack, task.tolerance).q
    return maximise_locally(task.F, costs, q, slack, task.tolerance)


def make_outer_polytope(costs: ExactCosts, q: Floats) -> Polytope:
    """A superset of the feasible policies: chords of upper limits, tangents at q of lower ones."""
    return costs.simplex().with_rows(*costs.chords()).with_rows(*costs.tangents(q, ~costs.upper))


def maximise_relaxation(
    F: ConcaveFunction, costs: ExactCosts, start: Floats, tolerance: float
) -> CertifiedMaximum | None:
    """The maximum over a convex superset of the feasible policies; None if even that is empty.

    A few tangents for the lower limits are enough for a start and a first ceiling.
    """
    polytope, q = make_outer_polytope(costs, start), start
    for _ in range(3):
        face = polytope.find_face()
        if face is None:
            return None
        best = maximise_concave(F, polytope, face, q, tolerance)
        q, violated = best.q, costs.violated_lower(best.q, LIMIT_SLACK)
        if not violated.any():
            break
        polytope = polytope.with_rows(*costs.tangents(q, violated))
    return best


def find_feasible_policy(
    costs: ExactCosts, start: Floats, slack: float, steps: int = 100
) -> Floats | None:
    """A feasible policy near the start; None if the search ends at an infeasible one.

    Upper limits by their tangents, which are safe; lower ones by all tangents so far.
    """
    q = start = lift_above_floor(start, costs.floor)
    nearest = QuadraticModel(q, np.zeros_like(q), np.array([-np.eye(q.shape[1])] * len(q)))
    cuts, least = costs.simplex(), np.inf
    for _ in range(steps):
        if (costs.excess(q) <= slack).all():
            return q
        cuts = cuts.with_rows(*costs.tangents(q, ~costs.upper))
        polytope = cuts.with_rows(*costs.tangents(q, costs.upper))
        face = polytope.find_face()
        if face is not None:
            aim = nearest.maximise(polytope, face)
            q = face.centre if aim is None else aim.x
            continue
        last = polytope.find_least_violation()
        if last is None or last[1] > least - slack:
            return None
        q, least = last
    return None


def lift_above_floor(x: Floats, floor: float) -> Floats:
    """x moved onto the simplex above the floor: its excess over the floor, rescaled."""
    over = np.maximum(x - floor, 0.0) + 1e-300  # equal shares if nothing exceeds the floor
    spare = 1.0 - over.shape[1] * floor
    q: Floats = floor + spare * over / over.sum(axis=1, keepdims=True)
    return q


def maximise_locally(
    F: ConcaveFunction,
    costs: ExactCosts,
    start: Floats,
    slack: float,
    tolerance: float,
    steps: int = 300,
) -> CertifiedMaximum:
    """Improve a feasible start within the tangents at each point until these allow no more.

    The gap is that of the last tangents: it proves a stationary point, not a global maximum.
    """
    at = Point(start, *F.slope(start))
    trail, narrow = [start], bool((costs.widths() < NARROW_BAND).any())
    for step in range(steps + 1):
        around = costs.simplex().with_rows(*costs.tangents(at.q, np.ones_like(costs.upper)))
        gap, prices = around.certify(at.q, at.slope)
        if gap <= tolerance or step == steps:
            break
        # A model that bends with the lower limits needs few cuts to stay within them.
        H = F.curvature(at.q) + costs.curvature(at.q, prices)[:, :, None] * np.eye(start.shape[1])
        model = QuadraticModel(at.q, at.slope, H)
        if narrow:
            further = step_between_limits(F, costs, model, around, slack)
        else:
            p = maximise_model_with_cuts(model, costs, around, slack)
            further = None if p is None else search_along_line(F, at, p)
        if further is None:
            break
        at = further
        trail.append(at.q)
        if len(trail) == 3:
            at = extrapolate_steps(F, costs, trail, at, slack)
            trail = [at.q]
    return CertifiedMaximum(at.q, at.value, gap, costs.away * prices, step)


def extrapolate_steps(
    F: ConcaveFunction, costs: ExactCosts, trail: list[Floats], at: Point, slack: float
) -> Point:
    """Extrapolate three points (SQUAREM, Varadhan and Roland 2008) if that is feasible and better.

    Steps within tangents shrink by nearly the same factor each time.
    """
    a, b, c = trail
    r, v = b - a, c - 2 * b + a
    bend = float(np.linalg.norm(v))
    far = float(np.linalg.norm(r)) / bend if bend > 0.0 else 0.0
    if far <= 1.0:
        return at
    p = find_feasible_policy(costs, a + 2 * far * r + far**2 * v, slack, steps=4)
    if p is None:
        return at
    there = Point(p, *F.slope(p))
    return there if there.value > at.value else at


def step_between_limits(
    F: ConcaveFunction, costs: ExactCosts, model: QuadraticModel, around: Polytope, slack: float
) -> Point | None:
    """A step between limits that (nearly) meet: to the model's maximum and back to feasibility,
    half as far until the value rises; None if it never does.

    The tangent is above the cost, so a straight step that keeps `cost <= u` lowers the cost. If u
    is also the lower limit, no straight step is feasible.
    """
    aim = model.maximise(around, around.find_face())
    if aim is None:
        return None
    value, far = F.slope(model.q)[0], 1.0
    for _ in range(MAX_HALVINGS):
        p = find_feasible_policy(costs, model.q + far * (aim.x - model.q), slack, steps=10)
        there = None if p is None else Point(p, *F.slope(p))
        if there is not None and there.value > value:
            return there
        far /= 2
    return None


def maximise_model_with_cuts(
    model: QuadraticModel, costs: ExactCosts, around: Polytope, slack: float
) -> Floats | None:
    """The model's maximum within the tangents, with cuts until the lower limits hold there."""
    best = None
    for _ in range(MAX_CUTS):
        aim = model.maximise(around, around.find_face())
        if aim is None:
            break
        best, violated = aim.x, costs.violated_lower(aim.x, slack)
        if not violated.any():
            return best
        around = around.with_rows(*costs.tangents(best, violated))
    if best is None:
        return None
    low, high = 0.0, 1.0  # back to where the lower limits hold, as they do at model.q: bisection
    for _ in range(30):
        far = (low + high) / 2
        if costs.violated_lower(model.q + far * (best - model.q), slack).any():
            high = far
        else:
            low = far
    return model.q + low * (best - model.q)
