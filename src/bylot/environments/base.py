"""What an environment is; what its values mean is left to the ones that implement it."""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints

FIRST_ENVIRONMENT_STREAM = 1 << 32  # first stream of chance that belongs to environments


class Rounds(NamedTuple):
    """A stretch of rounds: who comes, and what every expert would be worth to them."""

    values: Floats  # (n, N, K), at least 0
    contexts: Ints  # (n,)


class Environment(Protocol):
    """The context and the value matrix V^(t) of round t, the same however often it is asked."""

    contexts: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): dimensions and experts."""
        ...

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds start <= t < stop under this seed."""
        ...


def make_block_generator(seed: int, block: int, stream: int = 0) -> np.random.Generator:
    """Chance for one block of rounds, keyed by (seed, stream, block)."""
    key = seed + ((FIRST_ENVIRONMENT_STREAM + stream) << 64)
    return np.random.Generator(np.random.Philox(counter=block << 192, key=key))


MAX_GIVEN_CONTEXTS = 1_000_000  # contexts are numbered from 0, and each number takes memory


class Given:
    """Round t plays values[t] (T x N x K), in context contexts[t] if there are any."""

    def __init__(self, values: npt.ArrayLike, contexts: npt.ArrayLike | None = None) -> None:
        self.values = check_value_stack(values)
        count = len(self.values)
        index = np.zeros(count, np.int64) if contexts is None else np.asarray(contexts)
        whole = index.shape == (count,) and index.dtype.kind in "iu"
        if (
            not whole
            or index.min(initial=0) < 0
            or index.max(initial=0) >= max(MAX_GIVEN_CONTEXTS, count)
        ):
            raise ValuesError(
                f"contexts of shape {index.shape} and type {index.dtype} given; "
                f"wanted one number for each of the {count} rounds, counted from 0"
            )
        self.index = index.astype(np.int64)
        self.contexts = int(self.index.max(initial=0)) + 1

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        _, dimensions, size = self.values.shape
        return dimensions, size

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """The rounds as they were given; the seed changes nothing."""
        if stop > len(self.values):
            raise ValuesError(
                f"round {stop} was asked for, but values of {len(self.values)} rounds were given; "
                "play fewer rounds or give more values"
            )
        return Rounds(self.values[start:stop], self.index[start:stop])


def check_value_stack(values: npt.ArrayLike) -> Floats:
    """A stack of finite, non-negative matrices, or an error that says where it is not."""
    stack = np.array(values, dtype=np.float64, order="C")  # a copy: later changes do not reach it
    if stack.ndim != 3 or 0 in stack.shape:
        raise ValuesError(
            f"values of shape {stack.shape} given; wanted rounds x dimensions x experts"
        )
    bad = ~(np.isfinite(stack) & (stack >= 0))
    if bad.any():
        t, k, i = (int(n) for n in np.argwhere(bad)[0])
        raise ValuesError(
            f"value {stack[t, k, i]} at round {t}, dimension {k}, expert {i}: "
            "values must be finite and at least 0; shift them if they can be negative"
        )
    return stack
