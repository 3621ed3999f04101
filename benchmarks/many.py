"""Messages of very many sites: in groups against all at once, and folders of files.

At 1,000 sites both ways are taken, and the figures say what groups lose. Folders of 10,000 and
100,000 messages are merged by the command line, reading included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from benchmarks.reduction import problem
from otmoe import MoE, MoERegressor, aggregate, load_model
from studies.rows import Row
from studies.truths import draw

SUPPORT, TEST, SITES = 2000, 20_000, 1000


def cases(settings: Settings) -> list[Row]:
    few = [
        {"kind": kind, "sites": SITES, "from": "memory", "method": method, "group": size}
        for kind in ("hard", "soft")
        for method in ("reduction", "kl")
        for size in (SITES, 100)
    ]
    many = [(3000, "reduction")]
    if not settings.quick:
        many = [(10_000, "reduction"), (10_000, "auto"), (100_000, "reduction")]
    return few + [
        {"kind": "hard", "sites": M, "from": "files", "method": method, "group": 100}
        for M, method in many
    ]


def measure(case: Row, settings: Settings) -> Row:
    found = in_memory if case["from"] == "memory" else from_files
    model, seconds, above = found(case)
    return {
        "seconds": seconds,
        "rate": case["sites"] / seconds,
        "lost": lost(case["kind"], model),
        "process_mb": above,
    }


def lost(kind: str, model: MoE) -> float:
    """Return the nats per row that fresh rows lose by a model, to the truth that they come from."""
    data = draw(kind, SUPPORT + TEST, SEED)
    X, y = data.X[SUPPORT:], data.y[SUPPORT:]
    own, best = (MoERegressor.from_model(m).log_density(X, y).mean() for m in (model, data.truth))
    return float(best - own)


def in_memory(case: Row) -> tuple[MoE, float, str]:
    """Merge on one core."""
    messages, X = problem(case["kind"], case["sites"], SUPPORT)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        aggregate(messages[:4], X, method=case["method"])
        begin = perf_counter()
        found = aggregate(messages, X, method=case["method"], group_size=case["group"])
        return found.model, perf_counter() - begin, ""


def from_files(case: Row) -> tuple[MoE, float, float]:
    """Merge a folder by the command line, on all cores; return the largest process in MB too."""
    with TemporaryDirectory() as folder:
        inbox, out = Path(folder, "inbox"), Path(folder, "model.json")
        write(inbox, case["kind"], case["sites"])
        command = f"-m otmoe aggregate {inbox} --support {folder}/support.parquet --quiet -o {out}"
        begin = perf_counter()
        subprocess.run(
            [sys.executable, *command.split(), "--method", case["method"]],
            check=True,
            capture_output=True,
        )
        seconds = perf_counter() - begin
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        return load_model(out), seconds, largest


def write(inbox: Path, kind: str, n_sites: int) -> None:
    """Write messages of sites near one truth, as `reduction.problem` has them, and the support."""
    inbox.mkdir()
    (first,), X = problem(kind, 1, SUPPORT)
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    pq.write_table(pa.table(columns), inbox.parent / "support.parquet")
    rng, truth, rows = np.random.default_rng(SEED), draw(kind, 2, SEED).truth, first.n_samples
    sd = np.sqrt(truth.experts.var * truth.n_experts / rows)[:, None]
    document = first.document()
    for m in range(n_sites):
        coef = truth.experts.coef + sd * rng.standard_normal(truth.experts.coef.shape)
        var = truth.experts.var * np.exp(np.sqrt(8 / rows) * rng.standard_normal(truth.n_experts))
        gate = truth.gate.coef * (1 + np.sqrt(20 / rows) * rng.standard_normal())
        gate = gate + np.sqrt(20 / rows) * rng.standard_normal(gate.shape)
        document["site"] = f"site {m}"
        document["model"]["gate"]["coef"] = (gate - gate[-1]).tolist()
        document["model"]["experts"] = {"coef": coef.tolist(), "var": var.tolist()}
        (inbox / f"site-{m:06d}.moe.json").write_text(json.dumps(document))


BENCHMARK = Benchmark(
    "many",
    f"Sites merged in groups, and all at once ({SUPPORT:,} support points, d=20, K=4)",
    cases,
    measure,
    (
        Column("kind", "data"),
        Column("sites", "sites", "{:,.0f}"),
        Column("from", "from"),
        Column("method", "method"),
        Column("group", "sites at a time", "{:,.0f}"),
        Column("seconds", "seconds", "{:.1f}"),
        Column("rate", "sites a second", "{:,.0f}"),
        Column("lost", "nats below truth", "{:.6f}"),
        Column("process_mb", "largest process, MB", "{:,.0f}"),
    ),
    (
        Requirement(
            "seconds",
            "10,000 messages from files, by the reduction",
            at_most=30,
            of=lambda row: str(row["sites"]) == "10000" and row["method"] == "reduction",
        ),
        Requirement(
            "seconds",
            "100,000 messages from files",
            at_most=300,
            of=lambda row: str(row["sites"]) == "100000",
        ),
    ),
)
