"""Box: a product of intervals, the shape of the limits and of the paper's surrogate for them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bylot.errors import ProblemError
from bylot.numerics import box as kernel
from bylot.numerics.jit import Floats


@dataclass(frozen=True, eq=False)
class Box:
    """S = prod_j [low_j, high_j], one coordinate per limit; ends may be infinite.

    The paper's surrogate set (section 3.2) has, with M draws and cbar_j the largest cost,

        limit j        S_j              h_j(w_j), w_j >= 0      h_j(w_j), w_j < 0
        at most u_j    [0, u_j / M]     (u_j / M) w_j           0
        at least l_j   [l_j, cbar_j]    cbar_j w_j              l_j w_j

    and the support function of S is h(w) = sum_j h_j(w_j).

    >>> box = Box([0.0, 0.3], [0.4, 1.0])
    >>> box.support([1.0, -1.0])
    0.10000000000000003
    >>> box.distance([0.8, 0.0])
    0.5
    """

    low: Floats
    high: Floats

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        ends = np.array([low, high], dtype=np.float64)  # a copy, to be made read-only
        if ends.ndim != 2 or not np.all(ends[0] <= ends[1]):
            raise ProblemError(
                "ends (low, high) of a box",
                got=(low, high),
                expected="two sequences of the same length, with low <= high",
            )
        ends.setflags(write=False)
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])

    def __reduce__(self) -> tuple[type["Box"], tuple[Floats, Floats]]:
        return Box, (self.low, self.high)  # a pickled array forgets that it is read-only

    @property
    def size(self) -> int:
        """The number of coordinates d."""
        return self.low.size

    def support(self, w: ArrayLike) -> float:
        """h(w) = max of w.x over the box, see the table above."""
        return kernel.box_support(self.low, self.high, self._point(w))

    def slope(self, u: ArrayLike, w: ArrayLike) -> Floats:
        """The shortest of u - x over all maximisers x of w.x: what a dual step at w follows.

        >>> Box([0.0], [1.0]).slope([0.5], [0.0])
        array([0.])
        """
        return kernel.dual_slope(self.low, self.high, self._point(u), self._point(w))

    def distance(self, x: ArrayLike) -> float:
        """Euclidean distance of x to the box: max over |w| <= 1 of w.x - h(w)."""
        return kernel.box_distance(self.low, self.high, self._point(x))

    def _point(self, x: ArrayLike) -> Floats:
        point = np.ascontiguousarray(x, dtype=np.float64)
        if point.shape != self.low.shape:  # compiled code would read past the end
            expected = f"{self.size} numbers, one per limit"
            raise ProblemError("shape of a point", got=point.shape, expected=expected)
        return point
