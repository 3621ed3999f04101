"""Few rows are fitted by one process, many by one per core."""

import os

import numpy as np
import pyarrow as pa
import pytest
from loky import cpu_count
from pyarrow import csv, parquet

from otmoe import MoERegressor, shards_from, simulate
from otmoe.distributed import size
from otmoe.distributed.size import estimated_rows, n_jobs_for, n_parameters_of

pytestmark = pytest.mark.usefixtures("own_folder")
ROWS = pa.table(dict(zip("yabc", np.random.default_rng(0).standard_normal((4, 3000)), strict=True)))


@pytest.fixture
def shards():
    parquet.write_table(ROWS, "a.parquet")
    parquet.write_table(ROWS, "b.parquet")
    return shards_from(["a.parquet", "b.parquet"], target="y")


def test_few_rows_take_one_process_and_many_one_per_core(shards, monkeypatch):
    assert n_jobs_for(shards, 2) == 1
    work = 6000 * n_parameters_of(shards[0], 2) ** 2
    monkeypatch.setattr(size, "WORTH", work)
    assert n_jobs_for(shards, 2) == cpu_count()
    monkeypatch.setattr(size, "WORTH", work + 1)
    assert n_jobs_for(shards, 2) == 1
    assert n_jobs_for(shards, 3) == cpu_count()


def test_the_number_of_parameters_is_about_that_of_the_model(shards):
    data = simulate(600, 3, 3, random_state=0)
    fitted = MoERegressor(3, random_state=0).fit(data.X, data.y).model_.n_parameters
    assert n_parameters_of(shards[0], 3) == fitted - 3  # the variances


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_rows_of_csv_are_estimated_from_the_size_of_the_file(name):
    with pa.output_stream(name, compression="detect") as file:
        csv.write_csv(ROWS, file)
    assert 1000 < estimated_rows(shards_from(name, target="y")[0]) < 15_000


def test_a_file_that_is_gone_is_left_to_whoever_reads_it(shards):
    os.remove("b.parquet")
    assert [estimated_rows(shard) for shard in shards] == [3000, 0]
