"""A simple model of the reward: what each member adds, in all contexts and in each of them.

r(A) = b_x + sum_{i in A} beta_xi by ridge regression. It is linear in who is a member, so that its
expectation under any law needs no more than the chances to be one, exactly; a better model would
make intervals a little shorter, a worse one never makes an estimate wrong.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr

from bylot.kernels.compile import Floats, Ints

RIDGE = 1.0  # as if each expert had been seen in one round more, adding nothing
EARLIEST = 64  # the first of this many parts of a log is left to no model


class Lines(NamedTuple):
    """A fitted line for all, and what it lacks in each context."""

    level: float
    slope: Floats  # (K,)
    own: dict[int, tuple[float, Floats]]

    def at(self, rows: csr_array | Floats, contexts: Ints) -> Floats:
        """The model's reward of rows of memberships, or of chances to be a member."""
        told = np.asarray(self.level + rows @ self.slope, np.float64)
        for x in np.unique(contexts).tolist():
            if x in self.own:
                level, slope = self.own[x]
                here = np.flatnonzero(contexts == x)
                told[here] += level + rows[here] @ slope
        return told


def ridge(rows: csr_array, rewards: Floats) -> tuple[float, Floats]:
    """The level and slope of least |rewards - level - rows slope|^2 + RIDGE |slope|^2, the level
    being that at which the mean row has the mean reward.
    """
    middle, mean = np.asarray(rows.mean(axis=0)).ravel(), float(rewards.mean())
    slope = lsqr(rows, rewards - mean, damp=RIDGE**0.5)[0]
    return mean - float(middle @ slope), slope


def fit(rows: csr_array, contexts: Ints, rewards: Floats) -> Lines:
    """One line for all rounds, then one for what it lacks in each context, if there are several."""
    level, slope = ridge(rows, rewards)
    shared = Lines(level, slope, {})
    different = np.unique(contexts)
    if different.size > 1:
        left = rewards - shared.at(rows, contexts)
        for x in different.tolist():
            here = np.flatnonzero(contexts == x)
            shared.own[x] = ridge(rows[here], left[here])
    return shared


def edges(n: int) -> list[int]:
    """Where a log of n rounds is cut: halves of halves, so that each part is as long as all before.

    >>> edges(100)
    [0, 1, 3, 6, 12, 25, 50, 100]
    """
    cuts = [n]
    while cuts[-1] > max(1, n // EARLIEST):
        cuts.append(cuts[-1] // 2)
    return [0, *reversed(cuts)]


def ahead(
    rows: csr_array, chances: Floats, at: Ints, contexts: Ints, rewards: Floats, start: float
) -> tuple[Floats, Floats]:
    """For every round the model's reward of the panel, and its expectation under the target.

    Each part of the log is told by a model of the parts before it only, the first by a constant
    `start`. A model of other parts at random (the usual cross-fitting) would know rounds whose odds
    a learning policy chose after seeing this one's reward, and the estimate would be biased.

    rows: (n, K) memberships; chances: (P, K) the target's chances to be a member by place; at: (n,)
    the place of each round.
    """
    told, expected = np.full(rewards.size, start), np.full(rewards.size, start)
    cuts = edges(rewards.size)
    for begin, end in pairwise(cuts[1:]):
        lines = fit(rows[:begin], contexts[:begin], rewards[:begin])
        told[begin:end] = lines.at(rows[begin:end], contexts[begin:end])
        places, back = np.unique(
            np.stack([at, contexts])[:, begin:end], axis=1, return_inverse=True
        )
        expected[begin:end] = lines.at(chances[places[0]], places[1])[back]
    return told, expected
