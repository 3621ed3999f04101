"""Heart rate on activity and inter-beat intervals: the paper's table on MMASH.

All rows in one place (G), and cut at random into 64 and 128 shards or by person, merged in one
round (reduction, gram) and refined. Two splits: a fifth of the rows at random, as in the paper, and
five of the 22 people. The paper gives neither its features nor its K; here K is that of its
simulations, and the features are those of `otmoe.datasets.load_mmash`. Beside G stands G without
`beats_per_minute`, linear regression with and without it, scikit-learn's histogram gradient
boosting, and that feature by itself.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from benchmarks.harness import Row, read
from otmoe import MoERegressor
from otmoe.datasets import SiteData, load_mmash
from otmoe.local import RowsShard, split
from paper.real import (
    PAGE,
    SEED,
    Cells,
    Results,
    arguments,
    by_site,
    console,
    errors,
    figure,
    fit_sites,
    loaded,
    merged,
    named,
    show,
    timed,
    wanted,
    write_page,
)

EXPERTS, HELD_OUT = 4, 5
METHODS, REFINED, ROUNDS = ("reduction", "gram"), ("gram",), (2,)
PERSON = "five people held out"
RANDOM = "a fifth of the rows at random"
SHARDS = {RANDOM: (64, 128), PERSON: ()}
PUBLISHED = {
    ("1", "centralised"): (0.0103, 8.58, 0.0901, 57.32),
    ("64", "reduction"): (0.0145, 9.46, 0.0954, 7.84),
    ("128", "reduction"): (0.0145, 9.49, 0.0958, 6.32),
}
"""RPE, RMSE, SI and minutes of the paper's table."""


def main() -> None:
    args, out = arguments("mmash", __doc__, "mmash"), console()
    if not (args.show or args.docs):
        study(loaded(load_mmash, args.data), Results(args.out, KEYS, out), args.quick)
    rows = read(args.out)
    if args.docs:
        write_page("mmash", tables(rows), rows, PAGE)
    else:
        show(tables(rows), out)


KEYS = ("split", "sites", "method", "refine")


def study(data: SiteData, results: Results, quick: bool) -> None:
    """Add to the CSV what it lacks."""
    if quick:  # every 50th second, and fewer shards
        data = SiteData(data.X[::50], data.y[::50], data.site[::50], data.feature_names)
    for name, train in splits(data).items():
        one_split(name, data, train, results, (4, 8) if quick else SHARDS[name])


def splits(data: SiteData) -> dict[str, np.ndarray]:
    """Return the training rows of each split."""
    rng = np.random.default_rng(SEED)
    people = np.unique(data.site)
    held_out = rng.choice(people, min(HELD_OUT, len(people) // 2), replace=False)
    train = np.ones(len(data.y), dtype=bool)
    train[rng.choice(len(train), len(train) // 5, replace=False)] = False
    return {RANDOM: train, PERSON: ~np.isin(data.site, held_out)}


def one_split(
    name: str, data: SiteData, train: np.ndarray, results: Results, shards: tuple[int, ...]
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
            ("centralised", MoERegressor(EXPERTS, random_state=SEED)),
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
    cuts = {str(M): cut(X, y, M) for M in shards}
    cuts[f"{len(np.unique(site))} people"] = by_site(X, y, site)
    refined = REFINED if name == RANDOM else ()
    for where, parts in cuts.items():
        keys = wanted(METHODS, refined, ROUNDS)
        if any(results.lacks(**about, sites=where, method=m, refine=r) for m, r in keys):
            sites = fit_sites(parts, EXPERTS)
            if "people" in where and name == RANDOM:
                add(where, "alone", "0", *sites.alone(X_test, data.site[~train]))
            for method, refine, model, row in merged(sites, METHODS, refined, ROUNDS):
                add(where, method, refine, model.predict(X_test), row)


def cut(X: np.ndarray, y: np.ndarray, n_shards: int) -> list[RowsShard]:
    """Return the rows in shards at random."""
    parts = split(len(y), n_shards, 1, np.random.default_rng(SEED))
    return [RowsShard(f"shard {i}", X, y, index=part) for i, part in enumerate(parts, 1)]


# -- reading -------------------------------------------------------------------------------------


def tables(rows: list[Row]) -> list[Cells]:
    """Return a table for each split, the paper's figures beside ours in the random one."""
    heads = ["sites", "estimator", "RPE %", "RMSE", "SI %", "learning time, s", "left out"]
    theirs = ["RPE %", "RMSE", "SI %", "minutes"]
    found = []
    for name in dict.fromkeys(row["split"] for row in rows):
        mine = [row for row in rows if row["split"] == name]
        paper = name == RANDOM
        body = []
        for row in mine:
            percent = [f"{100 * float(row[key]):.2f}" for key in ("rpe", "si")]
            cells = [row["sites"], named(row), percent[0], figure(row, "rmse"), percent[1]]
            cells += [figure(row, "learning_seconds", ".1f"), row["left_out"] or "–"]
            if paper:
                known = PUBLISHED.get((row["sites"], row["method"]))
                known = known if row["refine"] == "0" else None
                cells += (
                    [f"{100 * known[0]:.2f}", f"{known[1]:.2f}", f"{100 * known[2]:.2f}"]
                    + [f"{known[3]:.2f}"]
                    if known
                    else ["–"] * 4
                )
            body.append(cells)
        title = (
            f"{name}: {int(mine[0]['rows']):,} rows to learn, {int(mine[0]['test_rows']):,} to test"
        )
        found.append((title, heads + [f"paper: {head}" for head in theirs] * paper, body))
    return found


if __name__ == "__main__":
    main()
