"""Models for single sites on real tables: own, common and personal, on rows that none has seen.

Airlines: late flights, with every fifth day of a month for testing. People: random seconds of each,
the first ones, or as many in a row from a random place, tested on 4,000 other seconds of them
(after the first ones: later seconds). Stations: hours before 2016-03-01, tested on the year after.
Rows that follow each other in time are groups of one, in this order. A new site has no part in the
fit of the others. Subsets 0 to 2 were looked at while the method was made; those here are others.
Of airlines, stations and first seconds there is but one set.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from benchmarks.search import NO_FEATURES
from otmoe import FeatureSpec, MoE
from otmoe.data.shards import RowsShard, ShardRows
from otmoe.datasets import load_beijing, load_flights, load_mmash
from otmoe.datasets.real import data_folder
from otmoe.distributed.personal import PersonalModels, personal_shards
from otmoe.likelihood.fit import em
from otmoe.likelihood.prior import fit_with_prior
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.text.errors import OtmoeError
from studies.rows import Row

SMALL = 1000  # flights below which an airline is small
TESTED = 4000  # seconds of a person
SUBSETS = (3, 4, 5)
NEW = (50, 200, 1000)
"""Rows of a site that comes later."""

MODELS = ("common", "own", "personal", "server", "best", "stacked", "boosting")


@dataclass(frozen=True)
class Site:
    """Rows to learn from and to be judged by."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class InOrder(RowsShard):
    """A shard whose rows follow each other in time."""

    def read(self) -> ShardRows:
        found = super().read()
        return replace(found, groups=np.arange(len(found.y)))


def cases(settings: Settings) -> list[Row]:
    try:
        data_folder()
    except OtmoeError:
        return []
    if settings.quick:
        return [_case("people, random", 100, 3)]
    mixed = [_case("people, random", n, subset) for n in (100, 300, 1000) for subset in SUBSETS]
    return [
        _case("airlines", K=1),
        _case("airlines", K=2),
        *mixed,
        *(_case("people, first", n) for n in (100, 300, 1000)),
        _case("stations", 300, 3),
        _case("stations"),
        _case("stations, in order"),
        _case("people, random", 10_000, 3),
        _case("people, first", 10_000),
        *(_case("a new person", n, 3) for n in NEW),
        *(_case("people, in a row", n, subset) for subset in SUBSETS for n in (100, 300, 1000)),
        *(_case("a new station", n, 3) for n in NEW),
        _case("stations", 3000, 3),
    ]


def _case(name: str, rows: int | str = "", subset: int | str = "", K: int = 4) -> Row:
    return {"sites": name, "experts": K, "rows": rows, "subset": subset}


def measure(case: Row, settings: Settings) -> Row:
    name, K = str(case["sites"]), int(case["experts"])
    n = None if case["rows"] == "" else int(case["rows"])
    rng = np.random.default_rng(0 if case["subset"] == "" else int(case["subset"]))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "airlines":
            return _airlines(K)
        if name.startswith("people"):
            sites = people(n, name.removeprefix("people, "), rng)
            return _judged(_fits(sites, K, not name.endswith("random")))
        if name.startswith("stations"):
            ordered = name.endswith("in order")
            return _judged(_all_hours(K, ordered) if n is None else _fits(_stations(n, rng), K))
        sites = people(1000, "random", rng) if name == "a new person" else _stations(3000, rng)
        return _new(sites, K, n)


def people(n: int, which: str, rng: np.random.Generator) -> list[Site]:
    """Return n seconds of each person: random ones, the first ones, or some in a row."""
    data, sites = _mmash(), []
    for person in np.unique(data.site):
        rows = np.flatnonzero(data.site == person)
        if which == "random":
            mixed = rng.permutation(rows)
            learned, tested = np.sort(mixed[TESTED:][:n]), mixed[:TESTED]
        else:
            begin = 0 if which == "first" else int(rng.integers(len(rows) - n))
            learned = rows[begin : begin + n]
            others = np.delete(rows, np.s_[begin : begin + n])
            tested = rng.permutation(others)[:TESTED]
        X, y = data.X, data.y
        sites.append(Site(str(person), X[learned], y[learned], X[tested], y[tested]))
    return sites


def _stations(n: int | None, rng: np.random.Generator) -> list[Site]:
    data, sites = _beijing(), []
    for name in np.unique(data.site):
        rows = np.flatnonzero((data.site == name) & data.train)
        rows = rows if n is None else np.sort(rng.choice(rows, n, replace=False))
        test = (data.site == name) & ~data.train
        sites.append(Site(str(name), data.X[rows], data.y[rows], data.X[test], data.y[test]))
    return sites


