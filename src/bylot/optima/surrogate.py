"""The optimum under the paper's surrogate: mean costs sum_i q_i c_i inside the box S.

Concave over a polytope, so one climb with its certificate is the whole story.
"""

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.kernels.compile import Floats
from bylot.optima.hull import top
from bylot.optima.newton import Peak, climb
from bylot.optima.polytope import Polytope
from bylot.optima.task import Task

COARSE, STEP = 4_000, 8
"""Above so many value matrices, climb on every eighth first: it ends next to the top."""


def allowed(task: Task) -> Polytope:
    """{q: sum_x share_x rows @ q_x in S}: the sides of S that bind, written as "at most"."""
    problem = task.problem
    away = -problem.signs[:, None] * problem.rows
    ends = np.where(problem.signs < 0, problem.box.high, -problem.box.low)
    rows = np.tile(away, len(task.shares)) * np.repeat(task.shares, problem.size)
    return Polytope(task.hill.shape, task.floor, rows, ends)


def surrogate_top(task: Task, start: Floats | None = None) -> Peak:
    """The best policies under S; prices in the unit of each limit's own bound."""
    polytope = allowed(task)
    face = polytope.face()
    if face is None:
        raise InfeasibleLimits(
            f"no policy with floor {task.floor:.6g} has mean costs within the surrogate of "
            f"{task.limits}, which asks for more than the limits do; "
            f"use exact=True for the limits themselves, {task.lower_floor}or looser limits"
        )
    hill, tolerance = task.hill, task.tolerance
    if start is None and hill.rounds > COARSE:
        start = climb(hill.thinned(STEP), polytope, face, face.centre, tolerance).q
    peak = top(hill, polytope, face, face.centre if start is None else start, tolerance)
    unit = np.where(task.problem.signs < 0, 1.0 / task.problem.draws, -1.0)  # S has u/M for u
    return peak._replace(prices=peak.prices * unit)
