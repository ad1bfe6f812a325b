"""Traces side by side."""

from numpy.testing import assert_array_equal

from bylot import Trace

LEFT_OUT = ("law", "chance")


def same(one: Trace, other: Trace) -> bool:
    """Are all rounds equal, to the last bit? So is the chance of a panel, where both tell it."""
    a, b = one.record, other.record
    told = (a.chance > 0) & (b.chance > 0)
    try:
        assert_array_equal(a.chance[told], b.chance[told])
        for name in a._fields:
            if name not in LEFT_OUT:
                assert_array_equal(getattr(a, name), getattr(b, name), name)
    except AssertionError:
        return False
    return (one.seed, one.horizon, one.range) == (other.seed, other.horizon, other.range)
