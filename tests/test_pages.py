"""README.md and docs/*.md: their commands and their Python run, or a table says what runs them."""

import os
import re
import shlex
import warnings
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest
from commandline import call, fine
from sklearn.exceptions import ConvergenceWarning

from benchmarks.__main__ import ALL
from otmoe.cli import main

pytestmark = pytest.mark.usefixtures("own_folder")

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(console|sh|python|json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = ["--n-jobs", "1"]  # fits in this process

FEDERATION = "examples/flower/federation.py"  # which tests/federation/flower/test_flower.py starts
PERSONAL = "tests/cli/test_personalise.py"
ENGINES = "tests/workers/engines/test_engines.py"
ELSEWHERE = {
    # beginning of a command: why it is not run here, the file that does and the words it has there
    "make demo": ("builds an environment", ".ci/run", "make demo"),
    "make test": ("builds an environment", ".ci/run", "make test"),
    "make bench": ("builds an environment", ".ci/run", "make bench"),
    ".venv/bin/python -m benchmarks": ("takes minutes; some run there", ".ci/run", "make bench"),
    "pip install": ("changes the environment", ".ci/run", "pip install"),
    "dask ": ("needs a cluster; a test starts one by other words", ENGINES, "LocalCluster"),
    "OMP_NUM_THREADS=1 mpiexec": ("needs MPI", "docs/engines.md", "the tests do not cover"),
    "openssl ": ("makes certificates", FEDERATION, "openssl"),
    "echo ": ("one line of a certificate", FEDERATION, "subjectAltName"),
    "ssh-keygen ": ("makes keys", FEDERATION, "ssh-keygen"),
    "flower-superlink ": ("starts a server", FEDERATION, "flower-superlink"),
    "flower-supernode ": ("starts a server", FEDERATION, "flower-supernode"),
    "flwr ": ("needs a server", FEDERATION, "flwr"),
    "export FLWR_": ("settings of Flower", FEDERATION, "FLWR_TELEMETRY_ENABLED"),
    "cat ~/.flwr": ("shows a file", FEDERATION, "config.toml"),
    "otmoe fit lyon.csv": ("rows that the reader has", "tests/cli/test_sites.py", "--classes"),
    "otmoe personalise ": ("rows of sites that differ", PERSONAL, "personalise"),
    "otmoe evaluate mine.json": ("rows of sites that differ", PERSONAL, "evaluate"),
    "otmoe evaluate refined.json": ("rows of sites that differ", PERSONAL, "evaluate"),
    "otmoe predict mine.json": ("rows of sites that differ", PERSONAL, "predict"),
    "otmoe run s3://": ("needs a bucket and a cluster", ENGINES, "LocalCluster"),
}
ELSEWHERE_IN_PYTHON = {
    # import: the same for blocks of Python
    "from dask": ("needs a cluster", ENGINES, "DaskExecutor"),
    "import ray": ("needs Ray", ENGINES, "RayExecutor"),
    "from mpi4py": ("needs MPI", "docs/engines.md", "the tests do not cover"),
    "from otmoe.federation.flower.app": ("needs Flower", FEDERATION, "flwr"),
}

PUBLIC = {
    # what a block calls: the file of the public data that it and the blocks after it need
    "load_flights()": "nycflights13/flights_weather.parquet",
    "data_folder()": "heart_disease/heart4sites.parquet",
}

DATA = "simulate -o data --files 3 --rows 3000 --experts 2 --features 2"
FIT = (
    "fit data/part-{}.parquet --target y --experts 2 --site {} --sketch -o out/messages/{}.moe.json"
)
PREPARE = {
    # what a page takes for granted: commands, or Python
    "docs/engines.md": [DATA],
    "docs/flower.md": [DATA, FIT.format(0, "Lyon", "lyon"), FIT.format(1, "Nantes", "nantes")],
    "docs/report.md": """
from otmoe import MoERegressor, aggregate, simulate
data = simulate(2000, 2, 2, random_state=0)
half = {"Lyon": slice(0, 1000), "Nantes": slice(1000, None)}
fits = {name: MoERegressor(2, random_state=0).fit(data.X[s], data.y[s]) for name, s in half.items()}
aggregation = aggregate([fit.to_message(name) for name, fit in fits.items()], data.X)
""",
    "docs/shards.md": [DATA, "features data --target y -o features.json"],
    "docs/support.md": """
from otmoe import MoERegressor, Policy, aggregate, simulate
data = simulate(4000, 4, 2, random_state=0)
X, y, own_x = data.X, data.y, data.X[:500]
half = {"Lyon": slice(0, 2000), "Nantes": slice(2000, None)}
fits = {name: MoERegressor(4, random_state=0).fit(X[s], y[s]) for name, s in half.items()}
messages = [fit.to_message(name, X[half[name]], sketch=True) for name, fit in fits.items()]
""",
}


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def commands(kind, block):
    """Return the commands of a block, each in one line."""
    joined = re.sub(r"\\\n>?\s*", "", block)
    return re.findall(r"^\$ (.*)$" if kind == "console" else r"^(\S.*)$", joined, re.MULTILINE)


def elsewhere(text, table):
    return next((start for start in table if text.startswith(start)), None)


def lacking(block):
    """Return which public data a block needs that are not here."""
    folder = os.environ.get("OTMOE_DATA")
    needed = [file for call, file in PUBLIC.items() if call in block]
    return [file for file in needed if not folder or not (Path(folder) / file).exists()]


def otmoe(line):
    words = shlex.split(line)[1:]
    return fine(*words, *(HERE if words[0] in ("run", "select") else []))


NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
VARIES = re.compile(r"\bseconds +#|\bstep\s+was\s+#|# +(?:s|seconds|bytes|kB)\b")
"""Figures that depend on the machine: times, remainders of rounding, digits of files."""


def untimed(text):
    """Return a text without the times of tables whose last column is one of seconds."""
    lines, timed = [], False
    for line in text.splitlines():
        timed = line.endswith("seconds") or (timed and bool(line.strip()))
        lines.append(re.sub(r" \S+$", " (time)", line.rstrip()) if timed else line)
    return "\n".join(lines)


def as_shown(text):
    """Return the words of a report, however they are wrapped, and its numbers, as texts."""
    text = untimed(text.replace("─", ""))
    found, numbers = NUMBER.sub("#", text), NUMBER.findall(text)
    varies = {i for match in VARIES.finditer(found) for i in [found[: match.end()].count("#") - 1]}
    kept = [None if i in varies else number for i, number in enumerate(numbers)]
    return found.split(), kept


def close(shown, printed):
    """Say whether a printed number is the one shown, but for a unit of its last digit."""
    if shown is None or shown == printed:
        return True
    digits, _, power = shown.replace(",", "").partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(float(shown.replace(",", "")) - float(printed.replace(",", ""))) < 1.5 * unit


def compare(shown, printed, page):
    """Compare all of a text, or its parts between ellipses, in their order."""
    parts = re.split(r"(?<!\S)\.\.\.(?!\S)", shown)
    others, found = as_shown(printed)
    at = 0
    for i, part in enumerate(parts):
        words, numbers = as_shown(part)
        if i == len(parts) - 1:  # ends where the text ends
            at = max(at, len(others) - len(words)) if i else 0
            places = [at] if others[at:] == words else []
        else:  # the first begins where the text begins
            last = len(others) - len(words) + 1 if i else 1
            places = [j for j in range(at, last) if others[j : j + len(words)] == words]
        assert places, f"{page}: not printed, or not there: {part}"
        wrong = []
        for at in places:
            before = sum(word.count("#") for word in others[:at])
            there = found[before : before + len(numbers)]
            wrong.append([pair for pair in zip(numbers, there, strict=True) if not close(*pair)])
            if not wrong[-1]:
                break
        assert not wrong[-1], f"{page}: shown and printed are {wrong[0]}"
        at += len(words)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("R² 0.363, 1,204 rows", "R² 0.364, 1,205 rows", True),
        ("R² 0.363", "R² 0.365", False),
        ("1,204 rows", "1,206 rows", False),
        ("-2.5e-05", "-2.7e-05", False),
        ("x0 1.5", "x0 -1.5", False),
        ("seconds 0.3\nsent 4,579 bytes", "seconds 12.9\nsent 4,613 bytes", True),
        (
            "the last step was 4e-06 standard errors",
            "the last step\nwas 1e-07 standard errors",
            True,
        ),
        ("K BIC seconds\n1 28.1 0.56", "K BIC seconds\n1 28.1 3.20", True),
        ("K BIC seconds\n1 28.1 0.56", "K BIC seconds\n1 28.4 0.56", False),
        ("1 site", "1 shard", False),
        ("a 1\n...\nd 4", "a 1\nb 2\nc 3\nd 4", True),
        ("a 1 ...", "a 1 b 2", True),
        ("... 1 b ... 1 d", "a 1 a 1 b c 1 d", True),
        ("a 1\n...\nd 4", "a 1\nb 2\nd 5.6", False),
        ("a 1\n...\nd 4", "a 1\nb 2\nd 4\ne", False),
        ("b 2\n...\nd 4", "a 1\nb 2\nc 3\nd 4", False),
        ("a ... c ... b ... d", "a b c d", False),
        ("a b ... b c", "a b c", False),
    ],
)
def test_output_is_compared_word_by_word_and_number_by_number(shown, printed, same):
    if same:
        compare(shown, printed, "a page")
    else:
        with pytest.raises(AssertionError):
            compare(shown, printed, "a page")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_what_a_page_shows_runs(page):
    names = {"__name__": "__main__"}
    prepare = PREPARE.get(page, [])
    if isinstance(prepare, str):
        exec(prepare, names)
    else:
        Path("out/messages").mkdir(parents=True)
        for line in prepare:
            otmoe(f"otmoe {line}")
    printed, unshown = "", None
    for kind, block in blocks(page):
        assert kind == "text" or not unshown, f"{page}: what this prints is not shown: {unshown}"
        if kind in ("console", "sh"):
            for line in commands(kind, block):
                if elsewhere(line, ELSEWHERE) is None:
                    assert line.startswith("otmoe "), f"ELSEWHERE does not know: {line}"
                    printed = otmoe(line).stdout
                    unshown = line if printed.strip() else None
        elif kind == "python" and lacking(block):
            pytest.skip(f"the rest of the page needs {lacking(block)[0]} under OTMOE_DATA")
        elif kind == "python" and elsewhere(block, ELSEWHERE_IN_PYTHON) is None:
            block = block.replace("n_jobs=2", "n_jobs=1")  # as HERE
            with redirect_stdout(StringIO()) as stdout, warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # too many experts, on purpose
                exec(compile(block, page, "exec"), names)
            printed = stdout.getvalue()
            unshown = block if printed.strip() else None
        elif kind == "json":
            names["text"] = block  # as the pages call it
        elif kind == "text":  # printed by what is above it
            compare(block, printed, page)
            unshown = None
    assert not unshown, f"{page}: what this prints is not shown: {unshown}"


