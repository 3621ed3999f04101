"""What a site's policy costs: a look at the rows beside the fit, an audit beside a refine answer.

Simulated rows, and the sites of public data sets. All share one thread; look, answer and audit are
medians of several. The audit of an answer is that of the sixth round: the ledger has five replies.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from statistics import median
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from benchmarks.search import NO_FEATURES
from otmoe import FeatureSpec, LocalModel, Policy, simulate
from otmoe.datasets import load_beijing, load_flights, load_mmash
from otmoe.datasets.real import data_folder
from otmoe.documents.request import RefineRequest
from otmoe.federation.policy.figures import figures_of
from otmoe.federation.policy.ledger import answer_of
from otmoe.federation.policy.questions import judged_question
from otmoe.federation.policy.release import Release, released
from otmoe.federation.policy.replies import rounded_reply
from otmoe.federation.policy.rowsets import RowSet
from otmoe.federation.rounds import reply_to
from otmoe.likelihood.fit import Fit, em
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.text.errors import OtmoeError
from studies.rows import Row

REPEATS = 5
SIMULATED = ((1_000, 5, 2), (20_000, 10, 3), (200_000, 20, 4))
"""Rows, features and experts."""


def cases(settings: Settings) -> Iterator[Row]:
    for n, d, K in SIMULATED[:2] if settings.quick else SIMULATED:
        for family in ("gaussian", "logistic"):
            yield _case(f"simulated, {family}", n, d, K)
    try:
        data_folder()
    except OtmoeError:
        return
    if not settings.quick:
        yield _case("a station", experts=4)
        yield _case("a person", experts=2)
        yield _case("airline 9E", experts=2)
        yield _case("airline OO", experts=2)


def _case(site: str, rows: int | str = "", features: int | str = "", experts: int = 2) -> Row:
    return {"site": site, "rows": rows, "features": features, "experts": experts}


def measure(case: Row, settings: Settings) -> Row:
    X, y, family, spec = _rows(str(case["site"]), case)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = perf_counter()
        fit = em(X, y, int(case["experts"]), family=family, random_state=SEED)
        fitted = perf_counter() - begin
        looks = [_timed(fit, Rows(X, y), spec) for _ in range(REPEATS)]
        answers = [_answered(fit, Rows(X, y), spec) for _ in range(REPEATS)]
    found = looks[0][1]
    answer, audit = (median(seconds) for seconds in zip(*answers, strict=True))
    look = median(seconds for seconds, _ in looks)
    moved = found.message.model.to_vector() - fit.model.to_vector()
    return {
        "rows": len(y),
        "features": X.shape[1],
        "fit_s": fitted,
        "look_s": look,
        "share": look / fitted,
        "answer_s": answer,
        "audit_s": audit,
        "audit": audit / answer,
        "lost_nats": _lost(fit, found, X, y),
        "moved": bool(np.any(moved)),
        "verdict": found.verdict.word,
        "rules": " ".join(str(m.rule) for m in found.verdict.refused),
    }


def _timed(fit: Fit, rows: Rows, spec: FeatureSpec | None) -> tuple[float, Release]:
    message = LocalModel.from_fit(fit, "site", features=spec)
    begin = perf_counter()
    found = released(message, rows, Policy())
    return perf_counter() - begin, found


def _answered(fit: Fit, rows: Rows, spec: FeatureSpec | None) -> tuple[float, float]:
    """Return the seconds of a refine answer, and those of all that the policy does about it."""
    policy, model = Policy(), fit.model
    asked = RefineRequest(1, model, Scaling.of(rows.X), spec)
    theta = model.to_vector()
    past = [
        answer_of("reply", model.with_vector(theta * (1 + 1e-4 * i)), spec) for i in range(1, 6)
    ]
    past.append(answer_of("message", model, spec, sums=False))
    begin = perf_counter()
    reply = reply_to(asked, rows, "site")
    replied = perf_counter()
    figures_of(model, rows, features=spec)
    _, digits = judged_question(policy, model, spec, rows, past)
    RowSet.of(rows, b"secret")
    rounded_reply(reply.content, model, rows, digits)
    return replied - begin, perf_counter() - replied


def _lost(fit: Fit, found: Release, X: np.ndarray, y: np.ndarray) -> float:
    """Return the log-likelihood that rounding costs, in nats over all rows."""
    after = float(np.sum(found.message.model.log_density(X, y)))
    return float(np.sum(fit.model.log_density(X, y))) - after


def _rows(site: str, case: Row) -> tuple[np.ndarray, np.ndarray, str, FeatureSpec | None]:
    if site.startswith("simulated"):
        family = site.partition(", ")[2]
        data = simulate(
            int(case["rows"]),
            int(case["experts"]),
            int(case["features"]),
            family=family,
            softness=0.5,
            random_state=SEED,
        )
        return data.X, data.y, family, None
    if site.startswith("airline"):
        table = load_flights()
        mine = np.array(table["carrier"].to_pylist()) == site.split()[1]
        mine &= table["day"].to_numpy(zero_copy_only=False) % 5 != 0
        names = [name for name in table.column_names if name not in NO_FEATURES]
        spec = FeatureSpec.from_sample(table, names)
        y = table["late15"].to_numpy(zero_copy_only=False).astype(float)[mine]
        return spec.encode(table.filter(mine)), y, "logistic", spec
    data = load_beijing() if site == "a station" else load_mmash()
    mine = data.site == data.site[0]
    return data.X[mine], data.y[mine], "gaussian", None


BENCHMARK = Benchmark(
    name="policy",
    title="What a policy costs",
    cases=cases,
    measure=measure,
    columns=(
        Column("site", "site", "{}"),
        Column("rows", "rows", "{:,.0f}"),
        Column("features", "features", "{:.0f}"),
        Column("experts", "experts", "{:.0f}"),
        Column("fit_s", "fit, s", "{:.2f}"),
        Column("look_s", "look, s", "{:.3f}"),
        Column("share", "look / fit", "{:.1%}"),
        Column("answer_s", "answer, s", "{:.3f}"),
        Column("audit_s", "audit, s", "{:.3f}"),
        Column("audit", "audit / answer", "{:.1f}"),
        Column("lost_nats", "lost by rounding, nats", "{:.3f}"),
        Column("verdict", "verdict", "{}"),
        Column("rules", "rules", "{}"),
    ),
    requirements=(Requirement("share", "look / fit", at_most=0.2),),
)
