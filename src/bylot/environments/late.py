"""When rewards come: at once, some rounds late, or never."""

import operator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from bylot.environments.outcomes import in_blocks
from bylot.errors import ValuesError
from bylot.kernels.compile import Ints

NEVER = 1 << 62  # a round that no play comes to
LATENESS = 2  # the stream of chance that says when a reward comes
LONGEST = 1 << 53  # a uniform has 53 bits: it cannot be spread over more rounds than that


@dataclass(frozen=True)
class Late:
    """The reward of round t is told after the decision of round t + d, d uniform on 0, ..., lag;
    with chance `lost` it never is. The panel was asked and its cost is paid all the same.
    """

    lag: int = 0
    lost: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", checked_lag(self.lag))
        object.__setattr__(self, "lost", checked_part(self.lost))

    def due(self, rounds: int, seed: int) -> Ints:
        """(rounds,) after whose decision each reward is told; NEVER where it is lost.

        >>> Late().due(3, seed=0)
        array([0, 1, 2])
        """
        t = np.arange(rounds)
        if not (self.lag or self.lost):
            return t
        gone, wait = in_blocks(0, rounds, 2, seed, LATENESS).T
        return np.where(gone < self.lost, NEVER, t + (wait * (self.lag + 1)).astype(np.int64))


def checked_lag(lag: Any) -> int:
    """A whole number of any kind; true and false are none."""
    try:
        whole = -1 if isinstance(lag, bool) else operator.index(lag)
    except TypeError:
        whole = -1
    if whole < 0:
        raise ValuesError(f"lag={lag!r} given; wanted a whole number of rounds, 0 or more")
    if whole >= LONGEST:
        raise ValuesError(
            f"lag={lag!r} given, and no play is so long; wanted less than {LONGEST} rounds, or "
            "lost=1 for rewards that never come"
        )
    return whole


def checked_part(lost: Any) -> float:
    """A number, not NaN, from none to all."""
    number = isinstance(lost, Real) and not isinstance(lost, bool)
    if not (number and 0.0 <= lost <= 1.0):
        raise ValuesError(f"lost={lost!r} given; the part that is lost must lie in [0, 1]")
    return float(lost)


PROMPT = Late()
