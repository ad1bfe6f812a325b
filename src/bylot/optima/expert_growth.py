"""Maximising over few experts at a time, as an optimal policy asks few of a large pool.

Owns which experts take part. Those that cannot be left out are found by their slopes, and the
certificate is over all experts, as is that of a search over all of them.
"""

from collections.abc import Callable

import numpy as np

from bylot.numerics.jit import Floats, Ints
from bylot.optima.newton import CertifiedMaximum
from bylot.optima.objective import Objective
from bylot.optima.polytope import Polytope

MIN_LARGE_POOL = 80  # fewer experts take part all at once
MAX_JOINING = 12  # experts that join for one more maximisation
NEGLIGIBLE_SHARE = 1e-6  # of a start: its expert does not take part at first
MAX_FIRST = 60  # experts of a start that take part at first
MAX_GROWTH_STEPS = 40
GROWTH_PRECISION = 0.02  # the maximum of few experts is found to this fraction of the last gap


def is_large_pool(F: Objective, floor: float) -> bool:
    """Whether leaving out experts saves time, and is possible: without a floor."""
    return floor == 0.0 and F.shape[1] >= MIN_LARGE_POOL


def list_first_experts(q: Floats, slope: Floats, polytope: Polytope) -> Ints:
    """The experts that a policy asks, if they are few; those of a vertex of the polytope, some of
    whose policies are then feasible; and those of largest slope.
    """
    asked, vertex = np.flatnonzero(q.max(axis=0) > NEGLIGIBLE_SHARE), polytope.find_vertex(slope)
    steepest = np.argsort(-slope.max(axis=0), kind="stable")[:MAX_JOINING]
    some = [steepest, asked if asked.size <= MAX_FIRST else asked[:0]]
    if vertex is not None:
        some.append(np.flatnonzero(vertex.x.max(axis=0) > NEGLIGIBLE_SHARE))
    return np.unique(np.concatenate(some))


def grow_experts(
    F: Objective,
    start: Floats,
    solve: Callable[[Ints, Floats, float], CertifiedMaximum | None],
    outer: Callable[[Floats], Polytope],
    tolerance: float,
) -> CertifiedMaximum | None:
    """Maximise with few experts, add those that can improve the maximum, and so on.

    solve: the maximum with some experts from a start, up to a precision; its prices are of the
    rows of the polytope `outer(q)`, within which policies are compared with q. None if it fails.
    """
    q, gap = start, np.inf
    experts = list_first_experts(start, F.slope(start)[1], outer(start))
    for _ in range(MAX_GROWTH_STEPS):
        few = q[:, experts] + 1e-300  # equal shares if the start asks none of them
        precision = max(tolerance, min(GROWTH_PRECISION * gap, 1e-4))
        best = solve(experts, few / few.sum(axis=1, keepdims=True), precision)
        if best is None:
            return None
        q = np.zeros_like(start)
        q[:, experts] = best.q
        value, slope = F.slope(q)
        polytope = outer(q)
        gap = polytope.certify(q, slope, best.prices).gap
        if gap <= tolerance:
            return CertifiedMaximum(q, value, gap, best.prices, best.steps)
        left = slope - (best.prices @ polytope.rows).reshape(slope.shape)
        above = (left - left[:, experts].max(axis=1, keepdims=True)).max(axis=0)
        above[experts] = -np.inf
        joining = np.argsort(-above, kind="stable")[:MAX_JOINING]
        joining = joining[above[joining] > 0.0]
        if not joining.size and precision <= tolerance:
            proof = polytope.certify(q, slope)  # by the best prices of all
            return CertifiedMaximum(
                q, value, *min(proof, (gap, best.prices), key=lambda p: p[0]), best.steps
            )
        experts = np.union1d(experts, joining)
    return None
