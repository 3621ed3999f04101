from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from families import FAMILIES
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles import log_likelihood as summed_log_likelihood
from oracles import nearby, random_model, random_rows
from refusals import refused

from otmoe import MoEClassifier, MoERegressor, simulate
from otmoe.evaluation.metrics import (
    adjusted_rand_index,
    clustering_error,
    evaluate,
    log_likelihood,
    mean_absolute_error,
    parameter_errors,
    relative_prediction_error,
    root_mean_squared_error,
    scatter_index,
)
from otmoe.model.divergence import transport_divergence

# Errors 0, 2, 2, 1: their squares add up to 9 and their sizes to 5; y has squares of 25, mean 7/4.
Y, PREDICTION = np.array([4.0, 0.0, 3.0, 0.0]), np.array([4.0, 2.0, 1.0, 1.0])
BY_HAND = {
    relative_prediction_error: 9 / 25,
    root_mean_squared_error: 3 / 2,
    mean_absolute_error: 5 / 4,
    scatter_index: 6 / 7,
}
CLUSTERING = [adjusted_rand_index, clustering_error]


@pytest.fixture(params=sorted(FAMILIES))
def problem(request, rng):
    """A model, the truth close to it, and rows."""
    truth = random_model(rng, n_experts=3, n_features=2, family=request.param)
    return nearby(rng, truth, 0.05), truth, *random_rows(rng, truth)


# -- prediction --------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", BY_HAND)
def test_errors_of_prediction_computed_by_hand(metric):
    assert metric(Y, PREDICTION) == pytest.approx(BY_HAND[metric], rel=1e-14)
    assert metric(Y, Y) == 0


@pytest.mark.parametrize("metric", [relative_prediction_error, scatter_index])
def test_shares_of_nothing_are_not_numbers(metric):
    assert np.isnan(metric(np.zeros(3), np.ones(3)))


@pytest.mark.parametrize("metric", [*BY_HAND, *CLUSTERING])
def test_tensors_are_taken(metric):
    torch = pytest.importorskip("torch")
    a, b = Y.astype(int), PREDICTION.astype(int)
    assert metric(torch.asarray(a), torch.asarray(b)) == metric(a, b)


def test_log_likelihood_is_a_mean_over_rows(problem):
    model, _, X, y = problem
    expected = summed_log_likelihood(model, X, y) / len(y)
    assert log_likelihood(model, X, y) == pytest.approx(expected, rel=1e-11)


# -- clustering --------------------------------------------------------------------------------


@given(arrays(int, 30, elements=st.integers(0, 3)), arrays(int, 30, elements=st.integers(0, 3)))
def test_clustering_error_tries_every_naming(z, labels):
    best = max(np.sum(np.array(names)[labels] == z) for names in permutations(range(4)))
    assert clustering_error(z, labels) == pytest.approx(1 - best / 30, abs=1e-14)


@pytest.mark.parametrize("metric", CLUSTERING)
def test_names_of_clusters_do_not_matter(metric, rng):
    z, labels = rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    renamed = np.array(["d", "a", "c", "b"])[labels]
    assert metric(z, renamed) == pytest.approx(metric(z, labels), abs=1e-14)
    assert metric(labels, z) == pytest.approx(metric(z, labels), abs=1e-14)


def test_clusterings_computed_by_hand():
    z, labels = [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]
    # Pairs together: 6 in z, 3 in labels, 2 in both; 6 * 3 / 15 = 1.2 are expected by chance.
    assert adjusted_rand_index(z, labels) == pytest.approx((2 - 1.2) / (4.5 - 1.2), rel=1e-14)
    assert clustering_error(z, labels) == pytest.approx(2 / 6, rel=1e-14)


@pytest.mark.parametrize("metric", [*BY_HAND, *CLUSTERING])
def test_columns_that_do_not_match_are_refused(metric):
    refused("lengths_differ", rows=3, others=2).by(metric, [1, 2, 3], [1, 2])
    refused("not_a_vector", shape=(2, 1)).by(metric, [[1], [2]], [1, 2])
    refused("lengths_differ", rows=0, others=0).by(metric, [], [])


# -- parameters --------------------------------------------------------------------------------


def test_parameter_errors_are_zero_to_itself_and_ignore_the_order_of_experts(problem):
    model, truth, X, _ = problem
    assert set(parameter_errors(truth, truth, X).values()) == {0.0}
    expected = parameter_errors(model, truth, X)
    assert min(expected.values()) > 0
    for pair in ((model.take([1, 2, 0]), truth), (model, truth.take([2, 0, 1]))):
        assert parameter_errors(*pair, X) == pytest.approx(expected, rel=1e-10)


