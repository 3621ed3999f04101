from dataclasses import replace

import array_api_strict as strict
import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from oracles import log_density, random_model, random_rows, responsibilities, with_ones
from refusals import refused

from otmoe.arrays import numerics
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE, reordering
from otmoe.text.errors import InvalidType

ORDERED = [family for family in FAMILIES if family != "multinomial"]


@pytest.fixture
def model(rng, family):
    return random_model(rng, 3, 2, family=family)


@pytest.fixture
def rows(rng, model):
    return random_rows(rng, model)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_experts_change_places_by_a_matrix(model, order):
    theta = model.to_vector()
    assert_allclose(reordering(model, order) @ theta, model.take(order).to_vector(), atol=1e-12)


# -- densities ---------------------------------------------------------------------------------


def test_log_density_is_the_textbook_mixture(model, rows):
    assert_allclose(model.log_density(*rows), log_density(model, *rows), rtol=1e-10, atol=1e-12)


def test_responsibilities_follow_bayes_rule(model, rows):
    assert_allclose(model.responsibilities(*rows), responsibilities(model, *rows), rtol=1e-10)


def test_a_row_far_from_every_expert_has_a_finite_log_density():
    model = MoE(
        SoftmaxGate(np.array([[1.0], [0.0]])), GaussianExperts(np.zeros((2, 1)), np.ones(2))
    )
    X, y = np.empty((2, 0)), np.array([1e6, -1e150])
    assert_allclose(model.log_density(X, y), -0.5 * np.log(2 * np.pi) - y**2 / 2)
    assert_allclose(model.responsibilities(X, y).sum(axis=1), 1)


@pytest.mark.parametrize("family", ORDERED, indirect=True)
def test_an_offset_moves_the_intercept_of_every_expert(family, model, rows):
    X, y = rows
    coef = model.experts.coef.copy()
    coef[:, 0] += 0.4
    moved = replace(model, experts=replace(model.experts, coef=coef))
    offset = np.full(len(y), 0.4)
    assert_allclose(model.log_density(X, y, offset), moved.log_density(X, y), rtol=1e-10)
    assert_allclose(model.responsibilities(X, y, offset), moved.responsibilities(X, y), rtol=1e-10)
    assert_allclose(model.predict(X, offset), moved.predict(X), rtol=1e-10)
    assert_allclose(model.quantile(X, 0.6, offset), moved.quantile(X, 0.6), rtol=1e-8)


# -- prediction --------------------------------------------------------------------------------


def test_prediction_averages_the_experts_by_the_gate(model, rows):
    X, _ = rows
    gate, mean = model.gate_prob(X), model.expert_mean(X)
    assert_allclose(gate, model.gate.prob(with_ones(X)), rtol=1e-12)
    assert_allclose(model.predict(X), np.einsum("nk,nk...->n...", gate, mean), rtol=1e-12)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9])
def test_the_quantile_inverts_the_distribution_function(rng, level):
    model = random_model(rng, 3, 2)
    X, _ = random_rows(rng, model)
    cdf = model.experts.cdf(
        model.experts.predictor(with_ones(X)), model.quantile(X, level)[:, None]
    )
    assert_allclose(np.sum(model.gate_prob(X) * cdf, axis=1), level, atol=1e-9)


def test_the_quantile_of_a_single_expert_is_its_own(rng):
    model = random_model(rng, 1, 2)
    X, _ = random_rows(rng, model)
    expected = model.predict(X) + 1.6448536269514722 * np.sqrt(model.experts.var)
    assert_allclose(model.quantile(X, 0.95), expected, rtol=1e-10)


@pytest.mark.parametrize("family", ["logistic", "poisson"], indirect=True)
@pytest.mark.parametrize("level", [0.05, 0.5, 0.95])
def test_the_quantile_of_counts_is_the_first_to_reach_the_level(model, rows, level):
    X, _ = rows
    eta, gate = model.experts.predictor(with_ones(X)), model.gate_prob(X)
    q = model.quantile(X, level)

    def cdf(y):
        return np.sum(gate * model.experts.cdf(eta, y[:, None]), axis=1)

    assert np.all(cdf(q) >= level) and np.all(cdf(q - 1) < level)


@pytest.mark.parametrize("level", [0, 1, -0.1])
def test_a_level_outside_zero_and_one_is_refused(rng, level):
    refused("not_a_level").by(random_model(rng).quantile, np.zeros((1, 2)), level)