_mmash, _beijing = cache(load_mmash), cache(load_beijing)


def common_model(sites: Sequence[Site], K: int, family: str = "gaussian") -> MoE:
    X, y = np.concatenate([s.X for s in sites]), np.concatenate([s.y for s in sites])
    return em(X, y, K, family=family, random_state=0).model


def _own(sites: Sequence[Site], K: int) -> dict[str, MoE]:
    return {site.name: em(site.X, site.y, K, random_state=0).model for site in sites}


def _personal(
    sites: Sequence[Site], common: MoE, ordered: bool = False, own: dict[str, MoE] | None = None
) -> tuple[PersonalModels, float]:
    """Return personal models and the seconds they took."""
    kind = InOrder if ordered else RowsShard
    shards = [kind(site.name, site.X, site.y) for site in sites]
    scaling = Scaling.of(np.concatenate([s.X for s in sites]))
    begin = perf_counter()
    found = personal_shards(shards, common, scaling=scaling, own=own)
    return found, perf_counter() - begin


@dataclass(frozen=True)
class Fits:
    """Sites with all their models."""

    sites: list[Site]
    common: MoE
    own: dict[str, MoE]
    found: PersonalModels
    seconds: float

    def of(self, site: Site) -> dict[str, MoE]:
        """Return the models of a site by name."""
        models = {
            "common": self.common,
            "own": self.own[site.name],
            "personal": self.found.fits[site.name].model,
            "server": self.found.between.model_of(site.name),
        }
        models["best"] = models[self.found.forecasts[site.name].best]
        return {**models, "stacked": self.found.stacked(site.name)}


def _fits(sites: list[Site], K: int, ordered: bool = False) -> Fits:
    common, own = common_model(sites, K), _own(sites, K)
    return Fits(sites, common, own, *_personal(sites, common, ordered, own))


@cache
def _three_years(K: int) -> tuple[list[Site], MoE, dict[str, MoE]]:
    """Return stations with all hours before the last year, their common and own models."""
    sites = _stations(None, np.random.default_rng(0))
    return sites, common_model(sites, K), _own(sites, K)


@cache
def _all_hours(K: int, ordered: bool) -> Fits:
    sites, common, own = _three_years(K)
    return Fits(sites, common, own, *_personal(sites, common, ordered, own))


def _judged(fits: Fits) -> Row:
    nats: dict[str, list[float]] = {name: [] for name in MODELS[:-1]}
    errors: dict[str, list[float]] = {name: [] for name in nats}
    for site in fits.sites:
        for name, model in fits.of(site).items():
            nats[name].append(-model.log_density(site.X_test, site.y_test).mean())
            errors[name].append(np.mean((site.y_test - model.predict(site.X_test)) ** 2))
    strength = fits.found.between.strength
    return {**_summed_up(nats, errors), "strength": strength, "seconds": fits.seconds}


def _summed_up(nats: dict[str, list[float]], errors: dict[str, list[float]]) -> Row:
    rmse = {name: float(np.sqrt(np.mean(values))) for name, values in errors.items()}
    better = np.array(nats["personal"]) < np.minimum(nats["common"], nats["own"])
    return {
        **_row({name: float(np.mean(values)) for name, values in nats.items()}, rmse),
        "ahead": rmse["personal"] / min(rmse["common"], rmse["own"]) - 1,
        "better_at": f"{better.sum()} of {len(better)}",
    }


