import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import FeatureSpec, MoEClassifier, MoERegressor
from otmoe.data.formula import Factor, Formula


@pytest.fixture
def rows(rng):
    n = 800
    hour, origin = rng.uniform(0, 24, n), rng.choice(["EWR", "JFK", "LGA"], n)
    dep, z = rng.normal(size=n), rng.normal(size=n)
    y = np.sin(hour / 4) + 0.5 * dep * (origin == "JFK") + rng.normal(0, 0.1, n)
    return {"y": y, "hour": hour, "origin": origin, "dep": dep, "log price": z}


def test_a_formula_says_what_experts_and_gate_see(rows):
    formula = Formula.parse("y ~ spline(hour, 5) + dep:origin + `log price` | hour + 1")
    assert formula.target == "y" and formula.df == {"hour": 5}
    spec = formula.features(rows)
    assert spec.names == ("hour", "dep", "origin", "log price")
    assert [term.name for term in spec.terms] == ["spline(hour)", "dep:origin"]
    assert formula.gate_features(spec) == ["hour"] and formula.expert_features(spec) is None


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("y ~ dep + hour", None),
        ("y ~ dep + hour | 1", "intercept"),
        ("y ~ dep + spline(hour, 2) | dep + spline(hour)", ["dep", "hour", "spline(hour).1"]),
        ("y ~ dep * hour | dep:hour", ["dep", "hour", "dep:hour"]),
        ("y ~ . | origin", ["origin=JFK", "origin=LGA"]),
    ],
)  # fmt: skip
def test_what_the_gate_sees(rows, text, gate):
    formula = Formula.parse(text)
    assert formula.gate_features(formula.features(rows)) == gate


def test_a_product_brings_its_columns_and_a_star_is_the_same(rows):
    one, other = (Formula.parse(text) for text in ("y ~ dep:origin", "y ~ dep * origin"))
    assert one == other and one.features(rows).names == ("dep", "origin")
    curve = Formula.parse("y ~ spline(hour, 3):origin").features(rows)
    assert [t.name for t in curve.terms] == ["spline(hour)", "hour:origin", "spline(hour):origin"]


def test_a_dot_is_every_other_column(rows):
    assert Formula.parse("y ~ .").columns(rows, ["dep"]) == ["hour", "origin", "log price"]
    assert Formula.parse("y ~ spline(hour) + .").experts.factors == (Factor("hour", True),)
    spec = Formula.parse("y ~ hour | .").features(rows)
    assert Formula.parse("y ~ hour | .").expert_features(spec) == ["hour"]
    assert Formula.parse("y ~ 1 | hour").expert_features(FeatureSpec.of_names(["hour"])) == (
        "intercept"
    )


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")  # 60 rows, many maxima
def test_experts_may_go_without_an_intercept(rows):
    spec = FeatureSpec.of_names(["dep", "hour"])
    for text in ("y ~ 0 + dep | hour", "y ~ dep - 1 | hour", "y ~ dep + 0 | 1 + hour"):
        formula = Formula.parse(text)
        assert formula.expert_features(spec) == ["-intercept", "dep"]
        assert formula.gate_features(spec) == ["hour"]
    assert Formula.parse("y ~ 0 + .").expert_features(spec) == ["-intercept", "dep", "hour"]
    est = MoERegressor.from_formula("y ~ 0 + dep | hour", rows, 2, random_state=0)
    assert np.all(est.model_.experts.coef[:, 0] == 0) and est.fit_.rank == 6


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("y ~ a | b - 1", "formula_gate_intercept", {}),
        ("y ~ a - 2", "formula_unreadable", {"found": "'- 2'"}),
        ("", "formula_unreadable", {"found": "its end"}),
        ("y ~", "formula_unreadable", {"found": "its end"}),
        ("~ a", "formula_unreadable", {"found": "'~ a'"}),
        ("y z ~ a", "formula_unreadable", {"wanted": "~ after the response"}),
        ("y ~ a b", "formula_unreadable", {"found": "'b'", "wanted": "+ or |"}),
        ("y ~ a + ", "formula_unreadable", {"found": "its end"}),
        ("y ~ a | b | c", "formula_unreadable", {"found": "'| c'"}),
        ("y ~ a ^ 2", "formula_unreadable", {"found": "'^ 2'"}),
        ("y ~ 2", "formula_unreadable", {"found": "'2'"}),
        ("y ~ spline(a", "formula_unreadable", {"wanted": ") after the spline"}),
        ("y ~ spline(a, b)", "formula_unreadable", {"found": "'b)'"}),
        ("y ~ a - b", "formula_unreadable", {"found": "'- b'"}),
        ("y ~ log(a)", "formula_function", {"name": "log"}),
        ("y ~ a:b:c", "formula_three", {}),
        ("y ~ a:a", "formula_square", {"column": "a"}),
        ("y ~ spline(a, 3) | spline(a, 4)", "formula_two_df", {"column": "a", "df": 4, "other": 3}),
        (None, "formula_no_text", {"kind": "NoneType"}),
    ],
)
def test_what_cannot_be_read_is_shown(text, code, facts):
    refused(code, **facts).by(Formula.parse, text)


def test_columns_that_do_not_suit_are_named(rows):
    def features(text):
        return Formula.parse(text).features(rows)

    refused("no_column", column="speed").by(features, "y ~ speed")
    refused("formula_target_twice", column="y").by(features, "y ~ dep + y")
    refused("formula_no_columns").by(features, "y ~ 1 | 1")
    refused("spline_of_no_number", column='"origin"').by(features, "y ~ spline(origin)")
    refused("spline_df", df=1).by(features, "y ~ spline(hour, 1)")
    refused("formula_no_target").by(MoERegressor.from_formula, "dep", rows)


