"""How many rounds the compiled loop plays per CPU-second, next to a NumPy loop of the same thing.

K = 50, M = 5, N = 3, batches of 10, the values given. Both see the same uniforms, and the NumPy
loop gets them for nothing.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bylot.bench import numpy_omd
from bylot.environments import PROMPT
from bylot.kernels.chance import Chance, uniforms
from bylot.kernels.draw import DRAWS
from bylot.policies import Omd
from bylot.pools import crowd
from bylot.simulation import Record, blank, play, posted
from bylot.text import table

K, M, N = 50, 5, 3
REPEATS = 30  # of the compiled loop in a turn, so that a turn is long enough to time


def run(rounds: int = 10_000, plain_rounds: int = 10_000, turns: int = 9) -> dict[str, Any]:
    """Rounds per CPU-second of both, the best of turns that alternate, and if the traces agree.

    The best, because what else the machine does can only slow a turn down.
    """
    problem, policy = crowd(K, M), Omd()
    rule = policy.bind(problem, horizon=rounds)
    rows, values = np.array(problem.rows), np.random.default_rng(0).random((rounds, N, K))
    chances = np.array([uniforms(Chance(0, t), DRAWS, M) for t in range(plain_rounds)])
    record, contexts = blank(problem, rounds, keep_law=False), np.zeros(rounds, np.int64)

    def compiled() -> None:
        state = policy.start(rule)
        record.spend[:] = 0.0
        mail = posted(problem, PROMPT, rounds, 0)
        play(rule, state, rows, values, contexts, 0, 0, 0.0, 1.0, mail, record)

    def often() -> None:
        for _ in range(REPEATS):
            compiled()

    compiled()  # compile first
    fast, slow, same = [], [], True
    for _ in range(turns):
        seconds, _ = cpu_seconds(often)
        fast.append(REPEATS * rounds / seconds)
        seconds, plain = cpu_seconds(
            lambda: numpy_omd.play(rule, rows, values[:plain_rounds], chances)
        )
        slow.append(plain_rounds / seconds)
        same &= agree(plain, record)
    rates = {"compiled": max(fast), "numpy": max(slow)}
    ratio = rates["compiled"] / rates["numpy"]
    return {"rounds_per_cpu_s": rates, "ratio": ratio, "same_trace": same}


def agree(plain: numpy_omd.PlainTrace, record: Record) -> bool:
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


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
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
    return "\n".join([*table(rows), f"compiled is faster by {result['ratio']:.0f}x, with {agree}"])
