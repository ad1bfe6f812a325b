"""Pacing: the limits in force for the next batch, from what is left of the period's."""

from typing import Any, NamedTuple

import numpy as np

from bylot.errors import PolicyError
from bylot.kernels.compile import Floats, compiled
from bylot.policies.guard import Account, Guard

HI = 1.25  # how far a limit may be loosened after frugal rounds; 1 keeps it as it is


class Pace(NamedTuple):
    """How far limits in force may leave the limits."""

    high: float  # HI; 0: they do not move at all
    margin: float  # of Slater, half of which is never used up, so that rows stay feasible
    most: Floats  # (d,) kappa, that one round can cost more than another


def paced(pace: float | None, margin: float, A: Floats, members: int, full: bool) -> Pace:
    """The pace of laws whose panels have so many members, or if they need not be full, at most so
    many: what every expert costs is in all full panels, and no reason for any reserve.

    >>> paced(1.25, 0.1, np.array([[1000.0, 1001.0]]), members=2, full=True).most
    array([2.])
    """
    dearest = np.ptp(A, axis=1) if full else np.abs(A).max(axis=1)
    return Pace(0.0 if pace is None else float(pace), margin, members * dearest)


def checked(pace: Any) -> None:
    """Refuse a pace that is none."""
    number = isinstance(pace, (int, float)) and not isinstance(pace, bool)
    if pace is not None and not (number and 1 <= pace <= 2):
        raise PolicyError(
            f"pace={pace!r} is no factor between 1 and 2; the default is {HI}, 1 keeps every round "
            "inside the limits in expectation, None holds limits as they are"
        )


@compiled
def fill_in_force(bounds: Floats, guard: Guard, account: Account, pace: Pace) -> None:
    """Write b'_j = (P b_j - kappa_j - spent_j) / n, clipped to b_j - margin/2 |b_j| and
    b_j + (HI - 1) |b_j|, for one-sided limits A p <= b with n of P rounds left. A minimum that this
    period has reached already is none for the rest of it.
    """
    P, n = guard.period, account.left[0]
    for j in range(bounds.size):
        b = guard.b[j]
        bounds[j] = b
        if pace.high > 0.0:
            fair = (P * b - pace.most[j] - account.spent[j]) / n
            low, high = b - 0.5 * pace.margin * abs(b), b + (pace.high - 1.0) * abs(b)
            bounds[j] = min(max(fair, low), high)
            if b < 0.0 and pace.high > 1.0 and account.spent[j] <= P * b:
                bounds[j] = 0.0
