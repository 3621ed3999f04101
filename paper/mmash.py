"""Heart rate on activity and inter-beat intervals: the paper's table on MMASH.

All rows in one place (G), and cut at random into 64 and 128 shards or by person, merged in one
round (reduction, gram, kl, auto) and refined. Two splits: a fifth of the rows at random, as in the
paper, and by person, in four folds of five or six people who are held out. The paper gives neither
its features nor its K; here K is that of its simulations, and the features are those of
`otmoe.datasets.load_mmash`. Beside G stand G without `beats_per_minute`, linear regression with
and without it, scikit-learn's histogram gradient boosting, and that feature by itself.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from otmoe import MoERegressor
from otmoe.data.shards import RowsShard, split
from otmoe.datasets import SiteData, load_mmash
from paper.pages import PAGE, by_sites, named, write_page
from paper.real import (
    SEED,
    Results,
    arguments,
    by_site,
    errors,
    fit_sites,
    loaded,
    merged,
    timed,
    warm_up,
)
from studies.rows import Row, read
from studies.tables import Cells, console, figure, show

EXPERTS, FOLDS = 4, 4
METHODS, REFINED, ROUNDS = ("reduction", "gram", "kl", "auto"), ("gram",), (2,)
PERSON = "people held out, fold"
RANDOM = "a fifth of the rows at random"
SHARDS = (64, 128)
PUBLISHED = {
    ("1", "centralised"): (0.0103, 8.58, 0.0901, 57.32),
    ("64", "reduction"): (0.0145, 9.46, 0.0954, 7.84),
    ("128", "reduction"): (0.0145, 9.49, 0.0958, 6.32),
}
"""RPE, RMSE, SI and minutes of the paper's table."""


def main() -> None:
    args, out = arguments("mmash", __doc__, "mmash"), console()
    if not (args.show or args.docs):
        warm_up()
        study(loaded(load_mmash, args.data), Results(args.out, KEYS, out), args.quick)
    rows = read(args.out)
    if args.docs:
        write_page("mmash", tables(rows), rows, PAGE)
    else:
        show(tables(rows), out)


KEYS = ("split", "sites", "method", "refine")


def study(
    data: SiteData,
    results: Results,
    quick: bool,
    *,
    experts: int = EXPERTS,
    shards: tuple[int, ...] = SHARDS,
    folds: int = FOLDS,
) -> None:
    """Add to the CSV what it lacks."""
    if quick:  # every 50th second, and fewer shards
        data = SiteData(data.X[::50], data.y[::50], data.site[::50], data.feature_names)
    for name, train in splits(data, folds).items():
        one_split(name, data, train, results, (4, 8) if quick else shards, experts)


