"""A world of real outcomes: a table of questions and experts, from which requests are drawn.

How the table was come by, and what its rows and columns are called, is left to the data.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bylot.environments.base import Rounds, make_block_generator
from bylot.environments.synthetic import BLOCK_ROUNDS
from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints

CONTEXT_STREAM = 1  # stream of chance that says which context comes


class WeightedRounds(NamedTuple):
    """Rounds of one dimension each, the weight each has in the expected reward of a request, and
    the context it belongs to. The weights of a context sum to the chance that it comes.
    """

    values: Floats  # (Q, 1, K)
    weights: Floats  # (Q,)
    contexts: Ints  # (Q,)


class Outcomes:
    """V^(t)[n, i] = worth table[q_tn, i], with q_tn uniform among the questions of dimension n that
    belong to the context of round t.

    table:     (Q, K), what each question gained from each expert, 0 or more; NaN if the expert did
               not answer, which counts as 0
    dimension: (Q,), the dimension of each question, counted from 0: a request is a visit that asks
               one question of each. If it is not given, a request is one question of the table
    worth:     if it is not given, 1/N, N the dimensions that the context has questions of: then
               outcomes in [0, 1] make rewards in [0, 1]
    contexts:  (Q,), the context each question belongs to, counted from 0; one for all if not given
    chances:   (X,), in proportion to which contexts come; if not given, to the questions each has

    The questions of a request are drawn independently of each other and of all other requests.
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
        self.table = check_outcome_table(table)
        none = np.zeros(len(self.table), np.int64)
        self.dimension = check_group_numbers(
            none if dimension is None else dimension, len(none), "dimension"
        )
        self.context = check_group_numbers(
            none if contexts is None else contexts, len(none), "context"
        )
        self.contexts, N = int(self.context.max()) + 1, int(self.dimension.max()) + 1
        if worth is not None and not 0 < worth < np.inf:
            raise ValuesError(
                f"worth={worth} given; what an outcome of 1 is worth must be positive"
            )
        cell = self.context * N + self.dimension
        self.counts = np.bincount(cell, minlength=self.contexts * N).reshape(-1, N)
        self.chances = normalise_context_weights(
            self.counts.sum(axis=1) if chances is None else chances, self.contexts
        )
        asked = (self.counts > 0).sum(axis=1)  # dimensions of each context
        self.most = np.ones(self.contexts) if worth is None else worth * asked  # all outcomes 1
        self.asked = asked
        worths = (self.most / asked)[self.context]
        # One row more, the last: nothing, for a dimension that a context has no questions of.
        self.values = np.vstack([worths[:, None] * self.table, np.zeros(self.table.shape[1])])
        self.order = np.argsort(cell, kind="stable")  # questions, cell by cell
        self.firsts = (np.cumsum(self.counts) - self.counts.ravel()).reshape(-1, N)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.counts.shape[1], self.table.shape[1]

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop."""
        contexts = self.came(start, stop, seed)
        return Rounds(self.values.take(self.drawn(start, stop, seed), axis=0), contexts)

    def came(self, start: int, stop: int, seed: int) -> Ints:
        """The context of each of the rounds start <= t < stop."""
        if self.contexts == 1:
            return np.zeros(stop - start, np.int64)
        uniforms = draw_block_uniforms(start, stop, 1, seed, CONTEXT_STREAM)[:, 0]
        ends = np.cumsum(self.chances)[:-1]
        return np.searchsorted(ends, uniforms, side="right").astype(np.int64)

    def drawn(self, start: int, stop: int, seed: int) -> Ints:
        """The question of each dimension in the rounds start <= t < stop: rows of the table; -1
        where the context has none.
        """
        contexts, uniforms = (
            self.came(start, stop, seed),
            draw_block_uniforms(start, stop, *self.shape[:1], seed),
        )
        counts = self.counts[contexts]
        places = np.minimum(self.firsts[contexts], len(self.order) - 1)
        rows = self.order[places + (uniforms * counts).astype(np.int64)]
        return np.where(counts > 0, rows, -1)

    def expected(self) -> WeightedRounds:
        """What a request is worth on average, without drawing any: for every set A of experts

        E[sum_n max_{i in A} V[n, i]] = sum_q weight_q max_{i in A} values[q, i],

        weight_q = chance of q's context / (its dimensions) / (questions of q's dimension in it).
        With `Stack(values, weights=weights)` in place of the values of many rounds, `optimum` gives
        the best policy in expectation, also with `contexts=contexts`.

        >>> Outcomes([[1, 0], [0, 1], [1, 1]], [0, 0, 1]).expected().weights
        array([0.25, 0.25, 0.5 ])
        """
        x = self.context
        weights = (self.chances / self.asked)[x] / self.counts[x, self.dimension]
        return WeightedRounds((self.most[x, None] * self.table)[:, None], weights, x.copy())


def draw_block_uniforms(start: int, stop: int, width: int, seed: int, stream: int = 0) -> Floats:
    """(stop - start, width) uniforms, those of each round always the same."""
    first, last = start // BLOCK_ROUNDS, -(-stop // BLOCK_ROUNDS)
    uniforms = np.empty((last - first, BLOCK_ROUNDS, width))
    for number, block in enumerate(uniforms, first):
        make_block_generator(seed, number, stream).random(out=block)
    skip = start - first * BLOCK_ROUNDS
    return uniforms.reshape(-1, width)[skip : skip + stop - start]


def check_outcome_table(table: npt.ArrayLike) -> Floats:
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


def check_group_numbers(numbers: npt.ArrayLike, questions: int, what: str) -> Ints:
    """The number of a dimension or context for each question, no number left out."""
    given = np.asarray(numbers)
    if given.shape != (questions,) or given.dtype.kind not in "iu":
        raise ValuesError(
            f"{what} of shape {given.shape} and type {given.dtype} given; wanted one number "
            f"for each of the {questions} questions, counted from 0"
        )
    used = np.unique(given)
    odd = np.flatnonzero(used != np.arange(len(used)))
    if odd.size:
        raise ValuesError(
            f"{what} {used[odd[0]]} given, but no question is of {what} {odd[0]}; "
            f"number {what}s 0, 1, 2, ... and give each at least one question"
        )
    return given.astype(np.int64)


def normalise_context_weights(chances: npt.ArrayLike, contexts: int) -> Floats:
    """Positive numbers, one for each context, scaled to sum to 1."""
    given = np.asarray(chances, dtype=np.float64)
    if given.shape != (contexts,) or not ((given > 0).all() and np.isfinite(given).all()):
        raise ValuesError(
            f"chances {given} given; wanted a positive number for each of the {contexts} contexts"
        )
    part = given / given.max()  # first, so that no sum can overflow
    scaled: Floats = part / part.sum()
    return scaled
