"""Comparison of traces."""

import numpy as np
from numpy.testing import assert_array_equal

from bylot import Trace

IGNORED_FIELDS = ("distributions", "propensities")


def traces_are_equal(one: Trace, other: Trace) -> bool:
    """Whether all rounds are equal to the last bit, and propensities where both have them."""
    a, b = one.record, other.record
    both_known = ~np.isnan(a.propensities) & ~np.isnan(b.propensities)
    try:
        assert_array_equal(a.propensities[both_known], b.propensities[both_known])
        for name in a._fields:
            if name not in IGNORED_FIELDS:
                assert_array_equal(getattr(a, name), getattr(b, name), name)
    except AssertionError:
        return False
    return (one.seed, one.horizon, one.range) == (other.seed, other.horizon, other.range)
