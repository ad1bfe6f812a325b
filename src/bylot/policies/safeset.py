"""The largest half-spaces that stand in safely for limits on the exact cost of i.i.d. draws.

For an upper limit h(q) <= u, h(q) = sum_i c_i (1 - (1 - q_i)^M), the half-space c.q <= b* with
b* = max {b : h(q) <= u wherever c.q <= b}, which is min {c.q : h(q) >= u}; at least u / M, the
paper's. For a lower limit h(q) >= l, c.q >= b* with b* = max {c.q : h(q) <= l}; at most l, the
paper's. They do not move, as tangents do: a fixed convex set, which is what regret bounds ask for.
"""

from collections.abc import Callable

import numpy as np

from bylot.kernels.compile import Floats
from bylot.policies.onesided import Rows

HALVINGS = 60
DEAREST = 1e6  # a price of h in units of c.q at which spending is no object
VALUES = 500  # different costs of a row; pairs of more take long, and have little to gain


def safe_rows(rows: Rows, M: int) -> Rows:
    """A q <= b* for one-sided limits h(q) <= b.

    >>> safe_rows(Rows(np.array([[1.0, 0.0]]), np.array([0.75])), 2).b.round(9)
    array([0.5])
    >>> safe_rows(Rows(np.array([[-1.0, 0.0]]), np.array([-0.75])), 2).b.round(9)
    array([-0.5])
    """
    sides = [
        most_spent(row, b, M) if b >= 0 else -least_given(-row, -b, M)
        for row, b in zip(rows.A, rows.b, strict=True)
    ]
    return Rows(rows.A, np.array(sides))


def drawn_at_all(q: Floats, M: int) -> Floats:
    """1 - (1 - q)^M, also where q is tiny."""
    chance: Floats = -np.expm1(M * np.log1p(-np.minimum(q, 1.0 - 2.0**-53)))
    return chance


def cost(c: Floats, q: Floats, M: int) -> float:
    """h(q)."""
    return float(c @ drawn_at_all(q, M))


def bisected(low: float, high: float, too_low: Callable[[float], bool]) -> tuple[float, float]:
    """An interval of next to no length that holds the place from which it is no longer too low."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return low, high


def most_spent(c: Floats, u: float, M: int) -> float:
    """b* of an upper limit: the q that maximise mu h(q) - c.q spend least for their h(q), which
    grows with the price mu; at b* it is u.
    """

    def kept(mu: float) -> bool:
        return cost(c, tempted(c, mu, M), M) <= u

    if M == 1 or not kept(1.0 / DEAREST):
        return u / M
    low, high = bisected(1.0 / DEAREST, DEAREST, kept)
    if high == DEAREST:  # no law costs more than u
        return float(c.max())
    return max(u / M, float(c @ tempted(c, low, M)))


def tempted(c: Floats, mu: float, M: int) -> Floats:
    """The q on the simplex that maximises mu h(q) - c.q, zero where nothing is paid.

    (1 - q_i)^(M-1) = (1 + nu / c_i) / (mu M), nu such that the q_i sum to 1: to at most 1, with
    nu = 0, where there is someone to be had for nothing.
    """
    paid = c[c > 0]

    def at(nu: float) -> Floats:
        root = np.maximum(1.0 + nu / paid, 0.0) / (mu * M)
        return np.clip(1.0 - root ** (1.0 / (M - 1)), 0.0, 1.0)

    q = np.zeros(c.size)
    if paid.size == c.size or at(0.0).sum() > 1.0:
        _, nu = bisected(-paid.max(), mu * M * paid.max(), lambda nu: at(nu).sum() > 1.0)
        q[c > 0] = at(nu)
    else:
        q[c > 0] = at(0.0)
    return q


def least_given(c: Floats, l: float, M: int) -> float:  # noqa: E741 - the paper's letter
    """b* of a lower limit. h is concave, so its least value where c.q >= b is at a corner of that
    set: one expert alone, or two of them with c.q = b.
    """
    values = np.unique(c)
    if values.size > VALUES or l > values[-1]:  # one expert alone gives less: nothing is safe
        return l

    def least(b: float) -> float:
        more, less = values[values >= b], values[values < b]
        high, low = more[:, None], less[None, :]
        share = (b - low) / (high - low)
        pair = high * drawn_at_all(share, M) + low * drawn_at_all(1.0 - share, M)
        return float(min(more.min(initial=np.inf), pair.min(initial=np.inf)))

    return bisected(0.0, l, lambda b: least(b) < l)[1]
