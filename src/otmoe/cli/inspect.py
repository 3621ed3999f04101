"""``otmoe inspect``: what a file holds and reveals, for whoever decides whether it may leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli import policy
from otmoe.cli.between import between_lines, between_report
from otmoe.cli.common import Command, few, option, say, speech
from otmoe.cli.effects import effect_lines, effects
from otmoe.cli.features import term_lines
from otmoe.cli.holdings import (
    MASKED,
    few_groups,
    privacy,
    reply_privacy,
    roster_lines,
    scatter_words,
    shared_rows,
    why_scatter,
)
from otmoe.cli.parts import parts_of, parts_table, total_of
from otmoe.cli.tables import listed, table_of
from otmoe.cli.words import told

if TYPE_CHECKING:
    from rich.table import Table

    from otmoe import FeatureSpec, LocalModel
    from otmoe.documents.reply import RefineReply
    from otmoe.documents.request import RefineRequest
    from otmoe.documents.state import RefineState
    from otmoe.model.mixture import MoE


@click.command(
    cls=Command,
    short_help="Show what a file contains and what it reveals.",
    epilog="""\b
Example:
  otmoe inspect lyon.moe.json
  otmoe inspect model.json --coefficients

Nothing in the file is executed. A file that violates the format is refused with a message that
names the place, and exit code 1.""",
)
@click.argument("file", type=click.Path(path_type=Path))
@option(
    "--coefficients",
    is_flag=True,
    section="What to show",
    help="Show the coefficients of gate and experts as well.",
)
@option(
    "--policy",
    "policy_file",
    metavar="FILE",
    envvar="OTMOE_POLICY",
    section="What to show",
    help="The policy to check a message against; by default policy.json in this folder if it "
    "exists, otherwise the built-in one.",
)
@option(
    "--statement",
    type=click.Path(path_type=Path),
    metavar="FILE",
    section="What to show",
    help="The statement (.json) that was written with a message, to show all of its figures.",
)
@speech
def inspect(
    file: Path,
    coefficients: bool,
    policy_file: str | None,
    statement: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what is in FILE: a site's message, a model, a file of features.

    FILE may also be a request, a reply or the state of `otmoe refine`. Use it to decide whether a
    message may leave a site, or to look at one that was received: it shows what the file is, its
    parts and their sizes, and what each part reveals.
    """
    from otmoe import FeatureSpec, LocalModel
    from otmoe.documents.files import open_document
    from otmoe.documents.masked_reply import MaskedReply
    from otmoe.documents.model_file import ModelFile
    from otmoe.documents.reply import RefineReply
    from otmoe.documents.request import RefineRequest
    from otmoe.documents.state import RefineState
    from otmoe.text.strict_json import named

    source = named(file)
    found, document, size = open_document(file)
    report: dict[str, Any] = {"command": "inspect", "file": source, "kind": found.kind}
    lines: list[Any] = []
    model: MoE | None = None
    spec: FeatureSpec | None = None
    if isinstance(found, FeatureSpec):
        spec = found
    elif isinstance(found, RefineReply):
        told_by = _verdict_on_reply(found, policy_file)
        report |= _of_reply(found) | told_by[0]
        lines += [reply_privacy(found), *scatter_words(found), *map(str, few_groups(found))]
        lines += told_by[1]
    elif isinstance(found, MaskedReply):
        about = {"site": found.site, "round": found.round, "digest": found.digest}
        report |= about
        lines.append(MASKED)
    elif isinstance(found, RefineRequest | RefineState):
        model, spec = found.model, found.features
        report |= _of_round(found) | _of_model(model)
        if found.roster is not None:
            report["roster"] = found.roster.fingerprint
            lines += roster_lines(found.roster)
    elif isinstance(found, ModelFile | LocalModel):
        model, spec = found.model, found.features
        report |= {"about": document.get("about", {}), **_of_model(model)}
        between = found.between if isinstance(found, ModelFile) else None
        if between is not None:
            report["between"] = between_report(between) | {"warnings": told(between.warnings)}
            lines += between_lines(between) + [str(warning) for warning in between.warnings]
    if spec is not None:
        report |= {"columns": list(spec.names), "features": list(spec.feature_names)}
        report["terms"] = [term.name for term in spec.terms]
        lines += term_lines(spec)
        if isinstance(found, ModelFile | LocalModel) and model is not None:
            tests, curves, df = effects(model, spec, getattr(found, "aggregation", None))
            report |= {"tests": tests, "curves": curves, "df": df} if tests or curves else {}
            lines += effect_lines(tests, curves, df)
    if isinstance(found, LocalModel):
        report |= _of_message(found)
        told_by = _verdict(found, file, policy_file, statement)
        report |= told_by[0]
        lines += [privacy(found), *told_by[1]]
    parts = parts_of(document)
    report |= {"parts": [vars(part) for part in parts], "bytes": size}
    lines.insert(0, total_of(size, parts))
    if model is not None and coefficients:
        report["coefficients"] = _coefficients(model)
        lines += _tables(report["coefficients"])
    say(report, as_json, quiet, listed(_about(report, spec)), parts_table(parts), *lines)


def _verdict(
    message: LocalModel, file: Path, policy_file: str | None, statement: Path | None
) -> tuple[dict[str, Any], list[Any]]:
    """Return what a policy says about a message, for programs and for people."""
    from otmoe.federation.policy.rules import in_force
    from otmoe.federation.policy.statement import load_statement
    from otmoe.federation.policy.verdict import judge_message, unseen

    if statement is not None:
        verdict, source = load_statement(statement, file.read_bytes())
        return policy.verdict_report(verdict, source), policy.verdict_lines(verdict, source)
    rules, source = in_force(policy_file)
    verdict = judge_message(rules, message)
    lines = [*policy.verdict_lines(verdict, source), *map(str, unseen(verdict))]
    return policy.verdict_report(verdict, source), lines


