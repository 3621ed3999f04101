"""The shell on tables as people have them, and what it remembers."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commandline import call, fails, fine, told

from otmoe.cli.remembered import Remembered, beside
from otmoe.text.sentences import Error, Warn

pytestmark = pytest.mark.usefixtures("own_folder")
RNG = np.random.default_rng(0)
X = RNG.standard_normal(400)
FRAME = pd.DataFrame(
    {"y": 1 + X + 0.1 * RNG.standard_normal(400), "x": X, "town": ["u", "v"] * 200}
)
FIT = ["--target", "y", "--experts", 1]


def misused(code, *args, **facts):
    """Run a command line that is wrong."""
    result = call(*args)
    said = " ".join(result.stderr.replace("\n", " ").split())
    assert result.exit_code == 2 and Error[code.upper()].value.format(**facts) in said


def test_one_separator_for_run_fit_and_features():
    FRAME.to_csv("a.csv", sep=":", index=False)
    line = fails("run", "a.csv", *FIT, "-o", "m.json", code="one_column")
    assert "--sep" in line
    for sep in (":", "::"):
        found = call("run", "a.csv", *FIT, "--sep", sep, "-o", "m.json")
        assert found.exit_code == (0 if sep == ":" else 2)
    fine("fit", "a.csv", *FIT, "--site", "A", "--sep", ":", "-o", "a.moe.json")
    assert told("features", "a.csv", "--target", "y", "--sep", ":", "-o", "f.json")["columns"] == 2
    FRAME.to_csv("b.csv", sep="\t", index=False)
    fine("run", "b.csv", *FIT, "--sep", "tab", "-o", "n.json")


def test_features_needs_the_target_only_where_columns_are_not_named():
    FRAME.assign(long=[f"{i}" * 3 + "x" for i in range(400)]).to_parquet("a.parquet")
    assert told("features", "a.parquet", "--columns", "x,town", "-o", "f.json")["columns"] == 2
    misused("shell_target_or_columns", "features", "a.parquet", "-o", "g.json")
    fails("features", "a.parquet", "--target", "Y", "-o", "g.json", code="no_column", column="Y")
    words = ["--max-levels", 400]
    assert told("run", "a.parquet", *FIT, "--columns", "x,town", *words, "-o", "m.json")


def test_small_shards_are_told_to_be_cut_otherwise():
    FRAME.to_parquet("a.parquet")
    result = fine("run", "a.parquet", *FIT, "--cut", 20, "--columns", "x", "-o", "m.json")
    wanted = Warn.SHELL_SMALL_SHARDS(rows=20.0, parameters=3, fewer=13)
    assert f"warning: {wanted}" in result.stderr
    for words in (["--cut", 13], ["--cut", 1]):
        result = fine("run", "a.parquet", *FIT, *words, "--columns", "x", "-o", "m.json", "--force")
        assert "--cut" not in result.stderr


def test_the_index_of_a_frame_is_said_in_the_words_of_the_shell():
    FRAME.to_csv("a.csv")
    result = fine("run", "a.csv", *FIT, "-o", "m.json")
    assert "list it in --columns" in result.stderr


# -- survey --------------------------------------------------------------------------------------


def test_a_survey_counts_and_hides():
    frame = FRAME.assign(
        town=["rare"] * 4 + ["u"] * 196 + ["v"] * 200, site=["a"] * 395 + ["b"] * 5
    )
    frame.to_parquet("a.parquet")
    found = told("survey", "a.parquet", "--site-column", "site")
    first, second = found["sites"]
    assert (first["rows"], second["rows"], found["least"]) == (395, None, 10)
    town = next(c for c in first["columns"] if c["name"] == "town")
    assert town["levels"] == {"u": 195} or town["levels"] == {"v": 195}  # to five
    assert town["hidden"] == 2 and "rare" not in json.dumps(found)
    shown = fine("survey", "a.parquet", "--site-column", "site").stdout
    assert "rare " not in shown and "2 hidden" in shown and "196" not in shown
    every = ["survey", "a.parquet", "--site", "Lyon", "--least", 1]
    assert "town=rare" in fails(*every, code="policy_refuses", rules=["cells"])
    everything = told(*every, "--override", "cells", "--reason", "public")
    assert everything["sites"][0]["site"] == "Lyon" and everything["overrides"] == {
        "cells": "public"
    }
    town = next(c for c in everything["sites"][0]["columns"] if c["name"] == "town")
    assert town["levels"]["rare"] == 5
    assert "too many" in fine("survey", "a.parquet", "--max-levels", 1).stdout


def test_a_survey_warns_here_of_a_dash_among_numbers_and_names_what_has_no_name():
    FRAME.assign(dose=["-", *map(str, range(1, len(FRAME)))]).to_csv("a.csv")
    said = fine("survey", "a.csv", "--site", "Lyon")
    assert "column 'dose' holds numbers, but '-' in some rows" in said.stderr
    assert "(no name)" in said.stdout and "'-'" not in said.stdout


# -- what the answers of a site take from its fit ------------------------------------------------


@pytest.fixture
def request_file():
    gaps = FRAME.assign(x=FRAME["x"].where(FRAME.index > 3))
    gaps[:200].to_parquet("a.parquet")
    gaps[200:].to_parquet("b.parquet")
    for site in "ab":
        words = ["--site", site, "--sketch", "--missing", "drop", "-q"]
        fine("fit", f"{site}.parquet", *FIT, *words, "-o", f"{site}.moe.json")
    fine("aggregate", "*.moe.json", "-o", "model.json")
    fine("refine", "start", "model.json", "*.moe.json", "--state", "s.json", "-o", "r.json")
    return Path("r.json").resolve()


def test_an_answer_takes_from_the_fit_what_is_not_given(request_file, monkeypatch):
    message = Path("a.moe.json").resolve()
    words = ["a.parquet", "--target", "y", "--site", "a", "--missing", "drop"]
    told("refine", "answer", request_file, *words, "-o", "by_hand.json")
    by_hand = json.loads(Path("by_hand.json").read_text())
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    told("refine", "answer", request_file, "--fit", message, "-o", "a.json")
    assert json.loads(Path("a.json").read_text()) == by_hand
    renamed = told(
        "refine", "answer", request_file, "--fit", message, "--site", "b", "-o", "b.json"
    )
    assert renamed["site"] == "b"


def test_an_answer_says_what_is_not_remembered(request_file):
    for words, lacking in (
        ([], "DATA"),
        (["a.parquet"], "--target"),
        (["a.parquet", "--target", "y"], "--site"),
    ):
        args = ["refine", "answer", request_file, *words, "-o", "a.json"]
        misused("shell_answer_lacks", *args, lacking=lacking)
    args = ["refine", "answer", request_file, "--fit", "a.moe.json", "-o", "a.json"]
    local = beside(Path("a.moe.json"))
    known = json.loads(local.read_text())
    wrong = [
        {"data": known["data"][0]},
        {"data": [1]},
        {"missing": []},
        {"weight": 1},
        {"offset": 1e18},
    ]
    for text in ("{", "[]", "{}", '{"site": 1}', *(json.dumps(known | part) for part in wrong)):
        local.write_text(text)
        fails(*args, code="shell_local_wrong")
    local.unlink()
    fails(*args, code="shell_not_remembered")


def test_what_is_remembered_stays_at_the_site(request_file):
    """It is beside the message, not in it, and nothing that takes messages takes it."""
    found = json.loads(beside(Path("a.moe.json")).read_text())
    assert Remembered(**{**found, "data": tuple(found["data"])}).target == "y"
    assert "a.parquet" not in Path("a.moe.json").read_text()
    assert sorted(path.name for path in Path().glob("*.moe.json")) == ["a.moe.json", "b.moe.json"]
