"""One local fit: what travels to the rows, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, sleep
from typing import Any, Literal

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.shards import Shard, ShardRows
from otmoe.data.shards.gathering import most_missing
from otmoe.data.shards.held import held_rows
from otmoe.documents.message import LocalModel
from otmoe.likelihood.fit import em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows, take_rows
from otmoe.likelihood.sharing import group_codes, group_order, sharing
from otmoe.model.mixture import MoE
from otmoe.model.target import Target, as_whole
from otmoe.text.errors import InvalidInput, OtmoeError, ShardError
from otmoe.text.sentences import Error, Status
from otmoe.workers.failures import TasksFailed
from otmoe.workers.gather import HERE, Workers, gather, passes

_ATTEMPTS = 3  # at reading


@dataclass(frozen=True)
class Task:
    """A local fit to be done; it travels to where the rows are.

    Attributes
    ----------
    shard : Shard
    seed : int
    n_experts : int
    target : Target
    feature_names : tuple of str, optional
        By default those of the shard's specification.
    n_support : int
        Maximum number of rows of X to return as support points.
    options : dict
        Of :func:`otmoe.likelihood.fit.em`.
    grams : bool
        Whether the message has the Grams of the experts.
    sketch : bool or int
        Whether the message has a sketch of X, or of how many components at most.
    share : int
        Rows of X in the message, drawn at random; none unless the site agrees.
    start : MoE, optional
        Begin there, on the user's scale, and search for nothing else; the message says so.
    again : bool
        Whether passes over the same rows follow, so that a worker does well to hold them.
    """

    shard: Shard
    seed: int
    n_experts: int
    target: Target = Target()
    feature_names: tuple[str, ...] | None = None
    n_support: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    grams: bool = False
    sketch: bool | int = False
    share: int = 0
    start: MoE | None = None
    again: bool = False


@dataclass(frozen=True)
class LocalFit:
    """A local fit that was done.

    Attributes
    ----------
    message : LocalModel
    seconds : float
        Of reading and fitting.
    support : ndarray of shape (s, d)
        Some rows of X.
    n_rows : int
    dropped : int
        Rows left out because a value is missing.
    missing : mapping of int
        Rows in which a column is missing, by its name, where some were left out.
    fingerprint : tuple of float
        Of the rows, by which it is noticed if they change before the next pass.
    reused : bool
        Whether an earlier run did it, and kept it.
    """

    message: LocalModel
    seconds: float
    support: Floats = field(repr=False)
    n_rows: int
    dropped: int = 0
    missing: Mapping[str, int] = field(default_factory=dict, repr=False)
    fingerprint: tuple[float, ...] = field(default=(), repr=False)
    reused: bool = False


@dataclass(frozen=True)
class RowsFit:
    """A local fit, and the rows that it is of; it stays where they are.

    Attributes
    ----------
    local : LocalFit
    rows : Rows
        On the user's scale.
    ids : ndarray of shape (n,), optional
        Whose each row is, where the shard was asked for it.
    """

    local: LocalFit
    rows: Rows
    ids: Floats | None = None


def fit_local(task: Task) -> LocalFit:
    """Read one shard and fit it, where its rows are."""
    return fit_rows(task).local


def fit_rows(task: Task) -> RowsFit:
    """Read one shard and fit it; return its rows as well."""
    begin = perf_counter()
    shard, target = task.shard, task.target
    found = by_group(read(shard, keep=task.again), target)
    n_rows = int(found.X.shape[0])
    if n_rows == 0 and not found.dropped:
        raise ShardError(Error.NO_ROWS, where=shard.name)
    if n_rows < task.n_experts:
        wanted = task.n_experts
        if found.dropped:
            raise ShardError(
                Error.ROWS_LEFT,
                where=shard.name,
                dropped=found.dropped,
                total=found.dropped + n_rows,
                columns=most_missing(found.missing),
                rows=n_rows,
                experts=wanted,
            )
        raise ShardError(Error.SHARD_TOO_SMALL, where=shard.name, rows=n_rows, experts=wanted)
    try:
        rows = _rows(found, target)
        known = {} if task.start is None else {"init": task.start}
        fit = em(
            rows.X,
            rows.y,
            task.n_experts,
            family=target.kind,
            n_classes=target.n_classes,
            sample_weight=rows.weight,
            offset=rows.offset,
            random_state=task.seed,
            groups=rows.groups,
            **{**task.options, **known},
        )
        if known:
            fit = replace(fit, status=Status.STARTED(status=fit.status))
        message = LocalModel.from_fit(
            fit, shard.name, task.feature_names, target.classes, features=shard.features
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
        message = replace(message, grams=Grams.of(fit.model, rows))
    rng = np.random.default_rng(task.seed)
    index = np.sort(rng.choice(n_rows, min(task.n_support, n_rows), replace=False))
    support = np.asarray(take_rows(rows.X, index), dtype=np.float64)
    seconds, seen = perf_counter() - begin, fingerprint(rows)
    local = LocalFit(message, seconds, support, n_rows, found.dropped, found.missing, seen)
    return RowsFit(local, rows, found.ids)


def fingerprint(rows: Rows) -> tuple[float, ...]:
    """Return sums over rows that change with them: their number, weight, y, and each feature."""
    X, y = to_numpy(rows.X), to_numpy(rows.y)
    with np.errstate(over="ignore"):
        sums = X.sum(axis=0, dtype=np.float64)
    return (len(y), float(rows.total_weight), float(np.sum(y, dtype=np.float64)), *map(float, sums))


def check_unchanged(rows: Rows, seen: tuple[float, ...], name: str) -> None:
    """Refuse rows of a shard that are not those of its fit."""
    if seen and not np.allclose(fingerprint(rows), seen, rtol=1e-9, atol=1e-9):
        raise ShardError(Error.SHARD_CHANGED, where=name, before=seen[0], rows=len(rows))


def rows_of(shard: Shard, target: Target, *, keep: bool = False) -> Rows:
    """Read one shard as rows on the user's scale."""
    return rows_in(read(shard, keep=keep), target, shard.name)


