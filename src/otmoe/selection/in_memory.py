"""How many experts, by fits to rows in memory (maths 16)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from otmoe.arrays.numerics import Floats
from otmoe.estimators import MoERegressor
from otmoe.likelihood.grouped import as_labels
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.sharing import group_codes
from otmoe.model.mixture import MoE
from otmoe.selection.candidate import Candidate, numbers_to_try
from otmoe.selection.result import Selection, check_criterion
from otmoe.selection.scores import score
from otmoe.text.arguments import check_whole, generator
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error, Warn


def select_n_experts(
    X: Any,
    y: Any,
    n_experts: Iterable[int] = range(1, 7),
    *,
    estimator: Any = None,
    criterion: str = "bic",
    sample_weight: Any = None,
    offset: Any = None,
    groups: Any = None,
    folds: int = 5,
    random_state: Any = 0,
) -> Selection:
    """Fit every number of experts to rows in memory, and compare them.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
    n_experts : iterable of int
        Numbers to try.
    estimator : MoERegressor, MoEClassifier or a distributed one, optional
        What is fitted, with a different number of experts each time; by default
        ``MoERegressor(random_state=0)``.
    criterion : {"bic", "icl", "cv"}
        By which the best is taken. "cv" is cross-validation: every number is also fitted without
        each of the folds in turn, and the log-likelihood of the rows held out decides.
    sample_weight, offset, groups : array-like of shape (n,), optional
        With groups whose rows share their expert, the log-likelihood is that of groups; the number
        of rows in BIC, which penalises parameters, is still that of rows; folds have whole groups.
    folds : int
        Number of folds of cross-validation.
    random_state : int, Generator or None
        Fixes the folds.

    Returns
    -------
    Selection
        Every number is also started from the fit of the previous one. A fit with a warning stays in
        the table, with the warning; a degenerate one is not chosen.

    Examples
    --------
    >>> from otmoe import select_n_experts, simulate
    >>> data = simulate(1000, 2, 2, random_state=0)
    >>> found = select_n_experts(data.X, data.y, range(1, 4))
    >>> found.n_experts
    2
    >>> [row["n_parameters"] for row in found.records()]
    [4, 11, 18]
    """
    if check_criterion(criterion) == "elbow":
        raise InvalidInput(Error.ELBOW_ON_ROWS)
    if criterion == "expected_bic":
        raise InvalidInput(Error.NO_EXPECTATION, criterion=criterion)
    estimator = MoERegressor(random_state=0) if estimator is None else estimator
    rows, numbers = Given(X, y, sample_weight, offset, groups), numbers_to_try(n_experts)
    path = _path(estimator, numbers, rows)
    if criterion == "cv":
        path = _cross_validated(path, estimator, rows, folds_of(rows, folds, random_state))
    return Selection(tuple(path), criterion)


def _path(estimator: Any, numbers: Iterable[int], rows: Given) -> list[Candidate]:
    """Fit every number of experts in turn, each also from the one before."""
    path: list[Candidate] = []
    for K in numbers:
        path.append(_fitted(estimator, K, rows, path[-1].model if path else None))
    return path


def _fitted(estimator: Any, n_experts: int, rows: Given, before: MoE | None) -> Candidate:
    """Fit one number of experts, with one search that grows from the number before."""
    begin = perf_counter()
    est = clone(estimator).set_params(n_experts=n_experts)
    est._smaller = before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # they are kept
        est.fit(rows.X, rows.y, sample_weight=rows.weight, **rows.beside)
    seconds = perf_counter() - begin
    if hasattr(est, "fit_"):
        stopped = () if est.converged_ else (Warn.STOPPED(status=str(est.fit_.status)),)
        trouble = stopped + est.fit_.warnings
    else:
        trouble = est.warnings_
    found = score(est.model_, rows.of(est))
    return Candidate(n_experts, est.model_, found, np.nan, seconds, trouble, est)


def _cross_validated(
    path: list[Candidate], estimator: Any, rows: Given, folds: Sequence[Floats]
) -> list[Candidate]:
    """Return candidates with the score of all rows, each fold under the fit of the others."""
    begin = perf_counter()
    estimator = clone(estimator)
    if "classes" in estimator.get_params():  # a fold may lack some
        estimator.set_params(classes=path[0].estimator.classes_)
    found = []
    for fold in folds:
        rest, held = rows.take(np.setdiff1d(np.arange(len(rows)), fold)), rows.take(fold)
        without = _path(estimator, [candidate.n_experts for candidate in path], rest)
        found.append([score(each.model, held.of(each.estimator)) for each in without])
    seconds = (perf_counter() - begin) / len(path)
    return [
        replace(candidate, held_out=reduce(add, scores), seconds=candidate.seconds + seconds)
        for candidate, scores in zip(path, zip(*found, strict=True), strict=True)
    ]


@dataclass(frozen=True)
class Given:
    """Rows as a user gives them, in any kind of table.

    Attributes
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,), or (n, R)
    weight, offset, groups : array-like of shape (n,), optional
    """

    X: Any
    y: Any
    weight: Any = None
    offset: Any = None
    groups: Any = None

    def __len__(self) -> int:
        return int(_num_samples(self.X))

    @property
    def beside(self) -> dict[str, Any]:
        """What there is beside X, y and weights, by name."""
        found = {"offset": self.offset, "groups": self.groups}
        return {name: value for name, value in found.items() if value is not None}

    def take(self, index: Floats) -> Given:
        """Return some of the rows."""
        parts = (getattr(self, field.name) for field in fields(self))
        return Given(*(None if part is None else _safe_indexing(part, index) for part in parts))

    def of(self, est: Any) -> Rows:
        """Return them as rows of a fitted estimator."""
        found: Rows = est._rows(self.X, self.y, self.weight, self.offset, self.groups)
        return found


def folds_of(rows: Given, n_folds: int, random_state: Any = 0) -> tuple[Floats, ...]:
    """Return the rows of every fold, at random but for groups, which are never split.

    Parameters
    ----------
    rows : Given
    n_folds : int
    random_state : int, Generator or None

    Returns
    -------
    tuple of ndarray of int
        Folds have the same number of groups, or of rows where these have no groups, but for one.
    """
    check_whole("folds", n_folds)
    labels = None if rows.groups is None else as_labels(rows.groups, len(rows))
    codes = np.arange(len(rows)) if labels is None else group_codes(labels)
    size = int(codes.max()) + 1
    if not 2 <= n_folds <= size:
        raise InvalidInput(Error.FOLDS_RANGE, folds=n_folds, most=size)
    fold = generator(random_state).permutation(size) % n_folds
    return tuple(np.flatnonzero(fold[codes] == f) for f in range(n_folds))
