"""When rewards arrive: at once, some rounds late, or never."""

from dataclasses import dataclass

import numpy as np

from bylot.environments.base import check_number
from bylot.environments.outcomes import draw_block_uniforms
from bylot.numerics.jit import Ints
from bylot.problem.limit_input import float_from_real
from bylot.problem.validation import int_from_whole

NEVER_DUE = 1 << 62  # a round that no run reaches
DELAY_STREAM = 2
MAX_LAG_ROUNDS = 1 << 53  # a uniform has 53 bits


@dataclass(frozen=True)
class RewardDelay:
    """When the reward of each round arrives; the cost of the panel is paid in any case.

    Parameters
    ----------
    lag : int
        The reward of round t arrives after the decision of round t + d, d uniform on 0, ..., lag.
    lost : float
        The probability that a reward never arrives.

    Raises
    ------
    ValuesError
        If a part is invalid.
    """

    lag: int = 0
    lost: float = 0.0

    def __post_init__(self) -> None:
        lag = check_number(
            "lag",
            self.lag,
            int_from_whole,
            lambda n: 0 <= n < MAX_LAG_ROUNDS,
            f"an integer of at least 0 and less than {MAX_LAG_ROUNDS}",
            "use lost=1 for rewards that never arrive",
        )
        lost = check_number(
            "lost",
            self.lost,
            float_from_real,
            lambda x: 0.0 <= x <= 1.0,
            "a probability in [0, 1]",
        )
        object.__setattr__(self, "lag", lag)
        object.__setattr__(self, "lost", lost)

    def due(self, rounds: int, seed: int) -> Ints:
        """Return the (rounds,) after whose decision each reward arrives, or NEVER_DUE.

        >>> RewardDelay().due(3, seed=0)
        array([0, 1, 2])
        """
        t = np.arange(rounds)
        if not (self.lag or self.lost):
            return t
        gone, wait = draw_block_uniforms(0, rounds, 2, seed, DELAY_STREAM).T
        return np.where(gone < self.lost, NEVER_DUE, t + (wait * (self.lag + 1)).astype(np.int64))


NO_DELAY = RewardDelay()
