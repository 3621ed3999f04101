"""Tables of estimates as text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import fill

from otmoe.inference.estimates import Estimate
from otmoe.inference.parameters import Parameter
from otmoe.inference.tables import (
    WIDEST,
    aligned,
    cells_of_test,
    estimate_cells,
    estimate_heads,
    row_heading,
    test_heads,
)
from otmoe.inference.terms import TermTest
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice
from otmoe.text.sentences import Warn


class Text(str):
    """Text that a console shows as it is."""

    __repr__ = str.__str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def render(
    title: str,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[tuple[str, Sequence[Estimate], Sequence[TermTest]]],
    warnings: Sequence[Notice],
    level: float,
    df: int | None = None,
) -> Text:
    """Return a summary: facts in two columns, one or two tables per section, notes.

    Parameters
    ----------
    title : str
    facts : sequence of (name, value)
    sections : sequence of (heading, estimates, tests of curves)
    warnings : sequence of Notice
        Those that change how estimates are read come first, the others at the end.
    level : float
        Of the intervals.
    df : int, optional
        Of the standard errors, where rows are in groups.
    """
    names = [row.term for _, *tables in sections for rows in tables for row in rows]
    name_width = min(max(map(len, ["intercept", *names])), WIDEST)
    heads = (estimate_heads(level, df=df), test_heads(df))
    line, below = (aligned(["", *each], name_width) for each in heads)
    width = len(line)
    out = [title.center(width).rstrip(), "=" * width]
    half = (len(facts) + 1) // 2
    for i in range(half):
        left = _fact(*facts[i], width // 2 - 1)
        right = _fact(*facts[half + i], width - width // 2 - 1) if half + i < len(facts) else ""
        out.append(f"{left}  {right}".rstrip())
    first = [notice for notice in warnings if _changes_estimates(notice)]
    if first:
        out.append("=" * width)
        out += [fill(note[:1].upper() + note[1:], width) for note in map(str, first)]
    for heading, rows, tests in sections:
        out += ["=" * width, heading]
        out += [line, "-" * width, *(_row(row, name_width) for row in rows)] if rows else []
        out += [below, "-" * width, *(_test(row, name_width) for row in tests)] if tests else []
    out.append("=" * width)
    notes = (notice for notice in warnings if notice not in first)
    out += [
        fill(f"[{i}] {note}", width, subsequent_indent="    ") for i, note in enumerate(notes, 1)
    ]
    return Text("\n".join(out))


def heading(row: Parameter, model: MoE, share: float | None) -> str:
    """Return the heading of the table that an estimate or a test belongs to."""
    about = row_heading(row)
    if row.block == "gate":
        return about
    about += ", always 0" if row.expert in model.zeros else ""
    if row.label is not None and model.experts.n_linear > 1:
        last = model.experts.n_linear if model.classes is None else model.classes[-1]
        about += f" against {last}"
    return about + ("" if share is None else f", {share:.1%} of rows")


def _changes_estimates(notice: Notice) -> bool:
    """Say whether a notice has to be read before the estimates: the ridge has moved them far."""
    return notice.code == Warn.RIDGE_MOVED.code and notice.facts.get("distance", 0.0) > 1


def _fact(name: str, value: str, width: int) -> str:
    return f"{name + ':'}{value:>{max(width - len(name) - 1, len(value) + 1)}}"


def _row(row: Estimate, name_width: int) -> str:
    return aligned([row.term, *estimate_cells(row)], name_width)


def _test(row: TermTest, name_width: int) -> str:
    return aligned([row.term, *cells_of_test(row)], name_width)
