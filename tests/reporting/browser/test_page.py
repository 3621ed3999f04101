"""The report in a browser: it draws its parts, makes no requests, and a click on a site filters.

Pictures of it are left in build/browser.
"""

import json
import os
import re
import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from oracles import random_model

from otmoe import (
    DistributedMoERegressor,
    LocalModel,
    MoEClassifier,
    Policy,
    aggregate,
    load_model,
    report,
    simulate,
)
from otmoe.text.notices import Notice
from studies import chromium
from studies.attacks import ATTACKS, quietly, study
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

WIDTH = 1200


def sites_of(truth, n, rng, name="site {}"):
    """Return messages of sites around one model, the third of which is far off."""
    found = []
    for m in range(n):
        rows = float(rng.integers(100, 2000))
        shift = rng.normal(size=truth.n_parameters) * (1.0 if m == 2 else 1 / np.sqrt(rows))
        model = truth.with_vector(truth.to_vector() + shift)
        found.append(LocalModel(name.format(m), model, rows, -2 * rows, m != 3, "done"))
    return found


def hostile(rng):
    data = simulate(200, 3, 3, softness=0.8, random_state=0)
    truth = replace(data.truth, feature_names=(HOSTILE, "a" * 80, "dose"))
    result = aggregate(sites_of(truth, 5, rng, HOSTILE + " {}"), data.X)
    said = Notice("hostile", HOSTILE)
    return replace(result, left_out={HOSTILE: said}, warnings=(said,), status=said)


def many(rng):
    data = simulate(100, 4, 20, softness=1.0, random_state=0)
    result = aggregate(sites_of(data.truth, 8, rng), data.X, method="weighted_average")
    n = 1000
    weight = rng.dirichlet(np.ones(n))
    known = [{"site": f"hospital {m}", "weight": float(weight[m])} for m in range(n)]
    sites = [replace(result.sites[m % 8], **known[m], n_samples=m + 1.0) for m in range(n)]
    sent = [replace(result.messages[m % 8], site=f"hospital {m}") for m in range(n)]
    return replace(result, sites=tuple(sites), messages=tuple(sent))


def refined(rng):
    data = simulate(3000, 3, 4, softness=0.7, random_state=0)
    est = DistributedMoERegressor(3, n_shards=5, refine="auto", random_state=0)
    return est.fit(data.X, data.y).aggregation_


def classes(rng):
    data = simulate(900, 2, 3, family="multinomial", softness=0.7, random_state=0)
    X = np.column_stack([data.X[:, 0], data.X[:, 1] > 0, data.X[:, 2]])
    sent = [
        MoEClassifier(2, random_state=0)
        .fit(X[m::3], data.y[m::3])
        .to_message(f"site {m}", policy=Policy.off())
        for m in range(3)
    ]
    return aggregate(sent, X)


def alone(rng):
    return simulate(10, 2, 3, random_state=0).truth


def ensemble(rng):
    data = simulate(100, 2, 2, softness=1.0, random_state=0)
    return aggregate(sites_of(data.truth, 4, rng), data.X, method="ensemble")


def lying(rng):
    """Return what ten sites sent, three of which have the response the wrong way round."""
    return quietly(study(11, 300).attacked(ATTACKS["flipped"], 3, 11))


def one_expert(rng):
    data = simulate(100, 1, 2, random_state=0)
    return aggregate(sites_of(data.truth, 4, rng), data.X)


def wide(rng):
    return random_model(rng, 12, 2000)


def crowded(rng):
    data = simulate(400, 2, 3, softness=1.0, random_state=0)
    return aggregate(sites_of(random_model(rng, 40, 3), 4, rng), data.X, method="aligned_average")