def _airlines(K: int) -> Row:
    table = load_flights()
    names = [name for name in table.column_names if name not in NO_FEATURES]
    X = FeatureSpec.from_sample(table, names).encode(table)
    y = table["late15"].to_numpy(zero_copy_only=False).astype(float)
    carrier = np.array(table["carrier"].to_pylist())
    test = table["day"].to_numpy(zero_copy_only=False) % 5 == 0
    sites = [
        Site(c, *(a[t & (carrier == c)] for t in (~test, test) for a in (X, y)))
        for c in np.unique(carrier)
    ]
    own = {
        s.name: em(s.X, s.y, K, family="logistic", random_state=0).model
        for s in sites
        if len(np.unique(s.y)) == 2
    }
    common = common_model(sites, K, "logistic")
    found, seconds = _personal(sites, common, own=own)
    late: dict[str, Callable[[Site], MoE]] = {
        "common": lambda s: common,
        "own": lambda s: own.get(s.name, common),
        "personal": lambda s: found.fits[s.name].model,
        "server": lambda s: found.between.model_of(s.name),
    }
    late["best"] = lambda s: late[found.forecasts[s.name].best](s)
    late["stacked"] = lambda s: found.stacked(s.name)
    said = {
        name: np.concatenate([model(s).predict(s.X_test) for s in sites if len(s.y_test)])
        for name, model in late.items()
    }
    who = np.concatenate([[s.name] * len(s.y_test) for s in sites])
    code = np.searchsorted(np.unique(carrier), carrier)
    boosting = HistGradientBoostingClassifier(
        categorical_features=[X.shape[1]], random_state=0
    ).fit(np.column_stack([X, code])[~test], y[~test])
    order = np.concatenate([np.flatnonzero(test & (carrier == s.name)) for s in sites])
    said["boosting"] = boosting.predict_proba(np.column_stack([X, code])[order])[:, 1]
    few = np.isin(who, [s.name for s in sites if len(s.y) < SMALL])
    loss = {name: float(log_loss(y[order], p)) for name, p in said.items()}
    small = {name: float(log_loss(y[order][few], p[few])) for name, p in said.items()}
    better = [
        log_loss(y[order][who == s.name], said["personal"][who == s.name], labels=[0, 1])
        < min(
            log_loss(y[order][who == s.name], said[name][who == s.name], labels=[0, 1])
            for name in ("common", "own")
        )
        for s in sites
        if len(s.y_test)
    ]
    return {
        **_row(loss, {}),
        **{f"small_{name}": small[name] for name in MODELS},
        "better_at": f"{sum(better)} of {len(better)}",
        "strength": found.between.strength,
        "seconds": seconds,
    }


def _new(sites: list[Site], K: int, n: int) -> Row:
    """Return how a site is served of which some rows come later; each has its turn."""
    nats: dict[str, list[float]] = {name: [] for name in ("common", "own", "personal")}
    errors: dict[str, list[float]] = {name: [] for name in nats}
    for m, site in enumerate(sites):
        others = sites[:m] + sites[m + 1 :]
        common, found = _others(tuple(s.name for s in others), others, K)
        some = np.random.default_rng(m).permutation(len(site.y))[:n]
        models = {
            "common": common,
            "own": em(site.X[some], site.y[some], K, random_state=0).model,
            "personal": fit_with_prior(
                Rows(site.X[some], site.y[some]), found.between.prior_of_new(n)
            ).model,
        }
        for name, model in models.items():
            nats[name].append(-model.log_density(site.X_test, site.y_test).mean())
            errors[name].append(np.mean((site.y_test - model.predict(site.X_test)) ** 2))
    return {**_summed_up(nats, errors), "strength": "", "seconds": ""}


_KNOWN: dict[tuple[str, ...], tuple[MoE, PersonalModels]] = {}


def _others(key: tuple[str, ...], sites: list[Site], K: int) -> tuple[MoE, PersonalModels]:
    """Return the fit of some sites, made once."""
    if key not in _KNOWN:
        common = common_model(sites, K)
        _KNOWN[key] = common, _personal(sites, common)[0]
    return _KNOWN[key]


def _row(loss: dict[str, float], rmse: dict[str, float]) -> Row:
    return {
        **{name: loss.get(name, "") for name in MODELS},
        **{f"rmse_{name}": rmse.get(name, "") for name in MODELS[:-1]},
        **{f"small_{name}": "" for name in MODELS},
        "ahead": "",
    }


