"""``otmoe run``: fit the shards of some data and merge them into one model."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import click
import numpy as np
from rich import box
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from otmoe import (
    DistributedMoEClassifier,
    DistributedMoERegressor,
    load_features,
    save_model,
    shards_from,
)
from otmoe.aggregation import METHODS
from otmoe.cli.common import (
    Command,
    Failed,
    Names,
    check_output,
    data,
    option,
    output,
    progress,
    say,
    warn,
)
from otmoe.cli.engines import ENGINES, open_engine
from otmoe.support import N_POINTS

_NAMED = 20  # shards that are named in full
_TERMS = 5  # coefficients that are shown


class Cut(click.ParamType):
    """How rows are cut into shards."""

    name = "cut"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return what :func:`otmoe.shards_from` calls it."""
        if value in ("file", "row-group", "row_group"):
            return value.replace("-", "_")
        if isinstance(value, int) or (value.isdecimal() and int(value) > 0):
            return int(value)
        return self.fail(f"{value!r}: give file, row-group or a number of shards.", param, ctx)


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  otmoe run data --target y --experts 2 -o model.json
  otmoe run "data/*.parquet" --target y --experts 2 --site hospital -o model.json
  otmoe run data --target y --experts 2 --engine dask --address tcp://head:8786 -o model.json

