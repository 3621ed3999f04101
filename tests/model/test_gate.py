import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import gate_objective, jacobian, with_ones
from scipy import optimize, special

from otmoe.arrays.numerics import weighted_gram, weighted_sum
from otmoe.model.gate import SoftmaxGate

N, P, K = 150, 4, 3
every_choice_of_columns = pytest.mark.parametrize("columns", [None, (0, 2), (0,)])


@pytest.fixture
def X(rng):
    return with_ones(rng.normal(size=(N, P - 1)))


@pytest.fixture
def target(rng):
    """Soft labels, rows of unequal weight."""
    return rng.dirichlet(np.ones(K), N) * rng.uniform(0, 3, (N, 1))


def random_gate(rng, columns=None):
    gate = SoftmaxGate.blank(K, P, columns)
    return gate.with_vector(rng.normal(size=gate.n_parameters))


def used(X, columns):
    return X if columns is None else X[:, columns]


# -- probabilities -----------------------------------------------------------------------------


def test_probabilities_are_the_softmax(rng, X):
    gate = random_gate(rng)
    expected = special.log_softmax(X @ gate.coef.T, axis=1)
    assert_allclose(gate.log_prob(X), expected, rtol=1e-12)
    assert_allclose(gate.prob(X), np.exp(expected), rtol=1e-12)


def test_taking_experts_renumbers_probabilities_and_ends_in_zero(rng, X):
    gate = random_gate(rng)
    order = [2, 0, 1]
    taken = gate.take(order)
    assert_allclose(taken.prob(X), gate.prob(X)[:, order], rtol=1e-12)
    assert_array_equal(taken.coef[-1], 0)
    assert_allclose(taken.centred, gate.centred[order], atol=1e-14)


def test_rescaled_gate_agrees_on_transformed_rows(rng, X):
    gate, T = random_gate(rng), rng.normal(size=(P, P))
    assert_allclose(gate.rescaled(T).prob(X), gate.prob(X @ T.T), rtol=1e-9)


@every_choice_of_columns
def test_vector_holds_the_free_coefficients_only(rng, columns):
    gate = SoftmaxGate.blank(K, P, columns)
    vector = rng.normal(size=gate.n_parameters)
    moved = gate.with_vector(vector)
    assert vector.size == (K - 1) * used(np.ones((1, P)), columns).shape[1]
    assert_array_equal(moved.to_vector(), vector)
    assert np.count_nonzero(moved.coef) == vector.size
    assert_array_equal(moved.coef[-1], 0)


# -- the centred ridge -------------------------------------------------------------------------


def test_penalty_depends_neither_on_labels_nor_on_the_reference(rng):
    gate = random_gate(rng)
    for order in ([1, 2, 0], [2, 1, 0], [0, 2, 1]):
        assert_allclose(gate.take(order).penalty(0.7), gate.penalty(0.7), rtol=1e-12)


@every_choice_of_columns
def test_penalty_matrix_is_the_hessian_of_the_penalty(rng, columns):
    gate = random_gate(rng, columns)
    v = gate.to_vector()
    assert_allclose(gate.penalty(0.7), 0.5 * v @ gate.penalty_matrix(0.7) @ v, rtol=1e-12)


# -- fitting -----------------------------------------------------------------------------------


@every_choice_of_columns
@pytest.mark.parametrize("alpha", [0.0, 0.3, 30.0])
def test_fit_agrees_with_a_general_optimiser(X, target, columns, alpha):
    blank = SoftmaxGate.blank(K, P, columns)
    gate = blank.fit(X, target, alpha=alpha)
    problem = blank.to_vector(), (used(X, columns), target, alpha), "BFGS"
    best = optimize.minimize(gate_objective, *problem, jac=True, options={"gtol": 1e-8})
    assert_allclose(gate.to_vector(), best.x, atol=1e-6)
    assert np.count_nonzero(gate.coef) == gate.n_parameters


def test_fit_starts_anywhere(rng, X, target):
    far = SoftmaxGate.blank(K, P).with_vector(10 * rng.normal(size=2 * P))
    expected = SoftmaxGate.blank(K, P).fit(X, target, alpha=0.1)
    assert_allclose(far.fit(X, target, alpha=0.1).coef, expected.coef, atol=1e-5)


def test_an_intercept_only_gate_gives_the_weighted_shares(X, target):
    gate = SoftmaxGate.blank(K, P, (0,)).fit(X, target)
    assert_allclose(gate.prob(X[:1])[0], target.sum(axis=0) / target.sum(), rtol=1e-8)


def test_renumbering_the_targets_renumbers_the_fit(X, target):
    blank, order = SoftmaxGate.blank(K, P), [2, 0, 1]
    gate = blank.fit(X, target, alpha=2.0)
    found = blank.fit(X, target[:, order], alpha=2.0)
    assert_allclose(found.centred, gate.centred[order], atol=1e-7)


def test_the_ridge_keeps_a_separated_gate_finite(X):
    target = np.column_stack([X[:, 1] > 0, X[:, 1] <= 0]).astype(float)
    small, large = (SoftmaxGate.blank(2, P).fit(X, target, alpha=a) for a in (0.01, 1.0))
    assert 0 < large.coef[0, 1] < small.coef[0, 1] < 1e3
    assert_array_equal(small.prob(X).argmax(axis=1), target.argmax(axis=1))


@every_choice_of_columns
def test_statistics_are_the_gradient_and_hessian(rng, X, target, columns):
    gate = random_gate(rng, columns)
    prob, weight = gate.prob(X), target.sum(axis=1)
    design = gate.design(X)
    linear = weighted_sum(design, target - weight[:, None] * prob)
    found = gate.assemble(linear, weighted_gram(design, gate.pair_weights(prob, weight)))

    def gradient(v):
        return -gate_objective(v, used(X, columns), target, 0.0)[1]

    assert_allclose(found.score, gradient(gate.to_vector()), rtol=1e-9)
    assert_allclose(found.information, -jacobian(gradient, gate.to_vector()), atol=1e-6)


@pytest.mark.parametrize("logit", [-700.0, -40.0, 25.0])
def test_a_step_out_of_saturation_is_bounded_and_leads_upwards(X, target, logit):
    # Every probability is all but 0 or 1 here, and the targets are not.
    gate = SoftmaxGate(np.array([[logit, 0, 0, 0], [0.5 * logit, 1, 0, 0], [0, 0, 0, 0.0]]))
    sums = gate.statistics(X, target)
    moved = gate.step(sums)
    assert np.all(np.linalg.norm(moved.coef - gate.coef, axis=1) <= 30 * (1 + 1e-12))
    assert sums.score @ (moved.to_vector() - gate.to_vector()) >= 0
