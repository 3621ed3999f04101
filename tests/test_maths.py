"""The table in docs/maths.md from sections and equations to functions, held against both."""

import inspect
import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

import otmoe

PAGE = (Path(__file__).parents[1] / "docs" / "maths.md").read_text(encoding="utf-8")
TEXT, TABLE = PAGE.split("\n## Where the formulas live\n")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if re.match(r"\| \d", line)
]
PATHS = sorted({path for *_, where in ROWS for path in re.findall(r"`([\w.]+)`", where)})
SECTIONS = re.findall(r"^## (\d+) ", TEXT, re.MULTILINE)
SOURCES = sorted(Path(otmoe.__file__).parent.rglob("*.py"))


def found(path):
    """Return what a dotted path names: modules first, then attributes."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[n:], module)
    raise ModuleNotFoundError(path)


def test_sections_are_numbered_from_one_on():
    assert SECTIONS == [str(n + 1) for n in range(len(SECTIONS))]


def test_the_table_has_every_section_and_every_equation_in_its_order():
    assert list(dict.fromkeys(section for section, *_ in ROWS)) == SECTIONS
    for number, text in re.findall(r"^## (\d+) (.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL):
        labels = re.findall(r"^:label: ([\w-]+)$", text, re.MULTILINE)
        listed = [re.fullmatch(r"\{eq\}`([\w-]+)`", eq) for n, eq, *_ in ROWS if n == number if eq]
        assert [label.group(1) for label in listed] == labels


def test_every_row_names_a_function():
    assert all(re.search(r"`otmoe\.[\w.]+`", where) for *_, where in ROWS)


@pytest.mark.parametrize("path", PATHS)
def test_what_the_table_names_exists_and_is_documented(path):
    thing = found(path)
    assert callable(thing) or isinstance(thing, property)
    assert inspect.getdoc(thing)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_docstrings_name_sections_that_there_are(source):
    for numbers in re.findall(r"\bmaths (\d+(?:, \d+)*)", source.read_text(encoding="utf-8")):
        assert set(numbers.split(", ")) <= set(SECTIONS)
