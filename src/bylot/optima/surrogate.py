"""The optimum under the paper's surrogate: mean costs sum_i q_i c_i inside the box S.

F is concave and the surrogate a polytope, so one maximisation with its certificate suffices.
"""

from typing import NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.optima.newton import CertifiedMaximum, maximise_by_newton, maximise_concave
from bylot.optima.objective import Objective
from bylot.optima.polytope import Face, Polytope
from bylot.problem import Problem

COARSE_ROUNDS, THINNING_STEP = 4_000, 8
"""With more value matrices than this, maximise on every eighth first and start from there."""

COARSE_TOLERANCES = (3e3, 3e4)
"""Tolerances on every eighth and every 64th round, as multiples of the final one: the maxima of
such samples differ by as much."""


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


def make_surrogate_polytope(task: Subproblem) -> Polytope:
    """{q: sum_x share_x rows @ q_x in S}, as rows "at most"."""
    problem = task.problem
    away = -problem.signs[:, None] * problem.rows
    ends = np.where(problem.signs < 0, problem.box.high, -problem.box.low)
    rows = np.tile(away, len(task.shares)) * np.repeat(task.shares, problem.size)
    return Polytope(task.F.shape, task.floor, rows, ends)


def maximise_surrogate(task: Subproblem, start: Floats | None = None) -> CertifiedMaximum:
    """The best policies under S; prices in the unit of each limit's own bound."""
    polytope, F = make_surrogate_polytope(task), task.F
    best = None if start is None else certify_start(F, polytope, start, task.tolerance)
    if best is None:
        face = polytope.find_face()
        if face is None:
            raise InfeasibleLimits(
                f"no policy with floor {task.floor:.6g} has mean costs within the surrogate of "
                "{limits}, which is stricter than the limits",
                limits=task.problem.limits,
                remedy=f"use exact=True for the exact limits, {task.floor_remedy}or looser limits",
            )
        first = face.centre if start is None else start
        maximise = maximise_concave if F.rounds <= COARSE_ROUNDS else maximise_coarse_to_fine
        best = maximise(F, polytope, face, first, task.tolerance)
    unit = np.where(task.problem.signs < 0, 1.0 / task.problem.draws, -1.0)  # S has u/M for u
    return best._replace(prices=best.prices * unit)


def certify_start(
    F: Objective, polytope: Polytope, q: Floats, tolerance: float
) -> CertifiedMaximum | None:
    """q, if it is the maximum; None if it is not, or is infeasible.

    The maximum under looser limits often is, and then no limit has a price: zero prices are tried
    before a linear program is solved for others.
    """
    if not polytope.contains(q):
        return None
    value, slope = F.slope(q)
    for prices in (np.zeros(len(polytope.rows)), None):
        proof = polytope.certify(q, slope, prices)
        if proof.gap <= tolerance:
            return CertifiedMaximum(q, value, *proof, 0)
    return None


def maximise_coarse_to_fine(
    F: Objective, polytope: Polytope, face: Face, start: Floats, tolerance: float
) -> CertifiedMaximum:
    """The maximum over many rounds, starting from the maxima over every 64th and every eighth."""
    (mid, rough), free = COARSE_TOLERANCES, np.zeros(len(polytope.rows))
    fewest, few = F.thin(THINNING_STEP**2), F.thin(THINNING_STEP)
    best = maximise_by_newton(fewest, polytope, face, start, rough * tolerance, prices=free)
    q, prices = best.q, best.prices
    best = maximise_by_newton(few, polytope, face, q, mid * tolerance, proxy=fewest, prices=prices)
    return maximise_concave(F, polytope, face, best.q, tolerance, few, best.prices)
