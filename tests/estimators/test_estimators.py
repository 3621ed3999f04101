import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import log_likelihood, with_ones
from refusals import refused
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from otmoe import MoEClassifier, MoERegressor, simulate
from otmoe.estimators.base import FitWarning

QUICK = {"n_init": 3, "random_state": 0}
X0 = np.random.default_rng(0).normal(size=(30, 2))
Y0 = X0[:, 0] + np.random.default_rng(1).normal(size=30)
TOWN = {"age": X0[:, 0], "town": ["Lyon"] * 30}


class CountRegressor(MoERegressor):
    """The Poisson form on rounded y: scikit-learn's checks use fractions, which it refuses."""

    def _check_training(self, X, y, **options):
        X, y = super()._check_training(X, y, **options)
        return X, np.round(y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([MoERegressor(), CountRegressor(family="poisson"), MoEClassifier()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return simulate(600, 2, 3, softness=1.0, random_state=0)


@pytest.fixture(scope="module")
def est(data):
    return MoERegressor(2, **QUICK).fit(data.X, data.y)


def frame(kind, X):
    columns = dict(zip("abc", X.T, strict=True))
    return {"pandas": pd.DataFrame, "polars": pl.DataFrame}[kind](columns)


# -- what fit leaves behind --------------------------------------------------------------------


def test_fit_finds_the_truth_and_describes_itself(data, est):
    truth, model = data.truth, est.model_.aligned_to(data.truth, data.X)
    assert_allclose(model.experts.coef, truth.experts.coef, atol=0.5)
    assert est.log_likelihood_ >= truth.log_density(data.X, data.y).sum()
    assert est.converged_ and est.n_iter_ == len(est.fit_.trace) - 1
    assert est.n_features_in_ == 3 and not hasattr(est, "feature_names_in_")


def test_the_same_seed_gives_the_same_fit(data, est):
    again = MoERegressor(2, n_jobs=2, **QUICK).fit(data.X, data.y)
    assert_array_equal(again.model_.to_vector(), est.model_.to_vector())
    legacy = MoERegressor(2, n_init=3, random_state=np.random.RandomState(0)).fit(data.X, data.y)
    assert_array_equal(legacy.model_.to_vector(), est.model_.to_vector())


def test_clone_has_the_parameters_and_none_of_the_fit(est):
    copy = clone(est)
    assert copy.get_params() == est.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(np.zeros((1, 3)))


def test_weight_two_is_the_row_twice(data):
    count = np.random.default_rng(0).integers(0, 3, len(data.y))
    first = MoERegressor(2, **QUICK, warm_start=True).fit(data.X, data.y)
    weighted, repeated = clone(first), clone(first)
    weighted.model_ = repeated.model_ = first.model_  # so that both start at the same place
    weighted.fit(data.X, data.y, sample_weight=count)
    repeated.fit(np.repeat(data.X, count, axis=0), np.repeat(data.y, count))
    assert_allclose(weighted.model_.to_vector(), repeated.model_.to_vector(), rtol=1e-5)


def test_single_precision_gives_nearly_the_same(data, est):
    single = MoERegressor(2, **QUICK).fit(data.X.astype(np.float32), data.y.astype(np.float32))
    assert single.model_.experts.coef.dtype == np.float64
    assert_allclose(single.model_.to_vector(), est.model_.to_vector(), atol=1e-4)


def test_verbose_shows_the_stages(data, capsys):
    MoERegressor(2, **QUICK, verbose=1).fit(data.X, data.y)
    shown = capsys.readouterr().out
    assert all(stage in shown for stage in ("searching starts", "EM", "log-likelihood"))


# -- warm starts -------------------------------------------------------------------------------


def test_a_warm_start_goes_on_from_the_last_fit(data, est):
    warm = MoERegressor(2, **QUICK, warm_start=True).fit(data.X, data.y)
    warm.fit(data.X, data.y)
    assert warm.n_iter_ <= 2
    assert_allclose(warm.log_likelihood_, est.log_likelihood_, rtol=1e-8)


@pytest.mark.parametrize(
    "change", [{"n_experts": 3}, {"gate_features": [1]}, {"family": "poisson"}]
)
def test_a_warm_start_does_not_override_other_parameters(data, change):
    y = np.round(np.abs(data.y))
    warm = MoERegressor(2, **QUICK, warm_start=True).fit(data.X, y)
    warm.set_params(**change).fit(data.X, y)
    fresh = clone(warm).fit(data.X, y)
    assert warm.model_.n_parameters == fresh.model_.n_parameters
    assert warm.model_.gate.columns == fresh.model_.gate.columns


@pytest.mark.parametrize("family", ["logistic", "multinomial"])
def test_a_warm_start_may_meet_more_classes(family):
    data = simulate(300, 2, 3, family=family, softness=1.0, random_state=0)
    est = MoEClassifier(2, warm_start=True, **QUICK).fit(data.X, data.y)
    y = np.where(data.X[:, 0] > 1, 7, data.y)
    proba = est.fit(data.X, y).predict_proba(data.X)
    assert proba.shape[1] == len(est.classes_) == len(set(y))
    assert_allclose(proba.sum(axis=1), 1)


# -- using -------------------------------------------------------------------------------------


def test_densities_and_probabilities_are_those_of_the_model(data, est):
    X, y, model = data.X, data.y, est.model_
    assert_array_equal(est.predict(X), model.predict(X))
    assert_array_equal(est.log_density(X, y), model.log_density(X, y))
    assert_array_equal(est.predict_expert_proba(X), model.gate_prob(X))
    assert_array_equal(est.predict_expert_proba(X, y), model.responsibilities(X, y))
    assert_array_equal(est.predict_expert(X), model.gate_prob(X).argmax(axis=1))
    assert_array_equal(est.predict_expert(X, y), model.responsibilities(X, y).argmax(axis=1))


def test_criteria_are_penalised_likelihoods(data, est):
    weight = np.random.default_rng(0).uniform(0, 2, len(data.y))
    P = (3 + 1) + 2 * (4 + 1)
    for w, n in ((None, len(data.y)), (weight, weight.sum())):
        value = log_likelihood(est.model_, data.X, data.y, w)
        assert_allclose(est.aic(data.X, data.y, w), -2 * value + 2 * P, rtol=1e-10)
        assert_allclose(est.bic(data.X, data.y, w), -2 * value + P * np.log(n), rtol=1e-10)


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")  # 4 has several maxima
def test_bic_chooses_the_number_of_experts():
    data = simulate(2000, 3, 3, softness=1.0, random_state=0)
    bic = [MoERegressor(k, **QUICK).fit(data.X, data.y).bic(data.X, data.y) for k in (1, 2, 3, 4)]
    assert np.argmin(bic) == 2


def test_intervals_cover_new_rows(data):
    est = MoERegressor(2, **QUICK).fit(data.X, data.y)
    new = data.draw(10_000, random_state=5)
    low, high = est.predict_interval(new.X).T
    assert 0.93 < np.mean((low < new.y) & (new.y < high)) < 0.965
    quantiles = np.column_stack([est.model_.quantile(new.X[:5], q) for q in (0.1, 0.6)])
    assert_allclose(est.predict_quantile(new.X[:5], [0.1, 0.6]), quantiles)


def test_samples_are_reproducible_and_follow_the_model(data, est):
    X = np.repeat(data.X[:1], 5000, axis=0)
    draws = est.sample(X, random_state=1)
    assert_array_equal(draws, est.sample(X, random_state=1))
    cdf = est.model_.experts.cdf(with_ones(X) @ est.model_.experts.coef.T, draws[:, None])
    uniform = np.sum(est.model_.gate_prob(X) * cdf, axis=1)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3


def test_from_model_is_a_fitted_estimator(data, est):
    other = MoERegressor.from_model(replace(est.model_, feature_names=("a", "b", "c")))
    assert other.n_experts == 2 and list(other.feature_names_in_) == ["a", "b", "c"]
    assert_array_equal(other.predict(frame("pandas", data.X)), est.predict(data.X))
    assert_array_equal(MoERegressor.from_model(est.model_).predict(data.X), est.predict(data.X))


# -- other tools -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_data_frame_keeps_its_names(data, kind):
    X = frame(kind, data.X)
    y = pd.Series(data.y) if kind == "pandas" else pl.Series(data.y)
    framed = MoERegressor(2, gate_features=["c", "a"], **QUICK).fit(X, y)
    plain = MoERegressor(2, gate_features=[0, 2], **QUICK).fit(data.X, data.y)
    assert list(framed.feature_names_in_) == ["a", "b", "c"]
    assert framed.model_.terms == ("intercept", "a", "b", "c")
    assert framed.model_.gate.columns == plain.model_.gate.columns == (0, 1, 3)
    assert_allclose(framed.predict(X), plain.predict(data.X), rtol=1e-8)
    with pytest.raises(ValueError, match="feature names should match"):
        framed.predict(X[["c", "b", "a"]])


def test_pipeline_and_grid_search(data):
    pipe = make_pipeline(StandardScaler(), MoERegressor(**QUICK))
    search = GridSearchCV(pipe, {"moeregressor__n_experts": [1, 2]}, cv=3).fit(data.X, data.y)
    assert search.best_params_ == {"moeregressor__n_experts": 2}
    assert search.score(data.X, data.y) > 0.5


def test_tables_have_a_row_per_term_and_a_column_per_expert(data):
    X = frame("pandas", data.X)
    est = MoERegressor(2, gate_features=["b"], **QUICK).fit(X, data.y)
    experts, gate = est.expert_table(), est.gate_table()
    assert list(experts.columns) == list(gate.columns) == ["expert 0", "expert 1"]
    assert list(experts.index) == ["intercept", "a", "b", "c", "variance"]
    assert_array_equal(experts.to_numpy()[:-1], est.model_.experts.coef.T)
    assert_array_equal(experts.loc["variance"], est.model_.experts.var)
    assert_array_equal(gate.loc[["intercept", "b"]], est.model_.gate.coef[:, [0, 2]].T)


def test_tables_without_pandas_say_what_to_install(est, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused("no_pandas", ImportError).by(est.expert_table)
    refused("no_pandas", ImportError).by(est.gate_table)


# -- mistakes ----------------------------------------------------------------------------------


def spoiled(array, value):
    array = array.astype(object if isinstance(value, str) else float)
    array[3, ...] = value
    return array


def fit_rows(**kwargs):
    rows = {"X": X0, "y": Y0, "sample_weight": None, "offset": None}
    rows.update((name, kwargs.pop(name)) for name in list(rows) if name in kwargs)
    return MoERegressor(**QUICK | kwargs).fit(**rows)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"X": spoiled(X0, np.nan)}, "Input X contains NaN"),
        ({"X": spoiled(X0, np.inf)}, "Input X contains infinity"),
        ({"y": spoiled(Y0, np.nan)}, "Input y contains NaN"),
        ({"y": spoiled(Y0, np.inf)}, "Input y contains infinity"),
        ({"y": Y0[:-1]}, r"inconsistent numbers of samples: \[30, 29\]"),
        ({"X": X0[:, 0]}, "Expected 2D array, got 1D array"),
        ({"offset": spoiled(np.ones(30), np.nan)}, "offset contains NaN"),
    ],
)
def test_what_scikit_learn_refuses(kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit_rows(**kwargs)


SHORT = {"name": "sample_weight", "wanted": (30,)}
NUMERIC = ["gaussian", "binomial", "poisson", "negative_binomial", "gamma", "student_t"]
NUMERIC += ["student_t3 to student_t31 (odd degrees of freedom)"]
AB = ["a", "b"]
FRAME = pd.DataFrame(X0, columns=AB)


@pytest.mark.parametrize(
    ("kwargs", "code", "facts"),
    [
        ({"X": spoiled(X0, "low")}, "text_in_x", {"columns": "X"}),
        ({"X": np.full((30, 2), "low")}, "text_in_x", {"columns": "X"}),
        ({"X": pd.DataFrame(TOWN)}, "one_level", {"column": "town"}),
        ({"X": pl.DataFrame(TOWN)}, "one_level", {"column": "town"}),
        ({"sample_weight": np.zeros(30)}, "rows_without_weight", {}),
        ({"sample_weight": spoiled(np.ones(30), -2.0)}, "weight_of_row", {"row": 3, "value": -2}),
        ({"sample_weight": np.ones(29)}, "one_per_row", {"shape": (29,), **SHORT}),
        ({"sample_weight": np.eye(30)[0]}, "fewer_rows_than_experts", {"rows": 1, "experts": 2}),
        ({"n_experts": 31}, "fewer_rows_than_experts", {"rows": 30, "experts": 31}),
        ({"family": "cauchy"}, "not_one_of", {"name": "family", "choices": NUMERIC}),
        ({"gate_features": ["age"]}, "gate_feature_unnamed", {"name": "age"}),
        ({"X": FRAME, "gate_features": ["c"]}, "gate_feature_name", {"name": "c", "columns": AB}),
        ({"gate_features": [2]}, "gate_feature_index", {"value": 2, "last": 1}),
        ({"gate_features": [-1]}, "gate_feature_index", {"value": -1, "last": 1}),
        ({"gate_features": "all"}, "gate_features_text", {"argument": "gate_features"}),
        ({"expert_features": "all"}, "gate_features_text", {"argument": "expert_features"}),
        ({"expert_features": [["a"], [0]]}, "gate_feature_unnamed", {"name": "a"}),
        ({"expert_features": [[0], [1], []]}, "expert_features_count", {"sets": 3, "experts": 2}),
        ({"expert_features": {"a": [0]}}, "expert_features_count", {"sets": 1}),
        ({"common": "x0"}, "common_text", {"value": "x0"}),
        ({"common": [5]}, "gate_feature_index", {"argument": "common"}),
        ({"common": [1], "expert_features": [0]}, "common_unseen", {"name": 1}),
        (
            {"family": "poisson", "common_variance": True, "y": np.arange(30) % 4},
            "no_common_variance",
            {},
        ),
    ],
)
def test_a_mistake_is_named(kwargs, code, facts):
    refused(code, ValueError, **facts).by(fit_rows, **kwargs)


@pytest.mark.parametrize("value", [0, -1, 2.5, "a"])
@pytest.mark.parametrize("name", ["n_experts", "n_init", "max_iter"])
def test_counts_are_whole_numbers(name, value):
    refused("not_whole", ValueError, name=name, value=value).by(fit_rows, **{name: value})


@pytest.mark.parametrize("value", [-1.0, "x", np.nan])
@pytest.mark.parametrize("name", ["alpha", "tol"])
def test_bounds_are_not_negative(name, value):
    with refused("negative", ValueError, name=name) as caught:
        fit_rows(**{name: value})
    assert caught.value.facts["value"] is value


def test_sparse_features_are_refused():
    with pytest.raises(TypeError, match="Sparse data was passed for X, but dense data is required"):
        MoERegressor().fit(sparse.csr_array(X0), Y0)


def test_rows_of_another_shape_are_refused(data, est):
    with pytest.raises(ValueError, match="X has 2 features, but MoERegressor is expecting 3"):
        est.predict(data.X[:, :2])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        est.log_density(data.X, data.y[:-1])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        est.log_density(data.X[:1], [np.nan])
    with refused("text_in_x", columns="X", hold="holds") as caught:
        est.predict([["low", "b", "c"]])
    assert "'low'" in caught.value.facts["error"]


def test_impossible_levels_are_refused(data, est):
    refused("not_a_level", name="coverage", value=95).by(est.predict_interval, data.X, coverage=95)
    refused("not_a_level", name="level", value=1).by(est.predict_quantile, data.X, [1])


# -- awkward data: an answer and one warning ---------------------------------------------------


def fit_with_one_warning(est, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est.fit(X, y)
    assert [w.category for w in caught] == [FitWarning], [str(w.message) for w in caught]
    assert issubclass(FitWarning, ConvergenceWarning) and caught[0].filename == __file__
    assert np.all(np.isfinite(est.model_.to_vector()))
    return {notice.code: notice.facts for notice in caught[0].message.notices}


def test_too_few_iterations_give_one_warning(data):
    est = MoERegressor(3, max_iter=1, **QUICK)
    assert "not_converged" in fit_with_one_warning(est, data.X, data.y)
    assert est.fit_.status.code == "out_of_passes" and est.fit_.status.facts == {"passes": 1}


def test_fewer_rows_than_parameters_give_one_warning(rng):
    X = rng.normal(size=(12, 3))
    found = fit_with_one_warning(MoERegressor(2, **QUICK), X, rng.normal(size=12))
    assert found["few_rows"] == {"rows": 12, "parameters": 14}


@pytest.mark.parametrize("n_experts", [1, 2])
def test_a_constant_column_gives_one_warning_and_no_coefficient(rng, n_experts):
    X = np.column_stack([rng.normal(size=200), np.full(200, 3.7)])
    y = np.where(X[:, 0] > 0, 2 * X[:, 0], -X[:, 0]) + rng.normal(size=200)
    est = MoERegressor(n_experts, **QUICK)
    assert fit_with_one_warning(est, X, y) == {"rank_deficient": {"columns": 3, "rank": 2}}
    assert_allclose(est.model_.experts.coef[:, 2], 0, atol=1e-9)
    assert_allclose(est.model_.gate.coef[:, 2], 0, atol=1e-9)


@pytest.mark.parametrize("n_experts", [1, 2])
def test_a_column_given_twice_gives_one_warning_and_equal_coefficients(rng, n_experts):
    x = rng.normal(size=(200, 2))
    y = np.where(x[:, 0] > 0, 2 * x[:, 0], x[:, 1] - x[:, 0]) + 0.3 * rng.normal(size=200)
    est = MoERegressor(n_experts, **QUICK)
    found = fit_with_one_warning(est, x[:, [0, 1, 1]], y)
    assert found == {"rank_deficient": {"columns": 4, "rank": 3}}
    experts, gate = est.model_.experts.coef, est.model_.gate.coef
    assert_allclose(experts[:, 2], experts[:, 3], rtol=1e-6, atol=1e-9)
    assert_allclose(gate[:, 2], gate[:, 3], rtol=1e-6, atol=1e-9)
    single = MoERegressor(n_experts, alpha=0.0, **QUICK).fit(x, y)
    double = MoERegressor(n_experts, alpha=0.0, **QUICK)
    fit_with_one_warning(double, x[:, [0, 1, 1]], y)
    assert_allclose(double.log_likelihood_, single.log_likelihood_, rtol=1e-6)


def test_no_column_that_varies_gives_one_warning(rng):
    est = MoERegressor(2, **QUICK)
    y = np.append(rng.normal(size=100), 6 + rng.normal(size=100))
    found = fit_with_one_warning(est, np.ones((200, 1)), y)
    assert found == {"rank_deficient": {"columns": 2, "rank": 1}}
    assert_allclose(np.sort(est.model_.expert_mean(np.ones((1, 1)))[0]), [0, 6], atol=0.5)


def test_a_single_expert_of_too_few_rows_is_the_pseudoinverse(rng):
    X, y = rng.normal(size=(6, 9)) * np.arange(1, 10) + 2, rng.normal(size=6)
    est = MoERegressor(1)
    fit_with_one_warning(est, X, y)
    sd = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / sd
    slopes = np.linalg.pinv(Z) @ (y - y.mean()) / sd
    assert_allclose(est.model_.experts.coef[0, 1:], slopes, rtol=1e-6)
    assert_allclose(est.predict(X), y, atol=1e-3 * y.std())
