"""Weights of models: the mixture that predicts held-out rows best."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, special

from otmoe.likelihood.stacking import stacking_weights


def value(log_density, weights):
    with np.errstate(divide="ignore"):
        return special.logsumexp(np.log(weights)[:, None] + log_density, axis=0)


def test_no_other_weights_are_better(rng):
    log_density = rng.normal(size=(3, 200)) + np.array([0.0, 0.3, -0.3])[:, None]

    def loss(x):
        return -value(log_density, special.softmax(np.r_[x, 0.0])).mean()

    found = value(log_density, stacking_weights(log_density)).mean()
    assert_allclose(found, -optimize.minimize(loss, np.zeros(2)).fun, atol=1e-5)
    others = rng.dirichlet(np.ones(3), 50)
    assert found > max(value(log_density, w).mean() for w in others)
    assert found > log_density.mean(axis=1).max()


def test_a_model_that_adds_nothing_has_no_weight(rng):
    first = rng.normal(size=500)
    assert_allclose(stacking_weights(np.array([first, first - 0.5])), [1, 0], atol=1e-12)
    assert_allclose(stacking_weights(np.array([first, first])), [0.5, 0.5])


def test_weight_two_is_the_row_twice(rng):
    log_density = rng.normal(size=(3, 40))
    twice = np.repeat(log_density, 2, axis=1)
    wanted = stacking_weights(twice)
    assert_allclose(stacking_weights(log_density, np.full(40, 2.0)), wanted)
    some = np.arange(40) < 30
    assert_allclose(
        stacking_weights(log_density, some.astype(float)), stacking_weights(log_density[:, some])
    )


def test_what_all_models_say_does_not_matter(rng):
    log_density = rng.normal(size=(2, 60))
    shifted = log_density + 800 * rng.normal(size=60)
    assert_allclose(stacking_weights(shifted), stacking_weights(log_density), atol=1e-6)


@pytest.mark.parametrize("far", [-1e9, -np.inf])
def test_a_model_that_fails_at_a_row_is_kept_for_the_others(rng, far):
    careful, sharp = np.full(100, -1.0), np.full(100, -0.5)
    sharp[:10] = far
    found = stacking_weights(np.array([careful, sharp]))
    # 0.1 log w + 0.9 log(w + (1 - w) exp(0.5)) is highest at this w
    assert_allclose(found[0], 0.1 * np.exp(0.5) / (np.exp(0.5) - 1), atol=1e-3)


def test_without_rows_all_count_alike():
    assert_allclose(stacking_weights(np.zeros((3, 0))), 1 / 3)
    assert_allclose(stacking_weights(np.zeros((2, 3)), np.zeros(3)), 1 / 2)
    assert_allclose(stacking_weights(np.full((2, 3), -np.inf)), 1 / 2)
