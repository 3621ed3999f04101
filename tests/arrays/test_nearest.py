import array_api_strict as strict
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from otmoe.arrays import numerics
from otmoe.arrays.nearest import collected, nearest_linear, nearest_square

# n, L, K; the last has more rows than the kernels take at once
SHAPES = [(7, 5, 3), (1, 1, 1), (6, 1, 4), (6, 4, 1), (600, 2, 3)]
VARIANCES = {"float": (), "by source": (1, "L"), "by row": ("n", 1), "everywhere": ("n", "L")}


@pytest.fixture(params=["compiled", "plain", "strict"])
def convert(request, monkeypatch):
    """The three ways to compute a plan, each named by how its arrays are made."""
    if request.param == "plain":
        monkeypatch.setattr(numerics, "kernels", None)
    elif request.param == "compiled" and numerics.kernels is None:
        pytest.skip("numba is not installed")
    if request.param == "strict":
        return lambda a: a if isinstance(a, float) else strict.asarray(a)
    return lambda a: a


def back(*arrays):
    return [np.asarray(a) for a in arrays]


def variance(rng, kind, n, L):
    shape = tuple({"n": n, "L": L}.get(size, size) for size in VARIANCES[kind])
    return rng.uniform(0.5, 3.0, shape) if shape else 1.25


# -- the nearest target ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VARIANCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_nearest_square_is_the_best_of_all_pairs(rng, convert, shape, kind):
    n, L, K = shape
    mean, center = rng.normal(size=(n, L)), rng.normal(size=(n, K))
    var = variance(rng, kind, n, L)
    precision, constant = rng.uniform(0.3, 3.0, K), rng.normal(size=K)
    found = nearest_square(convert(mean), convert(var), convert(center), precision, constant)
    index, value = back(*found)
    expected = oracles.square_values(mean, var, center, precision, constant)
    best, top = oracles.nearest_targets(expected)
    assert_array_equal(index, best)
    assert_allclose(value, top, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("terms", [None, 1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_nearest_linear_is_the_best_of_all_pairs(rng, convert, shape, terms):
    n, L, K = shape
    last = () if terms is None else (terms,)
    mean, eta = rng.normal(size=(n, L, *last)), rng.normal(size=(n, K, *last))
    cumulant = rng.normal(size=(n, K))
    index, value = back(*nearest_linear(convert(mean), convert(eta), convert(cumulant)))
    best, top = oracles.nearest_targets(oracles.linear_values(mean, eta, cumulant))
    assert_array_equal(index, best)
    assert_allclose(value, top, rtol=1e-12, atol=1e-12)


def test_ties_go_to_the_smallest_target(rng, convert):
    # Small whole numbers: sums and products are exact, and ties are many.
    n, L, K, Q = 300, 4, 5, 2

    def whole(*shape):
        return rng.integers(-2, 3, shape).astype(float)

    mean, var, center = whole(n, L), 2.0 + whole(n, L), whole(n, K)
    precision, constant = 2.0 * np.array([1, 2, 1, 1, 2]), whole(K)
    expected = oracles.square_values(mean, var, center, precision, constant)
    assert np.mean(np.sum(expected == expected.max(axis=2, keepdims=True), axis=2) > 1) > 0.1
    found = nearest_square(convert(mean), convert(var), convert(center), precision, constant)
    for ours, theirs in zip(back(*found), oracles.nearest_targets(expected), strict=True):
        assert_array_equal(ours, theirs)

    mean, eta, cumulant = whole(n, L, Q), whole(n, K, Q), whole(n, K)
    expected = oracles.linear_values(mean, eta, cumulant)
    found = nearest_linear(convert(mean), convert(eta), convert(cumulant))
    for ours, theirs in zip(back(*found), oracles.nearest_targets(expected), strict=True):
        assert_array_equal(ours, theirs)


# -- what targets receive ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", VARIANCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_targets_receive_the_mixture_of_their_sources(rng, convert, shape, kind):
    n, L, K = shape
    index = rng.integers(0, K, (n, L)).astype(np.int32)
    weight = rng.uniform(0.1, 1.0, (n, L)) * (rng.random((n, L)) < 0.8)
    mean, var = rng.normal(size=(n, L)), variance(rng, kind, n, L)
    found = collected(convert(index), convert(weight), convert(mean), convert(var), K)
    expected = oracles.collected(index, weight, mean, var, K)
    for ours, theirs in zip(back(*found), expected, strict=True):
        assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_vectors_are_averaged_term_by_term(rng, convert, shape):
    n, L, K = shape
    index = rng.integers(0, K, (n, L)).astype(np.int32)
    weight, mean = rng.uniform(0.0, 1.0, (n, L)), rng.normal(size=(n, L, 3))
    mass, center, var = collected(convert(index), convert(weight), convert(mean), None, K)
    expected = oracles.collected(index, weight, mean, 0.0, K)
    assert_allclose(np.asarray(mass), expected[0], rtol=1e-12)
    assert_allclose(np.asarray(center), expected[1], rtol=1e-12, atol=1e-12)
    assert var == 0.0


def test_variances_that_are_not_wanted_are_not_computed(rng, convert):
    index, weight = np.zeros((3, 2), dtype=np.int32), np.ones((3, 2))
    mean = rng.normal(size=(3, 2))
    mass, center, var = collected(convert(index), convert(weight), convert(mean), None, 2)
    assert_allclose(np.asarray(center), np.column_stack([mean.mean(axis=1), np.zeros(3)]))
    assert var == 0.0


def test_a_target_without_mass_gets_zeros(rng, convert):
    index = np.array([[0, 0], [1, 1], [0, 1]], dtype=np.int32)
    weight = np.array([[0.3, 0.7], [0.0, 0.0], [1.0, 0.0]])
    mean = rng.normal(size=(3, 2))
    found = collected(convert(index), convert(weight), convert(mean), 2.0, 3)
    mass, center, var = back(*found)
    assert_array_equal(mass, [[1.0, 0, 0], [0, 0, 0], [1.0, 0, 0]])
    assert_array_equal(center[mass == 0], 0)
    assert_array_equal(var[mass == 0], 0)
    assert_allclose(var[2, 0], 2.0, rtol=1e-15)


def test_mass_is_conserved_however_small(rng, convert):
    index = rng.integers(0, 3, (50, 4)).astype(np.int32)
    weight = rng.uniform(0.5, 1.0, (50, 4)) * 1e-130  # as little as a softmax gives
    found = collected(convert(index), convert(weight), convert(np.ones((50, 4))), 1.0, 3)
    mass, center, var = back(*found)
    assert_allclose(mass.sum(axis=1), weight.sum(axis=1), rtol=1e-12)
    assert_allclose(center[mass > 0], 1, rtol=1e-12)
    assert_allclose(var[mass > 0], 1, rtol=1e-12)
