"""Estimates and tests as sequences that print as tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self, SupportsIndex, TypeVar, overload

import numpy as np

from otmoe.inference.estimates import NOT_IDENTIFIED, Estimate, by_t
from otmoe.inference.parameters import Parameter
from otmoe.inference.terms import TermTest
from otmoe.text.html import html_lines, html_table

P = TypeVar("P", bound=Parameter)

WIDEST = 28
"""Characters of a name, at most."""

_NARROWEST = 11  # characters of a column of numbers


class Table(tuple[P, ...]):
    """A tuple of records that a console and a notebook show as a table with headings.

    Attributes
    ----------
    df : int or None
        Degrees of freedom of the standard errors, where rows are in groups.
    """

    df: int | None = None

    @overload
    def __getitem__(self, at: SupportsIndex) -> P: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: SupportsIndex | slice) -> P | Self:
        found: Any = tuple.__getitem__(self, at)
        return self._like(found) if isinstance(at, slice) else found

    def __repr__(self) -> str:
        heads, sections = self._heads(), self._sections()
        names = [str(name) for rows in sections.values() for name, *_ in rows]
        first = min(max(map(len, ["intercept", *names])), WIDEST)
        line = aligned(["", *heads], first)
        out = []
        for heading, rows in sections.items():
            out += [heading, line, "-" * len(line), *(aligned(row, first) for row in rows), ""]
        note = by_t(self.df) if out else ""
        return "\n".join([*out[:-1], note] if note else out[:-1])

    __str__ = __repr__

    def _repr_html_(self) -> str:
        heads = ["", *self._heads()]
        blank = [""] * len(heads)
        return "".join(
            html_lines(heading)
            + html_table(heads, ([*row, *blank][: len(heads)] for row in rows), by_t(self.df))
            for heading, rows in self._sections().items()
        )

    def _sections(self) -> dict[str, list[list[str]]]:
        """Return the cells of the rows, the name first, by heading."""
        found: dict[str, list[list[str]]] = {}
        for row in self:
            found.setdefault(row_heading(row), []).append([row.term, *self._cells(row)])
        return found

    @abstractmethod
    def _like(self, rows: Iterable[P]) -> Self:
        """Return other rows as a table of the same kind."""

    @abstractmethod
    def _heads(self) -> Sequence[str]:
        """Return the headings of the figures."""

    @abstractmethod
    def _cells(self, row: P) -> list[str]:
        """Return the figures of a record as text."""


class Estimates(Table[Estimate]):
    """Estimates as a tuple of :class:`Estimate` that prints as a table.

    Parameters
    ----------
    rows : iterable of Estimate
    level : float
        Of the intervals.
    called : str
        Heading of the estimates, such as "odds ratio".
    df : int, optional
        Of the t quantiles that intervals and tests are by; by default, those of the normal
        distribution.

    Examples
    --------
    >>> row = Estimate("expert", 0, None, None, "age", 1.25, 0.1, 12.5, 0.0, 1.054, 1.446)
    >>> Estimates([row], called="ratio")
    Expert 0
                   ratio    std err          z      P>|z|     [0.025     0.975]
    ---------------------------------------------------------------------------
    age           1.2500     0.1000     12.500      0.000     1.0540     1.4460
    >>> Estimates([row])[0].term
    'age'
    """

    level: float
    called: str

    def __new__(
        cls,
        rows: Iterable[Estimate] = (),
        level: float = 0.95,
        called: str = "estimate",
        df: int | None = None,
    ) -> Self:
        """Return the rows, which stay as they are."""
        self = super().__new__(cls, rows)
        self.level, self.called, self.df = level, called, df
        return self

    def _like(self, rows: Iterable[Estimate]) -> Self:
        return type(self)(rows, self.level, self.called, self.df)

    def _heads(self) -> Sequence[str]:
        return estimate_heads(self.level, self.called, self.df)

    def _cells(self, row: Estimate) -> list[str]:
        return estimate_cells(row)


class TermTests(Table[TermTest]):
    """Joint tests as a tuple of :class:`TermTest` that prints as a table.

    Parameters
    ----------
    rows : iterable of TermTest
    df : int, optional
        Of the standard errors, where rows are in groups.
    """

    def __new__(cls, rows: Iterable[TermTest] = (), df: int | None = None) -> Self:
        """Return the rows, which stay as they are."""
        self = super().__new__(cls, rows)
        self.df = df
        return self

    def _like(self, rows: Iterable[TermTest]) -> Self:
        return type(self)(rows, self.df)

    def _heads(self) -> Sequence[str]:
        return test_heads(self.df)

    def _cells(self, row: TermTest) -> list[str]:
        return cells_of_test(row)


def row_heading(row: Parameter) -> str:
    """Return the heading of the table that a record belongs to."""
    label = "" if row.label is None else f", class {row.label}"
    if row.block == "marginal":
        return f"Average marginal effects{label}"
    if row.block == "linear":
        return "Linear combinations"
    against = "" if row.against is None else f" against expert {row.against}"
    who = f"{'Gate: expert' if row.block == 'gate' else 'Expert'} {row.expert}{against}"
    return who + label


def estimate_heads(level: float, called: str = "estimate", df: int | None = None) -> list[str]:
    """Return the headings of the figures of estimates; t in the place of z if `df` is given."""
    ends = f"[{0.5 - level / 2:.3g}", f"{0.5 + level / 2:.3g}]"
    z = "z" if df is None else "t"
    return [called, "std err", z, f"P>|{z}|", *ends]


def test_heads(df: int | None = None) -> list[str]:
    """Return the headings of joint tests: chi-square, or Hotelling's T squared with `df`."""
    statistic = "chi2" if df is None else "T2"
    return [statistic, "df", f"P>{statistic}"]


def estimate_cells(row: Estimate) -> list[str]:
    """Return the figures of an estimate as text; a note in place of those that it lacks."""
    if row.note:
        return [number(row.estimate), f"   {row.note}"]
    tests = ("" if np.isnan(value) else f"{value:.3f}" for value in (row.z, row.p))
    return [*map(number, (row.estimate, row.se)), *tests, *map(number, (row.low, row.high))]


def cells_of_test(row: TermTest) -> list[str]:
    """Return the figures of a joint test as text; a note where there is none."""
    if np.isnan(row.statistic):
        return [f"   {NOT_IDENTIFIED}"]
    return [f"{row.statistic:.3f}", str(row.df), f"{row.p:.3f}"]


def aligned(cells: Sequence[str], first: int) -> str:
    """Return a line of a table: a name, cut to `first` characters, and figures to the right."""
    name, *figures = cells
    name = name if len(name) <= first else name[: first - 1] + "…"
    return (f"{name:{first}}" + "".join(f"{cell:>{_NARROWEST}}" for cell in figures)).rstrip()


def number(value: float) -> str:
    """Return four decimals where these are enough, else four significant digits."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}"
    return f"{value:.4g}"
