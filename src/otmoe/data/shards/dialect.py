"""How a CSV file is written: what separates its columns, and its decimal point."""

from __future__ import annotations

import re
from dataclasses import dataclass

SEPARATORS = ",;\t|"
"""Separators that are recognised, the likelier first."""

_LINES = 20  # that are looked at, below the header


@dataclass(frozen=True)
class Dialect:
    """What separates columns, and what numbers are written with.

    Attributes
    ----------
    sep : str
    decimal : str
        The point, or the comma of tables from countries that write 3,14.
    """

    sep: str = ","
    decimal: str = "."


def sniffed(text: str, sep: str | None = None) -> Dialect:
    r"""Return the dialect of a file whose first lines are given.

    The separator is the character of :data:`SEPARATORS` that the header has most of, outside
    quotes. Numbers have a decimal comma if some look like it and none has a point.

    Parameters
    ----------
    text : str
    sep : str, optional
        If it is known.

    Examples
    --------
    >>> sniffed("age;dose\n31;0,5\n")
    Dialect(sep=';', decimal=',')
    >>> sniffed("age,dose\n31,0.5\n")
    Dialect(sep=',', decimal='.')
    """
    lines = re.sub(r'"[^"]*"', "", text).splitlines()
    head = lines[0] if lines else ""
    if sep is None:
        sep = max(SEPARATORS, key=lambda mark: (head.count(mark), -SEPARATORS.index(mark)))
    if sep == ",":
        return Dialect(sep)
    cells = [cell.strip() for line in lines[1 : 1 + _LINES] for cell in line.split(sep)]
    commas = any(re.fullmatch(r"[+-]?\d+,\d+", cell) for cell in cells)
    points = any(re.fullmatch(r"[+-]?\d+\.\d+", cell) for cell in cells)
    return Dialect(sep, "," if commas and not points else ".")