def splits(data: SiteData, n_folds: int = FOLDS) -> dict[str, np.ndarray]:
    """Return the training rows of each split."""
    rng = np.random.default_rng(SEED)
    people = np.unique(data.site)
    first = rng.choice(people, len(people) // n_folds, replace=False)
    train = np.ones(len(data.y), dtype=bool)
    train[rng.choice(len(train), len(train) // 5, replace=False)] = False
    others = np.array_split(rng.permutation(np.setdiff1d(people, first)), n_folds - 1)
    folds = enumerate([first, *others], 1)
    return {RANDOM: train} | {f"{PERSON} {i}": ~np.isin(data.site, fold) for i, fold in folds}


def one_split(
    name: str,
    data: SiteData,
    train: np.ndarray,
    results: Results,
    shards: tuple[int, ...],
    experts: int,
) -> None:
    X, y, site = data.X[train], data.y[train], data.site[train]
    X_test, y_test = data.X[~train], data.y[~train]
    about = {"split": name, "rows": len(y), "test_rows": len(y_test)}

    def add(where: str, method: str, refine: str, prediction: np.ndarray, row: Row) -> None:
        key = {"sites": where, "method": method, "refine": refine}
        results.add(about | key | errors(y_test, prediction) | row)

    # 1) in one place, with and without the last feature, which is nearly the answer
    sets = [(slice(None), ""), (slice(-1), " without 60/IBI")]
    for columns, suffix in sets if name == RANDOM else sets[:1]:
        for method, estimator in (
            ("linear regression", LinearRegression()),
            ("centralised", MoERegressor(experts, random_state=SEED)),
        ):
            key = {"sites": "1", "method": method + suffix, "refine": "0"}
            if results.lacks(**about, **key):
                fitted, row = timed(lambda e=estimator, c=columns: e.fit(X[:, c], y))
                add(*key.values(), fitted.predict(X_test[:, columns]), row)
    if results.lacks(**about, sites="1", method="gradient boosting", refine="0"):
        trees = HistGradientBoostingRegressor(random_state=SEED)
        _, row = timed(lambda: trees.fit(X, y))
        add("1", "gradient boosting", "0", trees.predict(X_test), row)
    if results.lacks(**about, sites="1", method="60/IBI itself", refine="0"):
        _, row = timed(lambda: None)
        add("1", "60/IBI itself", "0", X_test[:, -1], row)

    # 2) in shards, and by person
    cuts = {str(M): cut(X, y, M) for M in shards} if name == RANDOM else {}
    cuts[f"{len(np.unique(site))} people"] = by_site(X, y, site)
    refined = REFINED if name == RANDOM else ()
    for where, parts in cuts.items():
        lacking = results.lacking(METHODS, refined, ROUNDS, **about, sites=where)
        if lacking:
            sites = fit_sites(parts, experts)
            if "people" in where and name == RANDOM:
                add(where, "alone", "0", *sites.alone(X_test, data.site[~train]))
            for method, refine, model, row in merged(sites, lacking, refined, ROUNDS):
                add(where, method, refine, model.predict(X_test), row)


def cut(X: np.ndarray, y: np.ndarray, n_shards: int) -> list[RowsShard]:
    """Return the rows in shards at random."""
    parts = split(len(y), n_shards, 1, np.random.default_rng(SEED))
    return [RowsShard(f"shard {i}", X, y, index=part) for i, part in enumerate(parts, 1)]


# -- reading -------------------------------------------------------------------------------------


def tables(rows: list[Row]) -> list[Cells]:
    """Return a table for each kind of split, the paper's figures beside ours in the random one."""
    heads = ["sites", "estimator", "RPE %", "RMSE", "SI %", "learning time, s", "left out"]
    random = [row for row in rows if row["split"] == RANDOM]
    theirs = [f"paper: {head}" for head in ("RPE %", "RMSE", "SI %", "minutes")]
    body = [[*cells(row), *published(row)] for row in by_sites(random)]
    sizes = [f"{int(random[0][key]):,}" for key in ("rows", "test_rows")]
    title = "{}: {} rows to learn, {} to test".format(RANDOM, *sizes)
    count = Counter(row["split"] for row in rows if row["split"] != RANDOM)
    folds = [name for name in count if count[name] == max(count.values())]  # those that are done
    apart = [row | {"sites": people(row)} for row in rows if row["split"] in folds]
    together = []
    for row in apart:
        if row["split"] == folds[0]:
            mine = [r for r in apart if key_of(r) == key_of(row)]
            each = [figure(r, "rmse") for r in mine]
            together.append([*cells(row | pooled(mine))[:-2], *each])
    words = [f"RMSE, fold {i}" for i in range(1, len(folds) + 1)]
    other = (
        f"five or six of the 22 people held out, in {len(folds)} folds; all folds together first"
    )
    return [(title, heads + theirs, body), (other, heads[:-2] + words, together)]


def key_of(row: Row) -> tuple[str, ...]:
    return row["sites"], row["method"], row["refine"]


def people(row: Row) -> str:
    return "the other people" if row["sites"].endswith("people") else row["sites"]


def cells(row: Row) -> list[str]:
    percent = [f"{100 * float(row[key]):.2f}" for key in ("rpe", "si")]
    found = [row["sites"], named(row), percent[0], figure(row, "rmse"), percent[1]]
    return [*found, figure(row, "learning_seconds", ".1f"), row["left_out"] or "–"]


def published(row: Row) -> list[str]:
    known = PUBLISHED.get((row["sites"], row["method"])) if row["refine"] == "0" else None
    if known is None:
        return ["–"] * 4
    rpe, rmse, si, minutes = known
    return [f"{100 * rpe:.2f}", f"{rmse:.2f}", f"{100 * si:.2f}", f"{minutes:.2f}"]


def pooled(rows: list[Row]) -> Row:
    """Return the errors on the rows of several test sets together, from those on each."""
    n, rmse, rpe, si = (
        np.array([float(row[key]) for row in rows]) for key in ("test_rows", "rmse", "rpe", "si")
    )
    squares = n * rmse**2
    whole = np.sqrt(squares.sum() / n.sum())
    mean = np.sum(n * rmse / si) / n.sum()
    return {"rmse": whole, "rpe": squares.sum() / np.sum(squares / rpe), "si": whole / mean}


if __name__ == "__main__":
    main()
