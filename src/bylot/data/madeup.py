"""A made-up crowd to play with where TREC cannot be had; it has its shape, and says what it is."""

import numpy as np

from bylot.data.crowd import Annotation, Crowd, assemble
from bylot.kernels.compile import Floats, Ints

WORKERS, TASKS, RELIABLE = 677, 2275, 270
FEW = (154, 137, 62, 54)  # TREC's workers with 1, 2, 3 and 4 annotations
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
LOADS = (5.0, 5.5, 7.5, 14.0, 51.5, 97.0, 168.0, 406.0, 968.0)  # TREC's quantiles at these shares
CROWDING = (41, 60, 105, 371, 902, 86, 166, 250, 225, 69)  # TREC's tasks with 1 to 10 annotations
STREAM = 3 << 32  # of chance: apart from those of policies, environments and pools


def synthetic(seed: int = 0) -> Crowd:
    """A crowd nobody ever was, with the marginals of TREC's.

    677 workers, 270 of them with at least 5 annotations, 2,275 tasks, about 13,100 annotations.
    A reliable worker's load follows TREC's quantiles (5, 7, 13.5, 51, 967 at 0, 1/4, 1/2, 3/4, 1).
    A worker with n annotations is right with chance p ~ Beta(19 m, 19 (1 - m)),
    m = 0.78 - 0.036 log n: the busy are less accurate, and of the reliable about 7% never err.
    """
    rng = np.random.Generator(np.random.Philox(key=seed + (STREAM << 64)))
    load = loads(rng)
    m = 0.78 - 0.036 * np.log(load)
    chance = rng.beta(19 * m, 19 * (1 - m))
    chosen = assign(rng, load)
    names = rng.permutation(WORKERS) + 1  # a name tells nothing about its worker
    return assemble(
        "synthetic",
        (
            Annotation(str(task + 1), str(names[i]), right)
            for i, tasks in enumerate(chosen)
            for task, right in zip(tasks, rng.random(len(tasks)) < chance[i], strict=True)
        ),
        synthetic=True,
    )


def loads(rng: np.random.Generator) -> Ints:
    """How many tasks each worker takes on: one quantile from each of 270 equal parts, then the few.

    Between TREC's quantiles the logarithm of the load is straight.
    """
    share = (np.arange(RELIABLE) + rng.random(RELIABLE)) / RELIABLE
    many = np.floor(np.exp(np.interp(share, SHARES, np.log(LOADS)))).astype(np.int64)
    few = np.repeat(np.arange(1, 5), FEW)
    return np.concatenate([many, few])


def assign(rng: np.random.Generator, load: Ints) -> list[Ints]:
    """Different tasks for each worker, so that no task is left out and some are more popular.

    The next worker takes the tasks that lack most of their crowd; those without anybody first.
    """
    size: Floats = rng.permutation(np.repeat(np.arange(1.0, 11.0), CROWDING))
    taken = np.zeros(TASKS)
    chosen = [np.empty(0, np.int64)] * len(load)
    for i in rng.permutation(len(load)):
        full = (taken + rng.random(TASKS)) / size
        chosen[i] = np.argsort(np.where(taken == 0, full - TASKS, full))[: load[i]]
        taken[chosen[i]] += 1
    return chosen
