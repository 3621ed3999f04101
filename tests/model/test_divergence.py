from dataclasses import replace

import numpy as np
import pytest
from families import FAMILIES
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from oracles import random_model, with_ones
from refusals import refused
from scipy.special import softmax

from otmoe.arrays import numerics
from otmoe.model import divergence as transport
from otmoe.model.divergence import (
    kl,
    relaxed_divergence,
    squared_hellinger,
    transport_costs,
    transport_costs_plain,
    transport_divergence,
)
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE

COSTS = [kl, squared_hellinger]


@st.composite
def problems(draw, n_sinks=None):
    """Draw transport problems: costs and masses of all sizes, with ties and zeros among them."""
    n, L = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    K = n_sinks or draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    unit, power = draw(st.sampled_from([1.0, 1e-6, 1e12])), draw(st.sampled_from([0, 1, 6]))
    cost = unit * rng.exponential(size=(n, L, K)) ** power
    if draw(st.booleans()):
        cost = np.round(cost)  # ties
    spread = draw(st.sampled_from([0.3, 3.0, 30.0]))  # from even masses to 1e-40 beside 1
    supply, demand = (softmax(spread * rng.normal(size=(n, J)), axis=1) for J in (L, K))
    if draw(st.booleans()):
        supply, demand = np.round(4 * K * supply), np.round(4 * K * demand)  # zeros, equal sums
        supply[:, 0] += 1
        demand[:, 0] += 1
        supply, demand = (a / a.sum(axis=1, keepdims=True) for a in (supply, demand))
    return cost, supply, demand


def tolerance(cost):
    """Masses are known to rounding; this is what it may cost."""
    return 1e-14 * cost.max()


# -- transport problems ------------------------------------------------------------------------


@given(problems())
def test_costs_are_those_of_the_network_simplex(problem):
    ot = pytest.importorskip("ot")
    cost = problem[0]
    triples = zip(*problem, strict=True)
    expected = [ot.emd2(a / a.sum(), b / b.sum(), c) for c, a, b in triples]
    assert_allclose(transport_costs(*problem), expected, rtol=1e-9, atol=tolerance(cost))


@given(problems())
def test_costs_are_those_of_linear_programming(problem):
    cost = problem[0]
    found, plain = transport_costs(*problem), transport_costs_plain(*problem)
    assert_allclose(found, plain, rtol=1e-7, atol=1e-9 * cost.max())


@given(problems(n_sinks=2))
def test_two_sinks_are_a_fractional_knapsack(problem):
    for cost, supply, demand, found in zip(*problem, transport_costs(*problem), strict=True):
        # The first sink takes what it needs where that costs the least more than the second.
        left, value = demand[0], supply @ cost[:, 1]
        for source in np.argsort(cost[:, 0] - cost[:, 1], kind="stable"):
            mass = min(left, supply[source])
            left -= mass
            value += mass * (cost[source, 0] - cost[source, 1])
        assert_allclose(found, value, rtol=1e-9, atol=tolerance(cost))


@given(problems(), st.integers(0, 99))
def test_sources_and_sinks_may_change_places_and_their_order(problem, seed):
    cost, supply, demand = problem
    expected = transport_costs(*problem)
    found = transport_costs(cost.swapaxes(1, 2), demand, supply)
    assert_allclose(found, expected, rtol=1e-9, atol=tolerance(cost))
    rng = np.random.default_rng(seed)
    i, j = rng.permutation(supply.shape[1]), rng.permutation(demand.shape[1])
    found = transport_costs(cost[:, i][:, :, j], supply[:, i], demand[:, j])
    assert_allclose(found, expected, rtol=1e-9, atol=tolerance(cost))


@given(problems())
def test_a_constant_more_for_a_source_is_paid_by_all_its_mass(problem):
    cost, supply, demand = problem
    unit = cost.max()
    more = unit * np.arange(supply.shape[1])
    found = transport_costs(cost + more[:, None], supply, demand)
    expected = transport_costs(*problem) + supply @ more
    assert_allclose(found, expected, rtol=1e-9, atol=tolerance(cost + more[:, None]))


@given(problems())
def test_few_moves_are_enough(problem):
    def plain(*problem):
        raise AssertionError("more than 8 moves per source and sink")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "transport_costs_plain", plain)
        transport_costs(*problem, moves=8)


