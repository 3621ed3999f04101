import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe.datasets import data_folder, load_beijing, load_flights, load_mmash

LOADERS = [load_beijing, load_flights, load_mmash]

# Two people; the second has day -29 for the second day, as users 8 and 9 have.
# user, day, second of the day, heart rate, steps
SECONDS = [
    (1, 1, 36_000, 60.0, 0),
    (1, 1, 36_001, 62.0, 1),
    (1, 1, 36_002, 190.0, 2),  # no heart rate of these people
    (1, 1, 36_003, 64.0, 3),
    (1, 2, 5, 66.0, 4),
    (10, 1, 86_399, 70.0, 5),
    (10, -29, 1, 72.0, 6),
    (10, -29, 2, 74.0, 7),
]
# user, day, second, interval
BEATS = [
    (1, 1, 36_001, 0.9),
    (1, 1, 36_001, 1.1),
    (1, 1, 36_003, 61.7),  # an artefact
    (1, 2, 5, 0.5),
    (10, -29, 1, 0.75),
    (10, -29, 0, 0.6),
]
# by hand: the first second takes the next beat, the fourth the last, user 10 nothing of user 1
IBI = [1.0, 1.0, 1.0, 0.5, 0.6, 0.75, 0.75]


def as_parquet(folder):
    (folder / "mmash").mkdir()
    user, day, sec, hr, steps = zip(*SECONDS[::-1], strict=True)  # the order of rows is no matter
    table = {"user": user, "day": day, "sec": sec, "hr": hr, "steps": steps}
    zero = [0] * len(user)
    others = "axis1 axis2 axis3 vector_magnitude incl_off incl_standing incl_sitting incl_lying"
    table |= {name: zero for name in others.split()} | {"axis2": [3 * s for s in steps]}
    pq.write_table(pa.table(table), folder / "mmash" / "actigraph.parquet")
    beats = dict(zip(("user", "day", "sec", "ibi_s"), zip(*BEATS, strict=True), strict=True))
    pq.write_table(pa.table(beats), folder / "mmash" / "rr.parquet")


def as_physionet(folder):
    head = (
        ",Axis1,Axis2,Axis3,Steps,HR,Inclinometer Off,Inclinometer Standing,Inclinometer Sitting,"
        "Inclinometer Lying,Vector Magnitude,day,time"
    )
    for user in (1, 10):
        place = folder / "MMASH" / "DataPaper" / f"user_{user}"
        place.mkdir(parents=True)
        lines = [
            f"{i},0,{3 * steps},0,{steps},{hr:g},0,0,0,0,0,{day},{clock(sec)}"
            for i, (who, day, sec, hr, steps) in enumerate(SECONDS)
            if who == user
        ]
        (place / "Actigraph.csv").write_text("\n".join([head, *lines]) + "\n")
        lines = [
            f"{i},{ibi},{day},{clock(sec)}"
            for i, (who, day, sec, ibi) in enumerate(BEATS)
            if who == user
        ]
        (place / "RR.csv").write_text("\n".join([",ibi_s,day,time", *lines]) + "\n")


def clock(second):
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


@pytest.mark.parametrize("written", [as_parquet, as_physionet])
def test_heart_rates_get_the_intervals_of_their_second(written, tmp_path):
    written(tmp_path)
    data = load_mmash(tmp_path)
    kept = [row for row in SECONDS if row[3] <= 150]
    assert_array_equal(data.site, [row[0] for row in kept])
    assert_array_equal(data.y, [row[3] for row in kept])
    column = dict(zip(data.feature_names, data.X.T, strict=True))
    assert_array_equal(column["steps"], [row[4] for row in kept])
    assert_array_equal(column["axis2"], [3 * row[4] for row in kept])
    assert_allclose(column["ibi"], IBI, rtol=1e-14)
    assert_allclose(column["beats_per_minute"], 60 / np.array(IBI), rtol=1e-14)
    assert len(load_mmash(tmp_path, heart_rate=(0, 300)).y) == len(SECONDS)


