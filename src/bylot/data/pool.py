"""The pool of a seed: who was drawn, what they can do and what they cost (paper, section 6.1).

It works on arrays; the crowd they come from is another noun.
"""

from dataclasses import dataclass

import numpy as np

from bylot.kernels.compile import Bools, Floats, Ints

STREAM = 2 << 32  # of chance: apart from those of policies (below 1 << 32) and of environments


@dataclass(frozen=True, eq=False)
class Pool:
    """Workers in the order of their ids; column i of everything belongs to workers[i]."""

    workers: tuple[str, ...]
    skills: Floats  # (N, K): accuracy in each group of tasks; overall accuracy where there is none
    workload: Floats  # (K,): annotations, as a share of the most in the pool
    expert: Floats  # (K,): 1 for the most accurate, else 0
    accuracy: Floats  # (K,): over all annotations
    imputed: int  # entries of skills without an annotation of their own


def draw_lots(seed: int, among: Ints, size: int) -> Ints:
    """So many of these without replacement, each set as likely as any other, in their order.

    Everybody gets a uniform of the seed's own; the smallest win.
    """
    rng = np.random.Generator(np.random.Philox(key=seed + (STREAM << 64)))
    winners = np.argsort(rng.random(len(among)), kind="stable")[:size]
    return among[np.sort(winners)]


def accuracies(
    group: Ints, place: Ints, correct: Bools, spare: Floats, smoothing: int = 0
) -> tuple[Floats, int]:
    """The share of correct annotations in each cell (group, place), and how many cells had none.

    spare has the shape of the result, and stands in for cells without an annotation. With smoothing
    s > 0 a cell of n annotations, k of them correct, has (k + s m) / (n + s) instead, where m is
    the mean of its group without smoothing: s annotations by an average worker.
    """
    cell = group * spare.shape[1] + place
    count = np.bincount(cell, minlength=spare.size).reshape(spare.shape)
    right = np.bincount(cell, correct, spare.size).reshape(spare.shape)
    empty = count == 0
    share = np.where(empty, spare, right / np.maximum(count, 1))
    if smoothing:
        mean = share.mean(axis=1, keepdims=True)
        share = (right + smoothing * mean) / (count + smoothing)
    return share, int(empty.sum())


def most_accurate(accuracy: Floats, experts: int) -> Floats:
    """1 for so many of the highest accuracies, else 0; of equals, those that come first.

    >>> most_accurate(np.array([0.5, 0.9, 0.5, 0.1]), 2)
    array([1., 1., 0., 0.])
    """
    chosen = np.zeros(len(accuracy))
    chosen[np.argsort(-accuracy, kind="stable")[:experts]] = 1.0
    return chosen
