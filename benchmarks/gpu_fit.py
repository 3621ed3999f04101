"""A whole fit of rows on a CUDA device, starts included, beside all cores of the same machine.

Rows are drawn on the device. The warm-up that compiles the kernels is a fit of few rows.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.harness import SEED, Benchmark, Column, Settings
from otmoe.likelihood.fit import Fit, em
from otmoe.model.mixture import MoE
from studies.rows import Row
from studies.truths import draw

MOST_ON_HOST = 10_000_000
"""Rows up to which the host fits too."""


def cases(settings: Settings) -> list[Row]:
    sizes = (1_000_000, 10_000_000, 100_000_000)
    return [{"kind": kind, "n": n} for n in sizes for kind in ("hard", "soft")]


def on_device(truth: MoE, n: int, seed: int) -> tuple[Any, Any]:
    """Draw rows of a model with standard normal features on the device."""
    import torch

    source = torch.Generator("cuda").manual_seed(seed)
    normal = {"dtype": torch.float64, "device": "cuda", "generator": source}
    X = torch.randn(n, truth.n_features, **normal)
    y = torch.empty(n, dtype=torch.float64, device="cuda")
    gate, coef = (torch.asarray(a, device="cuda") for a in (truth.gate.coef, truth.experts.coef))
    sd = torch.asarray(np.sqrt(truth.experts.dispersion), device="cuda")
    for some in X.split(2**22):
        place = slice(some.storage_offset() // X.shape[1], None)
        logits = some @ gate[:, 1:].T + gate[:, 0]
        noise = torch.rand(logits.shape, **normal)
        expert = torch.argmax(logits - torch.log(-torch.log(noise)), dim=1)
        mean = (some * coef[expert, 1:]).sum(dim=1) + coef[expert, 0]
        y[place][: len(some)] = mean + sd[expert] * torch.randn(len(some), **normal)
    return X, y


def measure(case: Row, settings: Settings) -> Row:
    import torch

    truth = draw(case["kind"], 1000, SEED).truth
    K, n = truth.n_experts, case["n"]

    def timed(fit: Callable[[], Fit]) -> tuple[float, Fit]:
        torch.cuda.synchronize()
        begin = perf_counter()
        found = fit()
        torch.cuda.synchronize()
        return perf_counter() - begin, found

    X, y = on_device(truth, n, SEED)
    em(X[:150_000], y[:150_000], K, random_state=SEED)
    torch.cuda.reset_peak_memory_stats()
    runs = [timed(lambda: em(X, y, K, random_state=SEED)) for _ in range(3)]
    seconds, fit = median(s for s, _ in runs), runs[0][1]
    row = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "fit_s": seconds,
        "search_s": fit.timings["starts"],
        "peak_over_data": torch.cuda.max_memory_allocated() / (8 * (X.numel() + n)),
        "passes": fit.n_iter,
        "log_likelihood": fit.log_likelihood,
    }
    beside = ("host_s", "times_faster", "apart", "nats_apart")
    if n > MOST_ON_HOST:
        row |= dict.fromkeys(beside, "")
    else:
        host_X, host_y = X.cpu().numpy(), y.cpu().numpy()
        em(host_X[:20_000], host_y[:20_000], K, random_state=SEED, n_jobs=-1)
        host_seconds, host = timed(lambda: em(host_X, host_y, K, random_state=SEED, n_jobs=-1))
        gap = np.max(np.abs(host.model.to_vector() - fit.model.to_vector()))
        nats = host.log_likelihood - fit.log_likelihood
        row |= zip(beside, (host_seconds, host_seconds / seconds, float(gap), nats), strict=True)
    return row


BENCHMARK = Benchmark(
    "gpu_fit",
    "A whole fit on a GPU (d=20, K=4, float64), and on all cores of its host",
    cases,
    measure,
    (
        Column("kind", "truth"),
        Column("n", "rows", "{:,.0f}"),
        Column("fit_s", "GPU, seconds", "{:.2f}"),
        Column("search_s", "of these, search", "{:.2f}"),
        Column("host_s", "host, seconds", "{:.1f}"),
        Column("times_faster", "times faster", "{:.1f}"),
        Column("apart", "parameters apart", "{:.1g}"),
        Column("peak_over_data", "peak memory over data", "{:.2f}"),
        Column("device", "device"),
    ),
)