def test_parameter_errors_computed_by_hand(rng):
    truth = random_model(rng, n_experts=2, n_features=1)
    coef, var = truth.experts.coef.copy(), truth.experts.var.copy()
    coef[0, 0] += 0.4
    var[1] += 0.3
    gate = truth.gate.with_vector(truth.gate.to_vector() + [0.0, 0.2])
    model = replace(truth, gate=gate, experts=replace(truth.experts, coef=coef, var=var))
    # A gate that is 0.2 off in its only free slope is 0.1 off twice when it is centred.
    gate, coef, var = 2 * 0.1**2, 0.4**2, 0.3**2
    expected = {"gate": gate / 4, "coef": coef / 4, "var": var / 2}
    expected["total"] = (gate + coef + var) / 10
    assert parameter_errors(model, truth, rng.normal(size=(30, 1))) == pytest.approx(expected)


def test_parameter_errors_ignore_the_reference_class(rng):
    truth, model = (random_model(rng, 2, 2, family="multinomial") for _ in range(2))
    X = rng.normal(size=(30, 2))

    def renumbered(model):
        coef = model.experts.coef[:, [2, 0, 1]]
        return replace(model, experts=replace(model.experts, coef=coef - coef[:, -1:]))

    found = parameter_errors(renumbered(model), renumbered(truth), X)
    assert found == pytest.approx(parameter_errors(model, truth, X), rel=1e-10)


def test_only_gaussian_experts_have_errors_of_variances(problem):
    model, truth, X, _ = problem
    assert ("var" in parameter_errors(model, truth, X)) == (truth.experts.dispersion is not None)


def test_models_with_different_numbers_of_experts_have_no_parameter_errors(rng):
    two, three = random_model(rng, 2), random_model(rng, 3)
    X, y = random_rows(rng, three)
    refused("align_unequal", experts=2, others=3).by(parameter_errors, two, three, X)
    report = evaluate(two, X, y, truth=three)
    assert report["transport"] == transport_divergence(three, two, X)
    assert not any(name.startswith("mse") for name in report)


# -- all at once -------------------------------------------------------------------------------


def test_a_report_holds_the_metrics_of_the_family(problem):
    model, truth, X, y = problem
    z = truth.sample(X, np.random.default_rng(0))[1]
    report = evaluate(model, X, y, z, truth)
    found = dict(report)
    assert found.pop("log_likelihood") == log_likelihood(model, X, y)
    assert found.pop("transport") == transport_divergence(truth, model, X)
    labels = model.gate_prob(X).argmax(axis=1)
    assert found.pop("ari") == adjusted_rand_index(z, labels)
    assert found.pop("clustering_error") == clustering_error(z, labels)
    errors = parameter_errors(model, truth, X)
    assert {name: found.pop(f"mse_{name}") for name in errors} == errors
    mean = model.predict(X)
    if truth.experts.family in ("logistic", "multinomial"):
        classes = np.round(mean) if mean.ndim == 1 else mean.argmax(axis=1)
        assert found == {"accuracy": pytest.approx(np.mean(classes == y))}
    else:
        assert found == {
            "rpe": relative_prediction_error(y, mean),
            "rmse": root_mean_squared_error(y, mean),
            "mae": mean_absolute_error(y, mean),
            "si": scatter_index(y, mean),
        }
    assert all(type(value) is float for value in report.values())


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_array_libraries_give_the_same(problem, library):
    xp = pytest.importorskip(library)
    model, truth, X, y = problem
    found = evaluate(model, xp.asarray(X), xp.asarray(y), truth=truth)
    assert found == pytest.approx(evaluate(model, X, y, truth=truth), rel=1e-10)


def test_class_labels_are_those_of_the_classifier():
    data = simulate(400, 2, 2, family="multinomial", random_state=0)
    names = np.array(["red", "green", "blue"])[data.y.astype(int)]
    est = MoEClassifier(2, n_init=1, random_state=0).fit(data.X, names)
    report = evaluate(est.model_, data.X, names)
    assert report["accuracy"] == est.score(data.X, names)
    assert report["log_likelihood"] == pytest.approx(est.log_density(data.X, names).mean())
    refused("class_unknown", label="grey").by(evaluate, est.model_, data.X[:1], ["grey"])


def test_a_fit_is_closer_to_the_truth_than_a_fit_of_fewer_rows():
    data = simulate(4000, 2, 3, softness=1.0, random_state=0)
    fits = [
        MoERegressor(2, n_init=2, random_state=0).fit(data.X[:n], data.y[:n]) for n in (4000, 200)
    ]
    large, small = (evaluate(fit.model_, data.X, data.y, truth=data.truth) for fit in fits)
    assert large["log_likelihood"] > small["log_likelihood"]
    assert large["transport"] < small["transport"]
    assert large["mse_total"] < small["mse_total"]


def test_rows_and_responses_that_do_not_match_are_refused(problem):
    model, _, X, y = problem
    with refused("lengths_differ", name="X", rows=200, other="y", others=199):
        evaluate(model, X, y[1:])