KINDS = (refined, hostile, many, classes, alone, ensemble, one_expert, wide, crowded, lying)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return what the pages are about, and their files."""
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for kind in KINDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what stands out here is meant to
            about = kind(np.random.default_rng(0))
        path = folder / f"{kind.__name__}.html"
        report(about, path)
        found[kind.__name__] = about, path
    return found


def click(chrome, selector):
    chrome.execute_script(
        "const click = new MouseEvent('click', {bubbles: true});"
        "document.querySelector(arguments[0]).dispatchEvent(click)",
        selector,
    )


def rows(chrome, section):
    return chrome.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
        ".map((tr) => [...tr.children].map((td) => td.textContent))",
        section,
    )


@pytest.mark.parametrize("name", [kind.__name__ for kind in KINDS])
def test_every_page_draws_itself(name, visit, pages):
    chrome = visit(name)
    about = pages[name][0]
    shown = {heading for heading in texts(chrome, "h2")}
    merged = hasattr(about, "sites")
    assert ("Sites" in shown) == merged
    assert ("Coefficients" in shown) == (name != "ensemble")
    assert texts(chrome, "footer")  # the last thing that is drawn
    assert len(texts(chrome, "#headline .tile")) >= 1
    assert chrome.execute_script("return document.images.length") == 0


def test_where_some_sites_lie_the_page_says_what_votes_would_give(visit, pages):
    chrome = visit("lying")
    about = pages["lying"][0]
    shown = {row[0]: row for row in rows(chrome, "alternatives")}
    assert set(shown) == {a.method for a in about.alternatives}
    for alternative in about.alternatives:
        assert float(shown[alternative.method][1]) == pytest.approx(alternative.typical, rel=0.01)
    assert [name for name, row in shown.items() if row[3]] == [about.method]
    assert next(iter(shown)) != about.method  # sorted by the loss at the median site
    heads = [head.split()[0] for head in texts(chrome, "#sites th")]
    seen = {row[0]: float(row[heads.index("influence")]) for row in rows(chrome, "sites")}
    assert len(seen) == 10
    for site in about.sites:
        assert seen[site.site] == pytest.approx(about.influence[site.site], rel=0.1, abs=1e-4)
    assert rows(visit("one_expert"), "alternatives") and not rows(visit("alone"), "alternatives")


def test_the_flow_has_every_site_and_every_band(visit, pages):
    chrome = visit("refined")
    about = pages["refined"][0]
    assert len(texts(chrome, "#flow g.site")) == len(about.sites)
    drawn = sum(int(np.sum(site.weight * site.mass * 300 > 0.02)) for site in about.sites)
    assert abs(len(texts(chrome, "#flow path.link")) - drawn) <= 2
    labels = texts(chrome, "#flow text")
    experts = [label[:8] for label in labels if label.startswith("expert")]
    assert experts == [f"expert {k}" for k in range(3)]
    # what arrives at an expert is what leaves for it
    bands = chrome.execute_script(
        "return [...document.querySelectorAll('#flow path.link')]"
        ".map((p) => [p.getAttribute('fill'), Number(p.dataset.mass)])"
    )
    for k, mass in enumerate(about.mass):
        there = sum(part for fill, part in bands if fill == f"var(--e{k})")
        assert there == pytest.approx(mass, abs=1e-3)


def test_a_click_on_a_site_filters(visit, pages):
    chrome = visit("refined")
    name = pages["refined"][0].sites[2].site
    before = len(rows(chrome, "sites"))
    click(chrome, "#flow g.site[data-site='2']")
    assert texts(chrome, "#chosen b") == [name]
    assert [row[0] for row in rows(chrome, "sites")] == [name]
    assert [row[0] for row in rows(chrome, "sent")] == [name]
    assert texts(chrome, "#panel h3")[0] == name
    lit = chrome.execute_script("return document.querySelectorAll('#flow path.link.lit').length")
    dim = chrome.execute_script("return document.querySelectorAll('#flow path.link.dim').length")
    assert 0 < lit < dim
    click(chrome, "#chosen button:last-child")
    assert len(rows(chrome, "sites")) == before and not texts(chrome, "#panel")
    for kind in ("refined", "ensemble"):  # the table does the same
        chrome = visit(kind)
        click(chrome, "#sites tbody tr")
        assert len(rows(chrome, "sites")) == 1 and len(texts(chrome, "#panel")) == 1
        click(chrome, "#chosen button")  # scrolls to the panel
        assert chrome.execute_script(
            "const box = document.getElementById('panel').getBoundingClientRect();"
            "return box.top < innerHeight && box.bottom > 0"
        )


def test_what_is_pointed_at_is_explained(visit, pages):
    chrome = visit("refined")
    about = pages["refined"][0]
    move = "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('mousemove'))"
    tip = "const tip = document.getElementById('tip'); return tip.hidden ? null : tip.innerText"
    assert chrome.execute_script(tip) is None
    first = max(range(5), key=lambda m: about.sites[m].weight)
    chrome.execute_script(move, "#flow path.link")
    shown = chrome.execute_script(tip)
    assert f"{about.sites[first].site}, its expert 0 → merged expert" in shown
    assert f"cost of the site {about.sites[first].cost:.3g} nats" in shown
    chrome.execute_script("document.querySelector('#flow g.site').focus()")
    assert f"{about.sites[first].n_samples:,.0f} rows" in chrome.execute_script(tip)
    chrome.execute_script("document.activeElement.blur()")
    assert chrome.execute_script(tip) is None
    chrome.execute_script(move, "#coefficients svg g")
    row = about.inference().table()[about.model.gate.n_parameters]
    assert f"{row.estimate:.4g} ({row.low:.4g} to {row.high:.4g})" in chrome.execute_script(tip)


def test_a_site_can_be_chosen_by_keyboard(visit):
    chrome = visit("refined")
    chrome.execute_script(
        "const site = document.querySelector('#flow g.site'); site.focus();"
        "site.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))"
    )
    assert len(rows(chrome, "sites")) == 1


def test_tables_are_sorted_and_searched(visit, pages):
    chrome = visit("many")
    sites = pages["many"][0].sites
    weights = sorted((site.weight for site in sites), reverse=True)
    assert len(rows(chrome, "sites")) == 25
    heads = texts(chrome, "#sites th")
    assert heads[3] == "weight ↓"
    shown = [float(row[3].split()[0]) / 100 for row in rows(chrome, "sites")]
    assert shown == pytest.approx(weights[:25], rel=0.01)
    click(chrome, "#sites th:nth-child(2) button")
    assert [row[1] for row in rows(chrome, "sites")][:2] == ["1,000", "999"]
    click(chrome, "#sites th:nth-child(2) button")
    assert [row[1] for row in rows(chrome, "sites")][:2] == ["1", "2"]
    click(chrome, "#sites .pager button:nth-child(2)")
    assert [row[1] for row in rows(chrome, "sites")][:2] == ["26", "27"]
    chrome.execute_script(
        "const box = document.querySelector('#sites input');"
        "box.value = 'hospital 77'; box.dispatchEvent(new Event('input'))"
    )
    assert len(rows(chrome, "sites")) == 11  # 77, 770 to 779
    # few of them are drawn, and the one that is chosen always is
    assert 24 <= len(texts(chrome, "#flow g.site")) <= 48
    assert any("other sites" in text for text in texts(chrome, "#flow text"))
    small = int(np.argmin([site.weight for site in sites]))
    chrome.execute_script("choose(arguments[0])", small)
    assert texts(chrome, f"#flow g.site[data-site='{small}']")


def test_names_are_text(visit, pages):
    chrome = visit("hostile")
    assert chrome.execute_script("return document.querySelectorAll('img').length") == 0
    assert HOSTILE + " 0" in [row[0] for row in rows(chrome, "sites")]
    assert HOSTILE in texts(chrome, "#left-out td")
    click(chrome, "#flow g.site[data-site='0']")
    assert texts(chrome, "#chosen b") == [HOSTILE + " 0"]
    assert texts(chrome, "#panel h3")[0] == HOSTILE + " 0"
    found = json.loads(chrome.execute_script("return document.getElementById('data').textContent"))
    assert found["model"]["terms"][1] == HOSTILE


@pytest.mark.parametrize("name", ["refined", "classes", "alone"])
def test_the_gate_is_that_of_the_model(name, visit, pages):
    chrome = visit(name)
    about = pages[name][0]
    model = getattr(about, "model", about)
    X = np.random.default_rng(0).normal(size=(20, model.n_features))
    found = chrome.execute_script("return arguments[0].map(gateProb)", X.tolist())
    np.testing.assert_allclose(found, model.gate_prob(X), rtol=1e-10, atol=1e-300)
    center = about.covariates.mean if hasattr(about, "covariates") else np.zeros(model.n_features)
    moved = np.tile(center, (2, 1))
    moved[:, 1], moved[1, 0] = 0.7, -0.3
    script = "const around = gateAround(); return [around({1: 0.7}), around({0: -0.3, 1: 0.7})]"
    found = chrome.execute_script(script)
    np.testing.assert_allclose(found, model.gate_prob(moved), rtol=1e-9)
    features = model.n_features
    assert len(texts(chrome, "#gate .multiples svg")) == features
    cells = chrome.execute_script("return document.querySelectorAll('#gate svg rect').length")
    assert cells >= 44 * 44


def test_the_forest_has_every_coefficient(visit, pages):
    chrome = visit("refined")
    model = pages["refined"][0].model
    dots = "return document.querySelectorAll('#coefficients svg circle').length"
    lines = "return document.querySelectorAll('#coefficients svg g path').length"
    assert chrome.execute_script(dots) == chrome.execute_script(lines) == 3 * (model.n_features + 1)
    chrome.execute_script(
        "const s = document.querySelector('#coefficients select');"
        "s.value = 'gate'; s.dispatchEvent(new Event('change'))"
    )
    assert chrome.execute_script(dots) == 2 * (model.n_features + 1)
    chrome = visit("hostile")
    assert "has no standard errors" in texts(chrome, "#coefficients > p")[0]


def test_light_and_dark(visit):
    chrome = visit("refined")
    paper = "return getComputedStyle(document.body).backgroundColor"
    PICTURES.mkdir(parents=True, exist_ok=True)
    chromium.screenshot(chrome, PICTURES / "light.png")
    light = chrome.execute_script(paper)
    assert light == "rgb(255, 255, 255)"
    chromium.scheme(chrome, "dark")
    dark = chrome.execute_script(paper)
    assert dark != light
    chromium.screenshot(chrome, PICTURES / "dark.png")
    click(chrome, "#theme")
    assert chrome.execute_script(paper) == light
    click(chrome, "#theme")
    assert chrome.execute_script(paper) == dark


@pytest.mark.parametrize("name", [kind.__name__ for kind in KINDS])
def test_narrow_screens_need_no_scrolling_sideways(name, visit):
    chrome = visit(name)
    chromium.size(chrome, 390)
    time.sleep(0.3)  # pictures are drawn again
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= 390
    PICTURES.mkdir(parents=True, exist_ok=True)
    chromium.screenshot(chrome, PICTURES / f"narrow-{name}.png")


def test_it_prints(visit):
    chrome = visit("many")
    chromium.scheme(chrome, "dark")
    PICTURES.mkdir(parents=True, exist_ok=True)
    paper = chromium.printed(chrome)
    (PICTURES / "print.pdf").write_bytes(paper)
    pages = len(re.findall(rb"/Type\s*/Page\b", paper))
    assert paper.startswith(b"%PDF") and 5 <= pages <= 30
    assert len(rows(chrome, "sites")) == 25  # as before


def test_a_thousand_sites_are_handled_at_once(visit):
    begin = time.perf_counter()
    chrome = visit("many")
    assert time.perf_counter() - begin < 10
    took = chrome.execute_script(
        "const t = performance.now(); choose(500); document.body.offsetHeight;"
        "return performance.now() - t"
    )
    assert took < 2000  # ms


def test_a_model_file_gives_the_same_page(visit, pages, tmp_path):
    about, path = pages["refined"]
    about.save(tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").n_experts == 3
    assert report(tmp_path / "model.json", title="Report on the model") == path.read_text()
