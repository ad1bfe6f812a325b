"""Traces side by side."""

import numpy as np
from numpy.testing import assert_array_equal

from bylot import Trace

LEFT_OUT = ("distributions", "propensities")


def same(one: Trace, other: Trace) -> bool:
    """Are all rounds equal, to the last bit? So are propensities, where both know them."""
    a, b = one.record, other.record
    told = ~np.isnan(a.propensities) & ~np.isnan(b.propensities)
    try:
        assert_array_equal(a.propensities[told], b.propensities[told])
        for name in a._fields:
            if name not in LEFT_OUT:
                assert_array_equal(getattr(a, name), getattr(b, name), name)
    except AssertionError:
        return False
    return (one.seed, one.horizon, one.range) == (other.seed, other.horizon, other.range)
