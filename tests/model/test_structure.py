"""Structures: what C says, and weighted fits within it against a general-purpose optimiser."""

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from otmoe.model.experts import FAMILIES as KINDS
from otmoe.model.experts import GaussianExperts
from otmoe.model.free import Free
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.structure import LOG_OF_NOTHING, Structure, takes_zeros

STRUCTURES = {
    "columns": Structure(columns=((0, 1),)),
    "common": Structure(common=(2,)),
    "common intercept": Structure(common=(0, 2)),
    "standardised": Structure(common=(0,), origin=(1.0, 0.5, -2.0)),
    "own": Structure(columns=((0, 1), (0, 2))),
    "own and common": Structure(columns=((0, 1, 2), (0, 2)), common=(2,)),
    "constants": Structure(columns=((0,),)),
    "origin": Structure(columns=((1, 2),)),
    "one at the origin": Structure(columns=((1, 2), (0, 2)), common=(2,)),
    "standardised origin": Structure(columns=((1, 2), (0, 1)), origin=(1.0, 0.5, -2.0)),
    "standardised, all": Structure(
        columns=((1, 2), (0, 1)), common=(0, 1), origin=(1.0, 0.5, -2.0)
    ),
    "variance": Structure(common=(1,), common_variance=True),
}


@pytest.fixture(params=list(STRUCTURES))
def structure(request):
    return STRUCTURES[request.param]


def drawn(family, rng, n=60):
    experts = FAMILIES[family].make(rng, 2, 3)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = experts.sample(experts.predictor(X), rng)[:, 0]
    return experts, X, experts.observe(y.astype(float)), rng.uniform(0.2, 1, (n, 2))


def test_c_has_full_rank_and_its_span_is_what_the_structure_allows(family, structure, rng):
    experts = FAMILIES[family].make(rng, 2, 3)
    C = structure.basis(experts)
    assert C.shape[0] == experts.n_parameters and np.linalg.matrix_rank(C) == C.shape[1]
    inside = experts.with_vector(C @ rng.normal(size=C.shape[1]))
    assert_allclose(structure.projected(inside).to_vector(), inside.to_vector(), atol=1e-12)
    once = structure.projected(experts)
    if structure.origin is None:  # on the user's scale, what is right stays bit by bit
        assert_array_equal(structure.projected(once).to_vector(), once.to_vector())
    outside = once.to_vector() - C @ np.linalg.lstsq(C, once.to_vector())[0]
    assert np.abs(outside).max() < 1e-12


def test_the_common_intercept_is_what_experts_predict_at_the_origin(rng):
    structure = STRUCTURES["standardised"]
    coef = (structure.coefficients(2, 1, 3) @ rng.normal(size=5)).reshape(2, 3)
    at_origin = coef @ structure.origin
    assert_allclose(at_origin[0], at_origin[1])
    assert abs(coef[0, 0] - coef[1, 0]) > 1e-3


def test_an_intercept_that_is_left_out_is_zero_at_the_origin(rng):
    structure = STRUCTURES["standardised origin"]
    coef = (structure.coefficients(2, 1, 3) @ rng.normal(size=4)).reshape(2, 3)
    assert abs(coef[0] @ structure.origin) < 1e-12 and abs(coef[0, 0]) > 1e-3
    assert_array_equal(structure.at(None).coefficients(2, 1, 3).any(axis=1), [0, 1, 1, 1, 1, 0])
    assert structure.through_origin and not Structure(columns=((0, 1), (0,))).through_origin


def test_responses_have_columns_of_their_own(rng):
    structure = Structure(columns=(((0, 1), (1, 2)), ((0,), (0, 1, 2))), common=(1,))
    assert structure.sets == structure.columns and structure.labelled
    C = structure.coefficients(2, 2, 3)
    free = C.any(axis=1).reshape(2, 2, 3).astype(int)
    assert_array_equal(free, [[[1, 1, 0], [0, 1, 1]], [[1, 0, 0], [1, 1, 1]]])
    assert C.shape[1] == 7  # the slope of column 1 is one number for the second response
    assert structure.relaxed().columns == (((0, 1), (0, 1, 2)),)
    assert structure.take([1, 0]).columns == structure.columns[::-1]
    assert structure.seen(0, 3) == (0, 1, 2) and structure.seen(0, 3, 1) == (1, 2)
    alike = Structure(columns=(((0, 1), (0, 1)),))  # is what needs no word about responses
    assert alike == Structure(columns=((0, 1),)) and alike.restricts(3)
    experts = KINDS["gaussian+poisson"](rng.normal(size=(2, 2, 3)), np.ones((2, 1)))
    found = structure.projected(experts).coef
    assert_array_equal(found != 0, free == 1)
    assert found[0, 1, 1] == found[1, 1, 1] and found[0, 0, 1] == experts.coef[0, 0, 1]


