"""The whole reduction, all its starts included, against ONE plain MM iteration on whole tensors.

The sites are not fitted: they are truths with errors of the size that a fit to their rows would
have. The plain iteration is what one would write first: all S x L x K costs at once, in NumPy. It
is given the sites' masses and predictions; the reduction computes them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings, ratio, side_by_side
from benchmarks.memory import MB, resident
from otmoe import LocalModel, MoE, aggregate
from otmoe.model.ensemble import pool
from otmoe.model.gate import SoftmaxGate
from studies.rows import Row
from studies.truths import draw

ROWS = 7812  # of a site: a million rows at 128 sites


def cases(settings: Settings) -> list[Row]:
    few = [
        {"kind": kind, "sites": M, "support": S, "threads": n}
        for kind in ("hard", "soft")
        for n in settings.threads
        for M, S in [(128, 7812), (4, 250_000)]
    ]
    many = [
        {"kind": "soft", "sites": 4096, "support": 7812, "threads": n} for n in settings.threads
    ]
    return few + many


def measure(case: Row, settings: Settings) -> Row:
    M, S, threads = case["sites"], case["support"], case["threads"]
    if settings.quick:
        S //= 10
    messages, X = problem(case["kind"], M, S)
    plain = Plain(messages, X) if M <= 128 else None

    results = []

    def ours() -> None:
        results[:] = [aggregate(messages, X, method="reduction", n_jobs=threads)]

    actions = {"otmoe": ours} if plain is None else {"otmoe": ours, "plain": plain.iterate}
    with threadpool_limits(threads):
        seconds = side_by_side(actions, 1 if settings.quick or plain is None else 5)
    own = median(seconds["otmoe"])
    few = few_sites(case["kind"], S, threads) if M > 128 else None
    return {
        "support": S,
        "otmoe_seconds": own,
        "plain_seconds": median(seconds["plain"]) if plain else "",
        "plain_iterations": ratio(seconds["otmoe"], seconds["plain"]) if plain else "",
        "mm_iterations": len(results[0].trace) - 1,
        "growth": own / few / (M / 128) if few else "",
        "above_mb": memory(case["kind"], M, S, threads),
    }


@cache
def few_sites(kind: str, S: int, threads: int) -> float:
    """Return seconds of the reduction of 128 sites on the same support."""
    messages, X = problem(kind, 128, S)
    with threadpool_limits(threads):
        runs = side_by_side(
            {"otmoe": lambda: aggregate(messages, X, method="reduction", n_jobs=threads)}, 3
        )
    return median(runs["otmoe"])


def problem(kind: str, M: int, S: int) -> tuple[list[LocalModel], np.ndarray]:
    """Return M sites near one truth, and S support points."""
    data = draw(kind, S, SEED)
    rng = np.random.default_rng(SEED)
    truth, rows = data.truth, float(ROWS)
    sd = np.sqrt(truth.experts.var * truth.n_experts / rows)[:, None]

    def site(m: int) -> LocalModel:
        experts = type(truth.experts)(
            truth.experts.coef + sd * rng.standard_normal(truth.experts.coef.shape),
            truth.experts.var * np.exp(np.sqrt(8 / rows) * rng.standard_normal(truth.n_experts)),
        )
        gate = truth.gate.coef * (1 + np.sqrt(20 / rows) * rng.standard_normal())
        gate = gate + np.sqrt(20 / rows) * rng.standard_normal(gate.shape)
        model = MoE(SoftmaxGate(gate - gate[-1]), experts).take(rng.permutation(truth.n_experts))
        return LocalModel(f"site {m}", model, rows, 0.0, True, "drawn, not fitted")

    return [site(m) for m in range(M)], data.X


class Plain:
    """One MM iteration in plain NumPy, from the experts of the first site."""

    def __init__(self, messages: list[LocalModel], X: np.ndarray) -> None:
        f = pool([m.model for m in messages], np.array([m.n_samples for m in messages]))
        self.X = np.column_stack([np.ones(len(X)), X])
        self.mass = f.gate.prob(self.X)
        self.mean = self.X @ f.experts.coef.T
        self.var = f.experts.var
        start = messages[0].model.experts
        self.coef, self.target_var = start.coef, start.var

    def iterate(self) -> float:
        X, mass, mean, var, s2 = self.X, self.mass, self.mean, self.var[:, None], self.target_var
        square = (mean[:, :, None] - (X @ self.coef.T)[:, None, :]) ** 2
        cost = 0.5 * (np.log(s2 / var) + (var + square) / s2 - 1)  # (S, L, K)
        nearest = cost.argmin(axis=2)
        sent = np.where(nearest[:, :, None] == np.arange(len(s2)), mass[:, :, None], 0.0)
        received = sent.sum(axis=1)  # (S, K)
        total = (sent * mean[:, :, None]).sum(axis=1)
        coef = np.array(
            [
                np.linalg.solve((X * d[:, None]).T @ X, X.T @ t)
                for d, t in zip(received.T, total.T, strict=True)
            ]
        )
        square = (mean[:, :, None] - (X @ coef.T)[:, None, :]) ** 2
        _ = (sent * (var + square)).sum(axis=(0, 1)) / received.sum(axis=0)
        return float((mass * cost.min(axis=2)).sum() / len(X))


def memory(kind: str, M: int, S: int, threads: int) -> float:
    """Return the peak memory, in MB, above models and support, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.reduction", kind, str(M), str(S), str(threads)]
    child = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
    )
    before, peak = json.loads(child.stdout)
    return (peak - before) / MB


def child(kind: str, M: int, S: int, threads: int) -> None:
    messages, X = problem(kind, 4, 500)
    aggregate(messages, X, method="reduction", n_jobs=threads)
    messages, X = problem(kind, M, S)
    before, _ = resident()
    aggregate(messages, X, method="reduction", n_jobs=threads)
    _, peak = resident()
    print(json.dumps([before, peak]))


BENCHMARK = Benchmark(
    "reduction",
    "The whole reduction (d=20, K=4) against one plain MM iteration on whole tensors",
    cases,
    measure,
    (
        Column("kind", "truth"),
        Column("threads", "threads"),
        Column("sites", "sites", "{:,.0f}"),
        Column("support", "support", "{:,.0f}"),
        Column("otmoe_seconds", "seconds", "{:.2f}"),
        Column("plain_iterations", "in plain iterations", "{:.1f}"),
        Column("growth", "time per site, of that with 128", "{:.2f}"),
        Column("above_mb", "above the inputs, MB", "{:.0f}"),
    ),
    (
        Requirement("plain_iterations", "plain iterations", at_most=5),
        Requirement("growth", "times linear in the sites", at_most=1.2),
        Requirement("above_mb", "MB above the inputs", at_most=500),
    ),
)

if __name__ == "__main__":
    child(sys.argv[1], *map(int, sys.argv[2:]))
