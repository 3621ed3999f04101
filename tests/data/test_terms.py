import json

import numpy as np
import patsy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy.interpolate import CubicSpline

from otmoe import FeatureSpec, LocalModel, MoERegressor, shards_from
from otmoe.data.columns import Column
from otmoe.data.sketch import Sketch
from otmoe.data.splines import Basis, knots_of
from otmoe.data.terms import Interaction, Spline

KNOTS = (-2.0, 0.5, 1.0, 4.0, 9.0)
ORIGIN = Column("origin", "category", ("EWR", "JFK", "LGA"))
SPEC = FeatureSpec(
    (Column("hour", center=12.0, scale=5.0), ORIGIN, Column("dep")),
    terms=(
        Spline("hour", (6.0, 9.0, 13.0, 21.0)),
        Interaction(("dep", "origin")),
        Interaction(("dep", "hour")),
        Interaction(("spline(hour)", "origin")),
    ),
)


def table(rng, n=200):
    return {
        "hour": rng.uniform(0, 24, n),
        "origin": rng.choice(ORIGIN.levels, n),
        "dep": rng.normal(size=n),
    }


def interpolants(knots, x):
    """Return the natural splines that are one at a knot each, by scipy; lines beyond the ends."""
    knots = np.array(knots)
    columns = []
    for values in np.eye(len(knots)):
        spline = CubicSpline(knots, values, bc_type="natural")
        inside = spline(np.clip(x, knots[0], knots[-1]))
        low, high = np.minimum(x - knots[0], 0), np.maximum(x - knots[-1], 0)
        columns.append(inside + low * spline(knots[0], 1) + high * spline(knots[-1], 1))
    return np.column_stack(columns)


def same_span(A, B):
    """Assert that the columns of two matrices span the same space."""
    for these, those in ((A, B), (B, A)):
        rest = these - those @ np.linalg.lstsq(those, these, rcond=None)[0]
        assert_allclose(rest, 0, atol=1e-9 * np.abs(these).max())


# -- the basis -----------------------------------------------------------------------------------


@pytest.mark.parametrize("knots", [KNOTS, (0, 1, 5), tuple(np.arange(30.0) ** 1.5)])
def test_the_basis_spans_the_natural_splines_of_scipy(rng, knots):
    x = rng.uniform(knots[0] - 3, knots[-1] + 3, 500)
    whole = np.column_stack([np.ones_like(x), x, Basis(knots)(x)])
    assert whole.shape[1] == len(knots)
    same_span(whole, interpolants(knots, x))


def test_the_basis_spans_the_natural_splines_of_patsy(rng):
    x = rng.uniform(KNOTS[0], KNOTS[-1], 500)
    theirs = patsy.cr(x, knots=KNOTS[1:-1], lower_bound=KNOTS[0], upper_bound=KNOTS[-1])
    same_span(np.column_stack([np.ones_like(x), x, Basis(KNOTS)(x)]), np.asarray(theirs))


def test_beyond_the_outer_knots_it_is_straight():
    for ends in (np.array([9.0, 10, 20, 1e6]), np.array([-2.0, -3, -50, -1e6])):
        values = Basis(KNOTS)(ends)
        slope = (values[1] - values[0]) / (ends[1] - ends[0])
        assert_allclose(values, values[0] + np.outer(ends - ends[0], slope), rtol=1e-9)


def test_slope_and_curvature_are_continuous_at_knots():
    h = 1e-3
    for knot in KNOTS:
        far, left, here, right, away = Basis(KNOTS)(knot + h * np.arange(-2, 3))
        before, after = here - 2 * left + far, away - 2 * right + here
        # a step of the curvature would be of the order of h^2, and one of the slope, of h
        assert_allclose(after, before, atol=20 * h**3)


@pytest.mark.parametrize("knots", [KNOTS, (0, 1, 5), (1e6, 1e6 + 1, 1e6 + 2, 1e6 + 7)])
def test_it_is_orthonormal_where_every_gap_between_knots_has_the_same_mass(knots):
    middle = (np.arange(4000) + 0.5) / 4000
    x = np.concatenate([a + (b - a) * middle for a, b in zip(knots, knots[1:], strict=False)])
    centred = x - x.mean()
    columns = np.column_stack([np.ones_like(x), centred / centred.std(), Basis(knots)(x)])
    assert_allclose(columns.T @ columns / len(x), np.eye(len(knots)), atol=1e-6)


