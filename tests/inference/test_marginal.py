"""Ratios and average marginal effects: against statsmodels, and by brute force."""

import pickle

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import DistributedMoERegressor, FeatureSpec, MoEClassifier, MoERegressor, simulate
from otmoe.data.shards import shards_from

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


# -- data frames ---------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "dose": RNG.standard_normal(N) * 3,
        "ward": RNG.choice(["u", "v", "w"], N),
        "smoker": RNG.random(N) < 0.3,
    }
)
MEAN = 0.2 * FRAME["dose"] + (FRAME["ward"] == "v") - 0.5 * FRAME["smoker"]
HIT = np.where(RNG.random(N) < 1 / (1 + np.exp(-MEAN)), "yes", "no")


def differences(predict, frame):
    """Return the effects by brute force: mean differences of predictions for changed frames."""
    step = 1e-4
    up, down = (predict(frame.assign(dose=frame["dose"] + s)) for s in (step, -step))
    found = {"dose": np.nanmean(up - down) / (2 * step)}
    for level in ("v", "w"):
        moved = predict(frame.assign(ward=level)) - predict(frame.assign(ward="u"))
        found[f"ward={level}"] = moved.mean()
    on, off = (predict(frame.assign(smoker=state)) for state in (True, False))
    return found | {"smoker": (on - off).mean()}


def test_effects_in_a_frame_are_differences_of_predictions():
    est = MoEClassifier(2, n_init=2, random_state=0).fit(FRAME, HIT)
    found = est.inference().marginal_effects(FRAME)
    wanted = differences(lambda frame: est.predict_proba(frame)[:, 1], FRAME)
    assert [row.term for row in found] == list(wanted) and {row.label for row in found} == {"yes"}
    assert_allclose([row.estimate for row in found], list(wanted.values()), rtol=1e-6, atol=1e-9)
    shuffled = FRAME[["smoker", "ward", "dose"]].iloc[::-1]
    assert_allclose(
        [row.se for row in est.inference().marginal_effects(shuffled)], [row.se for row in found]
    )
    encoded = est.inference().marginal_effects(est.features_.encode(FRAME))
    assert [row.estimate for row in encoded] == [row.estimate for row in found]


def test_a_variable_takes_its_terms_with_it():
    y = np.sin(FRAME["dose"]) + MEAN + 0.3 * RNG.standard_normal(N)
    data = FRAME.assign(y=y)
    formula = "y ~ spline(dose, 4) + ward + smoker + dose:ward"
    est = MoERegressor.from_formula(formula, data, 2, random_state=0)
    found = est.inference().marginal_effects(data)
    wanted = differences(est.predict, data)
    assert [row.term for row in found] == list(wanted)
    assert_allclose([row.estimate for row in found], list(wanted.values()), rtol=1e-5, atol=1e-8)


def test_the_unit_of_an_effect_is_that_of_the_column_and_missing_numbers_stay_out():
    gaps = FRAME.assign(dose=FRAME["dose"].where(RNG.random(N) < 0.9))
    spec = FeatureSpec.from_sample(gaps, center=True, missing="indicator")
    y = (MEAN + 0.5 * RNG.standard_normal(N)).to_numpy()
    (shard,) = shards_from((gaps, y), features=spec)
    est = DistributedMoERegressor(1, refine="auto", random_state=0).fit_shards([shard])
    found = est.inference().marginal_effects(gaps)
    assert [row.term for row in found] == ["dose", "ward=v", "ward=w", "smoker"]
    whole = gaps[gaps["dose"].notna()]
    slope = differences(est.predict, whole)["dose"]
    assert_allclose(found[0].estimate, slope, rtol=1e-6)
    scale = spec.columns[0].scale
    assert scale > 2  # so that the unit can be told
    assert_allclose(found[0].estimate, est.model_.experts.coef[0, 1] / scale, rtol=1e-6)
    assert_allclose(found[0].se, est.inference().standard_errors.coef[0, 1] / scale, rtol=1e-6)


def test_frames_of_numbers_are_read_by_name():
    numbers = pd.DataFrame(X, columns=["a", "b", "c"])
    est = MoERegressor(2, n_init=1, random_state=0).fit(numbers, Y["gaussian"])
    found = est.inference()
    wanted = found.marginal_effects(X)
    assert found.marginal_effects(numbers[["c", "a", "b"]]) == wanted
    assert [row.term for row in wanted] == ["a", "b", "c"]
    refused("no_column", column="b").by(found.marginal_effects, numbers[["a", "c"]])
    assert_array_equal(
        found.mean_interval(numbers[["c", "a", "b"]]).low, found.mean_interval(X).low
    )


def test_intervals_of_means_take_frames():
    est = MoEClassifier(2, n_init=2, random_state=0).fit(FRAME, HIT)
    found = est.inference().mean_interval(FRAME)
    assert_allclose(found.mean, est.predict_proba(FRAME)[:, 1], rtol=1e-12)


# -- printed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "made", "called"),
    [
        ("logistic", lambda found: found.ratios(0.9), "odds ratio"),
        ("poisson", lambda found: found.ratios(0.9), "rate ratio"),
        ("gaussian", lambda found: found.marginal_effects(X, 0.9), "dy/dx"),
        ("gaussian", lambda found: found.table(0.9), "estimate"),
    ],
)
def test_estimates_print_as_tables_and_are_tuples(family, made, called):
    rows = made(one_expert(family))
    assert isinstance(rows, tuple) and rows == tuple(rows) and len(pd.DataFrame(rows)) == len(rows)
    lines = repr(rows).splitlines()
    assert str(rows) == repr(rows) and max(map(len, lines)) <= 80
    assert lines[1].split() == [*called.split(), "std", "err", "z", "P>|z|", "[0.05", "0.95]"]
    assert len({len(line) for line in lines[1:]}) == 1  # aligned
    for row, line in zip(rows, lines[3:], strict=True):
        assert line.startswith(row.term) and line.split()[1] == f"{row.estimate:.4f}"
    assert repr(rows[:1]).splitlines() == lines[:4] and rows[:1].level == 0.9
    page = rows._repr_html_()
    assert called in page and all(f"<td>{row.estimate:.4f}</td>" in page for row in rows)
    again = pickle.loads(pickle.dumps(rows))
    assert type(again) is type(rows) and repr(again) == repr(rows)


def test_each_expert_and_class_has_a_heading_of_its_own():
    data = simulate(600, 2, 2, family="multinomial", softness=0.5, random_state=0)
    est = MoEClassifier(2, n_init=1, random_state=0).fit(data.X, data.y)
    found = est.inference()
    heads = [line for line in repr(found.table()).splitlines() if line[:1] in "GE" and line[:1]]
    assert heads[0] == "Gate: expert 0 against expert 1" and "Expert 1, class 0" in heads
    effects = repr(found.marginal_effects(data.X))
    assert "Average marginal effects, class 2" in effects
    tests = found.terms()
    assert isinstance(tests, tuple)
    lines = repr(tests).splitlines()
    assert lines[1].split() == ["chi2", "df", "P>chi2"]
    assert lines[3].split() == [
        tests[0].term,
        f"{tests[0].statistic:.3f}",
        str(tests[0].df),
        f"{tests[0].p:.3f}",
    ]
    assert "chi2" in tests._repr_html_()
