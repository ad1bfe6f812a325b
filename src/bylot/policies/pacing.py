"""Pacing: the limits in force for the next batch, from what is left of the period's."""

from bylot.kernels.compile import Floats, compiled

HI = 1.25  # how far a limit may be loosened after frugal rounds; 1 keeps it as it is


@compiled
def fill_in_force(
    bounds: Floats, b: Floats, spent: Floats, left: int, period: int, margin: float, most: Floats
) -> None:
    """Write b'_j = (P b_j - kappa_j - spent_j) / n, clipped to b_j - margin/2 |b_j| and
    b_j + (HI - 1) |b_j|.

    One-sided limits A p <= b; n rounds are left, kappa_j = `most` is the most one round can cost
    beyond its mean, and half of the Slater margin is never used up, so that rows stay feasible.

    >>> import numpy as np
    >>> bounds, one = np.empty(1), np.ones(1)
    >>> fill_in_force(bounds, one, np.array([4.0]), 5, 10, 0.4, 0.5 * one)
    >>> bounds
    array([1.1])
    """
    for j in range(b.size):
        fair = (period * b[j] - most[j] - spent[j]) / left
        low, high = b[j] - 0.5 * margin * abs(b[j]), b[j] + (HI - 1.0) * abs(b[j])
        bounds[j] = min(max(fair, low), high)