def test_missing_values_stay_missing_and_rows_are_computed_one_by_one():
    x = np.array([1.0, np.nan, 20.0])
    found = Basis(KNOTS)(x)
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()
    assert_allclose(found[2], Basis(KNOTS)(x[2:])[0], rtol=1e-13)


def test_knots_are_quantiles_and_of_distinct_values_where_these_coincide(rng):
    x = rng.normal(size=5001)
    assert_allclose(knots_of(x, 4, "x"), np.quantile(x, [0.02, 0.26, 0.5, 0.74, 0.98]), rtol=1e-9)
    zeros = np.concatenate([np.zeros(900), np.arange(100)])
    knots = knots_of(zeros, 3, "x")
    assert len(set(knots)) == 4 and knots[0] >= 0 and knots[-1] <= 99
    weight = np.where(zeros == 0, 0.0, 1.0)
    assert knots_of(zeros, 3, "x", weight)[0] >= 1
    refused("spline_few_values", column="x", values=2, df=3).by(knots_of, np.r_[0, 1, 1], 3, "x")
    refused("spline_df", df=1, least=2).by(knots_of, x, 1, "x")


# -- features ------------------------------------------------------------------------------------


def test_terms_stand_behind_the_columns_and_are_what_they_say(rng):
    rows = table(rng)
    X, names = SPEC.encode(rows), SPEC.feature_names
    assert names == (
        *("hour", "origin=JFK", "origin=LGA", "dep", "spline(hour).1", "spline(hour).2"),
        *("dep:origin=JFK", "dep:origin=LGA", "dep:hour"),
        *("spline(hour).1:origin=JFK", "spline(hour).1:origin=LGA"),
        *("spline(hour).2:origin=JFK", "spline(hour).2:origin=LGA"),
    )
    value = dict(zip(names, X.T, strict=True))
    assert_allclose(X[:, 4:6], Basis((6, 9, 13, 21))(rows["hour"]), atol=1e-12)
    assert_array_equal(value["dep:origin=LGA"], rows["dep"] * (rows["origin"] == "LGA"))
    assert_array_equal(value["dep:hour"], value["dep"] * value["hour"])
    assert_array_equal(
        value["spline(hour).2:origin=JFK"], value["spline(hour).2"] * value["origin=JFK"]
    )


def test_categories_have_products_of_their_dummies():
    other = Column("day", "category", ("mon", "sun", "sat"))
    spec = FeatureSpec((ORIGIN, other), terms=(Interaction(("origin", "day")),))
    X = spec.encode({"origin": ["JFK", "LGA", "EWR"], "day": ["sun", "sat", "sat"]})
    assert spec.feature_names[4:] == (
        "origin=JFK:day=sun", "origin=JFK:day=sat", "origin=LGA:day=sun", "origin=LGA:day=sat",
    )  # fmt: skip
    assert_array_equal(X[:, 4:], [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])


