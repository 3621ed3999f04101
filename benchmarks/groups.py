"""Intervals of 95 % where rows of a group share their expert (maths 23).

Five rows of a group come from one of two lines that overlap, by a gate of a feature of the group.
For comparison: intervals of the same rows, each taken for one with an expert of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from otmoe import MoE
from otmoe.inference import observed_inference
from otmoe.likelihood.fit import em
from otmoe.model.experts import Experts, GaussianExperts, PoissonExperts
from otmoe.model.gate import SoftmaxGate
from studies.rows import Row

SIZE = 5  # rows of a group
MANY = 100  # groups from which on the intervals should hold what they say

_LINES = np.array([[1.0, 0.8, 0.0], [0.3, -0.5, 0.0]])
_EXPERTS: dict[str, Experts] = {
    "gaussian": GaussianExperts(_LINES, np.ones(2)),
    "poisson": PoissonExperts(_LINES),
}
TRUTHS = {
    name: MoE(SoftmaxGate(np.array([[0.3, 0.0, 0.8], [0.0, 0.0, 0.0]]), (0, 2)), experts)
    for name, experts in _EXPERTS.items()
}


def cases(settings: Settings) -> Iterator[Row]:
    for family in TRUTHS:
        for n_groups in (100,) if settings.quick else (50, 100, 400):
            yield {"family": family, "groups": n_groups}


def draw(truth: MoE, n_groups: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return X, y and the group of each row."""
    groups = np.repeat(np.arange(n_groups), SIZE)
    X = np.column_stack([rng.normal(size=len(groups)), rng.normal(size=n_groups)[groups]])
    gate = truth.gate_prob(X[::SIZE])[:, 0]
    first = (rng.random(n_groups) < gate)[groups]
    design = np.column_stack([np.ones(len(groups)), X])
    y = truth.experts.sample(truth.experts.predictor(design), rng)
    return X, np.where(first, y[:, 0], y[:, 1]).astype(float), groups


def measure(case: Row, settings: Settings) -> Row:
    truth, n_groups = TRUTHS[case["family"]], case["groups"]
    runs = 20 if settings.quick else 200
    aim = truth.to_vector()
    kinds: dict[str, dict[str, Any]] = {
        "information": {"kind": "information"},
        "sandwich": {"kind": "sandwich"},
        "rows": {"kind": "information"},
    }
    held: dict[str, list[float]] = {name: [] for name in kinds}
    for rng in np.random.default_rng(SEED + 1).spawn(runs):
        X, y, groups = draw(truth, n_groups, rng)
        for name, how in kinds.items():
            given = {} if name == "rows" else {"groups": groups}
            plain = {"alpha": 0.0, "expert_alpha": 0.0}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = em(X, y, 2, init=truth, **plain, **given)
                model = fit.model.aligned_to(truth, X)
                found = observed_inference(model, X, y, **plain, **how, **given)
            pairs = zip(found.linear(np.eye(len(aim))), aim, strict=True)
            held[name].append(float(np.mean([row.low <= a <= row.high for row, a in pairs])))
    out: Row = {"rows": SIZE * n_groups, "runs": runs}
    for name, values in held.items():
        out[f"{name}_held"] = float(np.mean(values))
        out[f"{name}_error"] = float(np.std(values, ddof=1) / np.sqrt(runs))
    return out


def many_groups(row: Row) -> bool:
    """Say whether there are as many groups as the theory wants."""
    return int(row["groups"]) >= MANY


BENCHMARK = Benchmark(
    name="groups",
    title="Intervals of 95 % that hold the truth, five rows of a group sharing their expert",
    cases=cases,
    measure=measure,
    columns=(
        Column("family", "family", "{}"),
        Column("groups", "groups", "{:.0f}"),
        Column("rows", "rows", "{:,.0f}"),
        Column("runs", "runs", "{:.0f}"),
        Column("information_held", "information", "{:.3f}"),
        Column("information_error", "its error", "{:.3f}"),
        Column("sandwich_held", "sandwich", "{:.3f}"),
        Column("rows_held", "information, groups unknown", "{:.3f}"),
    ),
    requirements=(
        Requirement(
            "information_held", f"intervals from {MANY} groups on", at_least=0.93, of=many_groups
        ),
        Requirement("information_held", "the same", at_most=0.97, of=many_groups),
    ),
)
