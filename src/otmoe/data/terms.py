"""Features computed from others: splines of a number, and interactions (maths 19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.data.columns import Column
from otmoe.data.splines import LEAST_KNOTS, MOST_KNOTS, Basis, too_close
from otmoe.text.errors import fail
from otmoe.text.records import List, Name, Record, Row, check_distinct
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

MOST_DERIVED = 5_000
"""Features that the terms of a specification make, at most."""


class TermRecord(Record):
    """The fields of a term. Which it has depends on its kind."""

    kind: Literal["spline", "interaction"]
    column: Name | None = None
    knots: Row | None = None
    of: List[Name] | None = None


@dataclass(frozen=True)
class Spline:
    """The curve of a number: its departure from a straight line, as natural cubic splines.

    The number itself, which is a feature of its own, is the straight part.

    Attributes
    ----------
    column : str
        A number among the columns.
    knots : tuple of m float
        Increasing, in the units of the column.

    Examples
    --------
    >>> Spline("hour", (6.0, 9.0, 12.0, 18.0, 21.0)).name
    'spline(hour)'
    """

    column: str
    knots: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "knots", tuple(map(float, self.knots)))

    @property
    def name(self) -> str:
        """What models and tests call the term."""
        return f"spline({self.column})"

    @property
    def df(self) -> int:
        """Degrees of freedom of the whole curve beside the intercept: those of the slope too."""
        return len(self.knots) - 1

    @cached_property
    def basis(self) -> Basis:
        """The columns as functions of the number."""
        return Basis(self.knots)

    def document(self) -> dict[str, Any]:
        """Return the term as it stands in a file."""
        return {"kind": "spline", "column": self.column, "knots": list(self.knots)}


@dataclass(frozen=True)
class Interaction:
    """The products of the features of two columns, or of a column and a spline.

    Attributes
    ----------
    of : tuple of two str
        Names of columns or of terms before this one.

    Examples
    --------
    >>> Interaction(("age", "sex")).name
    'age:sex'
    """

    of: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", tuple(self.of))

    @property
    def name(self) -> str:
        """What models and tests call the term."""
        return ":".join(self.of)

    def document(self) -> dict[str, Any]:
        """Return the term as it stands in a file."""
        return {"kind": "interaction", "of": list(self.of)}


Term = Spline | Interaction


def term_of(record: TermRecord) -> Term:
    """Return the term of a checked record."""
    if record.kind == "spline":
        return Spline(record.column or "", tuple(record.knots or ()))
    return Interaction(tuple(record.of or ()))


@dataclass(frozen=True)
class Layout:
    """Where the features of columns and of terms stand in a row.

    Columns come first, in order; then terms, in order.

    Attributes
    ----------
    columns : tuple of Column
    terms : tuple of Spline or Interaction
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...] = ()

    @cached_property
    def of_columns(self) -> dict[str, range]:
        """The features of each column."""
        found, end = {}, 0
        for column in self.columns:
            found[column.name] = range(end, end := end + len(column.feature_names))
        return found

    @cached_property
    def of_terms(self) -> dict[str, range]:
        """The features of each term."""
        found: dict[str, range] = {}
        end = self.n_base
        for term in self.terms:
            size = len(term.knots) - 2 if isinstance(term, Spline) else 1
            if isinstance(term, Interaction):
                for part in term.of:
                    size *= len(self._factors(part, found))
            found[term.name] = range(end, end := end + size)
        return found

    def _factors(self, part: str, terms: Mapping[str, range]) -> range:
        """Return the features of a column or term that enter products: of a number, its value."""
        if part in terms:
            return terms[part]
        column = next(column for column in self.columns if column.name == part)
        place = self.of_columns[part]
        return place if column.kind == "category" else place[:1]

    @property
    def n_base(self) -> int:
        """Number of features of the columns."""
        return sum(map(len, self.of_columns.values()))

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.n_base + sum(map(len, self.of_terms.values()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the d features."""
        found = [name for column in self.columns for name in column.feature_names]
        for term in self.terms:
            if isinstance(term, Spline):
                found += [f"{term.name}.{i}" for i in range(1, len(term.knots) - 1)]
            else:
                one, other = (self._factors(part, self.of_terms) for part in term.of)
                found += [f"{found[i]}:{found[j]}" for i in one for j in other]
        return tuple(found)

    @property
    def term_features(self) -> dict[str, tuple[str, ...]]:
        """The features of each term, as ``FeatureSpec.term_features`` has them."""
        names, found = self.names, dict[str, list[int]]()
        curved = {term.column: term for term in self.terms if isinstance(term, Spline)}
        for name, place in self.of_columns.items():
            if name in curved:
                bends = self.of_terms[curved[name].name]
                found[curved[name].name] = [place[0], *bends]
                found[f"{curved[name].name}, nonlinear"] = list(bends)
                if len(place) > 1:
                    found[names[place[1]]] = [place[1]]
            else:
                found[name] = list(place)
        products = [term.name for term in self.terms if isinstance(term, Interaction)]
        found |= {name: list(self.of_terms[name]) for name in products}
        return {term: tuple(names[j] for j in places) for term, places in found.items()}

    def derive(self, X: Floats) -> None:
        """Write the features of the terms into rows that hold those of the columns.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        """
        by_name = {column.name: column for column in self.columns}
        for term in self.terms:
            place = self.of_terms[term.name]
            if isinstance(term, Spline):
                column = by_name[term.column]
                x = X[:, self.of_columns[term.column][0]] * column.scale + column.center
                X[:, place.start : place.stop] = term.basis(x)
            else:
                one, other = (self._factors(part, self.of_terms) for part in term.of)
                at = place.start
                for i in one:
                    for j in other:
                        np.multiply(X[:, i], X[:, j], out=X[:, at])
                        at += 1

    def completed(self, base: Floats) -> Floats:
        """Return whole rows (n, d) of features of columns alone (n, b), as drawn from a sketch.

        Where an indicator says that a number is missing, the number is the imputed one.
        """
        X = np.empty((len(base), self.n_features))
        X[:, : self.n_base] = base
        for column in self.columns:
            if column.impute is not None:
                value, missing = self.of_columns[column.name]
                filled = (column.impute - column.center) / column.scale
                X[X[:, missing] == 1, value] = filled
        self.derive(X)
        return X


# -- checks --------------------------------------------------------------------------------------


def check_terms(
    records: Sequence[TermRecord], columns: Sequence[Column], source: str, place: str
) -> None:
    """Check that terms are of columns there are, and that their knots make a basis.

    Parameters
    ----------
    records : sequence of TermRecord
    columns : sequence of Column
        Checked.
    source : str
        Where they come from; an error begins with it.
    place : str
        Where they lie in their document, such as ``terms``.
    """
    kinds = {column.name: column.kind for column in columns}
    splines: set[str] = set()
    for i, record in enumerate(records):
        path = f"{place}[{i}]"
        wrong = ("of",) if record.kind == "spline" else ("column", "knots")
        for name in wrong:
            if getattr(record, name) is not None:
                fail(source, f"{path}.{name}", Error.WRONG_KIND_OF_TERM, kind=record.kind)
        if record.kind == "spline":
            _check_spline(record, kinds, source, path)
            splines.add(f"spline({record.column})")
        else:
            _check_interaction(record, kinds, splines, source, path)
    terms = [term_of(record) for record in records]
    check_distinct([*kinds, *(term.name for term in terms)], f"{place}.name", source)
    derived = sum(map(len, Layout(tuple(columns), tuple(terms)).of_terms.values()))
    if derived > MOST_DERIVED:
        fail(source, place, Error.MANY_DERIVED, features=derived, most=MOST_DERIVED)


def _check_spline(record: TermRecord, kinds: Mapping[str, str], source: str, path: str) -> None:
    if record.column is None or kinds.get(record.column) != "number":
        fail(source, f"{path}.column", Error.SPLINE_OF_NO_NUMBER, column=shown(record.column))
    knots = record.knots or []
    if not LEAST_KNOTS <= len(knots) <= MOST_KNOTS:
        limits = {"least": LEAST_KNOTS, "most": MOST_KNOTS}
        fail(source, f"{path}.knots", Error.KNOTS_COUNT, knots=len(knots), **limits)
    if too_close(knots):
        fail(source, f"{path}.knots", Error.KNOTS_CLOSE)


def _check_interaction(
    record: TermRecord, kinds: Mapping[str, str], splines: set[str], source: str, path: str
) -> None:
    parts = record.of or []
    if len(parts) != 2 or parts[0] == parts[1]:
        fail(source, f"{path}.of", Error.INTERACTION_PARTS, parts=shown(parts))
    for part in parts:
        if part not in kinds and part not in splines:
            fail(source, f"{path}.of", Error.INTERACTION_UNKNOWN, name=shown(part))
