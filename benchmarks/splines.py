"""What splines and interactions add on real tables: late flights, and air at stations in Beijing.

Flights are tested on every fifth day of a month, air on the last of four years, as in the studies
of `paper`; all rows are in one place. Models are formulas; boosting sees the same columns.
"""

from __future__ import annotations

import warnings
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from otmoe import MoEClassifier, MoERegressor
from otmoe.data.formula import Formula
from otmoe.datasets import load_beijing, load_flights
from otmoe.datasets.real import data_folder
from otmoe.text.errors import OtmoeError
from studies.rows import Row

_WEATHER = ("temp", "dewp", "humid", "wind_speed")
_BENT = " + ".join(f"spline({name}, 4)" for name in ("distance", *_WEATHER))
FLIGHTS = {
    "lines": "late15 ~ .",
    "splines": f"late15 ~ spline(departure, 5) + {_BENT} + .",
    "splines, products": f"late15 ~ spline(departure, 5) + {_BENT} + departure:origin + .",
}
_LAG = "`PM2.5_lag1`"
_PRODUCTS = ("WSPM", "DEWP", "`PM2.5_lag2`", "hour_sin", "hour_cos")
_MORE = (*_PRODUCTS, "PM10_lag1", "O3_lag1", "TEMP")
_FEW, _MANY = ("O3_lag1", "WSPM"), ("PM10_lag1", "CO_lag1", "NO2_lag1", "DEWP", "TEMP")
_LAG2 = "`PM2.5_lag2`"
_MOST = (*_MORE, "WSPM:wd_sin", "WSPM:wd_cos", "DEWP:hour_sin", "DEWP:hour_cos")


def air(knots: int, curves: tuple[str, ...], products: tuple[str, ...]) -> str:
    """Return the formula of fine dust with curves of its last value and these columns.

    Products are with that value too, unless they name two columns.
    """
    bent = [f"spline({name}, {knots})" for name in (_LAG, *curves)]
    both = (name if ":" in name else f"{_LAG}:{name}" for name in products)
    return " + ".join(["y ~ .", *bent, *both])


AIR = {
    "lines": "y ~ .",
    "splines, products": air(4, _FEW, _PRODUCTS),
    "splines, more products": air(4, _FEW, _MORE),
    "more splines and products": air(3, (*_FEW, *_MANY), _MORE),
    "most splines and products": air(3, (*_FEW, *_MANY, _LAG2), _MOST),
}
TERMS = {
    (curves, products, knots): air(knots, *terms)
    for (curves, products), terms in {
        ("three", "five"): (_FEW, _PRODUCTS),
        ("three", "with temperature"): (_FEW, (*_PRODUCTS, "TEMP")),
        ("three", "eight"): (_FEW, _MORE),
        ("eight", "eight"): ((*_FEW, *_MANY), _MORE),
        ("nine", "eight"): ((*_FEW, *_MANY, _LAG2), _MORE),
        ("nine", "twelve"): ((*_FEW, *_MANY, _LAG2), _MOST),
    }.items()
    for knots in (3, 4, 5, 6)
}
GATES = {"all": "", "lines": " | .", "departure": " | departure"}
_CASES = (
    ("flights", "boosting", "", ""),
    ("flights", "lines", 1, "all"),
    ("flights", "splines", 1, "all"),
    ("flights", "splines, products", 1, "all"),
    ("flights", "splines", 2, "departure"),
    ("air", "boosting", "", ""),
    ("air", "lines", 1, "all"),
    ("air", "splines, products", 1, "all"),
    ("air", "splines, more products", 1, "all"),
    ("air", "lines", 4, "all"),
    ("air", "splines, more products", 4, "lines"),
    ("air", "more splines and products", 4, "lines"),
    ("air", "most splines and products", 4, "lines"),
)


def cases(settings: Settings) -> list[Row]:
    try:
        data_folder()
    except OtmoeError:
        return []
    found = [dict(zip(("data", "model", "experts", "gate"), case, strict=True)) for case in _CASES]
    return [row for row in found if row["experts"] in ("", 1)] if settings.quick else found


