"""How many rounds the compiled loop plays per CPU-second, next to a NumPy loop of the same thing.

K = 50, M = 5, N = 3, batches of 10, the values given. Both see the same uniforms, and the NumPy
loop gets them for nothing.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from bylot._text import format_table
from bylot.environments import NO_DELAY
from bylot.numerics.box import EDGE_ROUNDING
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.philox import RngKey, draw_uniforms
from bylot.numerics.sampling import DRAW_STREAM
from bylot.policies import Omd
from bylot.policies.omd import OmdRule
from bylot.sample_problems import make_crowd_problem
from bylot.simulation import PlayRecord, make_late_rewards, make_play_record, play_rounds


def project_simplex_numpy(z: Floats, floor: float) -> Floats:
    """Projection on {sum q = 1, q >= floor} by sorting."""
    down, count = np.sort(z)[::-1], np.arange(1, z.size + 1)
    tau = (np.cumsum(down) - (1.0 - (z.size - count) * floor)) / count
    last = np.nonzero(down - tau > floor)[0][-1]
    q: Floats = np.maximum(floor, z - tau[last])
    return q


def project_halfspace_numpy(z: Floats, floor: float, a: Floats, b: float) -> Floats:
    """Projection on {sum q = 1, q >= floor, a.q <= b} by a root of the multiplier."""

    def excess(multiplier: float) -> float:
        return float(a @ project_simplex_numpy(z - multiplier * a, floor) - b)

    if excess(0.0) <= 0:
        return project_simplex_numpy(z, floor)
    top = 1.0
    while excess(top) > 0:
        top *= 2
    root = brentq(excess, 0.0, top, xtol=1e-16, rtol=1e-15)
    return project_simplex_numpy(z - root * a, floor)


class NumpyTrace(NamedTuple):
    """What is written down in every round, as in the compiled loop's record."""

    draws: Ints
    odds: Floats
    rewards: Floats
    spend: Floats


def play_numpy_omd(rule: OmdRule, rows: Floats, values: Floats, uniforms: Floats) -> NumpyTrace:
    """The batched algorithm with a running-mean baseline and a fixed dual step."""
    T, _, K = values.shape
    w, q, g, total = np.zeros(len(rows)), np.full(K, 1 / K), np.zeros(K), 0.0
    trace = NumpyTrace(
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
            gap = np.where(np.abs(u - x) > EDGE_ROUNDING * np.maximum(abs(u), abs(x)), u - x, 0.0)
            w = w + rule.oco.step * np.where(w == 0, gap, u - x)
            w /= max(1.0, float(np.linalg.norm(w)))
        if t % rule.batch == 0:
            support = np.where(w > 0, rule.high * w, rule.low * w).sum()
            q = project_halfspace_numpy(q + g / rule.eta, rule.floor, w @ rule.rows, float(support))
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


SIMULATE_EXPERTS, SIMULATE_DRAWS, SIMULATE_DIMENSIONS = 50, 5, 3
COMPILED_REPEATS = 30  # of the compiled loop in a turn, so that a turn is long enough to time


def run(rounds: int = 10_000, plain_rounds: int = 10_000, turns: int = 9) -> dict[str, Any]:
    """Rounds per CPU-second of both, the best of turns that alternate, and if the traces agree.

    The best, because what else the machine does can only slow a turn down.
    """
    problem, policy = make_crowd_problem(SIMULATE_EXPERTS, SIMULATE_DRAWS), Omd()
    rule = policy.bind(problem, horizon=rounds)
    rows, values = (
        np.array(problem.rows),
        np.random.default_rng(0).random((rounds, SIMULATE_DIMENSIONS, SIMULATE_EXPERTS)),
    )
    chances = np.array(
        [draw_uniforms(RngKey(0, t), DRAW_STREAM, SIMULATE_DRAWS) for t in range(plain_rounds)]
    )
    record, contexts = make_play_record(problem, rounds, keep_law=False), np.zeros(rounds, np.int64)

    def compiled() -> None:
        state = policy.start(rule)
        record.spend[:] = 0.0
        mail = make_late_rewards(problem, NO_DELAY, rounds, 0)
        play_rounds(rule, state, rows, values, contexts, 0, 0, 0.0, 1.0, mail, record)

    def often() -> None:
        for _ in range(COMPILED_REPEATS):
            compiled()

    compiled()  # compile first
    fast, slow, same = [], [], True
    for _ in range(turns):
        seconds, _ = measure_cpu_seconds(often)
        fast.append(COMPILED_REPEATS * rounds / seconds)
        seconds, plain = measure_cpu_seconds(
            lambda: play_numpy_omd(rule, rows, values[:plain_rounds], chances)
        )
        slow.append(plain_rounds / seconds)
        same &= is_same_trace(plain, record)
    rates = {"compiled": max(fast), "numpy": max(slow)}
    ratio = rates["compiled"] / rates["numpy"]
    return {"rounds_per_cpu_s": rates, "ratio": ratio, "same_trace": same}


def is_same_trace(plain: NumpyTrace, record: PlayRecord) -> bool:
    """The same draws; odds, rewards and costs to what rounding can grow to on the way."""
    n = len(plain.draws)
    close = [
        np.allclose(mine[:n], theirs, rtol=1e-6)
        for mine, theirs in (
            (record.odds, plain.odds),
            (record.rewards, plain.rewards),
            (record.spend, plain.spend),
        )
    ]
    return np.array_equal(record.draws[:n], plain.draws) and all(close)


def measure_cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of a call, and what it returned."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def render(result: dict[str, Any]) -> str:
    """The result as a table."""
    rates = result["rounds_per_cpu_s"]
    rows = [("OMD, K=50, M=5, N=3, B=10", "rounds per CPU-second")]
    rows += [(name, f"{rate:,.0f}") for name, rate in rates.items()]
    agree = "the same trace" if result["same_trace"] else "DIFFERENT TRACES"
    return "\n".join(
        [*format_table(rows), f"compiled is faster by {result['ratio']:.0f}x, with {agree}"]
    )
