"""``otmoe aggregate``: the messages of many sites into one model."""

from __future__ import annotations

import glob
import warnings
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import click
import numpy as np
from rich.table import Table

import otmoe
from otmoe import LocalModel, save_model, support_from
from otmoe.aggregation import Aggregation, SiteRecord
from otmoe.aggregation.problem import check_messages
from otmoe.cli import options
from otmoe.cli.common import (
    NAMED,
    Command,
    Failed,
    check_output,
    few,
    option,
    output,
    say,
    sentence,
    warn,
)
from otmoe.cli.tables import experts_table, listed, table_of
from otmoe.message import MessageError
from otmoe.numerics import Floats
from otmoe.prediction import spec_of
from otmoe.shards import draw_features
from otmoe.support import N_POINTS

WEIGHTS = ("rows", "equal", "covariate")


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  otmoe aggregate "*.moe.json" -o model.json
  otmoe aggregate *.moe.json --support covariates.parquet --exclude Brest -o model.json

The same messages, support and seed give the same model, in whatever order the messages come.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@option(
    "--skip-bad",
    is_flag=True,
    section="Messages",
    help="Go on without messages that cannot be read, and name them.",
)
@option(
    "--exclude",
    multiple=True,
    metavar="SITE",
    section="Messages",
    help="Leave this site out; may be given several times.",
)
@option(
    "--site-weight",
    type=click.Choice(WEIGHTS),
    default="rows",
    show_default=True,
    section="Messages",
    help="How much a site counts: by its rows, all the same, or by rows and sketch, so that it "
    "counts where its rows are.",
)
@option(
    "--support",
    metavar="DATA",
    section="Support",
    help="Rows of covariates at which models are compared, Parquet or CSV; no y is needed. By "
    "default points are drawn from the sketches and rows that the messages bring.",
)
@option(
    "--points",
    type=click.IntRange(min=1),
    default=N_POINTS,
    show_default=True,
    section="Support",
    help="How many of them to draw.",
)
@options.missing("Support")
@option(
    "--experts",
    type=click.IntRange(min=1),
    section="Merging",
    help="Number of experts; by default the largest of the sites'.",
)
@options.method("Merging")
@options.seed("Merging")
@output("Model file to write, JSON.")
def aggregate(
    files: tuple[str, ...],
    skip_bad: bool,
    exclude: tuple[str, ...],
    site_weight: str,
    support: str | None,
    points: int,
    missing: Literal["error", "drop"],
    experts: int | None,
    method: str,
    seed: int,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Merge the messages of many sites into one model.

    FILES are messages that `otmoe fit` or `to_message` has written, or patterns in quotes such as
    "inbox/*.moe.json". They have to agree on family, features and classes.
    """
    check_output(output, force)
    begin = perf_counter()
    received, bad = _read(_found(files), skip_bad)
    messages = check_messages(_without(received, exclude))
    X, source = _support(messages, support, points, missing, seed)
    weight = {"rows": None, "equal": np.ones(len(messages)), "covariate": "covariate"}[site_weight]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the result has them line by line
        result = otmoe.aggregate(
            messages,
            X,
            experts,
            method=method,
            site_weight=weight,
            random_state=seed,
            n_jobs=-1,
        )
    about = {
        "made by": "otmoe aggregate",
        "method": method,
        "seed": seed,
        "sites": few(message.site for message in messages),
        "number of sites": len(messages),
        "rows": sum(message.n_samples for message in messages),
        "support": source,
    }
    save_model(result.model, output, about=about, features=messages[0].features)
    for why in bad.values():
        warn(f"left out: {why}")
    for words in result.warnings:
        warn(words)
    report = {
        "command": "aggregate",
        "output": str(output),
        "family": result.model.experts.family,
        "method": method,
        "status": result.status,
        "converged": bool(result.converged),
        "cost": result.cost,
        "terms": list(result.model.terms),
        "mass": None if result.mass is None else result.mass.tolist(),
        "sites": [
            _record(record, message) for record, message in zip(result.sites, messages, strict=True)
        ],
        "excluded": list(exclude),
        "unreadable": bad,
        "rows": about["rows"],
        "bytes": result.communication.bytes,
        "support": source,
        "support_points": result.n_support,
        "warnings": list(result.warnings),
        "seconds": perf_counter() - begin,
    }
    say(report, as_json, quiet, *_shown(report, result))


def _found(files: Sequence[str]) -> list[Path]:
    """Return the files that names and patterns stand for, those of a pattern sorted."""
    found: list[Path] = []
    for item in files:
        matches = (
            sorted(glob.glob(item)) if glob.has_magic(item) and not Path(item).exists() else [item]
        )
        if not matches:
            raise Failed(f"no file matches {item}; check the folder and the pattern.")
        found += map(Path, matches)
    return found


def _read(paths: Sequence[Path], skip_bad: bool) -> tuple[list[LocalModel], dict[str, str]]:
    """Return the messages, and why others cannot be read, by file."""
    found: dict[str, tuple[Path, LocalModel]] = {}
    bad: dict[str, str] = {}
    for path in paths:
        try:
            message = LocalModel.load(path)
        except (MessageError, OSError) as error:
            bad[str(path)] = sentence(error)
            continue
        if message.site in found:
            raise Failed(
                f"{found[message.site][0]} and {path} both come from site {message.site!r}; a site "
                "may send one message, so leave one out."
            )
        found[message.site] = path, message
    if bad and not (skip_bad and found):
        hint = "" if skip_bad or not found else " (--skip-bad goes on without them)"
        raise Failed(
            f"{len(bad)} of {len(paths)} messages cannot be read{hint}: {' '.join(bad.values())}"
        )
    return [message for _, message in found.values()], bad


def _without(messages: list[LocalModel], exclude: Sequence[str]) -> list[LocalModel]:
    names = [message.site for message in messages]
    for site in exclude:
        if site not in names:
            raise Failed(f"--exclude {site}: no message is from that site; there are {few(names)}.")
    left = [message for message in messages if message.site not in exclude]
    if not left:
        raise Failed("--exclude leaves no site to merge.")
    return left


def _support(
    messages: Sequence[LocalModel],
    data: str | None,
    points: int,
    missing: Literal["error", "drop"],
    seed: int,
) -> tuple[Floats, str]:
    """Return the points at which models are compared, and where they come from."""
    if data is not None:
        first = messages[0]
        spec = spec_of(first.model, first.features)
        X, total = draw_features(data, spec, points, missing=missing, random_state=seed)
        return X, f"{len(X):,} of {total:,} rows of {data}"
    brought = [m.site for m in messages if m.sketch is not None or m.support is not None]
    if not brought:
        raise Failed(
            "there is nothing to compare the models at: give rows of covariates by --support, or "
            "ask the sites to fit with --sketch."
        )
    X = support_from(messages, points, random_state=seed)
    return X, f"{len(X):,} points drawn from what {len(brought):,} sites sent"


def _record(record: SiteRecord, message: LocalModel) -> dict[str, Any]:
    """Return the part of a site, as it is printed by --json."""
    return {
        "site": record.site,
        "rows": record.n_samples,
        "experts": message.model.n_experts,
        "converged": message.converged,
        "weight": record.weight,
        "cost": record.cost,
        "heard": record.heard,
        "destination": None if record.destination is None else record.destination.tolist(),
        "bytes": len(message.to_json().encode()),
    }


def _shown(report: dict[str, Any], result: Aggregation) -> list[Any]:
    """Return the same for people."""
    about = [
        ("sites", f"{len(report['sites']):,}"),
        ("rows", f"{report['rows']:,.10g}"),
        ("received", f"{report['bytes']:,} bytes"),
        ("support", report["support"]),
        ("merging", report["status"]),
        ("written to", report["output"]),
    ]
    return [
        listed(about),
        _sites_table(report["sites"]),
        experts_table(result.model, report["mass"]),
    ]


def _sites_table(sites: list[dict[str, Any]]) -> Table:
    """Return the sites, those that count most where they are many."""
    most = sorted(sites, key=lambda site: -site["weight"])[:NAMED]
    rows = (
        [s["site"], f"{s['rows']:,.10g}", f"{s['weight']:.3f}", f"{s['cost']:.4g}"]
        for s in sites
        if s in most
    )
    table = table_of(["site", "rows", "weight", "cost"], rows, {"site"})
    left = len(sites) - len(most)
    if left:
        table.caption = f"and {left:,} that count less, which --json lists"
    return table
