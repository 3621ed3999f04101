"""Numbers of experts compared, and which of them to choose (maths 16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.iterations import NEGLIGIBLE
from otmoe.model.mixture import MoE
from otmoe.selection.candidate import Candidate, Score
from otmoe.text.errors import InvalidInput
from otmoe.text.html import html_lines, html_table
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn

CRITERIA = ("bic", "icl", "cv", "expected_bic", "elbow")

CLEAR = 0.5
"""Bend of log R_c below which an elbow is doubtful (maths 16; `python -m benchmarks constants`)."""

_WIDTH = 80  # characters of a line, so that no number is cut in a terminal

_NO_COST = 1e-9  # nats: what rounding leaves of R_c where all sites agree

_NAMES = {
    "bic": "BIC",
    "icl": "ICL",
    "cv": "the log-likelihood of held-out rows",
    "expected_bic": "the BIC that the sites' own models expect",
    "elbow": "the elbow of R_c",
}

_COLUMNS = (
    ("K", "n_experts", "d"),
    ("parameters", "n_parameters", ",d"),
    ("log-likelihood", "log_likelihood", ",.1f"),
    ("BIC", "bic", ",.1f"),
    ("ICL", "icl", ",.1f"),
    ("CV", "cv", ",.1f"),
    ("entropy", "entropy", ",.1f"),
    ("lost", "lost", ".4g"),
    ("apart", "apart", ".4g"),
    ("expected BIC", "expected_bic", ",.1f"),
    ("R_c", "cost", ".4g"),
    ("bend", "bend", ".2f"),
    ("seconds", "seconds", ".2f"),
)


@dataclass(frozen=True)
class Selection:
    """Numbers of experts compared; as text, a table.

    Attributes
    ----------
    candidates : tuple of Candidate
        In the order of their number of experts.
    criterion : {"bic", "icl", "cv", "expected_bic", "elbow"}
        The default criterion for choosing the best.
    remarks : tuple of Notice
        Warnings: shards that failed or were left out.
    """

    candidates: tuple[Candidate, ...]
    criterion: str = "bic"
    remarks: tuple[Notice, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(self.candidates, key=lambda c: c.n_experts)
        object.__setattr__(self, "candidates", tuple(ordered))
        check_criterion(self.criterion)

    def __repr__(self) -> str:
        numbers = ", ".join(str(c.n_experts) for c in self.candidates)
        return f"Selection(of {numbers} experts, criterion={self.criterion!r})"

    # -- choosing -----------------------------------------------------------------------------

    def best(self, criterion: str | None = None) -> Candidate:
        """Return the best candidate by a criterion.

        Parameters
        ----------
        criterion : {"bic", "icl", "cv", "expected_bic", "elbow"}, optional
            By default that of the selection.
        """
        criterion = check_criterion(criterion or self.criterion)
        if criterion == "elbow":
            values = -self.bend
            if np.all(np.isnan(values)):
                raise InvalidInput(Error.NO_ELBOW)
        else:
            values = np.array([getattr(c, criterion) for c in self.candidates])
            if np.any(np.isnan(values)):
                code = Error.NO_LIKELIHOODS
                if criterion == "expected_bic":
                    code = Error.NO_EXPECTATION
                if criterion == "cv":
                    code = Error.NOT_CROSS_VALIDATED
                raise InvalidInput(code, criterion=criterion)
            sound = np.array([not c.degenerate for c in self.candidates])
            if np.any(sound):
                values = np.where(sound, values, np.inf)
        return self.candidates[int(np.nanargmin(values))]

    @property
    def n_experts(self) -> int:
        """The number of experts chosen."""
        return self.best().n_experts

    @property
    def best_model(self) -> MoE:
        """The model chosen."""
        return self.best().model

    @property
    def best_estimator(self) -> Any:
        """The model chosen, as a fitted estimator."""
        return self.best().estimator

    @property
    def bend(self) -> Floats:
        """Second differences of log R_c at every candidate; NaN at both ends (maths 16)."""
        K = np.array([c.n_experts for c in self.candidates], dtype=float)
        cost = np.log(np.maximum([c.cost for c in self.candidates], _NO_COST))
        fall = -np.diff(cost) / np.diff(K)
        return np.concatenate([[np.nan], fall[:-1] - fall[1:], [np.nan]])[: len(K)]

    @property
    def notes(self) -> tuple[Notice, ...]:
        """Warnings to consider before using the best."""
        found, chosen = list(self.remarks), self.best()
        last = self.candidates[-1].n_experts
        if self.criterion == "elbow":
            place = self.candidates.index(chosen)
            if self.bend[place] < CLEAR:
                found.append(Warn.SLIGHT_BEND(experts=chosen.n_experts))
        elif chosen.n_experts == last and last > 1:
            found.append(Warn.LARGEST_TRIED(experts=last))
        found += [
            Warn.OF_CANDIDATE(experts=c.n_experts, warning=str(w))
            for c in self._checked()
            for w in c.warnings
        ]
        return tuple(found)

    def _checked(self) -> tuple[Candidate, ...]:
        """Return the candidates, with a warning where fewer experts are likelier."""
        result, most, before = [], -np.inf, 0
        for c in self.candidates:
            if c.log_likelihood < most - NEGLIGIBLE:
                c = replace(c, warnings=(*c.warnings, Warn.LESS_LIKELY(fewer=before)))
            elif c.log_likelihood > most:
                most, before = c.log_likelihood, c.n_experts
            result.append(c)
        return tuple(result)

    # -- what sites say -----------------------------------------------------------------------

    def scored(self, answers: Mapping[str, Sequence[Score]], criterion: str = "bic") -> Selection:
        """Return the selection with the log-likelihoods that sites have returned.

        Parameters
        ----------
        answers : mapping of str to sequence of Score
            By site, what :func:`otmoe.candidate_scores` returns for each candidate, in their order.
        criterion : {"bic", "icl", "cv", "expected_bic", "elbow"}
            Of the result.
        """
        if not answers:
            raise InvalidInput(Error.NO_SCORES)
        for site, scores in answers.items():
            if len(scores) != len(self.candidates):
                raise InvalidInput(
                    Error.SCORES_COUNT, site=site, models=len(scores), wanted=len(self.candidates)
                )
        sites = sorted(answers)  # so that their order cannot matter
        totals = [
            sum((answers[s][i] for s in sites[1:]), start=answers[sites[0]][i])
            for i in range(len(self.candidates))
        ]
        pairs = zip(self.candidates, totals, strict=True)
        scored = tuple(replace(c, score=total) for c, total in pairs)
        return replace(self, candidates=scored, criterion=criterion)

    # -- reading ------------------------------------------------------------------------------

    def records(self) -> list[dict[str, Any]]:
        """Return the table, a dict per row, as ``pandas.DataFrame`` accepts it."""
        rows = []
        for c, bend in zip(self._checked(), self.bend, strict=True):
            row = {key: float(bend) if key == "bend" else getattr(c, key) for _, key, _ in _COLUMNS}
            rows.append({**row, "warnings": c.warnings})
        return rows

    def _repr_html_(self) -> str:
        rows = self.records()
        shown = [column for column in _COLUMNS if not all(np.isnan(row[column[1]]) for row in rows)]
        cells = (
            ["" if np.isnan(row[key]) else format(row[key], form) for _, key, form in shown]
            for row in rows
        )
        chosen = self.n_experts
        first = f"{chosen} expert{'s' if chosen > 1 else ''}, by {_NAMES[self.criterion]}"
        notes = map(str, self.notes)
        return html_lines(first, *notes) + html_table([head for head, _, _ in shown], cells)

    def __str__(self) -> str:
        rows = self.records()
        shown = [column for column in _COLUMNS if not all(np.isnan(row[column[1]]) for row in rows)]
        chosen = self.n_experts
        cells = [[head for head, _, _ in shown]]
        cells += [
            ["" if np.isnan(row[key]) else format(row[key], form) for _, key, form in shown]
            for row in rows
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        marks = ["", *("*" if row["n_experts"] == chosen else "" for row in rows)]
        lines: list[str] = []
        for columns in _side_by_side(widths):
            lines += [""] * bool(lines)
            lines += [
                f"{mark:1} " + "  ".join(f"{line[j]:>{widths[j]}}" for j in columns)
                for mark, line in zip(marks, cells, strict=True)
            ]
        lines.append(f"* {chosen} expert{'s' if chosen > 1 else ''}, by {_NAMES[self.criterion]}.")
        return "\n".join(
            lines + [fill(str(note), _WIDTH, subsequent_indent="  ") for note in self.notes]
        )


def _side_by_side(widths: Sequence[int]) -> list[list[int]]:
    """Return which columns fit side by side; the first stands at the left of each table."""
    tables = [[0]]
    for j in range(1, len(widths)):
        used = 2 + sum(widths[i] + 2 for i in tables[-1])
        if used + widths[j] > _WIDTH and len(tables[-1]) > 1:
            tables.append([0])
        tables[-1].append(j)
    return tables


def check_criterion(criterion: Any) -> str:
    """Refuse an unknown criterion."""
    if criterion not in CRITERIA:
        raise InvalidInput(
            Error.NOT_ONE_OF, name="criterion", value=criterion, choices=list(CRITERIA)
        )
    return str(criterion)