def test_a_specification_with_terms_comes_back_the_same(rng):
    again = FeatureSpec.from_json(SPEC.to_json())
    assert again == SPEC
    rows = table(rng)
    assert_array_equal(again.encode(rows), SPEC.encode(rows))
    plain = json.loads(SPEC.base.to_json())
    assert "terms" not in plain  # what older versions read


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=12, unique=True))
def test_whatever_knots_are_read_the_basis_is_finite(knots):
    knots = tuple(sorted(knots))
    try:
        spec = FeatureSpec((Column("x"),), terms=(Spline("x", knots),))
    except ValueError:
        return
    x = np.linspace(knots[0] - 1, knots[-1] + 1, 101)
    assert np.isfinite(spec.encode({"x": x})).all()


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        ({"kind": "spline", "column": "hour", "knots": [1, 2]}, "knots_count terms[0].knots"),
        ({"kind": "spline", "column": "hour"}, "knots_count terms[0].knots"),
        ({"kind": "spline", "column": "hour", "knots": [1, 3, 2]}, "knots_close terms[0].knots"),
        ({"kind": "spline", "column": "hour", "knots": [1, 1, 2]}, "knots_close terms[0].knots"),
        (
            {"kind": "spline", "column": "hour", "knots": [1e20, 1e20, 1e20 + 1e5]},
            "knots_close terms[0].knots",
        ),
        (
            {"kind": "spline", "column": "hour", "knots": [0, 1e-12, 1]},
            "knots_close terms[0].knots",
        ),
        (
            {"kind": "spline", "column": "hour", "knots": list(range(51))},
            "knots_count terms[0].knots",
        ),
        ({"kind": "spline", "column": "hour", "knots": [1, 2, 1e31]}, "field_too_large"),
        ({"kind": "spline", "column": "hour", "knots": [1, 2, "3"]}, "field_number"),
        (
            {"kind": "spline", "column": "origin", "knots": [1, 2, 3]},
            "spline_of_no_number terms[0].column",
        ),
        ({"kind": "spline", "knots": [1, 2, 3]}, "spline_of_no_number terms[0].column"),
        (
            {"kind": "spline", "column": "hour", "knots": [1, 2, 3], "of": ["a"]},
            "wrong_kind_of_term terms[0].of",
        ),
        ({"kind": "interaction", "of": ["hour"]}, "interaction_parts terms[0].of"),
        ({"kind": "interaction", "of": ["hour", "hour"]}, "interaction_parts terms[0].of"),
        ({"kind": "interaction", "of": ["hour", "speed"]}, "interaction_unknown terms[0].of"),
        (
            {"kind": "interaction", "of": ["hour", "origin"], "knots": [1]},
            "wrong_kind_of_term terms[0].knots",
        ),
        ({"kind": "fourier", "column": "hour"}, "field_choice"),
    ],
)
def test_a_broken_term_is_refused_by_name(term, problem):
    document = json.loads(SPEC.base.to_json()) | {"terms": [term]}
    refused(problem).by(FeatureSpec.from_json, json.dumps(document))


def test_terms_of_many_features_or_twice_are_refused():
    many = [Column(c, "category", tuple(f"{c}{i}" for i in range(80))) for c in "ab"]
    with refused("many_derived terms", features=79 * 79):
        FeatureSpec(many, terms=(Interaction("ab"),))
    with refused("second_time"):
        FeatureSpec((Column("x"), Column("z")), terms=(Interaction("xz"), Interaction("xz")))
    with refused("not_a_term"):
        FeatureSpec((Column("x"),), terms=("x:z",))


def test_files_are_read_as_tables_are(rng, tmp_path):
    rows = table(rng, 3000) | {"y": rng.normal(size=3000)}
    rows |= {f"z{i}": rng.normal(size=3000) for i in range(5)}  # more columns than are read at once
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet", row_group_size=700)
    spec = FeatureSpec(
        (*SPEC.columns, *(Column(f"z{i}") for i in range(5))),
        terms=(*SPEC.terms, Interaction(("z4", "origin"))),
    )
    X = spec.encode(rows)
    for data in (tmp_path / "rows.parquet", rows):
        assert_array_equal(shards_from(data, target="y", features=spec)[0].read().X, X)


def test_the_features_of_a_term_are_known_by_its_name():
    found = SPEC.term_features
    assert found["spline(hour)"] == ("hour", "spline(hour).1", "spline(hour).2")
    assert found["spline(hour), nonlinear"] == ("spline(hour).1", "spline(hour).2")
    assert found["origin"] == ("origin=JFK", "origin=LGA") and found["dep"] == ("dep",)
    assert found["dep:origin"] == ("dep:origin=JFK", "dep:origin=LGA")


# -- missing values ------------------------------------------------------------------------------


def gaps():
    return {"age": [20.0, None, 40.0, 60.0], "sex": ["f", "m", None, "f"], "dose": [1, 2, 3, 4]}


def test_an_indicator_takes_the_place_of_missing_values_and_travels():
    spec = FeatureSpec.from_sample(gaps(), missing="indicator", center=True)
    assert spec.feature_names == ("age", "age=missing", "sex=m", "sex=missing", "dose")
    spec = FeatureSpec.from_json(spec.to_json())
    X = spec.encode(gaps())
    assert_array_equal(X[:, 1], [0, 1, 0, 0])
    assert X[1, 0] == 0.0  # the mean, where it is centred
    assert_array_equal(X[:, 2:4], [[0, 0], [1, 0], [0, 1], [0, 0]])
    assert_array_equal(spec.encode({"age": [40], "sex": ["m"], "dose": [4]})[0, 1:4], [0, 1, 0])


