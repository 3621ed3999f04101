"""The one-shot aggregators beside the reduction, each against what its formula says."""

from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    best_experts,
    gap,
    log_density,
    messages,
    nearby,
    plan_cost,
    random_model,
    relaxed_cost,
    transport_cost,
)
from refusals import refused
from scipy import special

from otmoe import LocalModel, aggregate, simulate
from otmoe.aggregation import METHODS, methods
from otmoe.aggregation.greedy import greedy_labels, parts
from otmoe.aggregation.methods import greedy, middle
from otmoe.aggregation.problem import prepare
from otmoe.likelihood.fit import em
from otmoe.model.ensemble import Ensemble
from otmoe.model.gate import SoftmaxGate
from otmoe.text.sentences import Status

# The result holds the warnings; test_problem.py checks that they are also given.
pytestmark = pytest.mark.filterwarnings("ignore:aggregate:UserWarning")

WEIGHT = np.array([1.0, 4.0, 2.5, 0.5])


@pytest.fixture
def X(rng):
    return rng.normal(size=(60, 2)) * [0.7, 1.4] + 0.3


def sites(rng, family, noise=0.1, n_experts=2, n_sites=4):
    """Draw models around a common one, their experts in the same order."""
    truth = random_model(rng, n_experts, 2, family=family)
    return [nearby(rng, truth, noise) for _ in range(n_sites)]


def mean_model(models, weight):
    """Return the weighted means of all parameters, expert by expert."""
    share = weight / weight.sum()

    def mean(get):
        return sum(w * get(model) for w, model in zip(share, models, strict=True))

    experts = models[0].experts
    means = {
        f.name: mean(lambda model, name=f.name: getattr(model.experts, name))
        for f in fields(experts)
    }
    gate = SoftmaxGate(mean(lambda model: model.gate.coef), models[0].gate.columns)
    return replace(models[0], gate=gate, experts=replace(experts, **means))


def test_every_method_gives_one_kind_of_result(rng, family, X):
    models = sites(rng, family)
    for method in METHODS:
        result = aggregate(messages(models, 50 * WEIGHT), X, method=method)
        chosen = {c.method for c in result.candidates} if method == "auto" else {method}
        assert result.method in chosen and result.converged and result.status
        assert result.warnings == () and len(result.sites) == 4
        if method == "ensemble":
            assert result.cost == 0 and result.sites[0].mass is None
            continue
        experts = result.model.experts
        assert_allclose(result.cost, relaxed_cost(models, WEIGHT, experts, X), rtol=1e-9)
        total = sum(record.weight * record.mass.sum(axis=0) for record in result.sites)
        assert_allclose(total.sum(), 1, rtol=1e-12)
        assert np.all(np.diff(total) <= 1e-12)
        assert len(result.trace) == 0 or method in ("reduction", "gram", "kl", "auto")


def test_the_reduction_costs_least(rng, family, X):
    sent = messages(sites(rng, family, noise=0.4), WEIGHT)
    costs = [aggregate(sent, X, method=name).cost for name in METHODS if name != "ensemble"]
    assert aggregate(sent, X, method="reduction").cost <= min(costs) * (1 + 1e-9)


# -- averages ----------------------------------------------------------------------------------


def test_weighted_average_is_the_mean_of_every_parameter(rng, family, X):
    models = sites(rng, family)
    found = aggregate(messages(models, WEIGHT), X, method="weighted_average").model
    expected = mean_model(models, WEIGHT)
    assert gap(found.aligned_to(expected, X), expected) < 1e-12
    naive = mean_model(models, np.ones(4))
    assert gap(expected, naive) > 0.01  # weights make a difference


def test_aligned_average_undoes_permutations_of_experts(rng, family, X):
    for _ in range(5):
        models = sites(rng, family, n_experts=3, noise=0.02)
        shuffled = [model.take(rng.permutation(3)) for model in models]
        found = aggregate(messages(shuffled, WEIGHT), X, method="aligned_average").model
        expected = mean_model(models, WEIGHT)
        assert gap(found.aligned_to(expected, X), expected) < 1e-12


def test_weighted_average_takes_experts_as_they_come(rng, X):
    models = sites(rng, "gaussian")
    swapped = [models[0].take([1, 0]), *models[1:]]
    found = aggregate(messages(swapped, WEIGHT), X, method="weighted_average").model
    expected = mean_model(swapped, WEIGHT)
    assert gap(found.aligned_to(expected, X), expected) < 1e-12
    assert gap(expected, mean_model(models, WEIGHT)) > 0.05


