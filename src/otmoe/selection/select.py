"""How many experts: on one machine, over shards, from messages (maths 16)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from otmoe.aggregation import Aggregation
from otmoe.data.shards import Shard
from otmoe.distributed.rounds import refine_shards
from otmoe.documents.message import LocalModel
from otmoe.estimators import DistributedMoERegressor, MoERegressor
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.selection.candidate import Candidate
from otmoe.selection.merging import merged_to
from otmoe.selection.result import Selection, check_criterion
from otmoe.selection.scores import ScoreTask, estimator_of, score, score_local
from otmoe.text.arguments import check_offset, check_weight, check_whole
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn
from otmoe.workers.gather import Progress, TasksFailed, Workers, gather, kept

ROWS_PER_PARAMETER = 10
"""Rows per parameter of the largest local fits below which a remark is made.

`python -m benchmarks constants` counts the remarks at half and at twice of it.
"""


def select_n_experts(
    X: Any,
    y: Any,
    n_experts: Iterable[int] = range(1, 7),
    *,
    estimator: Any = None,
    criterion: str = "bic",
    sample_weight: Any = None,
    offset: Any = None,
) -> Selection:
    """Fit every number of experts to rows in memory, and compare them.

    Parameters
    ----------
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
    n_experts : iterable of int
        Numbers to try.
    estimator : MoERegressor, MoEClassifier or a distributed one, optional
        What is fitted, with another number of experts each time; by default
        ``MoERegressor(random_state=0)``.
    criterion : {"bic", "icl"}
        By which the best is taken.
    sample_weight, offset : array-like of shape (n,), optional

    Returns
    -------
    Selection
        Every number sets out from the one before, too. One whose fit gives a warning stays in the
        table, with the warning; one that is degenerate is not chosen.

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
    path: list[Candidate] = []
    for K in sorted(_numbers(n_experts)):
        before = path[-1].model if path else None
        path.append(_fitted(estimator, K, X, y, sample_weight, offset, before))
    return Selection(tuple(path), criterion)


def _fitted(
    estimator: Any,
    n_experts: int,
    X: Any,
    y: Any,
    sample_weight: Any,
    offset: Any,
    before: MoE | None,
) -> Candidate:
    """Fit one number of experts, with one search that grows from the number before."""
    begin = perf_counter()
    est = clone(estimator).set_params(n_experts=n_experts)
    given = {} if offset is None else {"offset": offset}
    est._smaller = before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # they are kept
        est.fit(X, y, sample_weight=sample_weight, **given)
    seconds = perf_counter() - begin
    if hasattr(est, "fit_"):
        stopped = () if est.converged_ else (Warn.STOPPED(status=str(est.fit_.status)),)
        trouble = stopped + est.fit_.warnings
    else:
        trouble = est.warnings_
    X = est._check_rows(X)
    rows = Rows(X, est._check_target(y, X), check_weight(sample_weight, X), check_offset(offset, X))
    return Candidate(n_experts, est.model_, score(est.model_, rows), np.nan, seconds, trouble, est)


