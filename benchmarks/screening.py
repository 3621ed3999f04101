"""How often sites that went wrong are told from the others (maths 12).

Ten sites are fitted to rows of one truth, two of them to rows that something happened to. A set of
sites is judged right if exactly those two stand out; a clean one, if nobody does. The same rule is
tried on R_c, the relaxed transport divergence between the sites' experts. Clean fits begin at the
truth: what is judged here is not the search for starts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.harness import Benchmark, Column, Settings
from otmoe import LocalModel, simulate
from otmoe.aggregation import screen
from otmoe.aggregation.disagreement import THRESHOLD, standing
from otmoe.likelihood.fit import em
from otmoe.model.divergence import relaxed_divergence
from studies.rows import Row

SITES, WRONG, POINTS = 10, 2, 400
FIRST_SEED = 1000


@dataclass(frozen=True)
class Kind:
    """A kind of truth, and sites of it."""

    K: int
    d: int
    rows: int
    options: dict

    def simulate(self, n_samples, seed):
        return simulate(n_samples, self.K, self.d, random_state=seed, **self.options)

    @property
    def family(self):
        return self.options.get("family", "gaussian")

    def fitted(self, X, y, name, start=None):
        options = {"family": self.family, "n_classes": 3, "init": start, "random_state": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return LocalModel.from_fit(em(X, y, self.K, **options), name)


KINDS = {
    "hard": Kind(3, 5, 500, {}),
    "soft": Kind(3, 5, 500, {"softness": 1.0}),
    "overlap": Kind(3, 5, 5000, {"overlap": True}),
    "logistic": Kind(2, 3, 2000, {"family": "logistic", "softness": 0.5}),
    "multinomial": Kind(2, 3, 2000, {"family": "multinomial", "softness": 0.5}),
    "poisson": Kind(2, 3, 500, {"family": "poisson", "softness": 0.5}),
}
CHANGES = {  # of y, by family; "random" is another truth in the place of the fit
    "times 100": {"gaussian": lambda y: 100 * y, "poisson": lambda y: 100 * y},
    "flipped": {
        "gaussian": lambda y: -y,
        "logistic": lambda y: 1 - y,
        "multinomial": lambda y: (y + 1) % 3,
    },
}
COLUMNS = ("clean", "random", *CHANGES)


def measure(case: Row, settings: Settings) -> Row:
    kind = KINDS[case["kind"]]
    right: Row = {f"{name}{rule}": "" for name in COLUMNS for rule in ("", ", R_c")}
    n_sets = 3 if settings.quick else 20
    for seed in range(FIRST_SEED, FIRST_SEED + n_sets):
        for name, sites, X, wrong in sets(kind, seed):
            found = {m for m, verdict in enumerate(screen(sites, X)) if verdict.reasons}
            right[name] = (right[name] or 0) + (found == wrong)
            right[f"{name}, R_c"] = (right[f"{name}, R_c"] or 0) + (by_transport(sites, X) == wrong)
    return {"rows": kind.rows, "sets": n_sets, **right}


def sets(kind: Kind, seed: int) -> Iterator[tuple[str, list[LocalModel], np.ndarray, set[int]]]:
    """Give sets of sites, points at which to compare them, and who went wrong."""
    data = kind.simulate(SITES * kind.rows, seed)
    rng = np.random.default_rng(seed)
    wrong = set(rng.choice(SITES, WRONG, replace=False).tolist())
    points = data.X[rng.choice(len(data.X), POINTS, replace=False)]
    parts = np.split(np.arange(len(data.X)), SITES)

    def sites(change) -> list[LocalModel]:
        """Return the clean sites, the wrong ones changed."""
        return [change(m) if m in wrong else clean[m] for m in range(SITES)]

    def refitted(y, start=None):
        return lambda m: kind.fitted(data.X[parts[m]], y[parts[m]], f"site {m}", start)

    clean = list(map(refitted(data.y, data.truth), range(SITES)))
    yield "clean", clean, points, set()

    def drawn(m):
        return replace(clean[m], model=kind.simulate(100, 10_000 + SITES * seed + m).truth)

    yield "random", sites(drawn), points, wrong
    for name, change in CHANGES.items():
        if kind.family in change:
            yield name, sites(refitted(change[kind.family](data.y))), points, wrong


def by_transport(sites: list[LocalModel], X: np.ndarray) -> set[int]:
    """Return the sites that stand out by R_c between the experts, by the same rule."""
    models = [site.model for site in sites]
    cost = np.array([[relaxed_divergence(f, g, X) for g in models] for f in models])
    np.fill_diagonal(cost, np.nan)
    error = np.array([site.model.experts.n_parameters / site.n_samples for site in sites])
    found = standing(0.5 * (cost + cost.T), 0.5 * (error[:, None] + error))
    return set(np.flatnonzero(found.deviation > THRESHOLD).tolist())


BENCHMARK = Benchmark(
    "screening",
    "Sets of ten sites judged right: nobody stands out, or exactly the two that went wrong",
    lambda settings: [{"kind": kind} for kind in KINDS],
    measure,
    (
        Column("kind", "truth"),
        Column("rows", "rows of a site", "{:,.0f}"),
        Column("sets", "sets", "{:.0f}"),
        *(
            Column(f"{name}{rule}", f"{name}{rule}", "{:.0f}")
            for name in COLUMNS
            for rule in ("", ", R_c")
        ),
    ),
)
