"""Levels of a category together, a scale for disagreement, names for screen readers."""

import os
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from otmoe import FeatureSpec, MoERegressor, aggregate, report
from otmoe.data.columns import Column
from studies import chromium
from studies.chromium import texts

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip(
        "starts a browser: run pytest tests/reporting/browser by itself", allow_module_level=True
    )
if not (find_spec("selenium") and chromium.installed()):
    pytest.skip("selenium or chromium is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::UserWarning")

WIDTH = 1280
LEVELS = ("N", "E", "S", "W")
SPEC = FeatureSpec((Column("wind", "category", LEVELS), Column("speed"), Column("wet")))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Four sites, the last of which has the opposite response."""
    rng = np.random.default_rng(0)
    sent, support = [], []
    for m in range(4):
        n = 800
        columns = {
            "wind": np.array(LEVELS)[rng.integers(4, size=n)],
            "speed": rng.normal(size=n),
            "wet": rng.integers(2, size=n).astype(float),
        }
        X = SPEC.encode(columns)
        y = X @ [3.0, 0.2, 0.1, 1.0, 0.5] + np.where(X[:, 3] > 0, 4.0, -4.0) + rng.normal(size=n)
        est = MoERegressor(2, random_state=0).fit(X, -y if m == 3 else y)
        model = replace(est.model_, feature_names=SPEC.feature_names)
        sent.append(replace(est.to_message(f"site {m}"), model=model, features=SPEC))
        support.append(X[:100])
    result = aggregate(sent, np.vstack(support), method="reduction")
    path = tmp_path_factory.mktemp("page") / "report.html"
    report(result, path)
    return {"winds": (result, path)}


@pytest.mark.parametrize("width", [1280, 390])
def test_levels_of_a_category_stand_together_under_its_name(visit, width):
    chrome = visit("winds")
    chromium.size(chrome, width)
    names = texts(chrome, "#matrix tbody th")
    first = names.index("wind (reference: N)")
    assert names[first + 1 : first + 5] == ["E", "S", "W", "speed"]
    assert names.count("wind (reference: N)") == 2  # experts and gate
    assert texts(chrome, "#matrix tbody th.level") == ["E", "S", "W"] * 2
    chrome.execute_script(
        "const s = [...document.querySelectorAll('#coefficients select')].at(-1);"
        "s.value = 'size'; s.dispatchEvent(new Event('change'))"
    )
    labels = texts(chrome, "#coefficients svg text")
    head = labels.index("wind (reference: N)")
    assert sorted(labels[head + 1 : head + 4]) == ["E", "S", "W"]
    assert labels[head + 1] == "E"  # the largest of them, whose size is the category's
    wide = chrome.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


@pytest.mark.parametrize("width", [1280, 390])
def test_the_gate_has_one_panel_for_a_category(visit, pages, width):
    chrome = visit("winds")
    chromium.size(chrome, width)
    assert sorted(texts(chrome, "#gate .multiples h3")) == ["speed", "wet", "wind"]
    result = pages["winds"][0]
    script = "effectOfCategory(model.categories[0], gateAround()).prob"
    averages = []
    for level in np.vstack([np.zeros(3), np.eye(3)]):
        rows = np.array(result.support)
        rows[:, :3] = level
        averages.append(result.model.gate_prob(rows).mean(axis=0))
    np.testing.assert_allclose(chrome.execute_script(f"return {script}"), averages, rtol=1e-9)
    at = np.tile(result.covariates.mean, (4, 1))  # without averages, at the means
    at[:, :3] = np.vstack([np.zeros(3), np.eye(3)])
    alone = (
        f"const g = merged.gate; merged.gate = []; const p = {script}; merged.gate = g; return p"
    )
    found = chrome.execute_script(alone)
    np.testing.assert_allclose(found, result.model.gate_prob(at), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_disagreement_is_said_on_an_absolute_scale(visit, pages, width):
    chrome = visit("winds")
    chromium.size(chrome, width)
    sites = pages["winds"][0].sites
    cells = chrome.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#sites tbody tr')]"
        ".map((tr) => [tr.children[0].textContent, tr.children[5].textContent]))"
    )
    bounds = {"negligible": 0.01, "slight": 0.1, "marked": 1, "different model": np.inf}
    for site in sites:
        degree = next(name for name, bound in bounds.items() if site.disagreement < bound)
        assert cells[site.site].endswith(f" {degree}")
    assert cells["site 3"].endswith("different model")
    (scale,) = texts(chrome, "#degrees")
    assert "0.01 to 0.1: slight" in scale and "2.7 times less likely" in scale
    chrome.execute_script("choose(0)")
    (panel,) = texts(chrome, "#panel")
    less = 100 * -np.expm1(-sites[0].disagreement)
    shown = f"a typical row is {float(f'{less:.3g}'):g}\u00a0% less likely"
    assert shown in panel and "chance alone explains about" in panel
    words = chrome.execute_script("return [0.5, 1, 20].map(lessLikely)")
    assert "39.3\u00a0% less" in words[0] and "2.7 times less" in words[1]
    assert "more than a thousand times less" in words[2]


def test_pictures_tables_and_buttons_have_names(visit):
    chrome = visit("winds")
    chrome.execute_script(
        "document.querySelectorAll('details').forEach((d) => (d.open = true)); choose(0)"
    )
    chrome.execute_cdp_cmd("Accessibility.enable", {})
    tree = chrome.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    seen = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"]
    ]
    roles = {"image", "table", "button", "combobox", "checkbox", "link", "searchbox"}
    assert [role for role, name in seen if role in roles and not name] == []
    images = [name for role, name in seen if role == "image"]
    assert any(name.startswith("wind: N, E, S, W, expert 0:") for name in images)
    assert any(name.startswith("expert 0:") and "of the mass" in name for name in images)
    buttons = [name for role, name in seen if role == "button"]
    assert any(name.startswith("site 3, 800 rows") for name in buttons)  # in the flow
    headings = set(texts(chrome, "h2"))
    assert headings <= {name for role, name in seen if role == "region"}
    graphics = "return document.querySelectorAll('svg:not([aria-label])').length"
    assert chrome.execute_script(graphics) == 0