@pytest.mark.parametrize(("L", "K"), [(400, 4), (4, 400), (60, 50)])
def test_hundreds_of_sources_or_sinks(rng, L, K):
    ot = pytest.importorskip("ot")
    cost = rng.exponential(size=(3, L, K))
    supply, demand = rng.dirichlet(np.ones(L), 3), rng.dirichlet(np.ones(K), 3)
    expected = [ot.emd2(supply[i], demand[i], cost[i]) for i in range(3)]
    assert_allclose(transport_costs(cost, supply, demand), expected, rtol=1e-9)


def test_masses_that_hardly_exist_change_nothing(rng):
    cost, mass = rng.exponential(size=(50, 4, 3)), rng.dirichlet(np.ones(2), 50)
    supply = np.column_stack([mass, np.full((50, 2), 1e-130)])
    demand = np.column_stack([np.full((50, 2), 1e-130), np.ones(50)])
    expected = np.sum(mass * cost[:, :2, 2], axis=1)
    assert_allclose(transport_costs(cost, supply, demand), expected, rtol=1e-12)


def test_equal_costs_are_paid_once_and_a_mass_that_is_where_it_should_be_pays_none(rng):
    supply, demand = rng.dirichlet(np.ones(30), 20), rng.dirichlet(np.ones(7), 20)
    assert_allclose(transport_costs(np.full((20, 30, 7), 2.5), supply, demand), 2.5, rtol=1e-12)
    mass, cost = rng.dirichlet(np.full(6, 0.1), 50), rng.exponential(size=(50, 6, 6))
    cost[:, np.arange(6), np.arange(6)] = 0
    assert np.all(transport_costs(cost, mass, mass) == 0)


def test_linear_programming_serves_after_too_many_moves_and_without_numba(rng, monkeypatch):
    problem = rng.exponential(size=(9, 5, 4)), rng.dirichlet(np.ones(5), 9), np.full((9, 4), 0.25)
    expected = transport_costs(*problem)
    calls = []

    def plain(*arrays):
        calls.append(len(arrays[0]))
        return transport_costs_plain(*arrays)

    monkeypatch.setattr(transport, "transport_costs_plain", plain)
    assert_allclose(transport_costs(*problem, moves=0), expected, rtol=1e-8)
    monkeypatch.setattr(numerics, "kernels", None)
    assert_allclose(transport_costs(*problem), expected, rtol=1e-8)
    assert calls == [9, 9]


@pytest.mark.parametrize(
    ("cost", "supply", "demand", "message"),
    [
        ([[1.0, 2.0]], [[1.0]], [[0.5, 0.5]], "transport_shapes"),
        ([[[1.0, 2.0]]], [[1.0]], [[1.0]], "transport_shapes"),
        ([[[1.0, np.inf]]], [[1.0]], [[0.5, 0.5]], "cost_not_finite"),
        ([[[1.0, 2.0]]], [[1.0]], [[1.5, -0.5]], "not_masses"),
        ([[[1.0, 2.0]]], [[1.0]], [[0.5, 0.6]], "totals_differ"),
    ],
)
def test_problems_without_a_solution_are_refused(cost, supply, demand, message):
    refused(message).by(transport_costs, *map(np.array, (cost, supply, demand)))


# -- divergences -------------------------------------------------------------------------------


@pytest.fixture(params=sorted(FAMILIES))
def models(request, rng):
    """Two models of a family with three and four experts, and rows."""
    f, g = (random_model(rng, K, n_features=2, family=request.param) for K in (3, 4))
    return f, g, rng.normal(size=(60, 2))


@pytest.fixture(params=COSTS)
def cost(request):
    return request.param


def test_divergences_are_means_over_rows(models, cost):
    f, g, X = models
    D = with_ones(X)
    costs, supply, demand = cost(f.experts, g.experts, D), f.gate_prob(X), g.gate_prob(X)
    relaxed = np.mean([pi @ c.min(axis=1) for pi, c in zip(supply, costs, strict=True)])
    exact = transport_costs_plain(costs, supply, demand).mean()
    assert relaxed_divergence(f, g, X, cost) == pytest.approx(relaxed, rel=1e-10)
    assert transport_divergence(f, g, X, cost) == pytest.approx(exact, rel=1e-7)


