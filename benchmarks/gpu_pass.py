"""One pass over rows on a CUDA device, against the least it must read and multiply.

The floor of bytes is X and y read once at the rate of a large copy; the floor of arithmetic is the
Gram products of the pass at the float64 rate of a large square product, both measured in the run.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.harness import SEED, Benchmark, Column, Settings
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import e_step
from studies.rows import Row
from studies.truths import draw

REPEATS = 15
SIDE = 8192
COPY = 2**29  # float64 numbers


def cases(settings: Settings) -> list[Row]:
    return [{"kind": kind, "n": n} for kind in ("hard", "soft") for n in (1_000_000, 10_000_000)]


def measure(case: Row, settings: Settings) -> Row:
    import torch

    def milliseconds(action: Callable[[], Any]) -> float:
        times = []
        for _ in range(REPEATS + 2):
            torch.cuda.synchronize()
            start = perf_counter()
            action()
            torch.cuda.synchronize()
            times.append(perf_counter() - start)
        return 1e3 * median(times[2:])

    some = draw(case["kind"], 500_000, SEED)
    copies = case["n"] // len(some.X)
    X = torch.asarray(np.tile(some.X, (copies, 1)), device="cuda")
    y = torch.asarray(np.tile(some.y, copies), device="cuda")
    rows, _ = Rows(X, y).standardised(some.truth.experts)
    model = rows.scaling.from_user(some.truth)
    em = milliseconds(lambda: e_step(model, rows))
    information = milliseconds(lambda: observed_information(model, rows))
    read = X.element_size() * (X.numel() + y.numel())

    square = torch.randn(SIDE, SIDE, dtype=torch.float64, device="cuda")
    flops = 2e3 * SIDE**3 / milliseconds(lambda: square @ square)
    source = torch.randn(COPY, dtype=torch.float64, device="cuda")
    target = torch.empty_like(source)
    bandwidth = 2e3 * 8 * COPY / milliseconds(lambda: target.copy_(source))
    K, p = model.n_experts, model.n_features + 1
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "pass_ms": em,
        "information_ms": information,
        "bytes_floor_ms": 1e3 * read / bandwidth,
        "flops_floor_ms": 1e3 * 2 * case["n"] * p**2 * (K + K * (K - 1) / 2) / flops,
    }


BENCHMARK = Benchmark(
    "gpu_pass",
    "A pass over the rows on a GPU (d=20, K=4, float64), in milliseconds",
    cases,
    measure,
    (
        Column("kind", "truth"),
        Column("n", "rows", "{:,.0f}"),
        Column("pass_ms", "EM pass", "{:.2f}"),
        Column("information_ms", "information pass", "{:.2f}"),
        Column("bytes_floor_ms", "floor by bytes", "{:.3f}"),
        Column("flops_floor_ms", "floor by arithmetic", "{:.3f}"),
        Column("device", "device"),
    ),
)
