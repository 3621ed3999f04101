"""What the published formulas change, on simulated data: each of them beside the exact one.

Sites are fitted and pooled once for every truth. From the same start (the experts of the middle
model) and on the same N/M support rows, the MM iterations are run with

* the exact updates, the gate fitted to the mass that each expert receives;
* the published variance, which is the mean of the local variances: how far the local means lie from
  the new one is lost;
* the gate target of the published code, the posterior given the y of the support rows;
* both;
* for logistic experts the published closed form, least squares on the logits of the averaged
  probabilities. It has no value at rows without mass or at probabilities 0 and 1: the first are
  left out and the second kept 1e-6 away, which is the kindest reading.

Beside them stand `otmoe.aggregate`, all rows in one place, and the aggregate with its gate erased,
which the published distance (the relaxed divergence) cannot tell from the one it has; then merged
densities (kl) and the server's choice (auto), from the same messages.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from otmoe import LocalModel, MoE, aggregate, simulate
from otmoe.arrays.numerics import design
from otmoe.data.shards import RowsShard, split
from otmoe.datasets.simulation import Simulation
from otmoe.distributed.fit import fit_shards
from otmoe.evaluation.metrics import evaluate
from otmoe.likelihood.fit import em
from otmoe.model.divergence import kl, relaxed_divergence
from otmoe.model.ensemble import Ensemble, pool
from otmoe.model.experts import Experts, Response
from otmoe.model.gate import SoftmaxGate
from otmoe.model.target import Target
from paper.pages import PAGE, write_page
from paper.real import (
    RESULTS,
    Results,
)
from studies.machines import OtherWork
from studies.rows import Row, read
from studies.tables import Cells, console, figure, show

SITES, TEST, ITERATIONS = 16, 25_000, 200
KINDS = {
    "hard": {"n_samples": 100_000, "n_experts": 4, "n_features": 20, "softness": 0.0},
    "soft": {"n_samples": 100_000, "n_experts": 4, "n_features": 20, "softness": 1.0},
    "logistic": {"n_samples": 40_000, "n_experts": 3, "n_features": 8, "softness": 1.0},
}
KEYS = ("kind", "rows", "truth", "variant")

Update = Callable[[np.ndarray, np.ndarray, Response, Experts], Experts]
"""Called as update(design (S, p), mass (S, L, K), what the sources predict, experts)."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.variants", description=__doc__)
    parser.add_argument("--truths", type=int, default=3)
    parser.add_argument("--out", type=Path, help="the CSV; by default paper/results/variants.csv")
    parser.add_argument("--quick", action="store_true", help="few rows, and a CSV of its own")
    parser.add_argument("--show", action="store_true", help="only print what the CSV holds")
    parser.add_argument("--docs", action="store_true", help="write the table of docs/real_data.md")
    args = parser.parse_args()
    args.out = args.out or RESULTS / f"variants{'_quick' if args.quick else ''}.csv"
    out = console()
    if not (args.show or args.docs):
        results = Results(args.out, KEYS, out)
        for kind in KINDS:
            for truth in range(1 if args.quick else args.truths):
                study(kind, truth, results, 10 if args.quick else 1)
    rows = read(args.out)
    if args.docs:
        write_page("variants", tables(rows), rows, PAGE)
    else:
        show(tables(rows), out)


# -- the variants --------------------------------------------------------------------------------


def exact(Z: np.ndarray, mass: np.ndarray, sources: Response, experts: Experts) -> Experts:
    """Return the KL barycentres: the weighted fit to what the sources predict."""
    weight = mass.sum(axis=1)
    safe = np.where(weight > 0, weight, 1.0)
    mean = np.einsum("slk,sl->sk", mass, sources.mean) / safe
    second = np.einsum("slk,sl->sk", mass, sources.var + sources.mean**2) / safe
    return experts.fit(Z, Response(mean, np.maximum(second - mean**2, 0.0)), weight)


def published_variance(
    Z: np.ndarray, mass: np.ndarray, sources: Response, experts: Experts
) -> Experts:
    """Return the exact coefficients with the mean of the local variances."""
    var = np.einsum("slk,sl->k", mass, sources.var) / mass.sum(axis=(0, 1))
    return replace(exact(Z, mass, sources, experts), var=var)


