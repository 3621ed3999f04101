"""Coefficients as a matrix: features down, experts across."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.inference.curves import UNKNOWN, CurveRow, curve_rows
from otmoe.inference.parameters import Parameter, parameters, unseen
from otmoe.inference.readout import Readout
from otmoe.inference.terms import TermTest
from otmoe.model.mixture import MoE
from otmoe.text.html import html_lines, html_table

WIDTH = 80
"""Characters of a line, at most, unless a single column needs more."""

UNKNOWN_NOTE = "(–): not identified, the rows do not determine it"

_GAP = 2  # spaces between columns


@dataclass(frozen=True)
class Block:
    """A table of one kind of parameters.

    Attributes
    ----------
    heading : str
        What they are.
    block : {"gate", "expert"}
    label : object
        The class that they are about, in classifiers; else None.
    experts : tuple of int
        The columns.
    terms : tuple of str
        The rows.
    estimates, errors : ndarray of shape (T, K)
        NaN if there is no such parameter, or no standard error.
    """

    heading: str
    block: str
    label: Any
    experts: tuple[int, ...]
    terms: tuple[str, ...]
    estimates: Floats
    errors: Floats


@dataclass(frozen=True)
class Table:
    """A table as it is shown.

    Attributes
    ----------
    heading : str
    experts : tuple of int
        The columns.
    terms : tuple of T str
        The rows.
    cells : list of T lists of str
    """

    heading: str
    experts: tuple[int, ...]
    terms: tuple[str, ...]
    cells: list[list[str]]


@dataclass(frozen=True)
class Matrix:
    """All parameters of a model, with features down and experts across.

    Attributes
    ----------
    n_experts : int
    share : ndarray of shape (K,), or None
        Of the rows, by expert.
    blocks : tuple of Block
        Experts first (a block per class), then the gate.
    curves : tuple of CurveRow
        Shown in the place of their coefficients, which blocks and the CSV file have.

    Examples
    --------
    >>> from otmoe import simulate
    >>> print(Matrix.of(simulate(10, 2, 2, random_state=0).truth).text())
               expert 0  expert 1
    Experts
    intercept         2         4
    x0               -5         1
    x1               -1        -5
    variance          4         4
    Gate: log-odds against expert 1
    intercept         3
    x0               -1
    x1               -8
    """

    n_experts: int
    share: Floats | None
    blocks: tuple[Block, ...]
    curves: tuple[CurveRow, ...] = ()

    @classmethod
    def of(
        cls,
        model: MoE,
        mass: Sequence[float] | Floats | None = None,
        errors: Sequence[float | None] | Floats | None = None,
        curves: Mapping[str, Sequence[str]] | None = None,
        tests: Sequence[TermTest] = (),
    ) -> Matrix:
        """Return the parameters of a model.

        Parameters
        ----------
        model : MoE
        mass : ndarray of shape (K,), optional
            Rows that each expert has, or their share.
        errors : sequence of P numbers, optional
            Standard errors of the free parameters, in the order of :meth:`MoE.to_vector`; None or
            NaN where one is not known.
        curves : mapping of str to sequence of str, optional
            Terms to show as a whole, as ``FeatureSpec.curve_features`` has them.
        tests : sequence of TermTest
            Theirs, if standard errors are known.
        """
        about, values = parameters(model), np.where(unseen(model), np.nan, model.to_vector())
        unknown = np.full(len(values), np.nan)
        known = unknown if errors is None else np.array(errors, dtype=np.float64)  # None: NaN
        logs = np.array([row.block == "variance" for row in about], dtype=bool)
        values = np.where(logs, np.exp(np.where(logs, values, 0.0)), values)
        known = np.where(logs, values * known, known)
        found: dict[tuple[str, Any], dict[str, dict[int, int]]] = {}
        for j, row in enumerate(about):
            for key in _blocks_of(row, about):
                found.setdefault(key, {}).setdefault(row.term, {})[row.expert or 0] = j
        order = sorted(found, key=lambda key: key[0] == "gate")  # stable: experts first
        K = model.n_experts
        blocks = []
        for kind, label in order:
            terms = {
                term: where
                for term, where in found[kind, label].items()
                if not np.all(np.isnan(values[list(where.values())]))
            }
            experts = tuple(range(K - 1 if kind == "gate" else K))
            places = np.array([[terms[term].get(k, -1) for k in experts] for term in terms])
            estimates, error = (np.where(places >= 0, a[places], np.nan) for a in (values, known))
            heading = _heading(kind, label, model)
            blocks.append(Block(heading, kind, label, experts, tuple(terms), estimates, error))
        share = None if mass is None else np.asarray(mass) / np.sum(mass)
        return cls(K, share, tuple(blocks), curve_rows(model, curves or {}, tests))

    def text(self, width: int = WIDTH) -> str:
        """Return it as text; experts that do not fit beside each other follow below.

        Parameters
        ----------
        width : int
            Characters of a line. No number and no name is cut: a column that needs more has it.
        """
        tables = self.tables
        names = [term for table in tables for term in table.terms]
        first = max(map(len, [*names, *(["share of rows"] if self.share is not None else [])]))
        each = max(len(cell) for table in tables for row in table.cells for cell in row)
        each = max(each, len(f"expert {self.n_experts - 1}")) + _GAP
        at_once = max((width - first) // each, 1)
        panels = []
        for start in range(0, self.n_experts, at_once):
            shown = range(start, min(start + at_once, self.n_experts))
            heads = [f"expert {k}" for k in shown]
            lines = [f"{'':{first}}" + "".join(f"{head:>{each}}" for head in heads)]
            if self.share is not None:
                shares = "".join(f"{f'{self.share[k]:.1%}':>{each}}" for k in shown)
                lines.append(f"{'share of rows':{first}}{shares}")
            for table in tables:
                here = [k for k in shown if k in table.experts]
                if not here:
                    continue
                lines.append(table.heading)
                for term, row in zip(table.terms, table.cells, strict=True):
                    lines.append(f"{term:{first}}" + "".join(f"{row[k]:>{each}}" for k in here))
            panels.append("\n".join(line.rstrip() for line in lines))
        unknown = any(UNKNOWN in cell for table in tables for row in table.cells for cell in row)
        return "\n\n".join(panels) + (f"\n{UNKNOWN_NOTE}" if unknown else "")

    def html(self) -> str:
        """Return it as tables of HTML."""
        heads = ["", *(f"expert {k}" for k in range(self.n_experts))]
        out = []
        if self.share is not None:
            shares = ["share of rows", *(f"{share:.1%}" for share in self.share)]
            out.append(html_table(heads, [shares]))
        for table in self.tables:
            rows = (
                [term, *row, *[""] * (self.n_experts - len(row))]
                for term, row in zip(table.terms, table.cells, strict=True)
            )
            out.append(html_lines(table.heading) + html_table(heads, rows))
        return "".join(out)

    def csv_rows(self) -> list[list[Any]]:
        """Return it as rows for a CSV file, the first one with names; empty cells are None.

        A column per expert with estimates, then one per expert with standard errors.
        """
        heads = [f"expert {k}" for k in range(self.n_experts)]
        rows: list[list[Any]] = [["block", "class", "term", *heads, *(f"se {h}" for h in heads)]]
        for block in self.blocks:
            left: list[float | None] = [None] * (self.n_experts - len(block.experts))
            for i, term in enumerate(block.terms):
                numbers = [
                    [None if np.isnan(v) else float(v) for v in table[i]] + left
                    for table in (block.estimates, block.errors)
                ]
                rows.append([block.block, block.label, term, *numbers[0], *numbers[1]])
        return rows

    @property
    def tables(self) -> list[Table]:
        """What is shown: the coefficients of each block, then its curves."""
        tested = any(row.tests for row in self.curves)
        what = ": chi-square (df) P" if tested else ""
        found = []
        for block in self.blocks:
            mine = [
                row for row in self.curves if (row.block, row.label) == (block.block, block.label)
            ]
            bent = {(k, name) for row in mine for k in row.features for name in row.features[k]}
            lines = {}
            for term, cells in zip(block.terms, self._cells(block), strict=True):
                shown = [
                    "" if (k, term) in bent else cell
                    for k, cell in zip(block.experts, cells, strict=True)
                ]
                if any(shown):
                    lines[term] = shown
            found.append(Table(block.heading, block.experts, tuple(lines), list(lines.values())))
            if mine:
                tests = [[row.cell(k, tested) for k in block.experts] for row in mine]
                names = tuple(row.term for row in mine)
                heading = f"{block.heading}, splines{what}"
                found.append(Table(heading, block.experts, names, tests))
        return found

    def _cells(self, block: Block) -> list[list[str]]:
        """Return the cells of a block; where others have a standard error, a lack of it is said."""
        known = any(np.isfinite(block.errors).any() for block in self.blocks)
        pairs = zip(block.estimates, block.errors, strict=True)
        return [
            [
                with_error(*cell) + (f" {UNKNOWN}" if known and np.isnan(cell[1]) else "")
                if np.isfinite(cell[0])
                else ""
                for cell in zip(*row, strict=True)
            ]
            for row in pairs
        ]

    def readout(self, *lines: str) -> Readout:
        """Return it for a console and for a notebook, under some lines of text."""
        found = Readout("\n".join([*lines, self.text()]))
        found.html = html_lines(*lines) + self.html() if lines else self.html()
        return found


def _blocks_of(row: Parameter, about: Sequence[Parameter]) -> list[tuple[str, Any]]:
    """Return the blocks that a parameter is shown in: a variance stands below the coefficients."""
    if row.block == "variance":
        return list(dict.fromkeys(("expert", r.label) for r in about if r.block == "expert"))[:1]
    return [(row.block, row.label)]


def _heading(kind: str, label: Any, model: MoE) -> str:
    if kind == "gate":
        return f"Gate: log-odds against expert {model.n_experts - 1}"
    if label is None:
        return "Experts"
    classes = model.classes
    last = model.experts.n_linear if classes is None else np.asarray(classes).tolist()[-1]
    several = model.experts.n_linear > 1
    return f"Experts, class {label}" + (f" against {last}" if several else "")


def with_error(value: float, error: float) -> str:
    """Return an estimate with its standard error in brackets, both to the digits that count.

    Examples
    --------
    >>> with_error(-0.50958, 0.0936), with_error(1234.5, 170.2), with_error(1.23456, np.nan)
    ('-0.510 (0.094)', '1234 (170)', '1.235')
    """
    if np.isnan(value):
        return ""
    if not np.isfinite(error) or error == 0:
        return f"{value:.4g}"
    digits = 1 - int(np.floor(np.log10(error)))  # two significant digits of the error
    if digits > 6 or abs(value) >= 1e7:
        return f"{value:.3e} ({error:.1e})"
    digits = max(digits, 0)
    return f"{value:.{digits}f} ({error:.{digits}f})"
