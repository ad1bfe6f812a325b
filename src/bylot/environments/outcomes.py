"""A world of real outcomes: a table of questions and experts, and one question a dimension a visit.

How the table was come by, and what its rows and columns are called, is left to the data.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bylot.environments.base import Rounds, generator
from bylot.environments.noisy import BLOCK
from bylot.errors import ValuesError
from bylot.kernels.compile import Floats, Ints


class Expected(NamedTuple):
    """Rounds of one dimension each, and the weight each has in the expected reward of a visit."""

    values: Floats  # (Q, 1, K)
    weights: Floats  # (Q,)


class Outcomes:
    """V^(t)[n, i] = worth table[q_tn, i], with q_tn uniform among the questions of dimension n.

    table:     (Q, K), what each question gained from each expert, 0 or more; NaN if the expert did
               not answer, which counts as 0
    dimension: (Q,), the dimension of each question, counted from 0
    worth:     1/N if it is not given: then outcomes in [0, 1] make rewards in [0, 1]

    The questions of a visit are drawn independently of each other and of all other visits.
    """

    contexts = 1

    def __init__(
        self, table: npt.ArrayLike, dimension: npt.ArrayLike, worth: float | None = None
    ) -> None:
        self.table = checked(table)
        self.dimension = counted(dimension, len(self.table))
        self.counts = np.bincount(self.dimension)  # questions of each dimension
        self.worth = 1.0 / len(self.counts) if worth is None else float(worth)
        if not 0 < self.worth < np.inf:
            raise ValuesError(
                f"worth={worth} given; what an outcome of 1 is worth must be positive"
            )
        self.values = self.worth * self.table
        self.order = np.argsort(self.dimension, kind="stable")  # questions, dimension by dimension
        self.firsts = np.cumsum(self.counts) - self.counts  # where in that order each one begins

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return len(self.counts), self.table.shape[1]

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop."""
        values = self.values.take(self.drawn(start, stop, seed), axis=0)
        return Rounds(values, np.zeros(stop - start, np.int64))

    def drawn(self, start: int, stop: int, seed: int) -> Ints:
        """The question of each dimension in the rounds start <= t < stop: rows of the table."""
        first, last = start // BLOCK, -(-stop // BLOCK)
        uniforms = np.empty((last - first, BLOCK, len(self.counts)))
        for number, block in enumerate(uniforms, first):
            generator(seed, number).random(out=block)
        skip = start - first * BLOCK
        mine = uniforms.reshape(-1, len(self.counts))[skip : skip + stop - start]
        rows: Ints = self.order[self.firsts + (mine * self.counts).astype(np.int64)]
        return rows

    def expected(self) -> Expected:
        """What a visit is worth on average, without drawing any: for every set A of experts

        E[sum_n max_{i in A} V[n, i]] = sum_q weight_q max_{i in A} table[q, i],

        weight_q = worth / (questions of q's dimension). With `Stack(values, weights=weights)` in
        place of the values of many rounds, `optimum` gives the best policy in expectation.

        >>> Outcomes([[1, 0], [0, 1], [1, 1]], [0, 0, 1]).expected().weights
        array([0.25, 0.25, 0.5 ])
        """
        return Expected(self.table[:, None].copy(), self.worth / self.counts[self.dimension])


def checked(table: npt.ArrayLike) -> Floats:
    """A table of finite numbers of 0 or more, its blanks filled with 0."""
    given = np.array(table, dtype=np.float64, order="C")  # a copy: later changes do not reach it
    if given.ndim != 2 or 0 in given.shape:
        raise ValuesError(f"a table of shape {given.shape} given; wanted questions x experts")
    given[np.isnan(given)] = 0.0
    bad = ~(np.isfinite(given) & (given >= 0))
    if bad.any():
        q, i = (int(n) for n in np.argwhere(bad)[0])
        raise ValuesError(
            f"outcome {given[q, i]} at question {q}, expert {i}: outcomes must be finite and at "
            "least 0, or NaN where there is none; shift them if they can be negative"
        )
    return given


def counted(dimension: npt.ArrayLike, questions: int) -> Ints:
    """The number of a dimension for each question, no number left out."""
    given = np.asarray(dimension)
    if given.shape != (questions,) or given.dtype.kind not in "iu":
        raise ValuesError(
            f"dimension of shape {given.shape} and type {given.dtype} given; wanted one number "
            f"for each of the {questions} questions, counted from 0"
        )
    used = np.unique(given)
    odd = np.flatnonzero(used != np.arange(len(used)))
    if odd.size:
        raise ValuesError(
            f"dimension {used[odd[0]]} given, but no question is of dimension {odd[0]}; "
            "number dimensions 0, 1, 2, ... and give each at least one question"
        )
    return given.astype(np.int64)
