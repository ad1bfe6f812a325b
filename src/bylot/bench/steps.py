"""Proximal steps as a play of the paper's policy meets them, for pools of any size.

The pool is made up: workloads with a heavy tail, a budget, a cap on the busiest fifth and a share
for the least busy one; skill comes with practice. The policy has the settings of the paper's
experiments. Only what a step needs is played, so that a pool of 100,000 takes seconds.
"""

from typing import NamedTuple

import numpy as np

from bylot.kernels.compile import Floats
from bylot.kernels.project import onto_halfspace

M, BATCH, DIMENSIONS, KAPPA, ROUNDS = 5, 10, 3, 20.0, 10_000


class Steps(NamedTuple):
    """Consecutive steps in which the row binds: project z[n] on {q >= floor, a[n].q <= b[n]}."""

    floor: float
    z: Floats
    a: Floats
    b: Floats


class Pool(NamedTuple):
    """Costs (3, K) with the box that their means must lie in, and skills (3, K)."""

    costs: Floats
    low: Floats
    high: Floats
    skills: Floats


def pool(K: int, rng: np.random.Generator) -> Pool:
    """A pool of K workers."""
    workload = rng.lognormal(-1.5, 1.0, K).clip(0.01)
    workload /= workload.max()
    practice = workload.argsort().argsort() / K
    costs = np.array([workload, practice >= 0.8, practice < 0.2])
    skills = 0.2 + 0.6 * practice + 0.15 * rng.standard_normal((DIMENSIONS, K))
    high = np.array([workload.mean(), 0.8 / M, 1.0])
    return Pool(costs, np.array([0.0, 0.0, 0.5]), high, skills.clip(0.01, 0.99))


def steps(K: int, count: int, skip: int = 500, seed: int = 0) -> Steps:
    """`count` steps of a play, after `skip` of the 1,000 that the paper's experiments have."""
    rng = np.random.default_rng(seed)
    costs, low, high, skills = pool(K, rng)
    floor = 1 / (10 * K)
    eta = 0.03 * np.sqrt(2 * ROUNDS * K * M * (1 / floor + M - 1))
    q, w, total, played = np.full(K, 1 / K), np.zeros(3), 0.0, 0
    found: list[tuple[Floats, Floats, float]] = []
    while len(found) < count:
        g, mass, spend = np.zeros(K), np.cumsum(q), costs @ q
        for _ in range(BATCH):
            draws = np.searchsorted(mass, mass[-1] * rng.random(M))
            v = skills[:, draws]
            reward = rng.beta(KAPPA * v, KAPPA * (1 - v)).max(axis=1).sum()
            centred = reward - total / played if played else 0.0
            np.add.at(g, draws, centred / q[draws] / BATCH)
            total, played = total + reward, played + 1
            peak = np.where(w > 0, high, np.where(w < 0, low, spend.clip(low, high)))
            w = w + 0.05 * (spend - peak)
            w /= max(1.0, float(np.linalg.norm(w)))
        z, a, b = q + g / eta, w @ costs, float(np.where(w > 0, w * high, w * low).sum())
        answer = onto_halfspace(z, floor, a, b)
        q = answer.q
        if answer.multiplier > 0 and played > skip * BATCH:
            found.append((z, a, b))
    z_all, a_all, b_all = zip(*found, strict=True)
    return Steps(floor, np.array(z_all), np.array(a_all), np.array(b_all))