def closed_form(Z: np.ndarray, mass: np.ndarray, sources: Response, experts: Experts) -> Experts:
    """Return least squares on the logits of the averaged probabilities."""
    coef = []
    for k in range(experts.n_experts):
        weight = mass[:, :, k].sum(axis=1)
        there = weight > 0
        mean = np.einsum("sl,sl->s", mass[:, :, k], sources.mean)[there] / weight[there]
        mean = np.clip(mean, 1e-6, 1 - 1e-6)
        coef.append(np.linalg.lstsq(Z[there], np.log(mean / (1 - mean)), rcond=None)[0])
    return replace(experts, coef=np.array(coef))


def descend(
    pooled: Ensemble, X: np.ndarray, experts: Experts, update: Update
) -> tuple[Experts, np.ndarray, list[float]]:
    """Iterate plan and update until R_c stands still; return experts, mass (S, L, K), trace."""
    Z = design(X)
    prob, sources = pooled.gate.prob(Z), pooled.experts.response(pooled.experts.predictor(Z))
    var = np.broadcast_to(sources.var, sources.mean.shape)
    sources = Response(sources.mean, var)
    trace: list[float] = []
    while True:
        cost = kl(pooled.experts, experts, Z)
        mass = prob[:, :, None] * (cost.argmin(axis=2)[:, :, None] == np.arange(cost.shape[2]))
        trace.append(float((mass * cost).sum(axis=(1, 2)).mean()))
        still = len(trace) > 1 and abs(trace[-1] - trace[-2]) <= 1e-10 * trace[0]
        if still or len(trace) > ITERATIONS:
            return experts, mass, trace
        experts = update(Z, mass, sources, experts)


def gate_to(target: np.ndarray, X: np.ndarray, start: SoftmaxGate) -> SoftmaxGate:
    return start.fit(design(X), target)


