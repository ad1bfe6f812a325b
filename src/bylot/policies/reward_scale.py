"""The scale of rewards, learned where they fill only a small part of the declared range.

A model of misses, 1 - r, needs to know which reward misses nothing, and prices are in units of
rewards. Early rewards show whether all of them lie in a narrow interval; the model then works on
that interval, and starts again.
"""

from typing import Any, NamedTuple

import numpy as np

from bylot.numerics.jit import Floats, Ints, jit

FIRST_CHECK = 64  # rewards before the first look at their range; the next one is at twice as many
NARROW_WIDTH = 0.7  # of an interval, with its margins, that replaces the declared range
SCALE_MARGIN = 0.15  # added on both sides of the rewards seen, relative to their width
MAX_OUTSIDE_SHARE = 0.02  # of rewards outside the interval in use; above it, it is set again
MIN_WIDTH = 1e-6  # of the rewards seen; below it, nothing is known about the scale


class RewardScale(NamedTuple):
    """The interval in use, within [0, 1], and the rewards that were seen."""

    interval: Floats  # (2,) its lower end and its width
    seen: Floats  # (2,) the smallest and the largest reward
    counts: Ints  # (3,) rewards, those outside the interval since the last check, the next check

    def is_valid(self, rule: Any) -> bool:
        (low, width), (n, outside, check) = self.interval, self.counts
        return bool(
            low >= 0
            and width > 0
            and low + width <= 1.000001
            and np.isfinite(self.seen).all()
            and 0 <= outside <= n < check
        )


def make_reward_scale() -> RewardScale:
    """The declared range, before the first reward."""
    counts = np.array([0, 0, FIRST_CHECK])
    return RewardScale(np.array([0.0, 1.0]), np.array([1.0, 0.0]), counts)


@jit
def compute_miss(scale: RewardScale, reward: float) -> float:
    """1 - r on the scale in use, clipped to [0, 1]."""
    top = scale.interval[0] + scale.interval[1]
    return float(min(max((top - reward) / scale.interval[1], 0.0), 1.0))


@jit
def track_reward(scale: RewardScale, reward: float) -> bool:
    """Record a reward; returns whether the interval changed."""
    interval, seen, counts = scale.interval, scale.seen, scale.counts
    low, high = interval[0], interval[0] + interval[1]
    seen[0], seen[1] = min(seen[0], reward), max(seen[1], reward)
    counts[0] += 1
    counts[1] += reward < low - MIN_WIDTH or reward > high + MIN_WIDTH
    if counts[0] < counts[2]:
        return False
    often = counts[1] > MAX_OUTSIDE_SHARE * counts[2]
    due = often or counts[2] == FIRST_CHECK
    counts[1] = 0
    counts[2] *= 2
    return due and set_interval(scale)


@jit
def set_interval(scale: RewardScale) -> bool:
    """Take the rewards seen with their margins, if that is narrow, else the declared range."""
    seen, interval, was = scale.seen, scale.interval, scale.interval[1]
    margin = SCALE_MARGIN * (seen[1] - seen[0])
    low, high = 0.0, 1.0
    if seen[1] - seen[0] > MIN_WIDTH and seen[1] - seen[0] + 2.0 * margin < NARROW_WIDTH:
        low, high = max(seen[0] - margin, 0.0), min(seen[1] + margin, 1.0)
    interval[0], interval[1] = low, high - low
    return bool(interval[1] != was)