def test_what_is_not_run_here_is_shown_somewhere_and_run_elsewhere():
    shown = [block for page in PAGES for block in blocks(page)]
    lines = [line for kind, b in shown if kind in ("console", "sh") for line in commands(kind, b)]
    python = [block for kind, block in shown if kind == "python"]
    assert {elsewhere(line, ELSEWHERE) for line in lines} - {None} == set(ELSEWHERE)
    assert {elsewhere(b, ELSEWHERE_IN_PYTHON) for b in python} - {None} == set(ELSEWHERE_IN_PYTHON)
    for _, file, words in [*ELSEWHERE.values(), *ELSEWHERE_IN_PYTHON.values()]:
        assert words in (ROOT / file).read_text(encoding="utf-8")


def test_the_options_of_commands_that_are_not_run_exist():
    for page in PAGES:
        for kind, block in blocks(page):
            for line in commands(kind, block) if kind in ("console", "sh") else []:
                if line.startswith("otmoe ") and elsewhere(line, ELSEWHERE):
                    here = line.replace("s3://", "")  # no network is asked for the bucket
                    result = call(*shlex.split(here)[1:])
                    assert result.exit_code == 1, result.output  # 2: wrong usage


@pytest.mark.parametrize("page", PAGES)
def test_modules_and_targets_that_a_page_names_exist(page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    text = (ROOT / page).read_text(encoding="utf-8")
    known = {benchmark.name for benchmark in ALL} | {"defaults"}
    for names in re.findall(r"python -m benchmarks((?: [a-z]\w*)+)", text):
        assert set(names.split()) <= known
    for module in re.findall(r"python -m ((?:paper|benchmarks)(?:\.\w+)*)", text):
        assert find_spec(module), module
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|\$ )make ([a-z][\w-]*)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for command in re.findall(r"`otmoe ([a-z]+)", text):
        assert command in main.commands, command
