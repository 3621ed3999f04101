import sys
from importlib.resources import files

import numpy as np
import pyarrow.csv as pv
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe.datasets import load_visits

TABLES = files("otmoe.datasets").joinpath("tables")


def test_a_table_is_small_and_says_where_it_comes_from():
    for table in TABLES.iterdir():
        if table.name.endswith(".csv"):
            text = TABLES.joinpath(table.name.replace(".csv", ".txt")).read_text(encoding="utf-8")
            assert "Source:" in text and "Licence:" in text
            assert len(table.read_bytes()) <= 100_000
            for column in table.read_text(encoding="utf-8").partition("\n")[0].split(","):
                assert f"\n{column} " in text, column


def test_visits_are_those_of_the_experiment():
    data = load_visits()
    assert data.X.shape == (3301, 6) and data.y.shape == (3301,) and np.isfinite(data.X).all()
    assert_array_equal(np.unique(data.site), [f"site {i}" for i in range(1, 7)])
    assert_array_equal(np.unique(data.X[:, 0]), [0, 0.25, 0.5, 0.95, 1])
    assert (data.y >= 0).all() and (data.y == np.round(data.y)).all()


def test_visits_are_the_rows_of_statsmodels():
    source = files("statsmodels.datasets").joinpath("randhie/src/randhie.csv")
    if not source.is_file():
        pytest.skip("this statsmodels does not have the whole table")
    table, data = pv.read_csv(str(source)), load_visits()
    column = {name: table[name].to_numpy() for name in table.column_names}
    adult = (column["year"] == 1) & (column["xage"] >= 18) & (column["time"] == 1)
    theirs = {name: values[adult] for name, values in column.items()}
    assert_array_equal(data.y, theirs["mdvis"])
    assert_array_equal(data.site, [f"site {i}" for i in theirs["site"]])
    fair = theirs["hlthf"] + theirs["hlthp"]
    names = ("xage", "female", "disea", "physlm")
    expected = np.column_stack([theirs["coins"] / 100, *(theirs[n] for n in names), fair])
    assert_allclose(data.X, expected, atol=0.0501)


def test_a_frame_has_the_names():
    pytest.importorskip("pandas")
    data = load_visits()
    assert tuple(data.frame().columns) == data.feature_names
    assert_array_equal(data.frame().to_numpy(), data.X)


def test_a_frame_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused("no_feature_frame").by(load_visits().frame)


def test_sites_are_written_as_files(tmp_path):
    data = load_visits()
    paths = data.write(tmp_path / "visits")
    assert [path.name for path in paths] == [f"site {i}.csv" for i in range(1, 7)]
    for i, path in enumerate(paths, 1):
        table, here = pv.read_csv(path), data.site == f"site {i}"
        assert table.column_names == [data.target, *data.feature_names]
        assert_array_equal(table["visits"].to_numpy(), data.y[here])
        assert_array_equal(table["age"].to_numpy(), data.X[here, 1])
