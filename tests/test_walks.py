"""The walks through the code that CONTRIBUTING.md describes are those that it takes."""

import inspect
import re
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import fine

from otmoe import LocalModel, MoERegressor, aggregate, report, simulate

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text().split("## Three walks")[1]
WALKS = [
    re.findall(r"^\d+\. `([\w.]+)`", part, re.M)
    for part in re.split(r"^`.*`$", TEXT.split("\n## ")[0], flags=re.M)[1:]
]
DATA = simulate(1200, 2, 2, random_state=0)


def fit(folder):
    MoERegressor(2, random_state=0).fit(DATA.X, DATA.y)


def run(folder):
    for i, rows in enumerate(np.array_split(np.arange(len(DATA.y)), 3)):
        columns = {"a": DATA.X[rows, 0], "b": DATA.X[rows, 1], "y": DATA.y[rows]}
        pq.write_table(pa.table(columns), folder / f"part-{i}.parquet")
    parts = [str(path) for path in sorted(folder.glob("part-*.parquet"))]
    options = ["--target", "y", "--experts", "2", "--refine", "auto", "--n-jobs", "1"]
    fine("run", *parts, *options, "-o", str(folder / "model.json"))


def merge(folder):
    messages = []
    for i, rows in enumerate(np.array_split(np.arange(len(DATA.y)), 3)):
        est = MoERegressor(2, random_state=0).fit(DATA.X[rows], DATA.y[rows])
        messages.append(LocalModel.from_json(est.to_message(f"site {i}").to_json()))
    report(aggregate(messages, DATA.X[:300], random_state=0), folder / "page.html")


def code_of(name):
    """Return the code of a function that is named by room, module and place in it."""
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            module = import_module("otmoe." + ".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        found = reduce(getattr, parts[split:], module)
        found = getattr(found, "callback", found)  # of a command
        return inspect.unwrap(found).__code__
    raise AssertionError(name)


@pytest.mark.parametrize("walk, go", list(zip(WALKS, [fit, run, merge], strict=True)))
def test_a_walk_is_as_described(walk, go, tmp_path):
    assert len(walk) <= 10
    places, seen = {code_of(name): name for name in walk}, []

    def profile(frame, event, argument):
        name = places.get(frame.f_code) if event == "call" else None
        if name is not None and name not in seen:
            seen.append(name)

    sys.setprofile(profile)
    try:
        go(tmp_path)
    finally:
        sys.setprofile(None)
    assert seen == walk
