"""What the studies on real data share: sites fitted once and merged by every method."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from otmoe import MoE, aggregate, draw_support, simulate
from otmoe.aggregation.support import Support
from otmoe.data.shards import RowsShard, Shard
from otmoe.distributed.fit import fit_shards
from otmoe.distributed.result import DistributedFit
from otmoe.evaluation.metrics import (
    mean_absolute_error,
    relative_prediction_error,
    root_mean_squared_error,
    scatter_index,
)
from otmoe.likelihood.fit import em
from otmoe.model.target import Target
from paper.learning import learning_times
from paper.refining import refined
from studies.machines import OtherWork, environment
from studies.rows import Row, append, read

RESULTS = Path(__file__).parent / "results"
SEED, POINTS = 0, 4000

Found = tuple[str, str, MoE, Row]
"""A method, its refine rounds, the model, and columns of the CSV about how it came to be."""


# -- running -------------------------------------------------------------------------------------


def arguments(name: str, doc: str | None, csv: str) -> argparse.Namespace:
    """Read the command line that the studies share."""
    parser = argparse.ArgumentParser(prog=f"python -m paper.{name}", description=doc)
    parser.add_argument("--data", type=Path, help="instead of the folder that OTMOE_DATA names")
    parser.add_argument("--out", type=Path, help=f"the CSV; by default paper/results/{csv}.csv")
    parser.add_argument("--quick", action="store_true", help="few rows, and a CSV of its own")
    parser.add_argument("--show", action="store_true", help="only print what the CSV holds")
    parser.add_argument("--docs", action="store_true", help="write the table of docs/real_data.md")
    args = parser.parse_args()
    args.out = args.out or RESULTS / f"{csv}{'_quick' if args.quick else ''}.csv"
    return args


def loaded(load: Callable[[Path | None], Any], folder: Path | None) -> Any:
    """Load a data set, or end with a sentence on where it was looked for."""
    try:
        return load(folder)
    except FileNotFoundError as error:
        sys.exit(str(error))


class Results:
    """A CSV that is added to; what it holds is not done again."""

    def __init__(self, path: Path, keys: Sequence[str], console: Console) -> None:
        self.path, self.keys, self.console = path, tuple(keys), console
        self.known = {self.key(row) for row in read(path)}

    def key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.keys)

    def lacks(self, **row: Any) -> bool:
        return self.key(row) not in self.known

    def lacking(
        self, methods: Sequence[str], refined: Sequence[str], rounds: Sequence[int], **about: Any
    ) -> list[str]:
        """Return the methods of which a row that `merged` gives is not there."""
        keys = wanted(methods, refined, rounds)
        open_ = {m for m, r in keys if self.lacks(**about, method=m, refine=r)}
        return [method for method in methods if method in open_]

    def add(self, row: Row) -> None:
        if self.lacks(**row):
            append(self.path, row | {"seed": SEED} | environment())
            self.known.add(self.key(row))
            self.console.print(", ".join(self.key(row)), highlight=False)


def warm_up() -> None:
    """Have loops compiled, or loaded, before seconds are counted."""
    for family in ("gaussian", "logistic"):
        data = simulate(500, 2, 3, family=family, softness=1.0, random_state=SEED)
        em(data.X, data.y, 2, family=family, n_init=1, max_iter=5, random_state=SEED)


def timed(action: Callable[[], Any]) -> tuple[Any, Row]:
    """Run something on one core, and return what it gives and the columns about its seconds."""
    other, begin = OtherWork(), perf_counter()
    with threadpool_limits(1):
        found = action()
    seconds = perf_counter() - begin
    return found, learned(seconds, other)


def learned(
    local: float, other: OtherWork, merging: float = 0.0, refining: float = 0.0, **more: Any
) -> Row:
    """Return the columns about the seconds of a fit, and about its sites."""
    none = {"rounds": 0, "refitted": "", "left_out": "", "standing_out": "", "converged": ""}
    return (
        none
        | more
        | {
            "local_seconds": local,
            "merging_seconds": merging,
            "refine_seconds": refining,
            "learning_seconds": local + merging + refining,
            "other_cores_busy": other.cores(),
        }
    )


@dataclass(frozen=True)
class Sites:
    """Sites that were fitted, to be merged by several methods.

    Attributes
    ----------
    shards : list of Shard
        Without those left out.
    fit : DistributedFit
    support : Support
    target : Target, optional
        By default a number.
    other : OtherWork
        Since the fits began.
    """

    shards: list[Shard]
    fit: DistributedFit
    support: Support
    target: Target | None
    other: OtherWork

    @property
    def about(self) -> Row:
        left_out = self.fit.aggregation.left_out
        return {"refitted": " ".join(self.fit.refitted), "left_out": " ".join(left_out)}

    def alone(self, X: np.ndarray, site: np.ndarray) -> tuple[np.ndarray, Row]:
        """Return what the site of each row predicts by itself, and columns of the CSV."""
        found = np.full(len(X), np.nan)
        for message in self.fit.local_models:
            mine = site.astype(str) == message.site
            found[mine] = message.model.predict(X[mine])
        return found, learned(learning_times(self.fit)[0], self.other, **self.about)


def fit_sites(
    shards: Sequence[Shard], n_experts: int, target: Target | None = None, **options: Any
) -> Sites:
    """Fit every site by itself, on one core, as the estimators do it."""
    other = OtherWork()
    with threadpool_limits(1):
        fit = fit_shards(
            shards,
            n_experts,
            target=target,
            method="gram",
            n_support=POINTS,
            options=options,
            random_state=SEED,
        )
        here = [shard for shard in shards if shard.name not in fit.aggregation.left_out]
        samples = {shard.name: shard.read().X for shard in here}
        support = draw_support(samples, POINTS, random_state=SEED)
    return Sites(here, fit, support, target, other)


def merged(
    sites: Sites, methods: Sequence[str], starts: Sequence[str], rounds: Sequence[int]
) -> Iterator[Found]:
    """Merge local models by every method, and refine some.

    The learning time is that of the slowest site and of the merging, as in the paper, and that of
    the slowest site in every refine round: sites work side by side, though here one after another.
    """
    fit = sites.fit
    local, agreeing = learning_times(fit)
    kept = {shard.name for shard in sites.shards}
    messages = [message for message in fit.local_models if message.site in kept]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about sites: they are named in the CSV
        for method in methods:
            result = aggregate(messages, sites.support, method=method)
            flagged = " ".join(record.site for record in result.sites if record.flagged)
            about = sites.about | {"standing_out": flagged, "converged": result.converged}
            times = local, sites.other, agreeing + result.timings["total"]
            yield method, "0", result.model, learned(*times, **about)
            if method in starts:
                for number, state, seconds in refined(
                    result.model, sites.support.rows, sites.shards, rounds, sites.target
                ):
                    about |= {"rounds": state.rounds, "converged": state.converged}
                    yield method, number, state.model, learned(*times, seconds, **about)


def wanted(
    methods: Sequence[str], refined: Sequence[str], rounds: Sequence[int]
) -> list[tuple[str, str]]:
    """Return the methods and the refine rounds that `merged` gives."""
    numbers = [*map(str, rounds), "auto"]
    return [(m, "0") for m in methods] + [(m, r) for m in refined for r in numbers]


def by_site(X: np.ndarray, y: np.ndarray, site: np.ndarray) -> list[RowsShard]:
    """Return the rows of each site as a shard of its name."""
    return [
        RowsShard(str(name), X, y, index=np.flatnonzero(site == name)) for name in np.unique(site)
    ]


def errors(y: np.ndarray, prediction: np.ndarray) -> Row:
    """Return the paper's errors of prediction."""
    return {
        "rpe": relative_prediction_error(y, prediction),
        "rmse": root_mean_squared_error(y, prediction),
        "mae": mean_absolute_error(y, prediction),
        "si": scatter_index(y, prediction),
    }
