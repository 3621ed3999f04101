"""Logistic, multinomial and Poisson fits: known answers, right optima, bad input."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import call, fine
from oracles import random_model
from refusals import refused
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.metrics import r2_score

from otmoe import (
    LocalModel,
    MoE,
    MoEClassifier,
    MoERegressor,
    aggregate,
    load_model,
    report,
    simulate,
)
from otmoe.evaluation.scores import score_rows
from otmoe.likelihood.fit import em
from otmoe.model.experts import FAMILIES, LogisticExperts, MultinomialExperts
from otmoe.model.gate import SoftmaxGate


def rows(rng, n=3000, d=3):
    X = rng.normal(size=(n, d)) * [1.0, 5.0, 0.2] + [0.0, 10.0, -1.0]
    return X, X @ [0.8, -0.2, 3.0] + 4.5


# -- one expert is the textbook regression --------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_one_logistic_expert_is_logistic_regression(rng, weighted):
    X, eta = rows(rng)
    y = rng.random(len(X)) < 1 / (1 + np.exp(-eta))
    weight = rng.uniform(0.5, 2, len(X)) if weighted else None
    ours = MoEClassifier(1, expert_alpha=0).fit(X, y, sample_weight=weight).model_.experts.coef[0]
    theirs = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky", max_iter=1000)
    theirs.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours, [*theirs.intercept_, *theirs.coef_[0]], rtol=1e-6, atol=1e-6)


def test_one_multinomial_expert_is_multinomial_regression(rng):
    X, eta = rows(rng)
    logits = np.column_stack([eta, -0.5 * eta + X[:, 0], np.zeros(len(X))])
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    ours = MoEClassifier(1, expert_alpha=0).fit(X, y).model_.experts.coef[0]
    theirs = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky", max_iter=1000)
    theirs.fit(X, y)
    expected = np.column_stack([theirs.intercept_, theirs.coef_])
    np.testing.assert_allclose(ours, expected - expected[-1], rtol=1e-6, atol=1e-6)


def test_one_poisson_expert_is_poisson_regression_and_an_offset_is_an_exposure(rng):
    X, eta = rows(rng)
    exposure = rng.uniform(0.5, 4.0, len(X))
    y = rng.poisson(exposure * np.exp(0.3 * eta))
    ours = MoERegressor(1, family="poisson", expert_alpha=0).fit(X, y, offset=np.log(exposure))
    # Counts with an exposure are rates with the exposure as weight.
    theirs = PoissonRegressor(alpha=0, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    theirs.fit(X, y / exposure, sample_weight=exposure)
    np.testing.assert_allclose(
        ours.model_.experts.coef[0], [theirs.intercept_, *theirs.coef_], rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(
        ours.predict(X, offset=np.log(exposure)), exposure * theirs.predict(X), rtol=1e-5
    )


def test_an_offset_shifts_a_gaussian_response(rng):
    data = simulate(1000, 2, 3, random_state=0)
    offset = rng.normal(size=1000) * 10
    plain = MoERegressor(2, random_state=0).fit(data.X, data.y)
    shifted = MoERegressor(2, random_state=0).fit(data.X, data.y + offset, offset=offset)
    np.testing.assert_allclose(
        shifted.model_.aligned_to(plain.model_, data.X).experts.coef,
        plain.model_.experts.coef,
        rtol=1e-3,  # the ridge of the gate sees the same x, the floor another variance of y
        atol=1e-3,
    )
    assert shifted.log_likelihood_ == pytest.approx(plain.log_likelihood_, abs=1e-3)


def test_two_classes_are_the_same_by_softmax_and_by_logit(rng):
    data = simulate(2000, 2, 3, family="logistic", softness=1.0, random_state=1)
    ridges = {"alpha": 0.1, "expert_alpha": 0.5}
    logit = em(data.X, data.y, 2, family="logistic", random_state=0, **ridges)
    assert isinstance(logit.model.experts, LogisticExperts)
    both = np.stack([-logit.model.experts.coef, np.zeros_like(logit.model.experts.coef)], axis=1)
    from dataclasses import replace

    start = replace(logit.model, experts=MultinomialExperts(both))
    softmax = em(data.X, data.y, 2, family="multinomial", n_classes=2, init=start, **ridges)
    assert softmax.log_likelihood == pytest.approx(logit.log_likelihood, abs=1e-6)
    np.testing.assert_allclose(
        softmax.model.predict(data.X)[:, 1], logit.model.predict(data.X), atol=1e-5
    )


# -- right optima -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("family", ["logistic", "multinomial", "poisson"])
def test_fits_are_as_likely_as_the_truth(family):
    for seed in range(3):
        data = simulate(8000, 3, 5, family=family, softness=1.0, random_state=seed)
        fit = em(data.X, data.y, 3, family=family, n_classes=3, random_state=seed)
        assert fit.log_likelihood >= data.truth.log_density(data.X, data.y).sum() - 20


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_separable_classes_converge_to_finite_coefficients(rng):
    X = rng.normal(size=(200, 2))
    for ridge, share in ((0.0, 1.0), (None, 0.97)):
        est = MoEClassifier(1, expert_alpha=ridge).fit(X, X[:, 0] > 0)
        assert est.converged_
        assert est.score(X, X[:, 0] > 0) >= share
        assert np.all(np.isfinite(est.model_.experts.coef))


# -- labels and bad input ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled():
    data = simulate(400, 2, 2, family="multinomial", random_state=0)
    return data.X, np.array(["ash", "beech", "cedar"])[data.y]


def test_labels_may_be_strings(labelled):
    X, y = labelled
    est = MoEClassifier(2, n_init=2, random_state=0).fit(X, y)
    assert set(est.predict(X)) <= set(y)
    assert est.score(X, y) > 0.6
    np.testing.assert_allclose(est.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.exp(est.predict_log_proba(X)), est.predict_proba(X))
    codes = np.unique(y, return_inverse=True)[1]
    np.testing.assert_allclose(
        est.log_density(X, y), est.predict_log_proba(X)[np.arange(len(X)), codes], atol=1e-12
    )
    again = MoEClassifier.from_model(est.model_)
    assert np.array_equal(again.predict(X), est.predict(X))
    assert set(est.sample(X, random_state=0)) <= set(y)


def test_declared_classes_may_be_absent(labelled):
    X, y = labelled
    est = MoEClassifier(2, classes=["ash", "beech", "cedar", "elm"], n_init=2, random_state=0)
    proba = est.fit(X, y).predict_proba(X)
    assert proba.shape == (len(X), 4)
    assert proba[:, 3].max() < 1e-2  # the ridge keeps a class that nobody has seen possible
    assert np.all(np.isfinite(est.model_.to_vector()))


def test_a_single_class_is_refused_unless_more_are_declared(labelled):
    X, _ = labelled
    y = np.full(len(X), "ash")
    with refused("one_class_in_y", label="ash"):
        MoEClassifier(2).fit(X, y)
    est = MoEClassifier(1, classes=["ash", "beech"]).fit(X, y)
    assert np.all(est.predict(X) == "ash")


COUNTS = MoERegressor(family="poisson")


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (
            lambda X, y: MoEClassifier(classes=["ash", "elm"]).fit(X, y),
            "class_unknown",
            {"label": "beech"},
        ),
        (lambda X, y: MoEClassifier(classes=["ash"]).fit(X, y), "one_class_declared", {}),
        (
            lambda X, y: COUNTS.fit(X, np.arange(len(X)) - 3.0),
            "not_counts",
            {"value": -3, "row": 0},
        ),
        (
            lambda X, y: COUNTS.fit(X, np.arange(len(X)) / 2),
            "not_counts",
            {"value": 0.5, "row": 1},
        ),
        (
            lambda X, y: COUNTS.fit(X, np.ones(len(X)), offset=[1.0, 2.0]),
            "one_per_row",
            {"name": "offset", "shape": (2,), "wanted": (400,)},
        ),
        (
            lambda X, y: MoERegressor(family="logistic").fit(X, y == "ash"),
            "not_one_of",
            {"name": "family", "value": "logistic"},
        ),
    ],
)
def test_bad_input_gets_a_sentence(labelled, make, code, facts):
    with refused(code, ValueError, **facts):
        make(*labelled)


def test_numbers_are_no_classes(labelled):
    with pytest.raises(ValueError, match="Unknown label type"):
        MoEClassifier().fit(labelled[0], np.linspace(0, 1, len(labelled[0])))


def test_a_class_unknown_to_the_fit_is_named_when_scoring(labelled):
    X, y = labelled
    est = MoEClassifier(2, n_init=1, random_state=0).fit(X, y)
    with refused("class_unknown", label="yew"):
        est.log_density(X[:1], ["yew"])


def test_classes_have_no_quantiles(labelled):
    X, y = labelled
    est = MoEClassifier(2, n_init=1, random_state=0).fit(X, y)
    with refused("no_order", TypeError):
        est.model_.quantile(X, 0.5)


def test_a_model_may_have_its_classes_in_any_order(rng):
    model = replace(random_model(rng, family="multinomial"), classes=np.array(["a", "b", "c"]))
    order = [2, 0, 1]
    coef = model.experts.coef[:, order]
    other = replace(
        model,
        experts=MultinomialExperts(coef - coef[:, -1:]),
        classes=model.classes[order],
    )
    X, y = rng.normal(size=(20, 2)), rng.choice(model.classes, 20)
    one, two = MoEClassifier.from_model(model), MoEClassifier.from_model(other)
    np.testing.assert_allclose(two.log_density(X, y), one.log_density(X, y))
    np.testing.assert_array_equal(two.predict(X), one.predict(X))
    with refused("class_unknown", label="d"):
        two.log_density(X[:1], ["d"])


# -- a new family ---------------------------------------------------------------------------------


@pytest.fixture
def ten_trials(monkeypatch):
    """Register the family of CONTRIBUTING.md, by its very block."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.setitem(FAMILIES, "ten_trials", None)  # so that it is taken out afterwards
    exec(code, scope := {"__name__": "contributing"})
    return scope["TenTrialsExperts"]


