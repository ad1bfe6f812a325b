"""Landscape: the expected reward as a function of one policy per context, to be climbed.

Owns the sum over contexts; which policies are allowed is left to the polytope.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats
from bylot.optima.stack import Stack


class Landscape(NamedTuple):
    """F(q) = sum_x F_x(q_x), F_x the weighted expected reward of the rounds of context x.

    q is (X, K), a row per context; without contexts X = 1. Concave, as every F_x is.
    """

    parts: tuple[Stack, ...]
    draws: int

    @property
    def shape(self) -> tuple[int, int]:
        """(X, K): how many contexts, how many experts."""
        return len(self.parts), self.parts[0].size

    @property
    def rounds(self) -> int:
        """Value matrices in all."""
        return sum(part.rounds for part in self.parts)

    def thinned(self, step: int) -> "Landscape":
        """The same from every step-th round of each context: nearly as high, far cheaper."""
        return self._replace(parts=tuple(part.thinned(step) for part in self.parts))

    def slope(self, q: Floats) -> tuple[float, Floats]:
        """F(q) and its slope (X, K)."""
        pairs = [part.slope(row, self.draws) for part, row in zip(self.parts, q, strict=True)]
        return sum(value for value, _ in pairs), np.stack([slope for _, slope in pairs])

    def curvature(self, q: Floats) -> Floats:
        """The Hessian of F, (X, K, K): contexts do not touch each other."""
        return np.stack(
            [part.curvature(row, self.draws) for part, row in zip(self.parts, q, strict=True)]
        )
