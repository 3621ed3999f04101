"""Small jobs on which the constants of the package are tried: simulated sites, small real tables.

A job returns what a user sees of it. Whatever it starts from (rows, fits of sites) is made once, so
that a constant is tried on the part of the work that it steers and on nothing before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from sklearn import datasets

from benchmarks import reduction, screening
from benchmarks.harness import SEED
from otmoe import (
    DistributedMoERegressor,
    LocalModel,
    MoE,
    MoERegressor,
    Sketch,
    observed_inference,
    select_from_messages,
    select_n_experts,
    simulate,
)
from otmoe.aggregation import disagreement, methods, problem, screen, support
from otmoe.aggregation.merge import merged
from otmoe.aggregation.result import Aggregation
from otmoe.data import sketch
from otmoe.data.shards import RowsShard
from otmoe.datasets.simulation import Simulation
from otmoe.distributed.rounds import refine_shards
from otmoe.documents.aggregation import AggregationRecord
from otmoe.inference import refined_inference
from otmoe.likelihood.fit import Fit, em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.gate import SoftmaxGate
from otmoe.reporting.data import page_data
from otmoe.text.errors import InferenceError
from otmoe.text.records import typed
from otmoe.text.sentences import Warn
from studies.truths import draw

Found = dict[str, float]
"""What a user sees, by metric."""

EXPERTS, FEATURES, SITES, ROWS, TEST = 3, 5, 12, 400, 4000
KINDS: dict[str, dict[str, Any]] = {
    "hard": {},
    "half": {"softness": 0.6},
    "soft": {"softness": 1.0},
    "overlap": {"overlap": True},
    "poisson": {"family": "poisson", "softness": 0.5},
    "logistic": {"family": "logistic", "softness": 0.5},
    "multinomial": {"family": "multinomial", "softness": 0.5},
}


@dataclass(frozen=True)
class Job:
    """Something to do, and what is looked at.

    Attributes
    ----------
    run : callable, bool -> dict
        Told whether it should be quick.
    metrics : tuple of str
        Keys of what it returns; with "seconds" it is timed as well.
    """

    run: Callable[[bool], Found]
    metrics: tuple[str, ...]


# -- what jobs start from ----------------------------------------------------------------------


@dataclass(frozen=True)
class Sites:
    """Rows of one truth at several sites, the local fits, and rows that nobody has fitted."""

    data: Simulation
    parts: tuple[np.ndarray, ...]
    messages: tuple[LocalModel, ...]
    test: Simulation

    @property
    def shards(self) -> list[RowsShard]:
        X, y = self.data.X, self.data.y
        return [RowsShard(f"site {m}", X, y, index=part) for m, part in enumerate(self.parts)]

    def below(self, model: MoE) -> float:
        """Return the nats per row below the truth, on the rows that nobody has fitted."""
        X, y = self.test.X, self.test.y
        return float(np.mean(self.test.truth.log_density(X, y) - model.log_density(X, y)))


@cache
def sites(kind: str, truth: int, n_sites: int = SITES, rows: int = ROWS) -> Sites:
    """Fit sites of equal size, each with a few starts of its own."""
    options = KINDS[kind]
    data = simulate(n_sites * rows, EXPERTS, FEATURES, random_state=truth, **options)
    parts = tuple(np.array_split(np.arange(len(data.X)), n_sites))
    return fitted(data, parts, options.get("family", "gaussian"), truth)


def fitted(data: Simulation, parts: Sequence[np.ndarray], family: str, seed: int) -> Sites:
    messages = []
    for m, part in enumerate(parts):
        X, y = data.X[part], data.y[part]
        fit = em(X, y, EXPERTS, family=family, n_init=3, random_state=m)
        message = LocalModel.from_fit(fit, f"site {m}")
        messages.append(replace(message, grams=Grams.of(fit.model, Rows(X, y))))
    return Sites(data, tuple(parts), tuple(messages), data.draw(TEST, seed + 10_000))


@cache
def regions(truth: int, own: float = 0.9, n_sites: int = 8) -> Sites:
    """Fit sites that see most of their rows around one of the centres each."""
    data, rng = simulate(10, EXPERTS, FEATURES, random_state=truth), np.random.default_rng(truth)
    X = []
    for m in range(n_sites):
        home = replace(data, centers=data.centers[[m % EXPERTS]])
        mine = rng.binomial(ROWS, own)
        X.append(np.concatenate([home.draw_x(mine, rng), data.draw_x(ROWS - mine, rng)]))
    rows = np.concatenate(X)
    data = replace(data, X=rows, y=data.truth.sample(rows, rng)[0])
    parts = np.split(np.arange(len(rows)), n_sites)
    return fitted(data, parts, "gaussian", truth)


def truths(quick: bool, most: int = 3) -> range:
    return range(1 if quick else most)


@cache
def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a small real table: features, and a number or a class."""
    X, y = {"diabetes": datasets.load_diabetes, "cancer": datasets.load_breast_cancer}[name](
        return_X_y=True
    )
    return (X * 10, y / y.std()) if name == "diabetes" else (X[:, :8], y.astype(float))


