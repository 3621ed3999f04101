from concurrent.futures import ThreadPoolExecutor

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from otmoe.arrays import numerics
from otmoe.arrays.numerics import (
    block_sum,
    design,
    like,
    row_blocks,
    scaled,
    softmax,
    times,
    to_numpy,
    weighted_gram,
    weighted_gram_plain,
    weighted_sum,
)

logits = arrays(float, array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e4, 1e4))


# -- softmax -----------------------------------------------------------------------------------


@given(logits)
def test_softmax_and_its_denominator_are_scipys(a):
    prob, log_sum = softmax(a)
    assert_allclose(prob, special.softmax(a, axis=1), rtol=1e-12, atol=1e-100)
    assert_allclose(log_sum, special.logsumexp(a, axis=1), rtol=1e-12, atol=1e-12)


@given(logits, st.floats(-1e4, 1e4))
def test_softmax_ignores_a_shift_that_its_denominator_takes_up(a, shift):
    a, shift = np.round(a), np.round(shift)  # whole numbers: the shift itself loses no digits
    prob, log_sum = softmax(a)
    moved, moved_sum = softmax(a + shift)
    assert_array_equal(moved, prob)
    assert_allclose(moved_sum - shift, log_sum, atol=1e-10)


@pytest.mark.parametrize("a", [[[0.0, -1e308]], [[-1e308, -1e308]], [[700.0, 710.0]]])
def test_softmax_of_extreme_rows_is_a_distribution(a):
    prob, log_sum = softmax(np.array(a))
    assert_allclose(prob.sum(axis=1), 1)
    assert np.all(np.isfinite(log_sum))


# -- weighted sums -----------------------------------------------------------------------------


@given(n=st.integers(0, 600), p=st.integers(1, 7), J=st.integers(0, 12), seed=st.integers(0, 99))
def test_weighted_sums_and_grams_are_the_einsums(n, p, J, seed):
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(n, p)), rng.normal(size=(n, J))
    gram = np.einsum("ni,nq,nj->qij", X, W, X)
    total = np.einsum("nq,nj->qj", W, X)
    for A in (X, np.asfortranarray(X)):
        assert_allclose(weighted_gram(A, W), gram, rtol=1e-10, atol=1e-10)
        assert_allclose(weighted_sum(A, W), total, rtol=1e-10, atol=1e-10)
    assert_allclose(weighted_gram_plain(X, W), gram, rtol=1e-10, atol=1e-10)
    A, B = strict.asarray(X), strict.asarray(W)
    assert_allclose(np.asarray(weighted_gram(A, B)), gram, rtol=1e-10, atol=1e-10)
    assert_allclose(np.asarray(weighted_sum(A, B)), total, rtol=1e-10, atol=1e-10)


def test_weighted_grams_are_exactly_symmetric(rng):
    gram = weighted_gram(rng.normal(size=(500, 6)), rng.normal(size=(500, 4)))
    assert_array_equal(gram, gram.swapaxes(1, 2))


def test_times_is_the_matrix_product_column_by_column(rng):
    X, coef = rng.normal(size=(9, 3)), rng.normal(size=(2, 3))
    assert_allclose(times(X, coef), X @ coef.T)
    assert times(X, coef).T.flags.c_contiguous


def test_scaled_multiplies_rows(rng):
    a, w = rng.normal(size=(5, 2)), rng.uniform(size=5)
    assert_array_equal(scaled(a, w), np.diag(w) @ a)
    assert_array_equal(scaled(a[:, 0], w), a[:, 0] * w)
    assert scaled(a, None) is a


# -- rows, block by block ----------------------------------------------------------------------


@given(st.integers(0, 3_000_000), st.integers(1, 400), st.booleans())
def test_blocks_cover_the_rows_once_and_in_order(n, p, even):
    covered = 0
    for rows in row_blocks(n, p, even=even):
        assert rows.start == covered < rows.stop
        covered = rows.stop
    assert covered == n


@given(st.integers(0, 3_000_000), st.integers(1, 400))
def test_even_blocks_give_two_threads_as_much_to_do(n, p):
    """But for what a block is rounded by; and none is longer than others."""
    longest = max((rows.stop - rows.start for rows in row_blocks(n, p)), default=0)
    sizes = [rows.stop - rows.start for rows in row_blocks(n, p, even=True)]
    assert len(sizes) <= 1 or abs(sum(sizes[::2]) - sum(sizes[1::2])) <= max(sizes)
    assert max(sizes, default=0) <= longest + 256


def test_blocks_are_added_in_order_whatever_the_threads():
    def first(i):
        return [i]  # lists add up in order or not at all

    with ThreadPoolExecutor(4) as pool:
        assert block_sum(first, range(50), pool) == list(range(50))
    assert block_sum(first, range(50), None) == list(range(50))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("compiled", [True, False])
def test_design_is_a_one_and_the_standardised_features(rng, monkeypatch, dtype, compiled):
    if not compiled:
        monkeypatch.setattr(numerics, "kernels", None)
    X = (10 * rng.normal(size=(100, 3))).astype(dtype)
    center, scale = rng.normal(size=3), rng.uniform(1, 2, 3)
    expected = np.column_stack([np.ones(100), (X.astype(float) - center) / scale])
    found = design(X, center, scale)
    assert_allclose(found, expected, rtol=1e-12)
    assert found.dtype == np.float64 and found.T.flags.c_contiguous
    assert_array_equal(design(X), np.column_stack([np.ones(100), X]))


@pytest.mark.parametrize("n", [8, 40, 2000])
def test_columns_of_a_design_begin_with_cache_lines(rng, n):
    for _ in range(5):
        columns = design(rng.normal(size=(n, 3))).T
        assert all(column.ctypes.data % 64 == 0 for column in columns)


@pytest.mark.skipif(numerics.kernels is None, reason="kernels are compiled by numba")
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_rows_of_a_kernels_tile_begin_with_cache_lines(rows):
    tile = numerics.kernels.scratch(rows)
    assert len(tile) == rows and tile.flags.c_contiguous and tile.shape[1] >= numerics.kernels.TILE
    assert all(row.ctypes.data % 64 == 0 for row in tile)


@pytest.mark.skipif(numerics.kernels is None, reason="kernels are compiled by numba")
@pytest.mark.parametrize(("p", "rank"), [(1, 1), (5, 3), (21, 21), (8, 0)])
@pytest.mark.parametrize("triangular", [False, True])
def test_squared_lengths_are_the_einsum(rng, p, rank, triangular):
    X, root = rng.normal(size=(p, 300)), rng.normal(size=(p, rank))
    root = np.triu(root) if triangular else root
    out = np.full(300, np.nan)
    numerics.kernels.squared_lengths(X, root, out)
    assert_allclose(out, np.sum((root.T @ X) ** 2, axis=0), rtol=1e-10)


def test_design_of_another_library_is_the_same(rng):
    X, center, scale = rng.normal(size=(10, 3)), rng.normal(size=3), rng.uniform(1, 2, 3)
    other = strict.asarray(X, dtype=strict.float32)
    expected = design(X.astype(np.float32), center, scale)
    assert_allclose(np.asarray(design(other, center, scale)), expected, rtol=1e-12)
    assert_array_equal(np.asarray(design(other)), design(X.astype(np.float32)))


# -- namespaces --------------------------------------------------------------------------------


def test_like_converts_to_float64_of_the_same_library():
    there = like(np.array([1, 2], dtype=np.float32), strict.asarray([0.0]))
    assert there.dtype == strict.float64
    assert_array_equal(to_numpy(there), [1.0, 2.0])
    assert like([1, 2], np.zeros(1)).dtype == np.float64
