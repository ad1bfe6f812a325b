"""Logs of three experts with a fixed distribution, and a reward that is not linear in the set."""

import math

import numpy as np

from bylot import Problem
from bylot.evaluate import LogEntry

TRIO = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=2)


def compute_reward(members: tuple[int, ...], t: int) -> float:
    """A reward that depends on the set and the round, not linearly."""
    return math.sin(1 + sum(3**i for i in members) + t) ** 2


def log_iid_draws(q: list[float], rounds: int, *, known: bool = True) -> list[LogEntry]:
    """Rounds of two draws from a fixed q."""
    rng, probabilities = np.random.default_rng(0), np.array(q)
    entries = []
    for t in range(rounds):
        draws = rng.choice(3, 2, p=probabilities)
        names, members = tuple(TRIO.experts[i] for i in draws), tuple(sorted(set(draws.tolist())))
        drawn_probabilities = tuple(probabilities[draws].tolist()) if known else ()
        names = names if known else tuple(dict.fromkeys(names))
        entries.append(
            LogEntry(
                f"d{t}",
                t,
                names,
                compute_reward(members, 0),
                draw_probabilities=drawn_probabilities,
            )
        )
    return entries