def select_over_shards(
    shards: Iterable[Shard],
    n_experts: Iterable[int] = range(1, 7),
    *,
    estimator: Any = None,
    criterion: str = "bic",
    retries: int = 2,
    timeout: float | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
) -> Selection:
    """Compare numbers of experts on rows that are elsewhere.

    Every shard is fitted once, with the largest number of experts. The local models are merged to
    each number here. For BIC and ICL every shard then returns the log-likelihood of all candidates,
    in one round; the BIC that their own models expect, and the elbow, do without.

    Parameters
    ----------
    shards : iterable of Shard
        From :func:`otmoe.shards_from`.
    n_experts : iterable of int
        Numbers to try.
    estimator : DistributedMoERegressor or DistributedMoEClassifier, optional
        How shards are fitted and merged, and where; by default
        ``DistributedMoERegressor(random_state=0)``. Its `refine` rounds are made for every number.
    criterion : {"bic", "icl", "expected_bic", "elbow"}
        By which the best is taken.
    retries, timeout, on_error, progress
        Of :meth:`DistributedMoERegressor.fit_shards`. With ``on_error="skip"`` only shards that
        answer count.

    Returns
    -------
    Selection
        To use what it chose, fit the shards with that number: local models with more experts than
        they need are less certain.

    Examples
    --------
    >>> from otmoe import select_over_shards, shards_from, simulate
    >>> data = simulate(4000, 2, 2, random_state=0)
    >>> shards = shards_from((data.X, data.y), cut=4)
    >>> found = select_over_shards(shards, range(1, 4))
    >>> found.n_experts, found.best("elbow").n_experts
    (2, 2)
    """
    numbers, shards = _numbers(n_experts), list(shards)
    if check_criterion(criterion) == "elbow":
        _check_elbow(numbers)
    est = DistributedMoERegressor(random_state=0) if estimator is None else clone(estimator)
    rounds, method = est.refine, est.method
    if method == "em":  # ends at the maximum, as refine rounds do
        rounds, method = "auto", "reduction"
    est.set_params(n_experts=max(numbers), method=method, refine=0)
    with kept(est._workers(len(shards), retries, timeout)) as workers:
        est.set_params(executor=workers.executor)
        return _compared(est, shards, numbers, criterion, rounds, workers, on_error, progress)


def _compared(
    est: Any,
    shards: list[Shard],
    numbers: list[int],
    criterion: str,
    rounds: Any,
    workers: Workers,
    on_error: Literal["raise", "skip"],
    progress: Progress | None,
) -> Selection:
    """Fit shards with the largest number of experts, merge to the others, ask how good they are."""
    method = est.method
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # that there are too many experts
        est.fit_shards(
            shards,
            retries=workers.retries,
            timeout=workers.timeout,
            on_error=on_error,
            progress=progress,
        )
    largest: Aggregation = est.aggregation_
    found = _merged(
        largest.messages, largest.support, numbers, method, None, est.random_state, est.n_jobs
    )
    left_out = [
        Warn.SHARD_LEFT_OUT(sites=(name,), name=name, why=str(why))
        for name, why in largest.left_out.items()
    ]
    failed = [Warn.SHARD_FAILED(sites=(f.name,), name=f.name, cause=f.cause) for f in est.failures_]
    skipped = [notice for notice in est.warnings_ if notice.code == Warn.EMPTY_SHARDS.code]
    remarks = (*failed, *skipped, *left_out, *found.remarks)
    found = replace(found, criterion=criterion, remarks=remarks)
    if criterion in ("elbow", "expected_bic"):
        return found

    # What is asked about: the merged models, and where their refine rounds have led.
    fitted = {message.site for message in est.local_models_}
    shards = [shard for shard in shards if shard.name in fitted]
    asked = found
    if rounds:
        scaling = Scaling.of(largest.support)
        ridge = Ridge.of(largest.model.experts, est.alpha, est.expert_alpha)
        rest: dict[str, Any] = {"workers": workers, "ridge": ridge, "on_error": on_error}

        def refined(candidate: Candidate) -> Candidate:
            begin = perf_counter()
            state = refine_shards(shards, candidate.model, rounds, scaling=scaling, **rest)
            seconds = candidate.seconds + perf_counter() - begin
            return replace(
                candidate, model=state.model, estimator=estimator_of(state.model), seconds=seconds
            )

        more = tuple(map(refined, found.candidates))
        asked = replace(found, candidates=found.candidates + more)
    models = tuple(c.model for c in asked.candidates)
    target = Target.of(models[0])
    tasks = [ScoreTask(shard, models, target) for shard in shards]
    names = [shard.name for shard in shards]
    answers, failures = gather(score_local, tasks, names, workers)
    answered = {name: a for name, a in zip(names, answers, strict=True) if a is not None}
    if failures and (on_error == "raise" or not answered):
        raise TasksFailed(failures)
    best: dict[int, Candidate] = {}
    for c in asked.scored(answered).candidates:  # the last step of a refine round may lead astray
        if c.n_experts not in best or c.log_likelihood > best[c.n_experts].log_likelihood:
            best[c.n_experts] = c
    return Selection(tuple(best.values()), criterion, remarks)


