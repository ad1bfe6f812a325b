"""An environment of recorded outcomes: requests are drawn from a table of questions x experts.

Reading the table, and the names of its rows and columns, are left to `outcome_tables`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bylot.environments.base import (
    BLOCK_ROUNDS,
    Rounds,
    check_numbers,
    check_positive_value,
    check_value_array,
    make_block_generator,
)
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints

CONTEXT_STREAM = 1


class WeightedRounds(NamedTuple):
    """Rounds of one dimension each, their weights in the expected reward, and their contexts."""

    values: Floats  # (Q, 1, K)
    weights: Floats  # (Q,), those of a context sum to its probability
    contexts: Ints  # (Q,)


class Outcomes:
    """V^(t)[n, i] = worth table[q_tn, i], with q_tn uniform among the questions of dimension n.

    The questions of a request are drawn independently, among those of the context of round t.

    Parameters
    ----------
    table : array_like, shape (Q, K)
        The outcome of each expert on each question, 0 or more; NaN (no answer) counts as 0.
    dimension : array_like, shape (Q,), optional
        The dimension of each question, counted from 0: a request asks one question of each. By
        default a request is one question of the table.
    worth : float, optional
        The value of an outcome of 1. By default 1/N, N the dimensions that the context has
        questions of: outcomes in [0, 1] then give rewards in [0, 1].
    contexts : array_like, shape (Q,), optional
        The context of each question, counted from 0.
    chances : array_like, shape (X,), optional
        Weights of the contexts; by default the number of their questions.

    Raises
    ------
    ValuesError
        If a part is invalid.
    """

    def __init__(
        self,
        table: npt.ArrayLike,
        dimension: npt.ArrayLike | None = None,
        worth: float | None = None,
        *,
        contexts: npt.ArrayLike | None = None,
        chances: npt.ArrayLike | None = None,
    ) -> None:
        self.table = check_value_array(table, ("question", "expert"), gaps=True)
        self.dimension = check_group_numbers(dimension, len(self.table), "dimension")
        self.context = check_group_numbers(contexts, len(self.table), "context")
        self.contexts, N = int(self.context.max()) + 1, int(self.dimension.max()) + 1
        cell = self.context * N + self.dimension
        self.counts = np.bincount(cell, minlength=self.contexts * N).reshape(-1, N)
        self.chances = normalise_context_weights(
            self.counts.sum(axis=1) if chances is None else chances, self.contexts
        )
        self.asked = (self.counts > 0).sum(axis=1)  # dimensions of each context
        self.most = np.ones(self.contexts)  # the reward of a request with all outcomes 1
        if worth is not None:
            self.most = check_positive_value("worth", worth) * self.asked
        worths = (self.most / self.asked)[self.context]
        # The last row is 0, for a dimension that a context has no questions of.
        self.values = np.vstack([worths[:, None] * self.table, np.zeros(self.table.shape[1])])
        self.order = np.argsort(cell, kind="stable")  # questions, cell by cell
        self.firsts = (np.cumsum(self.counts) - self.counts.ravel()).reshape(-1, N)
        self.shape = N, self.table.shape[1]

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        contexts = self.draw_contexts(start, stop, seed)
        return Rounds(self.values.take(self.draw_questions(start, stop, seed), axis=0), contexts)

    def draw_contexts(self, start: int, stop: int, seed: int) -> Ints:
        """Draw the context of each of the rounds start <= t < stop."""
        if self.contexts == 1:
            return np.zeros(stop - start, np.int64)
        uniforms = draw_block_uniforms(start, stop, 1, seed, CONTEXT_STREAM)[:, 0]
        ends = np.cumsum(self.chances)[:-1]
        return np.searchsorted(ends, uniforms, side="right").astype(np.int64)

    def draw_questions(self, start: int, stop: int, seed: int) -> Ints:
        """Draw rows of the table by round and dimension; -1 where the context has no question."""
        contexts = self.draw_contexts(start, stop, seed)
        uniforms = draw_block_uniforms(start, stop, self.shape[0], seed)
        counts = self.counts[contexts]
        places = np.minimum(self.firsts[contexts], len(self.order) - 1)
        return np.where(counts > 0, self.order[places + (uniforms * counts).astype(np.int64)], -1)

    def expected(self) -> WeightedRounds:
        """Return the expected reward of a request as weighted rounds: for every set A of experts

        E[sum_n max_{i in A} V[n, i]] = sum_q weight_q max_{i in A} values[q, i],

        weight_q = P(q's context) / (its dimensions) / (questions of q's dimension in it).
        With `ValueStack(values, weights=weights)` in place of the values of many rounds, `optimum`
        gives the best policy in expectation, also with `contexts=contexts`.

        >>> Outcomes([[1, 0], [0, 1], [1, 1]], [0, 0, 1]).expected().weights
        array([0.25, 0.25, 0.5 ])
        """
        x = self.context
        weights = (self.chances / self.asked)[x] / self.counts[x, self.dimension]
        return WeightedRounds((self.most[x, None] * self.table)[:, None], weights, x.copy())


def draw_block_uniforms(start: int, stop: int, width: int, seed: int, stream: int = 0) -> Floats:
    """Draw (stop - start, width) uniforms, a pure function of (seed, stream, round)."""
    first, last = start // BLOCK_ROUNDS, -(-stop // BLOCK_ROUNDS)
    uniforms = np.empty((last - first, BLOCK_ROUNDS, width))
    for number, block in enumerate(uniforms, first):
        make_block_generator(seed, number, stream).random(out=block)
    skip = start - first * BLOCK_ROUNDS
    return uniforms.reshape(-1, width)[skip : skip + stop - start]


def check_group_numbers(given: npt.ArrayLike | None, questions: int, what: str) -> Ints:
    """Require the number of a dimension or context for each question, without gaps; or all 0."""
    numbers = check_numbers(given, f"{what}s", questions, "questions")
    used = np.unique(numbers)
    odd = np.flatnonzero(used != np.arange(len(used)))
    if odd.size:
        raise ValuesError(
            f"{what} {used[odd[0]]} has questions, but {what} {odd[0]} has none",
            remedy=f"number {what}s 0, 1, 2, ... and give each at least one question",
        )
    return numbers


def normalise_context_weights(chances: npt.ArrayLike, contexts: int) -> Floats:
    """Scale positive numbers, one for each context, to sum to 1."""
    given = np.asarray(chances, dtype=np.float64)
    if given.shape != (contexts,) or not ((given > 0).all() and np.isfinite(given).all()):
        raise ValuesError(
            "chances",
            got=given.tolist(),
            expected=f"a positive number for each of the {contexts} contexts",
        )
    part = given / given.max()  # first, so that no sum can overflow
    return np.asarray(part / part.sum())
