"""A room imports only rooms above it; optional packages are imported where they are needed."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import otmoe

ROOT = Path(otmoe.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
LONG = 350  # lines of a file that probably has two jobs
OPTIONAL = {"dask", "flwr", "matplotlib", "pandas", "ray", "torch", "triton"}

# The list in CONTRIBUTING.md is the architecture: rooms in order, then the edges, in order too.
PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
LIST = re.search(r"    src/otmoe/\n(.*?)\n    tests/", PAGE, flags=re.DOTALL)[1]
ROOMS, EDGES = (re.findall(r"^      (\w+)/", part, re.M) for part in LIST.split("-- edges --"))


def parse(file):
    return ast.parse((ROOT / file).read_text())


def imported(tree):
    """Yield the dotted name of everything imported below a node; `from a import b` gives a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports: from otmoe.x import y"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def home(name):
    """Return the file of the package that a dotted name comes from, or None if it is elsewhere."""
    parts = name.split(".")
    if parts[0] != ROOT.name:
        return None
    for size in range(len(parts), 0, -1):
        path = "/".join(parts[1:size])
        for file in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
            if file in FILES:
                return file
    raise AssertionError(f"{name} is imported but there is no such file")


def room(file):
    """Return the room that a file is in; None for the files of the house itself."""
    return file.split("/")[0] if "/" in file else None


def runs_at_import(tree):
    """Yield the statements that run when a module is imported, type-checking blocks left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from runs_at_import(node)


@pytest.mark.parametrize("file", FILES)
def test_a_long_file_says_why_it_is_long(file):
    lines = (ROOT / file).read_text().splitlines()
    assert len(lines) <= LONG or lines[0].startswith("# Long because "), (
        f"{file} has {len(lines)} lines: split it, or begin with '# Long because ...'"
    )


def test_every_file_is_in_a_room():
    flat = [file for file in FILES if room(file) is None]
    assert flat == ["__init__.py", "__main__.py"]
    assert {room(file) for file in FILES} - {None} == {*ROOMS, *EDGES}


@pytest.mark.parametrize("file", [file for file in FILES if room(file)])
def test_a_room_imports_only_rooms_above_it(file):
    order = [*ROOMS, *EDGES]
    above = order[: order.index(room(file)) + 1]
    for name in imported(parse(file)):
        there = home(name)
        if there == "__init__.py":
            assert room(file) == "cli", f"{file} imports {name} from the front door"
        elif there is not None:
            assert room(there) in above, f"{file} imports {name}, which is below it"


@pytest.mark.parametrize("name", [*ROOMS, *EDGES])
def test_there_is_no_cycle_inside_a_room(name):
    mine = [file for file in FILES if room(file) == name]
    graph = {file: {home(n) for n in imported(parse(file))} & set(mine) - {file} for file in mine}
    tuple(TopologicalSorter(graph).static_order())  # raises if there is one


@pytest.mark.parametrize("file", FILES)
def test_optional_packages_are_not_imported_with_the_module(file):
    if file == "arrays/triton.py":
        pytest.skip("imported where a CUDA tensor is met, and only then")
    for node in runs_at_import(parse(file)):
        packages = {name.split(".")[0] for name in imported(node)}
        assert not packages & OPTIONAL, f"{file}: import {packages & OPTIONAL} where it is used"


def test_the_checks_above_see_what_they_should():
    assert ROOMS[0] == "arrays" and EDGES[-1] == "cli"
    assert home("otmoe.arrays.kernels") == "arrays/kernels.py"
    assert home("otmoe.model.experts.FAMILIES") == "model/experts/__init__.py"
    assert home("otmoe.MoE") == "__init__.py"
    assert home("numpy.linalg") is None
    code = "try:\n import torch\nexcept ImportError: pass\ndef f():\n import pandas"
    assert [name for n in runs_at_import(ast.parse(code)) for name in imported(n)] == ["torch"]


@pytest.mark.parametrize(
    ("folder", "others"), [("paper", {"benchmarks"}), ("benchmarks", {"paper"})]
)
def test_studies_share_a_harness_and_not_each_other(folder, others):
    for path in (Path(__file__).parents[1] / folder).glob("*.py"):
        packages = {name.split(".")[0] for name in imported(ast.parse(path.read_text()))}
        assert not packages & others, f"{path.name} imports {packages & others}"
