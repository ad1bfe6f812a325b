"""When rewards come: at once, some rounds late, or never."""

import operator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from bylot.environments.outcomes import draw_block_uniforms
from bylot.errors import ValuesError
from bylot.numerics.jit import Ints

NEVER_DUE = 1 << 62  # a round that no play comes to
DELAY_STREAM = 2  # the stream of chance that says when a reward comes
MAX_LAG_ROUNDS = 1 << 53  # a uniform has 53 bits: it cannot be spread over more rounds than that


@dataclass(frozen=True)
class RewardDelay:
    """The reward of round t is told after the decision of round t + d, d uniform on 0, ..., lag;
    with chance `lost` it never is. The panel was asked and its cost is paid all the same.
    """

    lag: int = 0
    lost: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", check_lag(self.lag))
        object.__setattr__(self, "lost", check_lost_fraction(self.lost))

    def due(self, rounds: int, seed: int) -> Ints:
        """(rounds,) after whose decision each reward is told; NEVER where it is lost.

        >>> RewardDelay().due(3, seed=0)
        array([0, 1, 2])
        """
        t = np.arange(rounds)
        if not (self.lag or self.lost):
            return t
        gone, wait = draw_block_uniforms(0, rounds, 2, seed, DELAY_STREAM).T
        return np.where(gone < self.lost, NEVER_DUE, t + (wait * (self.lag + 1)).astype(np.int64))


def check_lag(lag: Any) -> int:
    """A whole number of any kind; true and false are none."""
    try:
        whole = -1 if isinstance(lag, bool) else operator.index(lag)
    except TypeError:
        whole = -1
    if whole < 0:
        raise ValuesError(f"lag={lag!r} given; wanted a whole number of rounds, 0 or more")
    if whole >= MAX_LAG_ROUNDS:
        raise ValuesError(
            f"lag={lag!r} given, and no play is so long; wanted less than {MAX_LAG_ROUNDS} rounds, or "
            "lost=1 for rewards that never come"
        )
    return whole


def check_lost_fraction(lost: Any) -> float:
    """A number, not NaN, from none to all."""
    number = isinstance(lost, Real) and not isinstance(lost, bool)
    if not (number and 0.0 <= lost <= 1.0):
        raise ValuesError(f"lost={lost!r} given; the part that is lost must lie in [0, 1]")
    return float(lost)


NO_DELAY = RewardDelay()