def test_missing_values_are_counted_by_column():
    rows = {"age": [1.0, None, None], "dose": [None, 2.0, 3.0], "x": [1.0, 2.0, 3.0]}
    error = refused("column_missing", rows=3).by(FeatureSpec.of_names(rows).encode, rows)
    assert error.facts["columns"] == "2 of column 'age', 1 of column 'dose'"
    wide = {f"c{i}": [None, 1.0] for i in range(8)}
    error = refused("column_missing").by(FeatureSpec.of_names(wide).encode, wide)
    assert error.facts["columns"].endswith("and some of 3 more columns")


def test_an_estimator_counts_them_too():
    X = np.zeros((20, 3))
    X[4, 1] = X[5, 1] = X[6, 2] = np.nan
    error = refused("gaps_in_x", rows=20).by(MoERegressor(1).fit, X, np.zeros(20))
    assert error.facts["columns"] == "2 of column 'x1', 1 of column 'x2'"


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({"name": "x", "kind": "number", "missing_level": "a"}, "wrong_kind_of_column"),
        ({"name": "x", "kind": "category", "levels": ["a", "b"], "impute": 1}, "wrong_kind"),
        ({"name": "x", "kind": "category", "levels": ["a", "b"], "missing_level": "c"}, "ref"),
    ],
)
def test_what_stands_for_missing_values_has_to_suit_the_column(column, problem):
    codes = {"wrong_kind": "wrong_kind_of_column", "ref": "reference_unknown"}
    document = {"otmoe": "features", "schema_version": 1, "columns": [column]}
    refused(codes.get(problem, problem)).by(FeatureSpec.from_json, json.dumps(document))


def test_a_level_called_missing_is_not_taken_for_missing_values():
    rows = {"x": ["missing", "a", None, "a"]}
    column = FeatureSpec.from_sample(rows, missing="indicator").columns[0]
    assert column.levels == ("a", "missing", "(missing)") and column.missing_level == "(missing)"
    refused("not_one_of", name="missing").by(FeatureSpec.from_sample, rows, missing="drop")


# -- sketches ------------------------------------------------------------------------------------


def test_points_drawn_from_a_sketch_lie_on_the_curve(rng):
    X = SPEC.encode(table(rng, 2000))
    sketch = Sketch.fit(X, features=SPEC)
    assert sketch.n_features == 4
    drawn = sketch.draw(500)
    assert drawn.shape == (500, X.shape[1])
    again = drawn.copy()
    SPEC.layout.derive(again)
    assert_array_equal(again, drawn)
    hour = drawn[:, 0] * 5 + 12
    assert_allclose(drawn[:, 4:6], Basis((6, 9, 13, 21))(hour), atol=1e-12)
    base = Sketch.fit(X[:, :4], features=SPEC.base)
    assert_array_equal(sketch.log_density(X), base.log_density(X[:, :4]))


def test_a_row_drawn_as_missing_has_the_imputed_value(rng):
    age = np.where(rng.random(400) < 0.3, np.nan, rng.normal(50, 10, 400))
    rows = {"age": age, "dose": rng.normal(size=400)}
    spec = FeatureSpec.from_sample(rows, missing="indicator", splines={"age": 3})
    sketch = Sketch.fit(spec.encode(rows), features=spec)
    drawn = sketch.draw(2000)
    gone = drawn[:, 1] == 1
    assert 0.2 < gone.mean() < 0.4
    assert_allclose(drawn[gone, 0], spec.columns[0].impute)
    assert np.ptp(drawn[gone, 3]) == 0


def test_a_message_carries_terms_and_a_sketch_of_columns(rng):
    rows = table(rng, 600)
    X = SPEC.encode(rows)
    y = np.sin(rows["hour"]) + rng.normal(size=600)
    est = MoERegressor(1, random_state=0).fit(X, y)
    message = LocalModel.from_fit(est.fit_, "Lyon", features=SPEC).with_support(X, sketch=True)
    document = json.loads(message.to_json())
    assert document["sketch"]["numbers"] == ["hour", "dep"]
    again = LocalModel.from_json(message.to_json())
    assert again.features == SPEC
    assert_array_equal(again.sketch.draw(50), message.sketch.draw(50))
    document["sketch"]["numbers"] = ["hour", "spline(hour).1"]
    refused("names_no_feature sketch.numbers").by(LocalModel.from_json, json.dumps(document))
