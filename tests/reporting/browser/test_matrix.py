"""The coefficient matrix and how good the model is, on wide and narrow screens."""

import csv
import io
import os
from importlib.util import find_spec
from urllib.parse import unquote

import numpy as np
import pytest

from otmoe import DistributedMoERegressor, report
from otmoe.datasets import load_visits
from otmoe.evaluation.scores import goodness, score_rows
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


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    data = load_visits()
    est = DistributedMoERegressor(
        2, family="poisson", n_shards=4, refine="auto", random_state=0, n_init=3
    ).fit(data.frame(), data.y)
    about = {"rows": len(data.y), **goodness(score_rows(est.model_, data.X, data.y))}
    path = tmp_path_factory.mktemp("page") / "report.html"
    report(est.aggregation_, path, about=about)
    return {"visits": (est, path)}


@pytest.mark.parametrize("width", [1280, 390])
def test_the_matrix_fits_the_screen_and_holds_every_coefficient(visit, pages, width):
    chrome = visit("visits")
    chromium.size(chrome, width)
    est = pages["visits"][0]
    model = est.model_
    heads = texts(chrome, "#matrix thead th")
    assert heads[1:] == ["expert 0", "expert 1"]
    rows = texts(chrome, "#matrix tbody th[scope=row]")
    assert rows == ["share of rows", *model.terms, *model.terms]
    wide = chrome.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width  # the table scrolls, the page does not
    link = chrome.find_element("css selector", "#matrix a[download]")
    text = unquote(link.get_attribute("href").partition(",")[2])
    found = list(csv.DictReader(io.StringIO(text)))
    values = [[float(row[f"expert {k}"]) for row in found[: len(model.terms)]] for k in range(2)]
    np.testing.assert_allclose(values, model.experts.coef, rtol=1e-12)
    label = chrome.find_element("css selector", "#matrix table").get_attribute("aria-label")
    assert "Coefficients" in label


@pytest.mark.parametrize("width", [1280, 390])
def test_the_headline_says_how_good_the_model_is_and_counts_all_rounds(visit, pages, width):
    chrome = visit("visits")
    chromium.size(chrome, width)
    shown = " ".join(texts(chrome, "#headline .tile"))
    assert "of the deviance explained" in shown and "better than the null model" in shown
    assert "in refine rounds" in shown


def test_a_click_copies_the_table(visit):
    chrome = visit("visits")
    chrome.find_element("css selector", "#matrix button").click()
    (said,) = texts(chrome, "#matrix [role=status]")
    assert said in ("copied", "selected; press Ctrl+C to copy")
    assert "coinsurance" in chrome.execute_script("return getSelection().toString()")
