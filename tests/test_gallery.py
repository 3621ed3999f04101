"""docs/gallery.py: what becomes of a script; the scripts themselves run in make docs."""

import ast
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def gallery():
    spec = spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "words.py"
    path.write_text('"""A title\n\nSome `words`.\n"""\n\nfrom pathlib import Path\nprint(6 * 7)\n')
    return path


def test_a_page_has_title_words_code_and_output(gallery, script, tmp_path):
    page = gallery.page(script, tmp_path)
    assert page.startswith("# A title\n\nSome `words`.\n\n```python\nfrom pathlib")
    assert "print(6 * 7)\n```\n\n```text\n42\n```\n" in page


def test_figures_left_open_are_shown_and_closed(gallery, script, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    script.write_text(script.read_text() + "import matplotlib.pyplot as plt\nplt.figure()\n")
    assert "![A title](words_1.svg)" in gallery.page(script, tmp_path)
    assert (tmp_path / "words_1.svg").is_file() and plt.get_fignums() == []


@pytest.mark.parametrize(
    "line", ["raise ValueError('no')", "import warnings\nwarnings.warn('no', UserWarning)"]
)
def test_a_script_that_fails_or_warns_stops_the_build(gallery, script, tmp_path, line):
    script.write_text(script.read_text() + line + "\n")
    with pytest.raises((ValueError, UserWarning), match="no"):
        gallery.page(script, tmp_path)


def test_a_script_writes_into_the_folder_of_the_pages(gallery, script, tmp_path):
    script.write_text(script.read_text() + "Path('out.txt').write_text('x')\n")
    (tmp_path / "pages").mkdir()
    gallery.page(script, tmp_path / "pages")
    assert (tmp_path / "pages" / "out.txt").is_file()


def test_the_list_of_pages_shows_a_picture_of_each(gallery, script, tmp_path):
    assert gallery.preview("words", gallery.page(script, tmp_path)) == "## [A title](words.md)"
    script.write_text(script.read_text() + "import matplotlib.pyplot as plt\nplt.figure()\n")
    shown = gallery.preview("words", gallery.page(script, tmp_path))
    assert "[![A title](words_1.svg)" in shown and shown.endswith("](words.md)")


def test_every_script_of_the_gallery_draws(gallery):
    for path in gallery.SCRIPTS.glob("*.py"):
        assert any(word in path.read_text() for word in ("plt.subplots(", "Display.from_")), path


def test_every_script_of_the_gallery_has_a_title_and_words(gallery):
    scripts = sorted(gallery.SCRIPTS.glob("*.py"))
    assert len(scripts) >= 6
    for path in scripts:
        title, _, words = ast.get_docstring(ast.parse(path.read_text())).partition("\n\n")
        assert title and "\n" not in title and words
