"""``otmoe run``: fit the shards of some data and merge them into one model."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

import click

from otmoe.cli import known, options
from otmoe.cli.asked import asked_of
from otmoe.cli.between import between_lines, personal_options, personal_report, strength_words
from otmoe.cli.closing import closing
from otmoe.cli.common import (
    Command,
    Rounds,
    check_output,
    data,
    few,
    option,
    output,
    progress,
    say,
    usage,
    warn,
)
from otmoe.cli.executors import open_executor
from otmoe.cli.kept import kept_fits
from otmoe.cli.structure import experts_of, gate_of, structure
from otmoe.cli.tables import candidates_of, candidates_tables, listed
from otmoe.cli.words import told, told_by_name
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Finding, Warn

ENOUGH = 10
"""Rows per parameter below which shards are called small."""


@click.command(
    cls=Command,
    short_help="Fit every shard where its rows are, and merge the models.",
    epilog="""\b
Examples:
  otmoe run data --target y --experts 2 -o model.json
  otmoe run "data/*.parquet" --target y --experts 2 --site-column hospital -o model.json
  otmoe run data --target y --experts 2 --site-column hospital --personal auto -o model.json
  otmoe run data --target y --experts 2 --executor dask --address tcp://head:8786 -o model.json

The same data and seed give the same model, whatever the executor and the number of workers.""",
)
@data
@options.target(options.OR_FORMULA, required=False)
@options.formula
@options.weight
@options.offset
@options.site_column
@options.spec
@options.columns
@options.max_levels
@options.cut
@options.missing()
@options.sep
@options.experts
@options.family("Fit")
@structure
@options.method("Fit", more=("em",))
@option(
    "--refine",
    type=Rounds(0),
    default=0,
    show_default=True,
    section="Fit",
    help="Refine rounds, one pass over all rows each, towards the maximum-likelihood estimate; "
    "auto for as many as needed.",
)
@personal_options
@option(
    "--n-support",
    type=click.IntRange(min=1),
    default=known.N_SUPPORT,
    show_default=True,
    section="Fit",
    help="Rows of covariates at which models are compared.",
)
@options.search
@options.seed("Fit")
@options.executor
@option(
    "--keep-fits",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    section="Where it runs",
    help="Folder in which to keep the local fits after the run: a later run fits only shards "
    "that are new or have changed. By default they are kept beside the output, as "
    "FILE.parts, until it is written, so that an interrupted run can be resumed.",
)
@output("Model file to write, JSON.")
@options.model_only
def run(
    data: tuple[str, ...],
    target: str | None,
    formula: str | None,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    spec: str | None,
    columns: list[str] | None,
    max_levels: int,
    cut: Any,
    missing: Literal["error", "drop"],
    sep: str | None,
    experts: int,
    family: str,
    gate_features: list[str] | None,
    expert_features: tuple[str, ...],
    common: list[str] | None,
    common_variance: bool,
    zero_expert: bool,
    expert_per: str | None,
    method: str,
    refine: int | str,
    personal: str | None,
    groups: str | None,
    n_support: int,
    n_init: int | None,
    max_iter: int | None,
    seed: int,
    executor: str,
    address: str | None,
    n_jobs: int | None,
    on_error: Literal["raise", "skip"],
    timeout: float | None,
    retries: int,
    keep_fits: Path | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
    model_only: bool,
) -> None:
    """Fit every shard where its rows are, and merge the models into one.

    A shard is a file, unless --cut or --site-column says otherwise. Each is read and fitted by a
    worker, which sends back a model of a few kilobytes; the merged one is written as JSON,
    including the encoding of its features.
    """
    options.check_where(site_column, cut, executor, address)
    if zero_expert and family == known.CLASSES:
        raise usage(Error.ZERO_OF_COUNTS, family=family)
    if groups is not None and personal is None:
        raise usage(Error.SHELL_GROUPS_OF_PERSONAL)
    check_output(output, force)

    from sklearn.exceptions import ConvergenceWarning

    from otmoe.data.shards import grouped_by
    from otmoe.evaluation.scores import goodness
    from otmoe.evaluation.shards import score_shards
    from otmoe.likelihood.agreement import SEARCHES
    from otmoe.workers.gather import Workers

    begin = perf_counter()
    labels = groups if expert_per is None else expert_per
    roles = (weight, offset, site_column, expert_per, groups)
    asked = asked_of(data, target, formula, spec, columns, *roles, sep=sep)
    shards = options.shards_of(
        data,
        asked.target,
        asked.features,
        weight,
        offset,
        site_column,
        cut,
        missing,
        max_levels,
        sep,
        labels,
    )
    with kept_fits(output, keep_fits) as folder:
        with (
            open_executor(executor, address, n_jobs, retries) as pool,
            progress("shards", quiet, len(shards)) as report,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", ConvergenceWarning)  # est.warnings_ has it line by line
            est = options.estimator_of(
                options.family_of(family, shards[0]),
                n_experts=experts,
                gate_features=gate_of(gate_features, asked.gate),
                expert_features=experts_of(expert_features, asked.experts),
                common=common,
                common_variance=common_variance,
                **({"zero_expert": True} if zero_expert else {}),
                expert_per="row" if expert_per is None else "group",
                method=method,
                n_support=n_support,
                refine=refine,
                personal=personal,
                **options.search_of(n_init, max_iter),
                executor=pool,
                n_jobs=n_jobs or options.default_jobs(executor, shards, experts),
                random_state=seed,
            ).fit_shards(
                shards,
                retries=retries,
                timeout=timeout,
                on_error=on_error,
                progress=report,
                groups=labels,
                keep_fits=folder,
            )
            names = [message.site for message in est.local_models_]
            fitted = [shard for shard in shards if shard.name in set(names)]
            if expert_per is not None:
                fitted = [grouped_by(shard, expert_per) for shard in fitted]
            score = score_shards(est.model_, fitted, Workers(pool, retries, timeout))
        refined = est.aggregation_.refinement
        about = {
            "made by": "otmoe run",
            "target": asked.target,
            **({} if formula is None else {"formula": formula}),
            **({} if offset is None else {"offset": offset}),
            **({} if expert_per is None else {"expert per": expert_per}),
            "method": method,
            **({"chosen": est.aggregation_.method} if est.aggregation_.candidates else {}),
            "refine rounds": 0 if refined is None else refined.rounds,
            "seed": seed,
            "rows": est.n_rows_,
            "shards": len(names),
            **({} if est.agreement_ is None else {SEARCHES: est.agreement_.searches_that_agree}),
            "sites": few(names),
            **goodness(score),
        }
        failed = {f.name: Finding.NOT_FITTED(why=str(f.cause)) for f in est.failures_}
        merged = est.aggregation_
        merged = replace(merged, left_out={**merged.left_out, **failed}, warnings=est.warnings_)
        between = getattr(est, "between_", None)
        options.write(merged, output, about, est.features_, model_only, between)
    for notice in (*est.warnings_, *_small(est, site_column)):
        warn(notice)
    found = _report(est, output, perf_counter() - begin)
    found |= {"measures": score.measures, "null": score.null, "explained": score.explained}
    say(found, as_json, quiet, *_shown(est, found))


def _small(est: Any, site_column: str | None) -> tuple[Notice, ...]:
    """Say whether shards are so small that cutting the rows otherwise would help."""
    rows = median(message.n_samples for message in est.local_models_)
    parameters = est.model_.n_parameters
    if site_column is not None or len(est.local_models_) < 2 or rows >= ENOUGH * parameters:
        return ()
    fewer = max(int(len(est.local_models_) * rows / (ENOUGH * parameters)), 1)
    return (Warn.SHELL_SMALL_SHARDS(rows=rows, parameters=parameters, fewer=fewer),)


def _report(est: Any, output: Path, seconds: float) -> dict[str, Any]:
    """Return what happened, as it is printed by --json."""
    from otmoe.text.records import notice_document

    aggregation = est.aggregation_
    lost = {site.site: site.lost for site in aggregation.sites}
    return {
        "command": "run",
        "output": str(output),
        "family": est.model_.experts.family,
        "method": aggregation.method,
        "status": notice_document(aggregation.status),
        "converged": bool(est.converged_),
        "lost": aggregation.lost,
        "candidates": candidates_of(aggregation),
        "rows": est.n_rows_,
        "dropped": est.dropped_,
        "shards": [
            {
                "name": m.site,
                "n_samples": m.n_samples,
                "converged": m.converged,
                "lost": lost.get(m.site),
            }
            for m in est.local_models_
        ],
        "refitted": list(est.refitted_),
        "reused": list(est.reused_),
        "left_out": told_by_name(aggregation.left_out),
        "failed": told_by_name({f.name: f.cause for f in est.failures_}),
        "terms": list(est.model_.terms),
        "mass": aggregation.mass.tolist(),
        "bytes": aggregation.communication.bytes,
        "support_rows": aggregation.communication.support_rows,
        "seconds": {"all": seconds, **est.timings_},
        "warnings": told(est.warnings_),
        **({} if est.personal is None else personal_report(est)),
    }


def _shown(est: Any, found: dict[str, Any]) -> list[Any]:
    """Return the same for people."""
    from otmoe.documents.files import load_model_file

    dropped = f", {found['dropped']:,} dropped" if found["dropped"] else ""
    reused = f", {len(found['reused']):,} fitted before" if found["reused"] else ""
    about = [
        ("shards", f"{len(found['shards']):,}{reused}"),
        ("rows", f"{found['rows']:,}{dropped}"),
    ]
    for what in ("refitted", "left_out", "failed"):
        if found[what]:
            about.append((what.replace("_", " "), few(found[what])))
    several = len(found["shards"]) > 1
    if several and found["lost"] == found["lost"]:  # else it was not looked at
        before = "" if est.aggregation_.refinement is None else ", before it was refined"
        words = f"{found['lost']:.3g} nats per row relative to the shards' own models{before}"
        about.append(("expected loss", words))
    about += [
        ("sent", f"{found['bytes']:,} bytes, {found['support_rows']:,} support rows"),
        ("seconds", f"{found['seconds']['all']:.1f}"),
        ("written to", found["output"]),
    ]
    return [
        listed(about),
        *(candidates_tables(found["candidates"]) if several else []),
        *([] if est.personal is None else _differences(est)),
        *closing(load_model_file(found["output"]), Path(found["output"])),
    ]


def _differences(est: Any) -> list[Any]:
    """Return how shards differ, and which models serve them."""
    best = [found.best for found in est.forecasts_.values()]
    words = ", ".join(f"{name} at {best.count(name)}" for name in ("personal", "common", "own"))
    return [
        *between_lines(est.between_),
        strength_words(est.between_.strength),
        f"Held-out rows are predicted best by these models: {words} of {len(best)} shards.",
    ]
