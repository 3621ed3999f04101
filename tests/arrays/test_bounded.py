import numpy as np
import pytest
from numpy.testing import assert_allclose

from otmoe.arrays.bounded import bounded_step, length
from otmoe.arrays.newton import NewtonPoint


def random_point(rng, definite):
    A = rng.normal(size=(5, 5)) * [1, 10, 1e-2, 3, 1]
    H = A.T @ A if definite else A.T @ np.diag([1, 1, -1, 2, -0.5]) @ A
    return NewtonPoint(0.0, rng.normal(size=5) * np.sqrt(np.abs(np.diagonal(H))), H)


def promise(point, step):
    return point.score @ step - 0.5 * step @ point.information @ step


def test_without_a_bound_the_step_is_newtons(rng):
    point = random_point(rng, definite=True)
    step, decrement = bounded_step(point, np.inf, 1.0)
    expected = np.linalg.solve(point.information, point.score)
    assert_allclose(step, expected)
    assert_allclose(decrement, point.score @ expected)


BLOCKS = [None, np.array([0, 0, 1, 1, 2])]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_no_step_within_the_radius_promises_more(rng, blocks):
    point = random_point(rng, definite=True)
    step, decrement = bounded_step(point, 0.7, 0.7, blocks)
    assert np.isfinite(decrement)
    assert_allclose(length(point.information, step, blocks), 0.7, rtol=1e-6)
    for _ in range(300):
        other = rng.normal(size=5)
        other *= 0.7 * rng.uniform() / length(point.information, other, blocks)
        assert promise(point, other) <= promise(point, step) + 1e-9


@pytest.mark.parametrize("blocks", BLOCKS)
def test_a_saddle_is_left_no_further_than_its_curvature_says(rng, blocks):
    point = random_point(rng, definite=False)
    short, decrement = bounded_step(point, 0.3, 0.3, blocks)
    assert decrement == np.inf and point.score @ short > 0 and promise(point, short) > 0
    assert_allclose(length(point.information, short, blocks), 0.3, rtol=1e-6)
    far, farther = (bounded_step(point, radius, radius, blocks)[0] for radius in (1e6, 1e9))
    assert_allclose(far, farther, rtol=1e-4)  # not as far as the radius


def test_a_length_is_that_of_what_a_block_predicts(rng):
    """Whatever the columns of a block are, only what they make of rows counts."""
    X, blocks = rng.normal(size=(50, 2)), np.array([0, 0])
    mix = np.array([[1.0, 1.0], [0.0, 1e-3]])  # nearly collinear
    step = rng.normal(size=2)
    there = np.linalg.solve(mix, step)
    expected = length(X.T @ X, step, blocks)
    assert_allclose(length((X @ mix).T @ (X @ mix), there, blocks), expected, rtol=1e-5)
    assert_allclose(expected, np.linalg.norm(X @ step))
    alone = [length(X.T @ X, step * part) for part in np.eye(2)]
    assert_allclose(length(X.T @ X, step), np.hypot(*alone))


def test_where_there_is_no_maximum_the_other_radius_counts(rng):
    point = random_point(rng, definite=False)
    step, decrement = bounded_step(point, np.inf, 0.3)
    assert decrement == np.inf
    assert_allclose(length(point.information, step), 0.3, rtol=1e-6)
