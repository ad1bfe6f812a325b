"""Arena: where all policies are compared, with what its optima are computed on.

Rewards lie in [0, 1] in all of them, so that what is lost in one can be set beside another.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bylot import pools
from bylot.data import synthetic
from bylot.environments import PROMPT, Given, Late, Noisy
from bylot.environments.base import generator
from bylot.environments.outcomes import in_blocks
from bylot.experiments.hospital import Hospital
from bylot.experiments.world import World
from bylot.kernels.compile import Floats, Ints
from bylot.optima import Stack
from bylot.problem import Problem, at_most, share

VALUES = 1_500_000
"""That optima are computed on: all rounds of the paper's size, every so many-th of larger ones."""

LATE = Late(lag=200, lost=0.1)
DEALS = 5
"""Blocks of a play between which half of the experts are dealt the skills of others."""

CARDS = 3  # the stream of chance that says whose
SPECIALTIES, EACH = 12, 2
SMALL, LARGE = 50, 300


class Arena(NamedTuple):
    """Problems by level on the same rounds, and what their optima are computed on.

    contexts: of the rounds that optima are computed on, where they may know of changes
    """

    problems: dict[str, Problem]
    given: Given
    stack: Stack
    contexts: Ints | None = None
    late: Late = PROMPT


def of_crowd(world: World) -> Arena:
    """A pool of a crowd, at the levels that are played on such skills."""
    return arena(world.problems, world.given.values / world.dimensions)


def arena(
    problems: dict[str, Problem], values: Floats, contexts: Ints | None = None, late: Late = PROMPT
) -> Arena:
    """Rounds whose optima are computed on themselves."""
    step = -(-values.size // VALUES)
    few = None if contexts is None else contexts[::step]
    return Arena(problems, Given(values), Stack(values[::step]), few, late)


def hospital(ward: Hospital, rounds: int, seed: int) -> Arena:
    """Visits; the optima are those of the expected visit."""
    values, weights, _ = ward.visits.expected()
    visits = ward.visits.rounds(0, rounds, seed).values
    return Arena({"own": ward.problem}, Given(visits), Stack(values, weights=weights))


def crowd(rounds: int, seed: int) -> Arena:
    """The made-up workers of `bylot demo`."""
    return practised(SMALL, rounds, seed)


def late(rounds: int, seed: int) -> Arena:
    """The same, who are heard of late or never."""
    return practised(SMALL, rounds, seed)._replace(late=LATE)


def large(rounds: int, seed: int) -> Arena:
    """The same, many more of them."""
    return practised(LARGE, rounds, seed)


def practised(size: int, rounds: int, seed: int) -> Arena:
    """A built-in pool of some size."""
    problem = pools.crowd(size=size, seed=seed)
    return arena({"own": problem}, pools.skills(problem, seed=seed).rounds(0, rounds, seed).values)


def redealt(rounds: int, seed: int) -> Arena:
    """The same small pool, but in each further block half of the experts, drawn afresh, have their
    skills dealt out anew among them. The optima know the blocks, under one budget for all.
    """
    problem = pools.crowd(size=SMALL, seed=seed)
    steady = pools.skills(problem, seed=seed)
    rng, skills = generator(seed, 0, CARDS), steady.skills[0].copy()
    block = np.arange(rounds) * DEALS // rounds
    parts = []
    for number in range(DEALS):
        if number:
            half = rng.permutation(SMALL)[: SMALL // 2]
            skills[:, half] = skills[:, rng.permutation(half)]
        start, stop = np.searchsorted(block, (number, number + 1)).tolist()
        parts.append(Noisy(skills, worth=steady.worth).rounds(start, stop, seed).values)
    return arena({"own": problem}, np.concatenate(parts), block)


def specialists(rounds: int, seed: int) -> Arena:
    """40 experts, each good at 2 of 12 things and bad at the others, 4 asked: whether two of them
    add up depends on which two they are, which no model of single experts can say.
    """
    size, draws, rng = 40, 4, generator(seed, 0, CARDS)
    skills = rng.uniform(0.0, 0.1, (SPECIALTIES, size))
    for i in range(size):
        good = rng.permutation(SPECIALTIES)[:EACH]
        skills[good, i] = rng.uniform(0.6, 0.95, EACH)
    problem = stinted("specialist", skills.sum(axis=0) * rng.uniform(0.5, 1.5, size), draws)
    values = Noisy(skills, worth=1 / SPECIALTIES).rounds(0, rounds, seed).values
    return arena({"own": problem}, values)


def pass_fail(rounds: int, seed: int) -> Arena:
    """20 experts who pass a request or fail it, each by a chance of its own, 3 asked: the reward is
    1 if one of them passes and else 0. Most panels succeed, so that what is seen of one that is
    not the best looks much like what is seen of the best, and a learner may stay with it.
    """
    size, draws, rng = 20, 3, generator(seed, 0, CARDS)
    skills = rng.uniform(0.1, 0.85, size)
    problem = stinted("expert", skills * rng.uniform(0.5, 1.5, size), draws)
    passed = in_blocks(0, rounds, size, seed) < skills
    return arena({"own": problem}, passed[:, None, :].astype(np.float64))


def stinted(kind: str, usd: Floats, draws: int) -> Problem:
    """A budget of 0.7 of what M average experts cost, and at most 0.4 of the dearest quarter."""
    names, usd = [f"{kind}-{i:02d}" for i in range(usd.size)], usd / usd.max()
    dear = share("dear", [names[i] for i in np.argsort(usd)[-usd.size // 4 :]])
    limits = [at_most("usd", float(0.7 * draws * usd.mean())), at_most(dear, 0.4)]
    return Problem(names, {"usd": usd}, limits, draws=draws)


def made_up(smoothing: int, rounds: int, seed: int) -> Arena:
    """A pool of the made-up crowd that stands in for TREC's."""
    return of_crowd(World(synthetic(), "stochastic", 3, seed, rounds, smoothing))


BUILT_IN: dict[str, tuple[int, Callable[[int, int], Arena]]] = {
    "crowd": (3, crowd),
    "specialists": (SPECIALTIES, specialists),
    "pass-fail": (1, pass_fail),
    "re-dealt": (3, redealt),
    "late": (3, late),
    "K=300": (3, large),
}
"""The dimensions of worlds that need no data, and how they are made of rounds and seed."""

SAME_POOL = dict.fromkeys(("crowd", "re-dealt", "late"), "crowd")
"""Worlds whose pools, and many of whose rounds, are the same under the same seed."""
