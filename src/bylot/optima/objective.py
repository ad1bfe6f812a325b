"""The objective: expected reward of a policy on value matrices, with slope and curvature.

Owns checking and sorting of values; which policies are allowed is left to the polytopes.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.numerics.sum_max import SortOrder, reward_and_slope, reward_hessian, sort_experts
from bylot.problem import Problem

RELATIVE_GAP = 1e-9  # the target gap, relative to the mean reward of asking everyone
COARSE_ROUNDS = 4_000  # with more, maximise on a part of them first and start from there

ContextLabels = NDArray[np.int64] | NDArray[np.str_]


class ValueStack:
    """T value matrices (T, N, K) with their rows sorted once, and a weight for each round.

    Sorting costs as much as some evaluations: make one stack and pass it wherever `values` go.

    Parameters
    ----------
    values
        Array of shape (T, N, K) or (N, K), finite and not negative.
    order
        Sorting of the rows, if known; the values are then not checked again.
    weights
        Weight of each round, 1/T by default.

    Examples
    --------
    >>> stack = ValueStack([[0.0, 1.0]])
    >>> stack.rounds, stack.value(np.array([0.5, 0.5]), 2)
    (1, 0.75)
    """

    def __init__(
        self, values: ArrayLike, order: SortOrder | None = None, weights: Floats | None = None
    ) -> None:
        given = np.asarray(values, dtype=np.float64)
        self.values = check_values(given) if order is None else given
        self.order = sort_experts(self.values) if order is None else order
        self.weights = np.full(self.rounds, 1.0 / self.rounds) if weights is None else weights

    @property
    def rounds(self) -> int:
        """The number of rounds T."""
        return len(self.values)

    @property
    def size(self) -> int:
        """The number of experts K."""
        return int(self.values.shape[2])

    def select(self, rounds: Ints) -> "ValueStack":
        """Some of the rounds, each with its own weight."""
        return ValueStack(self.values[rounds], self.order[rounds], self.weights[rounds])

    def thin(self, step: int) -> "ValueStack":
        """Every step-th round, with the same total weight."""
        few = np.arange(0, self.rounds, step)
        weights = self.weights[few] * (self.weights.sum() / self.weights[few].sum())
        return ValueStack(self.values[few], self.order[few], weights)

    @cached_property
    def reward_of_all(self) -> float:
        """sum_t weight_t r_t(all experts), which no policy exceeds."""
        best = np.take_along_axis(self.values, self.order[:, :, :1], axis=2)
        return float(self.weights @ best.sum(axis=(1, 2)))

    def value(self, q: Floats, M: int) -> float:
        """sum_t weight_t Phi^{r_t}(q)."""
        return self.slope(q, M)[0]

    def slope(self, q: Floats, M: int) -> tuple[float, Floats]:
        """The value at q and its slope, see `numerics.sum_max`."""
        return reward_and_slope(q, self.values, self.order, M, self.weights)

    def curvature(self, q: Floats, M: int) -> Floats:
        """The Hessian of the value."""
        return reward_hessian(q, self.values, self.order, M, self.weights)


def check_values(array: Floats) -> Floats:
    """Values as (T, N, K), finite and not negative."""
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValuesError(
            f"values have shape {array.shape}",
            remedy="give one matrix (N, K) or one per round (T, N, K), not empty",
        )
    if not (np.isfinite(array).all() and (array >= 0.0).all()):
        raise ValuesError(
            f"values range from {array.min()} to {array.max()}",
            remedy="values must be finite and at least 0: shift or repair them first",
        )
    stack = np.ascontiguousarray(array.reshape(-1, *array.shape[-2:]))
    # A read-only array has another compiled type and would trigger a second compilation.
    return stack if stack.flags.writeable else stack.copy()


def stack_values(problem: Problem, values: ArrayLike | ValueStack) -> ValueStack:
    """Values as a stack, with as many experts as the problem has."""
    stack = values if isinstance(values, ValueStack) else ValueStack(values)
    if stack.size != problem.size:
        raise ValuesError(
            f"values are for {stack.size} experts, the problem has {problem.size}",
            remedy="give the last axis of values one entry per expert",
        )
    return stack


def split_values(
    problem: Problem, values: ArrayLike | ValueStack, contexts: ArrayLike | None
) -> tuple[ContextLabels | None, tuple[ValueStack, ...]]:
    """The labels of contexts in increasing order, and the rounds of each."""
    stack = stack_values(problem, values)
    if contexts is None:
        return None, (stack,)
    given = np.asarray(contexts)
    if given.shape != (stack.rounds,) or given.dtype.kind not in "iuU":
        raise ValuesError(
            f"contexts have shape {given.shape} and type {given.dtype}",
            remedy=f"give one whole number or string for each of the {stack.rounds} rounds",
        )
    labels, places = np.unique(given, return_inverse=True)
    return labels, tuple(stack.select(np.flatnonzero(places == x)) for x in range(len(labels)))


def describe_budget(labels: ContextLabels | None, each_context: bool) -> str:
    """Say which requests an optimum keeps the limits over, if there are contexts."""
    kept = ", kept in each context" if each_context else ", kept by all contexts together"
    return "" if labels is None else kept


class Objective(NamedTuple):
    """F(q) = sum_x F_x(q_x), where F_x is the weighted expected reward in context x.

    q is (X, K), a row per context; without contexts X = 1. F is concave, as every F_x is.
    """

    parts: tuple[ValueStack, ...]
    draws: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.parts), self.parts[0].size

    def stages(self) -> "Iterator[Objective]":
        """Every eighth round first, if there are many; then all of them."""
        if sum(part.rounds for part in self.parts) > COARSE_ROUNDS:
            yield self._replace(parts=tuple(part.thin(8) for part in self.parts))
        yield self

    def slope(self, q: Floats) -> tuple[float, Floats]:
        """F(q) and its slope (X, K)."""
        pairs = [part.slope(row, self.draws) for part, row in zip(self.parts, q, strict=True)]
        return sum(value for value, _ in pairs), np.stack([slope for _, slope in pairs])

    def curvature(self, q: Floats) -> Floats:
        """The Hessian of F, one (K, K) block per context: (X, K, K)."""
        pairs = zip(self.parts, q, strict=True)
        return np.stack([part.curvature(row, self.draws) for part, row in pairs])
