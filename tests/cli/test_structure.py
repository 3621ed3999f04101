"""What the gate and the experts see and share, on the command line."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from commandline import call, fine, told, unguarded
from numpy.testing import assert_allclose

from otmoe import LocalModel, MoERegressor, load_model
from otmoe.text.sentences import Error

pytestmark = pytest.mark.usefixtures("own_folder")

OWN = ["--expert-features", "rising=a,b", "--expert-features", "flat=b"]
HOW = [*OWN, "--gate-features", "c", "--common", "b", "--common-variance", "--experts", 2]


@pytest.fixture
def rows(own_folder, rng):
    n = 1200
    a, b, c = rng.normal(size=(3, n))
    first = rng.random(n) < 1 / (1 + np.exp(-2 * c))
    y = np.where(first, 3 + 2 * a, -3) + 0.5 * b + rng.normal(size=n)
    table = pa.table({"a": a, "b": b, "c": c, "y": y})
    for i, part in enumerate((table[:600], table[600:])):
        pa.csv.write_csv(part, f"s{i}.csv")
    return table


def test_sites_fit_merge_and_refine_within_a_structure(rows):
    fine("features", "s0.csv", "--target", "y", "-o", "f.json")
    for i in range(2):
        site = ["--site", f"s{i}", "--target", "y", "--features", "f.json", "-o", f"s{i}.moe.json"]
        fine("fit", f"s{i}.csv", *site, *HOW, "--sketch", "--grams", *unguarded())
    structure = LocalModel.load("s0.moe.json").model.structure
    assert structure.names == ("rising", "flat") and structure.common == (2,)
    fine("aggregate", "s0.moe.json", "s1.moe.json", "-o", "merged.json")
    assert load_model("merged.json").structure == structure
    assert told("inspect", "merged.json")["parameters"] == 2 + 4 + 1

    fine("run", "s0.csv", "s1.csv", "--target", "y", *HOW, "--refine", "auto", "-o", "run.json")
    own = {"rising": ["a", "b"], "flat": ["b"]}
    est = MoERegressor(
        2,
        expert_features=own,
        gate_features=["c"],
        common=["b"],
        common_variance=True,
        random_state=0,
    ).fit(rows.select(["a", "b", "c"]).to_pandas(), rows["y"].to_numpy())
    assert_allclose(load_model("run.json").to_vector(), est.model_.to_vector(), atol=1e-3)


def test_a_start_brings_its_own_structure(rows):
    fine("run", "s0.csv", "--target", "y", *HOW, "-o", "run.json")
    start = ["fit", "s1.csv", "--target", "y", "--site", "s1", "--start", "run.json"]
    fine(*start, "-o", "s1.moe.json", *unguarded())
    assert LocalModel.load("s1.moe.json").model.structure == load_model("run.json").structure
    wrong = call(*start, "--common", "b", "-o", "other.moe.json")
    assert wrong.exit_code == 2
    assert Error.SHELL_START_OR.value.format(option="--common") in wrong.stderr
