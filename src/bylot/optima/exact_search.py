"""The optimum under the exact expected costs: tangents for upper limits, cuts for lower ones.

Upper limits on a concave cost leave a non-convex set. Each of several starts is climbed within the
tangents at where it stands, and a ceiling over the chords says what no policy can exceed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.optima.exact_costs import ExactCosts
from bylot.optima.newton import (
    CertifiedMaximum,
    ConcaveFunction,
    QuadraticModel,
    maximise_concave,
    search_along_line,
)
from bylot.optima.polytope import Polytope
from bylot.optima.surrogate import COARSE_ROUNDS, THINNING_STEP, Subproblem, maximise_surrogate

LIMIT_SLACK = 1e-9
"""A limit broken by less than this many units counts as kept while cuts are added."""

MAX_CUTS = 10
"""So many cuts are added for one step, then the step is shortened instead."""

NARROW_BAND = 1e-2
"""Opposite limits on one cost that are nearer than so many units are followed as if they met."""

MAX_HALVINGS = 20
"""So often a step between such limits is halved until it leads up."""


def make_outer_polytope(costs: ExactCosts) -> Polytope:
    """A polytope that contains every allowed policy: chords for upper limits, nothing for lower."""
    return costs.simplex().with_rows(*costs.chords())


def prove_gap(hill: ConcaveFunction, costs: ExactCosts, q: Floats) -> float:
    """How much better than q any allowed policy can be, by chords and the tangents at q."""
    around = make_outer_polytope(costs).with_rows(*costs.tangents(q, ~costs.upper))
    return around.certify(q, hill.slope(q)[1]).gap


def maximise_relaxation(
    hill: ConcaveFunction, costs: ExactCosts, start: Floats, tolerance: float
) -> CertifiedMaximum | None:
    """The top over a convex superset of what is allowed; None if even that is empty.

    Chords for the upper limits, a few tangents for the lower ones: enough for a place to start
    from and a first ceiling, `prove_gap` will be sharper at the end.
    """
    polytope, q = make_outer_polytope(costs).with_rows(*costs.tangents(start, ~costs.upper)), start
    for _ in range(3):
        face = polytope.face()
        if face is None:
            return None
        peak = maximise_concave(hill, polytope, face, q, tolerance)
        q, broken = peak.q, costs.broken(peak.q, LIMIT_SLACK)
        if not broken.any():
            break
        polytope = polytope.with_rows(*costs.tangents(q, broken))
    return peak


def find_feasible_policy(
    costs: ExactCosts, start: Floats, slack: float, steps: int = 100
) -> Floats | None:
    """An allowed policy near the start, or None if the way there ends at a policy that is not.

    Upper limits by their tangents, which are safe; lower ones by all tangents met so far.
    """
    q = start = lift_above_floor(start, costs.floor)
    cuts, least = costs.simplex(), np.inf
    for _ in range(steps):
        if (costs.excess(q) <= slack).all():
            return q
        cuts = cuts.with_rows(*costs.tangents(q, ~costs.upper))
        polytope = cuts.with_rows(*costs.tangents(q, costs.upper))
        face = polytope.face()
        if face is not None:
            aim = make_distance_model(start).peak(polytope, face)
            q = face.centre if aim is None else aim.q
            continue
        last = polytope.least_broken()
        if last is None or last[1] > least - slack:
            return None
        q, least = last
    return None


def lift_above_floor(x: Floats, floor: float) -> Floats:
    """x moved onto the simplex above the floor: what exceeds the floor, scaled to what is left."""
    over = np.maximum(x - floor, 0.0) + 1e-300  # all the same if nothing does
    spare = 1.0 - over.shape[1] * floor
    q: Floats = floor + spare * over / over.sum(axis=1, keepdims=True)
    return q


def make_distance_model(q: Floats) -> QuadraticModel:
    """The model -|p - q|^2 / 2, highest where p is nearest."""
    return QuadraticModel(q, np.zeros_like(q), np.array([-np.eye(q.shape[1])] * len(q)))


def maximise_locally(
    hill: ConcaveFunction,
    costs: ExactCosts,
    start: Floats,
    slack: float,
    tolerance: float,
    steps: int = 300,
) -> CertifiedMaximum:
    """Climb from an allowed start within the tangents at each point, to where these allow no more.

    The gap is that of the last tangents: it proves a stationary point, not a global optimum.
    """
    q, (value, slope) = start, hill.slope(start)
    trail, narrow = [q], bool((costs.width() < NARROW_BAND).any())
    for step in range(steps + 1):
        around = costs.simplex().with_rows(*costs.tangents(q, np.ones_like(costs.upper)))
        gap, prices = around.certify(q, slope)
        if gap <= tolerance or step == steps:
            break
        # Lower limits bend: a model that bends with them needs few cuts to stay within.
        H = hill.curvature(q) + costs.bend(q, prices)[:, :, None] * np.eye(q.shape[1])
        model = QuadraticModel(q, slope, H)
        if narrow:
            further = step_between_limits(hill, costs, model, around, slack)
        else:
            p = maximise_model_with_cuts(model, costs, around, slack)
            further = None if p is None else search_along_line(hill, q, slope, p)
        if further is None:
            break
        trail.append(further[0])
        if len(trail) == 3:
            further = extrapolate_steps(hill, costs, trail, further, slack)
            trail = [further[0]]
        q, value, slope = further
    return CertifiedMaximum(q, value, gap, costs.away * prices, step)


def extrapolate_steps(
    hill: ConcaveFunction,
    costs: ExactCosts,
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
    p = find_feasible_policy(costs, a + 2 * far * r + far**2 * v, slack, steps=4)
    if p is None:
        return here
    there = p, *hill.slope(p)
    return there if there[1] > here[1] else here


def step_between_limits(
    hill: ConcaveFunction, costs: ExactCosts, model: QuadraticModel, around: Polytope, slack: float
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
    for _ in range(MAX_HALVINGS):
        p = find_feasible_policy(costs, model.q + far * (aim.q - model.q), slack, steps=10)
        there = None if p is None else (p, *hill.slope(p))
        if there is not None and there[1] > value:
            return there
        far /= 2
    return None


def maximise_model_with_cuts(
    model: QuadraticModel, costs: ExactCosts, around: Polytope, slack: float
) -> Floats | None:
    """The best of the model within the tangents, cut down until the lower limits hold there."""
    best = None
    for _ in range(MAX_CUTS):
        face = around.face()
        aim = None if face is None else model.peak(around, face)
        if aim is None:
            break
        best, broken = aim.q, costs.broken(aim.q, slack)
        if not broken.any():
            return best
        around = around.with_rows(*costs.tangents(best, broken))
    return None if best is None else backtrack_to_lower_limits(costs, model.q, best, slack)


def backtrack_to_lower_limits(costs: ExactCosts, q: Floats, p: Floats, slack: float) -> Floats:
    """The last point on the way from q to p that keeps the lower limits, as q does: bisection."""
    low, high = 0.0, 1.0
    for _ in range(30):
        far = (low + high) / 2
        if costs.broken(q + far * (p - q), slack).any():
            high = far
        else:
            low = far
    return q + low * (p - q)


BOUND_MARGIN = 1e-10
"""Bounds are first tightened by so many units, so that the policy found keeps them outright; where
that leaves nothing, they are taken as they are."""


class MultistartSearch(NamedTuple):
    """How many starts, and the seed of the random ones."""

    starts: int = 8
    seed: int = 0

    def best(
        self, task: Subproblem, start: Floats | None = None
    ) -> tuple[CertifiedMaximum, list[float]]:
        """The highest of the local tops, with its gap to the ceiling; the values of all of them."""
        costs = ExactCosts.of(task.problem, task.shares, task.floor)
        roof = maximise_upper_bound(task, costs.tightened(-LIMIT_SLACK))
        if roof is None:
            raise InfeasibleLimits(
                f"no fixed policy with floor {task.floor:.6g} keeps {{limits}} on average",
                limits=task.problem.limits,
                remedy=f"use {task.lower_floor}more draws, or looser limits",
            )
        first = [roof.q] if start is None else [start, roof.q]
        for bounded, slack in list_bound_variants(costs):
            tops = list(self.tops(task, bounded, slack, first, roof.value + roof.gap))
            if tops:
                return max(tops, key=lambda top: top.value), [top.value for top in tops]
        raise InfeasibleLimits(
            f"none of {self.starts} starts led to a policy with floor {task.floor:.6g} that keeps "
            "{limits} on average, which is no proof that there is none",
            limits=task.problem.limits,
            remedy=f"try more starts, {task.lower_floor}or looser limits",
        )

    def tops(
        self, task: Subproblem, costs: ExactCosts, slack: float, first: list[Floats], ceiling: float
    ) -> Iterator[CertifiedMaximum]:
        """Where the starts lead, each with its gap, until one is proved to be the best there is."""
        whole = ExactCosts.of(task.problem, task.shares, task.floor)  # bounds as they are
        for place in self.places(task, costs, first):
            top = maximise_from_start(task, costs, slack, place)
            if top is not None:
                gap = min(prove_gap(task.hill, whole, top.q), ceiling - top.value)
                yield top._replace(gap=max(0.0, gap))
                if gap <= task.tolerance:
                    return

    def places(self, task: Subproblem, costs: ExactCosts, first: list[Floats]) -> Iterator[Floats]:
        """The given places and, if there can be several tops, as many more as are wanted.

        The surrogate's top, uniform play, then by turns one expert alone and a random policy:
        upper limits count the distinct, so that some tops play few experts often.
        """
        yield from first
        if not costs.upper.any() or costs.draws == 1:
            return
        X, K = task.hill.shape
        more = [np.full((X, K), 1.0 / K)]
        with suppress(InfeasibleLimits):  # as the surrogate may be when the limits are not
            more.insert(0, maximise_surrogate(task).q)
        yield from more[: max(0, self.starts - len(first))]
        chance, single = np.random.default_rng(self.seed), list_single_expert_policies(task, costs)
        for n in range(self.starts - len(first) - len(more)):
            mix = chance.dirichlet(np.full(K, 0.3), size=X)
            yield single[n // 2] if n % 2 == 0 and n // 2 < K else lift_above_floor(mix, task.floor)


def list_bound_variants(costs: ExactCosts) -> tuple[tuple[ExactCosts, float], ...]:
    """Bounds to climb within and by how much they may be missed: tightened, then as they are."""
    return (costs.tightened(BOUND_MARGIN), BOUND_MARGIN / 2), (costs, LIMIT_SLACK)


def maximise_upper_bound(task: Subproblem, costs: ExactCosts) -> CertifiedMaximum | None:
    """The top over a superset of what is allowed, by way of few rounds if there are many."""
    start = np.full(task.hill.shape, 1.0 / task.problem.size)
    if task.hill.rounds > COARSE_ROUNDS:
        near = maximise_relaxation(task.hill.thinned(THINNING_STEP), costs, start, task.tolerance)
        start = start if near is None else near.q
    return maximise_relaxation(task.hill, costs, start, task.tolerance)


def list_single_expert_policies(task: Subproblem, costs: ExactCosts) -> list[Floats]:
    """Each expert played alone, as far as the floor allows: those within limits first, then best
    first.
    """
    X, K = task.hill.shape
    policies = [lift_above_floor(np.tile(e, (X, 1)), task.floor) for e in np.eye(K)]

    def rank(q: Floats) -> tuple[bool, float]:
        return bool(costs.excess(q).max() > 0.0), -task.hill.slope(q)[0]

    return sorted(policies, key=rank)


def maximise_from_start(
    task: Subproblem, costs: ExactCosts, slack: float, start: Floats
) -> CertifiedMaximum | None:
    """From a start, by way of an allowed policy, to a local top; None if there is no such way."""
    q = find_feasible_policy(costs, start, slack)
    if q is None:
        return None
    if task.hill.rounds > COARSE_ROUNDS:
        q = maximise_locally(task.hill.thinned(THINNING_STEP), costs, q, slack, task.tolerance).q
    return maximise_locally(task.hill, costs, q, slack, task.tolerance)
