"""Successes in several trials, against one trial at a time, scipy.stats and statsmodels."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian, with_ones
from refusals import refused
from scipy import special, stats

from otmoe import LocalModel, MoEClassifier, MoERegressor, aggregate
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.experts import BinomialExperts, LogisticExperts, PoissonExperts, Response
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE

GATE = SoftmaxGate(np.array([[0.2, 1.0, 0.0], [0.0, 0.0, 0.0]]))
COEF = np.array([[1.0, 0.0, 1.0], [-1.0, 0.2, -0.5]])


def drawn(n, most, seed, coef=COEF):
    """Return rows of two experts, with 0 to `most` trials each."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    trials = rng.integers(0, most + 1, n)
    truth = MoE(GATE, LogisticExperts(coef))
    p = truth.expert_mean(X)[np.arange(n), truth.sample(X, rng)[1]]
    y = rng.binomial(trials, p)
    return X, np.column_stack([y, trials - y]).astype(float)


def binomial(n_experts=2, **options):
    return MoERegressor(n_experts, family="binomial", random_state=0, **options)


# -- densities -----------------------------------------------------------------------------------


def test_densities_are_those_of_scipy():
    X, Y = drawn(300, 9, seed=0)
    model = MoE(GATE, BinomialExperts(COEF, np.ones(2)))
    D = with_ones(X)
    share = special.expit(D @ COEF.T)
    log_prob = stats.binom(Y.sum(axis=1)[:, None], share).logpmf(Y[:, :1])
    assert_allclose(model.experts.log_prob(D, Y), log_prob, rtol=1e-10, atol=1e-12)
    joint = special.log_softmax(D @ GATE.coef.T, axis=1) + log_prob
    assert_allclose(
        model.log_density(X, Y), special.logsumexp(joint, axis=1), rtol=1e-11, atol=1e-14
    )
    r = model.responsibilities(X, Y)
    assert_allclose(r, special.softmax(joint, axis=1), rtol=1e-9)
    none = Y.sum(axis=1) == 0  # such a row knows nothing of its expert
    assert none.any()
    assert_allclose(r[none], model.gate_prob(X[none]), rtol=1e-12)


