"""How sites differ in the report: the numbers of the model file, and what it says about them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import differing_sites, how_they_differ, random_model
from scipy import stats

from otmoe import LocalModel, aggregate, report, save_model
from otmoe.inference.effects import Comparison
from otmoe.reporting.checks import LEVELS
from otmoe.reporting.differences import differences, finding


def made(family="gaussian", n_sites=6, spread=0.3):
    rng = np.random.default_rng(0)
    model = random_model(rng, 2, 2, family=family)
    return how_they_differ(model, differing_sites(rng, model, n_sites, 100, spread))


def shown(page):
    text = page.partition('id="data">')[2].partition("</script>")[0]
    return json.loads(text)


def test_the_numbers_are_those_of_the_sites(family):
    found = made(family)
    part = shown(report(found.common, between=found))["between"]
    assert part["n_sites"] == 6 and part["n_samples"] == 600.0
    assert_allclose(part["quantile"], stats.norm.ppf(0.975))
    for name, values in (("mean", found.mean), ("se", found.mean_error), ("tau", found.deviation)):
        assert_allclose([row[name] for row in part["coefficients"]], values, rtol=1e-5)
    low, high = found.prediction_interval()
    assert_allclose([row["low"] for row in part["coefficients"]], low, rtol=1e-5)
    assert_allclose([row["high"] for row in part["coefficients"]], high, rtol=1e-5)
    assert [row["block"] for row in part["spreads"]] == [s.block for s in found.spreads]
    for row, spread in zip(
        [*part["spreads"], part["overall"]], [*found.spreads, found.overall], strict=True
    ):
        assert_allclose(row["i2"], spread.i2, rtol=1e-5)
        assert_allclose(row["q"], spread.q, rtol=1e-5)
    assert part["overall"]["tau"] is None
    for row, site in zip(part["sites"], found.sites, strict=True):
        assert row["site"] == site.site and row["comparison"] is None
        assert_allclose(row["shrunk"], site.shrunk, rtol=1e-5)
        known = np.isfinite(site.error)
        assert [value is not None for value in row["error"]] == known.tolist()
        assert [value is not None for value in row["estimate"]] == known.tolist()


def test_a_model_file_gives_the_same_part(tmp_path):
    found = made()
    save_model(found.common, tmp_path / "model.json", between=found)
    page = report(tmp_path / "model.json")
    assert shown(page)["between"] == shown(report(found.common, between=found))["between"]
    save_model(found.common, tmp_path / "plain.json")
    assert shown(report(tmp_path / "plain.json"))["between"] is None


def test_coefficients_are_called_as_in_the_summary():
    found = made()
    text = found.summary()
    for row in differences(found, 0.95)["coefficients"]:
        assert f"\n{row['group']}\n" in text and f"\n{row['name']} " in text


def test_forecasts_are_there_if_the_sites_have_compared():
    found = made()
    first = replace(found.sites[0], comparison=Comparison(None, -2.0, -1.5, "personal"))
    part = differences(replace(found, sites=(first, *found.sites[1:])), 0.95)
    told = {"own": None, "common": -2.0, "personal": -1.5, "best": "personal"}
    assert [site["comparison"] for site in part["sites"][:2]] == [told, None]


@pytest.mark.parametrize(("p", "code"), [(1e-9, "sites_not_alike"), (0.3, "sites_alike")])
def test_the_checks_say_whether_sites_differ(p, code):
    found = made()
    found = replace(found, overall=replace(found.overall, p_value=p))
    assert finding(found).code == code
    sent = [
        LocalModel(site.site, found.common, site.n_samples, -200.0, True, "done")
        for site in found.sites
    ]
    merged = aggregate(sent, np.random.default_rng(0).normal(size=(50, 2)))
    checks = {
        check["code"]: check["level"] for check in shown(report(merged, between=found))["checks"]
    }
    assert checks[code] == LEVELS.get(code, "look")
    assert code not in {check["code"] for check in shown(report(merged))["checks"]}


def test_what_was_not_tested_is_not_told():
    found = made()
    assert finding(replace(found, overall=replace(found.overall, p_value=np.nan))) is None