The same data and seed give the same model, whatever the engine and the number of workers.""",
)
@data
@option("--target", metavar="COLUMN", required=True, section="Columns", help="The response.")
@option("--weight", metavar="COLUMN", section="Columns", help="Case weights.")
@option(
    "--site", metavar="COLUMN", section="Columns", help="One shard for each value of this column."
)
@option(
    "--features",
    "spec",
    metavar="FILE",
    section="Columns",
    help="How columns become features: a file that `otmoe features` or a run has written.",
)
@option(
    "--columns",
    type=Names(),
    section="Columns",
    help="The features instead; by default all other columns.",
)
@option(
    "--cut",
    type=Cut(),
    metavar="file|row-group|N",
    section="Rows",
    help="One shard per file (the default) or row group, or N in all.",
)
@option(
    "--missing",
    type=click.Choice(["error", "drop"]),
    default="error",
    show_default=True,
    section="Rows",
    help="Rows with missing values: refuse them, or leave them out.",
)
@option(
    "--experts", type=click.IntRange(min=1), required=True, section="Fit", help="Number of experts."
)
@option(
    "--family",
    type=click.Choice(["gaussian", "poisson", "classes"]),
    default="gaussian",
    show_default=True,
    section="Fit",
    help="What the target is: a number, a count, a class.",
)
@option(
    "--method",
    type=click.Choice([m for m in METHODS if m != "ensemble"]),
    default="reduction",
    show_default=True,
    section="Fit",
    help="How models are merged.",
)
@option(
    "--support",
    type=click.IntRange(min=1),
    default=N_POINTS,
    show_default=True,
    section="Fit",
    help="Rows of covariates at which models are compared.",
)
@option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, section="Fit", help="Seed."
)
@option(
    "--engine",
    type=click.Choice(ENGINES),
    default="local",
    show_default=True,
    section="Where it runs",
    help="Processes here, a Dask cluster, a Ray cluster.",
)
@option(
    "--address", section="Where it runs", help="Of the cluster; by default one is started here."
)
@option(
    "--workers",
    type=click.IntRange(min=1),
    section="Where it runs",
    help="Processes on this machine; by default one per core.",
)
@option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    section="Where it runs",
    help="A shard that fails: give up, or go on without it.",
)
@option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    section="Where it runs",
    help="Give up what runs if no shard ends for so long.",
)
@option(
    "--retries",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    section="Where it runs",
    help="Further attempts when a worker dies or a file is away.",
)
@output("Model file to write, JSON.")
def run(
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    site: str | None,
    spec: str | None,
    columns: list[str] | None,
    cut: Any,
    missing: Literal["error", "drop"],
    experts: int,
    family: str,
    method: str,
    support: int,
    seed: int,
    engine: str,
    address: str | None,
    workers: int | None,
    on_error: Literal["raise", "skip"],
    timeout: float | None,
    retries: int,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit every shard where its rows are, and merge the models into one.

    A shard is a file, unless --cut or --site says otherwise. Each is read and fitted by a worker,
    which sends back a model of a few kilobytes; the merged one is written as JSON, with the
    encoding of its features inside.
    """
    if spec is not None and columns is not None:
        raise click.UsageError("give --features or --columns, not both.")
    if site is not None and cut is not None:
        raise click.UsageError("with --site the sites are the shards; leave out --cut.")
    if address is not None and engine == "local":
        raise click.UsageError("--address is of a cluster; give --engine dask or ray as well.")
    check_output(output, force)
    begin = perf_counter()
    features = None if spec is None else load_features(spec)
    if spec is not None and features is None:
        raise Failed(f"{spec} says nothing about columns; name them by --columns.")
    shards = shards_from(
        list(data),
        target=target,
        features=columns if features is None else features,
        weight=weight,
        site=site,
        cut=cut or "file",
        missing=missing,
    )
    options: dict[str, Any] = {} if family == "classes" else {"family": family}
    kind = DistributedMoEClassifier if family == "classes" else DistributedMoERegressor
    with (
        open_engine(engine, address, workers, retries) as executor,
        progress("shards", quiet, len(shards)) as report,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # est.warnings_ has it line by line
        est = kind(
            experts,
            method=method,
            n_support=support,
            executor=executor,
            n_jobs=workers or os.cpu_count(),
            random_state=seed,
            **options,
        ).fit_shards(shards, retries=retries, timeout=timeout, on_error=on_error, progress=report)
    names = [message.site for message in est.local_models_]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    about = {
        "made by": "otmoe run",
        "target": target,
        "method": method,
        "seed": seed,
        "rows": est.n_rows_,
        "shards": len(names),
        "sites": ", ".join(names[:_NAMED]) + more,
    }
    save_model(est.model_, output, about=about, features=est.features_)
    for text in est.warnings_:
        warn(text)
    found = _report(est, output, perf_counter() - begin)
    say(found, as_json, quiet, *_shown(est, found))


def _report(est: Any, output: Path, seconds: float) -> dict[str, Any]:
    """Return what happened, as it is printed by --json."""
    aggregation = est.aggregation_
    return {
        "command": "run",
        "output": str(output),
        "family": est.model_.experts.family,
        "method": aggregation.method,
        "status": aggregation.status,
        "converged": bool(est.converged_),
        "rows": est.n_rows_,
        "dropped": est.dropped_,
        "shards": [
            {"name": m.site, "n_samples": m.n_samples, "converged": m.converged}
            for m in est.local_models_
        ],
        "refitted": list(est.refitted_),
        "left_out": dict(aggregation.left_out),
        "failed": {failure.name: failure.cause for failure in est.failures_},
        "terms": list(est.model_.terms),
        "mass": aggregation.mass.tolist(),
        "bytes": aggregation.communication.bytes,
        "support_rows": aggregation.communication.support_rows,
        "seconds": {"all": seconds, **est.timings_},
        "warnings": list(est.warnings_),
    }


def _shown(est: Any, found: dict[str, Any]) -> list[Any]:
    """Return the same for people."""
    about = Table(box=box.SIMPLE_HEAD, show_header=False)
    dropped = f", {found['dropped']:,} dropped" if found["dropped"] else ""
    about.add_row("shards", f"{len(found['shards']):,}")
    about.add_row("rows", f"{found['rows']:,}{dropped}")
    for what in ("refitted", "left_out", "failed"):
        if found[what]:
            names = list(found[what])
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            about.add_row(what.replace("_", " "), ", ".join(names[:_NAMED]) + more)
    about.add_row("sent", f"{found['bytes']:,} bytes, {found['support_rows']:,} support rows")
    about.add_row("seconds", f"{found['seconds']['all']:.1f}")
    about.add_row("written to", found["output"])
    return [about, _experts(est)]


def _experts(est: Any) -> Table:
    """Return the experts: mass, variance, first coefficients; by class where there are several."""
    model, mass = est.model_, est.aggregation_.mass
    terms = model.terms[:_TERMS]
    table = Table(box=box.SIMPLE_HEAD)
    variance = getattr(model.experts, "var", None)
    several = model.experts.coef.ndim == 3
    heads = ["expert", "mass", *([] if variance is None else ["variance"])]
    for head in [*heads, *(["class"] if several else []), *terms]:
        table.add_column(head, justify="right")
    for k, coef in enumerate(model.experts.coef):
        first = [str(k), f"{mass[k]:.3f}", *([] if variance is None else [f"{variance[k]:.4g}"])]
        if not several:
            table.add_row(*first, *(f"{b:.4g}" for b in coef[:_TERMS]))
            continue
        for label, row in zip(np.asarray(model.classes).tolist(), coef, strict=True):
            table.add_row(*first, str(label), *(f"{b:.4g}" for b in row[:_TERMS]))
            first = [""] * len(first)
    left = len(model.terms) - len(terms)
    if left:
        table.caption = f"and {left} more coefficients each"
    return table
