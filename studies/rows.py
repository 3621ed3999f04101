"""Rows of the CSV files in which studies keep what they measured."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def append(path: Path, row: Row) -> None:
    """Add a row to a CSV, which is made with its heading if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({key: _short(value) for key, value in row.items()})


def write(path: Path, rows: list[Row]) -> None:
    """Write a CSV anew from rows as :func:`read` returns them."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), newline="")


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def read(path: Path) -> list[Row]:
    """Return the rows of a CSV, as text; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
