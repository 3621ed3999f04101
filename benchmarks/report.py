"""The report of many sites in Chromium: its size, and how long one waits for it.

The sites are made of a few real messages, so that nothing but the page is measured. Times are those
of the browser, from the call to the end of layout, the median of several.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from otmoe import Aggregation, MoERegressor, Policy, aggregate, report
from studies import chromium
from studies.rows import Row
from studies.truths import draw

N_REAL = 4
REPEATS = 5

# Milliseconds of an action, with the layout that follows it.
_TIMED = """
const action = new Function(arguments[0]), found = [];
for (let i = 0; i < arguments[1]; i++) {
  const begin = performance.now();
  action(i);
  document.body.offsetHeight;
  found.push(performance.now() - begin);
}
return found;
"""
_LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd"


def cases(settings: Settings) -> Iterator[Row]:
    for n_sites in (10, 1000) if settings.quick else (10, 100, 1000, 10_000):
        yield {"sites": n_sites}


def many(n_sites: int) -> Aggregation:
    """Return an aggregation of many sites, made of one of few."""
    data = draw("soft", 4000 * N_REAL, SEED)
    parts = np.array_split(np.arange(len(data.y)), N_REAL)
    sent = [
        MoERegressor(4, random_state=m)
        .fit(data.X[part], data.y[part])
        .to_message(f"site {m}", data.X[part], sketch=True, policy=Policy.off())
        for m, part in enumerate(parts)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = aggregate(sent, data.X[:2000], method="reduction")
    weight = np.random.default_rng(SEED).dirichlet(np.ones(n_sites))
    names = [f"hospital {m} of region {m % 13}" for m in range(n_sites)]
    return replace(
        result,
        sites=tuple(
            replace(result.sites[m % N_REAL], site=name, weight=float(weight[m]))
            for m, name in enumerate(names)
        ),
        messages=tuple(
            replace(result.messages[m % N_REAL], site=name) for m, name in enumerate(names)
        ),
    )


def measure(case: Row, settings: Settings) -> Row:
    result = many(case["sites"])
    with TemporaryDirectory() as folder, chromium.browser() as driver:
        path, file = Path(folder, "report.html"), Path(folder, "model.json")
        result.save(file)
        begin = perf_counter()
        report(file, path)
        made = perf_counter() - begin
        chromium.size(driver, 1200)
        loaded = []
        for _ in range(REPEATS):
            driver.get(path.as_uri())
            loaded.append(float(driver.execute_script(_LOADED)))

        def timed(action: str) -> float:
            return median(driver.execute_script(_TIMED, action, REPEATS))

        return {
            "megabytes": path.stat().st_size / 1e6,
            "model_megabytes": file.stat().st_size / 1e6,
            "make_s": made,
            "load_ms": median(loaded),
            "sort_ms": timed("document.querySelector('#sites th:nth-child(2) button').click()"),
            "click_ms": timed(
                "document.querySelectorAll('#flow g.site')[0]"
                ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
            ),
            "search_ms": timed(
                "const box = document.querySelector('#sites input');"
                "if (box) { box.value = '7'; box.dispatchEvent(new Event('input')); }"
            ),
            "browser": driver.capabilities["browserVersion"],
        }


def up_to_a_thousand(row: Row) -> bool:
    """Say whether a page has up to 1,000 sites."""
    return int(row["sites"]) <= 1000


BENCHMARK = Benchmark(
    name="report",
    title="The report in Chromium",
    cases=cases,
    measure=measure,
    columns=(
        Column("sites", "sites", "{:,.0f}"),
        Column("megabytes", "page, MB", "{:.2f}"),
        Column("make_s", "to make, s", "{:.2f}"),
        Column("load_ms", "to load, ms", "{:.0f}"),
        Column("sort_ms", "to sort, ms", "{:.1f}"),
        Column("click_ms", "to filter by click, ms", "{:.1f}"),
        Column("search_ms", "to search, ms", "{:.1f}"),
    ),
    requirements=(
        Requirement("megabytes", "MB of a page of 1,000 sites", at_most=10, of=up_to_a_thousand),
        Requirement("load_ms", "ms to load it", at_most=2000, of=up_to_a_thousand),
        Requirement("sort_ms", "ms to sort it", at_most=200, of=up_to_a_thousand),
        Requirement("click_ms", "ms to filter it", at_most=200, of=up_to_a_thousand),
    ),
)