def test_a_weighted_fit_is_the_maximum_over_what_is_free(family, structure, rng):
    experts, X, response, weight = drawn(family, rng)
    found = structure.fit(experts, X, response, weight, ridge=0.5, n_steps=200)
    penalty = experts.penalty_matrix(0.5)
    C = structure.basis(experts)

    def loss(psi):
        at = experts.with_vector(C @ psi)
        log_prob = at.expected_log_prob(at.predictor(X), response)
        theta = at.to_vector()
        return -np.sum(weight * log_prob) + 0.5 * theta @ penalty @ theta

    start = np.linalg.lstsq(C, found.to_vector())[0]
    best = minimize(loss, start + rng.normal(0, 0.1, len(start)), method="BFGS", tol=1e-9)
    assert loss(start) <= best.fun + 1e-2  # a fit of starts stops a thousandth of a nat below
    assert_allclose(start, best.x, atol=0.1)


def test_a_step_of_gaussian_experts_never_loses(structure, rng):
    experts, X, response, weight = drawn("gaussian", rng)
    experts, before = structure.projected(experts), -np.inf
    for _ in range(30):
        log_prob = experts.expected_log_prob(experts.predictor(X), response)
        value = np.sum(weight * log_prob)
        assert value >= before - 1e-10
        before = value
        experts = structure.step(experts, experts.statistics(X, response, weight))
    if structure.common_variance:
        assert experts.var[0] == experts.var[1]


def test_one_step_brings_experts_into_the_structure(family, structure, rng):
    experts, X, response, weight = drawn(family, rng)
    found = structure.step(experts, experts.statistics(X, response, weight), ridge=0.5)
    assert_allclose(found.to_vector(), structure.projected(found).to_vector(), atol=1e-12)


def test_a_step_without_restrictions_is_that_of_free_experts(family, rng):
    experts, X, response, weight = drawn(family, rng)
    sums = experts.statistics(X, response, weight)
    found = Structure().step(experts, sums, ridge=0.5)
    assert_allclose(found.to_vector(), experts.step(sums, ridge=0.5).to_vector(), atol=1e-9)


def test_orders():
    mass = np.array([1.0, 3.0, 2.0])
    assert Structure().order(mass).tolist() == [1, 2, 0]
    own = Structure(columns=((0, 1), (0, 2), (0, 1)), names=("a", "b", "c"))
    assert own.order(mass).tolist() == [2, 1, 0]  # the heavier first of those that are alike
    assert own.labelled and not own.relaxed().labelled
    assert own.relaxed().columns == ((0, 1, 2),)
    assert own.take([1, 0]).columns == ((0, 2), (0, 1)) and own.take([1, 0]).names == ("b", "a")
    assert Structure(columns=((2, 1),)).seen(5, 3) == (1, 2)
    assert not Structure(columns=((0, 1, 2),)).restricts(3)


def test_experts_are_aligned_to_those_that_see_the_same_columns(rng):
    X = rng.normal(size=(50, 2))
    structure = Structure(columns=((0, 1), (0, 2)))
    coef = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    one = MoE(SoftmaxGate.blank(2, 3), GaussianExperts(coef, np.ones(2)), structure=structure)
    other = MoE(
        SoftmaxGate.blank(2, 3),
        GaussianExperts(np.array([[5.0, 1.0, 0.0], [0.0, 0.0, -1.0]]), np.ones(2)),
        structure=structure,
    )
    assert other.order_like(one, X).tolist() == [0, 1]
    assert other.take([1, 0]).order_like(one, X).tolist() == [1, 0]
    assert one.n_free == 3 + 2 * 2 + 2 and one.n_parameters == 3 + 2 * 3 + 2


