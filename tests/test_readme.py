"""What README.md says about a result is what its command prints."""

import re
import sys
from pathlib import Path

import pytest

import otmoe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::UserWarning")  # that sites differ
def test_the_measured_line_is_what_the_example_prints(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import six_sites

    assert six_sites.main() in " ".join(README.split())
    del sys.modules["six_sites"]


def test_the_first_screen_shows_a_result_before_anything_is_built():
    shown = README.index("```text")
    assert shown < README.index("make demo") and README[:shown].count("\n") <= 25


def test_the_citation_has_the_version_and_the_licence():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"version: {re.search(r'^version = .(.*).$', project, re.MULTILINE)[1]}\n" in text
    assert f"license: {re.search(r'^license = .(.*).$', project, re.MULTILINE)[1]}\n" in text
    assert otmoe.__version__ in text
