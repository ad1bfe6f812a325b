"""The batched algorithm once more, as one would write it in NumPy: a yardstick, never a product.

It exists to show what compiling buys and that it changes nothing: same draws, same rewards.
"""

import numpy as np
from scipy.optimize import brentq

from bylot.kernels.compile import Floats, Ints
from bylot.policies.omd import OmdRule


def on_simplex(z: Floats, floor: float) -> Floats:
    """Projection on {sum q = 1, q >= floor} by sorting."""
    down, count = np.sort(z)[::-1], np.arange(1, z.size + 1)
    tau = (np.cumsum(down) - (1.0 - (z.size - count) * floor)) / count
    last = np.nonzero(down - tau > floor)[0][-1]
    return np.maximum(floor, z - tau[last])


def on_slice(z: Floats, floor: float, a: Floats, b: float) -> Floats:
    """Projection on {sum q = 1, q >= floor, a.q <= b} by a root of the multiplier."""

    def excess(multiplier: float) -> float:
        return float(a @ on_simplex(z - multiplier * a, floor) - b)

    if excess(0.0) <= 0:
        return on_simplex(z, floor)
    top = 1.0
    while excess(top) > 0:
        top *= 2
    root = brentq(excess, 0.0, top, xtol=1e-16, rtol=1e-15)
    return on_simplex(z - root * a, floor)


def play(rule: OmdRule, values: Floats, uniforms: Floats) -> tuple[Ints, Floats]:
    """Draws and rewards of the batched algorithm with a running-mean baseline and a fixed dual."""
    K, w = values.shape[2], np.zeros(len(rule.rows))
    q, g, total = np.full(K, 1 / K), np.zeros(K), 0.0
    draws = np.empty((len(values), rule.draws), np.int64)
    rewards = np.empty(len(values))
    for t, V in enumerate(values):
        if t > 0:
            u = rule.rows @ q
            x = np.where(w > 0, rule.high, rule.low)
            x = np.where(w == 0, np.clip(u, rule.low, rule.high), x)
            w = w + rule.oco.step * (u - x)
            w /= max(1.0, float(np.linalg.norm(w)))
        if t % rule.batch == 0:
            support = np.where(w > 0, rule.high * w, rule.low * w).sum()
            q = on_slice(q + g / rule.eta, rule.floor, w @ rule.rows, float(support))
            g = np.zeros(K)
        mass = np.cumsum(q)
        draws[t] = np.searchsorted(mass, uniforms[t] * mass[-1], side="right")
        rewards[t] = V[:, draws[t]].max(axis=1).sum()
        centred = rewards[t] - total / t if t else 0.0
        np.add.at(g, draws[t], rule.weight * centred / q[draws[t]])
        total += rewards[t]
    return draws, rewards
