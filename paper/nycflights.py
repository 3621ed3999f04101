"""Which flights from New York arrive late, with the airlines as sites, two experts.

What is known at the planned departure predicts whether a flight arrives more than 15 minutes late.
Every fifth day of a month is for testing, so that flights of one day, which share their weather and
their queues, are never on both sides. The rows lie in a Parquet file with a column for the site,
and `FeatureSpec` makes features of months, weekdays and airports. Five of the 16 airlines have
fewer than 1,000 flights, and one has fewer than the model has parameters: the sites are all 16, and
then the eleven large ones with the five joined into one; also with one expert, which is logistic
regression. Beside them stand, on all rows in one place, logistic regression without a penalty and
scikit-learn's histogram gradient boosting.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from otmoe import FeatureSpec, MoEClassifier, shards_from
from otmoe.datasets import load_flights
from otmoe.model.target import Target
from paper.pages import PAGE, by_sites, named, write_page
from paper.real import (
    SEED,
    Results,
    arguments,
    fit_sites,
    loaded,
    merged,
    timed,
    warm_up,
)
from studies.rows import Row, read
from studies.tables import Cells, console, figure, show

EXPERTS, SMALL, JOINED = 2, 1000, "small airlines"
ONE = "one expert, gram"
METHODS = ("reduction", "aligned_average", "gram", "kl", "auto")
REFINED, ROUNDS = ("gram",), (2,)
LATE = Target.of_classes(np.array([0, 1]))
KEYS = ("sites", "method", "refine")
ROLES = ("late15", "carrier", "day")


def thinned(table: pa.Table) -> pa.Table:
    """Return every tenth flight, and all of small airlines: with fewer they might have none."""
    _, place, count = np.unique(
        table["carrier"].to_numpy(zero_copy_only=False), return_inverse=True, return_counts=True
    )
    kept = (np.arange(len(table)) % 10 == 0) | (count[place] < 1000)
    return table.filter(pa.array(kept))


def main() -> None:
    args, out = arguments("nycflights", __doc__, "nycflights"), console()
    if not (args.show or args.docs):
        warm_up()
        table = loaded(load_flights, args.data)
        with TemporaryDirectory() as folder:
            some = thinned(table) if args.quick else table
            study(some, Results(args.out, KEYS, out), Path(folder))
    rows = read(args.out)
    if args.docs:
        write_page("nycflights", tables(rows), rows, PAGE)
    else:
        show(tables(rows), out)


def study(
    table: pa.Table,
    results: Results,
    folder: Path,
    *,
    small: int = SMALL,
    methods: tuple[str, ...] = METHODS,
    **options: Any,
) -> None:
    """Add to the CSV what it lacks; options are of the local fits."""
    testing = pa.array(column(table, "day") % 5 == 0)
    train, test = table.filter(pc.invert(testing)), table.filter(testing)
    spec = FeatureSpec.from_sample(
        train, [name for name in train.column_names if name not in ROLES]
    )
    X_test, y_test, airline = spec.encode(test), column(test, "late15"), column(test, "carrier")
    theirs = column(train, "carrier")
    count = dict(zip(*np.unique(theirs, return_counts=True), strict=True))
    few = {name for name in {*theirs, *airline} if count.get(name, 0) < small}
    by_few = np.isin(airline, list(few))

    def add(where: str, method: str, refine: str, late: np.ndarray, row: Row) -> None:
        about = {"sites": where, "method": method, "refine": refine}
        about |= {"rows": len(train), "test_rows": len(test), "small_test_rows": int(by_few.sum())}
        results.add(about | judged(y_test, late, by_few) | row)

    # 1) in one place
    y, X = column(train, "late15"), spec.encode(train)
    for method, estimator in {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(C=np.inf)),
        "gradient boosting": HistGradientBoostingClassifier(random_state=SEED),
        "centralised": MoEClassifier(EXPERTS, random_state=SEED),
    }.items():
        if results.lacks(sites="1", method=method, refine="0"):
            _, row = timed(lambda e=estimator: e.fit(X, y))
            add("1", method, "0", estimator.predict_proba(X_test)[:, 1], row)
    if results.lacks(sites="1", method="share of late flights", refine="0"):
        _, row = timed(lambda: None)
        add("1", "share of late flights", "0", np.full(len(test), y.mean()), row)

    # 2) by airline
    owners: dict[str, Callable[[str], str]] = {
        f"{len(count)} airlines": lambda name: name,
        "small airlines joined": lambda name: JOINED if name in few else name,
    }
    for where, owner in owners.items():
        lacking = results.lacking(methods, REFINED, ROUNDS, sites=where)
        one = results.lacks(sites=where, method=ONE, refine="auto")
        if lacking or one:
            owners_of = [np.array([owner(name) for name in a]) for a in (theirs, airline)]
            path = folder / f"{where}.parquet"
            pq.write_table(train.append_column("site", pa.array(owners_of[0])), path)
            shards = shards_from(path, target="late15", features=spec, site_column="site")
        if lacking:
            sites = fit_sites(shards, EXPERTS, LATE, **options)
            add(where, "alone", "0", *sites.alone(X_test, owners_of[1]))
            for method, refine, model, row in merged(sites, lacking, REFINED, ROUNDS):
                add(where, method, refine, model.predict(X_test), row)
        if one:
            sites = fit_sites(shards, 1, LATE, **options)
            for _, refine, model, row in merged(sites, ["gram"], ["gram"], ()):
                add(where, ONE, refine, model.predict(X_test), row)


def column(table: pa.Table, name: str) -> np.ndarray:
    return np.array(table[name].to_pylist())


def judged(y: np.ndarray, late: np.ndarray, small: np.ndarray) -> Row:
    """Return scores of probabilities; the log-loss also on the flights of small airlines."""
    late = np.clip(late, 1e-15, 1 - 1e-15)
    return {
        "log_loss": log_loss(y, late, labels=[0, 1]),
        "brier": brier_score_loss(y, late),
        "auc": roc_auc_score(y, late),
        "small_log_loss": log_loss(y[small], late[small], labels=[0, 1]) if small.any() else "",
    }


def tables(rows: list[Row]) -> list[Cells]:
    """Return the table."""
    heads = ["sites", "estimator", "log-loss", "Brier", "AUC", "log-loss, small airlines"]
    heads += ["learning time, s", "left out"]
    body = [
        [
            row["sites"],
            named(row),
            *(figure(row, key, ".4f") for key in ("log_loss", "brier", "auc", "small_log_loss")),
            figure(row, "learning_seconds", ".1f"),
            row["left_out"] or "–",
        ]
        for row in by_sites(rows)
    ]
    return [("", heads, body)]


if __name__ == "__main__":
    main()
