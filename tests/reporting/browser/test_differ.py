"""How sites differ, in a browser: a forest plot that follows what is chosen.

Pictures of it are left in build/browser.
"""

import os
import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from oracles import differing_sites, how_they_differ, random_model

from otmoe import LocalModel, aggregate, report
from otmoe.inference.effects import Comparison
from otmoe.likelihood.fit import em
from studies import chromium
from studies.chromium import texts

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip(
        "starts a browser: run pytest tests/reporting/browser by itself", allow_module_level=True
    )
if not (find_spec("selenium") and chromium.installed()):
    pytest.skip("selenium or chromium is not installed", allow_module_level=True)

HOSTILE = "</script><img src=x onerror=alert(1)>"
PICTURES = Path(__file__).parents[3] / "build" / "browser"

# Resources that selenium leaves open.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

WIDTH = 1280


def made(n_sites, names="site {}", family="gaussian"):
    rng = np.random.default_rng(0)
    model = random_model(rng, 2, 2, family=family)
    parts = differing_sites(rng, model, n_sites, 100)
    if family == "gaussian":  # at the maximum, so that means are known and pictures worth a look
        X, y = (np.concatenate([getattr(rows, a) for rows in parts.values()]) for a in "Xy")
        model = em(X, y, 2, init=model).model
    found = how_they_differ(replace(model, feature_names=("age", HOSTILE)), parts)
    sites = [
        replace(site, site=names.format(m), n_samples=float(rng.integers(50, 500)))
        for m, site in enumerate(found.sites)
    ]
    return replace(found, sites=tuple(sites))


def merged(found):
    sent = [
        LocalModel(site.site, found.common, site.n_samples, -200.0, True, "done")
        for site in found.sites
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return aggregate(sent, np.random.default_rng(0).normal(size=(60, 2)))


def told(found):
    names = ("own", "common", "personal")
    sites = [
        replace(site, comparison=Comparison(None if m == 1 else -2.0, -2.1, -1.9, names[m % 3]))
        for m, site in enumerate(found.sites)
    ]
    return replace(found, sites=tuple(sites))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("pages"), {}
    few, many, odd = made(8), told(made(60)), made(6, HOSTILE + " {}", "multinomial")
    for name, source, between in (
        ("few", merged(few), few),
        ("many", merged(many), many),
        ("odd", odd.common, odd),
        ("bare", few.common, replace(few, sites=())),
    ):
        report(source, folder / f"{name}.html", between=between)
        found[name] = between, folder / f"{name}.html"
    return found


def attributes(chrome, selector, name):
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.getAttribute({}))"
    return chrome.execute_script(script.format("arguments[1]"), selector, name)


def choose(chrome, number, value):
    chrome.execute_script(
        "const s = document.querySelectorAll('#differ select')[arguments[0]];"
        "s.value = arguments[1]; s.dispatchEvent(new Event('change'))",
        number,
        str(value),
    )


