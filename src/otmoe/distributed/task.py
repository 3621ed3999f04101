"""One local fit: what travels to the rows, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, sleep
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Array, Floats, take, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.data.shards import FileShard, Shard, ShardRows
from otmoe.documents.message import LocalModel
from otmoe.likelihood.fit import em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows, take_rows
from otmoe.text.arguments import check_counts, class_codes
from otmoe.text.errors import InvalidInput, OtmoeError, ShardError
from otmoe.text.sentences import Error
from otmoe.workers.gather import passes

ROWS_PER_PARAMETER = 3
"""Rows per parameter that a shard has at least, where rows are split at random."""

_ATTEMPTS = 3  # at reading


@dataclass(frozen=True, eq=False)
class RowsShard:
    """Some of the rows of arrays in memory; it travels as a copy of these rows alone.

    Attributes
    ----------
    name : str
    X : array of shape (n, d)
    y : array of shape (n,)
    weight, offset : array of shape (n,), optional
    index : ndarray of int, optional
        The rows; all if it is None.
    """

    name: str
    X: Array = field(repr=False)
    y: Array = field(repr=False)
    weight: Array | None = field(default=None, repr=False)
    offset: Array | None = field(default=None, repr=False)
    index: Floats | None = field(default=None, repr=False)

    features: FeatureSpec | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0]) if self.index is None else len(self.index)

    def read(self) -> ShardRows:
        """Return the rows, in the namespace and on the device of the arrays."""
        if self.index is None:
            return ShardRows(self.X, self.y, self.weight, offset=self.offset)
        weight, offset = (
            None if a is None else take(a, self.index) for a in (self.weight, self.offset)
        )
        X, y = take(self.X, self.index), take(self.y, self.index)
        return ShardRows(X, y, weight, offset=offset)

    def __reduce__(self) -> Any:
        rows = self.read()
        return RowsShard, (self.name, rows.X, rows.y, rows.weight, rows.offset)


def split(n_rows: int, n_shards: int, n_parameters: int, rng: np.random.Generator) -> list[Floats]:
    """Cut rows at random into shards of equal size, fewer where rows are few.

    Returns
    -------
    list of ndarray of int
        Row numbers of each shard, sorted.
    """
    n_shards = max(min(n_shards, n_rows // (ROWS_PER_PARAMETER * n_parameters)), 1)
    if n_shards == 1:
        return [np.arange(n_rows)]
    return [np.sort(part) for part in np.array_split(rng.permutation(n_rows), n_shards)]


def joined(shards: Sequence[Shard], site: str) -> FileShard:
    """Return files as the rows of one site, in their order."""
    files = [shard for shard in shards if isinstance(shard, FileShard)]
    pieces = tuple(piece for shard in files for piece in shard.pieces)
    return replace(files[0], name=site, pieces=pieces)


@dataclass(frozen=True)
class Task:
    """A local fit to be done; it travels to where the rows are.

    Attributes
    ----------
    shard : Shard
    seed : int
    n_experts : int
    feature_names : tuple of str, optional
        By default those of the shard's specification.
    classes : ndarray, optional
        Class labels, in order.
    coded : bool
        Whether y holds class numbers already.
    n_points : int
        Rows of X to bring back as support points, at most.
    options : dict
        Of :func:`otmoe.likelihood.fit.em`.
    grams : bool
        Whether the message has the Grams of the experts.
    sketch : bool or int
        Whether the message has a sketch of X, or of how many components at most.
    share : int
        Rows of X in the message, drawn at random; none unless the site agrees.
    """

    shard: Shard
    seed: int
    n_experts: int
    feature_names: tuple[str, ...] | None = None
    classes: Floats | None = None
    coded: bool = True
    n_points: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    grams: bool = False
    sketch: bool | int = False
    share: int = 0


@dataclass(frozen=True)
class LocalFit:
    """A local fit that was done.

    Attributes
    ----------
    message : LocalModel
    seconds : float
        Of reading and fitting.
    points : ndarray of shape (s, d)
        Some rows of X.
    n_rows : int
    dropped : int
        Rows left out because a value is missing.
    """

    message: LocalModel
    seconds: float
    points: Floats = field(repr=False)
    n_rows: int
    dropped: int = 0


def fit_local(task: Task) -> LocalFit:
    """Read one shard and fit it, where its rows are."""
    begin = perf_counter()
    shard = task.shard
    rows = read(shard)
    n_rows, y = int(rows.X.shape[0]), rows.y
    if n_rows < task.n_experts:
        wanted = task.n_experts
        raise ShardError(Error.SHARD_TOO_SMALL, where=shard.name, rows=n_rows, experts=wanted)
    try:
        if task.classes is None and isinstance(y, np.ndarray) and y.dtype.kind == "U":
            raise InvalidInput(Error.TARGET_IS_TEXT)
        if not task.coded and task.classes is not None:
            y = class_codes(to_numpy(y), task.classes)
        if task.options.get("family") == "poisson":
            check_counts(to_numpy(y))
        fit = em(
            rows.X,
            y,
            task.n_experts,
            sample_weight=rows.weight,
            offset=rows.offset,
            random_state=task.seed,
            **task.options,
        )
        message = LocalModel.from_fit(
            fit, shard.name, task.feature_names, task.classes, features=shard.features
        )
        if task.sketch or task.share:
            message = message.with_support(
                rows.X,
                sketch=task.sketch,
                share=task.share,
                sample_weight=rows.weight,
                random_state=task.seed,
            )
    except OtmoeError as error:
        raise error.about(shard.name, ShardError) from error
    if task.grams:
        rows_fitted = Rows(rows.X, y, rows.weight, rows.offset)
        message = replace(message, grams=Grams.of(fit.model, rows_fitted))
    rng = np.random.default_rng(task.seed)
    index = np.sort(rng.choice(n_rows, min(task.n_points, n_rows), replace=False))
    points = np.asarray(take_rows(rows.X, index), dtype=np.float64)
    return LocalFit(message, perf_counter() - begin, points, n_rows, rows.dropped)


def rows_of(shard: Shard, classes: Floats | None = None) -> Rows:
    """Read one shard as rows on the user's scale.

    Parameters
    ----------
    shard : Shard
    classes : ndarray, optional
        Class labels, where y holds labels rather than class numbers.
    """
    found = read(shard)
    y = found.y if classes is None else class_codes(to_numpy(found.y), classes)
    return Rows(found.X, y, found.weight, found.offset)


def labels_of(shard: Shard) -> Floats:
    """Return the class labels that occur in a shard, sorted."""
    return np.unique(read(shard).y)


def read(shard: Shard) -> ShardRows:
    """Read a shard, again if the network or the disk had a weak moment."""
    for attempt in range(_ATTEMPTS):
        try:
            return shard.read()
        except ShardError as error:
            if not passes(error.__cause__) or attempt == _ATTEMPTS - 1:
                raise
            sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")
