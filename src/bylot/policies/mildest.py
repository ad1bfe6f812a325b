"""The mildest law inside the limits: what is mixed into every draw so that nobody is forgotten.

Equal shares would eat a tight budget; the law of largest entropy that keeps the limits does not.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats
from bylot.kernels.tilt import tilt
from bylot.policies.onesided import Rows

TIGHTER = 0.05  # of every bound, unless the Slater margin is less than twice that


class Mildest(NamedTuple):
    """Parameters theta_0 and the chances p_0 to be asked, as near to equal as the limits allow."""

    theta: Floats
    chances: Floats


def mildest(rows: Rows, members: int, margin: float) -> Mildest:
    """max entropy over laws of `members` different experts with A p <= b, tightened a little."""
    K = rows.A.shape[1]
    theta, chances, prices = np.zeros(K), np.empty(K), np.zeros(rows.b.size)
    b = rows.b - min(TIGHTER, margin / 2) * np.abs(rows.b)
    A = np.ascontiguousarray(rows.A)
    tilt(theta, chances, prices, np.zeros(K), A, b, members, 0.0, np.zeros(K))
    return Mildest(theta, chances)
