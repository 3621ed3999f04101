from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy import stats

from otmoe import FeatureSpec, MoEClassifier, MoERegressor
from otmoe.evaluation.curves import curves_of


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    n = 1500
    x, group, z = rng.uniform(0, 6, n), rng.choice(list("abc"), n), rng.normal(size=n)
    first = rng.random(n) < 1 / (1 + np.exp(-2 * z))
    y = np.where(first, 4 + 2 * np.sin(x), -0.5 * x) + rng.normal(0, 0.4, n)
    return {"y": y, "x": x, "group": group, "z": z, "late": np.where(np.sin(x) + z > 0, 1, 0)}


@pytest.fixture(scope="module")
def bent(rows):
    return MoERegressor.from_formula("y ~ spline(x, 4) + group + z | z", rows, 2, random_state=0)


def test_the_test_of_a_term_is_that_of_statsmodels(rows, rng):
    noisy = rows | {"late": np.where(rng.random(1500) < 0.3, 1 - rows["late"], rows["late"])}
    est = MoEClassifier.from_formula(
        "late ~ spline(x, 4) + group + z", noisy, 1, expert_alpha=0.0, random_state=0
    )
    spec = est.features_
    theirs = sm.Logit(noisy["late"], sm.add_constant(spec.encode(noisy))).fit(disp=0, tol=1e-12)
    names = ["const", *spec.feature_names]
    for test in est.inference().terms(spec.term_features):
        mine = [names.index(name) for name in spec.term_features[test.term]]
        other = theirs.wald_test(np.eye(len(names))[mine], scalar=True)
        assert test.df == len(mine) and (test.block, test.expert) == ("expert", 0)
        assert_allclose(test.statistic, other.statistic, rtol=1e-5)
        assert_allclose(test.p, other.pvalue, rtol=1e-4, atol=1e-12)


def test_terms_are_tested_by_expert_and_row_of_the_gate(bent):
    found = bent.inference()
    tests = {(t.block, t.expert, t.term): t for t in found.terms(bent.features_.term_features)}
    assert {key[2] for key in tests if key[0] == "gate"} == {"z"}  # all that it sees
    assert [tests["expert", k, "spline(x)"].df for k in (0, 1)] == [4, 4]
    p = sorted(tests["expert", k, "spline(x), nonlinear"].p for k in (0, 1))
    assert p[0] < 1e-50 and p[1] > 1e-3  # one is straight
    alone = [t for t in found.terms() if t.block == "expert"]
    estimates = [row for row in found.table() if row.block == "expert" and row.term != "intercept"]
    assert_allclose([t.statistic for t in alone], [row.z**2 for row in estimates], rtol=1e-8)
    assert_allclose(alone[0].p, stats.chi2.sf(estimates[0].z ** 2, 1), rtol=1e-8)
    refused("not_one_of", name="terms", value="age").by(found.terms, {"age": ["age"]})


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_curve_is_a_difference_of_predictors_and_its_band_theirs(bent, level):
    found, spec = bent.inference(), bent.features_
    curves = curves_of(found, spec, "x", level=level, n_grid=9)
    knots = spec.terms[0].knots
    for curve in curves:
        assert curve.reference == knots[2]
        assert_allclose(curve.x, np.linspace(knots[0], knots[-1], 9))
        rows = {"x": np.r_[curve.reference, curve.x], "group": ["b"] * 10, "z": [0.3] * 10}
        design = np.column_stack([np.ones(10), spec.encode(rows)])
        away = design[1:] - design[0]
        assert_allclose(curve.effect, away @ bent.model_.experts.coef[curve.expert], atol=1e-9)
        mine = [
            j
            for j, row in enumerate(found.parameters)
            if (row.block, row.expert) == ("expert", curve.expert)
        ]
        cov = found.covariance.of(np.eye(bent.model_.n_parameters)[mine])
        half = stats.norm.ppf(0.5 + level / 2) * np.sqrt(np.einsum("gi,ij,gj->g", away, cov, away))
        assert_allclose(curve.high - curve.effect, half, rtol=1e-6, atol=1e-9)
        assert_allclose(curve.effect - curve.low, half, rtol=1e-6, atol=1e-9)
    (gate,) = curves_of(found, spec, "x", block="gate")
    assert_array_equal(gate.effect, 0)  # it does not see x
    refused("not_one_of", name="column", value="z").by(curves_of, found, spec, "z")