# -- zero experts --------------------------------------------------------------------------------


@pytest.fixture(params=["poisson", "negative_binomial"])
def with_zero(request, rng):
    structure = Structure(columns=((0, 1, 2), (0, 2), ()), common=(2,), common_variance=True)
    experts = FAMILIES[request.param].make(rng, 3, 3)
    gate = SoftmaxGate(np.array([[0.3, 1.0, 0.0], [0.1, 0.0, -1.0], [0.0, 0.0, 0.0]]))
    return MoE(gate, structure.projected(experts), structure=structure)


def test_a_zero_expert_has_no_parameters(with_zero, rng):
    model, E = with_zero, with_zero.experts.n_constant
    assert model.zeros == [2] and model.n_free == 6 + 4 + E
    assert_array_equal(model.experts.coef[2], [LOG_OF_NOTHING, 0, 0])
    free = Free.of(model)
    psi = free.psi(model.to_vector())
    assert_allclose(free.point(psi), model.to_vector(), atol=1e-12)
    moved = model.with_vector(free.point(psi + rng.normal(size=len(psi))))
    assert_array_equal(moved.experts.coef[2], model.experts.coef[2])
    assert_allclose(moved.tidied().to_vector(), moved.to_vector(), atol=1e-12)
    assert_array_equal(model.held, ~np.any(model.basis != 0, axis=1) & _of_expert(model, 2))
    assert not np.any(Ridge(1.0, 1.0).matrix(model)[model.held])


def _of_expert(model, k):
    K, Q, p, E = 3, model.experts.n_linear, 3, model.experts.n_constant
    owner = np.append(np.repeat(np.arange(K), Q * p), np.tile(np.arange(K), E))
    return np.append(np.zeros(model.gate.n_parameters, dtype=bool), owner == k)


def test_a_zero_expert_is_a_point_mass(with_zero):
    X = np.column_stack([np.ones(4), np.linspace(-2, 2, 8).reshape(4, 2)])
    experts = with_zero.experts
    assert_array_equal(np.exp(experts.log_prob(X, np.zeros(4))[:, 2]), 1.0)
    assert np.all(np.exp(experts.log_prob(X, np.ones(4))[:, 2]) < 1e-100)
    eta = experts.predictor(X)
    assert_array_equal(experts.cdf(eta, np.zeros((4, 1)))[:, 2], 1.0)
    assert_array_equal(experts.quantile(eta, 0.999)[:, 2], 0)
    cost = experts.kl_cost(X, experts)
    mean = experts.response(eta).mean
    assert_allclose(cost[:, 2, 2], 0, atol=1e-12)
    if experts.family == "poisson":
        assert_allclose(cost[:, 2, :2], mean[:, :2], rtol=1e-9)
    assert np.all(cost[:, :2, 2] > 200 * mean[:, :2])


def test_a_step_leaves_a_zero_expert_where_it_is(with_zero, rng):
    X = np.column_stack([np.ones(50), rng.normal(size=(50, 2))])
    response = with_zero.experts.observe(rng.poisson(2.0, 50).astype(float))
    weight = rng.uniform(0.1, 1, (50, 3))
    sums = with_zero.experts.statistics(X, response, weight)
    found = with_zero.structure.step(with_zero.experts, sums, ridge=0.1)
    assert_array_equal(found.coef[2], with_zero.experts.coef[2])
    assert np.all(found.coef[0] != with_zero.experts.coef[0])
    if found.n_constant:
        assert_allclose(found.phi[:2], found.phi[0])
        assert found.phi[2] == 1.0


def test_search_may_let_experts_see_all_but_a_zero_expert(with_zero):
    relaxed = with_zero.structure.relaxed()
    assert relaxed.columns == ((0, 1, 2), (0, 1, 2), ())
    assert_array_equal(relaxed.order(np.array([1.0, 2.0, 9.0])), [1, 0, 2])
    assert takes_zeros(type(with_zero.experts))
    numbers = [kind for kind in KINDS.values() if kind.classifies or not kind.discrete]
    assert len(numbers) > 4 and not any(map(takes_zeros, numbers))
