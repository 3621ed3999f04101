"""``otmoe aggregate``: the messages of many sites into one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import options
from otmoe.cli.closing import closing
from otmoe.cli.common import (
    NAMED,
    Command,
    Failed,
    check_output,
    few,
    option,
    output,
    say,
    warn,
)
from otmoe.cli.inbox import Inbox, first_messages, open_inbox, paths_of
from otmoe.cli.many import merged_in_groups
from otmoe.cli.remembered import columns_asked
from otmoe.cli.tables import (
    alternatives_tables,
    candidates_of,
    candidates_tables,
    listed,
    table_of,
)
from otmoe.cli.words import in_shell_words, told, told_by_name
from otmoe.text.sentences import Error, Finding, Warn

if TYPE_CHECKING:
    from rich.table import Table

    from otmoe import LocalModel
    from otmoe.aggregation import Aggregation, Contribution
    from otmoe.arrays.numerics import Floats


FEW = 20
"""Messages that are looked at to see what all of many have."""

WEIGHTS = ("rows", "equal", "covariate")


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  otmoe aggregate "*.moe.json" -o model.json
  otmoe aggregate *.moe.json --support covariates.parquet --exclude Brest -o model.json

The same messages, support and seed give the same model, whatever the order of the messages. `otmoe
refine` continues from it to the maximum-likelihood fit of all rows.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@option(
    "--skip-bad",
    is_flag=True,
    section="Messages",
    help="Skip messages that cannot be read, and name them.",
)
@options.exclude
@option(
    "--exclude-flagged",
    is_flag=True,
    section="Messages",
    help="Leave out sites that stand out from the others, and name them.",
)
@option(
    "--keep",
    multiple=True,
    metavar="SITE",
    section="Messages",
    help="Keep this site even if it stands out; may be given several times.",
)
@option(
    "--max-weight",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    section="Messages",
    help="Largest share of the weight that a site may get from the number of rows it claims; 1 "
    "for no limit. By default, with --exclude-flagged, 0.5 for a site that differs from the "
    "others.",
)
@option(
    "--site-weight",
    type=click.Choice(WEIGHTS),
    default="rows",
    show_default=True,
    section="Messages",
    help="Weight of a site: by its number of rows, equal, or by rows and sketch, so that a site "
    "counts where its rows are.",
)
@options.support
@options.n_support
@options.missing("Support")
@option(
    "--experts",
    type=click.IntRange(min=1),
    section="Merging",
    help="Number of experts; by default the median over sites.",
)
@options.method("Merging")
@option(
    "--group-size",
    type=click.IntRange(min=3),
    metavar="N",
    section="Merging",
    help="Sites to merge at a time: first within groups, on all cores, then the groups. By "
    "default all at once, or 100 at a time if there are more than 2,000.",
)
@options.seed("Merging")
@output("Model file to write, JSON.")
@options.model_only
def aggregate(
    files: tuple[str, ...],
    skip_bad: bool,
    exclude: tuple[str, ...],
    exclude_flagged: bool,
    keep: tuple[str, ...],
    max_weight: float | None,
    site_weight: str,
    support: str | None,
    n_support: int,
    missing: Literal["error", "drop"],
    experts: int | None,
    method: str,
    group_size: int | None,
    seed: int,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
    model_only: bool,
) -> None:
    """Merge the messages of many sites into one model.

    FILES are messages written by `otmoe fit` or `to_message`, or patterns in quotes such as
    "inbox/*.moe.json". They must agree on family, features and classes.
    """
    check_output(output, force)

    from otmoe.aggregation.groups import in_groups
    from otmoe.documents.files import load_model_file

    begin = perf_counter()
    asked: dict[str, Any] = {
        "n_experts": experts,
        "method": method,
        "site_weight": "covariate" if site_weight == "covariate" else None,
        "outliers": "exclude" if exclude_flagged else "flag",
        "keep": keep,
        "max_weight": max_weight,
        "random_state": seed,
        "n_jobs": -1,
        "group_size": group_size,
    }
    paths = paths_of(files)
    if in_groups(paths, group_size, method, asked["site_weight"], max_weight):
        messages = first_messages(paths, FEW)
        X = support_of(messages, support, n_support, missing, seed)
        asked["site_weight"] = [1.0] * len(paths) if site_weight == "equal" else None
        result, inbox = merged_in_groups(paths, X, exclude, skip_bad, quiet, **asked)
    else:
        inbox = open_inbox(files, exclude, skip_bad)
        messages = inbox.messages
        result = _at_once(messages, support, n_support, missing, seed, site_weight, asked)
    report = _report(result, inbox) | {
        "command": "aggregate",
        "output": str(output),
        "excluded": list(exclude),
        "support": support or "drawn from the messages",
        "seconds": perf_counter() - begin,
    }
    names = [record.site for record in result.sites]
    about = {"made by": "otmoe aggregate", "method": method, "seed": seed, "sites": few(names)}
    about |= columns_asked(paths)
    about |= {"chosen": result.method} if result.candidates else {}
    count = report["n_sites"]
    about |= {"number of sites": count, "rows": report["rows"], "support": report["support"]}
    out = {site: Finding.EXCLUDED_BY_HAND() for site in exclude}
    out |= {file: Finding.UNREADABLE_FILE(why=why) for file, why in inbox.bad.items()}
    warned = tuple(map(in_shell_words, result.warnings))
    result = replace(result, left_out={**result.left_out, **out}, warnings=warned)
    report["alternatives"] = [vars(alternative) for alternative in result.alternatives]
    options.write(result, output, about, messages[0].features, model_only)
    for why in inbox.bad.values():
        warn(Warn.SHELL_LEFT_OUT(why=why))
    for notice in result.warnings:
        warn(notice)
    say(report, as_json, quiet, *_shown(report), *closing(load_model_file(output), output))


def _at_once(
    messages: Sequence[LocalModel],
    support: str | None,
    n_support: int,
    missing: Literal["error", "drop"],
    seed: int,
    site_weight: str,
    asked: dict[str, Any],
) -> Aggregation:
    """Return the merging of messages that are all in memory."""
    from otmoe.aggregation.merge import merged
    from otmoe.aggregation.messages import check_messages

    messages = check_messages(messages)
    X = support_of(messages, support, n_support, missing, seed)
    if site_weight == "equal":
        asked = asked | {"site_weight": [1.0] * len(messages)}
    return merged(messages, X, **asked | {"group_size": len(messages)})


def support_of(
    messages: Sequence[LocalModel],
    data: str | None,
    n_support: int,
    missing: Literal["error", "drop"],
    seed: int,
) -> Floats | int:
    """Return the points at which models are compared, or how many to draw from the messages."""
    from otmoe.data.shards import draw_features
    from otmoe.evaluation.prediction import spec_of

    if data is not None:
        spec = spec_of(messages[0].model, messages[0].features)
        return draw_features(data, spec, n_support, missing=missing, random_state=seed)[0]
    if all(m.sketch is None and m.support is None for m in messages):
        raise Failed(Error.SHELL_NO_SUPPORT)
    return n_support


def _report(result: Aggregation, inbox: Inbox) -> dict[str, Any]:
    """Return what happened, as it is printed by --json."""
    from otmoe.text.records import notice_document

    return {
        "family": result.model.experts.family,
        "method": result.method,
        "status": notice_document(result.status),
        "converged": bool(result.converged),
        "cost": result.cost,
        "lost": result.lost,
        "candidates": candidates_of(result),
        "terms": list(result.model.terms),
        "mass": None if result.mass is None else result.mass.tolist(),
        "sites": [
            _record(record, message, inbox.sizes[record.site], result.influence[record.site])
            for record, message in zip(result.sites, result.messages, strict=True)
        ],
        "n_sites": inbox.n_sites - len(result.left_out),
        **({"groups": {k: list(v) for k, v in result.groups.items()}} if result.groups else {}),
        "left_out": told_by_name(result.left_out),
        "unreadable": inbox.bad,
        "rows": sum(record.n_samples for record in result.sites),
        "bytes": sum(inbox.sizes.values()),
        "support_points": result.n_support,
        "warnings": told(result.warnings),
    }


def _record(
    record: Contribution, message: LocalModel, size: int, influence: float
) -> dict[str, Any]:
    return {
        "site": record.site,
        "rows": record.n_samples,
        "experts": message.model.n_experts,
        "converged": message.converged,
        "weight": record.weight,
        "cost": record.cost,
        "disagreement": record.disagreement,
        "flagged": told(record.flagged),
        "lost": record.lost,
        "influence": influence,
        "coverage": record.coverage,
        "destination": None if record.destination is None else record.destination.tolist(),
        "bytes": size,
    }


def _shown(report: dict[str, Any]) -> list[Any]:
    """Return the same for people."""
    groups = len(report["sites"])
    words = f" in {groups:,} groups" if groups < report["n_sites"] else ""
    about = [("sites", f"{report['n_sites']:,}{words}"), ("rows", f"{report['rows']:,.10g}")]
    for what in ("left_out", "excluded", "unreadable"):
        if report[what]:
            about.append((what.replace("_", " "), few(report[what])))
    about += [
        ("received", f"{report['bytes']:,} bytes"),
        ("support", f"{report['support_points']:,} points: {report['support']}"),
        ("written to", report["output"]),
    ]
    return [
        listed(about),
        *candidates_tables(report["candidates"]),
        *alternatives_tables(report["alternatives"]),
        _sites_table(report["sites"]),
    ]


def _sites_table(sites: list[dict[str, Any]]) -> Table:
    """Return the sites; of many, those that stand out or count most."""
    figures = ("weight", "cost", "disagreement", "lost", "influence")
    most = sorted(sites, key=lambda site: (not site["flagged"], -site["weight"]))[:NAMED]
    rows = (
        [
            site["site"],
            f"{site['rows']:,.10g}",
            *("–" if isnan(site[key]) else f"{site[key]:.3g}" for key in figures),
            "stands out" if site["flagged"] else "",
        ]
        for site in sites
        if site in most
    )
    heads = ["site", "rows", *figures, ""]
    table = table_of(heads, rows, {"site", ""})
    table.caption = (
        "lost: expected nats per row relative to the site's own model; influence: what the other "
        "sites would gain without it"
    )
    left = len(sites) - len(most)
    if left:
        table.caption += f"; {left:,} sites with less weight are listed by --json"
    return table