@pytest.mark.parametrize("method", ["weighted_average", "aligned_average"])
def test_averages_need_equal_numbers_of_experts(rng, X, method):
    models = [random_model(rng, K, 2) for K in (2, 2, 3)]
    with refused("average_unequal", site="site 2", experts=3, wanted=2):
        aggregate(messages(models), X, n_experts=2, method=method)
    with refused("average_unequal", experts=2, wanted=3) as caught:
        aggregate(messages(models), X, n_experts=3, method=method)
    assert caught.value.facts["site"] in ("site 0", "site 1")
    with refused("average_unequal", site="site 2", experts=3, wanted=2):
        aggregate(messages(models), X, method=method)  # the median of the sites'


def test_the_columns_of_gates_are_kept_where_all_agree(rng, X):
    for method in METHODS:
        models = [random_model(rng, 2, 2, columns=(0, 2)) for _ in range(3)]
        model = aggregate(messages(models), X, method=method).model
        if method == "ensemble":
            continue
        assert model.gate.columns == (0, 2)
        assert_array_equal(model.gate.coef[:, 1], 0)


def test_gates_of_different_columns_are_merged_over_all_of_them(rng, X):
    truth = random_model(rng, 2, 2)
    models = [
        replace(truth, gate=SoftmaxGate(truth.gate.coef * keep, columns))
        for columns, keep in [((0, 1), [1, 1, 0]), ((0, 2), [1, 0, 1])]
    ]
    for method in ("reduction", "greedy", "weighted_average", "aligned_average"):
        gate = aggregate(messages(models), X, method=method).model.gate
        assert gate.columns in (None, (0, 1, 2))
        assert np.all(gate.coef[:-1] != 0)


# -- the middle --------------------------------------------------------------------------------


def test_middle_is_the_site_that_is_cheapest_to_move_to(rng, family):
    X = rng.normal(size=(12, 2))
    for _ in range(3):
        models = [random_model(rng, K, 2, family=family) for K in (2, 2, 1, 2)]
        costs = [
            sum(w * transport_cost(f, g, X) for w, f in zip(WEIGHT, models, strict=True))
            for g in models
        ]
        costs[2] = np.inf  # has one expert, and two are wanted
        best = int(np.argmin(costs))
        result = aggregate(messages(models, WEIGHT), X, method="middle")
        assert gap(result.model.aligned_to(models[best], X), models[best]) < 1e-12
        assert result.status == Status.MIDDLE(site=f"site {best}", cost=costs[best] / WEIGHT.sum())


def test_middle_of_many_is_found_on_few_points_first(rng):
    X = rng.normal(size=(70, 2))
    models = sites(rng, "gaussian", noise=0.3, n_sites=5)
    problem = prepare(messages(models), X)
    whole = middle(problem, np.random.default_rng(0))
    few = middle(problem, np.random.default_rng(0), n_problems=1)  # that is, 50 points
    assert gap(few.model, whole.model) < 1e-12
    assert few.status.facts["cost"] != whole.status.facts["cost"]


def test_middle_needs_a_site_of_the_right_size(rng, X):
    sent = messages([random_model(rng, 2, 2) for _ in range(3)])
    refused("no_middle", experts=3).by(aggregate, sent, X, n_experts=3, method="middle")


# -- greedy merging ----------------------------------------------------------------------------


def test_the_cost_of_a_gaussian_merger_is_that_of_the_barycentre(rng, X):
    models = [random_model(rng, K, 2) for K in (1, 2)]
    weight = np.array([1.0, 3.0])
    now = parts(prepare(messages(models, weight), X).sources)
    order = prepare(messages(models, weight), X).models
    weight = weight if order[0].n_experts == 1 else weight[::-1]
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        # With a single target, everything else being sent to itself for nothing.
        both = [k for k in range(3) if k not in (i, j)]
        everyone = type(models[0].experts).concat([model.experts for model in order])
        start = type(everyone).concat([everyone.take([i]), everyone.take(both)])
        plan = np.zeros((len(X), 3), dtype=int)
        plan[:, both] = 1
        best = best_experts(order, weight, start, X, plan)
        expected = plan_cost(order, weight, best, X, plan)
        assert_allclose(now.costs(i, np.array([j]))[0], expected, rtol=1e-6)
        merged = now.merged(i, j)
        assert_allclose(merged.dispersion[i], best.var[0], rtol=1e-4)


