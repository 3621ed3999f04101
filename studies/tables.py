"""Tables of a study: in the terminal, and in the pages of the documentation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from studies.rows import Row

Cells = tuple[str, list[str], list[list[str]]]
"""A title or nothing, headings, and the cells of a table."""


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 150, highlight=False)


def show(tables: Sequence[Cells], console: Console) -> None:
    """Print tables; a column of numbers is set to the right."""
    for title, heads, body in tables:
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for head, right in zip(heads, numeric(body), strict=True):
            table.add_column(head, justify="right" if right else "left")
        for cells in body:
            table.add_row(*cells)
        console.print(table)


def markdown(tables: Sequence[Cells]) -> list[str]:
    """Return the lines of tables in a page, an empty one after each."""
    lines = []
    for title, heads, body in tables:
        rules = ["---:" if right else "---" for right in numeric(body)]
        lines += [f"**{title}**", ""] if title else []
        lines += [f"| {' | '.join(cells)} |" for cells in (heads, rules, *body)]
        lines += [""]
    return lines


def put(mark: str, lines: Sequence[str], page: Path) -> None:
    """Put lines where a page has its marks."""
    text = page.read_text()
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, _, rest = text.partition(begin)
    if not rest:
        raise ValueError(f"{page} has no mark {begin.strip()}.")
    page.write_text(
        before + begin + "\n" + "\n".join(lines).rstrip() + "\n\n" + end + rest.partition(end)[2]
    )


def numeric(body: Sequence[Sequence[str]]) -> list[bool]:
    """Say which columns hold nothing but figures and dashes."""
    return [
        all(cell == "–" or cell.replace(",", "").lstrip("-")[:1].isdigit() for cell in column)
        for column in zip(*body, strict=True)
    ]


def figure(row: Row, key: str, form: str = ".2f") -> str:
    """Return a figure of a row in the form wanted; a dash where it has none."""
    return f"{float(row[key]):{form}}" if row.get(key, "") not in ("", "nan") else "–"
