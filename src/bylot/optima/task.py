"""Task: one maximisation, a landscape under the limits of a problem."""

from typing import NamedTuple

from bylot.kernels.compile import Floats
from bylot.optima.landscape import Landscape
from bylot.problem import Problem


class Task(NamedTuple):
    """Maximise the landscape over q (X, K), q >= floor, context x counting for share_x of the cost.

    The tolerance is a difference of values: below it, a gap is as good as none.
    """

    problem: Problem
    hill: Landscape
    shares: Floats
    floor: float
    tolerance: float

    @property
    def limits(self) -> str:
        """The limits, to be named in an error."""
        return ", ".join(map(str, self.problem.limits))

    @property
    def lower_floor(self) -> str:
        """An advice that makes sense while there is a floor."""
        return "floor=False, " if self.floor > 0.0 else ""