def _verdict_on_reply(
    reply: RefineReply, policy_file: str | None
) -> tuple[dict[str, Any], list[Any]]:
    """Return what a policy says about a reply, for programs and for people."""
    from otmoe.federation.policy.rules import in_force
    from otmoe.federation.policy.verdict import judge_reply, unseen

    rules, source = in_force(policy_file)
    verdict = judge_reply(rules, reply)
    lines = [*policy.verdict_lines(verdict, source), *map(str, unseen(verdict, reply=True))]
    return policy.verdict_report(verdict, source), lines


def _of_message(message: LocalModel) -> dict[str, Any]:
    from otmoe.text.records import notice_document

    return {
        "site": message.site,
        "rows": message.n_samples,
        "log_likelihood": message.log_likelihood,
        "converged": message.converged,
        "status": notice_document(message.status),
        "warnings": told(message.warnings),
        "constant_features": dict(message.constant),
        "overrides": dict(message.overrides),
        "rows_of_x": shared_rows(message),
        "key": message.key,
    }


def _of_reply(reply: RefineReply) -> dict[str, Any]:
    found = reply.content
    return {
        "site": reply.site,
        "rows": found.n_samples,
        "log_likelihood": found.information.log_likelihood,
        "round": reply.round,
        "digest": reply.digest,
        "parameters": len(found.information.score),
        "groups": None if found.scatter is None else found.scatter.n_scores,
        "warnings": told(few_groups(reply)),
        "overrides": dict(reply.overrides),
    }


def _of_round(found: RefineRequest | RefineState) -> dict[str, Any]:
    from otmoe.documents.request import RefineRequest

    if isinstance(found, RefineRequest):
        asks = {"sandwich": found.sandwich, "between": found.between}
        return {"round": found.round, "digest": found.digest, **asks}
    best = found.refinement.best
    return {
        "rounds": found.refinement.rounds,
        "sandwich": found.refinement.sandwich,
        "between": found.between,
        "unscattered": list(best.unscattered if best else ()),
        "sites": dict(found.sites),
        "state": str(found.refinement.status),
    }


def _of_model(model: MoE) -> dict[str, Any]:
    import numpy as np

    classes = model.classes
    return {
        "family": model.experts.family,
        "classes": None if classes is None else np.asarray(classes).tolist(),
        "experts": model.n_experts,
        "parameters": model.n_free,
        "features": list(model.terms[1:]),
    }


def _about(report: dict[str, Any], spec: FeatureSpec | None) -> Iterator[tuple[str, str]]:
    """Yield the report as lines for people."""
    words = {
        "local model": "a site's message: the model that it fitted to its rows",
        "model": "a model",
        "features": "a file of features: how columns become numbers",
        "refine request": "a request: how likely are a site's rows under this model",
        "refine reply": "a site's reply to a request: sums over its rows",
        "masked reply": "a site's reply to a request for a secure sum",
        "refine state": "the server's state between two refine rounds",
    }
    yield "file", f"{report['file']}, {words[report['kind']]}"
    if "site" in report:
        yield "site", report["site"]
    if "rows" in report:
        yield "rows", f"{report['rows']:,.10g} (with weights, their sum)"
    if "round" in report:
        yield "round", f"{report['round']} (digest {report['digest']})"
    if "sites" in report:
        yield "sites", few(report["sites"])
        yield "rounds", report["state"]
    if report.get("sandwich"):
        lacking = f"; without it: {few(report['unscattered'])}" if report.get("unscattered") else ""
        why = why_scatter(bool(report["between"]))
        yield "asks for", f"the scatter too, {why}, of sites that agree to send it{lacking}"
    for name, value in report.get("about", {}).items():
        yield name, f"{value:,.10g}" if isinstance(value, float) else str(value)
    if "experts" in report:
        yield (
            "experts",
            f"{report['experts']} {report['family']}, {report['parameters']} parameters",
        )
    if report.get("classes"):
        yield "classes", few(map(str, report["classes"]))
    if "features" in report:
        known = [] if spec is None else [*spec.base.feature_names, *report["terms"]]
        yield "features", f"{len(report['features'])}: {few(known or report['features'])}"
    if "status" in report:
        yield "fit", ("" if report["converged"] else "NOT CONVERGED: ") + report["status"]["text"]
        for warning in report["warnings"]:
            yield "warning", warning["text"]
    for name, value in report.get("constant_features", {}).items():
        yield "constant", f"{name} is {value:g} in every row"


def _coefficients(model: MoE) -> dict[str, dict[str, list[float | None]]]:
    """Return the coefficients, one number per expert, by term; none of an expert without any."""
    from math import isnan

    return {
        name: {
            term: [None if isnan(v) else float(v) for v in values] for term, values in part.items()
        }
        for name, part in model.coefficients.items()
    }


def _tables(coefficients: dict[str, dict[str, list[float | None]]]) -> Iterator[Table]:
    for name, part in coefficients.items():
        heads = [name, *(f"expert {k}" for k in range(len(next(iter(part.values())))))]
        yield table_of(
            heads,
            ([term, *("" if v is None else f"{v:.5g}" for v in row)] for term, row in part.items()),
            {name},
        )
