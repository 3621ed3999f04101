"""What lying sites cost the others, by attack and by how sites are merged (maths 19).

Ten sites of one truth, one to four of which lie (`studies.attacks`), with seeds that no constant
was chosen on. The figures are nats per row lost on fresh rows of the truth, compared with the
default merging of the honest sites alone: the mean over seeds, and the worst of them. The last two
columns emulate Flower's coordinate-wise median and Multi-Krum, which know nothing of experts: they
take vectors of parameters as they come, experts ordered by mass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from otmoe import LocalModel, MoE
from otmoe.text.errors import OtmoeError
from studies.attacks import ATTACKS, Study, quietly, study
from studies.rows import Row

FIRST_SEED, SEEDS = 7100, 3
ROWS = {"gaussian": 600, "logistic": 2000}
ROBUST = ("median", "trimmed", "geometric_median", "krum")
ASSUMED = 3  # liars that Flower's Multi-Krum is told of: the most of ten that it allows
HONEST = "nobody lies"


@cache
def sites(family: str, seed: int) -> Study:
    return study(seed, ROWS[family], family=family)


def unaligned(messages: list[LocalModel], merged: Callable[[np.ndarray], np.ndarray]) -> MoE:
    """Return the model of which a rule makes the vector of parameters, of those of equal size."""
    models = [message.model for message in messages]
    sizes = [model.n_parameters for model in models]
    usual = max(set(sizes), key=sizes.count)
    same = [model for model in models if model.n_parameters == usual]
    return same[0].with_vector(merged(np.array([model.to_vector() for model in same])))


def flower_median(vectors: np.ndarray) -> np.ndarray:
    return np.median(vectors, axis=0)


def flower_krum(vectors: np.ndarray) -> np.ndarray:
    """Return the mean of the vectors with the least sums of squared distances to neighbours."""
    n = len(vectors)
    near = max(n - ASSUMED - 2, 1)
    distance = np.sum((vectors[:, None] - vectors[None]) ** 2, axis=2)
    score = np.sort(distance, axis=1)[:, 1 : near + 1].sum(axis=1)
    return vectors[np.argsort(score)[: max(n - ASSUMED, 1)]].mean(axis=0)


def ways(options: Row) -> dict[str, Callable[[list[LocalModel]], tuple[MoE, set, set]]]:
    """Return the ways to merge, by name: each gives a model, who is named and who is left out."""

    def ours(**more):
        def merge(messages):
            result = quietly(messages, **{**options, **more})
            named = {s for w in result.warnings for s in w.sites}
            return result.model, named, set(result.left_out)

        return merge

    found = {"default": ours(), "exclude": ours(outliers="exclude")}
    found |= {method: ours(method=method) for method in ROBUST}
    found["flower_median"] = lambda messages: (unaligned(messages, flower_median), set(), set())
    found["flower_krum"] = lambda messages: (unaligned(messages, flower_krum), set(), set())
    return found


def figure(value: float) -> float | str:
    """Return a number for the file: nothing where a merging was refused."""
    return "" if np.isnan(value) else float(value)


def cases(settings: Settings) -> Iterable[Row]:
    yield {"attack": HONEST, "liars": 0}
    for name, attack in ATTACKS.items():
        for liars in attack.liars:
            if not settings.quick or liars in (1, 4):
                yield {"attack": name, "liars": liars}


def measure(case: Row, settings: Settings) -> Row:
    name, liars = case["attack"], int(case["liars"])
    attack = ATTACKS.get(name)
    family = "gaussian" if attack is None else attack.family
    options = {} if attack is None else dict(attack.options)
    costs: dict[str, list[float]] = {way: [] for way in ways(options)}
    warned, wrongly = [], []
    seeds = range(FIRST_SEED, FIRST_SEED + (1 if settings.quick else SEEDS))
    for seed in seeds:
        honest = sites(family, seed)
        sent = list(honest.messages) if attack is None else honest.attacked(attack, liars, seed)
        lying = {message.site for message in sent[:liars]}
        for way, merge in ways(options).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    model, named, out = merge(sent)
                    cost = honest.cost(model, liars)
                except OtmoeError:  # refused, with a sentence that names a site
                    cost, named, out = np.nan, lying, set()
            costs[way].append(cost)
            if way == "default":
                warned.append(named >= lying)
            if way == "exclude":
                wrongly.append(len(out - lying))
    return {
        "seeds": len(seeds),
        "warned": sum(warned),
        "honest_out": sum(wrongly),
        **{way: figure(np.mean(values)) for way, values in costs.items()},
        **{f"{way}_worst": figure(np.max(values)) for way, values in costs.items()},
    }


BENCHMARK = Benchmark(
    "attacks",
    "What lying sites cost the others: nats per row, ten sites",
    cases,
    measure,
    (
        Column("attack", "attack"),
        Column("liars", "liars", "{:.0f}"),
        Column("warned", f"named, of {SEEDS}", "{:.0f}"),
        *(
            Column(way, head, "{:.2g}")
            for way, head in (
                ("default", "default"),
                ("exclude", "exclude"),
                ("exclude_worst", "worst"),
                *((method, method.replace("_", " ")) for method in ROBUST),
                ("flower_median", "median, not matched"),
                ("flower_krum", "Multi-Krum, not matched"),
            )
        ),
        Column("honest_out", "honest sites excluded", "{:.0f}"),
    ),
    (
        Requirement("exclude_worst", "nats lost where sites are excluded", at_most=0.02),
        Requirement("warned", "sets in which all liars are named by default", at_least=SEEDS),
        Requirement(
            "median",
            "nats lost by median, shift by 1 sd",
            at_most=0.01,
            of=lambda row: row["attack"] == "shift by 1 sd",
        ),
        *(
            Requirement(method, f"nats lost by {method}, any attack", at_most=0.01)
            for method in ("geometric_median", "krum")
        ),
    ),
)
