"""Rounds per CPU-second of the compiled loop, against a NumPy loop of the same algorithm.

K = 50, M = 5, N = 3, batches of 10, the values given. Both see the same uniforms, and the NumPy
loop gets them for free.
"""

import time
from typing import Any

import numpy as np
from scipy.optimize import brentq

from bylot._text import format_table
from bylot.environments import NO_DELAY
from bylot.environments.call_costs import make_declared_costs
from bylot.environments.synthetic import make_crowd_problem
from bylot.numerics.box import EDGE_ROUNDING
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import DRAW_STREAM, RngKey, draw_uniforms
from bylot.policies import Omd
from bylot.policies.omd import OmdRule
from bylot.simulation import NO_ARRIVALS, make_late_rewards, make_play_record, play_rounds

COMPILED_REPEATS = 30  # plays per turn, so that a turn of the compiled loop is long enough to time


def project_simplex_numpy(z: Floats, floor: float) -> Floats:
    """Project onto {sum q = 1, q >= floor} by sorting."""
    down, count = np.sort(z)[::-1], np.arange(1, z.size + 1)
    tau = (np.cumsum(down) - (1.0 - (z.size - count) * floor)) / count
    last = np.nonzero(down - tau > floor)[0][-1]
    return np.asarray(np.maximum(floor, z - tau[last]))


def project_halfspace_numpy(z: Floats, floor: float, a: Floats, b: float) -> Floats:
    """Project onto {sum q = 1, q >= floor, a.q <= b} by a root search for the multiplier."""

    def excess(multiplier: float) -> float:
        return float(a @ project_simplex_numpy(z - multiplier * a, floor) - b)

    if excess(0.0) <= 0:
        return project_simplex_numpy(z, floor)
    top = 1.0
    while excess(top) > 0:
        top *= 2
    root = brentq(excess, 0.0, top, xtol=1e-16, rtol=1e-15)
    return project_simplex_numpy(z - root * a, floor)


def play_numpy_omd(
    rule: OmdRule, rows: Floats, values: Floats, uniforms: Floats
) -> tuple[Ints, Floats, Floats, Floats]:
    """The batched algorithm with a running-mean baseline and a fixed dual step; returns the draws,
    their probabilities, the rewards and the costs of all rounds.
    """
    T, _, K = values.shape
    w, q, g, total = np.zeros(len(rows)), np.full(K, 1 / K), np.zeros(K), 0.0
    panels, drawn_with = np.empty((T, rule.draws), np.int64), np.empty((T, rule.draws))
    rewards, spend = np.empty(T), np.empty((T, len(rows)))
    for t in range(T):
        if t > 0:
            u = rule.rows @ q
            x = np.where(w > 0, rule.high, rule.low)
            x = np.where(w == 0, np.clip(u, rule.low, rule.high), x)
            gap = np.where(np.abs(u - x) > EDGE_ROUNDING * np.maximum(abs(u), abs(x)), u - x, 0.0)
            w = w + rule.oco.step * np.where(w == 0, gap, u - x)
            w /= max(1.0, float(np.linalg.norm(w)))
        if t % rule.batch == 0:
            support = np.where(w > 0, rule.high * w, rule.low * w).sum()
            q = project_halfspace_numpy(q + g / rule.eta, rule.floor, w @ rule.rows, float(support))
            g = np.zeros(K)
        mass = np.cumsum(q)
        draws = np.searchsorted(mass, uniforms[t] * mass[-1], side="right")
        probabilities = q[draws]
        reward = values[t][:, draws].max(axis=1).sum()
        centred = reward - total / t if t else 0.0
        np.add.at(g, draws, rule.weight * centred / probabilities)
        total += reward
        panels[t], drawn_with[t], rewards[t] = draws, probabilities, reward
        spend[t] = rows[:, np.unique(draws)].sum(axis=1)
    return panels, drawn_with, rewards, spend


def run(rounds: int = 10_000, numpy_rounds: int = 10_000, turns: int = 9) -> dict[str, Any]:
    """Measure both in alternating turns, and compare their traces.

    The best turn counts, because other load on the machine can only slow a turn down.
    """
    K, M, N = 50, 5, 3
    problem, policy = make_crowd_problem(K, M), Omd()
    rule = policy.bind(problem, horizon=rounds)
    rows, values = np.array(problem.rows), np.random.default_rng(0).random((rounds, N, K))
    uniforms = np.array([draw_uniforms(RngKey(0, t), DRAW_STREAM, M) for t in range(numpy_rounds)])
    record = make_play_record(problem, rounds, keep_distributions=False)
    contexts = np.zeros(rounds, np.int64)

    def play_compiled(times: int) -> None:
        for _ in range(times):
            record.spend[:] = 0.0
            calls = make_declared_costs(problem)
            late = make_late_rewards(problem, NO_DELAY, rounds, 0)
            state = policy.start(rule)
            play_rounds(
                rule,
                state,
                rows,
                values,
                contexts,
                0,
                0,
                0.0,
                1.0,
                late,
                calls,
                NO_ARRIVALS,
                record,
            )

    play_compiled(1)  # compile first
    fast, slow, same = [], [], True
    for _ in range(turns):
        start = time.process_time()
        play_compiled(COMPILED_REPEATS)
        middle = time.process_time()
        trace = play_numpy_omd(rule, rows, values[:numpy_rounds], uniforms)
        fast.append(COMPILED_REPEATS * rounds / (middle - start))
        slow.append(numpy_rounds / (time.process_time() - middle))
        compiled = (record.draws, record.draw_probabilities, record.rewards, record.spend)
        draws, *others = ((a[: len(b)], b) for a, b in zip(compiled, trace, strict=True))
        same &= np.array_equal(*draws)
        same &= all(np.allclose(*pair, rtol=1e-6) for pair in others)  # accumulated rounding
    rates = {"compiled": max(fast), "numpy": max(slow)}
    ratio = rates["compiled"] / rates["numpy"]
    return {"rounds_per_cpu_s": rates, "ratio": ratio, "same_trace": same}


def render(result: dict[str, Any]) -> str:
    rows = [("OMD, K=50, M=5, N=3, B=10", "rounds per CPU-second")]
    rows += [(name, f"{rate:,.0f}") for name, rate in result["rounds_per_cpu_s"].items()]
    agree = "the same trace" if result["same_trace"] else "DIFFERENT TRACES"
    last = f"compiled is faster by {result['ratio']:.0f}x, with {agree}"
    return "\n".join([*format_table(rows), last])