# -- merging -----------------------------------------------------------------------------------


def summed(found: Sequence[Found]) -> Found:
    return {key: float(np.sum([f[key] for f in found])) for key in found[0]}


def mean(found: Sequence[Found]) -> Found:
    return {key: float(np.mean([f[key] for f in found])) for key in found[0]}


def merge(kind: str) -> Job:
    """Return the job of merging the sites of a few truths."""

    def run(quick: bool) -> Found:
        found = []
        for truth in truths(quick):
            here = sites(kind, truth)
            result = merged(here.messages, here.data.X[:2000], EXPERTS, "reduction")
            found.append(seen(result, here))
        return mean(found)

    timed = kind == "hard"  # elsewhere the same work is done
    return Job(run, ("nats", "R_c", "seconds") if timed else ("nats", "R_c"))


def seen(result: Aggregation, here: Sites) -> Found:
    return {"nats": here.below(result.model), "R_c": result.cost}


def merge_densities(kind: str, method: str = "kl") -> Job:
    """Return the job of merging densities at covariates of each site, or of choosing."""

    def run(quick: bool) -> Found:
        found = []
        for truth in truths(quick):
            here = sites(kind, truth)
            pairs = zip(here.messages, here.parts, strict=True)
            covariates = {message.site: here.data.X[part] for message, part in pairs}
            result = merged(here.messages, covariates, EXPERTS, method)
            differ = sum(w.code == "sites_differ" for w in result.warnings)
            found.append({"nats": here.below(result.model), "warnings": float(differ)})
        return mean(found)

    return Job(run, ("nats", "warnings", "seconds"))


def merge_gram(kind: str) -> Job:
    """Return the job of pooling by Grams, where the gate is what differs."""

    def run(quick: bool) -> Found:
        found = []
        for truth in truths(quick):
            here = sites(kind, truth)
            model = merged(here.messages, here.data.X[:2000], EXPERTS, "gram").model
            X = here.test.X
            gap = model.aligned_to(here.data.truth, X).gate_prob(X) - here.data.truth.gate_prob(X)
            error = np.mean(np.sum(gap**2, axis=1))
            found.append({"nats": here.below(model), "gate error": float(error)})
        return mean(found)

    return Job(run, ("nats", "gate error"))


@cache
def drawn(kind: str, n_sites: int) -> tuple[tuple[LocalModel, ...], np.ndarray, Simulation]:
    messages, X = reduction.problem(kind, n_sites, 1000)
    return tuple(messages), X, draw(kind, TEST, SEED)


def merge_many(kind: str, n_sites: int) -> Job:
    """Return the job of merging many sites, drawn around a truth and not fitted."""

    def run(quick: bool) -> Found:
        messages, X, test = drawn(kind, n_sites)
        result = merged(messages, X, 4, "reduction")
        gap = test.truth.log_density(test.X, test.y) - result.model.log_density(test.X, test.y)
        return {"nats": float(gap.mean()), "R_c": result.cost}

    return Job(run, ("nats", "R_c", "seconds"))