BENCHMARK = Benchmark(
    "personal",
    "Models for single sites: mean loss of a test row (minus log density, in nats) under the "
    "common model, the site's own, the personal one, the one that the site's own forecast names "
    "and the mixture of the three by its weights; "
    "the same for small airlines, and root mean squared errors",
    cases,
    measure,
    (
        Column("sites", "sites"),
        Column("experts", "K", "{:.0f}"),
        Column("rows", "rows of each", "{:.0f}"),
        Column("common", "common", "{:.4f}"),
        Column("own", "own", "{:.4f}"),
        Column("personal", "personal", "{:.4f}"),
        Column("best", "named best", "{:.4f}"),
        Column("stacked", "stacked", "{:.4f}"),
        Column("boosting", "boosting", "{:.4f}"),
        Column("small_common", "small: common", "{:.4f}"),
        Column("small_personal", "personal", "{:.4f}"),
        Column("small_stacked", "stacked", "{:.4f}"),
        Column("small_boosting", "boosting", "{:.4f}"),
        Column("rmse_common", "RMSE: common", "{:.3f}"),
        Column("rmse_own", "own", "{:.3f}"),
        Column("rmse_personal", "personal", "{:.3f}"),
        Column("rmse_stacked", "stacked", "{:.3f}"),
        Column("ahead", "personal over the better of both", "{:+.1%}"),
        Column("better_at", "better than both at"),
        Column("strength", "strength"),
        Column("seconds", "seconds", "{:.1f}"),
    ),
    (
        Requirement(
            "ahead",
            "people: above the better of own and common",
            at_most=0.01,
            of=lambda row: row["sites"].startswith("people"),
        ),
        Requirement(
            "ahead",
            "people, random, 300 and 1,000 seconds",
            at_most=-0.03,
            of=lambda row: row["sites"] == "people, random" and row["rows"] in ("300", "1000"),
        ),
        Requirement(
            "personal",
            "airlines, one expert: log-loss",
            at_most=0.4597,
            of=lambda row: row["sites"] == "airlines" and row["experts"] == "1",
        ),
        Requirement(
            "small_personal",
            "airlines, one expert, small ones: log-loss",
            at_most=0.4540,
            of=lambda row: row["sites"] == "airlines" and row["experts"] == "1",
        ),
        Requirement(
            "ahead",
            "a new site",
            at_most=0.0,
            of=lambda row: row["sites"].startswith("a new"),
        ),
    ),
)

# -- stations one by one -------------------------------------------------------------------------

HOURS = 24
TWO = {"personal": False, "in order": True}  # whether hours are said to be in the order of time
FACTORS = (0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 8, 16, 64)
"""Of the deviations, for the best one in hindsight: from nearly the common model to nearly own."""


def stations(settings: Settings) -> list[Row]:
    if settings.quick:
        return []
    try:
        data_folder()
    except OtmoeError:
        return []
    return [{"station": str(name)} for name in np.unique(_beijing().site)]


def measure_station(case: Row, settings: Settings) -> Row:
    """Compare models at a station; the hours of a day are one observation."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = {name: _all_hours(4, ordered) for name, ordered in TWO.items()}
    sites, common, own = _three_years(4)
    site = next(site for site in sites if site.name == case["station"])
    models = {"common": common, "own": own[site.name]}
    models |= {name: found.of(site)["personal"] for name, found in fits.items()}
    models["stacked"] = fits["personal"].of(site)["stacked"]
    nats = {name: -model.log_density(site.X_test, site.y_test) for name, model in models.items()}
    better = min(("common", "own"), key=lambda name: nats[name].mean())
    days = np.arange(len(site.y_test)) // HOURS
    row: Row = {name: float(values.mean()) for name, values in nats.items()} | {"better": better}
    for name in (*TWO, "stacked"):
        more = nats[name] - nats[better]
        error = np.sqrt(np.sum(np.bincount(days, more - more.mean()) ** 2)) / len(more)
        row |= {f"{name}: above": float(more.mean()), f"{name}: error": float(error)}
    prior = fits["personal"].found.between.prior
    least = nats[better].mean()
    start, above = None, {}
    for factor in FACTORS:
        there = prior.at_strength(factor, common)
        start = fit_with_prior(Rows(site.X, site.y), there, start=start).model
        above[factor] = float(-start.log_density(site.X_test, site.y_test).mean() - least)
    best = min(FACTORS, key=lambda factor: above[factor])
    row |= {f"at {factor:g}": value for factor, value in above.items()}
    return row | {"hindsight": best, "hindsight: above": above[best]}


STATIONS = Benchmark(
    "personal_stations",
    "Stations with three years of hours each: mean loss of a test hour (minus log density, in "
    "nats) under the common model, the station's own and personal ones, without and with the order "
    "of time, and the mixture of the three by its weights; how far these are above the better of "
    "common and own, and the standard error by days; the same with the factor of the deviations "
    "that is best on these test hours",
    stations,
    measure_station,
    (
        Column("station", "station"),
        Column("common", "common", "{:.4f}"),
        Column("own", "own", "{:.4f}"),
        Column("personal", "personal", "{:.4f}"),
        Column("personal: above", "above the better", "{:+.4f}"),
        Column("personal: error", "standard error", "{:.4f}"),
        Column("hindsight", "best factor in hindsight", "{:g}"),
        Column("hindsight: above", "above the better", "{:+.4f}"),
        Column("stacked", "stacked", "{:.4f}"),
        Column("stacked: above", "above the better", "{:+.4f}"),
        Column("stacked: error", "standard error", "{:.4f}"),
        Column("in order", "in order", "{:.4f}"),
        Column("in order: above", "above the better", "{:+.4f}"),
        Column("in order: error", "standard error", "{:.4f}"),
    ),
)
