"""The price of each limit, averaged over recent decisions, with its spread.

A price is read from the policy, which alone computes it. Single readings swing.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

READING_DECISIONS = 100  # between two readings
MEMORY_READINGS = 50  # that an average is of, after twice as many: the last period, by default


class PriceAverage(Struct):
    """Mean and variance of the readings of one price, in rewards of [0, 1] per unit of the bound.

    The n-th of n readings counts a = max(1/W, 2/(n + 1)): first in proportion to its number, so
    that what was not learned yet is soon forgotten, later exponentially.
    """

    readings: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def add(self, price: float) -> None:
        """mean += a d, variance = (1 - a) (variance + a d^2) with d = price - mean.

        >>> average = PriceAverage()
        >>> for price in (0.0, 3.0):
        ...     average.add(price)
        >>> average
        PriceAverage(readings=2, mean=2.0, variance=2.0)
        """
        self.readings += 1
        a, d = max(1.0 / MEMORY_READINGS, 2.0 / (self.readings + 1)), price - self.mean
        self.mean += a * d
        self.variance = (1.0 - a) * (self.variance + a * d * d)

    def summarize(self, price: float, span: float) -> tuple[float | None, float | None]:
        """The average and the standard deviation in rewards of this span; a single reading, and the
        price of now if there is none yet, has no deviation. None: unknown.
        """
        if self.readings == 0:
            return None if math.isnan(price) else span * price, None
        spread = span * math.sqrt(self.variance) if self.readings > 1 else None
        return span * self.mean, spread

    def is_valid(self) -> bool:
        """Whether a saved average can be one."""
        finite = math.isfinite(self.mean) and math.isfinite(self.variance)
        return self.readings >= 0 and finite and self.variance >= 0.0


def add_reading(averages: Sequence[PriceAverage], prices: Sequence[float]) -> None:
    """Add a reading of each price; one that is not a number is not known yet."""
    for average, price in zip(averages, prices, strict=True):
        if not math.isnan(price):
            average.add(price)