def test_several_responses_have_tests_and_curves_of_their_own(rows):
    data = rows | {"w": rows["y"] ** 2}
    est = MoERegressor.from_formula(
        "y, w ~ spline(x, 4) + group | 1", data, 1, family=["gaussian", "gaussian"], random_state=0
    )
    found, spec = est.inference(), est.features_
    tests = {(t.label, t.term): t for t in found.terms(spec.term_features)}
    for j, name in enumerate(("y", "w")):  # with one expert, each is a fit of its own
        text = f"{name} ~ spline(x, 4) + group | 1"
        alone = MoERegressor.from_formula(text, data, 1, random_state=0)
        (one,) = curves_of(alone.inference(), spec, "x")
        mine = curves_of(found, spec, "x")[j]
        assert mine.label == name
        for part in ("effect", "low", "high"):
            assert_allclose(getattr(mine, part), getattr(one, part), rtol=1e-6, atol=1e-8)
        for test in alone.inference().terms(spec.term_features):
            if test.block == "expert":
                found_here = tests[name, test.term]
                assert_allclose(found_here.statistic, test.statistic, rtol=1e-6)
                assert found_here.df == test.df


def test_tables_show_a_spline_as_a_whole_and_the_table_has_its_coefficients(rows):
    text = "y ~ spline(x, 4) * group + z | spline(z, 3)"
    est = MoERegressor.from_formula(text, rows, 2, random_state=0)
    found, spec = est.inference(), est.features_
    assert list(spec.curve_features) == ["spline(x)", "spline(z)", "spline(x):group"]
    tests = {(t.block, t.expert, t.term): t for t in found.terms(spec.term_features)}
    for shown in (str(found.matrix()), str(found.summary()), found._repr_html_()):
        assert "spline(x)" in shown and "spline(z)" in shown and "group=b" in shown
        assert "spline(x).1" not in shown and "spline(z).1" not in shown
        assert "x:group=b" in shown and "spline(x).1:group=b" not in shown
    for k in (0, 1):
        for term, df in (("spline(x)", 4), ("spline(x):group", 6)):
            test = tests["expert", k, term]
            p = "<0.001" if test.p < 0.001 else f"{test.p:.3f}"
            assert test.df == df and f"{test.statistic:.1f} ({df}) {p}" in found.matrix()
    gate = tests["gate", 0, "spline(z)"]
    assert gate.df == 3 and f"{gate.statistic:.1f} (3)" in found.matrix()
    # experts see z, but not its spline: that is a slope
    slopes = [row for row in found.table() if (row.block, row.term) == ("expert", "z")]
    lines = [line.split() for line in found.matrix().splitlines()]
    assert [line for line in lines if line[0] == "z"][0][1] == f"{slopes[0].estimate:.3f}"
    assert [line[0] for line in lines].count("spline(z)") == 1
    names = {row.term for row in found.table()}
    assert set(spec.feature_names) <= names


def test_an_expert_that_sees_a_line_beside_one_that_sees_a_curve(rows):
    spec = FeatureSpec.from_sample({"x": rows["x"], "z": rows["z"]}, splines={"x": 3})
    columns = list(spec.feature_names)
    how = {"expert_features": [columns, ["x", "z"]], "random_state": 0}
    X = pd.DataFrame(spec.encode(rows), columns=columns)
    est = MoERegressor(2, **how).fit(X, rows["y"])
    found = replace(est.inference(), curves=spec.curve_features)
    lines = {line.split()[0]: line.split()[1:] for line in str(found.matrix()).splitlines()}
    assert len(lines["x"]) == 2 and len(lines["spline(x)"]) == 3  # estimate (error), and a test
    assert str(found.summary()).count("spline(x) ") == 2  # of expert 0 and of the gate


def test_effects_of_single_features_of_a_spline_are_not_given(rows):
    counts = rows | {"late": np.round(np.exp(rows["late"] + 0.2 * rows["z"]))}
    text = "late ~ spline(x, 3) + group + z"
    found = MoERegressor.from_formula(text, counts, 1, family="poisson", random_state=0)
    at = found.features_.encode(rows)
    inference = found.inference()
    alone = replace(inference, variables=None)  # features, from columns that are not known
    for effects in (inference.ratios(), alone.marginal_effects(at)):
        assert [row.term for row in effects] == ["group=b", "group=c", "z"]
    (z,) = (row for row in inference.table() if row.term == "z")
    assert_allclose(inference.ratios()[-1].estimate, np.exp(z.estimate))
