"""The statement: a verdict with its figures, as a page to be signed and as JSON."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from otmoe.federation.policy.ledger import ROWS
from otmoe.federation.policy.rules import Measure, Rule, Verdict
from otmoe.federation.policy.verdict import said
from otmoe.text.errors import InvalidInput
from otmoe.text.html import html_table
from otmoe.text.outputs import write_whole
from otmoe.text.records import Line, List, Map, Name, Record, Site, Whole, problem, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import named, parse, read, to_text
from otmoe.text.strict_json import shown as quoted

ASKED = {
    Rule.ROWS: ("How many {what} is it about?", "at least"),
    Rule.PARAMETERS: ("How many parameters are there for each of the {what}?", "at most"),
    Rule.EXPERT_ROWS: ("How many {what} does the smallest expert rest on?", "at least"),
    Rule.CELLS: ("How many {what} are in the smallest group that it describes?", "at least"),
    Rule.LEVERAGE: ("How much of a fitted value is due to one of the {what} alone?", "at most"),
    Rule.CERTAINTY: ("How well does it predict the responses it was fitted to?", "at most"),
    Rule.SKETCH: ("How many rows does the smallest part of the sketch rest on?", "at least"),
    Rule.SHARE: ("How many rows of the covariates are copied into it?", "at most"),
    Rule.NAMES: ("How many rows have the rarest level that it names?", "at least"),
    Rule.COLUMNS: ("How many columns does it use that may not be used?", "at most"),
    Rule.QUESTION: ("Could the question single out one of the {what}?", "at most"),
    Rule.SCATTER: ("How much of the scatter is about one row or group?", "at most"),
    Rule.LEDGER: ("What has left this site before?", "at most"),
}
"""What each rule asks, in plain words, for the person who releases a message."""

VERDICTS = {
    "send": "No rule of the site's policy is broken.",
    "consider": "No rule forbids it, but a person has to decide; see below.",
    "do not send": "A rule of the site's policy is broken; see below for the rule and the remedy.",
}

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ccc}"
    ".verdict{font-size:1.4em;border:2px solid;padding:.3em .8em;display:inline-block}"
    ".sign{margin-top:3em}.sign span{display:inline-block;border-top:1px solid;width:14em;"
    "margin-right:2em}"
)


@dataclass(frozen=True)
class Statement:
    """What is said about a message before it leaves.

    Attributes
    ----------
    site, file : str
        Whose message it is, and where it lies; empty where none was written.
    digest : str
        SHA-256 of that file, so that the statement belongs to this message and no other.
    date : str
    policy : str
        Where the policy is from.
    rows : float
        That the message is about.
    parts : dict of int
        Bytes of each part of the message.
    verdict : Verdict
    """

    site: str
    file: str
    digest: str
    date: str
    policy: str
    rows: float
    parts: Mapping[str, int]
    verdict: Verdict

    def document(self) -> dict[str, Any]:
        """Return the statement as plain values."""
        verdict = self.verdict
        return {
            "otmoe": "statement",
            "site": self.site,
            "file": self.file,
            "sha256": self.digest,
            "date": self.date,
            "policy": self.policy,
            "rows": self.rows,
            "parts": dict(self.parts),
            "verdict": verdict.word,
            "counted": "people" if verdict.people else "rows",
            "measures": [_plain(m) for m in verdict.measures],
            "said": self._said(),
            "overrides": {str(rule): why for rule, why in verdict.overrides.items()},
        }

    def to_json(self) -> str:
        """Return the statement as JSON text."""
        return to_text(self.document()) + "\n"

    def to_html(self) -> str:
        """Return the statement as a page that needs no network, with room for a signature."""
        rows = [
            [asked_of(m, self.verdict), shown(m.figure), limit_of(m), outcome_of(m, self.verdict)]
            for m in self.verdict.measures
        ]
        sent = ", ".join(f"{name} ({size:,} bytes)" for name, size in self.parts.items())
        lines = [
            f"<h1>Statement on a message of {escape(self.site)}</h1>",
            f'<p class="verdict">{escape(self.verdict.word)}</p>',
            f"<p>{escape(VERDICTS[self.verdict.word])}</p>",
            html_table(["question", "found", "allowed", "outcome"], rows),
            *(f"<p>{escape(text)}</p>" for text in self._said()),
            *(
                f"<p>Rule {escape(str(rule))} was overridden: {escape(why)}</p>"
                for rule, why in self.verdict.overrides.items()
            ),
            f"<p>It is based on {self.rows:,.10g} rows and contains: {escape(sent)}.</p>"
            if sent
            else "",
            f"<p>File {escape(self.file)}, SHA-256 {self.digest}.</p>"
            if self.file
            else "<p>No file was written.</p>",
            f"<p>Policy: {escape(self.policy)}. Date: {escape(self.date)}.</p>",
            "<p>The figures show how much this message depends on single rows. They do not show "
            "what can be learned from it together with other sources or other messages of the "
            "site, and they do not prove anonymity.</p>",
            '<p class="sign"><span>name</span><span>date, signature</span></p>',
        ]
        title = escape(f"Statement: {self.site}")
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{_STYLE}</style></head><body>\n" + "\n".join(filter(None, lines)) + "\n"
            "</body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it whole, as a page if the name ends in .html and as JSON if in .json."""
        kinds = {".html": self.to_html, ".json": self.to_json}
        write_whole(path, kinds[checked(path)]())

    def _said(self) -> list[str]:
        verdict = self.verdict
        return [str(said(m, verdict.people)) for m in verdict.measures if m.outcome != "pass"]


