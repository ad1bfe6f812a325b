"""Rounds per CPU-second of the compiled loop, against a NumPy loop of the same algorithm; and of
every policy, on the same problem.

K = 50, M = 5, N = 3, batches of 10, the values given. Both loops see the same uniforms, and the
NumPy loop gets them for free.
"""

import math
import time
from typing import Any

import numpy as np
from scipy.optimize import brentq

from bylot._text import format_table, print_progress
from bylot.environments.synthetic import make_crowd_problem
from bylot.numerics.box import EDGE_ROUNDING
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import DRAW_STREAM, RngKey, draw_uniforms
from bylot.policies import POLICIES, Omd
from bylot.policies.omd import OmdRule
from bylot.problem import Problem
from bylot_bench.compiled_loop import CompiledLoop

K, M, N = 50, 5, 3  # experts, panel size, dimensions
TURN_S = 0.1  # of each policy, at least
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
            w = w + rule.dual_step * np.where(w == 0, gap, u - x)
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


def time_plays(loop: CompiledLoop, times: int) -> float:
    """Return the CPU-seconds of so many plays, each from the start with the same randomness."""
    start = time.process_time()
    for _ in range(times):
        loop.start()
        loop.play()
    return time.process_time() - start


def run(
    rounds: int = 10_000, numpy_rounds: int = 10_000, turns: int = 9, policies: bool = False
) -> dict[str, Any]:
    """Measure both loops in alternating turns, and compare their traces.

    The best turn counts, because other load on the machine can only slow a turn down.

    policies: measure all policies too
    """
    problem, values = make_crowd_problem(K, M), np.random.default_rng(0).random((rounds, N, K))
    uniforms = np.array([draw_uniforms(RngKey(0, t), DRAW_STREAM, M) for t in range(numpy_rounds)])
    omd = CompiledLoop(Omd(), problem, values, horizon=rounds)
    time_plays(omd, 1)  # compile first
    record, fast, slow, same = omd.record, list[float](), list[float](), True
    for _ in range(turns):
        fast.append(COMPILED_REPEATS * rounds / time_plays(omd, COMPILED_REPEATS))
        start = time.process_time()
        trace = play_numpy_omd(omd.rules.policy, omd.rows, values[:numpy_rounds], uniforms)
        slow.append(numpy_rounds / (time.process_time() - start))
        compiled = (record.draws, record.draw_probabilities, record.rewards, record.spend)
        draws, *others = ((a[: len(b)], b) for a, b in zip(compiled, trace, strict=True))
        same &= np.array_equal(*draws)
        same &= all(np.allclose(*pair, rtol=1e-6) for pair in others)  # accumulated rounding
    result = {
        "rounds_per_cpu_s": {"compiled": max(fast), "numpy": max(slow)},
        "ratio": max(fast) / max(slow),
        "same_trace": same,
    }
    if policies:
        result["policies"] = measure_policies(problem, values, turns)
    return result


def measure_policies(problem: Problem, values: Floats, turns: int) -> dict[str, float]:
    """Rounds per CPU-second of every policy, the best of alternating turns."""
    players: dict[str, CompiledLoop] = {}
    for name, policy in POLICIES.items():
        print_progress(f"... {name}, which is compiled first, unless that was done before")
        players[name] = CompiledLoop(policy, problem, values, len(values), float(N))
        time_plays(players[name], 1)
    times = {name: max(1, round(TURN_S / time_plays(loop, 1))) for name, loop in players.items()}
    best = dict.fromkeys(players, math.inf)
    for _ in range(turns):
        for name, loop in players.items():
            best[name] = min(best[name], time_plays(loop, times[name]) / times[name])
    return {name: len(values) / seconds for name, seconds in best.items()}


def render(result: dict[str, Any]) -> str:
    rows = [("OMD, K=50, M=5, N=3, B=10", "rounds per CPU-second")]
    rows += [(name, f"{rate:,.0f}") for name, rate in result["rounds_per_cpu_s"].items()]
    agree = "the same trace" if result["same_trace"] else "DIFFERENT TRACES"
    lines = [*format_table(rows), f"compiled is faster by {result['ratio']:.0f}x, with {agree}"]
    if "policies" in result:
        table = [
            ("policy, on the same problem", "rounds per CPU-second", "us a round"),
            *((name, f"{x:,.0f}", f"{1e6 / x:.2f}") for name, x in result["policies"].items()),
        ]
        lines += ["", *format_table(table)]
    return "\n".join(lines)
