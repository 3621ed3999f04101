"""Rows that change between the fit and a refine round are noticed."""

import numpy as np
import pandas as pd
import pytest

from otmoe import shards_from, simulate
from otmoe.distributed import fit as fits
from otmoe.distributed.fit import fit_shards
from otmoe.workers.failures import TasksFailed


@pytest.fixture
def folder(tmp_path):
    data = simulate(900, 2, 2, softness=0.5, random_state=1)
    frame = pd.DataFrame(data.X, columns=["age", "dose"]).assign(y=data.y)
    for m, rows in enumerate(np.array_split(np.arange(900), 3)):
        frame.iloc[rows].to_parquet(tmp_path / f"part-{m}.parquet")
    return tmp_path


def halve(frame):
    return frame[: len(frame) // 2]


def other_values(frame):
    return frame.assign(dose=frame.dose + 0.5)


@pytest.mark.parametrize("change", [halve, other_values])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_file_that_changes_between_fit_and_refine_is_noticed(
    change, on_error, folder, monkeypatch
):
    merged = fits.merged

    def meanwhile(*args, **options):
        path = folder / "part-1.parquet"
        change(pd.read_parquet(path)).to_parquet(path)
        return merged(*args, **options)

    monkeypatch.setattr(fits, "merged", meanwhile)
    how = {"options": {"n_init": 2}, "n_support": 200, "random_state": 0, "refine": 1}
    if on_error == "raise":
        with pytest.raises(TasksFailed) as caught:
            fit_shards(shards_from(folder, target="y"), 2, **how)
        (failure,) = caught.value.failures
        assert failure.name == "part-1.parquet" and failure.cause.code == "shard_changed"
    else:
        found = fit_shards(shards_from(folder, target="y"), 2, on_error="skip", **how)
        missing = found.aggregation.refinement.missing
        assert {site for _, site in missing} == {"part-1.parquet"}