def test_features_from_a_file_have_to_be_those_of_the_formula(rows):
    formula = Formula.parse("y ~ spline(hour, 5) + dep")
    formula.check(formula.features(rows), rows)
    Formula.parse("y ~ spline(hour, 3) + dep").check(formula.features(rows), rows)  # knots may
    with refused("formula_other_features", name="origin", who="formula"):
        Formula.parse("y ~ spline(hour, 5) + dep + origin").check(formula.features(rows), rows)
    with refused("formula_other_features", name="spline(hour)", who="file of features"):
        Formula.parse("y ~ hour + dep").check(formula.features(rows), rows)


@pytest.mark.parametrize("form", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_a_fit_by_formula_is_that_of_the_encoded_rows(rows, form):
    text = "y ~ spline(hour, 4) + dep:origin | dep"
    est = MoERegressor.from_formula(text, form(rows), 1, random_state=0)
    X = est.features_.encode(rows)
    there = MoERegressor(1, random_state=0).fit(X, rows["y"])
    assert_array_equal(est.model_.experts.coef, there.model_.experts.coef)
    new = {name: values[:7] for name, values in rows.items() if name != "y"}
    assert_array_equal(est.predict(form(new)), there.predict(X[:7]))
    message = est.to_message("Lyon", form(rows), sketch=True)
    assert message.features == est.features_ and message.sketch.n_features == 4


def test_the_gate_sees_what_stands_after_the_bar(rows):
    est = MoERegressor.from_formula("y ~ spline(hour) + dep | dep", rows, 2, random_state=0)
    assert est.model_.gate.columns == (0, 2)
    assert MoERegressor.from_formula(
        "y ~ dep | 1", rows, 2, random_state=0
    ).model_.gate.columns == (0,)


def test_labels_stay_what_they_are(rows):
    late = rows["y"] > 0
    for labels in (late.astype(int), np.where(late, "late", "on time")):
        data = rows | {"late": labels}
        est = MoEClassifier.from_formula("late ~ spline(hour, 3) + dep", data, 1, random_state=0)
        assert_array_equal(est.classes_, np.unique(labels))
        assert (est.predict(data) == labels).mean() > 0.9


def test_weights_and_missing_values_go_along(rows, rng):
    weight = rng.integers(0, 3, 800)
    twice = {name: np.repeat(values, weight) for name, values in rows.items()}
    text = "y ~ hour + dep"
    one = MoERegressor.from_formula(text, rows, 1, sample_weight=weight, random_state=0)
    other = MoERegressor.from_formula(text, twice, 1, random_state=0)
    assert_allclose(one.model_.to_vector(), other.model_.to_vector(), rtol=1e-8)

    gone = rows | {"dep": np.where(np.arange(800) < 80, np.nan, rows["dep"])}
    refused("column_missing", rows=800).by(MoERegressor.from_formula, text, gone, 1)
    kept = {name: values[80:] for name, values in rows.items()}
    dropped = MoERegressor.from_formula(text, gone, 1, missing="drop", random_state=0)
    there = MoERegressor.from_formula(text, kept, 1, random_state=0)
    assert_allclose(dropped.model_.to_vector(), there.model_.to_vector(), rtol=1e-8)
    origin = np.where(np.arange(800) < 7, None, rows["origin"])  # a column of several features
    refused("column_missing", columns="80 of column 'dep', 7 of column 'origin'").by(
        MoERegressor.from_formula, "y ~ dep + origin", gone | {"origin": origin}, 1
    )
    filled = MoERegressor.from_formula(text, gone, 1, missing="indicator", random_state=0)
    assert filled.features_.feature_names == ("hour", "dep", "dep=missing")
    assert np.isfinite(filled.predict({"hour": [3.0], "dep": [None]})).all()


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")
def test_the_gate_is_given_once_and_groups_by_name(rows):
    fit = MoERegressor.from_formula
    refused("formula_gate").by(fit, "y ~ dep | hour", rows, 2, gate_features=["dep"])
    est = fit("y ~ dep + hour", rows, 2, gate_features=["hour"], random_state=0)
    other = fit("y ~ dep + hour | hour", rows, 2, random_state=0)
    assert_array_equal(est.model_.to_vector(), other.model_.to_vector())
    labels = pd.Series(rows["origin"])
    how = {"expert_per": "group", "groups": labels}
    refused("formula_groups", kind="Series").by(fit, "y ~ dep | 1", rows, 2, **how)


def test_an_offset_goes_with_the_rows_that_are_kept(rows, rng):
    exposure = rng.uniform(0.5, 3, 800)
    rows["y"] = rng.poisson(exposure * np.exp(0.3 * rows["dep"])).astype(float)
    rows["dep"][:50] = np.nan
    how = {"family": "poisson", "random_state": 0}
    known = np.log(exposure)
    found = MoERegressor.from_formula("y ~ dep", rows, 1, missing="drop", offset=known, **how)
    X = rows["dep"][50:, None]
    wanted = MoERegressor(1, **how).fit(X, rows["y"][50:], offset=known[50:])
    assert_allclose(found.model_.experts.coef, wanted.model_.experts.coef, rtol=1e-10)
    without = MoERegressor.from_formula("y ~ dep", rows, 1, missing="drop", **how)
    assert np.abs(without.model_.experts.coef - wanted.model_.experts.coef).max() > 0.1
