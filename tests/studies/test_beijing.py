import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from otmoe import FeatureSpec, shards_from
from paper import beijing_sites as study
from studies.rows import read


@pytest.fixture
def data(tmp_path):
    """Return a folder with a tiny table of the same form."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "beijing"
    folder.mkdir()
    rows = {
        "site": ["Dongsi", "Dingling"] * 30,
        "split": ["train"] * 40 + ["test"] * 20,
        "TEMP": rng.normal(13, 11, 60),
        "RAIN": rng.random(60),
        "PM2.5": rng.random(60),
        "y_imputed": [False] * 60,
    }
    pq.write_table(pa.table(rows), folder / "prsa_features_d19.parquet")
    about = {
        "features": ["RAIN", "TEMP"],
        "mean": {"TEMP": 13.0, "RAIN": 0.5},
        "std_ddof0": {"TEMP": 11.0, "RAIN": 0.25},
    }
    (folder / "standardisation.json").write_text(json.dumps(about))
    return folder


def test_every_station_gets_its_training_rows(data, tmp_path):
    assert study.cut(data, tmp_path) == ["Dingling", "Dongsi"]
    spec = FeatureSpec.load(tmp_path / "features.json")
    table = pq.read_table(data / "prsa_features_d19.parquet").to_pandas()
    for name in ("Dingling", "Dongsi"):
        path = tmp_path / "train" / f"{name}.parquet"
        (shard,) = shards_from(path, target="PM2.5", features=spec)
        here = table[(table["site"] == name) & (table["split"] == "train")]
        expected = np.column_stack([(here["RAIN"] - 0.5) / 0.25, (here["TEMP"] - 13) / 11])
        assert_allclose(shard.read().X, expected)
        assert_allclose(shard.read().y, here["PM2.5"])
    assert pq.read_table(tmp_path / "test.parquet").num_rows == 20


def test_without_data_nothing_happens(tmp_path, monkeypatch, capsys):
    before = study.STATIONS.read_bytes()
    monkeypatch.setattr("sys.argv", ["beijing_sites", "--data", str(tmp_path)])
    study.main()
    assert "OTMOE_DATA" in capsys.readouterr().out
    assert study.STATIONS.read_bytes() == before


def test_the_page_shows_the_tracked_results(tmp_path):
    page = tmp_path / "sites.md"
    page.write_text(study.PAGE.read_text())
    study.write_page([study.stations(read(study.STATIONS)), study.models(read(study.MODELS))], page)
    assert page.read_text() == study.PAGE.read_text()
