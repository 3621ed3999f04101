"""One round on whole jobs: what each way of merging loses to the fit of all rows, and its time.

Sites are fitted as `fit_shards` does it, once; the same messages are merged by every method, at
covariates that each site offers. Simulated rows are cut at random; stations, airlines, people and
months are sites as they come. Nothing was tuned on airlines and months. How densities use Grams
was chosen on truths 0 to 3, from which difference on they do not on stations and people, and how
many pseudo-rows there may be on truths 100 to 109, which are not measured here, after what was
measured here had suggested to look at it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from benchmarks.harness import Benchmark, Column, Settings
from benchmarks.search import NO_FEATURES
from otmoe import FeatureSpec, LocalModel, MoE, aggregate
from otmoe.data.shards import RowsShard, Shard
from otmoe.datasets import load_beijing, load_flights, load_mmash
from otmoe.datasets.real import data_folder
from otmoe.distributed.fit import fit_shards
from otmoe.distributed.rounds import refine_shards
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Scaling
from otmoe.model.target import Target
from otmoe.text.errors import OtmoeError
from studies.rows import Row
from studies.truths import draw

ROWS, TRUTHS = 100_000, 10
METHODS = ("reduction", "gram", "kl", "auto")
SITES = {"hard": (16, 64, 128), "soft": (16, 64), "overlap": (16, 64)}
FEWER = {"250 rows each": 250, "common points": None}
"""Other covariates than all rows of each site, for hard gates and 64 sites."""

REAL = ("beijing", "beijing, sketches", "airlines", "months", "people")


def cases(settings: Settings) -> list[Row]:
    kinds = [  # truth by truth, so that those of a run that was ended have every kind of sites
        {"sites": kind, "n_sites": M, "truth": truth, "method": method}
        for truth in range(1 if settings.quick else TRUTHS)
        for kind, numbers in SITES.items()
        for M in (numbers[:1] if settings.quick else numbers)
        for method in METHODS
    ]
    kinds += [
        {"sites": f"hard, {name}", "n_sites": 64, "truth": truth, "method": "kl"}
        for name in (() if settings.quick else FEWER)
        for truth in range(TRUTHS)
    ]
    real = [
        {"sites": name, "n_sites": "", "truth": "", "method": method}
        for name in REAL
        for method in (*METHODS, "auto, refined")
        if not (method == "auto, refined" and name == "beijing, sketches")
    ]
    return ([] if settings.quick or not _data_are_here() else real) + kinds


def _data_are_here() -> bool:
    try:
        return data_folder().is_dir()
    except OtmoeError:
        return False


@dataclass(frozen=True)
class Job:
    """Sites that were fitted, and what their merged model is judged by.

    Attributes
    ----------
    shards : list of Shard
    messages : list of LocalModel
    support : dict of ndarray, one for all, or None where the messages bring sketches
    target : Target
    pooled : MoE
        The fit of all rows.
    score : callable
        Returns the columns of a model.
    apart : callable, optional
        Returns the standard error of the difference between the test losses of two models.
    """

    shards: list[Shard]
    messages: list[LocalModel]
    support: dict[str, np.ndarray] | np.ndarray | None
    target: Target
    pooled: MoE
    score: Callable[[MoE], Row]
    apart: Callable[[MoE, MoE], float] | None = None


def measure(case: Row, settings: Settings) -> Row:
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        job = _job(str(case["sites"]), case["n_sites"], case["truth"], settings.quick)
        refined = case["method"] == "auto, refined"
        method = "auto" if refined else str(case["method"])
        begin = perf_counter()
        result = aggregate(job.messages, job.support, method=method)
        seconds = perf_counter() - begin
        model, rounds = result.model, ""
        if refined:
            scaling = Scaling.of(result.support)
            state = refine_shards(job.shards, model, "auto", scaling=scaling, target=job.target)
            model, rounds = state.model, state.rounds if state.converged else f">{state.rounds}"
        return {
            "chosen": result.method,
            "lost": result.lost,
            **job.score(model),
            **{f"pooled_{name}": value for name, value in job.score(job.pooled).items()},
            "loss_error": "" if job.apart is None else job.apart(model, job.pooled),
            "rounds": rounds,
            "seconds": seconds,
        }


@cache
def _job(name: str, n_sites: int | str, truth: int | str, quick: bool) -> Job:
    kind, _, fewer = name.partition(", ")
    if kind in SITES:
        job = _job(kind, n_sites, truth, quick) if fewer else None
        if job is None:
            return _simulated(kind, int(n_sites), int(truth), ROWS // 10 if quick else ROWS)
        size = FEWER[fewer]
        support: dict[str, np.ndarray] | np.ndarray = {s: X[:size] for s, X in job.support.items()}
        if size is None:
            support = np.concatenate([X[:30] for X in job.support.values()])
        return replace(job, support=support)
    return {
        "beijing": lambda: _beijing(sketch=False),
        "beijing, sketches": lambda: _beijing(sketch=True),
        "airlines": lambda: _flights("carrier"),
        "months": lambda: _flights("month"),
        "people": _people,
    }[name]()


def _simulated(kind: str, n_sites: int, truth: int, n_rows: int) -> Job:
    data = draw(kind, n_rows, truth)
    shards = _cut(data.X, data.y, np.arange(n_rows) % n_sites)
    test = data.draw(50_000, truth + 1000)
    ceiling = data.truth.log_density(test.X, test.y).mean()

    def score(model: MoE) -> Row:
        below = ceiling - model.log_density(test.X, test.y).mean()
        if model.n_experts != data.truth.n_experts:
            return _scores(below=float(below))
        own, true = model.aligned_to(data.truth, test.X), data.truth
        return _scores(
            below=float(below),
            gate_mse=float(np.mean((own.gate.centred - true.gate.centred) ** 2)),
            expert_mse=float(np.mean((own.experts.coef - true.experts.coef) ** 2)),
            var_mse=float(np.mean(np.log(own.experts.var / true.experts.var) ** 2)),
        )

    pooled = em(data.X, data.y, init=data.truth).model
    return _fitted(shards, 4, Target(), pooled, score)


def _beijing(*, sketch: bool) -> Job:
    data = load_beijing()
    X, y, site = data.X[data.train], data.y[data.train], data.site[data.train]
    X_test, y_test = data.X[~data.train], data.y[~data.train]

    def score(model: MoE) -> Row:
        rmse = np.sqrt(np.mean((y_test - model.predict(X_test)) ** 2))
        return _scores(loss=-float(model.log_density(X_test, y_test).mean()), rmse=float(rmse))

    pooled = em(X, y, 4, random_state=0).model
    return _fitted(_cut(X, y, site), 4, Target(), pooled, score, sketch=sketch)


def _flights(column: str) -> Job:
    table = load_flights()
    day = table["day"].to_numpy(zero_copy_only=False)
    names = [name for name in table.column_names if name not in NO_FEATURES]
    spec = FeatureSpec.from_sample(table, names)
    X = spec.encode(table)
    y = table["late15"].to_numpy(zero_copy_only=False).astype(float)
    site = np.array([str(value) for value in table[column].to_pylist()])
    test = day % 5 == 0

    def score(model: MoE) -> Row:
        return _scores(loss=float(log_loss(y[test], model.predict(X[test]))))

    date = np.array([f"{d} {m}" for d, m in zip(day, table["month"].to_pylist(), strict=True)])

    def apart(one: MoE, other: MoE) -> float:
        excess = other.log_density(X[test], y[test]) - one.log_density(X[test], y[test])
        return clustered_error(excess, date[test])

    pooled = em(X[~test], y[~test], 2, family="logistic", random_state=0).model
    target = Target("logistic", np.array([0.0, 1.0]))
    job = _fitted(_cut(X[~test], y[~test], site[~test]), 2, target, pooled, score)
    return replace(job, apart=apart)


def clustered_error(values: np.ndarray, cluster: np.ndarray) -> float:
    """Return the standard error of a mean (n,) whose values depend on each other in clusters."""
    _, place = np.unique(cluster, return_inverse=True)
    sums = np.bincount(place, values - values.mean())
    n_clusters = len(sums)
    return float(np.sqrt(n_clusters / (n_clusters - 1) * sums @ sums) / len(values))


def _people() -> Job:
    data = load_mmash()
    test = np.random.default_rng(0).random(len(data.y)) < 0.2
    X, y = data.X[~test], data.y[~test]

    def score(model: MoE) -> Row:
        return _scores(loss=-float(model.log_density(data.X[test], data.y[test]).mean()))

    pooled = em(X, y, 4, random_state=0).model
    return _fitted(_cut(X, y, data.site[~test]), 4, Target(), pooled, score)


def _scores(**known: float) -> Row:
    names = ("below", "gate_mse", "expert_mse", "var_mse", "loss", "rmse")
    return {name: known.get(name, "") for name in names}


def _cut(X: np.ndarray, y: np.ndarray, site: np.ndarray) -> list[Shard]:
    return [
        RowsShard(str(name), X, y, index=np.flatnonzero(site == name)) for name in np.unique(site)
    ]


def _fitted(
    shards: list[Shard],
    n_experts: int,
    target: Target,
    pooled: MoE,
    score: Callable[[MoE], Row],
    *,
    sketch: bool = False,
) -> Job:
    fit = fit_shards(shards, n_experts, target=target, method="gram", random_state=0)
    kept = [shard for shard in shards if shard.name not in fit.aggregation.left_out]
    messages = [m for m in fit.local_models if m.site not in fit.aggregation.left_out]
    covariates = {shard.name: shard.read().X for shard in kept}
    if sketch:
        messages = [m.with_support(covariates[m.site], sketch=True) for m in messages]
    return Job(kept, messages, None if sketch else covariates, target, pooled, score)


@dataclass(frozen=True)
class OfMerging(Benchmark):
    """A table with one line for each kind of sites and method: medians over truths."""

    def table(self, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the cells of the table."""
        places = dict.fromkeys((row["sites"], row["n_sites"], row["method"]) for row in rows)
        body = []
        for sites, n_sites, method in places:
            key = {"sites": sites, "n_sites": n_sites, "method": method}
            some = [row for row in rows if all(row[name] == key[name] for name in key)]
            middle = {name: _median(some, name) for name in _FIGURES}
            for block in ("gate", "expert", "var"):
                of = [_ratio(row, block) for row in some]
                middle[f"{block}_ratio"] = median(of) if all(of) else ""
            chosen = " ".join(dict.fromkeys(row["chosen"] for row in some))
            row = (
                key | middle | {"truths": len(some), "chosen": chosen, "rounds": some[0]["rounds"]}
            )
            body.append([column.text(row) for column in self.columns])
        return [column.head for column in self.columns], body


