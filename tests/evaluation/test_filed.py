"""What a model file says about terms is what the inference says whose file it is."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import fine
from numpy.testing import assert_allclose
from refusals import refused
from scipy import stats

from otmoe import DistributedMoERegressor, FeatureSpec, report, shards_from
from otmoe.documents.files import load_model_file
from otmoe.documents.model_file import ModelFile
from otmoe.evaluation.curves import curves_of
from otmoe.evaluation.filed import FiledInference
from otmoe.reporting.data import page_data
from otmoe.text.errors import MessageError
from otmoe.text.strict_json import LIMITS

pytestmark = pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a refined model with a spline, categories and an interaction, and its file."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("terms")
    n = 1500
    hour, z = rng.uniform(0, 24, n), rng.normal(size=n)
    month, code = rng.choice(list("abc"), n), rng.choice([f"{i:02}" for i in range(30)], n)
    first = rng.random(n) < 1 / (1 + np.exp(-2 * z))
    y = np.where(first, 4 + 2 * np.sin(hour / 4), -0.2 * hour) + rng.normal(0, 0.5, n)
    rows = pa.table({"y": y, "hour": hour, "z": z, "month": month, "code": code})
    names = ["hour", "z", "month", "code"]
    pairs = [("hour", "month")]
    spec = FeatureSpec.from_sample(rows, names, splines={"hour": 4}, interactions=pairs)
    pq.write_table(rows, folder / "rows.parquet")
    shards = shards_from(folder / "rows.parquet", target="y", features=spec, cut=2)
    est = DistributedMoERegressor(
        2, refine="auto", gate_features=["z", "hour", "spline(hour)"], random_state=0
    ).fit_shards(shards)
    est.aggregation_.save(folder / "model.json")
    return est, spec, folder / "model.json"


def test_tests_of_terms_are_those_of_the_inference(made):
    est, spec, path = made
    file = load_model_file(path)
    filed = FiledInference.read(file.model, file.aggregation.inference)
    truth = {(t.block, t.expert, t.term): t for t in est.inference().terms(spec.term_features)}
    found = {(t.block, t.expert, t.term): t for t in filed.terms(spec.term_features)}
    assert {key[2] for key in truth.keys() - found.keys()} == {"code"}  # too many levels
    assert ("gate", 0, "spline(hour), nonlinear") in found
    assert ("expert", 1, "hour:month") in found
    for key, test in found.items():
        assert test.df == truth[key].df
        assert_allclose(test.statistic, truth[key].statistic, rtol=1e-6, err_msg=str(key))


@pytest.mark.parametrize("block", ["expert", "gate"])
def test_curves_have_the_bands_of_the_inference(made, block):
    est, spec, path = made
    file = load_model_file(path)
    filed = FiledInference.read(file.model, file.aggregation.inference)
    curves = [curves_of(found, spec, "hour", block=block) for found in (est.inference(), filed)]
    assert len(curves[0]) == (2 if block == "expert" else 1)
    for one, other in zip(*curves, strict=True):
        for name in ("x", "effect", "low", "high"):
            assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-6, atol=1e-9)
    at_knots = curves_of(filed, spec, "hour", block=block, at=spec.terms[0].knots)[0]
    assert_allclose(at_knots.x, spec.terms[0].knots)
    assert_allclose(at_knots.effect[[0, -1]], curves[1][0].effect[[0, -1]], rtol=1e-9)
    assert at_knots.low[2] == at_knots.high[2] == 0  # the reference


def test_inspect_and_the_report_speak_of_terms(made):
    est, spec, path = made
    said = fine("inspect", str(path)).output
    assert "Joint tests of terms" in said and "spline(hour), nonlinear" in said
    assert "effect on the linear predictor relative to hour" in said
    told = json.loads(fine("inspect", str(path), "--json").output)
    truth = curves_of(est.inference(), spec, "hour", at=spec.terms[0].knots)
    for curve in truth:
        mine = [c for c in told["curves"] if (c["block"], c["expert"]) == ("expert", curve.expert)]
        assert_allclose(mine[0]["low"], curve.low, rtol=1e-6, atol=1e-9)
    tests = {(t.block, t.expert, t.term): t.p for t in est.inference().terms(spec.term_features)}
    assert told["tests"]
    for test in told["tests"]:
        assert_allclose(test["p"], tests[test["block"], test["expert"], test["term"]], atol=1e-9)
    file = load_model_file(path)
    effects = page_data(file.model, file.aggregation, spec, {}, "")["effects"]
    assert [c["column"] for c in effects["curves"]] == ["hour"]
    assert len(effects["curves"][0]["lines"]) == 3  # two experts, and the gate
    assert_allclose([t["p"] for t in effects["tests"]], [t["p"] for t in told["tests"]])
    assert "termSection();" in report(path)


def of_groups(path, n_groups):
    """Return the document of a model file whose standard errors are said to be of groups."""
    document = json.loads(path.read_text())
    document["aggregation"]["inference"] |= {"kind": "clustered", "n_groups": n_groups}
    return document


def test_a_file_that_says_how_many_groups_there_are_has_t_quantiles(made, tmp_path):
    _, spec, path = made
    grouped = tmp_path / "grouped.json"
    grouped.write_text(json.dumps(of_groups(path, 12)))
    files = [load_model_file(each) for each in (path, grouped)]
    plain, found = (FiledInference.read(f.model, f.aggregation.inference) for f in files)
    assert (plain.df, found.df) == (None, 11)
    wider = stats.t.ppf(0.975, 11) / stats.norm.ppf(0.975)
    curves = (curves_of(filed, spec, "hour") for filed in (plain, found))
    for one, other in zip(*curves, strict=True):
        assert_allclose(other.high - other.low, wider * (one.high - one.low), atol=1e-12)
    for one, other in zip(*(f.terms(spec.term_features) for f in (plain, found)), strict=True):
        left = 12 - one.df
        p = stats.f.sf(one.statistic * left / (one.df * 11), one.df, left)
        assert other.statistic == one.statistic and other.p == pytest.approx(p)
    said = " ".join(fine("inspect", str(grouped)).output.split())
    assert "with 95 % intervals (t quantiles with 11 degrees of freedom)" in said and "T²" in said
    assert json.loads(fine("inspect", str(grouped), "--json").output)["df"] == 11
    assert "t quantiles with 11" in " ".join(fine("summary", str(grouped)).output.split())
    effects = page_data(files[1].model, files[1].aggregation, spec, {}, "")["effects"]
    assert effects["statistic"] == "T²"
    before = fine("inspect", str(path)).output
    assert "chi-square" in before and "T²" not in before and "quantiles" not in before


def test_a_file_that_does_not_say_how_many_groups_there_are_has_normal_ones(made):
    document = json.loads(made[2].read_text())
    document["aggregation"]["inference"] |= {"kind": "clustered"}
    file = ModelFile.from_document(document, "it", LIMITS)
    assert FiledInference.read(file.model, file.aggregation.inference).df is None


@pytest.mark.parametrize("n_groups", [0, 1, -3, 2.5])
def test_a_file_whose_groups_cannot_vary_is_refused(made, n_groups):
    document = of_groups(made[2], n_groups)
    with pytest.raises(MessageError, match="n_groups"):
        ModelFile.from_document(document, "it", LIMITS)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"covariance": [1.0, 0.0]}, "length"),
        ({"at": [0, 10**6]}, "parameter_index"),
        ({"at": [1, 1]}, "second_time"),
    ],
)
def test_a_broken_covariance_is_refused(made, change, code):
    document = json.loads(made[2].read_text())
    joint = {"at": [0, 1], "covariance": [1.0, 0.0, 1.0], **change}
    document["aggregation"]["inference"]["joint"] = [joint]
    refused(code).by(ModelFile.from_document, document, "it", LIMITS)