def rows_in(found: ShardRows, target: Target, name: str) -> Rows:
    """Return what was read of a shard as rows on the user's scale; errors name it."""
    if not found.X.shape[0]:
        raise ShardError(Error.NO_ROWS, where=name)
    try:
        return _rows(by_group(found, target), target)
    except OtmoeError as error:
        raise error.about(name, ShardError) from error


def _rows(found: ShardRows, target: Target) -> Rows:
    target.check_names(found.response_names)
    rows = Rows(found.X, target.numbers(found.y), found.weight, found.offset)
    if target.expert_per == "row":
        return rows
    if found.groups is None:
        raise InvalidInput(Error.SHARING_NEEDS_GROUPS)
    return sharing(rows, found.groups, ())  # the fit has seen to the features of the gate


def by_group(found: ShardRows, target: Target) -> ShardRows:
    """Return what was read with the rows of a group together, where they share their expert."""
    if target.expert_per == "row" or found.groups is None:
        return found
    order = group_order(group_codes(found.groups))
    if order is None:
        return found
    names = ("X", "y", "weight", "offset", "groups", "ids")
    arrays: dict[str, Any] = {name: getattr(found, name) for name in names}
    ordered: dict[str, Any] = {n: None if a is None else a[order] for n, a in arrays.items()}
    return replace(found, **ordered)


def labels_of(shard: Shard) -> Floats:
    """Return the class labels that occur in a shard, sorted."""
    return np.unique(read(shard).y)


def groups_of(shard: Shard) -> Floats:
    """Return the labels of groups that occur in a shard."""
    groups = read(shard).groups
    if groups is None:
        raise ShardError(Error.SHARING_NEEDS_GROUPS, where=shard.name)
    return np.fromiter(dict.fromkeys(groups.tolist()), object)


def check_apart(shards: Sequence[Shard], workers: Workers = HERE) -> None:
    """Refuse groups whose rows lie in two shards: their experts could not be shared."""
    found, _ = gather(groups_of, shards, [shard.name for shard in shards], workers)
    home: dict[Any, str] = {}
    for shard, labels in zip(shards, found, strict=True):
        for label in () if labels is None else labels:  # one that cannot be read says so itself
            if home.setdefault(label, shard.name) != shard.name:
                names = {"first": home[label], "second": shard.name}
                raise InvalidInput(Error.GROUP_IN_TWO_SHARDS, group=repr(label), **names)


def classes_of(
    shards: Sequence[Shard], workers: Workers = HERE, on_error: Literal["raise", "skip"] = "raise"
) -> Floats:
    """Return the class labels that occur in any shard, sorted; reads all of them."""
    found, failures = gather(labels_of, shards, [shard.name for shard in shards], workers)
    seen = [labels for labels in found if labels is not None]
    if failures and (on_error == "raise" or not seen):
        raise TasksFailed(failures)
    return as_whole(np.unique(np.concatenate(seen)))


def read(shard: Shard, *, keep: bool = False) -> ShardRows:
    """Read a shard, with retries for transient errors; rows may be cached here.

    With `keep`, they are held for the next pass, if memory allows it.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return held_rows(shard, keep=keep)
        except ShardError as error:
            if not passes(error.__cause__) or attempt == _ATTEMPTS - 1:
                raise
            sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")
