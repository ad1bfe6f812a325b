"""How many rounds routers play per CPU-second, next to river's and MABWiser's UCB.

Everyone chooses 5 of 50 experts, sees one reward for the panel and learns from it, in the same
process, in turns. The peers learn one arm at a time, so they credit the panel's reward to each
member; neither knows limits.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bylot.extras import install
from bylot.kernels.summax import sum_max
from bylot.pools import crowd
from bylot.router import Router
from bylot.text import table

SIZE, DRAWS, DIMENSIONS = 50, 5, 3
OURS = {"bylot": "omd", "bylot distinct": "distinct", "bylot tangent": "tangent"}
Round = Callable[[Any], None]  # plays one round on one value matrix


def bylot(policy: str) -> Round:
    """decide + reward of our router under three limits, from Python."""
    router = Router(crowd(SIZE, DRAWS), policy, rewards=(0.0, DIMENSIONS))
    place = {name: i for i, name in enumerate(router.problem.experts)}

    def one(values: Any) -> None:
        decision = router.decide()
        panel = np.array([place[name] for name in decision.subset])
        router.reward(decision.id, sum_max(values, panel))

    return one


def river() -> Round:
    """Five pulls without repetition, five updates."""
    policy = import_module("river.bandit").UCB(delta=1, seed=0)
    arms = list(range(SIZE))

    def one(values: Any) -> None:
        left, panel = arms.copy(), []
        for _ in range(DRAWS):
            arm = policy.pull(left)
            left.remove(arm)
            panel.append(arm)
        reward = sum_max(values, np.array(panel)) / DIMENSIONS
        for arm in panel:
            policy.update(arm, reward)

    return one


def mabwiser() -> Round:
    """The five largest upper confidence bounds, one partial fit."""
    mab = import_module("mabwiser.mab")
    policy = mab.MAB(list(range(SIZE)), mab.LearningPolicy.UCB1(alpha=1.0))
    policy.fit(list(range(SIZE)), [0.5] * SIZE)

    def one(values: Any) -> None:
        bounds = policy.predict_expectations()
        panel = sorted(bounds, key=bounds.__getitem__)[-DRAWS:]
        reward = sum_max(values, np.array(panel)) / DIMENSIONS
        policy.partial_fit(panel, [reward] * DRAWS)

    return one


def run(seconds: float = 2.0, turns: int = 5) -> dict[str, Any]:
    """Rounds per CPU-second of each, the median over turns that alternate between them."""
    values = np.random.default_rng(0).random((1_000, DIMENSIONS, SIZE))
    ours = {name: partial(bylot, policy) for name, policy in OURS.items()}
    players, absent = present({**ours, "river": river, "mabwiser": mabwiser})
    rates: dict[str, list[float]] = {name: [] for name in players}
    for one in players.values():
        rate(one, values, 0.2)  # compile and fill caches
    for _ in range(turns):
        for name, one in players.items():
            rates[name].append(rate(one, values, seconds / turns))
    medians = {name: float(np.median(rate)) for name, rate in rates.items()}
    ratios = {name: medians["bylot"] / medians[name] for name in medians if name not in OURS}
    return {"rounds_per_cpu_s": medians, "ratios": ratios, "absent": absent}


def present(makers: dict[str, Callable[[], Round]]) -> tuple[dict[str, Round], list[str]]:
    """The players that are installed, and the names of those that are not."""
    players: dict[str, Round] = {}
    absent = []
    for name, make in makers.items():
        try:
            players[name] = make()
        except ModuleNotFoundError:
            absent.append(name)
    return players, absent


def rate(one: Round, values: Any, seconds: float) -> float:
    """Rounds per CPU-second over about this much time."""
    done, start = 0, time.process_time()
    for matrix in cycle(values):
        one(matrix)
        done += 1
        if done % 50 == 0 and time.process_time() - start >= seconds:
            break
    return done / (time.process_time() - start)


def cycle(values: Any) -> Iterator[Any]:
    """The matrices, over and over."""
    while True:
        yield from values


def render(result: dict[str, Any]) -> str:
    """The result as a table; ours are also told as multiples of the peers'."""
    rates, peers = result["rounds_per_cpu_s"], list(result["ratios"])
    rows = [("decide + reward, 5 of 50", "rounds per CPU-second", *(f"/ {one}" for one in peers))]
    for name, rate in rates.items():
        multiples = [f"{rate / rates[one]:.1f}" if name in OURS else "" for one in peers]
        rows.append((f"{name} omd" if name == "bylot" else name, f"{rate:,.0f}", *multiples))
    lines = table(rows)
    lines += [f"{name} is not installed: {install('bench')}" for name in result["absent"]]
    return "\n".join(lines)
