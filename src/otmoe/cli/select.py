"""``otmoe select`` and ``otmoe elbow``: how many experts some data, or messages, call for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import known, options
from otmoe.cli.aggregate import support_of
from otmoe.cli.common import Command, data, option, progress, say, speech
from otmoe.cli.executors import open_executor
from otmoe.cli.inbox import open_inbox
from otmoe.cli.structure import expert_per, gate_features, gate_of
from otmoe.cli.words import told

if TYPE_CHECKING:
    from otmoe import Selection


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  otmoe select data --target y
  otmoe select data --target y --experts 1-8 --criterion elbow

Numbers are compared using models merged from larger ones; then fit the number chosen with `otmoe
run`.""",
)
@data
@options.target()
@options.weight
@options.offset
@options.site_column
@options.spec
@options.columns
@options.max_levels
@options.cut
@options.missing()
@options.sep
@options.numbers("Fit")
@option(
    "--criterion",
    type=click.Choice([name for name in known.CRITERIA if name != "cv"]),
    default="bic",
    show_default=True,
    section="Fit",
    help="Selection criterion; expected_bic and elbow need no second pass over the rows. BIC "
    "counts rows, also where those of a group share an expert.",
)
@options.family("Fit")
@gate_features
@expert_per
@options.search
@options.seed("Fit")
@options.executor
@speech
def select(
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    spec: str | None,
    columns: list[str] | None,
    max_levels: int,
    cut: Any,
    missing: Literal["error", "drop"],
    sep: str | None,
    experts: list[int],
    criterion: str,
    family: str,
    gate_features: list[str] | None,
    expert_per: str | None,
    n_init: int | None,
    max_iter: int | None,
    seed: int,
    executor: str,
    address: str | None,
    n_jobs: int | None,
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
    from otmoe import select_over_shards

    options.check_where(site_column, cut, executor, address)
    features = options.features_of(spec, columns)
    shards = options.shards_of(
        data,
        target,
        features,
        weight,
        offset,
        site_column,
        cut,
        missing,
        max_levels,
        sep,
        expert_per,
    )
    with (
        open_executor(executor, address, n_jobs, retries) as pool,
        progress("shards", quiet, len(shards)) as report,
    ):
        jobs = n_jobs or options.default_jobs(executor, shards, max(experts))
        found = select_over_shards(
            shards,
            experts,
            estimator=options.estimator_of(
                options.family_of(family, shards[0]),
                gate_features=gate_of(gate_features, None),
                expert_per="row" if expert_per is None else "group",
                executor=pool,
                n_jobs=jobs,
                random_state=seed,
                **options.search_of(n_init, max_iter),
            ),
            criterion=criterion,
            retries=retries,
            timeout=timeout,
            on_error=on_error,
            progress=report,
            groups=expert_per,
        )
    say(_report(found, "select", criterion), as_json, quiet, str(found))


@click.command(
    cls=Command,
    short_help="Compare numbers of experts using only messages.",
    epilog="""\b
Examples:
  otmoe elbow "*.moe.json"
  otmoe elbow "*.moe.json" --experts 2-8 --support covariates.parquet
  otmoe elbow "*.moe.json" --criterion elbow

Have the sites fit a few more experts than could be needed. The elbow (--criterion elbow), after
which the command is named, is never at either end of the range.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@options.exclude
@options.support
@options.n_support
@options.missing("Support")
@options.numbers("Merging")
@option(
    "--criterion",
    type=click.Choice(["expected_bic", "elbow"]),
    default="expected_bic",
    show_default=True,
    section="Merging",
    help="Selection criterion: BIC from the log-likelihood that the sites' own models expect, or "
    "the elbow of the transport objective, which needs at least three numbers.",
)
@options.seed("Merging")
@speech
def elbow(
    files: tuple[str, ...],
    exclude: tuple[str, ...],
    support: str | None,
    n_support: int,
    missing: Literal["error", "drop"],
    experts: list[int],
    criterion: str,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare numbers of experts using only the messages of many sites.

    FILES are messages, as for `otmoe aggregate`. They are merged to each number. The expected loss
    of each merged model relative to the sites' own is penalised by its number of parameters, as in
    BIC; the elbow of the transport objective is shown as well. No site is contacted.
    """
    from otmoe import select_from_messages

    messages = open_inbox(files, exclude, skip_bad=False).messages
    X = support_of(messages, support, n_support, missing, seed)
    found = select_from_messages(
        messages, X, experts, criterion=criterion, random_state=seed, n_jobs=-1
    )
    say(_report(found, "elbow", criterion), as_json, quiet, str(found))


def _report(found: Selection, command: str, criterion: str) -> dict[str, Any]:
    """Return what was found, as it is printed by --json."""
    table = [{**row, "warnings": told(row["warnings"])} for row in found.records()]
    expected = all(candidate.expectation is not None for candidate in found.candidates)
    return {
        "command": command,
        "criterion": criterion,
        "n_experts": found.n_experts,
        "expected_bic": found.best("expected_bic").n_experts if expected else None,
        "elbow": found.best("elbow").n_experts if len(table) > 2 else None,
        "notes": told(found.notes),
        "table": table,
    }
