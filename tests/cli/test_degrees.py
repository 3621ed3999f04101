"""Student-t experts with chosen degrees of freedom, from the sites to the report."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import call, fails, fine, told, unguarded

from otmoe import LocalModel, MoERegressor, load_model, simulate

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def data(own_folder):
    """Write the rows of two sites, and return all."""
    data = simulate(1600, 2, 2, softness=1.0, family="student_t3", random_state=4)
    for i in range(2):
        part = slice(800 * i, 800 * (i + 1))
        columns = {"y": data.y[part], "a": data.X[part, 0], "b": data.X[part, 1]}
        pq.write_table(pa.table(columns), f"{i}.parquet")
    return data


def test_merging_and_refining_reach_the_pooled_fit(data):
    how = ["--target", "y", "--experts", 2, "--family", "student_t3"]
    for i in range(2):
        site = ["--site", f"s{i}", "--sketch", "-o", f"{i}.moe.json"]
        fine("fit", f"{i}.parquet", *how, *site, *unguarded())
    assert LocalModel.load("0.moe.json").model.experts.degrees == 3
    fine("aggregate", "[01].moe.json", "-o", "merged.json")
    fine("run", "[01].parquet", *how, "--refine", "auto", "-o", "model.json")
    found = load_model("model.json")
    pooled = MoERegressor(2, family="student_t3", random_state=0).fit(data.X, data.y)
    errors = np.array([row.se for row in pooled.inference().table()])
    there = pooled.model_.experts.coef
    order = [np.abs(found.experts.coef - coef).sum(axis=1).argmin() for coef in there]
    gap = found.take(order).to_vector() - pooled.model_.to_vector()
    assert np.abs(gap / errors).max() < 1e-2
    for name in ("merged.json", "model.json"):
        assert "2 student_t3 experts" in fine("summary", name).stdout
        fine("report", name, "-o", f"{name}.html")
    other = MoERegressor(2, family="student_t31", random_state=0).fit(data.X, data.y)
    assert pooled.log_likelihood_ > other.log_likelihood_ + 20  # rows tell


def test_messages_of_different_degrees_are_not_merged(data):
    for i, family in enumerate(("student_t3", "student_t")):
        how = ["--target", "y", "--experts", 1, "--family", family, "--site", f"s{i}", "--sketch"]
        fine("fit", f"{i}.parquet", *how, "-o", f"{i}.moe.json", *unguarded())
    said = fails("aggregate", "[01].moe.json", "-o", "merged.json", code="family_differs")
    assert "student_t3" in said


def test_degrees_that_there_are_not(data):
    result = call("run", "0.parquet", "--target", "y", "--experts", 1, "--family", "student_t4")
    assert result.exit_code == 2
    assert "student_t3 to student_t31 (odd degrees of freedom)" in " ".join(result.stderr.split())
    fine(
        "run",
        "0.parquet",
        "--target",
        "y",
        "--experts",
        1,
        "--family",
        "student_t7",
        "-o",
        "m.json",
    )
    assert told("inspect", "m.json")["family"] == "student_t7"
    document = json.loads(Path("m.json").read_text(encoding="utf-8"))
    document["model"]["family"] = "student_t8"
    Path("n.json").write_text(json.dumps(document), encoding="utf-8")
    assert "student_t31" in fails("inspect", "n.json", code="family_unknown")
