"""The site's policy in the shell: which one is in force, its verdict, and overrides."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli import known
from otmoe.cli.common import Decorator, option, several, usage
from otmoe.cli.tables import table_of
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from otmoe.federation.policy.rules import Rule, Verdict


options: Decorator = several(
    option(
        "--policy",
        "policy_file",
        metavar="FILE",
        envvar="OTMOE_POLICY",
        section="Policy",
        help=f"Policy on what may leave this site; by default {known.POLICY} in this folder if "
        "it exists, otherwise the built-in one.",
    ),
    option(
        "--override",
        "override",
        type=click.Choice(known.RULES),
        metavar="RULE",
        multiple=True,
        section="Policy",
        help="Override a rule this once; needs --reason, and is recorded in the file.",
    ),
    option(
        "--reason",
        metavar="WORDS",
        section="Policy",
        help="Reason for the override; recipients of the file can read it.",
    ),
)

ledger = option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="FILE",
    section="Policy",
    help=f"Where the site records what it has answered; by default {known.LEDGER} beside the "
    "data. It never leaves the site.",
)


def ledger_lines(path: Path | None) -> list[str]:
    """Return where the ledger is, for people: relative to the current folder if it is below."""
    if path is None:
        return []
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return [f"recorded in the ledger {shown}, which stays here"]


def set_aside(rules: Sequence[str], reason: str | None) -> dict[Rule, str]:
    """Return the overridden rules, and why."""
    if bool(rules) != bool(reason and reason.strip()):
        raise usage(Error.SHELL_OVERRIDE)

    from otmoe.federation.policy.rules import Rule

    return {Rule(rule): str(reason) for rule in rules}


def verdict_report(verdict: Verdict, source: str) -> dict[str, Any]:
    """Return a verdict for programs."""
    return {
        "verdict": verdict.word,
        "policy": source,
        "counted": "people" if verdict.people else "rows",
        "measures": [vars(m) | {"rule": str(m.rule)} for m in verdict.measures],
        "overrides": {str(rule): why for rule, why in verdict.overrides.items()},
    }


def verdict_lines(verdict: Verdict, source: str) -> list[Any]:
    """Return a verdict for people: the figures, the word, a sentence for what does not pass."""
    from otmoe.federation.policy.statement import VERDICTS, asked_of, limit_of, outcome_of, shown
    from otmoe.federation.policy.verdict import said

    rows = (
        [asked_of(m, verdict), shown(m.figure), limit_of(m), outcome_of(m, verdict)]
        for m in verdict.measures
    )
    lines: list[Any] = [
        table_of(["question", "found", "allowed", "outcome"], rows, {"question"}),
        f"Verdict: {verdict.word.upper()} (policy: {source}). {VERDICTS[verdict.word]}",
    ]
    for m in verdict.measures:
        if m.outcome != "pass" and not isnan(m.figure):
            lines.append(str(said(m, verdict.people)))
        if m.rule in verdict.overrides:
            lines.append(f"Rule {m.rule} was overridden: {verdict.overrides[m.rule]}")
    return lines
