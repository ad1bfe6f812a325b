"""Linear programs, as the optimum poses them: one call, dense arrays, an answer or None."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from bylot.kernels.compile import Floats


class Corner(NamedTuple):
    """A best corner x, and the price v >= 0 of each row of A x <= b."""

    x: Floats
    prices: Floats


class Linear(NamedTuple):
    """maximise c.x over low <= x <= high with A x <= b and E x = e."""

    c: Floats
    A: Floats
    b: Floats
    E: Floats
    e: Floats
    low: Floats
    high: Floats

    def corner(self) -> Corner | None:
        """The answer of HiGHS, to its finest tolerance or else to its usual one; None without any.

        >>> one = np.ones((1, 2))
        >>> square = Linear(one[0], one, one[0, :1], one[:0], one[0, :0], 0 * one[0], one[0])
        >>> square.corner().prices
        array([1.])
        """
        for tolerance in (1e-10, 1e-7):
            best = linprog(
                -self.c,
                A_ub=self.A,
                b_ub=self.b,
                A_eq=self.E,
                b_eq=self.e,
                bounds=list(zip(self.low.tolist(), self.high.tolist(), strict=True)),
                method="highs",
                options={
                    "primal_feasibility_tolerance": tolerance,
                    "dual_feasibility_tolerance": tolerance,
                },
            )
            if best.status == 0 and best.x is not None:
                return Corner(best.x, np.maximum(-np.asarray(best.ineqlin.marginals), 0.0))
        return None