@pytest.fixture
def trials(ten_trials, rng):
    """Return a truth of that family, and rows of it at two sites."""
    gate = SoftmaxGate(np.array([[0.3, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    truth = MoE(gate, ten_trials(np.array([[0.0, 1.0, -1.0], [1.0, -1.0, 0.5]])))
    X = rng.normal(size=(3000, 2))
    y = truth.sample(X, rng)[0]
    return truth, X, y, {"Lyon": slice(0, 1500), "Nantes": slice(1500, None)}


def test_the_family_in_contributing_is_one(ten_trials, trials):
    truth, X, y, _ = trials
    fit = em(X, y, 2, family="ten_trials", random_state=0)
    coef = fit.model.aligned_to(truth, X).experts.coef
    np.testing.assert_allclose(coef, truth.experts.coef, atol=0.15)
    density = [truth.log_density(X[:3], np.full(3, float(v))) for v in range(11)]
    np.testing.assert_allclose(np.exp(density).sum(axis=0), 1.0)


def test_it_goes_everywhere_in_python(trials, tmp_path):
    truth, X, y, sites = trials
    est = MoERegressor(2, family="ten_trials", random_state=0).fit(X, y)
    assert est.score(X, y) == pytest.approx(r2_score(y, est.predict(X)))
    assert "ten_trials" in est.summary()
    interval = est.inference().mean_interval(2 * X, level=0.999999)
    assert (interval.mean + 4 * interval.se).max() > 10 >= interval.high.max()
    assert interval.low.min() >= 0
    assert np.all(interval.low <= interval.mean) and np.all(interval.mean <= interval.high)
    measures = score_rows(est.model_, X, y).measures
    assert measures["r2"] == pytest.approx(est.score(X, y))
    assert measures["log_likelihood"] == pytest.approx(est.log_likelihood_ / len(y))
    for value in (-1.0, 2.5, 11.0):
        with refused("not_counts", value=value, row=0, family="ten_trials", highest=10.0):
            score_rows(est.model_, X[:1], np.array([value]))
        with refused("not_counts", value=value):
            est.fit(X[:2], [value, 1.0])
    messages = []
    for name, part in sites.items():
        sent = MoERegressor(2, family="ten_trials", random_state=0).fit(X[part], y[part])
        messages.append(LocalModel.from_json(sent.to_message(name).to_json()))
    result = aggregate(messages, X)
    coef = result.model.aligned_to(truth, X).experts.coef
    np.testing.assert_allclose(coef, truth.experts.coef, atol=0.15)
    result.save(tmp_path / "model.json")
    found = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(found.to_vector(), result.model.to_vector())
    assert "Nantes" in report(tmp_path / "model.json")


@pytest.mark.usefixtures("own_folder")
def test_it_goes_everywhere_in_the_shell(trials):
    _, X, y, sites = trials
    fit = ["--target", "y", "--experts", 2, "--family", "ten_trials", "--columns", "a,b"]
    for name, part in sites.items():
        columns = {"a": X[part, 0], "b": X[part, 1], "y": y[part].astype(int)}
        pq.write_table(pa.table(columns), f"{name}.parquet")
        how = ["--site", name, "--sketch", "-o", f"{name}.moe.json"]
        fine("fit", f"{name}.parquet", *fit, *how)
    fine("aggregate", "*.moe.json", "-o", "model.json")
    rows = ["model.json", "Nantes.parquet"]
    found = json.loads(fine("evaluate", *rows, "--target", "y", "--json").stdout)
    fine("predict", *rows, "--quantiles", ".05,.95", "-o", "predicted.parquet")
    fine("report", "model.json", "-o", "report.html")
    predicted = pq.read_table("predicted.parquet")
    there = sites["Nantes"]
    assert found["r2"] == pytest.approx(r2_score(y[there], predicted["prediction"]))
    low, high = predicted["q0.05"].to_numpy(), predicted["q0.95"].to_numpy()
    assert low.min() >= 0 and high.max() <= 10
    assert np.mean((low <= y[there]) & (y[there] <= high)) > 0.88
    assert "ten_trials" in Path("report.html").read_text()


def test_the_shell_asks_for_a_family_that_there_is():
    result = call("fit", "a.parquet", "--target", "y", "--experts", 2, "--family", "cauchy")
    assert result.exit_code == 2
    assert all(name in result.stderr for name in ("gaussian", "poisson", "classes"))
    assert "logistic" not in result.stderr
