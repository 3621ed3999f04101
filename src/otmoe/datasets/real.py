"""Public data sets with natural sites, read from a local folder; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from otmoe.arrays.numerics import Floats
from otmoe.data.tables import check_names
from otmoe.datasets.sites import SiteData
from otmoe.text.errors import InvalidInput, NotThere
from otmoe.text.sentences import Error

FOLDER = "OTMOE_DATA"
"""The environment variable that names the folder with the data sets."""

_DAY = 86_400  # seconds
_IBI = (0.3, 2.0)  # seconds between heartbeats at 200 and at 30 beats per minute
_MMASH = {
    "axis1": "Axis1",
    "axis2": "Axis2",
    "axis3": "Axis3",
    "vector_magnitude": "Vector Magnitude",
    "steps": "Steps",
    "incl_standing": "Inclinometer Standing",
    "incl_sitting": "Inclinometer Sitting",
    "incl_lying": "Inclinometer Lying",
}
_WEATHER = ("temp", "dewp", "humid", "wind_speed", "precip", "visib")
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_WEEKDAYS = "Mon Tue Wed Thu Fri Sat Sun".split()


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with the data sets: the given one, or that named by OTMOE_DATA."""
    where = folder if folder is not None else os.environ.get(FOLDER)
    if not where:
        raise NotThere(Error.NO_DATA_FOLDER, variable=FOLDER)
    if not Path(where).is_dir():
        raise NotThere(Error.NOT_A_FOLDER, folder=where, variable=FOLDER)
    return Path(where)


def _found(root: Path, files: tuple[str, ...], *places: str) -> Path:
    """Return the first folder, the root or one below it, that has one of the files."""
    for place in ("", *places):
        if any(any((root / place).glob(file)) for file in files):
            return root / place
    raise NotThere(
        Error.DATASET_NOT_THERE,
        files=" or ".join(files),
        folder=root,
        places=", ".join(places),
        variable=FOLDER,
    )


def _parquet(path: Path, columns: list[str]) -> pa.Table:
    """Read some columns of a Parquet file."""
    check_names(columns, pq.read_schema(path).names)
    return pq.read_table(path, columns=columns)


# -- MMASH: 22 people, one day, a row per second -------------------------------------------------


def load_mmash(
    folder: str | os.PathLike[str] | None = None,
    *,
    heart_rate: tuple[float, float] = (40.0, 150.0),
) -> SiteData:
    """Read MMASH (Rossi et al., PhysioNet, doi 10.13026/cerq-fc86): heart rate per second.

    The response is the heart rate from the actigraph, in beats per minute. Features are its three
    axes, their magnitude, steps, three of the four flags of the inclinometer (without "off"), and
    two from a separate heartbeat recorder: ``ibi``, the mean interval between the beats of that
    second, in seconds, and ``beats_per_minute``, 60 / ibi. Intervals outside 0.3 to 2 s are
    discarded as artefacts. A second without a beat has the last value before it or, if there is
    none, the first one after it.

    Parameters
    ----------
    folder : path, optional
        By default that named by OTMOE_DATA. It contains ``mmash/actigraph.parquet`` and
        ``mmash/rr.parquet``, or PhysioNet's ``user_1/Actigraph.csv``, ``user_1/RR.csv`` and so on,
        directly or in ``MMASH/DataPaper``.
    heart_rate : tuple of float
        Rows with a heart rate outside this range are left out.

    Returns
    -------
    SiteData
        Sites are people; rows are sorted by person and time.
    """
    where = _found(
        data_folder(folder),
        ("actigraph.parquet", "user_*/Actigraph.csv"),
        *("mmash", "DataPaper", "MMASH", "MMASH/DataPaper", "mmash/DataPaper"),
    )
    if (where / "actigraph.parquet").exists():
        rows = _parquet(where / "actigraph.parquet", ["user", "day", "sec", "hr", *_MMASH])
        beats = _parquet(where / "rr.parquet", ["user", "day", "sec", "ibi_s"])
    else:
        people = sorted(where.glob("user_*"), key=lambda path: int(path.name.split("_")[1]))
        names = {"hr": "HR", **_MMASH}
        rows = pa.concat_tables(_person(path, "Actigraph.csv", names) for path in people)
        beats = pa.concat_tables(_person(path, "RR.csv", {"ibi_s": "ibi_s"}) for path in people)
    second, beat = _seconds(rows), _seconds(beats)
    order = np.argsort(second, kind="stable")
    low, high = heart_rate
    y = _numbers(rows, "hr")[order]
    kept = (y >= low) & (y <= high)
    order, y = order[kept], y[kept]
    person = _numbers(rows, "user")[order].astype(int)
    ibi = _carried(second[order], person, beat, _numbers(beats, "ibi_s"))
    X = np.column_stack([*(_numbers(rows, name)[order] for name in _MMASH), ibi, 60 / ibi])
    return SiteData(X, y, person, (*_MMASH, "ibi", "beats_per_minute"))


