"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from otmoe.aggregation import Aggregation


def listed(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and what they are."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    for name, value in pairs:
        table.add_row(name, value)
    return table


def table_of(heads: Sequence[str], rows: Iterable[Sequence[str]], words: Any = ()) -> Table:
    """Return a table, figures to the right.

    Parameters
    ----------
    heads : sequence of str
    rows : iterable of sequences of str
    words : collection of str
        Heads of columns that hold words.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="left" if head in words else "right")
    for row in rows:
        table.add_row(*row)
    return table


def candidates_of(result: Aggregation) -> list[dict[str, Any]]:
    """Return what the server chose from as --json prints it, the best first."""
    return [
        {**vars(candidate), "chosen": candidate.method == result.method}
        for candidate in result.candidates
    ]


def candidates_tables(candidates: Sequence[dict[str, Any]]) -> list[Table]:
    """Return the table of what the server chose from; none where the method was given."""
    if not candidates:
        return []
    heads = ["candidate", "experts", "expected nats lost per row", ""]
    rows = (
        [c["method"], str(c["n_experts"]), f"{c['lost']:.4g}", "chosen" if c["chosen"] else ""]
        for c in candidates
    )
    table = table_of(heads, rows, {"candidate", ""})
    if not candidates[0]["chosen"]:
        table.caption = (
            "losses that differ by much less than chance explains count as equal; what a step "
            "towards the rows' own curvature (Grams) costs in expectation is not counted"
        )
    return [table]


def alternatives_tables(alternatives: Sequence[dict[str, Any]]) -> list[Table]:
    """Return the table of the merged model and the robust methods; none if there are none."""
    if not alternatives:
        return []
    heads = ["robust method", "expected nats lost per row", "at the median site"]
    rows = [[a["method"], f"{a['lost']:.3g}", f"{a['typical']:.3g}"] for a in alternatives]
    rows[0][0] = f"(merged: {rows[0][0]})"
    table = table_of(heads, rows, {"robust method"})
    table.caption = "at the median site: fewer than half of the sites cannot move it far"
    return [table]
