import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import log_likelihood, random_model, random_rows
from refusals import refused

from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.experts import GaussianExperts, PoissonExperts

GAUSSIAN = GaussianExperts.blank(2, 4)


@pytest.fixture
def X(rng):
    return rng.normal(size=(300, 3)) * [1e-3, 1.0, 1e4] + [5.0, -2.0, 1e6]


@pytest.fixture
def y(rng):
    return 3.0 + 50.0 * rng.normal(size=300)


@pytest.fixture
def weight(rng):
    return rng.integers(0, 4, 300).astype(float)


def everything(rows):
    """Return the one block that holds all rows."""
    return rows.block(slice(None))


# -- scale -------------------------------------------------------------------------------------


def test_standardised_rows_have_weighted_mean_zero_and_variance_one(X, y, weight):
    rows, correlation = Rows(X, y, weight).standardised(GAUSSIAN)
    block = everything(rows)
    Z = np.column_stack([block.X[:, 1:], block.y])
    assert_allclose(np.average(Z, axis=0, weights=weight), 0, atol=1e-9)
    assert_allclose(np.average(Z**2, axis=0, weights=weight), 1, rtol=1e-6)
    expected = np.einsum("ni,n,nj->ij", block.X, weight / weight.sum(), block.X)
    assert_allclose(correlation, expected, atol=1e-9)


def test_a_family_without_a_scale_keeps_its_responses(rng, X):
    y = rng.poisson(3.0, 300).astype(float)
    rows, _ = Rows(X, y).standardised(PoissonExperts.blank(2, 4))
    assert_array_equal(everything(rows).y, y)


def test_a_constant_column_becomes_zero(X, y):
    X[:, 1] = 0.1
    rows, correlation = Rows(X, y).standardised(GAUSSIAN)
    assert_allclose(everything(rows).X[:, 2], 0, atol=1e-12)
    assert_array_equal(correlation[2], 0)


def test_rows_of_weight_zero_do_not_hide_that_a_column_is_constant(rng, X, y):
    weight = np.repeat([0.0, 1.0], [260, 40])
    weight[280:] = rng.integers(0, 2, 20)
    X[:, 1] = np.where(weight > 0, 0.1, 1e6 * rng.normal(size=300))
    cut = Rows(X, y, weight, block_bytes=1)  # the first block has weight zero throughout
    rows, correlation = cut.standardised(GAUSSIAN)
    assert rows.scaling.constant == {1: 0.1}
    assert_array_equal(correlation[2], 0)


@pytest.mark.parametrize("matrix", ["transform", "inverse"])
def test_no_scaling_has_no_matrix(matrix):
    refused("no_scale").by(getattr, Scaling(), matrix)


def test_rows_of_no_weight_at_all_are_refused(X, y):
    refused("rows_without_weight").by(Rows(X, y, np.zeros(300)).standardised, GAUSSIAN)


def test_standardising_and_back_is_the_identity_on_parameters(rng, X, family):
    model = random_model(rng, 3, 3, columns=(0, 2, 3), family=family)
    y = rng.integers(0, 2, 300).astype(float)
    scaling = Rows(X, y).standardised(model.experts)[0].scaling
    there = scaling.from_user(model)
    assert np.abs(there.to_vector() - model.to_vector()).max() > 1
    assert_allclose(scaling.to_user(there).to_vector(), model.to_vector(), rtol=1e-6, atol=1e-9)


def test_the_likelihood_of_standardised_rows_is_that_of_the_rows(rng, family):
    model = random_model(rng, 2, 3, family=family)
    X, y = random_rows(rng, model)
    weight = rng.uniform(0, 2, len(y))
    rows, _ = Rows(X, y, weight).standardised(model.experts)
    found = observed_information(rows.scaling.from_user(model), rows).log_likelihood
    assert_allclose(
        found + rows.log_base(model.experts), log_likelihood(model, X, y, weight), rtol=1e-10
    )


# -- blocks ------------------------------------------------------------------------------------


def test_blocks_cover_every_row_once(X, y, weight):
    rows = Rows(X, y, weight, offset=2 * y, block_bytes=1)
    blocks = [rows.block(s) for s in rows.slices()]
    assert len(blocks) == 2 and len(rows) == 300
    assert_array_equal(np.concatenate([b.X for b in blocks])[:, 1:], X)
    assert_array_equal(np.concatenate([b.y for b in blocks]), y)
    assert_array_equal(np.concatenate([b.weight for b in blocks]), weight)
    assert_array_equal(np.concatenate([b.offset for b in blocks]), 2 * y)


def test_moments_do_not_depend_on_the_blocks(X, y, weight):
    whole, correlation = Rows(X, y, weight).standardised(GAUSSIAN)
    blocks, same = Rows(X, y, weight, block_bytes=1).standardised(GAUSSIAN)
    assert_allclose(same, correlation, atol=1e-9)
    assert_allclose(blocks.scaling.x_scale, whole.scaling.x_scale, rtol=1e-9)
    assert_allclose(blocks.scaling.y_center, whole.scaling.y_center, rtol=1e-12)


def test_single_precision_is_read_in_double(X, y):
    single = X.astype(np.float32)
    rows, _ = Rows(single, y.astype(np.float32)).standardised(GAUSSIAN)
    double, _ = Rows(single.astype(float), y.astype(np.float32).astype(float)).standardised(
        GAUSSIAN
    )
    assert everything(rows).X.dtype == everything(rows).y.dtype == np.float64
    assert_allclose(everything(rows).X, everything(double).X, rtol=1e-9, atol=1e-12)
    assert_allclose(everything(rows).y, everything(double).y, rtol=1e-9, atol=1e-12)


def test_weights_are_summed(X, y, weight):
    assert Rows(X, y).total_weight == 300
    assert Rows(X, y, weight).total_weight == weight.sum()


def test_take_picks_rows_with_all_that_belongs_to_them(X, y, weight):
    few = everything(Rows(X, y, weight, offset=-y).take(np.array([7, 3])))
    assert_array_equal(few.X[:, 1:], X[[7, 3]])
    assert_array_equal(few.y, y[[7, 3]])
    assert_array_equal(few.weight, weight[[7, 3]])
    assert_array_equal(few.offset, -y[[7, 3]])
