"""Stack: value matrices with their rows sorted once, to evaluate many policies on.

Owns the check and the sorting of values; what is maximised over them is left to the landscape.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bylot.errors import ValuesError
from bylot.kernels.compile import Floats, Ints
from bylot.kernels.summax import Order, hessian, orders, with_slope


@dataclass(frozen=True, eq=False, init=False)
class Stack:
    """T value matrices (T, N, K), the sorting of their rows, and the weight of each round.

    Sorting costs as much as five evaluations: make one stack and pass it wherever `values` go.
    Made from values of shape (T, N, K) or (N, K); rounds weigh 1/T each if nothing else is given.

    >>> stack = Stack([[0.0, 1.0]])
    >>> stack.rounds, stack.value(np.array([0.5, 0.5]), 2)
    (1, 0.75)
    """

    values: Floats
    order: Order
    weights: Floats

    def __init__(
        self, values: ArrayLike, order: Order | None = None, weights: Floats | None = None
    ) -> None:
        array = checked(values) if order is None else np.asarray(values, dtype=np.float64)
        T = len(array)
        object.__setattr__(self, "values", array)
        object.__setattr__(self, "order", orders(array) if order is None else order)
        object.__setattr__(self, "weights", np.full(T, 1.0 / T) if weights is None else weights)

    @property
    def rounds(self) -> int:
        """The number of rounds T."""
        return len(self.values)

    @property
    def size(self) -> int:
        """The number of experts K."""
        return int(self.values.shape[2])

    def part(self, rounds: Ints) -> "Stack":
        """Some of the rounds, each with the weight that it has here."""
        return Stack(self.values[rounds], self.order[rounds], self.weights[rounds])

    def thinned(self, step: int) -> "Stack":
        """Every step-th round, weighing as much in all as the whole."""
        few = np.arange(0, self.rounds, step)
        weights = self.weights[few] * (self.weights.sum() / self.weights[few].sum())
        return Stack(self.values[few], self.order[few], weights)

    def everyone(self) -> float:
        """sum_t weight_t r_t(all experts): no policy earns more."""
        best = np.take_along_axis(self.values, self.order[:, :, :1], axis=2)
        return float(self.weights @ best.sum(axis=(1, 2)))

    def value(self, q: Floats, M: int) -> float:
        """sum_t weight_t Phi^{r_t}(q)."""
        return self.slope(q, M)[0]

    def slope(self, q: Floats, M: int) -> tuple[float, Floats]:
        """The value at q and its slope, see `kernels.summax.with_slope`."""
        return with_slope(q, self.values, self.order, M, self.weights)

    def curvature(self, q: Floats, M: int) -> Floats:
        """The Hessian at q, see `kernels.summax.hessian`."""
        return hessian(q, self.values, self.order, M, self.weights)


def checked(values: ArrayLike) -> Floats:
    """Values as (T, N, K), finite and not negative."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValuesError(
            f"values have shape {array.shape}; "
            "give one matrix (N, K), or one per round (T, N, K), none of them empty"
        )
    if not (np.isfinite(array).all() and (array >= 0.0).all()):
        raise ValuesError(
            f"values range from {array.min()} to {array.max()}; "
            "a value is a finite number of 0 or more, shift or repair them first"
        )
    stack = np.ascontiguousarray(array.reshape(-1, *array.shape[-2:]))
    # To compiled code a locked array is another type, and a reason to compile everything again.
    return stack if stack.flags.writeable else stack.copy()