def test_the_relaxed_divergence_is_a_lower_bound(models, cost):
    f, g, X = models
    assert 0 < relaxed_divergence(f, g, X, cost) < transport_divergence(f, g, X, cost)


def test_the_relaxed_divergence_ignores_the_gate_of_g_and_the_exact_one_does_not(models, rng):
    f, g, X = models
    other = replace(g, gate=g.gate.with_vector(rng.normal(size=g.gate.n_parameters)))
    assert relaxed_divergence(f, g, X) == relaxed_divergence(f, other, X)
    assert transport_divergence(g, other, X) > 1e-3
    assert relaxed_divergence(g, other, X) < 1e-14


def test_a_model_is_at_no_distance_from_itself_nor_from_itself_with_an_expert_split(models, cost):
    f, _, X = models
    halves = np.vstack([f.gate.coef, f.gate.coef[-1:]])
    halves[-2:, 0] -= np.log(2)
    split = MoE(SoftmaxGate(halves - halves[-1]), f.experts.take([0, 1, 2, 2]))
    assert relaxed_divergence(f, f, X, cost) == pytest.approx(0, abs=1e-14)
    assert transport_divergence(f, f, X, cost) == pytest.approx(0, abs=1e-14)
    assert transport_divergence(f, split, X, cost) == pytest.approx(0, abs=1e-13)
    assert transport_divergence(split, f, X, cost) == pytest.approx(0, abs=1e-13)


@pytest.mark.parametrize("divergence", [relaxed_divergence, transport_divergence])
def test_the_order_of_experts_does_not_matter(models, cost, divergence):
    f, g, X = models
    found = divergence(f.take([2, 0, 1]), g.take([3, 1, 0, 2]), X, cost)
    assert found == pytest.approx(divergence(f, g, X, cost), rel=1e-10)


def test_a_bounded_and_symmetric_cost_gives_a_bounded_and_symmetric_divergence(models):
    f, g, X = models
    f = replace(f, experts=f.experts.rescaled(30 * np.eye(3)))  # far from g
    there = transport_divergence(f, g, X, squared_hellinger)
    assert 0.1 < there <= 1
    assert there == pytest.approx(transport_divergence(g, f, X, squared_hellinger), rel=1e-10)


def test_any_function_of_experts_and_rows_is_a_cost(models):
    f, g, X = models

    def twice(source, target, design):
        return 2 * kl(source, target, design)

    found, once = transport_divergence(f, g, X, twice), transport_divergence(f, g, X)
    assert found == pytest.approx(2 * once, rel=1e-12)


@pytest.mark.parametrize("divergence", [relaxed_divergence, transport_divergence])
@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_array_libraries_give_the_same(models, cost, divergence, library):
    xp = pytest.importorskip(library)
    f, g, X = models
    found = divergence(f, g, xp.asarray(X), cost)
    assert isinstance(found, float)
    assert found == pytest.approx(divergence(f, g, X, cost), rel=1e-10)


def test_a_hundred_thousand_rows_are_one_call(rng):
    f, g = (random_model(rng, K, n_features=2) for K in (3, 4))
    X = np.tile(rng.normal(size=(500, 2)), (200, 1))
    for divergence in (relaxed_divergence, transport_divergence):
        assert divergence(f, g, X) == pytest.approx(divergence(f, g, X[:500]), rel=1e-10)


def test_costs_of_many_experts_are_held_for_some_rows_at_a_time(rng):
    f, g = random_model(rng, 2000), random_model(rng, 5)
    largest = 0

    def watched(source, target, design):
        nonlocal largest
        costs = kl(source, target, design)
        largest = max(largest, costs.nbytes)
        return costs

    relaxed_divergence(f, g, rng.normal(size=(900, 2)), watched)
    assert largest < 2**22


@pytest.mark.parametrize("divergence", [relaxed_divergence, transport_divergence])
def test_models_that_cannot_be_compared_are_refused(rng, divergence):
    f, X = random_model(rng), rng.normal(size=(5, 2))
    with refused("divergence_families", family="gaussian", other="poisson"):
        divergence(f, random_model(rng, family="poisson"), X)
    refused("divergence_shapes").by(divergence, f, random_model(rng, n_features=3), X)
    refused("x_shape", features=2).by(divergence, f, f, X[:, :1])
    refused("x_shape").by(divergence, f, f, X[:0])