def test_samples_follow_gate_and_experts(family, rng):
    model, n = random_model(rng, 3, 2, family=family), 30_000
    X = np.repeat([[0.2, -0.3]], n, axis=0)
    y, z = model.sample(X, rng)
    gate = model.gate_prob(X[:1])[0]
    share = np.bincount(z, minlength=3) / n
    assert np.all(np.abs(share - gate) < 5 * np.sqrt(gate * (1 - gate) / n))
    if family != "multinomial":
        for k, mean in enumerate(model.expert_mean(X[:1])[0]):
            own = y[z == k]
            assert abs(own.mean() - mean) < 5 * own.std() / np.sqrt(len(own))


# -- blocks and shapes -------------------------------------------------------------------------


def test_every_block_gives_what_its_rows_give_alone(model, rng):
    X, y = random_rows(rng, model, n=300)
    whole = np.tile(X, (700, 1)), np.tile(y, 700)
    assert len(list(numerics.row_blocks(len(whole[0]), 3))) == 2

    def everything(X, y):
        return model.log_density(X, y), model.responsibilities(X, y), model.predict(X)

    for many, few in zip(everything(*whole), everything(X, y), strict=True):
        assert_allclose(many[:300], few, rtol=1e-12)
        assert_allclose(many[-300:], few, rtol=1e-12)
    _, z = model.sample(whole[0], np.random.default_rng(0))
    prob = np.tile(model.gate_prob(X), (700, 1))
    assert_array_equal(z, numerics.sample_rows(prob, np.random.default_rng(0)))


def test_no_rows_give_no_predictions(model):
    assert model.predict(np.empty((0, 2))).shape[0] == 0
    assert model.log_density(np.empty((0, 2)), np.empty(0)).shape == (0,)


@pytest.mark.parametrize("shape", [(5, 3), (5, 1), (5,)])
def test_a_wrong_shape_is_named(rng, shape):
    refused("x_shape", features=2).by(random_model(rng).predict, np.zeros(shape))


def test_a_table_is_told_how_to_become_an_array(rng):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rng.normal(size=(3, 2)), columns=["a", "b"])
    model = random_model(rng)
    refused("x_is_a_table", InvalidType, kind="DataFrame").by(model.predict, frame)
    assert model.predict(frame.to_numpy()).shape[0] == 3


def test_alignment_takes_rows_of_other_array_libraries(model, rows):
    aligned = model.take([2, 0, 1]).aligned_to(model, strict.asarray(rows[0]))
    assert_allclose(aligned.to_vector(), model.to_vector(), rtol=1e-12, atol=1e-12)


# -- parameters and alignment ------------------------------------------------------------------


def test_vector_and_back(rng, model):
    vector = rng.normal(size=model.n_parameters)
    assert_allclose(model.with_vector(vector).to_vector(), vector, rtol=1e-12)


def test_parameters_are_counted_without_structural_zeros(rng):
    model = random_model(rng, 3, 4, columns=(0, 2))
    assert model.n_parameters == 2 * 2 + 3 * (5 + 1)


def test_rescaled_model_agrees_on_transformed_rows(rng):
    model = random_model(rng, 3, 2)
    X, y = random_rows(rng, model)
    T = np.array([[1, 0, 0], [0.4, 2, 0], [-1, 0.5, 0.2]])
    moved = with_ones(X) @ T.T
    assert_allclose(
        model.rescaled(T, 5.0, 2.0).log_density(X, 5.0 + 2.0 * y),
        model.log_density(moved[:, 1:], y) - np.log(2.0),
        rtol=1e-9,
    )


def test_renumbering_leaves_the_density_alone(rng, model, rows):
    order = [2, 0, 1]
    assert_allclose(model.take(order).log_density(*rows), model.log_density(*rows), rtol=1e-10)


def test_alignment_undoes_a_renumbering(rng, family):
    for _ in range(10):
        model = random_model(rng, 5, 2, family=family)
        X, _ = random_rows(rng, model, n=50)
        nudged = model.with_vector(model.to_vector() + 0.01 * rng.normal(size=model.n_parameters))
        aligned = nudged.take(rng.permutation(5)).aligned_to(model, X)
        assert_allclose(aligned.to_vector(), nudged.to_vector(), rtol=1e-9, atol=1e-12)


def test_alignment_needs_as_many_experts(rng):
    with refused("align_unequal", experts=2, others=3):
        random_model(rng, 2).aligned_to(random_model(rng, 3), np.zeros((1, 2)))


def test_terms_name_the_columns_of_the_design(rng):
    model = random_model(rng)
    assert model.terms == ("intercept", "x0", "x1")
    named = replace(model, feature_names=("age", "dose"))
    assert named.terms == ("intercept", "age", "dose")
