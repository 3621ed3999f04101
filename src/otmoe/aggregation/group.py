"""One group of sites, read and merged wherever there is a worker (maths 11)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otmoe.aggregation.solve import solved
from otmoe.arrays.numerics import Floats
from otmoe.documents.message import LocalModel
from otmoe.likelihood.rows import take_rows
from otmoe.text.errors import MessageError
from otmoe.text.notices import Notice

SIZE = 100
"""Sites of a group (`python -m benchmarks many`)."""

Message = LocalModel | str | os.PathLike[str]


@dataclass(frozen=True)
class Grouping:
    """How groups are merged: what :func:`otmoe.aggregate` was asked for.

    Attributes
    ----------
    n_experts : int, optional
    method : str
    outliers : str, optional
    keep : tuple of str
    group_size : int
    exclude : tuple of str
        Sites that are not merged, if they are there.
    collect : bool
        Whether files that cannot be read are named in the result, and the others merged.
    """

    n_experts: int | None = None
    method: str = "auto"
    outliers: str | None = None
    keep: tuple[str, ...] = ()
    group_size: int = SIZE
    exclude: tuple[str, ...] = ()
    collect: bool = False


@dataclass(frozen=True)
class GroupTask:
    """A group to be merged; it travels to where that is done.

    Attributes
    ----------
    name : str
    messages : tuple of LocalModel or path
    support : array of shape (S, d), dict of arrays by site, or int
    weight : ndarray, optional
        Of the sites, in their order; by default their rows.
    how : Grouping
    n_rows : int
        Rows of covariates that the group's message brings; 0 where the server has its own.
    seed : int
    """

    name: str
    messages: tuple[Message, ...] = field(repr=False)
    support: Any = field(repr=False)
    weight: Floats | None = field(repr=False)
    how: Grouping
    n_rows: int
    seed: int


@dataclass(frozen=True)
class Group:
    """A group that was merged.

    Attributes
    ----------
    message : LocalModel, optional
        Its model, under the name of the group; None if no site is left to merge.
    sites : tuple of str
        Whose messages there were.
    weight : float
        Of the sites that are in the model.
    flagged, left_out : dict of Notice
        Sites that stand out, and why: those in the model, and those that are not.
    warnings : tuple of Notice
    bad : dict of str
        Why a file cannot be read, by its name.
    size : int
        Bytes of the files.
    """

    message: LocalModel | None
    sites: tuple[str, ...] = field(repr=False)
    weight: float = 0.0
    flagged: Mapping[str, Notice] = field(default_factory=dict)
    left_out: Mapping[str, Notice] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()
    bad: Mapping[str, str] = field(default_factory=dict)
    size: int = 0


Run = Callable[[Sequence[GroupTask]], Iterable[Group]]
"""Applies :func:`merge_group` to tasks, wherever that is."""


def loaded(messages: Sequence[Message]) -> list[LocalModel]:
    """Return messages, those that are files read."""
    return [LocalModel.load(m) if isinstance(m, str | os.PathLike) else m for m in messages]


def merge_group(task: GroupTask) -> Group:
    """Read the messages of a group, look for sites that stand out, and merge the others."""
    how, rng = task.how, np.random.default_rng(task.seed)
    read, bad, size = _read(task.messages, how.collect)
    all_sites = tuple(message.site for message in read.values())
    stay = [i for i, message in read.items() if message.site not in how.exclude]
    if not stay:
        return Group(None, all_sites, bad=bad, size=size)
    messages = [read[i] for i in stay]
    given = None if task.weight is None else task.weight[stay]
    sites = [message.site for message in messages]
    keep = [name for name in how.keep if name in sites]
    done = solved(
        messages,
        task.support,
        how.n_experts,
        how.method,
        given,
        rng,
        outliers=how.outliers,
        keep=keep,
    )
    problem, screening = done.problem, done.screening
    counts = problem.rows
    lost = np.where(problem.which >= 0, np.nan_to_num(done.lost)[problem.which], 0.0)
    claimed = np.array([m.log_likelihood / m.n_samples for m in problem.messages])
    X = problem.sources.X
    few = np.sort(rng.choice(len(X), min(task.n_rows, len(X)), replace=False))
    first = problem.messages[0]
    message = LocalModel(
        site=task.name,
        model=replace(
            done.outcome.model, feature_names=first.model.feature_names, classes=first.model.classes
        ),
        n_samples=float(counts.sum()),
        log_likelihood=float(counts @ (claimed - lost)),
        converged=done.outcome.converged,
        status=done.outcome.status,
        constant={
            name: value
            for name, value in first.constant.items()
            if all(m.constant.get(name) == value for m in problem.messages)
        },
        features=first.features,
        support=None if not task.n_rows else np.asarray(take_rows(X, few), np.float64),
    )
    verdicts = screening.verdicts
    flagged = {
        name: v.reasons[0]
        for name, v in verdicts.items()
        if v.reasons and name not in screening.left_out
    }
    weight = float(counts.sum())
    if given is not None:
        pairs = zip(sites, given, strict=True)
        weight = float(sum(w for name, w in pairs if name not in screening.left_out))
    out, told = screening.left_out, screening.warnings
    return Group(message, all_sites, weight, flagged, out, told, bad, size)


def _read(
    messages: Sequence[Message], collect: bool
) -> tuple[dict[int, LocalModel], dict[str, str], int]:
    """Return messages by place, files that cannot be read and why, and the bytes of the others."""
    found: dict[int, LocalModel] = {}
    bad: dict[str, str] = {}
    size = 0
    for place, message in enumerate(messages):
        if isinstance(message, LocalModel):
            found[place] = message
            continue
        try:
            found[place] = LocalModel.load(message)
            size += os.stat(message).st_size
        except (MessageError, OSError) as error:
            if not collect:
                raise
            bad[os.fspath(message)] = str(error)
    return found, bad, size
