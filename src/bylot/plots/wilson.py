"""How sure a share of few runs is: Wilson's interval."""

import math

Z95 = 1.959963984540054
"""The normal quantile of 97.5%."""


def wilson(successes: int, runs: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a share; 0 to 1 if there was no run.

    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)

    >>> [round(end, 3) for end in wilson(20, 20)]
    [0.839, 1.0]
    """
    if runs == 0:
        return 0.0, 1.0
    share = successes / runs
    centre = share + z * z / (2 * runs)
    reach = z * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    scale = 1 + z * z / runs
    low = 0.0 if successes == 0 else (centre - reach) / scale  # exact ends: rounding would miss
    high = 1.0 if successes == runs else (centre + reach) / scale
    return low, high
