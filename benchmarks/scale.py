"""What a run costs as a function of its size, and what that predicts for sizes not run.

A whole fit of N rows costs a number of passes over them that hardly depends on N; merging costs a
time per support point and expert of all sites. Both are measured here, as is the size of a message.
"""

from __future__ import annotations

from time import perf_counter

from threadpoolctl import threadpool_limits

from benchmarks.harness import RESULTS, SEED, Benchmark, Column, Settings
from benchmarks.reduction import problem
from otmoe import MoERegressor, Policy, aggregate
from studies.rows import Row, read
from studies.truths import draw

SUPPORT = 2000


def cases(settings: Settings) -> list[Row]:
    fits = [10_000, 100_000] if settings.quick else [10_000, 100_000, 1_000_000]
    sites = [100, 1000] if settings.quick else [100, 1000, 10_000]
    return [{"what": "fit", "size": n} for n in fits] + [
        {"what": "merging", "size": M} for M in sites
    ]


def measure(case: Row, settings: Settings) -> Row:
    with threadpool_limits(1):
        return fit(case["size"]) if case["what"] == "fit" else merging(case["size"])


def fit(n: int) -> Row:
    data = draw("hard", n, SEED)
    MoERegressor(4, random_state=SEED).fit(data.X[:2000], data.y[:2000])  # the warm-up
    begin = perf_counter()
    est = MoERegressor(4, random_state=SEED).fit(data.X, data.y)
    seconds = perf_counter() - begin
    message = est.to_message("site", policy=Policy.off()).to_json().encode()
    return {
        "seconds": seconds,
        "unit": "rows a second",
        "rate": n / seconds,
        "iterations": est.n_iter_,
        "bytes_per_site": len(message),
    }


def merging(M: int) -> Row:
    messages, X = problem("hard", M, SUPPORT)
    aggregate(messages[:4], X, method="reduction")
    begin = perf_counter()
    result = aggregate(messages, X, method="reduction")
    seconds = perf_counter() - begin
    return {
        "seconds": seconds,
        "unit": "sites a second",
        "rate": M / seconds,
        "iterations": len(result.trace) - 1,
        "bytes_per_site": len(messages[0].to_json().encode()),
    }


BENCHMARK = Benchmark(
    "scale",
    f"One core: fits of N rows, and merging M sites on {SUPPORT:,} support points (d=20, K=4)",
    cases,
    measure,
    (
        Column("what", "what"),
        Column("size", "rows or sites", "{:,.0f}"),
        Column("seconds", "seconds", "{:.1f}"),
        Column("rate", "a second", "{:,.0f}"),
        Column("unit", ""),
        Column("iterations", "iterations", "{:.0f}"),
        Column("bytes_per_site", "bytes of a message", "{:,.0f}"),
    ),
)


# -- predictions -------------------------------------------------------------------------------


def scenarios(settings: Settings) -> list[Row]:
    return [
        {"scenario": "1e9 rows on 100 nodes of 32 cores, a shard per core", "size": 1_000_000_000},
        {"scenario": "1e5 sites of 10,000 rows, each with a core", "size": 100_000},
    ]


def predict(case: Row, settings: Settings) -> Row:
    """Apply the largest measured rates; nothing is run."""
    rows = read(RESULTS / "scale.csv")
    fits = [row for row in rows if row["what"] == "fit"]
    merges = [row for row in rows if row["what"] == "merging"]
    if not fits or not merges:
        raise SystemExit("run `python -m benchmarks scale` first: predictions come from its file.")
    per_row = float(fits[-1]["seconds"]) / float(fits[-1]["size"])
    per_site = float(merges[-1]["seconds"]) / float(merges[-1]["size"])
    small = float(fits[0]["seconds"])
    size = float(fits[0]["bytes_per_site"])
    if case["size"] == 1_000_000_000:
        sites, local = 3200, per_row * 1e9 / 3200
    else:
        sites, local = 100_000, small
    return {
        "sites": sites,
        "local_seconds": local,
        "merging_seconds": per_site * sites,
        "megabytes": sites * size / 1e6,
    }


PREDICTIONS = Benchmark(
    "scale_predictions",
    "What these rates predict; nothing of this was run",
    scenarios,
    predict,
    (
        Column("scenario", "scenario"),
        Column("sites", "messages", "{:,.0f}"),
        Column("local_seconds", "slowest fit, s", "{:.1f}"),
        Column("merging_seconds", "merging on one core, s", "{:,.0f}"),
        Column("megabytes", "all messages, MB", "{:,.0f}"),
    ),
)
