"""The batched algorithm once more, as one would write it in NumPy: a yardstick, never a product.

It exists to show what compiling buys, and that it changes nothing: same trace.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from bylot.kernels.box import ROUNDING
from bylot.kernels.compile import Floats, Ints
from bylot.policies.omd import OmdRule


def on_simplex(z: Floats, floor: float) -> Floats:
    """Projection on {sum q = 1, q >= floor} by sorting."""
    down, count = np.sort(z)[::-1], np.arange(1, z.size + 1)
    tau = (np.cumsum(down) - (1.0 - (z.size - count) * floor)) / count
    last = np.nonzero(down - tau > floor)[0][-1]
    q: Floats = np.maximum(floor, z - tau[last])
    return q


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


class PlainTrace(NamedTuple):
    """What is written down in every round, as in the compiled loop's record."""

    draws: Ints
    odds: Floats
    rewards: Floats
    spend: Floats


def play(rule: OmdRule, rows: Floats, values: Floats, uniforms: Floats) -> PlainTrace:
    """The batched algorithm with a running-mean baseline and a fixed dual step."""
    T, _, K = values.shape
    w, q, g, total = np.zeros(len(rows)), np.full(K, 1 / K), np.zeros(K), 0.0
    trace = PlainTrace(
        np.empty((T, rule.draws), np.int64),
        np.empty((T, rule.draws)),
        np.empty(T),
        np.empty((T, len(rows))),
    )
    for t in range(T):
        if t > 0:
            u = rule.rows @ q
            x = np.where(w > 0, rule.high, rule.low)
            x = np.where(w == 0, np.clip(u, rule.low, rule.high), x)
            gap = np.where(np.abs(u - x) > ROUNDING * np.maximum(abs(u), abs(x)), u - x, 0.0)
            w = w + rule.oco.step * np.where(w == 0, gap, u - x)
            w /= max(1.0, float(np.linalg.norm(w)))
        if t % rule.batch == 0:
            support = np.where(w > 0, rule.high * w, rule.low * w).sum()
            q = on_slice(q + g / rule.eta, rule.floor, w @ rule.rows, float(support))
            g = np.zeros(K)
        mass = np.cumsum(q)
        draws = np.searchsorted(mass, uniforms[t] * mass[-1], side="right")
        odds = q[draws]
        reward = values[t][:, draws].max(axis=1).sum()
        centred = reward - total / t if t else 0.0
        np.add.at(g, draws, rule.weight * centred / odds)
        total += reward
        trace.draws[t], trace.odds[t], trace.rewards[t] = draws, odds, reward
        trace.spend[t] = rows[:, np.unique(draws)].sum(axis=1)
    return trace
