"""Coefficients that a site cannot estimate: a feature that is constant there has no vote."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from oracles import message, messages, random_model
from refusals import refused
from sklearn.exceptions import ConvergenceWarning

from otmoe import MoEClassifier, MoERegressor, aggregate
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.sentences import Warn

# The result holds the warnings; test_problem.py checks that they are also given.
pytestmark = pytest.mark.filterwarnings("ignore:aggregate:UserWarning")

EXPERTS = ["reduction", "greedy", "middle", "weighted_average", "aligned_average"]


def site_rows(seed, binary, n=1500):
    """Draw x, a 0/1 column, and y from two experts between which the sign of x decides.

    At 0 in the binary column the experts are 4 + x and -4 - x; at 1 they are 1 + x and 2 - x.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, n)
    b = rng.integers(0, 2, n) if binary is None else np.full(n, binary)
    right = rng.random(n) < 1 / (1 + np.exp(-2 * x))
    y = np.where(right, 4 + x - 3 * b, -4 - x + 6 * b) + 0.3 * rng.normal(size=n)
    return np.column_stack([x, b]).astype(float), y


COEF = np.array([[4.0, 1.0, -3.0], [-4.0, -1.0, 6.0]])


def fitted(seed, binary, site, n=1500):
    X, y = site_rows(seed, binary, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a constant column is said, once
        return MoERegressor(2, n_init=4, random_state=0).fit(X, y).to_message(site)


@pytest.fixture(scope="module", params=[0.0, 1.0])
def sent(request):
    """Two sites where the column varies, and a larger one where it does not."""
    value = request.param
    return [fitted(1, None, "a"), fitted(2, None, "b"), fitted(3, value, "c", n=6000)]


@pytest.fixture(scope="module")
def support():
    return np.vstack([site_rows(seed, None, 200)[0] for seed in (11, 12)])


def in_order(model):
    """Return the model with the expert that rises with x first."""
    return model.take(np.argsort(-model.experts.coef[:, 1]))


@pytest.mark.parametrize("method", EXPERTS)
def test_a_site_has_no_vote_on_a_column_that_is_constant_there(sent, support, method):
    assert [set(message.constant) for message in sent] == [set(), set(), {"x1"}]
    assert_allclose(sent[2].model.experts.coef[:, 2], 0, atol=1e-9)
    if method == "weighted_average":  # takes experts as they come
        sent = [replace(message, model=in_order(message.model)) for message in sent]
    result = aggregate(sent, support, method=method)
    model = in_order(result.model)
    # The third site has two thirds of the rows; with its zeros the effects would be a third.
    assert_allclose(model.experts.coef, COEF, atol=0.15)
    assert_allclose(model.experts.var, 0.09, rtol=0.2)
    effect = [in_order(message.model).experts.coef[:, 2] for message in sent[:2]]
    naive = np.average([*effect, np.zeros(2)], axis=0, weights=[1500, 1500, 6000])
    assert np.abs(model.experts.coef[:, 2] - naive).min() > 1.5
    low, high = np.min(effect, axis=0), np.max(effect, axis=0)
    assert np.all(
        (low - 0.02 < model.experts.coef[:, 2]) & (model.experts.coef[:, 2] < high + 0.02)
    )


@pytest.mark.parametrize("method", ["weighted_average", "aligned_average"])
def test_averages_give_the_coefficient_of_the_sites_that_know_it(sent, support, method):
    models = [in_order(message.model) for message in sent]
    if method == "weighted_average":
        sent = [replace(m, model=model) for m, model in zip(sent, models, strict=True)]
    merged = in_order(aggregate(sent, support, method=method).model)
    for part in ("experts", "gate"):
        coef = np.array([getattr(model, part).coef for model in models])
        got = getattr(merged, part).coef
        assert_allclose(got[:, 2], coef[:2, :, 2].mean(axis=0), atol=1e-9)
        assert_allclose(got[:, 1], np.average(coef[:, :, 1], axis=0, weights=[1, 1, 4]), atol=1e-9)
    # The third site knows the intercept plus its value times the coefficient.
    value = sent[2].constant["x1"]
    level = models[2].experts.coef[:, 0] - value * merged.experts.coef[:, 2]
    first = np.mean([model.experts.coef[:, 0] for model in models[:2]], axis=0)
    assert_allclose(merged.experts.coef[:, 0], (first + 2 * level) / 3, atol=1e-9)


def test_without_its_mark_the_site_would_vote(sent, support):
    unmarked = [*sent[:2], replace(sent[2], constant={})]
    merged = in_order(aggregate(unmarked, support).model)
    assert np.abs(merged.experts.coef - COEF).max() > 1


def test_the_record_says_where_the_site_was_heard(sent, support):
    result = aggregate(sent, support)
    same = np.mean(support[:, 1] == sent[2].constant["x1"])
    assert [record.coverage for record in result.sites] == [1.0, 1.0, pytest.approx(same)]
    for record in result.sites:
        assert_allclose(record.mass.sum(), 1, rtol=1e-12)
        assert record.cost < 0.05


def test_experts_are_matched_where_a_site_knows_them():
    # At 1 the third site's experts, extrapolated, look like each other's counterparts: 5 against
    # 10 and 0 against -5. Only at 0, where it has seen rows, is the right match the nearer one.
    def model(coef):
        gate = SoftmaxGate(np.array([[0.5, 0.0], [0.0, 0.0]]))
        return MoE(gate, GaussianExperts(np.array(coef), np.array([1.0, 1.0])))

    whole, part = model([[0.0, 10.0], [5.0, -10.0]]), model([[0.0, 0.0], [5.0, 0.0]])
    sent = [message(whole, "a", 100.0), message(whole, "b", 90.0)]
    sent.append(message(part, "c", 100.0, constant={"x0": 0.0}))
    X = np.repeat([[0.0], [1.0]], 30, axis=0)
    for method in ("reduction", "greedy", "aligned_average"):
        merged = aggregate(sent, X, method=method).model
        merged = merged.take(np.argsort(merged.experts.coef[:, 0]))
        assert_allclose(merged.experts.coef, whole.experts.coef, atol=1e-6)
        assert_allclose(merged.experts.var, 1, atol=1e-6)


def test_a_coefficient_sent_for_a_constant_feature_means_nothing(rng):
    # Other software may leave something else than zero there; what counts is the prediction.
    models = [random_model(rng, 2, 2) for _ in range(2)]
    X = np.column_stack([rng.normal(size=60), rng.integers(0, 2, 60)]).astype(float)
    coef = models[1].experts.coef.copy()
    coef += np.outer([0.7, -0.4], [-1.0, 0.0, 1.0])  # the same where the second feature is 1
    gate = models[1].gate.coef.copy()
    gate[0] += 0.3 * np.array([-1.0, 0.0, 1.0])
    other = MoE(SoftmaxGate(gate), replace(models[1].experts, coef=coef))
    for method in (*EXPERTS, "ensemble"):
        first, known = message(models[0], "a"), {"constant": {"x1": 1.0}}
        pairs = [[first, message(model, "b", **known)] for model in (models[1], other)]
        a, b = (aggregate(pair, X, method=method) for pair in pairs)
        assert a.cost == pytest.approx(b.cost, rel=1e-9, abs=1e-12), method
        assert_allclose(b.model.predict(X), a.model.predict(X), rtol=1e-7)


def test_middle_prefers_a_site_that_knows_every_coefficient(rng):
    models = [random_model(rng, 2, 2) for _ in range(3)]
    X = np.column_stack([rng.normal(size=30), np.arange(30) % 2]).astype(float)
    sent = [message(m, s, constant={"x1": 0.0}) for m, s in zip(models, "ab", strict=False)]
    sent.append(message(models[2], "c", 1.0, log_likelihood=-1.5))
    status = aggregate(sent, X, method="middle").status
    assert status.code == "middle" and status.facts["site"] == "c"
    everyone = [replace(m, constant={"x1": 0.0}) for m in sent]
    assert aggregate(everyone, X, method="middle").status.code == "middle"


def test_support_points_where_nobody_votes_are_left_out(rng):
    models = [random_model(rng, 2, 2) for _ in range(2)]
    x = rng.normal(size=90)
    X = np.column_stack([x, np.repeat([0.0, 1.0, 2.0], 30)])
    sent = [
        message(m, s, constant={"x1": v}) for m, s, v in zip(models, "ab", (0.0, 1.0), strict=True)
    ]
    result = aggregate(sent, X)
    assert result.warnings[0] == Warn.SUPPORT_UNCOVERED(lost=30, points=90)
    assert result.n_support == result.communication.support_rows == 60
    within = aggregate(sent, X[:60])
    assert_allclose(result.model.to_vector(), within.model.to_vector(), rtol=1e-10)
    refused("support_uncovered", ValueError).by(aggregate, sent, X[60:])


def test_a_site_that_is_heard_nowhere_has_no_record(rng):
    models = [random_model(rng, 2, 1) for _ in range(2)]
    sent = [message(models[0], "a"), message(models[1], "b", constant={"x0": 7.0})]
    result = aggregate(sent, rng.normal(size=(60, 1)))
    record = result.sites[1]
    assert record.coverage == 0 and np.isnan(record.cost) and record.mass is None
    expected = models[0].take(np.argsort(result.sites[0].destination))
    assert_allclose(result.model.to_vector(), expected.to_vector(), atol=1e-8)


@pytest.mark.parametrize("method", ["reduction", "greedy"])
def test_experts_that_are_heard_nowhere_are_not_counted(rng, method):
    models = [random_model(rng, K, 1) for K in (1, 2)]
    sent = [message(models[0], "a"), message(models[1], "b", constant={"x0": 7.0})]
    result = aggregate(sent, rng.normal(size=(60, 1)), method=method)
    assert result.model.n_experts == 2 and result.cost < 1e-12
    assert_allclose(result.model.experts.coef[0], models[0].experts.coef[0], atol=1e-8)


def test_a_column_that_is_constant_everywhere_does_no_harm(rng):
    models = [random_model(rng, 2, 2) for _ in range(3)]
    X = np.column_stack([rng.normal(size=60), np.full(60, 5.0)])
    for method in EXPERTS:
        marked = [replace(m, constant={"x1": 5.0}) for m in messages(models)]
        a = aggregate(marked, X, method=method)
        b = aggregate(messages(models), X, method=method)
        assert a.warnings == () and np.all(np.isfinite(a.model.to_vector()))
        assert_allclose(a.model.predict(X), b.model.predict(X), rtol=1e-8)


def test_names_of_constant_features_are_those_of_the_columns():
    X, y = site_rows(5, 0.0, 300)
    labels = np.where(y > 0, "high", "low")
    frame = pd.DataFrame(X, columns=["dose", "treated"])
    with pytest.warns(ConvergenceWarning) as caught:
        est = MoEClassifier(1, random_state=0).fit(frame, labels)
    assert caught[0].message.notices == (Warn.RANK_DEFICIENT(columns=3, rank=2),)
    assert est.to_message("a").constant == {"treated": 0.0}
    other, y = site_rows(6, None, 300)
    frame = pd.DataFrame(other, columns=["dose", "treated"])
    varied = MoEClassifier(1, random_state=0).fit(frame, np.where(y > 0, "high", "low"))
    result = aggregate([est.to_message("a"), varied.to_message("b")], frame)
    effect = varied.model_.experts.coef[0, 2]
    assert abs(result.model.experts.coef[0, 2] - effect) < 0.1 * abs(effect)