def middle(n_sites: int, kind: str = "soft") -> Job:
    """Return the job of choosing the middle one of many sites, some better than others."""

    @cache
    def around() -> tuple[list[LocalModel], Simulation]:
        data = simulate(TEST, 2, 3, random_state=SEED, **KINDS[kind])
        rng, truth = np.random.default_rng(SEED), data.truth
        found = []
        for m in range(n_sites):
            away = 0.3 * np.exp(rng.standard_normal())
            coef = truth.experts.coef + away * rng.standard_normal(truth.experts.coef.shape)
            gate = truth.gate.coef + away * rng.standard_normal(truth.gate.coef.shape)
            model = MoE(SoftmaxGate(gate - gate[-1]), replace(truth.experts, coef=coef))
            found.append(LocalModel(f"site {m}", model, 500.0, 0.0, True, "drawn, not fitted"))
        return found, data

    def run(quick: bool) -> Found:
        messages, data = around()
        asked = problem.prepare(messages, data.X[:2000], 2)
        model = methods.middle(asked, np.random.default_rng(0), methods.PROBLEMS).model
        gap = data.truth.log_density(data.X, data.y) - model.log_density(data.X, data.y)
        return {"nats": float(gap.mean())}

    return Job(run, ("nats", "seconds"))


def merge_sketches(quick: bool) -> Found:
    """Merge at points that are drawn from sketches, with weights by covariates."""
    found = []
    for truth in truths(quick):
        here = regions(truth)
        messages = [
            replace(
                message,
                sketch=Sketch.fit(here.data.X[part], n_components=sketch.N_COMPONENTS),
            )
            for message, part in zip(here.messages, here.parts, strict=True)
        ]
        X = support.support_from(messages, support.N_SUPPORT).rows
        result = merged(messages, X, EXPERTS, "reduction", "covariate")
        flagged = sum(bool(site.flagged) for site in result.sites)
        found.append(seen(result, here) | {"sites flagged": float(flagged)})
    return mean(found)


def few_points(quick: bool) -> Found:
    """Merge at as many points as no warning is given for, and at others."""
    found = []
    for truth in truths(quick):
        here = sites("hard", truth)
        least = problem.POINTS_PER_COLUMN * (FEATURES + 1)
        at_least = merged(here.messages, here.data.X[:least], EXPERTS, "reduction")
        told = 0
        for points in (20, 40, 80, 160):
            result = merged(here.messages, here.data.X[:points], EXPERTS, "reduction")
            told += any(w.code == Warn.SUPPORT_SHORT.code for w in result.warnings)
        found.append({"nats": here.below(at_least.model), "warnings": float(told)})
    return mean(found)


# -- who stands out ----------------------------------------------------------------------------


@cache
def judged_sets(kind: str, seed: int) -> list[tuple[str, list[LocalModel], np.ndarray, set[int]]]:
    return list(screening.sets(screening.KINDS[kind], seed))


def screened(kind: str) -> Job:
    """Return the job of telling two of ten sites that went wrong from the others."""

    def run(quick: bool) -> Found:
        wrong, highest, lowest = 0, -np.inf, np.inf
        for seed in truths(quick, 4):
            for _, messages, X, out in judged_sets(kind, screening.FIRST_SEED + seed):
                verdicts = screen(messages, X)
                wrong += len({m for m, verdict in enumerate(verdicts) if verdict.reasons} ^ out)
                z = np.array([verdict.deviation for verdict in verdicts])
                highest = max(highest, *np.delete(z, list(out)))
                lowest = min(lowest, *z[list(out)]) if out else lowest
        return {
            "sites misjudged": float(wrong),
            "highest z of a good site": float(highest),
            "lowest z of a bad site": float(lowest),
        }

    metrics = ("sites misjudged", "highest z of a good site", "lowest z of a bad site")
    return Job(run, metrics)


def screened_many(quick: bool) -> Found:
    """Tell five sites whose experts have the wrong sign from a hundred and fifteen others."""
    messages, X, _ = drawn("soft", 120)
    out = set(range(0, 120, 24))

    def turned(message: LocalModel) -> LocalModel:
        experts = message.model.experts
        model = replace(message.model, experts=replace(experts, coef=-experts.coef))
        return replace(message, model=model)

    sent = [turned(message) if m in out else message for m, message in enumerate(messages)]
    found = {m for m, verdict in enumerate(screen(sent, X)) if verdict.reasons}
    return {"sites misjudged": float(len(found ^ out))}


