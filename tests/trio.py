"""Three experts, a reward that no sum over members explains, and logs of fixed odds."""

import math

import numpy as np

from bylot import Problem
from bylot.evaluate import LogEntry

TRIO = Problem(["a", "b", "c"], {"usd": [1.0, 2.0, 4.0]}, draws=2)


def reward(members: tuple[int, ...], t: int) -> float:
    """A reward that depends on the set and the round, not linearly."""
    return math.sin(1 + sum(3**i for i in members) + t) ** 2


def fixed(q: list[float], rounds: int, *, told: bool = True) -> list[LogEntry]:
    """Rounds of two draws from a fixed q."""
    rng, odds = np.random.default_rng(0), np.array(q)
    written = []
    for t in range(rounds):
        team = rng.choice(3, 2, p=odds)
        names, members = tuple(TRIO.experts[i] for i in team), tuple(sorted(set(team.tolist())))
        mine = tuple(odds[team].tolist()) if told else ()
        names = names if told else tuple(dict.fromkeys(names))
        written.append(LogEntry(f"d{t}", t, names, reward(members, 0), draw_probabilities=mine))
    return written
