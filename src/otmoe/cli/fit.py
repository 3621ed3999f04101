# Long because it is one command: its options, what it does with them, and what it says.
"""``otmoe fit``: one site's model, in a message that may leave the site."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import click

from otmoe.cli import known, options, policy
from otmoe.cli.asked import asked_of, labels_of_site
from otmoe.cli.common import (
    Command,
    Names,
    check_output,
    console,
    data,
    option,
    output,
    say,
    usage,
    warn,
)
from otmoe.cli.holdings import privacy, shared_rows
from otmoe.cli.parts import parts_of, parts_table, total_of
from otmoe.cli.remembered import Remembered, absolute
from otmoe.cli.structure import (
    COMMON,
    EXPERTS,
    GATE,
    PER,
    VARIANCE,
    ZERO,
    experts_of,
    gate_of,
    structure,
)
from otmoe.cli.words import told
from otmoe.text.progress import fit_progress
from otmoe.text.sentences import Error, Warn

if TYPE_CHECKING:
    pass


@click.command(
    cls=Command,
    short_help="Fit the rows of one site and write its message.",
    epilog="""\b
Examples:
  otmoe fit lyon.parquet --target y --experts 2 --site Lyon --features features.json \\
      --sketch -o lyon.moe.json
  otmoe fit "2024-*.csv" --target sick --experts 2 --site Lyon --features features.json \\
      --family classes --classes no,yes -o lyon.moe.json
  otmoe inspect lyon.moe.json
  otmoe fit lyon.parquet --target y --start model.json --site Lyon --sketch -o lyon.2.moe.json

All sites must use the same file of features and the same classes. Inspect the message before you
send it; `otmoe aggregate` merges it with those of other sites.

