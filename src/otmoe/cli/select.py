"""``otmoe select``: how many experts some data call for."""

from __future__ import annotations

import os
from typing import Any, Literal

import click

from otmoe import select_over_shards
from otmoe.cli import options
from otmoe.cli.common import Command, data, option, progress, say, speech
from otmoe.cli.engines import open_engine
from otmoe.selection import CRITERIA


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  otmoe select data --target y
  otmoe select data --target y --experts 1-8 --criterion elbow

The numbers are compared by models that are merged from larger ones: then fit, by otmoe run, with
the number that was chosen.""",
)
@data
@options.target()
@options.weight
@options.site
@options.spec
@options.columns
@options.cut
@options.missing()
@option(
    "--experts",
    type=options.Numbers(),
    default="1-6",
    show_default=True,
    section="Fit",
    help="Numbers of experts to compare, as in 1-6 or 2,3,5.",
)
@option(
    "--criterion",
    type=click.Choice(CRITERIA),
    default="bic",
    show_default=True,
    section="Fit",
    help="By which to choose. The elbow needs no second pass over the rows.",
)
@options.family("Fit")
@options.seed("Fit")
@options.engine
@speech
def select(
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    site: str | None,
    spec: str | None,
    columns: list[str] | None,
    cut: Any,
    missing: Literal["error", "drop"],
    experts: list[int],
    criterion: str,
    family: str,
    seed: int,
    engine: str,
    address: str | None,
    workers: int | None,
    on_error: Literal["raise", "skip"],
    timeout: float | None,
    retries: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare numbers of experts on the shards of some data.

    Every shard is fitted once, with the largest number of experts, and the models are merged to
    each number. The shards then return the log-likelihoods of the merged models.
    """
    options.check_where(site, cut, engine, address)
    features = options.features_of(spec, columns)
    shards = options.shards_of(data, target, features, weight, site, cut, missing)
    with (
        open_engine(engine, address, workers, retries) as executor,
        progress("shards", quiet, len(shards)) as report,
    ):
        jobs = workers or os.cpu_count()
        found = select_over_shards(
            shards,
            experts,
            estimator=options.estimator_of(
                family, executor=executor, n_jobs=jobs, random_state=seed
            ),
            criterion=criterion,
            retries=retries,
            timeout=timeout,
            on_error=on_error,
            progress=report,
        )
    table = [{**row, "warnings": list(row["warnings"])} for row in found.records()]
    result = {
        "command": "select",
        "criterion": criterion,
        "n_experts": found.n_experts,
        "elbow": found.best("elbow").n_experts if len(table) > 2 else None,
        "notes": list(found.notes),
        "table": table,
    }
    say(result, as_json, quiet, str(found))
