"""How the compiled loop's rounds per CPU-second fall as the pool grows, policy by policy.

A made-up pool under a budget, a cap and a minimum share; N = 3 dimensions, batches of 10. What is
done once for a problem (`bind`: linear programs, the rota, the mildest law) is timed apart.
"""

import math
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from bylot.environments import PROMPT
from bylot.kernels.compile import Floats
from bylot.policies import POLICIES, Policy
from bylot.problem import Problem, at_least, at_most, share
from bylot.simulation import blank, play, posted
from bylot.text import table

NAMES = ("omd", "distinct", "tangent", "strict", "panel")
SIZES = ((50, 5), (200, 5), (1_000, 5), (10_000, 5), (10_000, 50))  # K, M
LARGEST = {"panel": 1_000}  # K that a policy is timed at: its time grows with pairs of experts
N = 3
CELLS = 2_000_000  # numbers in the values held, which are met again and again
Turn = Callable[[float], float]  # seconds to play for -> rounds per CPU-second


def run(
    sizes: tuple[tuple[int, int], ...] = SIZES, seconds: float = 0.6, turns: int = 3
) -> dict[str, Any]:
    """Every policy there is at every size: the best of turns that alternate between policies.

    The best, because what else the machine does can only slow a turn down.
    """
    names = [name for name in NAMES if name in POLICIES]
    rows: list[dict[str, Any]] = []
    for K, M in sizes:
        there = [name for name in names if LARGEST.get(name, K) >= K]
        players = {name: player(POLICIES[name], K, M) for name in there}
        rates = dict.fromkeys(there, 0.0)
        for _ in range(turns):
            for name, (_, turn) in players.items():
                rates[name] = max(rates[name], turn(seconds))
        for name, rate in rates.items():
            speed = {"rounds_per_cpu_s": rate, "us_per_round": 1e6 / rate}
            rows.append({"policy": name, "K": K, "M": M, **speed, "bind_s": players[name][0]})
    for smaller, larger in neighbours(rows):
        slower = larger["us_per_round"] / smaller["us_per_round"]
        larger["growth"] = math.log(slower) / math.log(larger["K"] / smaller["K"])
    return {"scale": rows}


def pool(K: int, M: int) -> Problem:
    """Workloads with a heavy tail; the busiest fifth is capped, the least busy has a minimum."""
    workload = np.random.default_rng(0).lognormal(-1.5, 1.0, K)
    names, order = [f"worker-{i}" for i in range(K)], np.argsort(workload)
    novice = share("novice", [names[i] for i in order[: K // 5]])
    busy = share("busy", [names[i] for i in order[-K // 5 :]])
    limits = [
        at_most("workload", float(M * workload.mean())),
        at_most(busy, 0.16 * M),
        at_least(novice, 0.5),
    ]
    return Problem(names, {"workload": workload}, limits, draws=M)


def player(policy: Policy, K: int, M: int) -> tuple[float, Turn]:
    """CPU-seconds that `bind` takes, and plays from the start, each for so many seconds."""
    policy.bind(pool(K, M))  # compile first
    problem = pool(K, M)  # another one, as problems remember what was found out about them
    start = time.process_time()
    rule = policy.bind(problem)
    bind_s = time.process_time() - start
    rows, values = np.array(problem.rows), some_values(K)
    contexts, record = np.zeros(len(values), np.int64), blank(problem, len(values), keep_law=False)

    def turn(seconds: float) -> float:
        state, done, start = policy.start(rule), 0, time.process_time()
        while done == 0 or time.process_time() - start < seconds:
            # The same values in the same record, with other chance: the count serves as the seed.
            mail = posted(problem, PROMPT, len(values), done)
            play(rule, state, rows, values, contexts, done, 0, 0.0, 1.0, mail, record)
            done += len(values)
        return done / (time.process_time() - start)

    turn(0.0)  # compile the loop, too
    return bind_s, turn


def some_values(K: int) -> Floats:
    """Rounds of values of experts who differ, together worth at most 1 in each."""
    rng, rounds = np.random.default_rng(0), min(max(CELLS // (N * K), 64), 4_096)
    return np.asarray(rng.random((N, K)) * rng.random((rounds, N, K)) / N)


def neighbours(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of rows of one policy and one M, from each K to the next."""
    for kind in {(row["policy"], row["M"]): None for row in rows}:
        yield from pairwise(row for row in rows if (row["policy"], row["M"]) == kind)


def render(result: dict[str, Any]) -> str:
    """The result as a table, policy by policy, and how to read it."""
    head = ("policy", "K", "M", "rounds per CPU-second", "us a round", "growth", "bind, s")
    found = sorted(result["scale"], key=lambda row: NAMES.index(row["policy"]))
    rows = [
        (
            row["policy"],
            f"{row['K']:,}",
            f"{row['M']}",
            f"{row['rounds_per_cpu_s']:,.0f}",
            f"{row['us_per_round']:.2f}",
            f"{row['growth']:.2f}" if "growth" in row else "",
            f"{row['bind_s']:.3f}",
        )
        for row in found
    ]
    return "\n".join([*table([head, *rows]), "growth: the power of K that a round's time grows by"])