def measure(case: Row, settings: Settings) -> Row:
    train, test = _tables(str(case["data"]))
    flights = case["data"] == "flights"
    target = "late15" if flights else "y"
    y, begin = np.asarray(test[target]), perf_counter()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case["model"] == "boosting":
            formula = Formula.parse(f"{target} ~ .")
            spec = formula.features(train)
            boosting = HistGradientBoostingClassifier if flights else HistGradientBoostingRegressor
            est = boosting(random_state=0).fit(spec.encode(train), np.asarray(train[target]))
            new: Any = spec.encode(test)
            size = len(spec.feature_names)
        else:
            text = (FLIGHTS if flights else AIR)[str(case["model"])] + GATES[str(case["gate"])]
            kind = MoEClassifier if flights else MoERegressor
            est = kind.from_formula(text, train, int(case["experts"]), random_state=0)
            new, size = test, len(est.features_.feature_names)
        seconds = perf_counter() - begin
        if flights:
            loss, rmse = log_loss(y, est.predict_proba(new)), ""
        else:
            loss, rmse = "", float(np.sqrt(np.mean((y - est.predict(new)) ** 2)))
    return {"features": size, "log_loss": loss, "rmse": rmse, "seconds": seconds}


@cache
def _tables(name: str) -> tuple[pa.Table, pa.Table]:
    """Return the rows to learn from and those to be judged by."""
    if name == "flights":
        table = load_flights()
        testing = np.array(table["day"]) % 5 == 0
        table = table.drop_columns(["carrier", "day"])
    else:
        data = load_beijing()
        columns = dict(zip(data.feature_names, data.X.T, strict=True))
        table, testing = pa.table({"y": data.y, **columns}), ~data.train
    return table.filter(pa.array(~testing)), table.filter(pa.array(testing))


# -- which terms, by the last of the years that are learned from -----------------------------------


def term_cases(settings: Settings) -> list[Row]:
    found = [dict(zip(("curves", "products", "knots"), terms, strict=True)) for terms in TERMS]
    return [row for row in found if row["knots"] == 4] if settings.quick else found


def measure_terms(case: Row, settings: Settings) -> Row:
    data = load_beijing()
    here = np.flatnonzero(data.train)
    late = np.zeros(len(here), dtype=bool)
    for site in np.unique(data.site[here]):
        rows = np.flatnonzero(data.site[here] == site)  # in the order of time
        late[rows[2 * len(rows) // 3 :]] = True
    columns = dict(zip(data.feature_names, data.X[here].T, strict=True))
    table = pa.table({"y": data.y[here], **columns})
    fitted, held = table.filter(pa.array(~late)), table.filter(pa.array(late))
    text = TERMS[str(case["curves"]), str(case["products"]), int(case["knots"])]
    with threadpool_limits(1):
        est = MoERegressor.from_formula(text, fitted, 1, random_state=0)
        rmse = float(np.sqrt(np.mean((np.asarray(held["y"]) - est.predict(held)) ** 2)))
    return {"features": len(est.features_.feature_names), "rmse": rmse}


CHOICE = Benchmark(
    "spline_terms",
    "Terms of fine dust: root mean squared error of one expert in the third year, fitted to the "
    "first two",
    lambda settings: term_cases(settings) if cases(settings) else [],
    measure_terms,
    (
        Column("curves", "curves"),
        Column("products", "products"),
        Column("knots", "knots", "{:.0f}"),
        Column("features", "features", "{:.0f}"),
        Column("rmse", "RMSE", "{:.3f}"),
    ),
)

BENCHMARK = Benchmark(
    "splines",
    "Curves and products: log-loss of late flights, root mean squared error of fine dust, on rows "
    "that were not learned from",
    cases,
    measure,
    (
        Column("data", "rows"),
        Column("model", "model"),
        Column("experts", "K", "{:.0f}"),
        Column("gate", "gate"),
        Column("features", "features", "{:.0f}"),
        Column("log_loss", "log-loss", "{:.4f}"),
        Column("rmse", "RMSE", "{:.2f}"),
        Column("seconds", "seconds", "{:.1f}"),
    ),
    (
        Requirement(
            "log_loss",
            "flights, one expert with splines",
            at_most=0.4668,
            of=lambda row: row["experts"] == "1" and row["model"].startswith("splines"),
        ),
        Requirement(
            "log_loss",
            "flights, two experts with splines",
            at_most=0.4667,
            of=lambda row: row["experts"] == "2",
        ),
        Requirement(
            "rmse",
            "air, four experts with splines",
            at_most=17.40,
            of=lambda row: row["experts"] == "4" and row["model"].startswith("most splines"),
        ),
    ),
)
