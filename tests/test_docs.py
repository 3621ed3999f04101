"""docs/mathml.py: formulas need no script and no network. .ci/run comes here after `make docs`."""

import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip("furo")
pytest.importorskip("myst_parser")

DOCS = Path(__file__).parents[1] / "docs"
MATH = re.compile(r"<math\b.*?</math>", re.DOTALL)


def words(formula):
    return unescape(re.sub(r"<[^>]*>", " ", formula)).split()


def built(folder):
    """Build the one page of a folder as docs/ would, and return it with the warnings."""
    (page,) = folder.glob("*.md")
    settings = {"extensions": "mathml,myst_parser", "root_doc": page.stem}
    options = [word for item in settings.items() for word in ("-D", "=".join(item))]
    command = [sys.executable, "-m", "sphinx", "-q", "-c", DOCS, *options, folder, folder / "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (folder / "html" / f"{page.stem}.html").read_text(encoding="utf-8"), done.stderr


@pytest.fixture(scope="module")
def maths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maths")
    shutil.copy(DOCS / "maths.md", folder)
    return built(folder)


def test_every_formula_of_the_mathematics_is_mathml(maths):
    html, warnings = maths
    formulas = MATH.findall(html)
    labels = re.findall(r"^:label:", (DOCS / "maths.md").read_text(), re.MULTILINE)
    assert len(formulas) > 600 and html.count('class="eqno"') == len(labels)
    assert "formula" not in warnings
    assert not [formula for formula in formulas if "\\" in "".join(words(formula))]


def test_no_script_and_no_style_comes_from_a_network(maths):
    html, _ = maths
    loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"([^\"]*)\"", html)
    assert loaded and not [address for address in loaded if "//" in address]


def test_short_fractions_and_numbers_of_equations(tmp_path):
    (tmp_path / "page.md").write_text(
        "# Page\n\n$\\tfrac12 x$, $a_1, \\dots, a_K$\n\n```{math}\n:label: one\n\\frac1n y\n```\n\n"
        "See {eq}`one`.\n"
    )
    html, warnings = built(tmp_path)
    assert not warnings
    half, dots, mean = map(words, MATH.findall(html))
    assert half == ["1", "2", "x"] and "…" in dots and mean == ["1", "n", "y"]
    assert 'id="equation-one"' in html and 'href="#equation-one"' in html


def test_a_formula_that_is_not_understood_is_a_warning(tmp_path):
    (tmp_path / "page.md").write_text("# Page\n\n$\\nosuch x$\n")
    assert r'Unknown LaTeX command "\nosuch"' in built(tmp_path)[1]
