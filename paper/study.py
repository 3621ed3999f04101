"""The simulation study: every estimator, in the paper's metrics and in parameters.

For each truth rows are drawn, fitted whole (the centralised fit, G), and split into shards, whose
local models are merged in one round and then refined, round by round. One row of the CSV is one
estimator. Seconds are those of one core: the learning time of a merged model is that of the slowest
shard plus that of the merging, as in the paper, and of the slowest shard in every refine round.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np
from loky import ProcessPoolExecutor
from rich.console import Console
from threadpoolctl import threadpool_limits

from otmoe import LocalModel, MoE, aggregate, draw_support, simulate
from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.shards import RowsShard, split
from otmoe.datasets.simulation import Simulation
from otmoe.distributed.fit import fit_shards
from otmoe.distributed.result import DistributedFit
from otmoe.evaluation.metrics import evaluate
from otmoe.likelihood.fit import Fit, em
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from paper.learning import learning_times
from paper.refining import refined
from studies.machines import OtherWork, environment
from studies.rows import Row, append, read
from studies.truths import KINDS

RESULTS = Path(__file__).parent / "results"
FEATURES, EXPERTS, TEST, POINTS = 20, 4, 25_000, 4_000
ONE_ROUND = ("reduction", "middle", "weighted_average", "aligned_average", "gram", "kl", "auto")
OWN = ("kl", "auto")  # that look at each site's model at the covariates of its own rows
WITH_GRAMS = ("gram", *OWN)
ROUNDS = 4  # that are looked at one by one
SITES = (4, 16, 64, 128)


@dataclass(frozen=True)
class Part:
    """One part of the study.

    Attributes
    ----------
    kind : str
        Of truth, by the names of the benchmarks.
    rows, truths : int
    sites : tuple of int
    refined : tuple of str
        Methods from which refine rounds set out.
    experts, features, test : int
        Of the truths; rows to judge by.
    """

    kind: str
    rows: int
    truths: int
    sites: tuple[int, ...] = SITES
    refined: tuple[str, ...] = ("gram",)
    experts: int = EXPERTS
    features: int = FEATURES
    test: int = TEST


STUDIES = {
    "rounds": [
        Part(kind, 100_000, 10, (16, 64, 128), ("gram", "reduction"))
        for kind in ("hard", "soft", "overlap")
    ],
    "paper": [
        Part("hard", 1_000_000, 20),
        Part("hard", 500_000, 20),
        Part("hard", 100_000, 100),
    ],
    "consistency": [
        Part(kind, rows, 20, (16,))
        for kind in ("hard", "soft")
        for rows in (20_000, 50_000, 100_000, 200_000, 500_000)
    ],
    "quick": [
        Part("hard", 20_000, 2, (4, 16), ("gram", "reduction")),
        Part("hard", 50_000, 2, (4, 16)),
        Part("soft", 20_000, 2, (16,), ("gram", "reduction")),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.study", description=__doc__)
    parser.add_argument("studies", nargs="+", choices=list(STUDIES))
    parser.add_argument("--truths", type=int, help="fewer truths than the study has")
    parser.add_argument("--jobs", type=int, default=1, help="truths looked at side by side")
    parser.add_argument("--device", default="cpu", help="where rows are fitted, such as cuda")
    parser.add_argument("--out", type=Path, default=RESULTS / "study.csv")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    parts = [part for name in args.studies for part in STUDIES[name]]
    run(parts, args.out, args.truths, args.jobs, args.device, console)


def run(
    parts: list[Part],
    path: Path,
    truths: int | None,
    jobs: int,
    device: str,
    console: Console,
    pool_of: Callable[[int], Executor] = ProcessPoolExecutor,
) -> None:
    """Add to the CSV what it lacks, each truth as soon as it is known."""
    known = {key_of(row) for row in read(path)}
    todo = [
        (part, truth)
        for part in parts
        for truth in range(part.truths if truths is None else min(truths, part.truths))
        if not wanted(part, truth) <= known
    ]
    start = perf_counter()
    with pool_of(jobs) as pool:
        futures = {
            pool.submit(one_truth, part, truth, known, device): (part, truth)
            for part, truth in todo
        }
        for number, future in enumerate(as_completed(futures), 1):
            part, truth = futures[future]
            for row in future.result():
                if key_of(row) not in known:
                    append(path, row)
                    known.add(key_of(row))
            console.print(
                f"{number}/{len(todo)}: {part.kind}, {part.rows:,} rows, truth {truth}: "
                f"{perf_counter() - start:.0f} s so far",
                highlight=False,
            )


Key = tuple[str, ...]


def key_of(row: Row) -> Key:
    return tuple(str(row[name]) for name in ("kind", "rows", "truth", "sites", "method", "refine"))


def wanted(part: Part, truth: int) -> set[Key]:
    """Return the keys of the rows that a truth has in the CSV once it is done."""
    about = (part.kind, str(part.rows), str(truth))
    rounds = [*map(str, range(1, ROUNDS + 1)), "auto"]
    return {(*about, "1", "centralised", "0")} | {
        (*about, str(M), method, refine)
        for M in part.sites
        for method in {*ONE_ROUND, *part.refined}
        for refine in ["0", *(rounds if method in part.refined else [])]
    }


def on_device(data: Simulation, device: str) -> Simulation:
    """Return the rows as tensors on a device; as they are, for the cpu."""
    if device == "cpu":
        return data
    import torch

    X, y = torch.asarray(data.X, device=device), torch.asarray(data.y, device=device)
    return replace(data, X=X, y=y)


def name_of(device: str) -> str:
    if device == "cpu":
        return device
    import torch

    return torch.cuda.get_device_name(device)


def one_truth(part: Part, truth: int, known: set[Key], device: str) -> list[Row]:
    """Return the rows of a truth that are not known, and of methods of which some are not.

    The fit of all rows is made where it lacks, and where refine rounds are measured against it.
    """
    about = {"kind": part.kind, "rows": part.rows, "truth": truth, "device": name_of(device)}
    lacking = wanted(part, truth) - known
    data = simulate(part.rows, part.experts, part.features, random_state=truth, **KINDS[part.kind])
    test = data.draw(part.test, truth + 1000)
    points = draw_support([data.X], POINTS, random_state=truth).rows
    data = on_device(data, device)
    rows: list[Row] = []
    whole = None
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about shards left out: a column counts them
        if any("centralised" in key or "auto" in key[-1] for key in lacking):
            start, other = perf_counter(), OtherWork()
            whole = em(data.X, data.y, part.experts, random_state=truth)
            seconds = perf_counter() - start
            rows.append(
                about
                | {"sites": 1, "method": "centralised", "refine": "0", "rounds": 0}
                | judged(whole.model, data, test)
                | {"to_mle": 0.0, "same_optimum": True, "converged": whole.converged}
                | {"site_bytes": 0, "refitted": 0, "left_out": 0}
                | {"local_seconds": seconds, "merging_seconds": 0.0, "refine_seconds": 0.0}
                | {"learning_seconds": seconds, "other_cores_busy": other.cores()}
                | environment()
            )
        for M in part.sites:
            methods = {key[4] for key in lacking if key[3] == str(M)}
            if methods:
                rows += estimators(about, part, M, methods, data, test, points, whole)
    return rows


def estimators(
    about: Row,
    part: Part,
    M: int,
    methods: set[str],
    data: Simulation,
    test: Simulation,
    support: Floats,
    whole: Fit | None,
) -> Iterator[Row]:
    """Fit the shards once, merge them by some methods, and refine."""
    seed = about["truth"]
    parts = split(part.rows, M, data.truth.n_parameters, np.random.default_rng(seed))
    shards = [
        RowsShard(f"shard {i}", data.X, data.y, index=index) for i, index in enumerate(parts, 1)
    ]
    other = OtherWork()
    fit = fit_shards(shards, part.experts, method="gram", n_support=POINTS, random_state=seed)
    local, agreeing = learning_times(fit)
    left_out = fit.aggregation.left_out
    messages = [message for message in fit.local_models if message.site not in left_out]
    here = [shard for shard in shards if shard.name not in left_out]
    own = draw_support({shard.name: to_numpy(shard.read().X) for shard in here}, POINTS)
    for method in (name for name in ONE_ROUND if name in methods):
        result = aggregate(messages, own if method in OWN else support, method=method)
        size = sent(messages, with_grams=method in WITH_GRAMS)
        first = about | {"sites": M, "method": method}
        merging = result.timings["total"] + agreeing
        steps = range(1, ROUNDS + 1)
        for refine, state, refining in [
            ("0", None, 0.0),
            *(refined(result.model, support, here, steps) if method in part.refined else ()),
        ]:
            model = result.model if state is None else state.model
            rounds = 0 if state is None else state.rounds
            distance, same = "", ""
            if refine == "auto" and whole is not None:
                distance, same = to_mle(model, data, whole)
            yield (
                first
                | {"refine": refine, "rounds": rounds}
                | judged(model, data, test)
                | {"to_mle": distance, "same_optimum": same}
                | {"converged": result.converged if state is None else state.converged}
                | {"site_bytes": size, **counted(fit)}
                | {"local_seconds": local, "merging_seconds": merging}
                | {"refine_seconds": refining, "learning_seconds": local + merging + refining}
                | {"other_cores_busy": other.cores()}
                | environment()
            )


def to_mle(model: MoE, data: Simulation, whole: Fit) -> tuple[float, bool]:
    """Return the distance to the maximum nearby, in standard errors, and whether it is G's."""
    mle = em(data.X, data.y, model.n_experts, init=model)
    there = mle.model.aligned_to(model, to_numpy(data.X[:POINTS, :]))
    step = model.to_vector() - there.to_vector()
    matrix = observed_information(there, Rows(data.X, data.y)).matrix
    same = abs(mle.log_likelihood - whole.log_likelihood) < 0.01
    return float(np.sqrt(max(step @ matrix @ step, 0.0))), same


def judged(model: MoE, data: Simulation, test: Simulation) -> Row:
    """Return the paper's metrics on new rows, and the nats per row below the truth."""
    found = evaluate(model, test.X, test.y, test.z, data.truth)
    true = float(data.truth.log_density(test.X, test.y).mean())
    return {"below_truth": true - found["log_likelihood"], **found}


def sent(messages: list[LocalModel], with_grams: bool) -> int:
    """Return the bytes of a site's message, on average."""
    some = list(islice(messages, 4))
    kept = some if with_grams else [replace(message, grams=None) for message in some]
    return round(float(np.mean([len(message.to_json().encode()) for message in kept])))


def counted(fit: DistributedFit) -> Row:
    return {
        "refitted": len(fit.refitted),
        "left_out": len(fit.aggregation.left_out),
    }


if __name__ == "__main__":
    main()
