"""Rounds per CPU-second of the compiled loop as the pool grows, by policy.

A made-up pool under a budget, a cap and a minimum share; N = 3 dimensions, batches of 10. The work
done once per problem (`bind`: linear programs, fallback schedule, max-entropy distribution) is
timed separately.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bylot._text import format_table
from bylot.policies import POLICIES, Policy
from bylot.problem import Problem, at_least, at_most, share
from bylot_bench.compiled_loop import CompiledLoop

SCALED_POLICIES = ("omd", "distinct", "tangent", "strict", "noisy-or")
POOL_SIZES = ((50, 5), (200, 5), (1_000, 5), (10_000, 5), (10_000, 50))  # K, M
MAX_POLICY_SIZE = {"noisy-or": 1_000}  # largest K timed: its time grows with pairs of experts
MAX_HELD_VALUES = 2_000_000  # numbers in the value array, which is played again and again
PlayTurn = Callable[[float], float]  # seconds to play for -> rounds per CPU-second


def run(
    sizes: tuple[tuple[int, int], ...] = POOL_SIZES, seconds: float = 0.6, turns: int = 3
) -> dict[str, Any]:
    """Measure every policy at every size, in alternating turns.

    The best turn counts, because other load on the machine can only slow a turn down.
    """
    names = [name for name in SCALED_POLICIES if name in POLICIES]
    rows: list[dict[str, Any]] = []
    for K, M in sizes:
        there = [name for name in names if MAX_POLICY_SIZE.get(name, K) >= K]
        players = {name: prepare_policy(POLICIES[name], K, M) for name in there}
        rates = dict.fromkeys(there, 0.0)
        for _ in range(turns):
            for name, (_, turn) in players.items():
                rates[name] = max(rates[name], turn(seconds))
        rows += [
            {
                "policy": name,
                "K": K,
                "M": M,
                "rounds_per_cpu_s": rate,
                "us_per_round": 1e6 / rate,
                "bind_s": players[name][0],
            }
            for name, rate in rates.items()
        ]
    last: dict[Any, dict[str, Any]] = {}  # row of the next smaller K, by policy and M
    for row in rows:
        if smaller := last.get((row["policy"], row["M"])):
            slower = row["us_per_round"] / smaller["us_per_round"]
            row["growth"] = math.log(slower) / math.log(row["K"] / smaller["K"])
        last[row["policy"], row["M"]] = row
    return {"scale": rows}


def make_scale_problem(K: int, M: int) -> Problem:
    """A pool of heavy-tailed workloads: a cap on the busiest fifth, a minimum of the least busy."""
    workload = np.random.default_rng(0).lognormal(-1.5, 1.0, K)
    names = [f"worker-{i}" for i in range(K)]
    by_load = [names[i] for i in np.argsort(workload)]
    limits = [
        at_most("workload", float(M * workload.mean())),
        at_most(share("busy", by_load[-K // 5 :]), 0.16 * M),
        at_least(share("novice", by_load[: K // 5]), 0.5),
    ]
    return Problem(names, {"workload": workload}, limits, draws=M)


def prepare_policy(policy: Policy, K: int, M: int) -> tuple[float, PlayTurn]:
    """Measure `bind` in CPU-seconds; return it with a function that plays for some seconds."""
    policy.bind(make_scale_problem(K, M))  # compile first
    problem = make_scale_problem(K, M)  # a new one, because problems cache derived results
    N = 3
    rng = np.random.default_rng(0)
    rounds = min(max(MAX_HELD_VALUES // (N * K), 64), 4_096)
    values = rng.random((N, K)) * rng.random((rounds, N, K)) / N  # experts differ; at most 1 in all
    start = time.process_time()
    loop = CompiledLoop(policy, problem, values)
    bind_s = time.process_time() - start

    def turn(seconds: float) -> float:
        loop.start()
        done = 0
        start = time.process_time()
        while done == 0 or time.process_time() - start < seconds:
            loop.play(seed=done)  # the same values with fresh randomness
            done += rounds
        return done / (time.process_time() - start)

    turn(0.0)  # compile the loop, too
    return bind_s, turn


def render(result: dict[str, Any]) -> str:
    rows = [("policy", "K", "M", "rounds per CPU-second", "us a round", "growth", "bind, s")]
    rows += [
        (
            row["policy"],
            f"{row['K']:,}",
            f"{row['M']}",
            f"{row['rounds_per_cpu_s']:,.0f}",
            f"{row['us_per_round']:.2f}",
            f"{row['growth']:.2f}" if "growth" in row else "",
            f"{row['bind_s']:.3f}",
        )
        for row in sorted(result["scale"], key=lambda row: SCALED_POLICIES.index(row["policy"]))
    ]
    note = "growth: the power of K by which the time of a round grows"
    return "\n".join([*format_table(rows), note])