def select_from_messages(
    messages: Iterable[LocalModel],
    support: Any = None,
    n_experts: Iterable[int] = range(1, 7),
    *,
    method: str = "kl",
    criterion: str = "expected_bic",
    site_weight: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> Selection:
    """Merge local models to several numbers of experts, and compare what comes of it.

    Nothing but the messages is needed. The sites should have fitted at least as many experts as
    the largest number that is likely.

    Parameters
    ----------
    messages : iterable of LocalModel
    support, site_weight, n_jobs
        As in :func:`otmoe.aggregate`.
    n_experts : iterable of int
        Numbers to try; three or more for the elbow, which is never at either end of them.
    method : str
        As in :func:`otmoe.aggregate`; "auto" is "kl" here, since one expert is a number of its own.
    criterion : {"expected_bic", "elbow"}
        "expected_bic" is BIC with the likelihood that the sites' own models expect of each merged
        one (maths 17); "elbow" is where the fall of log R_c slows down most (maths 16).
    random_state : int, Generator or None

    Returns
    -------
    Selection
        With more to come: :func:`candidate_scores` at every site, then :meth:`Selection.scored`,
        for the choice by BIC.

    Examples
    --------
    >>> from otmoe import MoERegressor, candidate_scores, select_from_messages, simulate
    >>> data = simulate(4000, 2, 2, random_state=0)
    >>> halves = {"lyon": slice(0, 2000), "nantes": slice(2000, None)}
    >>> messages = [
    ...     MoERegressor(3, max_iter=50, random_state=0).fit(data.X[s], data.y[s]).to_message(name)
    ...     for name, s in halves.items()
    ... ]
    >>> found = select_from_messages(messages, data.X[:500], [1, 2, 3])
    >>> found.n_experts
    2
    >>> models = [candidate.model for candidate in found.candidates]
    >>> answers = {n: candidate_scores(models, data.X[s], data.y[s]) for n, s in halves.items()}
    >>> found.scored(answers).n_experts
    2
    """
    if criterion not in ("expected_bic", "elbow"):
        choices = ["elbow", "expected_bic"]
        raise InvalidInput(Error.NOT_ONE_OF, name="criterion", value=criterion, choices=choices)
    numbers = _numbers(n_experts)
    if criterion == "elbow":
        _check_elbow(numbers)
    found = _merged(tuple(messages), support, numbers, method, site_weight, random_state, n_jobs)
    return replace(found, criterion=criterion)


def _merged(
    messages: tuple[LocalModel, ...], support: Any, numbers: list[int], *how: Any
) -> Selection:
    """Merge local models to each number of experts."""
    found = merged_to(messages, support, numbers, *how)
    return Selection(found, "elbow", _thin(messages))


# -- parts -------------------------------------------------------------------------------------


def _thin(messages: Iterable[LocalModel]) -> tuple[Notice, ...]:
    """Say whether local fits have too few rows for so many experts."""
    ratio = float(np.median([m.n_samples / m.model.n_parameters for m in messages]))
    if ratio >= ROWS_PER_PARAMETER:
        return ()
    return (Warn.THIN_SITES(ratio=ratio, wanted=ROWS_PER_PARAMETER),)


def _check_elbow(numbers: list[int]) -> None:
    if len(numbers) < 3:
        raise InvalidInput(Error.ELBOW_TOO_FEW, numbers=numbers)


def _numbers(n_experts: Iterable[int]) -> list[int]:
    """Return the numbers to try, sorted."""
    if isinstance(n_experts, int):
        raise InvalidType(Error.ONE_NUMBER, value=n_experts)
    numbers = sorted(set(n_experts))
    for K in numbers:
        check_whole("n_experts", K)
    if not numbers:
        raise InvalidInput(Error.NO_NUMBERS)
    return numbers