def screened_large(quick: bool) -> Found:
    """Tell a site that predicts a little otherwise from others that agree to four digits."""
    data = simulate(2000, EXPERTS, FEATURES, softness=1.0, random_state=SEED)
    rng, experts = np.random.default_rng(SEED), data.truth.experts
    flagged = 0
    for away in (0.02, 0.05, 0.1, 0.2, 0.4):  # of the sd of the noise, in one site's intercepts
        sent = []
        for m in range(8):
            coef = experts.coef * (1 + 1e-4 * rng.standard_normal(experts.coef.shape))
            coef[:, 0] += away * np.sqrt(experts.var) * (m == 0)
            model = replace(data.truth, experts=replace(experts, coef=coef))
            sent.append(LocalModel(f"site {m}", model, 1e7, 0.0, True, "drawn"))
        flagged += sum(bool(verdict.reasons) for verdict in screen(sent, data.X))
    return {"sites flagged": float(flagged)}


def screened_noisy(quick: bool) -> Found:
    """Say whether a site stands out whose rows are less likely, and which predicts as others do."""
    messages, X, _ = drawn("soft", 30)
    rng, flagged = np.random.default_rng(SEED), 0
    level = 0.03 * rng.standard_normal(30)
    for nats in (0.2, 0.4, 0.6, 0.8, 1.6):
        sent = [
            replace(message, log_likelihood=message.n_samples * (level[m] - nats * (m == 0)))
            for m, message in enumerate(messages)
        ]
        flagged += sum(bool(verdict.reasons) for verdict in screen(sent, X))
    return {"sites flagged": float(flagged)}


def screened_apart(quick: bool) -> Found:
    """Compare pairs of sites that have a few points in common."""
    messages, X, _ = drawn("soft", 30)
    models, flagged, unknown = [message.model for message in messages], 0, 0
    for points in (4, 7, 14, 28, 56):
        share = np.zeros((500, len(models)))
        share[:points] = 1.0
        for m in range(len(models)):
            share[points + m :: len(models), m] = 1.0
        found = disagreement.disagreement(models, np.full(len(models), 7812.0), X[:500], share)
        flagged += int(np.sum(found.deviation > disagreement.THRESHOLD))
        unknown += int(np.sum(np.isnan(found.deviation)))
    return {"sites flagged": float(flagged), "sites not compared": float(unknown)}


def screened_regions(quick: bool) -> Found:
    """Compare sites with hardly a region of x in common, where each has rows."""
    flagged = unknown = 0
    for truth in truths(quick):
        here = regions(truth, 0.99)
        sent = [
            replace(message, sketch=Sketch.fit(here.data.X[part]))
            for message, part in zip(here.messages, here.parts, strict=True)
        ]
        found = screen(sent, here.data.X, "covariate")
        flagged += sum(bool(verdict.reasons) for verdict in found)
        unknown += sum(np.isnan(verdict.deviation) for verdict in found)
    return {"sites flagged": float(flagged), "sites not compared": float(unknown)}


def screened_natural(name: str) -> Job:
    """Return the job of looking at parts of a real table that nothing happened to."""

    @cache
    def parts() -> tuple[list[LocalModel], np.ndarray]:
        X, y = table(name)
        family = "gaussian" if name == "diabetes" else "logistic"
        order = np.array_split(np.argsort(X[:, 0], kind="stable"), 5)
        fits = [em(X[p], y[p], 2, family=family, n_init=3, random_state=0) for p in order]
        return [LocalModel.from_fit(fit, f"part {m}") for m, fit in enumerate(fits)], X

    def run(quick: bool) -> Found:
        messages, X = parts()
        return {"sites flagged": float(sum(bool(v.reasons) for v in screen(messages, X)))}

    return Job(run, ("sites flagged",))


@cache
def shards_of_one(truth: int) -> tuple[list[LocalModel], set[int]]:
    """Fit shards of one dataset from a single start each, and say which are in wrong optima."""
    data = simulate(24 * 500, EXPERTS, FEATURES, random_state=truth)
    sent, wrong = [], set()
    for m, part in enumerate(np.split(np.arange(len(data.X)), 24)):
        X, y = data.X[part], data.y[part]
        fit = em(X, y, EXPERTS, n_init=1, random_state=m)
        if fit.log_likelihood < em(X, y, EXPERTS, init=data.truth).log_likelihood - 20:
            wrong.add(m)
        sent.append(LocalModel.from_fit(fit, f"shard {m}"))
    return sent, wrong


