"""Spoilt documents for every command that reads one: an answer, or one sentence and no output.

``tests/fuzz.py --kind commands`` runs this. Commands run in this process, each in a copy of the
folder of a small study, in which one document is a mutant.
"""

import json
import os
import shutil
import traceback
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from commandline import call, fine, leftovers

from otmoe import Policy, simulate
from otmoe.cli import common
from otmoe.text.errors import OtmoeError
from otmoe.workers.failures import TasksFailed

SITES = ["Brest", "Lyon", "Metz", "Nantes", "Nice"]
ROWS = 120
OUT = ["-o", "out/out.json"]
LYON = ["Lyon.parquet", "--target", "y", "--site", "Lyon"]
OFF = ["--policy", "off.json"]
QUICK = ["--experts", 2, "--n-init", 1, "--max-iter", 3]
SUPPORT = ["--n-support", 40]

# -- a small study ---------------------------------------------------------------------------------


@cache
def study(family):
    """Return a folder with every document that a study of this family has."""
    folder = Path(mkdtemp(prefix="otmoe-study-"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        _make(family)
    finally:
        os.chdir(before)
    return folder


def _make(family):
    kind = {"classes": "logistic"}.get(family, family)
    data = simulate(ROWS * len(SITES), 2, 2, family=kind, softness=1.0, random_state=3)
    y = np.array(["no", "yes"])[data.y.astype(int)] if family == "classes" else data.y
    lenient = Policy.model_validate({**Policy.off().model_dump(), "queries": 10_000})
    Path("off.json").write_text(lenient.model_dump_json())  # counts questions: there is a ledger
    Path("policy.json").write_text(Policy().model_dump_json())
    Path("out").mkdir()
    for i, name in enumerate(SITES):
        rows = slice(ROWS * i, ROWS * i + ROWS)
        columns = {"y": y[rows], "x0": data.X[rows, 0], "x1": data.X[rows, 1]}
        pq.write_table(pa.table(columns), f"{name}.parquet")
    fine("features", "Lyon.parquet", "--target", "y", "-o", "features.json")
    how = ["--features", "features.json", "--family", family, "--sketch", "--share", 5, "--secure"]
    how += ["--grams"] if family == "gaussian" else []
    how += ["--classes", "no,yes"] if family == "classes" else []
    for name in SITES:
        told = ["--statement", f"{name}.statement.json", "-o", f"{name}.moe.json"]
        fine(*_fit(name), *how, "--experts", 2, "--n-init", 2, *OFF, *told)
    fine("aggregate", "*.moe.json", *SUPPORT, "-o", "model.json")
    start = ["refine", "start", "model.json", "*.moe.json", "--rounds", 1]
    # sums of which nobody sees a part: the question, and masked replies to it
    fine(*start, "--secure", "--state", "secure.state.json", "-o", "secure.request.json")
    for name in SITES:
        reply = ["--key", f"{name}.key", "-o", f"{name}.masked.json"]
        fine("refine", "answer", "secure.request.json", *_rows(name), *OFF, *reply)
    # plain rounds, up to the model that says how sites differ
    fine(*start, "--between", "auto", "--state", "state.json", "-o", "round1.request.json")
    for number in (1, 2):
        shutil.copy("state.json", "before.json")
        for name in SITES:
            reply = ["--scatter", "-o", f"{name}.round{number}.reply.json"]
            fine("refine", "answer", f"round{number}.request.json", *_rows(name), *OFF, *reply)
        fine("refine", "step", "state.json", f"*.round{number}.reply.json", "-o", "last.json")
        if Path("last.json").exists():
            break
    shutil.copy("before.json", "state.json")
    for name in SITES:
        os.replace(f"{name}.round{number}.reply.json", f"{name}.reply.json")
    for path in Path().glob("*.round*.reply.json"):
        path.unlink()
    os.replace(f"round{number}.request.json", "request.json")


def _rows(name):
    return [f"{name}.parquet", "--target", "y", "--site", name]


def _fit(name):
    return ["fit", *_rows(name)]


# -- which command reads what ----------------------------------------------------------------------

AGGREGATE = ["aggregate", "*.moe.json", *SUPPORT, *OUT]
START = ["refine", "start", "model.json", "*.moe.json", "--state", "out/state.json", *OUT]
STEP = ["refine", "step", "state.json", "*.reply.json", "--request", "out/next.json", *OUT]
ANSWER = ["refine", "answer", "request.json", *LYON, *OFF, *OUT]
SECURE = ["refine", "answer", "secure.request.json", *LYON, *OFF, "--key", "Lyon.key", *OUT]
SUM = ["refine", "step", "secure.state.json", "*.masked.json", "--request", "out/next.json", *OUT]
ROWS_OF_LYON = ["Lyon.parquet", "--target", "y"]


def _looked_at(file):
    return [["inspect", file], ["inspect", file, "--json"]]


def _of_model(file):
    return [
        *_looked_at(file),
        ["inspect", file, "--coefficients"],
        ["summary", file],
        ["summary", file, "--csv"],
        ["summary", file, "--json"],
        ["summary", file, "--html"],
        ["report", file, "-o", "out/page.html"],
        ["evaluate", file, *ROWS_OF_LYON],
        ["evaluate", file, *ROWS_OF_LYON, "--json"],
        ["predict", file, "Lyon.parquet", "--expert", "-o", "out/predictions.csv"],
        ["fit", *LYON, *OFF, "--start", file, "--max-iter", 3, *OUT],
    ]


COMMANDS = {
    "Lyon.moe.json": [
        *_looked_at("Lyon.moe.json"),
        ["inspect", "Lyon.moe.json", "--coefficients", "--policy", "policy.json"],
        ["inspect", "Lyon.moe.json", "--statement", "Lyon.statement.json"],
        ["summary", "Lyon.moe.json"],
        ["evaluate", "Lyon.moe.json", *ROWS_OF_LYON],
        AGGREGATE,
        [*AGGREGATE, "--json"],
        [*AGGREGATE, "--exclude-flagged"],
        [*AGGREGATE, "--exclude-flagged", "--keep", "Lyon"],
        [*AGGREGATE, "--skip-bad"],
        [*AGGREGATE, "--max-weight", 0.3],
        [*AGGREGATE, "--site-weight", "covariate"],
        *(
            [*AGGREGATE, "--method", method]
            for method in (
                *("reduction", "kl", "gram", "middle", "weighted_average", "aligned_average"),
                *("greedy", "median", "trimmed", "geometric_median", "krum"),
            )
        ),
        ["elbow", "*.moe.json", "--experts", "1-3", *SUPPORT],
        START,
        [*START, "--secure"],
        [*START, "--between", "auto"],
    ],
    "model.json": [
        *_of_model("model.json"),
        START,
        ["personalise", "model.json", *LYON, *OUT],
    ],
    "last.json": [
        *_of_model("last.json"),
        *[["personalise", "last.json", *LYON, *OUT]] * 3,
        ["personalise", "last.json", *LYON, "--restrict", "intercepts", *OUT],
        ["predict", "last.json", "Lyon.parquet", "--site", "Lyon", "-o", "out/predictions.csv"],
        ["evaluate", "last.json", *ROWS_OF_LYON, "--site", "Lyon"],
    ],
    "state.json": [
        *_looked_at("state.json"),
        *[STEP, [*STEP, "--summary"], [*STEP, "--json"]] * 2,
        [*STEP, "--odd", "refuse"],
        ["refine", "again", "state.json", "--exclude", "Nice", *OUT],
    ],
    "secure.state.json": [
        *_looked_at("secure.state.json"),
        SUM,
        ["refine", "again", "secure.state.json", "--exclude", "Nice", *OUT],
    ],
    "request.json": [*_looked_at("request.json"), ANSWER, [*ANSWER, "--scatter"]],
    "secure.request.json": [*_looked_at("secure.request.json"), SECURE],
    "Lyon.reply.json": [
        *_looked_at("Lyon.reply.json"),
        *[STEP, [*STEP, "--summary"]] * 2,
        [*STEP, "--odd", "refuse"],
    ],
    "Lyon.masked.json": [*_looked_at("Lyon.masked.json"), SUM],
    "features.json": [
        *_looked_at("features.json"),
        ["fit", *LYON, *OFF, "--features", "features.json", *QUICK, *OUT],
    ],
    "policy.json": [
        ["inspect", "Lyon.moe.json", "--policy", "policy.json"],
        ["refine", "answer", "request.json", *LYON, "--policy", "policy.json", *OUT],
        ["fit", *LYON, "--policy", "policy.json", *QUICK, *OUT],
    ],
    ".otmoe-ledger.json": [ANSWER],
    "Lyon.key.answered.json": [SECURE],
    "Lyon.key": [SECURE],
    "Lyon.moe.json.local": [["refine", "answer", "request.json", "--fit", "Lyon.moe.json", *OUT]],
    "Lyon.statement.json": [["inspect", "Lyon.moe.json", "--statement", "Lyon.statement.json"]],
}
"""Lines that read a document, by its file."""

OFTEN = {"Lyon.moe.json": 4, "last.json": 2, "model.json": 2, "state.json": 2, "Lyon.reply.json": 2}
"""Documents that have more commands, or come from others, are tried more often."""

FAMILIES = ("gaussian", "classes", "poisson")
PARTS = {"last.json": "between", "model.json": "aggregation"}


def lines(family, file):
    """Return the commands that read a document of a study of this family."""
    found = [[str(word) for word in line] for line in COMMANDS[file]]
    new = [line for line in found if line[0] == "fit" and "--start" not in line]
    for line in new:
        line += ["--family", family, *(["--classes", "no,yes"] if family == "classes" else [])]
    return found


def refused(family, command):
    """Say whether a command is refused whatever nobody has spoilt."""
    alone = command[:2] == ["personalise", "model.json"]  # it does not say how sites differ
    plain = command[:3] == ["refine", "again", "state.json"]  # nothing is secret there
    return alone or plain or ("gram" in command and family != "gaussian")


def chosen(rng, one_of):
    """Return a family, a document and a command that reads it."""
    files = [file for file in COMMANDS for _ in range(OFTEN.get(file, 1))]
    family, file = one_of(rng, FAMILIES), one_of(rng, files)
    return family, file, one_of(rng, lines(family, file))


def outcome(family, file, command, text, folder):
    """Run a command in a copy of the study with a mutant in it; return how it ended."""
    here = Path(folder, "case")
    shutil.copytree(study(family), here)
    before = Path.cwd()
    os.chdir(here)
    try:
        Path(file).write_bytes(text)
        return _ended(command)
    finally:
        os.chdir(before)
        shutil.rmtree(here)


def _ended(command):
    state = Path(command[2]) if command[:2] in (["refine", "step"], ["refine", "again"]) else None
    kept = None if state is None else state.read_bytes()
    with patch.object(common, "sentence", wraps=common.sentence) as said:
        result = call(*command)
    made = sorted(Path("out").iterdir())
    assert leftovers(Path()) == [], f"left {leftovers(Path())}"
    if result.exit_code == 0:
        if "--json" in command:
            json.loads(result.stdout)
        for path in made:
            if path.suffix == ".json":  # whatever was written can be read
                again = call("inspect", path)
                assert again.exit_code == 0, f"wrote {path.name}: {again.output}"
        return "done"
    if result.exit_code == 1 and said.called:
        error = said.call_args.args[0]
        error = error.failures[0].cause if isinstance(error, TasksFailed) else error
        if not isinstance(error, OtmoeError):
            raise AssertionError("".join(traceback.format_exception(error)[-2:])) from error
    else:
        asked = result.exit_code == 2 and "--fit" in command  # what was remembered lacks something
        assert asked, f"exit code {result.exit_code}: {result.output} {result.exception!r}"
    assert made == [], f"failed, and wrote {[path.name for path in made]}"
    assert kept is None or state.read_bytes() == kept, "failed, and changed its state"
    return "refused"
