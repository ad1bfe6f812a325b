"""The optimum under the paper's surrogate: mean costs sum_i q_i c_i inside the box S.

Concave over a polytope, so one climb with its certificate is the whole story.
"""

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.kernels.compile import Floats
from bylot.optima.hull import top
from bylot.optima.landscape import Landscape
from bylot.optima.newton import Peak, climb
from bylot.optima.polytope import TIGHT, Face, Polytope
from bylot.optima.task import Task

COARSE, STEP = 4_000, 8
"""Above so many value matrices, climb on every eighth first: it ends next to the top."""

NEAR = (3e3, 3e4)
"""How near is near enough on every eighth of the rounds and on every 64th, in tolerances: the tops
of such hills differ by as much."""


def allowed(task: Task) -> Polytope:
    """{q: sum_x share_x rows @ q_x in S}: the sides of S that bind, written as "at most"."""
    problem = task.problem
    away = -problem.signs[:, None] * problem.rows
    ends = np.where(problem.signs < 0, problem.box.high, -problem.box.low)
    rows = np.tile(away, len(task.shares)) * np.repeat(task.shares, problem.size)
    return Polytope(task.hill.shape, task.floor, rows, ends)


def surrogate_top(task: Task, start: Floats | None = None) -> Peak:
    """The best policies under S; prices in the unit of each limit's own bound."""
    polytope, hill = allowed(task), task.hill
    peak = None if start is None else already(hill, polytope, start, task.tolerance)
    if peak is None:
        face = polytope.face()
        if face is None:
            raise InfeasibleLimits(
                f"no policy with floor {task.floor:.6g} has mean costs within the surrogate of "
                f"{task.limits}, which asks for more than the limits do; "
                f"use exact=True for the limits themselves, {task.lower_floor}or looser limits"
            )
        begin = face.centre if start is None else start
        if hill.rounds > COARSE:
            peak = by_few(hill, polytope, face, begin, task.tolerance)
        else:
            peak = top(hill, polytope, face, begin, task.tolerance)
    unit = np.where(task.problem.signs < 0, 1.0 / task.problem.draws, -1.0)  # S has u/M for u
    return peak._replace(prices=peak.prices * unit)


def already(hill: Landscape, polytope: Polytope, q: Floats, tolerance: float) -> Peak | None:
    """q, if it is the top; None if it is not, or not allowed. The top under looser limits often is:
    then no limit has a price, which is tried before the linear program is asked for prices.
    """
    if polytope.excess(q) > 10 * TIGHT:
        return None
    value, slope = hill.slope(q)
    for prices in (np.zeros(len(polytope.rows)), None):
        proof = polytope.certify(q, slope, prices)
        if proof.gap <= tolerance:
            return Peak(q, value, *proof, 0)
    return None


def by_few(
    hill: Landscape, polytope: Polytope, face: Face, start: Floats, tolerance: float
) -> Peak:
    """The top of a hill of many rounds, by way of those of fewer rounds, which end next to it."""
    fewest, few, free = hill.thinned(STEP**2), hill.thinned(STEP), np.zeros(len(polytope.rows))
    peak = climb(fewest, polytope, face, start, NEAR[1] * tolerance, prices=free)
    q, prices = peak.q, peak.prices
    peak = climb(few, polytope, face, q, NEAR[0] * tolerance, steer=fewest, prices=prices)
    return top(hill, polytope, face, peak.q, tolerance, few, peak.prices)