def posterior(pooled: Ensemble, X: np.ndarray, y: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return how probable each expert is at a support row whose y is known, (S, K)."""
    source = pooled.responsibilities(X, y)
    share = mass / np.maximum(mass.sum(axis=2, keepdims=True), 1e-300)
    return np.einsum("sl,slk->sk", source, share)


# -- the study -----------------------------------------------------------------------------------


def study(kind: str, truth: int, results: Results, fewer: int) -> None:
    """Add one truth to the CSV, unless it is there."""
    options = KINDS[kind] | {"n_samples": KINDS[kind]["n_samples"] // fewer}
    family = "logistic" if kind == "logistic" else "gaussian"
    about = {"kind": kind, "rows": options["n_samples"], "truth": truth}
    parts = [(variants, "gate erased"), (densities, "auto")]
    todo = [found for found, last in parts if results.lacks(**about, variant=last)]
    if not todo:
        return
    data = simulate(**options, family=family, random_state=truth)
    test = data.draw(TEST // fewer, truth + 1000)
    other = OtherWork()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about shards left out
        sites = fitted(data, truth)
        for variant, model, trace in chain(*(found(data, *sites, truth) for found in todo)):
            row = about | {"variant": variant} | judged(model, data, test)
            row |= {"iterations": "", "rises": "", "objective": ""}
            if trace:
                rises = np.diff(trace) > 1e-9 * trace[0]
                row |= {"iterations": len(rises), "rises": int(rises.sum()), "objective": trace[-1]}
            results.add(row | {"other_cores_busy": other.cores()})


def fitted(data: Simulation, seed: int) -> tuple[list[RowsShard], list[LocalModel]]:
    """Fit the sites, and return those that agree and their messages."""
    parts = split(len(data.y), SITES, data.truth.n_parameters, np.random.default_rng(seed))
    shards = [
        RowsShard(f"shard {i}", data.X, data.y, index=part) for i, part in enumerate(parts, 1)
    ]
    target, K = Target.of(data.truth), data.truth.n_experts
    fit = fit_shards(shards, K, method="gram", target=target, random_state=seed)
    left_out = fit.aggregation.left_out
    messages = [message for message in fit.local_models if message.site not in left_out]
    return [shard for shard in shards if shard.name not in left_out], messages


Variant = tuple[str, MoE, list[float]]
"""Its name, the model, and the trace of its objective."""


def densities(
    data: Simulation, shards: list[RowsShard], messages: list[LocalModel], seed: int
) -> Iterator[Variant]:
    """Yield what merges densities instead of experts, at each site's own covariates."""
    own = {shard.name: shard.read().X for shard in shards}
    for method in ("kl", "auto"):
        yield method, aggregate(messages, own, method=method).model, []


def variants(
    data: Simulation, shards: list[RowsShard], messages: list[LocalModel], seed: int
) -> Iterator[Variant]:
    """Yield every variant of the reduction."""
    K, n, family = data.truth.n_experts, len(data.y), data.truth.experts.family
    yield "centralised", em(data.X, data.y, K, random_state=seed, family=family).model, []
    chosen = np.random.default_rng(seed).choice(n, n // SITES, replace=False)
    X, y = data.X[chosen], data.y[chosen]
    ours = aggregate(messages, X, method="reduction")
    yield "otmoe.aggregate", ours.model, ours.trace.tolist()
    pooled = pool([m.model for m in messages], np.array([m.n_samples for m in messages]))
    middle = aggregate(messages, X, method="middle").model
    run = partial(descend, pooled, X, middle.experts)

    def model_of(experts: Experts, target: np.ndarray) -> MoE:
        return MoE(gate_to(target, X, middle.gate), experts)

    experts, mass, trace = run(exact)
    yield "exact", model_of(experts, mass.sum(axis=1)), trace
    yield "posterior gate target", model_of(experts, posterior(pooled, X, y, mass)), trace
    if family == "gaussian":
        experts, mass, trace = run(published_variance)
        yield "published variance", model_of(experts, mass.sum(axis=1)), trace
        yield "both as published", model_of(experts, posterior(pooled, X, y, mass)), trace
    else:
        experts, mass, trace = run(closed_form)
        yield "published closed form", model_of(experts, mass.sum(axis=1)), trace
    blank = SoftmaxGate.blank(K, X.shape[1] + 1)
    yield "gate erased", replace(ours.model, gate=blank), []


def judged(model: MoE, data: Simulation, test: Simulation) -> Row:
    """Return errors of parameters, nats below the truth, and both distances to it."""
    found = evaluate(model, test.X, test.y, test.z, data.truth)
    true = float(data.truth.log_density(test.X, test.y).mean())
    return {
        "below_truth": true - found["log_likelihood"],
        "relaxed": relaxed_divergence(data.truth, model, test.X),
        "transport": found["transport"],
        **{f"mse_{name}": found.get(f"mse_{name}", "") for name in ("gate", "coef", "var")},
    }


# -- reading -------------------------------------------------------------------------------------

SHOWN = {
    "below_truth": "nats below truth",
    "mse_gate": "MSE gate",
    "mse_coef": "MSE experts",
    "mse_var": "MSE variance",
    "relaxed": "relaxed distance (published)",
    "transport": "T_c",
    "objective": "R_c at the end",
}


def tables(rows: list[Row]) -> list[Cells]:
    """Return a table for each kind: medians over truths, and how often the objective rose."""
    found = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        of_kind = [row for row in rows if row["kind"] == kind]
        body = []
        for variant in dict.fromkeys(row["variant"] for row in of_kind):
            mine = [row for row in of_kind if row["variant"] == variant]
            cells = []
            for key in SHOWN:
                values = [float(row[key]) for row in mine if row[key] != ""]
                cells.append(figure({key: median(values)} if values else {}, key, ".3g"))
            steps = [(int(r["rises"]), int(r["iterations"])) for r in mine if r["iterations"]]
            rose = f"{sum(a for a, _ in steps)} of {sum(b for _, b in steps)}" if steps else "–"
            body.append([variant, *cells, rose])
        truths = len({row["truth"] for row in of_kind})
        title = (
            f"{kind}: {int(of_kind[0]['rows']):,} rows, {SITES} sites, medians of {truths} truths"
        )
        found.append((title, ["variant", *SHOWN.values(), "steps in which R_c rose"], body))
    return found


if __name__ == "__main__":
    main()