If sites have found different maxima, --start lets each of them refit from the merged model, so
that their new messages describe the same one.""",
)
@data
@options.target(options.OR_FORMULA, required=False)
@options.formula
@options.weight
@options.offset
@options.spec
@options.columns
@options.max_levels
@options.missing()
@options.sep
@option(
    "--site", metavar="NAME", required=True, section="Message", help="Name of the site, as sent."
)
@option(
    "--sketch",
    is_flag=True,
    section="Message",
    help="Send the distribution of the covariates as a small mixture; no rows.",
)
@option(
    "--grams",
    is_flag=True,
    section="Message",
    help="Send sums of products of the covariates, expert by expert, for --method gram.",
)
@option(
    "--share",
    type=click.IntRange(0, known.MOST_SHARED),
    default=0,
    metavar="N",
    section="Message",
    help="Send N rows of the covariates unchanged, without the response.",
)
@option(
    "--secure",
    is_flag=True,
    section="Message",
    help="Make a key pair for secure sums in refine rounds: the public key goes into the message, "
    "the private one into a file beside it, such as lyon.key, and stays here.",
)
@options.experts_or_start
@options.family("Fit")
@structure
@option(
    "--classes",
    type=Names(),
    section="Fit",
    help="All classes, if this site may lack some; the same at every site.",
)
@options.search
@option(
    "--start",
    metavar="MODEL",
    section="Fit",
    help="Start from this model instead of searching, with its features, experts and family.",
)
@options.seed("Fit")
@policy.options
@policy.ledger
@option(
    "--statement",
    type=click.Path(path_type=Path),
    metavar="FILE",
    section="Policy",
    help="Write the verdict and its figures, to be signed (.html) or for programs (.json).",
)
@output("Message to write, JSON.")
def fit(
    data: tuple[str, ...],
    target: str | None,
    formula: str | None,
    weight: str | None,
    offset: str | None,
    spec: str | None,
    columns: list[str] | None,
    max_levels: int,
    missing: Literal["error", "drop"],
    sep: str | None,
    site: str,
    sketch: bool,
    grams: bool,
    share: int,
    secure: bool,
    experts: int | None,
    family: str,
    gate_features: list[str] | None,
    expert_features: tuple[str, ...],
    common: list[str] | None,
    common_variance: bool,
    zero_expert: bool,
    expert_per: str | None,
    classes: list[str] | None,
    n_init: int | None,
    max_iter: int | None,
    start: str | None,
    seed: int,
    policy_file: str | None,
    override: tuple[str, ...],
    reason: str | None,
    ledger: Path | None,
    statement: Path | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit the rows of one site, and write the message that it sends.

    All of DATA is one site, read into memory. The message holds the model's coefficients, rounded,
    and how the fit ended; it is written only if the site's policy allows it to leave.
    """
    if classes is not None and family != known.CLASSES:
        raise usage(Error.SHELL_CLASSES_FAMILY)
    check_output(output, force)
    if statement is not None:
        check_output(statement, force)

    from otmoe import shards_from
    from otmoe.data.features import FeatureSpec
    from otmoe.data.shards import joined, rows_dropped
    from otmoe.data.shards.files import find
    from otmoe.data.shards.memory import checked
    from otmoe.distributed.task import Task, fit_rows
    from otmoe.documents.compatible import check_compatible
    from otmoe.documents.files import load_model_file
    from otmoe.estimators.columns import Columns
    from otmoe.evaluation.prediction import spec_of
    from otmoe.federation.keys import Key
    from otmoe.federation.policy.border import Border, release_message
    from otmoe.federation.policy.rules import in_force
    from otmoe.federation.policy.statement import Statement, digest_of
    from otmoe.federation.policy.statement import checked as statement_kind
    from otmoe.federation.policy.verdict import check
    from otmoe.likelihood.fit import MAX_ITER
    from otmoe.model.target import Target
    from otmoe.text.records import notice_document
    from otmoe.text.strict_json import named

    begin = perf_counter()
    if statement is not None:
        statement_kind(statement)
    rules, source = in_force(policy_file)
    border = Border(rules, ledger, policy.set_aside(override, reason))
    asked = asked_of(data, target, formula, spec, columns, weight, offset, expert_per, sep=sep)
    features = asked.features
    origin = None if start is None else load_model_file(start)
    if origin is not None:
        given = {
            "--formula": formula,
            "--columns": columns,
            "--experts": experts,
            "--classes": classes,
            GATE: gate_features,
            EXPERTS: expert_features or None,
            COMMON: common,
            VARIANCE: common_variance or None,
            ZERO: zero_expert or None,
            PER: None if origin.model.expert_per == "group" else expert_per,
        }
        for word, value in {**given, "--starts": n_init}.items():
            if value is not None:
                raise usage(Error.SHELL_START_OR, option=word)
        if _family_given():
            raise usage(Error.SHELL_START_OR, option="--family")
        own = spec_of(origin.model, origin.features)
        if isinstance(features, FeatureSpec):
            model = replace(origin.model, feature_names=own.feature_names)
            mine = replace(model, feature_names=features.feature_names)
            check_compatible(mine, features, named(str(spec)), model, own, named(str(start)))
        features, experts = own, origin.model.n_experts
    if experts is None:
        raise usage(Error.SHELL_EXPERTS)
    name = checked(site)
    shards = shards_from(
        list(data),
        target=asked.target,
        features=features,
        weight=weight,
        offset=offset,
        groups=expert_per,
        missing=missing,
        max_levels=max_levels,
        sep=sep,
    )
    shard = replace(joined(shards, name), ids=rules.id, groups=expert_per)
    key = Key.at(key_path(output)) if secure else None
    book = border.place(find(data))
    response = Target(options.family_of(family, shard), responses=shard.response_names)
    if origin is not None:
        response = Target.of(origin.model)
    elif family == known.CLASSES:
        response = Target.of_classes(labels_of_site(shard, classes))
    if origin is None and expert_per is not None:
        response = replace(response, expert_per="group")
    names = shard.features.feature_names
    known_columns = Columns(len(names), names, shard.features)
    columns_of_gate = known_columns.of(gate_of(gate_features, asked.gate), "gate_features")
    seen = experts_of(expert_features, asked.experts)
    sharing = (common, common_variance, zero_expert)
    within = known_columns.structure(response.kind, experts, seen, *sharing)
    screen = console(stderr=True)
    with fit_progress(
        screen.is_terminal and not quiet, {"em": MAX_ITER, "newton": MAX_ITER}, screen
    ) as progress:
        found = fit_rows(
            Task(
                shard,
                seed,
                experts,
                response,
                options={
                    "n_init": n_init,
                    **options.search_of(None, max_iter),
                    "gate_columns": columns_of_gate,
                    "structure": within,
                    "n_jobs": -1,
                    "progress": progress,
                },
                sketch=sketch,
                grams=grams,
                share=share,
                start=None if origin is None else origin.model,
            )
        )
    done = found.local
    if done.dropped:  # also if the message is refused, since that may be why
        warn(rows_dropped(done.dropped, done.n_rows, done.missing))
    made = release_message(
        found, shard, border, own_names=spec is None and start is None, file=str(output.resolve())
    )
    message = made.message if key is None else replace(made.message, key=key.public)
    about = Statement(
        site=name,
        file="",
        digest="",
        date=datetime.now(UTC).date().isoformat(),
        policy=source,
        rows=message.n_samples,
        parts=message.sizes,
        verdict=made.verdict,
    )
    if not made.verdict.refused:
        message.save(output)
        columns_read = (weight, missing, sep, offset, expert_per)
        Remembered(name, asked.target, absolute(data), *columns_read).save(output)
        about = replace(about, file=str(output), digest=digest_of(output.read_bytes()))
    if statement is not None:
        about.save(statement)
    check(made.verdict)
    parts = parts_of(message.document())
    size = output.stat().st_size
    if not message.converged:
        warn(Warn.SHELL_STOPPED(status=str(message.status)))
    for words in message.warnings:
        warn(words)
    report = {
        "command": "fit",
        "output": str(output),
        "site": message.site,
        "rows": done.n_rows,
        "dropped": done.dropped,
        "n_samples": message.n_samples,
        "family": message.model.experts.family,
        "experts": message.model.n_experts,
        "terms": list(message.model.terms),
        "converged": message.converged,
        "status": notice_document(message.status),
        "warnings": told(message.warnings),
        "log_likelihood": message.log_likelihood,
        "parts": [vars(part) for part in parts],
        "bytes": size,
        "rows_of_x": shared_rows(message),
        "ledger": None if book is None else str(book),
        **policy.verdict_report(made.verdict, source),
        "key": None if key is None else str(key.path),
        "seconds": perf_counter() - begin,
    }
    say(
        report,
        as_json,
        quiet,
        f"{site}: {done.n_rows:,} rows, {experts} expert{'s' * (experts > 1)}; {message.status}",
        parts_table(parts),
        total_of(size, parts),
        privacy(message),
        *policy.verdict_lines(made.verdict, source),
        *([] if key is None else [f"the private key is in {key.path}; keep it, and never send it"]),
        *policy.ledger_lines(book),
        f"written to {output}; nothing has been sent",
    )


def key_path(message: Path) -> Path:
    """Return the file of the private key beside a message: lyon.key beside lyon.moe.json."""
    return message.with_name(message.name.removesuffix(".json").removesuffix(".moe") + ".key")


def _family_given() -> bool:
    source = click.get_current_context().get_parameter_source("family")
    return source is not click.core.ParameterSource.DEFAULT
