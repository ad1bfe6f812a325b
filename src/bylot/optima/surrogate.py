"""The optimum under the paper's surrogate: mean costs sum_i q_i c_i inside the box S.

Concave over a polytope, so one climb with its certificate is the whole story.
"""

from typing import NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.optima.newton import CertifiedMaximum, maximise_by_newton, maximise_concave
from bylot.optima.objective import Objective
from bylot.optima.polytope import TIGHT_ROOM, Face, Polytope
from bylot.problem import Problem


class Subproblem(NamedTuple):
    """Maximise the landscape over q (X, K), q >= floor, context x counting for share_x of the cost.

    The tolerance is a difference of values: below it, a gap is as good as none.
    """

    problem: Problem
    hill: Objective
    shares: Floats
    floor: float
    tolerance: float

    @property
    def lower_floor(self) -> str:
        """An advice that makes sense while there is a floor."""
        return "floor=False, " if self.floor > 0.0 else ""


COARSE_ROUNDS, THINNING_STEP = 4_000, 8
"""Above so many value matrices, climb on every eighth first: it ends next to the top."""

COARSE_TOLERANCES = (3e3, 3e4)
"""How near is near enough on every eighth of the rounds and on every 64th, in tolerances: the tops
of such hills differ by as much."""


def make_surrogate_polytope(task: Subproblem) -> Polytope:
    """{q: sum_x share_x rows @ q_x in S}: the sides of S that bind, written as "at most"."""
    problem = task.problem
    away = -problem.signs[:, None] * problem.rows
    ends = np.where(problem.signs < 0, problem.box.high, -problem.box.low)
    rows = np.tile(away, len(task.shares)) * np.repeat(task.shares, problem.size)
    return Polytope(task.hill.shape, task.floor, rows, ends)


def maximise_surrogate(task: Subproblem, start: Floats | None = None) -> CertifiedMaximum:
    """The best policies under S; prices in the unit of each limit's own bound."""
    polytope, hill = make_surrogate_polytope(task), task.hill
    peak = None if start is None else certify_start(hill, polytope, start, task.tolerance)
    if peak is None:
        face = polytope.face()
        if face is None:
            raise InfeasibleLimits(
                f"no policy with floor {task.floor:.6g} has mean costs within the surrogate of "
                "{limits}, which asks for more than the limits do",
                limits=task.problem.limits,
                remedy="use exact=True for the limits themselves, "
                f"{task.lower_floor}or looser limits",
            )
        begin = face.centre if start is None else start
        if hill.rounds > COARSE_ROUNDS:
            peak = maximise_coarse_to_fine(hill, polytope, face, begin, task.tolerance)
        else:
            peak = maximise_concave(hill, polytope, face, begin, task.tolerance)
    unit = np.where(task.problem.signs < 0, 1.0 / task.problem.draws, -1.0)  # S has u/M for u
    return peak._replace(prices=peak.prices * unit)


def certify_start(
    hill: Objective, polytope: Polytope, q: Floats, tolerance: float
) -> CertifiedMaximum | None:
    """q, if it is the top; None if it is not, or not allowed. The top under looser limits often is:
    then no limit has a price, which is tried before the linear program is asked for prices.
    """
    if polytope.excess(q) > 10 * TIGHT_ROOM:
        return None
    value, slope = hill.slope(q)
    for prices in (np.zeros(len(polytope.rows)), None):
        proof = polytope.certify(q, slope, prices)
        if proof.gap <= tolerance:
            return CertifiedMaximum(q, value, *proof, 0)
    return None


def maximise_coarse_to_fine(
    hill: Objective, polytope: Polytope, face: Face, start: Floats, tolerance: float
) -> CertifiedMaximum:
    """The top of a hill of many rounds, by way of those of fewer rounds, which end next to it."""
    fewest, few, free = (
        hill.thinned(THINNING_STEP**2),
        hill.thinned(THINNING_STEP),
        np.zeros(len(polytope.rows)),
    )
    peak = maximise_by_newton(
        fewest, polytope, face, start, COARSE_TOLERANCES[1] * tolerance, prices=free
    )
    q, prices = peak.q, peak.prices
    peak = maximise_by_newton(
        few, polytope, face, q, COARSE_TOLERANCES[0] * tolerance, steer=fewest, prices=prices
    )
    return maximise_concave(hill, polytope, face, peak.q, tolerance, few, peak.prices)
