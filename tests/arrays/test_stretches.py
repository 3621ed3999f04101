import numpy as np
import pytest
from numpy.testing import assert_array_equal

from otmoe.arrays.stretches import spread_out, starts_of, summed, whole


@pytest.mark.parametrize("shape", [(), (3,)])
def test_sums_over_stretches_are_those_of_a_loop(rng, shape):
    codes = np.repeat([4, 0, 7, 7, 1], [1, 3, 2, 2, 5])
    starts = starts_of(codes)
    assert_array_equal(starts, [0, 1, 4, 8, 13])
    values = rng.integers(-9, 9, (13, *shape)).astype(float)
    found = summed(values, starts)
    expected = [values[a:b].sum(axis=0) for a, b in zip(starts[:-1], starts[1:], strict=True)]
    assert_array_equal(found, expected)
    assert_array_equal(spread_out(found, starts), found[[0, 1, 1, 1, 2, 2, 2, 2, *[3] * 5]])


def test_no_rows_have_no_stretches():
    assert_array_equal(starts_of(np.zeros(0, dtype=int)), [0])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_blocks_end_where_a_stretch_does(rng, size):
    codes = np.repeat(np.arange(20), rng.integers(1, 7, 20))
    n, starts = len(codes), starts_of(codes)
    blocks = list(whole([slice(a, min(a + size, n)) for a in range(0, n, size)], starts))
    assert [b.start for b in blocks] == [0, *(b.stop for b in blocks[:-1])]
    assert blocks[-1].stop == n and {b.stop for b in blocks} <= set(starts.tolist())
    assert all(b.stop > b.start for b in blocks)
