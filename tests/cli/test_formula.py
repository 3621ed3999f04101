"""Splines, interactions, formulas and missing values on the command line."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import call, fails, fine, told, unguarded
from numpy.testing import assert_allclose

from otmoe import FeatureSpec, LocalModel, MoERegressor, load_features, load_model
from otmoe.text.sentences import Error

pytestmark = pytest.mark.usefixtures("own_folder")

TEXT = "y ~ spline(hour, 4) + hour:origin + z | z"


@pytest.fixture
def rows(own_folder, rng):
    n = 600
    hour, origin, z = rng.uniform(0, 24, n), rng.choice(["EWR", "JFK"], n), rng.normal(size=n)
    y = np.sin(hour / 4) + 0.1 * hour * (origin == "JFK") + z + rng.normal(0, 0.2, n)
    table = pa.table({"y": y, "hour": hour, "origin": origin, "z": z})
    pq.write_table(table, "rows.parquet")
    return table


def test_features_by_options_and_by_a_formula_are_the_same(rows):
    how = ["--target", "y", "--spline", "hour:4", "--interaction", "hour:origin"]
    said = fine("features", "rows.parquet", *how, "-o", "one.json").stdout
    assert "spline(hour): 4 degrees of freedom" in said and "hour:origin: 1 product" in said
    fine("features", "rows.parquet", "--formula", TEXT.partition("|")[0], "-o", "other.json")
    one, other = FeatureSpec.load("one.json"), FeatureSpec.load("other.json")
    assert one.terms == other.terms and set(one.names) == set(other.names)
    assert "spline(hour)" in told("inspect", "one.json")["terms"]


def test_fit_and_run_by_a_formula_are_the_fit_of_python(rows):
    fine("features", "rows.parquet", "--formula", TEXT, "-o", "f.json")
    how = ["--formula", TEXT, "--features", "f.json", "--experts", 1]
    fine(
        "fit",
        "rows.parquet",
        *how,
        "--site",
        "Lyon",
        "--sketch",
        "-o",
        "lyon.moe.json",
        *unguarded(),
    )
    message = LocalModel.load("lyon.moe.json")
    est = MoERegressor.from_formula(TEXT, rows, 1, random_state=0)
    assert message.features == est.features_ == FeatureSpec.load("f.json")
    assert_allclose(message.model.to_vector(), est.model_.to_vector(), rtol=1e-8)
    assert "spline(hour): 4 degrees" in fine("inspect", "lyon.moe.json").stdout

    fine("run", "rows.parquet", *how, "-o", "model.json")
    assert load_features("model.json") == est.features_
    fine("predict", "model.json", "rows.parquet", "-o", "p.parquet")
    found = pq.read_table("p.parquet")["prediction"].to_numpy()
    assert_allclose(found, est.predict(rows), rtol=1e-6)


def test_a_summary_shows_a_spline_as_a_whole(rows):
    how = ["--formula", TEXT, "--experts", 1]
    fine("run", "rows.parquet", *how, "-o", "once.json")
    fine("run", "rows.parquet", *how, "--refine", "auto", "-o", "model.json")
    found = told("summary", "model.json")
    (test,) = found["curves"]
    (tested,) = (t for t in told("inspect", "model.json")["tests"] if t["term"] == "spline(hour)")
    assert test == tested and test["df"] == 4
    names = {row["term"] for row in found["coefficients"]}
    assert {"hour", "spline(hour).1", "spline(hour).3"} <= names
    shown = fine("summary", "model.json").stdout
    assert f"{test['statistic']:.1f} (4) <0.001" in shown and "spline(hour).1" not in shown
    assert "spline(hour).1" in fine("summary", "model.json", "--csv").stdout
    page = fine("summary", "model.json", "--html").stdout
    assert "spline(hour)" in page and "spline(hour).1" not in page
    # without standard errors there is no test, and a curve without a band
    once = fine("summary", "once.json").stdout
    assert "Experts, splines\n" in once and "4 df" in once and "spline(hour).1" not in once
    (curve,) = told("inspect", "once.json")["curves"]
    (known,) = told("inspect", "model.json")["curves"]
    assert_allclose(curve["effect"], known["effect"], atol=1e-4)
    assert set(curve["low"]) == {None, 0.0} and None not in known["low"]  # 0 at the reference
    assert "intervals:" not in fine("inspect", "once.json").stdout
    assert "intervals:" in fine("inspect", "model.json").stdout


def test_the_gate_sees_what_stands_after_the_bar(rows):
    fine("run", "rows.parquet", "--formula", TEXT, "--experts", 2, "-o", "model.json")
    columns = load_model("model.json").gate.columns
    names = load_features("model.json").feature_names
    assert columns == (0, names.index("z") + 1)
    fine("run", "rows.parquet", "--formula", "y ~ z | 1", "--experts", 2, "-o", "two.json")
    assert load_model("two.json").gate.columns == (0,)


@pytest.fixture
def inbox(rows):
    """Write the messages of three sites whose hours differ, and return all hours."""
    order = np.argsort(rows["hour"].to_numpy() + 6 * np.sin(np.arange(600)))
    for i, size in enumerate((100, 300, 200)):
        part = rows.take(order[100 * i * (i + 1) // 2 + 100 * (i == 2) :][:size])
        pq.write_table(part, f"{i}.parquet")
        how = ["--target", "y", "--experts", 1, "--site", f"s{i}", "--sketch"]
        fine("fit", f"{i}.parquet", *how, "-o", f"{i}.moe.json", *unguarded())
    return np.sort(rows["hour"].to_numpy())


def test_knots_come_from_the_sketches_of_sites(inbox):
    how = ["--spline", "hour:4", "--interaction", "hour:origin"]
    said = fine("features", "[012].moe.json", *how, "-o", "f.json").stdout
    assert "from the messages of 3 sites" in said and "knots" in said
    spec, known = FeatureSpec.load("f.json"), LocalModel.load("0.moe.json").features
    assert spec.columns == known.columns and [t.name for t in spec.terms][1] == "hour:origin"
    at = np.searchsorted(inbox, spec.terms[0].knots) / len(inbox)
    assert_allclose(at, np.linspace(0.02, 0.98, 5), atol=0.04)  # of the rows of all sites
    alone = FeatureSpec.load("f.json").base.with_terms(pq.read_table("0.parquet"), {"hour": 4})
    off = np.searchsorted(inbox, alone.terms[0].knots) / len(inbox)
    assert np.abs(off - np.linspace(0.02, 0.98, 5)).max() > 0.3  # those of one site are not
    fine("features", "[012].moe.json", "--formula", TEXT.partition("|")[0], "-o", "g.json")
    assert FeatureSpec.load("g.json").terms == spec.terms
    how = ["--target", "y", "--experts", 1, "--site", "b", "--features", "f.json"]
    fine("fit", "1.parquet", *how, "-o", "b.moe.json", *unguarded())
    assert LocalModel.load("b.moe.json").features == spec


def test_what_messages_cannot_say(inbox):
    how = ["--target", "y", "--experts", 1, "--site", "a", "-o", "bare.moe.json"]
    fine("fit", "0.parquet", *how, *unguarded())
    spline = ["--spline", "hour:4", "-o", "f.json"]
    fails("features", "bare.moe.json", *spline, code="shell_no_sketches")
    fails("features", "0.moe.json", "--spline", "z:1", "-o", "f.json", code="spline_df")
    fails(
        "features", "0.moe.json", "--spline", "origin:4", "-o", "f.json", code="spline_of_no_number"
    )
    fails("features", "0.moe.json", "--columns", "age", "-o", "f.json", code="no_column")
    for option in (["--center"], ["--missing", "indicator"], ["--sep", ";"]):
        result = call("features", "0.moe.json", *spline, *option)
        said = Error["shell_of_data".upper()].value.format(option=" ".join(option))
        assert result.exit_code == 2 and said[-40:] in " ".join(result.stderr.split())
    said = call("features", "bare.moe.json", "1.moe.json", *spline)
    assert said.exit_code == 0 and "['a']" in said.stderr  # the other has one


def test_indicators_of_missing_values_travel(rows):
    z = np.where(np.arange(600) % 7 == 0, np.nan, rows["z"].to_numpy())
    table = rows.set_column(3, "z", pa.array(z, from_pandas=True))
    pq.write_table(table, "gaps.parquet")
    fit = ["fit", "gaps.parquet", "--target", "y", "--experts", 1, "--site", "Lyon", "-o", "l.json"]
    said = fails(*fit, code="column_missing")
    assert "86 of column 'z'" in said and "--missing indicator" in said
    fine("features", "gaps.parquet", "--target", "y", "--missing", "indicator", "-o", "f.json")
    fine(*fit, "--features", "f.json")
    assert "z=missing" in LocalModel.load("l.json").features.feature_names


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["fit", "--site", "a", "--experts", 1], "shell_no_target"),
        (["fit", "--site", "a", "--experts", 1, "--formula", "hour + z"], "shell_no_target"),
        (["run", "--experts", 1], "shell_no_target"),
        (["run", "--experts", 1, "--formula", TEXT, "--columns", "z"], "shell_formula_or"),
        (["features", "--formula", TEXT, "--spline", "hour:3"], "shell_formula_or"),
        (["run", "--experts", 1, "--formula", TEXT, "--target", "z"], "shell_formula_target"),
        (
            ["run", "--experts", 1, "--formula", "y ~ hour | z", "--gate-features", "z"],
            "shell_formula_or",
        ),
        (
            ["run", "--experts", 1, "--formula", "y ~ hour | z", "--expert-features", "z"],
            "shell_formula_or",
        ),
        (
            ["run", "--experts", 2, "--formula", "y ~ hour + z", "--expert-features", "a=z"]
            + ["--expert-features", "z"],
            "shell_expert_features",
        ),
        (["features", "--target", "y", "--spline", "hour"], "shell_spline"),
        (["features", "--target", "y", "--spline", "hour:x"], "shell_spline"),
        (["features", "--target", "y", "--interaction", "hour"], "shell_interaction"),
    ],
)
def test_options_that_do_not_go_together_are_refused(rows, options, code):
    command, *others = options
    result = call(command, "rows.parquet", *others, "-o", "out.json")
    begins = Error[code.upper()].value.partition("{")[0]
    assert result.exit_code == 2 and begins in " ".join(result.stderr.split())
