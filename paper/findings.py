"""What the CSVs of the study hold: values by truth, medians, duels, slopes, learning times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from studies.rows import Row, read

RESULTS = Path(__file__).parent / "results"

ESTIMATORS = {
    "G": ("centralised", "0"),
    "R": ("reduction", "0"),
    "Mid": ("middle", "0"),
    "W": ("weighted_average", "0"),
    "aligned": ("aligned_average", "0"),
    "gram": ("gram", "0"),
    "gram + 2": ("gram", "2"),
    "gram + auto": ("gram", "auto"),
    "kl": ("kl", "0"),
    "auto": ("auto", "0"),
}
"""Method and refine rounds, by the names in tables and figures."""

METRICS = {
    "transport": ("T_c", -1),
    "below_truth": ("nats below truth", -1),
    "mse_total": ("MSE", -1),
    "rpe": ("RPE", -1),
    "ari": ("ARI", 1),
}
"""Words, and 1 where more is better; learning time stands apart."""


class Place(NamedTuple):
    """What rows were drawn, and over how many sites they were split."""

    kind: str
    rows: int
    sites: int


Values = dict[int, float]
"""A number for each truth."""


@dataclass(frozen=True)
class Findings:
    """The rows of the CSVs.

    Attributes
    ----------
    study, timing : list of Row
        Of paper.study; `timing` was measured on a quiet machine, and may be empty.
    traces, variants, mmash : list of Row
    """

    study: list[Row]
    timing: list[Row]
    traces: list[Row]
    variants: list[Row]
    mmash: list[Row]

    @classmethod
    def read(cls, folder: Path = RESULTS, suffix: str = "") -> Findings:
        names = ("study", "learning_time", "mm_traces", "variants", "mmash")
        return cls(*(read(folder / f"{name}{suffix}.csv") for name in names))

    @cached_property
    def _study(self) -> dict[tuple, dict[int, Row]]:
        return by_place(self.study)

    @cached_property
    def _timing(self) -> dict[tuple, dict[int, Row]]:
        return by_place(self.timing)

    def places(self, kind: str = "hard") -> list[Place]:
        """Return the places with several sites, the most rows first."""
        found = {place for place, *_ in self._study if place.kind == kind and place.sites > 1}
        return sorted(found, key=lambda place: (-place.rows, place.sites))

    def sizes(self, kind: str = "hard") -> list[int]:
        """Return the numbers of rows that were split over the most numbers of sites."""
        places = self.places(kind)
        sites = {n: sum(place.rows == n for place in places) for _, n, _ in places}
        return [n for n in sites if sites[n] == max(sites.values())]

    def sites(self, rows: int, kind: str = "hard") -> list[int]:
        return [place.sites for place in self.places(kind) if place.rows == rows]

    def values(self, place: Place, name: str, metric: str) -> Values:
        """Return the metric of an estimator for each truth that has it."""
        return {truth: float(row[metric]) for truth, row in self.rows(place, name).items()}

    def rows(self, place: Place, name: str) -> dict[int, Row]:
        """Return the row of an estimator for each truth that has it."""
        return self._study.get(cell(place, name), {})

    def median(self, place: Place, name: str, metric: str) -> float:
        return median(self.values(place, name, metric).values())

    def seconds(self, place: Place, name: str) -> Values:
        """Return learning times that may be quoted; none where nothing was measured for that."""
        found = self._timing.get(cell(place, name), {})
        return {truth: float(row["learning_seconds"]) for truth, row in found.items()}

    def ratio(self, place: Place, above: str, below: str, metric: str) -> float:
        """Return the median over truths of the ratio of two estimators."""
        if metric == "learning_seconds":
            a, b = self.seconds(place, above), self.seconds(place, below)
        else:
            a, b = self.values(place, above, metric), self.values(place, below, metric)
        return median(a[truth] / b[truth] for truth in a.keys() & b.keys())

    def wins(self, place: Place, name: str, rival: str, metric: str) -> tuple[int, int]:
        """Return for how many truths an estimator is better than another, and of how many."""
        mine, other = self.values(place, name, metric), self.values(place, rival, metric)
        both = mine.keys() & other.keys()
        sign = METRICS[metric][1]
        return sum(sign * mine[truth] > sign * other[truth] for truth in both), len(both)

    def errors(self, kind: str, sites: int, name: str, metric: str) -> dict[int, float]:
        """Return the median of a metric by rows, of the truths that all numbers of rows have."""
        sizes = sorted(place.rows for place in self.places(kind) if place.sites == sites)
        found = {n: self.values(Place(kind, n, sites), name, metric) for n in sizes}
        if not found:
            return {}
        common = set.intersection(*(set(values) for values in found.values()))
        return {n: median(values[t] for t in common) for n, values in found.items() if common}


def cell(place: Place, name: str) -> tuple:
    """Return where an estimator is; all rows in one place are no split of them."""
    return place._replace(sites=1) if name == "G" else place, *ESTIMATORS[name]


def by_place(rows: list[Row]) -> dict[tuple, dict[int, Row]]:
    found: dict[tuple, dict[int, Row]] = {}
    for row in rows:
        place = Place(row["kind"], int(row["rows"]), int(row["sites"]))
        found.setdefault((place, row["method"], row["refine"]), {})[int(row["truth"])] = row
    return found


def slope(errors: dict[int, float]) -> float:
    """Return the exponent of a power of the rows, by least squares on logarithms."""
    n, error = np.log(list(errors)), np.log(list(errors.values()))
    return float(np.polyfit(n, error, 1)[0])