def deviating_shards(quick: bool) -> Found:
    """Tell shards in wrong optima from the others by their log-likelihoods."""
    missed = blamed = 0
    for truth in truths(quick, 6):
        sent, wrong = shards_of_one(truth)
        found = set(np.flatnonzero(likelihoods(sent) < -disagreement.THRESHOLD).tolist())
        missed, blamed = missed + len(wrong - found), blamed + len(found - wrong)
    return {"shards missed": float(missed), "shards blamed": float(blamed)}


def likelihoods(sent: list[LocalModel]) -> np.ndarray:
    return disagreement.likelihood_deviations(sent)


# -- fits and rounds ---------------------------------------------------------------------------


def fit(kind: str, rows: int = 3000) -> Job:
    """Return the job of fitting rows of a few truths, starts and all."""

    @cache
    def data(truth: int) -> Simulation:
        return simulate(rows, EXPERTS, FEATURES, random_state=truth, **KINDS[kind])

    def run(quick: bool) -> Found:
        found = []
        for truth in truths(quick):
            some = data(truth)
            family = KINDS[kind].get("family", "gaussian")
            result = em(some.X, some.y, EXPERTS, family=family, n_classes=3, random_state=0)
            short = some.truth.log_density(some.X, some.y).sum() - result.log_likelihood
            found.append({"nats": float(short) / rows, "iterations": float(result.n_iter)})
        return mean(found)

    metrics = ("nats", "iterations")
    return Job(run, (*metrics, "seconds") if rows > 10_000 else metrics)


def halves(X: np.ndarray, y: np.ndarray, n_experts: int, **options: Any) -> Found:
    """Fit the even rows, and say how unlikely the odd ones are."""
    result = em(X[::2], y[::2], n_experts, random_state=0, **options)
    return {"nats": -float(result.model.log_density(X[1::2], y[1::2]).mean())} | passes(result)


def passes(result: Fit) -> Found:
    return {"iterations": float(result.n_iter)}


def fit_table(name: str, n_experts: int = 2) -> Job:
    """Return the job of fitting half of a real table, and predicting the other half."""
    family = "gaussian" if name == "diabetes" else "logistic"
    return Job(lambda quick: halves(*table(name), n_experts, family=family), ("nats", "iterations"))


def fit_ties(quick: bool) -> Found:
    """Fit a response of which a third is one and the same number."""
    found = []
    for truth in truths(quick):
        data = simulate(1500, 2, 3, softness=0.6, random_state=truth)
        y = np.where(np.random.default_rng(truth).random(1500) < 0.3, 0.0, data.y)
        found.append(halves(data.X, y, 3))
    return mean(found)


def fit_wide(quick: bool) -> Found:
    """Fit a model of 905 parameters."""
    data = simulate(2000, 2, 60 if quick else 300, softness=1.0, random_state=SEED)
    result = em(data.X, data.y, 2, init=data.truth)
    short = data.truth.log_density(data.X, data.y).sum() - result.log_likelihood
    return {"nats": float(short) / 2000} | passes(result)


def refine(kind: str, far: bool = False) -> Job:
    """Return the job of refining until done, from the merged model or from a single site's."""

    @cache
    def start(truth: int) -> MoE:
        here = sites(kind, truth)
        if far:  # what some other truth says
            options = KINDS[kind]
            return simulate(10, EXPERTS, FEATURES, random_state=truth + 50, **options).truth
        return merged(here.messages, here.data.X[:2000], EXPERTS, "reduction").model

    def run(quick: bool) -> Found:
        found = []
        for truth in truths(quick):
            here = sites(kind, truth)
            scaling = Scaling.of(here.data.X[:2000])
            state = refine_shards(here.shards, start(truth), "auto", scaling=scaling)
            found.append({"nats": here.below(state.model), "rounds": float(state.rounds)})
        return mean(found)

    return Job(run, ("nats", "rounds"))


