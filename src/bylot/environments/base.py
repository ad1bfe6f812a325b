"""The environment protocol, shared checks, and the environment that is a table of given values."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bylot.errors import ValuesError
from bylot.numerics.jit import Floats, Ints
from bylot.problem.limit_input import float_from_real
from bylot.problem.validation import int_from_whole

Number = TypeVar("Number", int, float)

FIRST_ENVIRONMENT_STREAM = 1 << 32  # smaller random streams belong to policies
BLOCK_ROUNDS = 256  # rounds drawn together: values depend on the block, not on the request
MAX_GIVEN_CONTEXTS = 1_000_000  # contexts are numbered from 0, and each number takes memory


class Rounds(NamedTuple):
    """Consecutive rounds: the value of every expert, and the context."""

    values: Floats  # (n, N, K), at least 0
    contexts: Ints  # (n,)


class Environment(Protocol):
    """The context and the value matrix V^(t) of round t, a pure function of (seed, t)."""

    contexts: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K): dimensions and experts."""

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """Return the rounds start <= t < stop under this seed."""


def make_block_generator(seed: int, block: int, stream: int = 0) -> np.random.Generator:
    """Make the generator of a block of rounds, keyed by (seed, stream, block)."""
    key = seed + ((FIRST_ENVIRONMENT_STREAM + stream) << 64)
    return np.random.Generator(np.random.Philox(counter=block << 192, key=key))


def check_number(
    name: str,
    given: object,
    convert: Callable[[object], Number | None],
    accepts: Callable[[Number], bool],
    expected: str,
    remedy: str | None = None,
) -> Number:
    """Require a number that is accepted; `convert` returns None for what is none."""
    number = convert(given)
    if number is None or not accepts(number):
        raise ValuesError(name, got=given, expected=expected, remedy=remedy)
    return number


def check_positive_value(name: str, value: float) -> float:
    """Require a positive, finite number."""
    return check_number(name, value, float_from_real, lambda x: 0 < x < np.inf, "a positive number")


def check_count(name: str, value: int) -> int:
    """Require a whole number of at least 1."""
    expected = "a whole number of at least 1"
    return check_number(name, value, int_from_whole, lambda n: n >= 1, expected)


def copy_floats(values: npt.ArrayLike) -> Floats:
    """Copy an array of numbers."""
    try:
        return np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValuesError(f"the values are not an array of numbers ({error})") from None


def check_value_array(
    values: npt.ArrayLike, axes: tuple[str, ...], *, gaps: bool = False
) -> Floats:
    """Copy finite, non-negative numbers with these axes; NaN becomes 0 if gaps are allowed."""
    array = copy_floats(values)
    if array.ndim != len(axes) or 0 in array.shape:
        raise ValuesError(
            "shape of the values",
            got=array.shape,
            expected=" x ".join(f"{one}s" for one in axes),
        )
    if gaps:
        array[np.isnan(array)] = 0.0
    if not (array.min() >= 0 and array.max() < np.inf):  # NaN is the minimum of whatever has one
        bad = np.argwhere(~(np.isfinite(array) & (array >= 0)))
        place = ", ".join(f"{axis} {n}" for axis, n in zip(axes, bad[0].tolist(), strict=True))
        raise ValuesError(
            f"value at {place}:",
            got=float(array[tuple(bad[0])]),
            expected="a finite number of at least 0",
            remedy="shift the values if they can be negative",
        )
    return array


def check_numbers(given: npt.ArrayLike | None, what: str, count: int, of: str) -> Ints:
    """Require a whole number for each of so many rounds or questions; all 0 if none is given."""
    numbers = np.zeros(count, np.int64) if given is None else np.asarray(given)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ValuesError(
            f"shape and type of {what}",
            got=(numbers.shape, str(numbers.dtype)),
            expected=f"one number for each of the {count} {of}, counted from 0",
        )
    return numbers.astype(np.int64)


class Given:
    """Round t plays values[t], in context contexts[t].

    Parameters
    ----------
    values : array_like, shape (T, N, K)
        The value of each expert in each dimension of each round.
    contexts : array_like, shape (T,), optional
        The context of each round, counted from 0.

    Raises
    ------
    ValuesError
        If a shape is wrong or a value is negative or not finite.
    """

    def __init__(self, values: npt.ArrayLike, contexts: npt.ArrayLike | None = None) -> None:
        self.values = check_value_array(values, ("round", "dimension", "expert"))
        count, N, K = self.values.shape
        self.shape = N, K
        self.index = check_numbers(contexts, "contexts", count, "rounds")
        low, high, most = self.index.min(), int(self.index.max()), max(MAX_GIVEN_CONTEXTS, count)
        if not 0 <= low <= high < most:
            got = int(low if low < 0 else high)
            raise ValuesError("context", got=got, expected=f"a number from 0 to {most - 1}")
        self.contexts = high + 1

    def rounds(self, start: int, stop: int, seed: int) -> Rounds:
        """Return the rounds as they were given; the seed changes nothing."""
        if stop > len(self.values):
            raise ValuesError(
                f"{stop} rounds requested, but the values of {len(self.values)} rounds were given",
                remedy="play fewer rounds or give more values",
            )
        return Rounds(self.values[start:stop], self.index[start:stop])