def test_a_person_without_intervals_is_named(tmp_path):
    as_physionet(tmp_path)
    beats = tmp_path / "MMASH" / "DataPaper" / "user_10" / "RR.csv"
    beats.write_text(",ibi_s,day,time\n0,7.5,1,10:00:00\n")
    refused("person_without_beats").by(load_mmash, tmp_path)
    beats.write_text(",ibi,day,time\n0,0.8,1,10:00:00\n")
    refused("dataset_unreadable").by(load_mmash, tmp_path)
    beats.unlink()
    refused("person_incomplete", FileNotFoundError).by(load_mmash, tmp_path)


def test_stations_keep_their_split(tmp_path):
    rows = {
        "site": pa.array(["Dongsi", "Dingling", "Dongsi"]).dictionary_encode(),
        "datetime": [1, 2, 3],
        "split": ["train", "train", "test"],
        "TEMP": [13.0, -2.0, 5.0],
        "RAIN": [0.0, 1.0, 0.5],
        "PM2.5": [80.0, 20.0, 40.0],
        "y_imputed": [False, True, False],
    }
    pq.write_table(pa.table(rows), tmp_path / "prsa_features_d19.parquet")
    data = load_beijing(tmp_path)
    assert data.feature_names == ("TEMP", "RAIN")
    assert_array_equal(data.X, [[13, 0], [-2, 1], [5, 0.5]])
    assert_array_equal(data.y, rows["PM2.5"])
    assert data.site.tolist() == ["Dongsi", "Dingling", "Dongsi"]
    assert data.train.tolist() == [True, True, False]


def test_flights_that_were_cancelled_are_left_out(tmp_path):
    weather = "temp dewp humid wind_speed precip visib".split()
    rows = {
        "month": [1, 7, 7, 12],
        "day": [1, 4, 4, 31],
        "hour": [5, 12, 12, 23],
        "minute": [15, 0, 30, 45],
        "carrier": pa.array(["UA", "OO", "UA", "AA"]).dictionary_encode(),
        "origin": ["EWR", "LGA", "JFK", "LGA"],
        "distance": [1400, 200, 300, 400],
        "late15": [0.0, None, 1.0, 1.0],
        "arr_delay": [3.0, None, 20.0, 40.0],
        **{name: [1.0, 2.0, 3.0, 4.0] for name in weather},
        "visib": [10.0, 10.0, 10.0, float("nan")],
    }
    (tmp_path / "nycflights13").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "nycflights13" / "flights_weather.parquet")
    table = load_flights(tmp_path)
    assert "arr_delay" not in table.column_names
    assert table["late15"].to_pylist() == [0, 1]
    assert table["carrier"].to_pylist() == ["UA", "UA"]
    assert table["month"].to_pylist() == ["Jan", "Jul"]
    assert table["weekday"].to_pylist() == ["Tue", "Thu"]  # as calendars of 2013 say
    assert table["departure"].to_pylist() == [5.25, 12.5]
    assert table["temp"].to_pylist() == [1.0, 3.0]


@pytest.mark.parametrize("load", LOADERS)
def test_what_is_missing_is_said(load, tmp_path, monkeypatch):
    monkeypatch.delenv("OTMOE_DATA", raising=False)
    refused("no_data_folder", FileNotFoundError, variable="OTMOE_DATA").by(load)
    refused("not_a_folder", FileNotFoundError).by(load, tmp_path / "nowhere")
    monkeypatch.setenv("OTMOE_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    refused("dataset_not_there", FileNotFoundError).by(load)


def test_a_file_that_lacks_a_column_is_refused(tmp_path):
    table = pa.table({"site": ["a"], "split": ["train"]})
    pq.write_table(table, tmp_path / "prsa_features_d19.parquet")
    refused("no_column", column="PM2.5").by(load_beijing, tmp_path)
