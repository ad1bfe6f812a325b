"""The optimum under the paper's surrogate: mean costs sum_i q_i c_i inside the box S.

F is concave and the surrogate a polytope, so one maximisation with its certificate suffices.
"""

from typing import NamedTuple

import numpy as np

from bylot.errors import InfeasibleLimits
from bylot.numerics.jit import Floats
from bylot.optima.newton import CertifiedMaximum, ConcaveProgram
from bylot.optima.objective import COARSE_ROUNDS, Objective
from bylot.optima.polytope import Polytope
from bylot.problem import Problem

COARSE_TOLERANCES = ((64, 3e4), (8, 3e3))
"""With many rounds, maximise on every 64th and every eighth first. Tolerances are multiples of the
final one: the maxima of such samples differ by as much."""


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
    best = None if start is None else certify_start(program, start)
    if best is None:
        face = program.polytope.face
        if face is None:
            raise InfeasibleLimits(
                f"no policy with floor {task.floor:.6g} has mean costs within the surrogate of "
                "{limits}, which is stricter than the limits",
                limits=task.problem.limits,
                remedy=f"use exact=True for the exact limits, {task.floor_remedy}or looser limits",
            )
        q, proxy, prices = face.centre if start is None else start, None, None
        for step, ease in COARSE_TOLERANCES if task.F.rounds > COARSE_ROUNDS else ():
            coarse = ConcaveProgram(task.F.thin(step), program.polytope, ease * task.tolerance)
            prices = np.zeros(len(program.polytope.rows)) if prices is None else prices
            best = coarse.maximise_by_newton(q, proxy, prices)
            q, proxy, prices = best.q, coarse.F, best.prices
        best = program.maximise(q, proxy, prices)
    unit = np.where(task.problem.signs < 0, 1.0 / task.problem.draws, -1.0)  # S has u/M for u
    return best._replace(prices=best.prices * unit)


def certify_start(program: ConcaveProgram, q: Floats) -> CertifiedMaximum | None:
    """q, if it is the maximum; None if it is not, or is infeasible.

    The maximum under looser limits often is, and then no limit has a price: zero prices are tried
    before a linear program is solved for others.
    """
    if not program.polytope.contains(q):
        return None
    value, slope = program.F.slope(q)
    for prices in (np.zeros(len(program.polytope.rows)), None):
        proof = program.polytope.certify(q, slope, prices)
        if proof.gap <= program.tolerance:
            return CertifiedMaximum(q, value, *proof, 0)
    return None
