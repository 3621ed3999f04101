"""Intervals of 95 % where rows come in groups that share something (maths 15).

Rows of a group have an intercept in common, drawn anew for every group, and features whose mean is
the group's own: what a person is like, and all that is measured of them. The truth that intervals
should hold is what the model estimates on very many groups: with two experts, an intercept that
varies is not quite a mixture with constant ones.

For comparison: clustered intervals with normal quantiles in the place of t, and how often joint
tests at the 5 % level accept what is true of the first expert's coefficients, by chi-square and by
Hotelling's T squared.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from scipy import stats

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from otmoe import MoE
from otmoe.inference import Inference, observed_inference
from otmoe.inference.estimates import estimates
from otmoe.likelihood.fit import em
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from studies.rows import Row

SIZE = 20  # rows of a group
SPREAD = 1.0  # standard deviation of the groups' intercepts, and of single rows around them
FEATURES = 2
MANY = 60  # groups from which on the intervals should hold what they say
GROUPS_FOR_TRUTH = 50_000
LEVEL = 0.95

TRUTHS = {
    1: MoE(
        SoftmaxGate(np.zeros((1, 3))), GaussianExperts(np.array([[1.0, 1.0, -1.0]]), np.ones(1))
    ),
    2: MoE(
        SoftmaxGate(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])),
        GaussianExperts(np.array([[3.0, 1.0, -1.0], [-3.0, -1.0, 1.0]]), np.ones(2)),
    ),
}


def cases(settings: Settings) -> Iterator[Row]:
    for n_experts in TRUTHS:
        for n_groups in (60,) if settings.quick else (10, 30, 60, 120, 240):
            yield {"experts": n_experts, "groups": n_groups}


def draw(truth: MoE, n_groups: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return X, y and the group of each row."""
    groups = np.repeat(np.arange(n_groups), SIZE)
    shared, own = (np.sqrt(0.5) * rng.normal(size=(n, FEATURES)) for n in (n_groups, len(groups)))
    X = shared[groups] + own
    y, _ = truth.sample(X, rng)
    return X, y + SPREAD * rng.normal(size=n_groups)[groups], groups


def fitted(truth: MoE, X: np.ndarray, y: np.ndarray) -> MoE:
    """Return the maximum near the truth: what is judged here is not the search for starts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = em(X, y, truth.n_experts, init=truth, max_iter=500)
    return fit.model.aligned_to(truth, X)


def estimand(truth: MoE) -> np.ndarray:
    """Return the experts' coefficients that the fit tends to as groups become many."""
    X, y, _ = draw(truth, GROUPS_FOR_TRUTH, np.random.default_rng(SEED))
    return fitted(truth, X, y).experts.coef


def measure(case: Row, settings: Settings) -> Row:
    truth, n_groups = TRUTHS[case["experts"]], case["groups"]
    runs = 20 if settings.quick else 400
    aim = estimand(truth)
    held: dict[str, list[float]] = {"information": [], "sandwich": [], "clustered": []}
    width: dict[str, list[float]] = {kind: [] for kind in held}
    other: dict[str, list[float]] = {"normal": [], "joint_chi2": [], "joint": []}
    for rng in np.random.default_rng(SEED + 1).spawn(runs):
        X, y, groups = draw(truth, n_groups, rng)
        model = fitted(truth, X, y)
        for kind in held:
            given = {"groups": groups} if kind == "clustered" else {}
            found: Inference = observed_inference(model, X, y, kind=kind, **given)
            rows = [row for row in found.table() if row.block == "expert"]
            pairs = zip(rows, aim.ravel(), strict=True)
            held[kind].append(float(np.mean([row.low <= a <= row.high for row, a in pairs])))
            width[kind].append(float(np.mean([row.se for row in rows])))
        # the last is that of groups
        normal = estimates(rows, *np.transpose([(row.estimate, row.se) for row in rows]), LEVEL)
        pairs = zip(normal, aim.ravel(), strict=True)
        other["normal"].append(float(np.mean([row.low <= a <= row.high for row, a in pairs])))
        first = [(row.block, row.expert) == ("expert", 0) for row in found.parameters]
        test = found.wald(np.eye(len(first))[first], aim[0])
        other["joint"].append(float(test.p > 1 - LEVEL))
        other["joint_chi2"].append(float(stats.chi2.sf(test.statistic, test.df) > 1 - LEVEL))
    out: Row = {"rows": SIZE * n_groups, "runs": runs}
    for kind, values in held.items():
        out[kind] = float(np.mean(values))
        # the coefficients of one run go together: the error is that of their means
        out[f"{kind}_error"] = float(np.std(values, ddof=1) / np.sqrt(runs))
        out[f"{kind}_se"] = float(np.mean(width[kind]))
    out |= {name: float(np.mean(values)) for name, values in other.items()}
    return out | {"wider": out["clustered_se"] / out["information_se"]}


def many_groups(row: Row) -> bool:
    """Say whether there are as many groups as the theory wants: with fewer, scores vary too little.

    At the maximum they add up to zero, and groups that differ most draw it to themselves.
    """
    return int(row["groups"]) >= MANY


BENCHMARK = Benchmark(
    name="clustered",
    title="Intervals of 95 % for coefficients of experts that hold the truth, rows in groups of 20",
    cases=cases,
    measure=measure,
    columns=(
        Column("experts", "experts", "{:.0f}"),
        Column("groups", "groups", "{:.0f}"),
        Column("rows", "rows", "{:,.0f}"),
        Column("runs", "runs", "{:.0f}"),
        Column("information", "information", "{:.3f}"),
        Column("sandwich", "sandwich", "{:.3f}"),
        Column("normal", "clustered, normal quantiles", "{:.3f}"),
        Column("clustered", "clustered", "{:.3f}"),
        Column("clustered_error", "error of the last", "{:.3f}"),
        Column("joint_chi2", "joint tests by chi-square", "{:.3f}"),
        Column("joint", "joint tests", "{:.3f}"),
        Column("wider", "clustered errors / plain ones", "{:.2f}"),
    ),
    requirements=(
        Requirement(
            "clustered", f"clustered intervals from {MANY} groups on", at_least=0.93, of=many_groups
        ),
        Requirement("clustered", "the same", at_most=0.97, of=many_groups),
        Requirement("information", "plain ones", at_most=0.85),
    ),
)