def checked(path: str | os.PathLike[str]) -> str:
    """Return how the name of a statement ends, if it is one that can be written."""
    suffix = Path(path).suffix
    if suffix not in (".html", ".json"):
        raise InvalidInput(Error.STATEMENT_NAME, path=os.fspath(path))
    return suffix


def digest_of(text: bytes) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(text).hexdigest()


def _rule(name: Any) -> Rule:
    try:
        return Rule(name)
    except ValueError:
        raise problem(Error.RULE_UNKNOWN, value=quoted(name)) from None


class MeasureRecord(Record):
    """A measure as it stands in a statement."""

    rule: Annotated[Rule, BeforeValidator(_rule)]
    figure: float | None
    limit: float
    outcome: Literal["pass", "warn", "refuse"]
    where: Name = ""


class StatementRecord(Record):
    """The fields of a statement."""

    otmoe: Literal["statement"]
    site: Site
    file: Name
    sha256: Line
    date: Line
    policy: Name
    rows: float
    parts: Map[Name, Whole]
    verdict: Line
    counted: Literal["rows", "people"]
    measures: List[MeasureRecord]
    said: List[Name]
    overrides: Map[Name, Name]


def load_statement(path: str | os.PathLike[str], message: bytes) -> tuple[Verdict, str]:
    """Read the verdict of a statement's JSON, and where its policy was from.

    Parameters
    ----------
    path : str or path
    message : bytes
        What the file of the message holds; a statement about another is refused.
    """
    source = named(path)
    found = typed(StatementRecord, parse(read(path), source), source)
    if found.sha256 != digest_of(message):
        raise InvalidInput(Error.OTHER_STATEMENT, where=source)
    measures = tuple(
        Measure(m.rule, math.nan if m.figure is None else m.figure, m.limit, m.outcome, m.where)
        for m in found.measures
    )
    aside = {Rule(rule): why for rule, why in found.overrides.items()}
    return Verdict(measures, aside, found.counted == "people"), found.policy


def asked_of(measure: Measure, verdict: Verdict) -> str:
    """Return what a rule asks, in words."""
    words = ASKED.get(measure.rule, (f"Rule {measure.rule}", ""))[0]
    where = f" ({measure.where})" if measure.where else ""
    return words.format(what="people" if verdict.people else "rows") + where


def outcome_of(measure: Measure, verdict: Verdict) -> str:
    """Return how a measure came out, in a word."""
    broken = measure.outcome == "refuse" and measure.rule in verdict.overrides
    return "overridden" if broken else measure.outcome


def limit_of(measure: Measure) -> str:
    """Return what is allowed, in words."""
    if measure.rule == Rule.LEDGER and measure.where == ROWS:
        return f"at least {measure.limit:g}"
    return f"{ASKED.get(measure.rule, ('', ''))[1]} {measure.limit:g}".strip()


def shown(figure: float) -> str:
    """Return a figure as people read it."""
    if math.isnan(figure):
        return "not known"
    return f"{figure:,.0f}" if figure >= 1000 or figure == int(figure) else f"{figure:.3g}"


def _plain(measure: Measure) -> dict[str, Any]:
    figure = None if math.isnan(measure.figure) else measure.figure
    return asdict(measure) | {"rule": str(measure.rule), "figure": figure}
