import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    jacobian,
    log_density,
    log_likelihood,
    random_model,
    random_rows,
    responsibilities,
    with_ones,
)

from otmoe.likelihood.information import expected_curvature, observed_information, score_outer
from otmoe.likelihood.rows import Rows


@pytest.mark.parametrize("columns", [None, (0, 2), (0,)])
@pytest.mark.parametrize("n_experts", [1, 2, 3])
def test_score_and_information_match_finite_differences(rng, family, n_experts, columns):
    model = random_model(rng, n_experts, 2, columns, family)
    X, y = random_rows(rng, model, n=60)
    weight = rng.uniform(0, 3, 60)
    theta = model.to_vector() + 0.1  # away from the maximum, where nothing vanishes

    def at(vector):
        return observed_information(model.with_vector(vector), Rows(X, y, weight))

    def brute_force(vector):
        return log_likelihood(model.with_vector(vector), X, y, weight)

    found, there = at(theta), model.with_vector(theta)
    base = np.sum(weight * there.experts.log_base(y))
    assert_allclose(found.log_likelihood + base, brute_force(theta), rtol=1e-10)
    assert_allclose(found.score, jacobian(brute_force, theta), rtol=1e-6, atol=1e-6)
    assert_allclose(found.matrix, -jacobian(lambda v: at(v).score, theta), rtol=1e-6, atol=1e-6)
    assert_allclose(found.mass, weight @ responsibilities(there, X, y), rtol=1e-10)


def test_the_order_of_the_gate_columns_does_not_matter(rng):
    model = random_model(rng, 3, 3, columns=(0, 3, 1))
    X, y = random_rows(rng, model)
    found = observed_information(model, Rows(X, y)).score
    expected = jacobian(lambda v: log_likelihood(model.with_vector(v), X, y), model.to_vector())
    assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_an_offset_enters_the_experts(rng):
    model = random_model(rng, 2, 2)
    X, y = random_rows(rng, model)
    offset = rng.normal(size=len(y))
    there = observed_information(model, Rows(X, y, offset=offset))
    # A Gaussian expert cannot tell an offset from a response that is smaller by it.
    here = observed_information(model, Rows(X, y - offset))
    for name, value in vars(here).items():
        assert_allclose(getattr(there, name), value, rtol=1e-9, atol=1e-9)


def test_information_adds_up_over_rows_and_blocks(rng, family):
    model = random_model(rng, 3, 2, family=family)
    X, y = random_rows(rng, model, n=1000)
    whole = observed_information(model, Rows(X, y))
    parts = observed_information(model, Rows(X[:90], y[:90]))
    parts += observed_information(model, Rows(X[90:], y[90:]))
    blocks = observed_information(model, Rows(X, y, block_bytes=1))
    for name, value in vars(whole).items():
        assert_allclose(getattr(parts, name), value, rtol=1e-9, atol=1e-9)
        assert_allclose(getattr(blocks, name), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_without_the_matrix_the_rest_is_the_same(rng, family, columns):
    model = random_model(rng, 3, 2, columns, family)
    X, y = random_rows(rng, model)
    rows = Rows(X, y, rng.uniform(0, 3, len(y)))
    whole, rest = (observed_information(model, rows, matrix=matrix) for matrix in (True, False))
    assert rest.matrix.size == 0 and rest.log_likelihood == whole.log_likelihood
    assert_array_equal(rest.score, whole.score)
    assert_array_equal(rest.mass, whole.mass)


@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_outer_products_of_scores_match_a_loop_over_rows(rng, family, columns):
    model = random_model(rng, 2, 2, columns, family)
    X, y = random_rows(rng, model, n=30)
    weight = rng.uniform(0, 3, 30)
    scores = jacobian(lambda v: log_density(model.with_vector(v), X, y), model.to_vector())
    expected = sum(w**2 * np.outer(s, s) for w, s in zip(weight, scores, strict=True))
    found = score_outer(model, Rows(X, y, weight))
    assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    # scores add up to the score, and their products over shards
    total = observed_information(model, Rows(X, y, weight)).score
    assert_allclose(weight @ scores, total, rtol=1e-6, atol=1e-6)
    halves = [Rows(X[part], y[part], weight[part]) for part in (slice(12), slice(12, None))]
    assert_allclose(sum(score_outer(model, half) for half in halves), found, rtol=1e-12)


def test_a_step_by_the_expected_curvature_is_least_squares(rng):
    model = random_model(rng, 1, 2)
    X, y = random_rows(rng, model, 50)
    far = model.with_vector(model.to_vector() + 2.0)
    found = observed_information(far, Rows(X, y))
    step = np.linalg.solve(expected_curvature(far, found), found.score)
    design = with_ones(X)
    least = np.linalg.lstsq(design, y, rcond=None)[0]
    assert_allclose(far.experts.coef[0] + step[:-1], least, rtol=1e-9)
    residual = y - design @ far.experts.coef[0]
    assert_allclose(step[-1], np.mean(residual**2) / far.experts.var[0] - 1, rtol=1e-9)


def test_the_expected_curvature_is_the_information_where_no_dispersion_is(rng):
    model = random_model(rng, 2, 2, family="poisson")
    found = observed_information(model, Rows(*random_rows(rng, model, 40)))
    assert_array_equal(expected_curvature(model, found), found.matrix)
