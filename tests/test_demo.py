"""examples/demo.py: the terminal and the page number the experts alike and use the same words."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import demo

    yield demo
    del sys.modules["demo"]


def test_terminal_and_page_agree(demo, monkeypatch, capsys, tmp_path):
    path = tmp_path / "demo.html"
    words = "--samples 8000 --sites 4 --experts 3 --features 2 --softness 0.5 --seed 3"
    monkeypatch.setattr(sys, "argv", ["demo.py", *words.split(), "--report", str(path)])
    monkeypatch.setenv("COLUMNS", "120")
    demo.main()
    printed = capsys.readouterr().out
    page = re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1]
    shown = json.loads(page)
    for k in range(3):  # the second line of an expert is the merged one
        own = [e for e in shown["model"]["estimates"] if e["expert"] == k]
        variance = next(e["estimate"] for e in own if e["block"] == "variance")
        coef = [e["estimate"] for e in own if e["block"] == "expert"]
        first, merged = re.search(rf"expert {k} (.*)\n(.*)\n", printed).groups()
        assert merged.split()[:-1] == [f"{value:.2f}" for value in [variance, *coef]]
        true = np.array(first.split(), dtype=float)
        assert np.abs(true[1:] - coef).max() < 1  # and not those of another expert
    for site in shown["aggregation"]["sites"]:
        line = re.search(rf"{site['site']} +(.*)", printed)[1].split()
        assert line[1:4] == [
            f"{site['weight']:.1%}",
            f"{site['cost']:.4f}",
            f"{site['disagreement']:.4f}",
        ]
    assert shown["aggregation"]["method"] == "reduction" in printed
    assert "The average of coefficients" in printed


@pytest.mark.parametrize("orders, words", [([(0, 1)] * 3, "can win"), ([(0, 1), (1, 0)], "2 diff")])
def test_what_is_said_about_the_average_depends_on_the_numbers_of_the_experts(demo, orders, words):
    sites = [SimpleNamespace(destination=np.array(order)) for order in orders]
    said = demo.on_average(SimpleNamespace(sites=sites))
    assert words in said and said.count(". ") == 1  # two sentences
