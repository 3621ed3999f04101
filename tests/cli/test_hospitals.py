"""Four real hospitals by files: the tables of `OTMOE_DATA`, two experts, refined to the maximum."""

import os

import numpy as np
import pandas as pd
import pytest
from commandline import fine, refined_by_files, unguarded

from otmoe import load_model
from otmoe.datasets.real import data_folder
from otmoe.documents.state import RefineState
from otmoe.likelihood.fit import em
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows

FEATURES = ["age", "sex", "cp", "trestbps", "thalach", "exang", "oldpeak"]
RULES = ["cells", "expert_rows", "leverage", "question", "parameters"]
OVERRIDES = [word for rule in RULES for word in ("--override", rule)]

pytestmark = pytest.mark.skipif("OTMOE_DATA" not in os.environ, reason="no data here")


def refined(folder, table, options):
    """Fit, merge and refine; return the state at the end."""
    how = ["--target", "disease", "--family", "classes", "--experts", 2, "--sketch"]
    for site, rows in table.groupby("site", observed=True):
        rows[[*FEATURES, "disease"]].to_parquet(folder / f"{site}.parquet")
        where = ["--site", site, "-o", folder / f"{site}.moe.json"]
        fine("fit", folder / f"{site}.parquet", *how, *where, *options)
    sent = sorted(folder.glob("*.moe.json"))
    fine("aggregate", *sent, "-o", folder / "model.json")
    state = folder / "state.json"
    ask = folder / "round1.request.json"
    fine("refine", "start", folder / "model.json", *sent, "--state", state, "-o", ask)
    refined_by_files(folder, sent, state, ask, options, most=12)
    return RefineState.load(state).refinement


@pytest.mark.parametrize("rounding", [False, True])
def test_hospitals_end_at_the_maximum_with_standard_errors(tmp_path, rounding):
    """Also where the policies of the small ones let replies pass that are rounded by far."""
    table = pd.read_parquet(data_folder() / "heart_disease" / "heart4sites.parquet")
    table = table[["site", *FEATURES, "disease"]].dropna()
    options = [*OVERRIDES, "--reason", "agreed"] if rounding else unguarded(tmp_path)
    state = refined(tmp_path, table, options)
    assert state.converged and state.rounds <= 12
    assert (state.unsure > 0.05) == rounding
    # the pooled fit from there: nowhere else
    model = load_model(tmp_path / "refined.json")
    X, y = table[FEATURES].to_numpy(float), table["disease"].to_numpy(float)
    whole = em(X, y, 2, family="logistic", init=model)
    step = model.to_vector() - whole.model.aligned_to(model, X).to_vector()
    matrix = observed_information(whole.model, Rows(X, y)).matrix
    assert np.sqrt(step @ matrix @ step) < (0.25 if rounding else 1e-3)
    told = fine("summary", tmp_path / "refined.json").stdout
    assert "standard errors" in told and "none" not in told