def test_a_divergence_is_that_of_as_many_trials():
    X, n = with_ones(drawn(20, 3, seed=1)[0]), 7
    one, other = BinomialExperts(COEF, np.full(2, float(n))), LogisticExperts(COEF[::-1] + 0.3)
    other = BinomialExperts(other.coef, np.ones(2))
    y = np.arange(n + 1)
    expected = np.zeros((20, 2, 2))
    for k in range(2):
        for j in range(2):
            p, q = (special.expit(X @ e.coef[i]) for e, i in ((one, k), (other, j)))
            log_p, log_q = (stats.binom(n, at[:, None]).logpmf(y) for at in (p, q))
            expected[:, k, j] = np.sum(np.exp(log_p) * (log_p - log_q), axis=1)
    assert_allclose(one.kl_cost(X, other), expected, rtol=1e-8, atol=1e-12)
    index, value = other.nearest(other.predictor(X), one.response(one.predictor(X)))
    assert_array_equal(index, expected.argmin(axis=2))
    own = one.expected_log_prob(one.predictor(X), one.response(one.predictor(X)))
    assert_allclose(own - value, expected.min(axis=2), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("trials", [1.0, 6.0, 31.0, 400.0])
def test_grids_sum_to_one(trials):
    experts = BinomialExperts(COEF, np.full(2, trials))
    X = with_ones(drawn(30, 3, seed=2)[0])
    y, width = experts.grid(experts.predictor(X))
    assert_array_equal(y.sum(axis=2), trials)
    density = np.stack([np.exp(experts.log_prob(X, at)) for at in y.swapaxes(0, 1)], axis=1)
    total = np.sum(density * width[:, :, None], axis=1)
    assert_allclose(total, 1, atol=1e-12 if trials < 32 else 1e-3)


def test_draws_have_the_columns_of_y(rng):
    experts = BinomialExperts(COEF, np.full(2, 12.0))
    X = np.zeros((20_000, 2))
    Y, z = MoE(GATE, experts).sample(X, rng)
    assert Y.shape == (20_000, 2) and np.all(Y.sum(axis=1) == 12)
    for k in range(2):
        p = special.expit(COEF[k, 0])
        mine = Y[z == k, 0]
        assert abs(mine.mean() - 12 * p) < 5 * np.sqrt(12 * p * (1 - p) / len(mine))


def test_draws_of_more_trials_than_numpy_draws_are_their_mean(rng):
    experts = BinomialExperts(COEF, np.array([12.0, 1e30]))
    drawn = experts.sample(experts.predictor(np.array([[1.0, 0.0, 0.0]] * 5)), rng)
    assert np.all(drawn[:, 0].sum(axis=1) == 12)
    assert_allclose(drawn[:, 1, 0], 1e30 * special.expit(COEF[1, 0]))


# -- fits ----------------------------------------------------------------------------------------


def test_one_expert_is_the_glm_of_statsmodels():
    X, Y = drawn(400, 12, seed=3)
    offset = np.random.default_rng(0).normal(0, 0.3, len(X))
    est = binomial(1, expert_alpha=0).fit(X, Y, offset=offset)
    some = Y.sum(axis=1) > 0  # statsmodels divides by the trials
    theirs = sm.GLM(
        Y[some], with_ones(X)[some], family=sm.families.Binomial(), offset=offset[some]
    ).fit(tol=1e-12)
    assert_allclose(est.model_.experts.coef[0], theirs.params, rtol=1e-7, atol=1e-8)
    assert_allclose(est.log_likelihood_, theirs.llf, rtol=1e-10)
    assert_allclose(est.inference().standard_errors.coef[0], theirs.bse, rtol=1e-6)
    assert_allclose(est.predict(X[some], offset[some]), theirs.fittedvalues, rtol=1e-6)


def test_the_maximum_is_one():
    X, Y = drawn(500, 8, seed=4)
    est = binomial(alpha=0, expert_alpha=0).fit(X, Y)
    model = est.model_
    assert_allclose(est.log_likelihood_, model.log_density(X, Y).sum(), rtol=1e-12)
    score = jacobian(lambda t: model.with_vector(t).log_density(X, Y).sum(), model.to_vector())
    assert_allclose(score, 0, atol=1e-3)


def test_score_and_information_match_finite_differences(rng):
    X, Y = drawn(150, 8, seed=5)
    weight = rng.uniform(0.5, 2, 150)
    model = MoE(GATE, BinomialExperts(COEF + 0.1, np.ones(2)))
    plain = Scaling(np.zeros(2), np.ones(2))
    found = site_information("", model, plain, Rows(X, Y, weight)).information

    def height(theta):
        return weight @ model.with_vector(theta).log_density(X, Y)

    assert_allclose(found.log_likelihood, height(model.to_vector()), rtol=1e-12)
    assert_allclose(found.score, jacobian(height, model.to_vector()).ravel(), rtol=1e-5, atol=1e-5)
    second = jacobian(lambda t: jacobian(height, t).ravel(), model.to_vector())
    assert_allclose(found.matrix, -second, rtol=1e-2, atol=0.05)


def test_the_projection_counts_the_trials_of_its_sources(rng):
    X = with_ones(rng.normal(size=(60, 2)))
    weight, trials = rng.uniform(0.1, 1, (60, 1)), rng.integers(1, 30, (60, 1)).astype(float)
    share = rng.uniform(0.1, 0.9, (60, 1))
    blank = BinomialExperts.blank(1, 3)
    found = blank.fit(X, Response(share, 0.0, trials), weight)
    expected = LogisticExperts.blank(1, 3).fit(X, Response(share), weight * trials)
    assert_allclose(found.coef, expected.coef, rtol=1e-9)


# -- one trial is the logistic family ------------------------------------------------------------


@pytest.fixture(scope="module")
def outcomes():
    X, Y = drawn(1200, 1, seed=6, coef=2 * COEF)
    X, Y = X[Y.sum(axis=1) == 1], Y[Y.sum(axis=1) == 1]
    return X, Y, Y[:, 0]


def test_one_trial_is_a_logistic_regression(outcomes):
    X, Y, y = outcomes
    ridge = {"alpha": 1.0, "expert_alpha": 3.0}
    start = MoE(GATE, LogisticExperts(COEF))
    there = replace(start, experts=BinomialExperts(COEF, np.ones(2)))
    classes = em(X, y, family="logistic", init=start, **ridge)
    for response in (Y, y):
        trials = em(X, response, family="binomial", init=there, **ridge)
        assert_allclose(trials.log_likelihood, classes.log_likelihood, rtol=1e-12)
        assert_allclose(trials.model.to_vector(), classes.model.to_vector(), rtol=1e-7)
        assert_allclose(
            trials.evidence.information.matrix, classes.evidence.information.matrix, rtol=1e-6
        )


@pytest.mark.parametrize("method", ["reduction", "kl", "gram"])
def test_one_trial_merges_as_classes_do(outcomes, method, monkeypatch):
    monkeypatch.setattr(BinomialExperts, "alpha", 1.0)  # the prior of merging densities
    monkeypatch.setattr(BinomialExperts, "expert_alpha", 3.0)
    X, Y, y = outcomes
    ridge = {"alpha": 1.0, "expert_alpha": 3.0, "random_state": 0}
    theirs, ours = [], []
    for m in range(3):
        s = slice(m, None, 3)
        classes = MoEClassifier(2, **ridge).fit(X[s], y[s])
        theirs.append(classes.to_message(f"site {m}", X[s], y[s], grams=True))
        experts = BinomialExperts(theirs[-1].model.experts.coef, np.ones(2))
        ours.append(
            replace(theirs[-1], model=replace(theirs[-1].model, experts=experts, classes=None))
        )
    found, expected = (aggregate(sent, X, method=method, random_state=0) for sent in (ours, theirs))
    assert_allclose(found.model.to_vector(), expected.model.to_vector(), rtol=1e-6, atol=1e-8)


# -- merging -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sites():
    """Return rows and messages of three sites with unequal numbers of trials."""
    rows, sent = [], []
    for m, most in enumerate((4, 16, 60)):
        X, Y = drawn(1500, most, seed=20 + m)
        est = binomial().fit(X, Y)
        message = est.to_message(f"site {m}", X, Y, grams=True)
        rows.append((X, Y))
        sent.append(LocalModel.from_json(message.to_json()))
    return rows, sent


def test_messages_say_how_many_trials_rows_have(sites):
    rows, sent = sites
    for (_, Y), message in zip(rows, sent, strict=True):
        mean = float(f"{Y.sum(axis=1).mean():.2g}")  # so that no single row is seen
        assert_array_equal(message.model.experts.trials, mean)
    document = sent[0].document()
    document["model"]["experts"]["trials"][1] = 0.0
    with refused("field_not_positive model.experts.trials[1]"):
        LocalModel.from_document(document, "it", None)


@pytest.mark.parametrize("method", ["auto", "reduction", "kl", "gram"])
def test_merging_is_near_the_pooled_fit(sites, method):
    rows, sent = sites
    X, Y = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    pooled = binomial().fit(X, Y)
    merged = aggregate(sent, X[::4], method=method, random_state=0).model
    best, found = pooled.log_likelihood_, merged.log_density(X, Y).sum()
    assert best - 6 < found <= best + 1e-6


def test_experts_are_weighed_by_their_trials(sites):
    """Many trials tell more: the merged experts are nearer to those of the site that has them."""
    rows, sent = sites
    there = [aggregate([sent[0], sent[m]], rows[0][0], method="reduction").model for m in (1, 2)]
    for m, merged in zip((1, 2), there, strict=True):
        near, far = (
            np.abs(merged.aligned_to(s.model, rows[0][0]).experts.coef - s.model.experts.coef).sum()
            for s in (sent[m], sent[0])
        )
        assert near < far


@pytest.mark.parametrize("method", ["reduction", "kl", "gram"])
def test_a_model_merged_with_itself_stays(sites, method):
    rows, sent = sites
    copies = [replace(sent[2], site=f"copy {i}") for i in range(2)]
    merged = aggregate(copies, rows[2][0], method=method, random_state=0).model
    merged = merged.aligned_to(sent[2].model, rows[2][0])
    assert_allclose(merged.to_vector(), sent[2].model.to_vector(), atol=2e-3)


# -- what is refused -----------------------------------------------------------------------------


def test_what_is_no_y_of_n_is_refused():
    X, Y = drawn(60, 5, seed=7)
    Y[3] = 4, -1
    error = refused("trials_not_counts", value=-1.0, what="failures", row=3).by(
        binomial().fit, X, Y
    )
    assert "trials less successes" in str(error)
    Y[3] = 2.5, 1
    refused("trials_not_counts", value=2.5, what="successes", row=3).by(binomial().fit, X, Y)
    refused("not_trials", shape=(60, 3)).by(binomial().fit, X, np.zeros((60, 3)))
    refused("not_counts", value=0.3, highest=1.0).by(binomial().fit, X, np.full(60, 0.3))
    with pytest.raises(ValueError, match="1d array"):
        MoERegressor(2).fit(X, Y)
    refused("response_columns", shape=(60, 2), family="poisson").by(
        PoissonExperts.check_response, Y
    )
    est = binomial(1).fit(*drawn(60, 5, seed=7))
    refused("no_quantiles", TypeError, family="binomial").by(est.predict_quantile, X)
