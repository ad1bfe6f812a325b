"""Uniforms equal NumPy's Philox to the bit; streams, rounds and seeds do not overlap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bylot.numerics.philox import RngKey, draw_uniforms

words = st.integers(0, 2**63 - 1)


@given(seed=words, stream=st.integers(0, 1000), t=words, size=st.integers(0, 13))
@settings(deadline=None, derandomize=True)
def test_uniforms_are_the_bits_of_numpy_philox(seed: int, stream: int, t: int, size: int) -> None:
    # NumPy steps its counter before it generates, so it starts one block earlier.
    counter = (t << 64) - 1 if t else 2**256 - 1
    peer = np.random.Philox(counter=counter, key=seed + (stream << 64))
    expected = np.random.Generator(peer).random(size)
    np.testing.assert_array_equal(draw_uniforms(RngKey(seed, t), stream, size), expected)


@pytest.mark.parametrize("other", [(RngKey(1, 0), 0), (RngKey(0, 1), 0), (RngKey(0, 0), 1)])
def test_another_seed_round_or_stream_gives_other_uniforms(other: tuple[RngKey, int]) -> None:
    assert not np.isin(draw_uniforms(*other, 64), draw_uniforms(RngKey(0, 0), 0, 64)).any()
