"""Measures against scikit-learn's, and the null model against one that is fitted."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats
from sklearn import metrics

from otmoe import MoEClassifier, MoERegressor, simulate
from otmoe.evaluation.scores import score_rows
from otmoe.evaluation.values import Values
from otmoe.model.experts import FAMILIES, StudentExperts

_FINE = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000, "maxfev": 4000}

CASES = [name for name in FAMILIES if name != "ten_trials"]


def case(family, seed=0):
    """Return a model, its rows, their weights, and the same rows in three parts."""
    data = simulate(600, 2, 2, family=family, random_state=seed)
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 4, 600).astype(float)
    return data.truth, data.X, data.y, weight


def scored(model, X, y, weight):
    parts = [slice(0, 100), slice(100, 101), slice(101, None)]
    return reduce(add, (score_rows(model, X[s], y[s], weight[s]) for s in parts))


@pytest.mark.parametrize("family", CASES)
def test_parts_add_up_and_a_weight_is_so_many_rows(family):
    model, X, y, weight = case(family)
    times = weight.astype(int)
    whole = score_rows(model, np.repeat(X, times, axis=0), np.repeat(y, times, axis=0))
    parts = scored(model, X, y, weight)
    for mine, theirs in ((parts.measures, whole.measures), (parts.null, whole.null)):
        assert mine.keys() == theirs.keys()
        assert_allclose(list(mine.values()), list(theirs.values()), rtol=1e-9)
    assert parts.explained == pytest.approx(whole.explained)


@pytest.mark.filterwarnings("ignore:.*span only 1 dimensions")
@pytest.mark.parametrize("family", CASES)
def test_the_null_model_is_the_best_one_without_covariates(family):
    model, X, y, weight = case(family)
    found = scored(model, X, y, weight)
    nothing = np.zeros((len(y), 1))
    if model.experts.classifies:
        est = MoEClassifier(1, random_state=0)
        fitted = est.fit(nothing, y, sample_weight=weight)
    else:
        fitted = MoERegressor(1, family=family).fit(nothing, y, sample_weight=weight)
    best = weight @ fitted.log_density(nothing, y) / weight.sum()
    assert found.null["log_likelihood"] == pytest.approx(best, rel=1e-6)
    if family == "student_t":
        return  # whose location is not the mean, from which squares are counted
    constant = score_rows(fitted.model_, nothing, y, weight)
    for name in found.null.keys() - {"auc"}:
        assert found.null[name] == pytest.approx(constant.measures[name], rel=1e-5, abs=1e-9), name
    assert constant.explained == pytest.approx(0.0, abs=1e-6)


def test_the_null_model_of_counts_is_that_of_statsmodels():
    model, X, y, weight = case("negative_binomial")
    other = pytest.importorskip("statsmodels.api")
    counts = np.repeat(y, weight.astype(int))
    fit = other.NegativeBinomial(counts, np.ones(len(counts))).fit(disp=0, gtol=1e-10)
    found = scored(model, X, y, weight).null["log_likelihood"]
    assert found == pytest.approx(fit.llf / len(counts), rel=1e-9)


def test_the_null_model_of_heavy_tails_is_that_of_a_general_optimiser():
    model, X, y, weight = case("student_t")
    y = 1e3 + 50 * y  # far from 0, where a start at 0 would not lead to the maximum

    def loss(at):
        return -np.average(stats.t.logpdf(y, 5, at[0], np.exp(at[1])), weights=weight)

    start = np.median(y), np.log(50.0)
    best = optimize.minimize(loss, start, method="Nelder-Mead", options=_FINE).fun
    found = scored(model, X, y, weight).null["log_likelihood"]
    assert found == pytest.approx(-best, rel=1e-8)


def test_many_values_are_thinned_where_it_costs_little():
    rng = np.random.default_rng(0)
    y, weight = rng.standard_t(3, 20_000), rng.integers(0, 3, 20_000).astype(float)
    exact = StudentExperts.best_constant(y, weight)
    parts = [Values.of(part, w, 500) for part, w in zip(np.split(y, 4), np.split(weight, 4),
                                                        strict=True)]  # fmt: skip
    assert [len(part.y) for part in parts] == [500] * 4
    some = Values.of(*(np.concatenate(each) for each in
                       ([p.y for p in parts], [p.weight for p in parts])), 500)  # fmt: skip
    assert len(some.y) == 500
    assert some.weight.sum() == pytest.approx(weight.sum())
    assert some.weight @ some.y == pytest.approx(weight @ y)
    assert StudentExperts.best_constant(some.y, some.weight) == pytest.approx(exact, abs=2e-4)
    fine = Values.of(y, weight, 4000)
    assert StudentExperts.best_constant(fine.y, fine.weight) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_are_measured_as_by_scikit_learn(seed):
    model, X, y, weight = case("logistic", seed)
    found = scored(model, X, y, weight).measures
    p = model.predict(X)
    assert found["auc"] == pytest.approx(
        metrics.roc_auc_score(y, p, sample_weight=weight), abs=1e-3
    )
    assert found["brier"] == pytest.approx(metrics.brier_score_loss(y, p, sample_weight=weight))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p, sample_weight=weight))


def test_counts_are_measured_as_by_scikit_learn():
    model, X, y, weight = case("poisson")
    found = scored(model, X, y, weight)
    p = model.predict(X)
    assert found.explained == pytest.approx(
        metrics.d2_tweedie_score(y, p, sample_weight=weight, power=1)
    )
    assert found.measures["r2"] == pytest.approx(metrics.r2_score(y, p, sample_weight=weight))


def test_numbers_explain_their_variance():
    model, X, y, weight = case("gaussian")
    found = scored(model, X, y, weight)
    assert found.explained == pytest.approx(
        metrics.r2_score(y, model.predict(X), sample_weight=weight)
    )


def test_a_constant_response_has_no_null_model():
    model, X, _, weight = case("gaussian")
    found = scored(model, X, np.full(len(X), 2.0), weight)
    assert found.null == {} and np.isnan(found.explained)


# -- with an offset ------------------------------------------------------------------------------

OFFSETS = ["gaussian", "student_t", "poisson", "gamma", "negative_binomial", "logistic", "binomial"]


def with_offset(family):
    """Return the score of rows with an offset, in parts, and the rows."""
    model, X, y, weight = case(family)
    offset = np.random.default_rng(1).normal(0, 1.5, len(X))
    parts = [slice(0, 100), slice(100, 101), slice(101, None)]
    found = reduce(add, (score_rows(model, X[s], y[s], weight[s], offset[s]) for s in parts))
    return found, y, weight, offset


@pytest.mark.filterwarnings("ignore:.*span only 1 dimensions")
@pytest.mark.parametrize("family", OFFSETS)
def test_the_null_model_has_the_offset(family):
    other = pytest.importorskip("statsmodels.api")
    kinds = {
        "gaussian": other.families.Gaussian(),
        "poisson": other.families.Poisson(),
        "gamma": other.families.Gamma(other.families.links.Log()),
        "logistic": other.families.Binomial(),
        "binomial": other.families.Binomial(),
    }
    found, y, weight, offset = with_offset(family)
    null, total = found.null, weight.sum()
    if family in kinds:
        options = {"offset": offset, "freq_weights": weight}
        fit = other.GLM(y, np.ones(len(y)), kinds[family], **options).fit(tol=1e-13)
        assert fit.deviance == pytest.approx(fit.null_deviance, rel=1e-6)
        deviance = null.get("deviance", 2 * null.get("log_loss", np.nan))
        deviance = null["rmse"] ** 2 if family == "gaussian" else deviance
        assert deviance == pytest.approx(fit.null_deviance / total, rel=1e-7)
        if family in ("poisson", "logistic", "binomial"):
            assert null["log_likelihood"] == pytest.approx(fit.llf / total, rel=1e-8)
        if family == "gaussian":
            assert found.explained == pytest.approx(
                1 - found.measures["rmse"] ** 2 / null["rmse"] ** 2
            )
        else:
            name = "log_loss" if family == "logistic" else "deviance"
            assert found.explained == pytest.approx(1 - found.measures[name] / null[name])
        return
    fitted = MoERegressor(1, family=family).fit(
        np.zeros((len(y), 1)), y, sample_weight=weight, offset=offset
    )
    best = weight @ fitted.log_density(np.zeros((len(y), 1)), y, offset) / total
    assert null["log_likelihood"] == pytest.approx(best, rel=1e-6)


def test_the_null_model_of_two_classes_ranks_by_its_offset():
    found, y, weight, offset = with_offset("logistic")
    wanted = metrics.roc_auc_score(y, offset, sample_weight=weight)
    assert found.null["auc"] == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("family", ["poisson", "logistic", "negative_binomial", "gamma"])
def test_many_pairs_of_y_and_offset_are_thinned_where_it_costs_little(family):
    model, X, y, weight = case(family)
    rng = np.random.default_rng(2)
    many = rng.integers(0, len(y), 40_000)
    offset, X, y = rng.normal(0, 1, 40_000), X[many], y[many]
    parts = np.array_split(np.arange(40_000), 4)
    thin = reduce(add, (score_rows(model, X[s], y[s], None, offset[s]) for s in parts))
    assert len(thin.values.y) <= 2**14 < 40_000
    values = Values(np.asarray(y, float), np.ones(40_000), offset)
    exact = replace(thin, values=values)
    for name in exact.null.keys() - {"r2"}:  # which is one of rmse
        assert thin.null[name] == pytest.approx(exact.null[name], rel=1e-3), name


@pytest.mark.parametrize("family", ["poisson", "logistic"])
def test_an_offset_of_zero_changes_nothing(family):
    model, X, y, weight = case(family)
    none, zero = (score_rows(model, X, y, weight, o) for o in (None, np.zeros(len(X))))
    for name, value in none.null.items():
        assert zero.null[name] == pytest.approx(value, rel=1e-9), name
    one = np.full(len(y), y[0])
    assert (
        score_rows(model, X, one, weight, np.zeros(len(X))).null
        == score_rows(model, X, one, weight).null
    )
