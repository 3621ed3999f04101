"""Help and usage errors come at once: nothing is imported that they do not need."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import fails

import otmoe
from otmoe.aggregation import METHODS
from otmoe.aggregation.support import N_SUPPORT
from otmoe.cli import known
from otmoe.data.features import MAX_LEVELS
from otmoe.documents.message_record import MOST_SHARED
from otmoe.federation.policy.ledger import NAME
from otmoe.federation.policy.rules import FILE, Rule
from otmoe.likelihood.fit import MAX_ITER
from otmoe.likelihood.prior import RESTRICTIONS
from otmoe.model.experts.student import DEGREES
from otmoe.model.target import CLASSES, regression_families
from otmoe.selection import CRITERIA

HEAVY = ("numpy", "scipy", "sklearn", "numba", "pyarrow", "pydantic", "pandas", "rich")
LOOK = f"import sys; print(*(name for name in {HEAVY} if name in sys.modules))"


def loaded_by(code):
    """Return which of the heavy packages a fresh interpreter has after some lines."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOOK}"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


def test_importing_the_package_imports_nothing_heavy():
    assert loaded_by("import otmoe, otmoe.cli") == []
    assert "numpy" in loaded_by("from otmoe import MoE")  # else the check above sees nothing


def test_rows_in_memory_need_neither_shards_nor_merging():
    rooms = "print(*(n for n in ('otmoe.aggregation', 'otmoe.distributed') if n in sys.modules))"
    code = f"from otmoe import {{}}\nimport sys\n{rooms}"
    for name, imported in {"MoERegressor": "", "DistributedMoERegressor": "otmoe.agg"}.items():
        done = subprocess.run(
            [sys.executable, "-c", code.format(name)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip().startswith(imported) and bool(done.stdout.strip()) == bool(
            imported
        )


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["nosuch"],
        ["run", "--help"],
        ["run", "--nosuch"],
        ["run", "data"],
        ["run", "data", "--target", "y", "--experts", "0", "-o", "m.json"],
        ["run", "data", "--target", "y", "--experts", "2", "--family", "x", "-o", "m.json"],
        ["run", "data", "--target", "y", "--experts", "2", "-o", "nowhere/m.json"],
        ["fit", "data", "--target", "y", "--site", "A", "--classes", "a,b", "-o", "m.json"],
        ["refine", "answer", "--help"],
        ["select", "--help"],
        ["aggregate", "--help"],
    ],
    ids=" ".join,
)
def test_help_and_usage_errors_import_nothing_heavy(args):
    code = f"from otmoe.cli import main\ntry:\n main({args})\nexcept SystemExit: print()"
    assert loaded_by(code) == []


@pytest.mark.parametrize(
    "args",
    [
        ["run", "none.csv", "--target", "y", "--experts", "2", "-o", "m.json"],
        ["survey", "none.csv"],
        ["summary", "none.json"],
        ["predict", "none.json", "none.csv", "-o", "p.csv"],
        ["refine", "step", "none.json", "r.json", "-o", "m.json"],
    ],
)
def test_a_file_that_is_missing_is_named_before_anything_heavy_is_imported(args, tmp_path):
    missing = [str(tmp_path / arg) if arg.startswith("none") else arg for arg in args]
    code = f"from otmoe.cli import main\ntry:\n main({missing})\nexcept SystemExit: print()"
    assert loaded_by(code) == []
    assert fails(*missing, code="not_there").endswith("; check the name.")


def test_the_choices_of_the_help_are_those_of_the_package():
    assert list(known.FAMILIES) == regression_families() == list(known.families())
    assert known.DEGREES == DEGREES
    assert known.METHODS == tuple(method for method in METHODS if method != "ensemble")
    assert known.RESTRICTIONS == tuple(RESTRICTIONS)
    assert known.CRITERIA == CRITERIA
    assert (known.N_SUPPORT, known.MOST_SHARED) == (N_SUPPORT, MOST_SHARED)
    assert (list(known.RULES), known.LEDGER) == (list(map(str, Rule)), NAME)
    assert (known.POLICY, known.MAX_ITER) == (FILE, MAX_ITER)
    assert (known.CLASSES, known.MAX_LEVELS) == (CLASSES, MAX_LEVELS)


def test_type_checkers_and_the_interpreter_find_the_same_names_in_the_same_places():
    tree = ast.parse(Path(otmoe.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: f"otmoe.{home}" for name, home in otmoe._HOME.items()}
    assert sorted(typed) == [name for name in otmoe.__all__ if name != "__version__"]


def test_rooms_can_be_reached_from_the_package_and_other_names_cannot():
    assert loaded_by("import otmoe; assert otmoe.plot.__name__ == 'otmoe.plot'")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = otmoe.nothing