def split_shards(kind: str) -> Job:
    """Return the job of splitting rows at random into more shards than they can bear."""

    def run(quick: bool) -> Found:
        found = []
        for truth in truths(quick, 2):
            here = sites(kind, truth)
            X, y = here.data.X[:1200], here.data.y[:1200]
            est = DistributedMoERegressor(
                EXPERTS, n_shards=64, method="reduction", random_state=0
            ).fit(X, y)
            shards = float(len(est.local_models_))
            found.append({"nats": here.below(est.model_), "shards": shards})
        return mean(found)

    return Job(run, ("nats", "shards"))


# -- sketches ----------------------------------------------------------------------------------


def sketched(name: str, rows: int | None = None, columns: int = 0) -> Job:
    """Return the job of sketching half of some covariates; nats are those of the other half."""

    @cache
    def covariates() -> np.ndarray:
        if name in ("diabetes", "cancer"):
            X = table(name)[0][:rows, -columns:]
        else:
            X = simulate(rows or 2000, EXPERTS, FEATURES, random_state=SEED).X
        return (X - X.mean(axis=0)) / X.std(axis=0)

    def run(quick: bool) -> Found:
        X = covariates()
        some = Sketch.fit(X[::2], n_components=sketch.N_COMPONENTS)
        nats = -float(np.mean(some.log_density(X[1::2])))
        return {"nats": nats, "components": float(len(some.weight))}

    metrics = ("nats", "components")
    return Job(run, (*metrics, "seconds") if rows and rows > 10_000 else metrics)


# -- what is said about the answer -------------------------------------------------------------


def inferred(kind: str) -> Job:
    """Return the job of counting what a table of standard errors leaves out or warns about."""

    @cache
    def rows() -> list[tuple[np.ndarray, np.ndarray]]:
        if kind == "cancer":
            return [table(kind)]
        some = [simulate(2000, EXPERTS, FEATURES, random_state=t, **KINDS[kind]) for t in range(3)]
        return [(data.X, data.y) for data in some]

    def run(quick: bool) -> Found:
        unknown = moved = 0
        family, K = ("logistic", 2) if kind == "cancer" else ("gaussian", EXPERTS)
        for X, y in rows():
            model = em(X, y, K, family=family, random_state=0).model
            result = observed_inference(model, X, y)
            known = result.covariance.determined(np.eye(model.n_parameters))
            unknown += int(np.sum(~known))
            told = [w for w in result.warnings if w.code == Warn.RIDGE_MOVED.code]
            moved += len(told)
        return {"not identified": float(unknown), "warnings": float(moved)}

    return Job(run, ("not identified", "warnings"))


def refused(quick: bool) -> Found:
    """Ask for standard errors after three to eight refine rounds."""
    count = 0
    for kind in ("hard", "soft", "overlap"):
        here = sites(kind, 0)
        start = merged(here.messages, here.data.X[:2000], EXPERTS, "reduction").model
        for rounds in range(3, 9):
            scaling = Scaling.of(here.data.X[:2000])
            state = refine_shards(here.shards, start, rounds, scaling=scaling)
            try:
                refined_inference(state)
            except InferenceError:
                count += 1
    return {"refused": float(count)}


def reported(quick: bool) -> Found:
    """Count what a report finds to say where one site is large, or has an expert for itself."""
    count = 0
    for truth in truths(quick):
        here, alone = sites("hard", truth), regions(truth, 1.0)
        for source, factors in ((here, (1, 3, 8, 14, 40)), (alone, (1, 10))):
            for factor in factors:
                first, *others = [replace(message, grams=None) for message in source.messages]
                rows, nats = factor * first.n_samples, factor * first.log_likelihood
                sent = [replace(first, n_samples=rows, log_likelihood=nats), *others]
                result = merged(sent, source.data.X[:2000], EXPERTS + 1, "reduction")
                record = typed(AggregationRecord, result.document(), "aggregation")
                count += len(page_data(result.model, record, None, {}, "")["checks"])
    return {"findings": float(count)}


