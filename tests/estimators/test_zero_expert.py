"""Counts with an expert that is always 0: other libraries, brute force, merging, documents."""

import json
from copy import deepcopy

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian
from refusals import codes, put, refused
from scipy import special, stats
from statsmodels.discrete.count_model import ZeroInflatedNegativeBinomialP, ZeroInflatedPoisson
from statsmodels.tools.numdiff import approx_hess

from otmoe import (
    DistributedMoERegressor,
    LocalModel,
    MoERegressor,
    aggregate,
    load_model,
    save_model,
    select_n_experts,
)
from otmoe.federation.policy.rules import Policy
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.model.structure import LOG_OF_NOTHING

PLAIN = {"alpha": 0.0, "expert_alpha": 0.0}
METHODS = ["auto", "reduction", "kl", "gram", "middle", "weighted_average", "aligned_average"]
METHODS += ["greedy", "median", "trimmed", "geometric_median", "krum"]


def counts(family="poisson", seed=0, n=1500):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    mean = np.exp(0.8 + 0.6 * X[:, 0] - 0.3 * X[:, 1])
    drawn = rng.poisson(mean) if family == "poisson" else rng.negative_binomial(2, 2 / (2 + mean))
    empty = rng.random(n) < special.expit(-0.5 + X[:, 0])
    return X, np.where(empty, 0, drawn).astype(float)


def inflated(family, **options):
    return MoERegressor(2, family=family, zero_expert=True, random_state=0, **options)


@pytest.fixture(scope="module", params=["poisson", "negative_binomial"])
def fitted(request):
    X, y = counts(request.param)
    return X, y, inflated(request.param, **PLAIN).fit(X, y)


def test_statsmodels_finds_the_same(fitted):
    X, y, est = fitted
    poisson = est.family == "poisson"
    kind = ZeroInflatedPoisson if poisson else ZeroInflatedNegativeBinomialP
    other = kind(y, sm.add_constant(X), exog_infl=sm.add_constant(X))
    found = other.fit(method="bfgs", maxiter=2000, gtol=1e-6, disp=0)
    assert_allclose(est.log_likelihood_, found.llf, atol=1e-5)
    # theirs is the gate of the zero expert against the other
    mine = np.concatenate([-est.model_.gate.coef[0], est.model_.experts.coef[0]])
    assert_allclose(mine, found.params[:6], atol=1e-3)
    if not poisson:
        assert_allclose(est.model_.experts.phi[0], found.params[6], atol=1e-3)
    # its own errors of the zero part are approximate: these are of its log-likelihood
    matrix = np.linalg.inv(-approx_hess(found.params, other.loglike))
    errors = est.inference().standard_errors
    expected = np.sqrt(np.diagonal(matrix))
    assert_allclose(np.append(errors.gate[0], errors.coef[0]), expected[:6], rtol=5e-3)


def test_brute_force_finds_the_same_density(fitted):
    X, y, est = fitted
    design = np.column_stack([np.ones(len(y)), X])
    mean = np.exp(design @ est.model_.experts.coef[0])
    law = stats.poisson(mean)
    if est.family != "poisson":
        size = 1 / est.model_.experts.phi[0]
        law = stats.nbinom(size, size / (size + mean))
    prob = special.expit(design @ est.model_.gate.coef[0])
    density = prob * law.pmf(y) + (1 - prob) * (y == 0)
    assert_allclose(est.log_density(X, y), np.log(density), rtol=1e-9)
    assert_allclose(est.predict(X), prob * mean, rtol=1e-9)
    assert est.fit_.rank == est.model_.n_free == (6 if est.family == "poisson" else 7)
    shares = est.predict_expert_proba(X, y)
    assert_array_equal(shares[y > 0, 1] < 1e-100, True)
    draws = est.sample(X, 0)
    assert 0.5 * np.mean(y == 0) < np.mean(draws == 0) < 1.5 * np.mean(y == 0)
    assert np.all(est.predict_quantile(X[:5], [0.01])[:, 0] == 0)


def test_score_and_information_have_nothing_of_the_zero_expert(fitted):
    X, y, est = fitted
    model, rows = est.model_, Rows(*fitted[:2])
    found, basis = observed_information(model, rows), model.basis
    assert_allclose(basis.T @ found.score, 0, atol=1e-4)
    away = model.with_vector(model.to_vector() + basis @ np.full(basis.shape[1], 0.05))
    slope = jacobian(
        lambda psi: (
            observed_information(
                away.with_vector(away.to_vector() + basis @ psi), rows
            ).log_likelihood
        ),
        np.zeros(basis.shape[1]),
    )
    assert_allclose(basis.T @ observed_information(away, rows).score, slope, rtol=1e-5)


