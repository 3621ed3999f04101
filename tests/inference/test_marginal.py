"""Ratios and average marginal effects: against statsmodels, and by brute force."""

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from refusals import refused

from otmoe import MoEClassifier, MoERegressor, simulate

RNG = np.random.default_rng(3)
N = 500
X = np.column_stack([RNG.standard_normal(N), RNG.random(N) < 0.4, RNG.standard_normal(N) * 100])
ETA = 0.3 + X @ [0.6, -0.8, 0.002]
Y = {
    "logistic": (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int),
    "poisson": RNG.poisson(np.exp(ETA)),
    "gaussian": ETA + RNG.standard_normal(N),
}


def one_expert(family):
    """Return the inference of one expert without a ridge: a generalised linear model."""
    plain = {"alpha": 0.0, "expert_alpha": 0.0, "random_state": 0}
    if family == "logistic":
        return MoEClassifier(1, **plain).fit(X, Y[family]).inference(X, Y[family])
    est = MoERegressor(1, family=family, **plain).fit(X, Y[family])
    return est.inference(X, Y[family])


@pytest.mark.parametrize(("family", "theirs"), [("logistic", sm.Logit), ("poisson", sm.Poisson)])
def test_effects_of_one_expert_are_those_of_statsmodels(family, theirs):
    found = one_expert(family).marginal_effects(X)
    fit = theirs(Y[family], sm.add_constant(X)).fit(disp=0)
    wanted = fit.get_margeff(dummy=True).summary_frame()
    assert_allclose([row.estimate for row in found], wanted["dy/dx"], rtol=1e-5)
    assert_allclose([row.se for row in found], wanted["Std. Err."], rtol=1e-4)
    assert_allclose([row.low for row in found], wanted["Conf. Int. Low"], rtol=1e-3)
    assert [row.term for row in found] == ["x0", "x1", "x2"]
    assert "x1" in str(found[1]) and "None" not in str(found[1])


def test_the_effects_of_a_linear_model_are_its_coefficients():
    found = one_expert("gaussian")
    effects, rows = found.marginal_effects(X), found.table()[1:4]
    assert_allclose([e.estimate for e in effects], [row.estimate for row in rows], rtol=1e-7)
    assert_allclose([e.se for e in effects], [row.se for row in rows], rtol=1e-7)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "multinomial"])
def test_effects_of_several_experts_by_brute_force(family):
    data = simulate(800, 2, 2, family=family, softness=0.5, random_state=1)
    if family == "multinomial":
        est = MoEClassifier(2, random_state=0).fit(data.X, data.y)
    else:
        est = MoERegressor(2, family=family, random_state=0).fit(data.X, data.y)
    found = est.inference()
    model, P = est.model_, est.model_.n_parameters

    def effects(vector):
        there = type(est).from_model(model.with_vector(vector))
        predict = there.predict_proba if family == "multinomial" else there.predict
        slopes = []
        for j in range(2):
            step = np.zeros(2)
            step[j] = 1e-3
            mean = (predict(data.X + step) - predict(data.X - step)) / 2e-3
            slopes.append(mean.mean(axis=0))
        return np.ravel(slopes)

    theta = model.to_vector()
    jacobian = np.empty((len(effects(theta)), P))
    for i in range(P):
        step = np.zeros(P)
        step[i] = 1e-5 * max(abs(theta[i]), 1)
        jacobian[:, i] = (effects(theta + step) - effects(theta - step)) / (2 * step[i])
    rows = found.marginal_effects(data.X)
    assert_allclose([row.estimate for row in rows], effects(theta), rtol=1e-3, atol=1e-6)
    assert_allclose([row.se for row in rows], found.covariance.standard_errors(jacobian), rtol=1e-2)


def test_an_offset_shifts_the_point_of_the_effects():
    exposure = RNG.uniform(0.5, 2, N)
    est = MoERegressor(1, family="poisson", alpha=0, expert_alpha=0, random_state=0)
    est.fit(X, Y["poisson"], offset=np.log(exposure))
    found = est.inference(X, Y["poisson"], offset=np.log(exposure))
    mean = est.predict(X, offset=np.log(exposure))
    effects = found.marginal_effects(X, offset=np.log(exposure))
    assert_allclose(effects[0].estimate, mean.mean() * est.model_.experts.coef[0, 1], rtol=1e-6)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_ratios_are_exponentials_with_the_intervals_of_coefficients(family):
    found = one_expert(family)
    slopes = [row for row in found.table(0.9) if row.block == "expert" and row.term != "intercept"]
    ratios = found.ratios(0.9)
    for name in ("estimate", "low", "high"):
        logs = np.log([getattr(row, name) for row in ratios])
        assert_allclose(logs, [getattr(row, name) for row in slopes], atol=1e-12)
    assert [row.p for row in ratios] == [row.p for row in slopes]
    errors = [ratio.estimate * row.se for ratio, row in zip(ratios, slopes, strict=True)]
    assert_allclose([ratio.se for ratio in ratios], errors)


def test_ratios_of_numbers_are_refused_but_not_those_of_their_gate():
    data = simulate(600, 2, 2, softness=0.5, random_state=0)
    found = MoERegressor(2, random_state=0).fit(data.X, data.y).inference()
    refused("no_ratios").by(found.ratios)
    refused("not_one_of", name="block").by(found.ratios, block="variance")
    assert [row.term for row in found.ratios(block="gate")] == ["x0", "x1"]


def test_columns_have_to_be_those_of_the_model():
    refused("x_shape").by(one_expert("gaussian").marginal_effects, X[:, :2])


def test_notebooks_show_tables_and_the_repr_is_short():
    found = one_expert("logistic")
    assert len(repr(found)) < 100 and "500 rows" in repr(found)
    page = found._repr_html_()
    for row in found.table():
        assert f"<td>{row.estimate:.4f}</td>" in page or abs(row.estimate) < 1e-3
    text = found.summary()
    assert text._repr_html_().startswith("<pre>") and "&gt;|z|" in text._repr_html_()
