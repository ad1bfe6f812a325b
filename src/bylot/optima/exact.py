"""The optimum under the exact expected costs: tangents for upper limits, cuts for lower ones.

Upper limits on a concave cost leave a non-convex set. Each of several starts is climbed within the
tangents at where it stands, and a ceiling over the chords says what no policy can exceed.
"""

import numpy as np

from bylot.kernels.compile import Floats
from bylot.optima.costs import Costs
from bylot.optima.hull import top
from bylot.optima.newton import Concave, Model, Peak, ascend
from bylot.optima.polytope import Polytope

SLACK = 1e-9
"""A limit broken by less than this many units counts as kept while cuts are added."""

CUTS = 10
"""So many cuts are added for one step, then the step is shortened instead."""

NARROW = 1e-2
"""Opposite limits on one cost that are nearer than so many units are followed as if they met."""

HALVES = 20
"""So often a step between such limits is halved until it leads up."""


def superset(costs: Costs) -> Polytope:
    """A polytope that contains every allowed policy: chords for upper limits, nothing for lower."""
    return costs.simplex().with_rows(*costs.chords())


def ceiling_gap(hill: Concave, costs: Costs, q: Floats) -> float:
    """How much better than q any allowed policy can be, by chords and the tangents at q."""
    around = superset(costs).with_rows(*costs.tangents(q, ~costs.upper))
    return around.certify(q, hill.slope(q)[1]).gap


def relax(hill: Concave, costs: Costs, start: Floats, tolerance: float) -> Peak | None:
    """The top over a convex superset of what is allowed; None if even that is empty.

    Chords for the upper limits, a few tangents for the lower ones: enough for a place to start
    from and a first ceiling, `ceiling_gap` will be sharper at the end.
    """
    polytope, q = superset(costs).with_rows(*costs.tangents(start, ~costs.upper)), start
    for _ in range(3):
        face = polytope.face()
        if face is None:
            return None
        peak = top(hill, polytope, face, q, tolerance)
        q, broken = peak.q, costs.broken(peak.q, SLACK)
        if not broken.any():
            break
        polytope = polytope.with_rows(*costs.tangents(q, broken))
    return peak


def reach(costs: Costs, start: Floats, slack: float, steps: int = 100) -> Floats | None:
    """An allowed policy near the start, or None if the way there ends at a policy that is not.

    Upper limits by their tangents, which are safe; lower ones by all tangents met so far.
    """
    q = start = lifted(start, costs.floor)
    cuts, least = costs.simplex(), np.inf
    for _ in range(steps):
        if (costs.excess(q) <= slack).all():
            return q
        cuts = cuts.with_rows(*costs.tangents(q, ~costs.upper))
        polytope = cuts.with_rows(*costs.tangents(q, costs.upper))
        face = polytope.face()
        if face is not None:
            aim = nearest(start).peak(polytope, face)
            q = face.centre if aim is None else aim.q
            continue
        last = polytope.least_broken()
        if last is None or last[1] > least - slack:
            return None
        q, least = last
    return None


def lifted(x: Floats, floor: float) -> Floats:
    """x moved onto the simplex above the floor: what exceeds the floor, scaled to what is left."""
    over = np.maximum(x - floor, 0.0) + 1e-300  # all the same if nothing does
    spare = 1.0 - over.shape[1] * floor
    q: Floats = floor + spare * over / over.sum(axis=1, keepdims=True)
    return q


def nearest(q: Floats) -> Model:
    """The model -|p - q|^2 / 2, highest where p is nearest."""
    return Model(q, np.zeros_like(q), np.array([-np.eye(q.shape[1])] * len(q)))


def local_top(
    hill: Concave, costs: Costs, start: Floats, slack: float, tolerance: float, steps: int = 300
) -> Peak:
    """Climb from an allowed start within the tangents at each point, to where these allow no more.

    The gap is that of the last tangents: it proves a stationary point, not a global optimum.
    """
    q, (value, slope) = start, hill.slope(start)
    trail, narrow = [q], bool((costs.width() < NARROW).any())
    for step in range(steps + 1):
        around = costs.simplex().with_rows(*costs.tangents(q, np.ones_like(costs.upper)))
        gap, prices = around.certify(q, slope)
        if gap <= tolerance or step == steps:
            break
        # Lower limits bend: a model that bends with them needs few cuts to stay within.
        H = hill.curvature(q) + costs.bend(q, prices)[:, :, None] * np.eye(q.shape[1])
        model = Model(q, slope, H)
        if narrow:
            further = along(hill, costs, model, around, slack)
        else:
            p = guarded(model, costs, around, slack)
            further = None if p is None else ascend(hill, q, slope, p)
        if further is None:
            break
        trail.append(further[0])
        if len(trail) == 3:
            further = leapt(hill, costs, trail, further, slack)
            trail = [further[0]]
        q, value, slope = further
    return Peak(q, value, gap, costs.away * prices, step)


def leapt(
    hill: Concave,
    costs: Costs,
    trail: list[Floats],
    here: tuple[Floats, float, Floats],
    slack: float,
) -> tuple[Floats, float, Floats]:
    """Where the last three points are heading, if that is allowed and higher, or else here.

    Tangents give way a little at a time, by nearly the same factor: extrapolate (SQUAREM,
    Varadhan and Roland 2008), and go to an allowed policy near there.
    """
    a, b, c = trail
    r, v = b - a, c - 2 * b + a
    bend = float(np.linalg.norm(v))
    far = float(np.linalg.norm(r)) / bend if bend > 0.0 else 0.0
    if far <= 1.0:
        return here
    p = reach(costs, a + 2 * far * r + far**2 * v, slack, steps=4)
    if p is None:
        return here
    there = p, *hill.slope(p)
    return there if there[1] > here[1] else here


def along(
    hill: Concave, costs: Costs, model: Model, around: Polytope, slack: float
) -> tuple[Floats, float, Floats] | None:
    """Further up between limits that (nearly) meet: to the best of the model, and from there back
    to what is allowed; half as far until that is higher, None if it never is.

    The tangent is above the cost, so that a straight step that keeps `cost <= u` loses some of the
    cost. Where u is also the least that is allowed, no such step is allowed at all.
    """
    face = around.face()
    aim = None if face is None else model.peak(around, face)
    if aim is None:
        return None
    value, far = hill.slope(model.q)[0], 1.0
    for _ in range(HALVES):
        p = reach(costs, model.q + far * (aim.q - model.q), slack, steps=10)
        there = None if p is None else (p, *hill.slope(p))
        if there is not None and there[1] > value:
            return there
        far /= 2
    return None


def guarded(model: Model, costs: Costs, around: Polytope, slack: float) -> Floats | None:
    """The best of the model within the tangents, cut down until the lower limits hold there."""
    best = None
    for _ in range(CUTS):
        face = around.face()
        aim = None if face is None else model.peak(around, face)
        if aim is None:
            break
        best, broken = aim.q, costs.broken(aim.q, slack)
        if not broken.any():
            return best
        around = around.with_rows(*costs.tangents(best, broken))
    return None if best is None else retreated(costs, model.q, best, slack)


def retreated(costs: Costs, q: Floats, p: Floats, slack: float) -> Floats:
    """The last point on the way from q to p that keeps the lower limits, as q does: bisection."""
    low, high = 0.0, 1.0
    for _ in range(30):
        far = (low + high) / 2
        if costs.broken(q + far * (p - q), slack).any():
            high = far
        else:
            low = far
    return q + low * (p - q)