def _person(folder: Path, file: str, names: dict[str, str]) -> pa.Table:
    """Read one person's CSV file, with columns renamed."""
    path = folder / file
    if not path.exists():
        raise NotThere(Error.PERSON_INCOMPLETE, path=path)
    table = pv.read_csv(
        path,
        convert_options=pv.ConvertOptions(
            column_types={"time": pa.string(), **{name: pa.float64() for name in names.values()}}
        ),
    )
    try:
        check_names(["day", "time", *names.values()], table.column_names)
    except ValueError as error:
        raise InvalidInput(Error.DATASET_UNREADABLE, where=str(path), error=error) from error
    clock = [text.split(":") for text in table["time"].to_pylist()]
    columns = {name: table[theirs] for name, theirs in names.items()}
    columns["user"] = np.full(len(table), int(folder.name.split("_")[1]))
    columns["day"] = table["day"].cast(pa.int64())
    columns["sec"] = [3600 * int(hours) + 60 * int(m) + int(s) for hours, m, s in clock]
    return pa.table(columns)


def _seconds(table: pa.Table) -> Floats:
    """Return one number per row that increases with person and time, (n,)."""
    user, day, second = (_numbers(table, name).astype(int) for name in ("user", "day", "sec"))
    day = np.where(day < 0, 2, day)  # for two people, a change of month made day 2 into -29
    return (user * 8 + day) * _DAY + second


def _carried(second: Floats, person: Floats, beat: Floats, ibi: Floats) -> Floats:
    """Return the mean interval of each second, or a known one of the same person, (n,)."""
    real = (ibi >= _IBI[0]) & (ibi <= _IBI[1])
    known, place = np.unique(beat[real], return_inverse=True)
    mean = np.bincount(place, weights=ibi[real]) / np.bincount(place)
    owner = known // (8 * _DAY)
    before = np.searchsorted(known, second, side="right") - 1
    theirs = (before >= 0) & (owner[np.maximum(before, 0)] == person)
    chosen = np.where(theirs, before, before + 1)
    alone = (chosen >= len(known)) | (owner[np.minimum(chosen, len(known) - 1)] != person)
    if alone.any():
        raise InvalidInput(
            Error.PERSON_WITHOUT_BEATS, person=person[alone][0], low=_IBI[0], high=_IBI[1]
        )
    return mean[chosen]


# -- Beijing: 12 stations, a row per hour --------------------------------------------------------


def load_beijing(folder: str | os.PathLike[str] | None = None) -> SiteData:
    """Read the Beijing stations (S. Chen, UCI 501, doi 10.24432/C5RK5G): hourly PM2.5.

    Parameters
    ----------
    folder : path, optional
        By default that named by OTMOE_DATA. It contains ``beijing/prsa_features_d19.parquet``,
        with the columns site, split and PM2.5; all others except datetime and y_imputed are
        features.

    Returns
    -------
    SiteData
        Features are not standardised; the last of the four years is for testing.
    """
    where = _found(data_folder(folder), ("prsa_features_d19.parquet",), "beijing")
    path = where / "prsa_features_d19.parquet"
    roles = ("site", "split", "PM2.5", "datetime", "y_imputed")
    names = tuple(name for name in pq.read_schema(path).names if name not in roles)
    table = _parquet(path, [*roles[:3], *names])
    X = np.column_stack([_numbers(table, name) for name in names])
    train = _texts(table, "split") == "train"
    return SiteData(X, _numbers(table, "PM2.5"), _texts(table, "site"), names, train)


# -- New York: 16 airlines, a row per flight -----------------------------------------------------


def load_flights(folder: str | os.PathLike[str] | None = None) -> pa.Table:
    """Read nycflights13: which flights of 2013 arrived more than 15 minutes late.

    Only what is known at the planned departure is kept, so delays and actual times are not.
    Cancelled flights and those without weather data are left out.

    Parameters
    ----------
    folder : path, optional
        By default that named by OTMOE_DATA. It contains ``nycflights13/flights_weather.parquet``.

    Returns
    -------
    pyarrow.Table
        ``late15`` (0 or 1), ``carrier``, ``month`` and ``weekday`` (three letters), ``origin``,
        ``distance`` (miles), ``departure`` (planned, hours), the weather at that hour, and ``day``
        of the month.
    """
    where = _found(data_folder(folder), ("flights_weather.parquet",), "nycflights13")
    columns = ["late15", "month", "day", "hour", "minute", "carrier", "origin", "distance"]
    table = _parquet(where / "flights_weather.parquet", [*columns, *_WEATHER])
    complete = pc.is_finite(table["late15"].cast(pa.float64()))
    for name in ("late15", *_WEATHER):
        complete = pc.and_(complete, pc.is_finite(table[name].cast(pa.float64())))
    table = table.filter(pc.fill_null(complete, False))
    month, day = (_numbers(table, name).astype(int) for name in ("month", "day"))
    date = (np.datetime64("2013", "M") + (month - 1)).astype("datetime64[D]") + (day - 1)
    weekday = (date.astype(int) + 3) % 7  # the first of January 1970 was a Thursday
    return pa.table(
        {
            "late15": _numbers(table, "late15").astype(np.int8),
            "carrier": _texts(table, "carrier"),
            "month": np.array(_MONTHS)[month - 1],
            "weekday": np.array(_WEEKDAYS)[weekday],
            "origin": _texts(table, "origin"),
            "distance": _numbers(table, "distance"),
            "departure": _numbers(table, "hour") + _numbers(table, "minute") / 60,
            **{name: _numbers(table, name) for name in _WEATHER},
            "day": day,
        }
    )


def _numbers(table: pa.Table, name: str) -> Floats:
    return table[name].to_numpy().astype(np.float64)


def _texts(table: pa.Table, name: str) -> Floats:
    return np.array(table[name].cast(pa.string()).to_pylist())