@cache
def counted(kind: str, true: int, rows: int) -> tuple[tuple[LocalModel, ...], np.ndarray]:
    data = simulate(6 * rows, true, 3, random_state=SEED, **KINDS[kind])
    parts = np.split(np.arange(6 * rows), 6)
    fits = [em(data.X[p], data.y[p], 5, n_init=3, random_state=0) for p in parts]
    sent = [LocalModel.from_fit(fit, f"site {m}") for m, fit in enumerate(fits)]
    return tuple(sent), data.X[:1000]


def elbow(quick: bool) -> Found:
    """Choose K by the elbow at sites of few and of many rows, and count what is remarked."""
    wrong = notes = 0
    kinds = [("hard", 1), ("hard", 2), ("hard", 3), ("soft", 2), ("overlap", 2), ("overlap", 3)]
    for kind, true in kinds[:2] if quick else kinds:
        for rows in (200,) if quick else (200, 500, 1000):
            sent, support = counted(kind, true, rows)
            found = select_from_messages(sent, support, range(1, 5), criterion="elbow")
            wrong += found.n_experts != true
            notes += len(found.notes)
    return {"wrong K": float(wrong), "warnings": float(notes)}


@cache
def chosen(truth: int) -> Any:
    """Fit one to six experts, by a single start: more of them are not always likelier."""
    data = simulate(400, 2, 3, overlap=True, random_state=truth)
    est = MoERegressor(n_init=1, random_state=truth)
    return select_n_experts(data.X, data.y, range(1, 7), estimator=est)


JOBS: dict[str, Job] = {
    **{f"merge {kind}": merge(kind) for kind in KINDS if kind not in ("half", "multinomial")},
    "merge 30 sites": merge_many("hard", 30),
    "merge 60 sites": merge_many("hard", 60),
    "merge 60 soft sites": merge_many("soft", 60),
    **{f"gram {kind}": merge_gram(kind) for kind in ("hard", "half", "soft")},
    **{f"densities {kind}": merge_densities(kind) for kind in ("hard", "soft", "poisson")},
    **{f"choose {kind}": merge_densities(kind, "auto") for kind in ("hard", "soft")},
    "middle of 30": middle(30),
    "middle of 100": middle(100),
    "middle of 300": middle(300),
    "merge by sketches": Job(merge_sketches, ("nats", "R_c", "sites flagged", "seconds")),
    "merge at few points": Job(few_points, ("nats", "warnings")),
    **{
        f"screen {kind}": screened(kind)
        for kind in ("hard", "soft", "logistic", "multinomial", "poisson")
    },
    "screen 120 sites": Job(screened_many, ("sites misjudged", "seconds")),
    "screen large sites": Job(screened_large, ("sites flagged",)),
    "screen a noisy site": Job(screened_noisy, ("sites flagged",)),
    "screen sites apart": Job(screened_apart, ("sites flagged", "sites not compared")),
    "screen regions": Job(screened_regions, ("sites flagged", "sites not compared")),
    "screen diabetes": screened_natural("diabetes"),
    "screen cancer": screened_natural("cancer"),
    "shards of one": Job(deviating_shards, ("shards missed", "shards blamed")),
    **{f"fit {kind}": fit(kind) for kind in ("hard", "overlap", "logistic", "poisson")},
    "fit multinomial": fit("multinomial", 1500),
    "fit 30000 rows": fit("soft", 30_000),
    "fit diabetes": fit_table("diabetes"),
    "fit cancer": fit_table("cancer"),
    "fit ties": Job(fit_ties, ("nats", "iterations")),
    "fit 905 parameters": Job(fit_wide, ("nats", "iterations", "seconds")),
    **{f"refine {kind}": refine(kind) for kind in ("hard", "soft", "overlap")},
    "refine from afar": refine("soft", far=True),
    "split hard": split_shards("hard"),
    "split soft": split_shards("soft"),
    "sketch diabetes": sketched("diabetes"),
    "sketch cancer": sketched("cancer"),
    "sketch 60 rows": sketched("cancer", 60, 2),
    "sketch 90000 rows": sketched("simulated", 90_000),
    **{f"infer {kind}": inferred(kind) for kind in ("hard", "half", "soft", "cancer")},
    "infer after rounds": Job(refused, ("refused",)),
    "report": Job(reported, ("findings",)),
    "elbow": Job(elbow, ("wrong K", "warnings")),
}