def test_three_experts_of_which_one_is_zero():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 1))
    z = rng.choice(3, 3000, p=[0.45, 0.3, 0.25])
    mean = np.exp(np.where(z == 0, 2.5 + 0.3 * X[:, 0], 0.5 - 0.5 * X[:, 0]))
    y = np.where(z == 2, 0, rng.poisson(mean)).astype(float)
    how = {"family": "poisson", "gate_features": "intercept", "random_state": 0, **PLAIN}
    est = MoERegressor(3, zero_expert=True, **how).fit(X, y)
    assert_allclose(est.model_.experts.coef[:2], [[2.5, 0.3], [0.5, -0.5]], atol=0.12)
    assert_allclose(special.softmax(est.model_.gate.coef[:, 0]), [0.45, 0.3, 0.25], atol=0.04)
    assert est.model_.zeros == [2] and est.fit_.agreement.agreed > 1
    chosen = select_n_experts(X, y, (2, 3, 4), estimator=MoERegressor(zero_expert=True, **how))
    assert chosen.n_experts == 3


def test_it_is_shown_as_what_it_is(fitted):
    X, y, est = fitted
    assert "Expert 1, always 0" in str(est.summary()) and "-300" not in str(est.summary())
    assert "-300" not in str(est.inference().matrix())
    assert "-300" not in est.inference()._repr_html_()
    assert "-300" not in est.model_._repr_html_() and "nan" not in est.model_._repr_html_()
    assert est.expert_table().iloc[:, 1].isna().all()


# -- merging and documents -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def messages(fitted):
    X, y, est = fitted
    found = []
    for m in range(3):
        part = X[m::3], y[m::3]
        local = inflated(est.family, **PLAIN).fit(*part)
        found.append(local.to_message(f"site {m}", *part, grams=True, policy=Policy.off()))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_the_zero_expert(fitted, messages, method):
    X, y, est = fitted
    found = aggregate(messages, support=X, method=method, random_state=0).model
    assert found.zeros == [1]
    assert_array_equal(found.experts.coef[1], [LOG_OF_NOTHING, 0, 0])
    assert_allclose(found.experts.coef[0], est.model_.experts.coef[0], atol=0.15)


def test_shards_reach_the_pooled_fit(fitted):
    X, y, est = fitted
    how = {"family": est.family, "zero_expert": True, "random_state": 0, **PLAIN}
    found = DistributedMoERegressor(2, n_shards=3, refine="auto", **how).fit(X, y)
    assert found.n_shards_ == 3
    assert_allclose(found.model_.to_vector(), est.model_.to_vector(), atol=1e-4)
    assert_array_equal(found.model_.experts.coef[1], [LOG_OF_NOTHING, 0, 0])


def test_files_hold_it_and_others_refuse_a_wrong_one(fitted, tmp_path):
    X, y, est = fitted
    message = est.to_message("Lyon", policy=Policy.off())
    message.save(tmp_path / "lyon.moe.json")
    again = LocalModel.load(tmp_path / "lyon.moe.json").model
    assert again.structure == est.model_.structure and again.zeros == [1]
    save_model(est.model_, tmp_path / "model.json")
    assert_allclose(load_model(tmp_path / "model.json").predict(X), est.predict(X), rtol=1e-12)
    document = json.loads((tmp_path / "lyon.moe.json").read_text())
    assert document["model"]["structure"]["columns"] == [[0, 1, 2], []]
    for path, value, code in [
        ("model.experts.coef.1.0", -3.0, "not_a_zero model.experts.coef[1]"),
        ("model.experts.coef.1.2", 1.0, "not_a_zero model.experts.coef[1]"),
        ("model.structure.columns", [[], []], "no_columns model.structure.columns[0]"),
    ]:
        wrong = tmp_path / "wrong.moe.json"
        wrong.write_text(json.dumps(put(deepcopy(document), path, value)))
        with refused(code):
            LocalModel.load(wrong)


def test_features_of_the_others_can_be_named():
    X, y = counts()
    own = inflated("poisson", expert_features={"busy": [0]}, **PLAIN).fit(X, y)
    assert own.model_.structure.names == ("busy", "zero")
    assert own.model_.structure.columns == ((0, 1), ())
    assert_array_equal(own.model_.experts.coef[0, 2], 0)


def test_it_is_refused_where_it_means_nothing():
    X, y = counts(n=200)
    with refused("zero_of_counts", family="gaussian"):
        inflated("gaussian").fit(X, y)
    with refused("zero_alone"):
        MoERegressor(1, family="poisson", zero_expert=True).fit(X, y)
    with refused("expert_features_count", sets=2, experts=1):
        inflated("poisson", expert_features=[[0], [1]]).fit(X, y)


def test_counts_without_zeros_leave_it_no_rows():
    X, y = counts()
    est = inflated("poisson")
    with pytest.warns(UserWarning) as caught:
        est.fit(X[y > 2], y[y > 2])
    assert "experts_without_rows" in codes(caught[0].message.notices)
