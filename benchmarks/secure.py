"""Secure sums: bytes and seconds of a refine round, beside one with plain replies.

All sites are asked on one machine, one after the other; seconds of a site are medians over sites.
The error is the distance between the models after a step from masked and from plain replies.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from otmoe import simulate
from otmoe.documents.roster import Roster
from otmoe.federation.keys import Key
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.federation.secure import masked, masked_step, unmasked
from otmoe.likelihood.rows import Rows, Scaling
from studies.rows import Row

ROWS = 1000  # of a site
SIZES = ((2, 5), (4, 20))  # experts and features


def cases(settings: Settings) -> list[Row]:
    sites = (3, 12) if settings.quick else (12, 100)
    return [{"sites": M, "experts": K, "features": d} for K, d in SIZES for M in sites]


def measure(case: Row, settings: Settings) -> Row:
    M, K, d = (int(case[name]) for name in ("sites", "experts", "features"))
    data = simulate(M * ROWS, K, d, softness=1.0, random_state=SEED)
    names = [f"site {m}" for m in range(M)]
    parts = [slice(m * ROWS, (m + 1) * ROWS) for m in range(M)]
    rows = {name: Rows(data.X[s], data.y[s]) for name, s in zip(names, parts, strict=True)}
    sizes = {name: float(ROWS) for name in names}
    seconds: dict[str, list[float]] = {"pass": [], "mask": []}
    with TemporaryDirectory() as folder, threadpool_limits(1):
        keys = {name: Key.create(Path(folder, f"{name}.key")) for name in names}
        roster = Roster({name: key.public for name, key in keys.items()})
        state = begin(data.truth, sizes, Scaling.of(data.X), roster=roster)
        request = request_of(state)
        plain, hidden = [], []
        for name in names:
            start = perf_counter()
            plain.append(reply_to(unmasked(request), rows[name], name))
            seconds["pass"].append(perf_counter() - start)
            start = perf_counter()
            hidden.append(masked(request, plain[-1], keys[name]))
            seconds["mask"].append(perf_counter() - start)
        start = perf_counter()
        secure = masked_step(state, hidden)
        summed = perf_counter() - start
        open_state = begin(data.truth, sizes, Scaling.of(data.X))
        start = perf_counter()
        after = step(open_state, plain)
        plainly = perf_counter() - start
    scale = Scaling.of(data.X)
    gap = scale.from_user(secure.model).to_vector() - scale.from_user(after.model).to_vector()
    best = after.refinement.best
    assert best is not None
    return {
        "parameters": data.truth.n_parameters,
        "request": len(request.to_json()),
        "plain_reply": len(plain[0].to_json()),
        "masked_reply": len(hidden[0].to_json()),
        "pass": median(seconds["pass"]),
        "mask": median(seconds["mask"]),
        "plain_step": plainly,
        "masked_step": summed,
        "error": float(np.sqrt(max(gap @ best.information.matrix @ gap, 0.0))),
    }


BENCHMARK = Benchmark(
    "secure",
    "Secure sums: bytes of a refine round, seconds of a site (its pass over 1,000 rows, and the "
    "masks) and of the server's step, and standard errors from the step by plain replies",
    cases,
    measure,
    (
        Column("sites", "sites", "{:.0f}"),
        Column("parameters", "parameters", "{:.0f}"),
        Column("request", "bytes: request", "{:,.0f}"),
        Column("plain_reply", "plain reply", "{:,.0f}"),
        Column("masked_reply", "masked reply", "{:,.0f}"),
        Column("pass", "seconds of a site: pass", "{:.4f}"),
        Column("mask", "masks", "{:.4f}"),
        Column("plain_step", "of the server: plain", "{:.3f}"),
        Column("masked_step", "masked", "{:.3f}"),
        Column("error", "standard errors apart", "{:.0e}"),
    ),
    (Requirement("error", "standard errors between masked and plain", at_most=1e-3),),
)
