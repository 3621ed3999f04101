"""HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_WORDS = ' style="text-align: left"'


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table; cells are escaped, and the first column is left-aligned.

    Examples
    --------
    >>> print(html_table(["site", "rows"], [["<b>", "3"]]))
    <table><thead><tr><th style="text-align: left">site</th><th>rows</th></tr></thead><tbody>\
<tr><td style="text-align: left">&lt;b&gt;</td><td>3</td></tr></tbody></table>
    """
    head = _cells("th", heads)
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    note = f'<caption style="caption-side: bottom">{escape(caption)}</caption>'
    title = note if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(*lines: str) -> str:
    """Return lines of text, the first one in bold."""
    first, *rest = map(escape, lines)
    return "<br>".join([f"<b>{first}</b>", *rest])


def _cells(tag: str, cells: Sequence[str]) -> str:
    return "".join(
        f"<{tag}{'' if j else _WORDS}>{escape(cell)}</{tag}>" for j, cell in enumerate(cells)
    )
