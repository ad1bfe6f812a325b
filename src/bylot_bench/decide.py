"""Rounds per CPU-second of routers, against UCB in river and MABWiser.

All choose 5 of 50 experts, see one reward for the panel and learn from it, in the same process, in
turns. The other libraries learn one arm at a time, so the panel's reward is credited to each
member; neither supports limits.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import cycle
from typing import Any

import numpy as np

from bylot._text import format_table
from bylot.environments.synthetic import make_crowd_problem
from bylot.errors import install_command
from bylot.numerics.sum_max import sum_max
from bylot.router.router import Router

K, M, N = 50, 5, 3  # experts, panel size, dimensions
OWN_ROUTERS = {"bylot": "omd", "bylot distinct": "distinct", "bylot tangent": "tangent"}
PlayRound = Callable[[Any], None]  # plays one round on one value matrix


def make_bylot_round(policy: str) -> PlayRound:
    """decide + reward of a router under three limits, from Python."""
    router = Router(make_crowd_problem(K, M), policy, rewards=(0.0, N))
    place = {name: i for i, name in enumerate(router.problem.experts)}

    def one(values: Any) -> None:
        decision = router.decide()
        panel = [place[name] for name in decision.subset]
        router.reward(decision.id, sum_max(values, np.array(panel)))

    return one


def make_river_round() -> PlayRound:
    """Five pulls without repetition, five updates."""
    policy = import_module("river.bandit").UCB(delta=1, seed=0)
    arms = list(range(K))

    def one(values: Any) -> None:
        left, panel = arms.copy(), []
        for _ in range(M):
            arm = policy.pull(left)
            left.remove(arm)
            panel.append(arm)
        reward = sum_max(values, np.array(panel)) / N
        for arm in panel:
            policy.update(arm, reward)

    return one


def make_mabwiser_round() -> PlayRound:
    """The five largest upper confidence bounds, one partial fit."""
    mab = import_module("mabwiser.mab")
    policy = mab.MAB(list(range(K)), mab.LearningPolicy.UCB1(alpha=1.0))
    policy.fit(list(range(K)), [0.5] * K)

    def one(values: Any) -> None:
        bounds = policy.predict_expectations()
        panel = sorted(bounds, key=bounds.__getitem__)[-M:]
        reward = sum_max(values, np.array(panel)) / N
        policy.partial_fit(panel, [reward] * M)

    return one


def run(seconds: float = 2.0, turns: int = 5) -> dict[str, Any]:
    """Measure all in alternating turns; the median turn counts."""
    values = np.random.default_rng(0).random((1_000, N, K))
    makers: dict[str, Callable[[], PlayRound]] = {
        **{name: partial(make_bylot_round, policy) for name, policy in OWN_ROUTERS.items()},
        "river": make_river_round,
        "mabwiser": make_mabwiser_round,
    }
    players: dict[str, PlayRound] = {}
    for name, make in makers.items():
        with suppress(ModuleNotFoundError):
            players[name] = make()
    rates: dict[str, list[float]] = {name: [] for name in players}
    for one in players.values():
        measure_rate(one, values, 0.2)  # compile and fill caches
    for _ in range(turns):
        for name, one in players.items():
            rates[name].append(measure_rate(one, values, seconds / turns))
    medians = {name: float(np.median(rate)) for name, rate in rates.items()}
    return {
        "rounds_per_cpu_s": medians,
        "ratios": {
            name: medians["bylot"] / rate
            for name, rate in medians.items()
            if name not in OWN_ROUTERS
        },
        "absent": [name for name in makers if name not in players],
    }


def measure_rate(one: PlayRound, values: Any, seconds: float) -> float:
    """Rounds per CPU-second over about this much time."""
    done, start = 0, time.process_time()
    for matrix in cycle(values):
        one(matrix)
        done += 1
        if done % 50 == 0 and time.process_time() - start >= seconds:
            break
    return done / (time.process_time() - start)


def render(result: dict[str, Any]) -> str:
    rates, peers = result["rounds_per_cpu_s"], list(result["ratios"])
    rows = [
        ("decide + reward, 5 of 50", "rounds per CPU-second", *(f"/ {one}" for one in peers)),
        *(
            (
                f"{name} omd" if name == "bylot" else name,
                f"{rate:,.0f}",
                *(f"{rate / rates[one]:.1f}" if name in OWN_ROUTERS else "" for one in peers),
            )
            for name, rate in rates.items()
        ),
    ]
    lines = format_table(rows)
    lines += [f"{name} is not installed; {install_command('bench')}" for name in result["absent"]]
    return "\n".join(lines)