@pytest.mark.parametrize("name", ["few", "many", "odd", "bare"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_draws_itself_at_any_width(name, width, visit):
    chromium.size(visit(name), width)
    chrome = visit(name)
    time.sleep(0.3)
    assert "How sites differ" in texts(chrome, "h2")
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
    assert chrome.execute_script("return document.images.length") == 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    chromium.screenshot(chrome, PICTURES / f"differ-{name}-{width}.png")


def test_every_block_has_a_line(visit, pages):
    chrome = visit("few")
    between = pages["few"][0]
    names = [spread.block for spread in between.spreads]
    assert texts(chrome, "#spreads tbody th") == [*names, "all blocks"]
    cells = texts(chrome, "#spreads tbody tr:last-child td")
    assert cells[2] == f"{between.overall.q:.1f}" and cells[3] == f"{between.overall.df:g}"


def test_the_forest_is_that_of_the_coefficient(visit, pages):
    chrome = visit("few")
    between = pages["few"][0]
    coefficients = between.coefficients()
    first = int(np.argmax([row.tau / row.se for row in coefficients]))
    assert texts(chrome, "#differ select option:checked")[0]
    for j in (first, 0, len(coefficients) - 1):
        choose(chrome, 0, j)
        order = sorted(between.sites, key=lambda site: site.shrunk[j])
        if np.ptp([site.shrunk[j] for site in order]) > 1e-6:
            assert attributes(chrome, "#differ g.effect", "data-name") == [s.site for s in order]
        assert len(texts(chrome, "#differ circle.shrunk")) == 8
        x = [float(v) for v in attributes(chrome, "#differ circle.shrunk", "cx")]
        assert np.all(np.diff(x) >= 0)
        assert len(texts(chrome, "#differ path.diamond")) == 1
        assert len(texts(chrome, "#differ rect.new-site")) == 1
    choose(chrome, 1, "rows")
    rows = sorted(between.sites, key=lambda site: -site.n_samples)
    assert attributes(chrome, "#differ g.effect", "data-name") == [s.site for s in rows]


def test_marks_lie_where_the_numbers_are(visit, pages):
    chrome = visit("few")
    between = pages["few"][0]
    j = [str(p) for p in between.parameters].index("expert 0: intercept")
    choose(chrome, 0, j)
    names = attributes(chrome, "#differ g.effect", "data-name")
    x = [float(v) for v in attributes(chrome, "#differ circle.shrunk", "cx")]
    values = {site.site: site.shrunk[j] for site in between.sites}
    slope, start = np.polyfit([values[name] for name in names], x, 1)
    np.testing.assert_allclose(x, start + slope * np.array([values[n] for n in names]), atol=0.05)
    low, high = (end[j] for end in between.prediction_interval())
    bar = [float(attributes(chrome, "#differ rect.new-site", a)[0]) for a in ("x", "width")]
    np.testing.assert_allclose(bar, [start + slope * low, slope * (high - low)], atol=0.2)


def test_screen_readers_hear_every_site(visit, pages):
    chrome = visit("few")
    assert attributes(chrome, "#differ svg", "role") == ["group"]
    assert attributes(chrome, "#differ svg", "aria-label")[0].startswith("Forest plot. ")
    labels = attributes(chrome, "#differ g.effect", "aria-label")
    assert len(labels) == 8 and all("after shrinkage" in label for label in labels)
    names = chrome.execute_script(
        "return [...document.querySelectorAll('#differ select')].map((s) => s.labels[0].innerText)"
    )
    assert names[0].startswith("Coefficient") and names[1].startswith("Sort sites by")


def test_a_site_that_is_chosen_is_marked_in_the_forest(visit, pages):
    chrome = visit("many")
    between = pages["many"][0]
    assert len(texts(chrome, "#differ g.effect")) == 40
    assert any("20 sites closer to the mean" in text for text in texts(chrome, "#differ text"))
    drawn = set(attributes(chrome, "#differ g.effect", "data-name"))
    name = next(site.site for site in between.sites if site.site not in drawn)
    chrome.execute_script("choose(sites.findIndex((s) => s.site === arguments[0]))", name)
    assert name in attributes(chrome, "#differ g.effect", "data-name")
    assert texts(chrome, "#differ text.on") == [name]
    assert [row for row in texts(chrome, "#driving tbody td:first-child")] == [name]
    chrome.execute_script("choose(chosen.site)")
    chrome.execute_script(
        "const row = document.querySelector('#differ g.effect'); row.focus();"
        "row.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))"
    )
    assert len(texts(chrome, "#differ text.on")) == 1


def test_forecasts_have_columns_where_there_are_some(visit, pages):
    few = [head.rstrip(" ↓") for head in texts(visit("few"), "#driving th")]
    assert few == ["site", "rows", "Q", "share of Q", "p"]
    chrome = visit("many")
    heads = [head.rstrip(" ↓") for head in texts(chrome, "#driving th")]
    assert heads == [*few, "own", "common", "personal", "best"]
    bold = texts(chrome, "#driving tbody tr:first-child td b")
    best = texts(chrome, "#driving tbody tr:first-child td:last-child")[0]
    assert len(bold) <= 1 and best in ("own", "common", "personal")
    largest = sorted((site.q for site in pages["many"][0].sites), reverse=True)
    shown = [float(q) for q in texts(chrome, "#driving tbody td:nth-child(3)")]
    np.testing.assert_allclose(shown, largest[:25], atol=0.051)


def test_names_are_text_and_sites_may_be_left_out(visit):
    chrome = visit("odd")
    assert HOSTILE + " 0" in attributes(chrome, "#differ g.effect", "data-name")
    assert attributes(chrome, "#differ g.effect", "role") == ["img"] * 6  # there is no panel
    chrome = visit("bare")
    assert texts(chrome, "#spreads") and not texts(chrome, "#differ svg")