_FIGURES = ("lost", "below", "pooled_below", "loss", "pooled_loss", "loss_error", "rmse", "seconds")


def _median(rows: list[Row], name: str) -> float | str:
    known = [float(row[name]) for row in rows if row[name] != ""]
    return median(known) if known else ""


def _ratio(row: Row, block: str) -> float:
    own, pooled = row[f"{block}_mse"], row[f"pooled_{block}_mse"]
    return float(own) / float(pooled) if own and pooled else 0.0


BENCHMARK = OfMerging(
    "merging",
    "One round by every method, and refined: nats below the truth and squared errors over those "
    "of the fit of all rows, or the loss on test rows; medians over truths",
    cases,
    measure,
    (
        Column("sites", "sites"),
        Column("n_sites", "M", "{:.0f}"),
        Column("truths", "truths", "{:.0f}"),
        Column("method", "method"),
        Column("chosen", "chosen"),
        Column("lost", "expected loss", "{:.4f}"),
        Column("below", "below truth", "{:.5f}"),
        Column("pooled_below", "all rows", "{:.5f}"),
        Column("gate_ratio", "gate", "{:.2f}"),
        Column("expert_ratio", "experts", "{:.2f}"),
        Column("var_ratio", "variances", "{:.2f}"),
        Column("loss", "test loss", "{:.4f}"),
        Column("pooled_loss", "all rows", "{:.4f}"),
        Column("loss_error", "s.e. of the difference", "{:.4f}"),
        Column("rmse", "RMSE", "{:.2f}"),
        Column("rounds", "rounds"),
        Column("seconds", "seconds", "{:.2f}"),
    ),
)