def test_costs_of_mergers_do_not_depend_on_the_batch(rng, X):
    models = sites(rng, "gaussian", noise=1.0)
    now = parts(prepare(messages(models), X).sources)
    others = np.arange(1, 8)
    assert_array_equal(now.costs(0, others, chunk=1), now.costs(0, others))


@pytest.mark.parametrize("method", ["greedy", "reduction"])
def test_one_expert_is_the_projection_of_all(rng, family, X, method):
    models = [random_model(rng, K, 2, family=family) for K in (2, 1, 3)]
    weight = np.array([1.0, 3.0, 0.5])
    result = aggregate(messages(models, weight), X, n_experts=1, method=method)
    plan = np.zeros((len(X), 6), dtype=int)
    best = best_experts(models, weight, models[1].experts, X, plan)
    assert_allclose(result.model.experts.to_vector(), best.to_vector(), atol=1e-5)
    assert result.cost <= relaxed_cost(models, weight, best, X) + 1e-11


def test_greedy_merging_finds_the_experts_that_belong_together(rng, family, X):
    while True:
        models = sites(rng, family, noise=0.02)
        if relaxed_cost([models[0].take([0])], [1], models[0].take([1]).experts, X) > 0.3:
            break
    shuffled = [model.take(rng.permutation(2)) for model in models]
    result = aggregate(messages(shuffled, WEIGHT), X, method="greedy")
    expected = mean_model(models, WEIGHT)
    assert gap(result.model.aligned_to(expected, X), expected) < 0.05
    labels, experts = greedy_labels(prepare(messages(shuffled, WEIGHT), X).sources, 2)
    assert len(labels) == 8 and experts.n_experts == 2
    assert_array_equal(np.bincount(labels), [4, 4])
    assert result.status.code == "greedily_merged"
    assert (result.status.facts["sources"], result.status.facts["experts"]) == (8, 2)


def test_greedy_merging_keeps_all_where_there_is_nothing_to_merge(rng, family, X):
    models = [random_model(rng, 2, 2, family=family) for _ in range(2)]
    assert aggregate(messages(models), X, n_experts=4, method="greedy").cost < 1e-12
    result = aggregate(messages(models), X, n_experts=6, method="greedy")
    assert result.cost < 1e-12 and result.model.n_experts == 6
    assert np.all(np.isfinite(result.model.gate.coef))


def test_greedy_merging_of_too_many_is_refused(rng, X):
    problem = prepare(messages(sites(rng, "gaussian", n_sites=3)), X)
    assert greedy(problem, rng, most=6).model.n_experts == 2
    refused("greedy_too_many", experts=6).by(greedy, problem, rng, most=5)


# -- the ensemble ------------------------------------------------------------------------------


def test_ensemble_asks_every_site(rng, family, X):
    models = [random_model(rng, K, 2, family=family) for K in (2, 1, 3)]
    weight = np.array([1.0, 3.0, 0.5])
    result = aggregate(messages(models, weight), X, method="ensemble")
    assert isinstance(result.model, Ensemble) and result.model.n_experts == 6
    y = models[0].sample(X, rng)[0].astype(float)
    each = [np.log(w / 4.5) + log_density(m, X, y) for w, m in zip(weight, models, strict=True)]
    assert_allclose(result.model.log_density(X, y), special.logsumexp(each, axis=0), rtol=1e-10)
    assert result.status == Status.KEPT_ALL(experts=6, models=3)


def test_where_local_models_agree_no_further_starts_are_tried(monkeypatch):
    data = simulate(8000, 2, 3, random_state=0)
    start = em(data.X, data.y, 2, random_state=0).model
    sites = [
        LocalModel.from_fit(em(data.X[m::4], data.y[m::4], init=start), f"site {m}")
        for m in range(4)
    ]
    found = aggregate(sites, data.X[:1000], method="reduction")
    assert found.status.facts["starts"] == found.status.facts["same"] == 3
    monkeypatch.setattr(methods, "_EXPLAINED", 0.0)
    usual = aggregate(sites, data.X[:1000], method="reduction")
    assert usual.status.facts["starts"] > 3
    assert_allclose(found.model.to_vector(), usual.model.to_vector(), rtol=1e-6, atol=1e-6)
    monkeypatch.undo()
    few = [replace(site, n_samples=site.n_samples / 1000) for site in sites]
    assert aggregate(few, data.X[:1000], method="reduction").status.facts["starts"] > 3
