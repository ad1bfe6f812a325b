"""softmax: logits as chances."""

import math

from bylot.kernels.compile import Floats, compiled


@compiled
def fill_softmax(pi: Floats, theta: Floats) -> float:
    """Write pi_i = e^{theta_i} / sum e^theta; returns log sum e^theta.

    >>> import numpy as np
    >>> pi = np.empty(2)
    >>> round(fill_softmax(pi, np.array([800.0, 800.0])), 6), pi
    (800.693147, array([0.5, 0.5]))
    """
    top, mass = theta[0], 0.0
    for i in range(theta.size):
        top = max(top, theta[i])
    for i in range(theta.size):
        pi[i] = math.exp(theta[i] - top)
        mass += pi[i]
    for i in range(theta.size):
        pi[i] /= mass
    return float(top + math.log(mass))
