"""How many experts: over shards, from messages (maths 16)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from otmoe.data.shards import Shard, grouped_by
from otmoe.distributed.rounds import refine_shards
from otmoe.documents.message import LocalModel
from otmoe.estimators import DistributedMoERegressor
from otmoe.likelihood.rows import Scaling
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.selection.candidate import Candidate, numbers_to_try
from otmoe.selection.merging import merged_to
from otmoe.selection.result import Selection, check_criterion
from otmoe.selection.scores import ScoreTask, estimator_of, score_local
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn
from otmoe.workers.failures import TasksFailed
from otmoe.workers.gather import Progress, Workers, gather, kept

ROWS_PER_PARAMETER = 10
"""Rows per parameter of the largest local fits below which a remark is made.

`python -m benchmarks constants` counts the remarks at half and at twice of it.
"""


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
    groups: str | None = None,
) -> Selection:
    """Compare numbers of experts on rows that are elsewhere.

    Every shard is fitted once, with the largest number of experts. The local models are merged to
    each number here. For BIC and ICL every shard then returns the log-likelihood of all candidates,
    in one round; the expected BIC and the elbow need no such round.

    Parameters
    ----------
    shards : iterable of Shard
        From :func:`otmoe.shards_from`.
    n_experts : iterable of int
        Numbers to try.
    estimator : DistributedMoERegressor or DistributedMoEClassifier, optional
        How shards are fitted and merged, and where; by default
        ``DistributedMoERegressor(random_state=0)``. Its `refine` rounds are run for every number.
    criterion : {"bic", "icl", "expected_bic", "elbow"}
        By which the best is taken.
    retries, timeout, on_error, progress
        Of :meth:`DistributedMoERegressor.fit_shards`. With ``on_error="skip"`` only shards that
        answer are used.
    groups : str, optional
        For an estimator with ``expert_per="group"``: column with the label of the group of each
        row. Log-likelihoods are then those of groups, BIC counts rows, and "expected_bic" is
        refused, since it compares densities of single rows.

    Returns
    -------
    Selection
        Afterwards, fit the shards with the number chosen: local models with more experts than
        needed are less precise.

    Examples
    --------
    >>> from otmoe import select_over_shards, shards_from, simulate
    >>> data = simulate(4000, 2, 2, random_state=0)
    >>> shards = shards_from((data.X, data.y), cut=4)
    >>> found = select_over_shards(shards, range(1, 4))
    >>> found.n_experts, found.best("elbow").n_experts
    (2, 2)
    """
    numbers, shards = numbers_to_try(n_experts), list(shards)
    if check_criterion(criterion) == "elbow":
        _check_elbow(numbers)
    if criterion == "cv":
        raise InvalidInput(Error.NOT_CROSS_VALIDATED, criterion=criterion)
    est = DistributedMoERegressor(random_state=0) if estimator is None else clone(estimator)
    rounds, method = est.refine, est.method
    if method == "em":  # ends at the maximum, as refine rounds do
        rounds, method = "auto", "reduction"
    est.set_params(n_experts=max(numbers), method=method, refine=0)
    est._check_groups(groups)
    if est.expert_per == "group":
        _check_of_rows(criterion)
        shards = [grouped_by(shard, str(groups)) for shard in shards]
    with kept(est._workers(len(shards), retries, timeout)) as workers:
        est.set_params(executor=workers.executor)
        return _compared(
            est, shards, numbers, criterion, rounds, workers, on_error, progress, groups
        )


def _compared(
    est: Any,
    shards: list[Shard],
    numbers: list[int],
    criterion: str,
    rounds: Any,
    workers: Workers,
    on_error: Literal["raise", "skip"],
    progress: Progress | None,
    groups: str | None,
) -> Selection:
    """Fit shards with the largest number of experts, merge to the others, ask how good they are."""
    fit, _ = est._fit_elsewhere(
        shards, workers.retries, workers.timeout, on_error, progress, groups
    )
    largest = fit.aggregation
    how = est.method, None, est.random_state, est.n_jobs
    # each shard at its own covariates, as in the fit
    found = _merged(largest.messages, fit.support, numbers, *how)
    left_out = [
        Warn.SHARD_LEFT_OUT(sites=(name,), name=name, why=str(why))
        for name, why in largest.left_out.items()
    ]
    failed = [Warn.SHARD_FAILED(sites=(f.name,), name=f.name, cause=f.cause) for f in fit.failures]
    skipped = [notice for notice in fit.notices() if notice.code == Warn.EMPTY_SHARDS.code]
    remarks = (*failed, *skipped, *left_out, *found.remarks)
    found = replace(found, criterion=criterion, remarks=remarks)
    if criterion in ("elbow", "expected_bic"):
        return found

    # What is asked about: the merged models, and where their refine rounds have led.
    fitted = {message.site for message in fit.local_models}
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
    method: str = "auto",
    criterion: str = "expected_bic",
    site_weight: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> Selection:
    """Merge local models to several numbers of experts, and compare the results.

    Only the messages are needed. The sites should have fitted at least as many experts as could be
    needed.

    Parameters
    ----------
    messages : iterable of LocalModel
    support, site_weight, n_jobs
        As in :func:`otmoe.aggregate`.
    n_experts : iterable of int
        Numbers to try; three or more for the elbow, which is never at either end of them.
    method : str
        As in :func:`otmoe.aggregate`; "auto" is "kl" here, since one expert is a number of its own
        (unless rows of a group share their expert, for which there is no "kl").
    criterion : {"expected_bic", "elbow"}
        "expected_bic" is BIC with the log-likelihood of each merged model that the sites' own
        models expect (maths 17); "elbow" is where the decrease of log R_c slows down most (maths
        16), the only criterion if rows of a group share their expert.
    random_state : int, Generator or None

    Returns
    -------
    Selection
        To choose by BIC, run :func:`candidate_scores` at every site, then :meth:`Selection.scored`.

    Examples
    --------
    >>> from otmoe import MoERegressor, candidate_scores, select_from_messages, simulate
    >>> data = simulate(4000, 2, 2, random_state=0)
    >>> halves = {"lyon": slice(0, 2000), "nantes": slice(2000, None)}
    >>> messages = [
    ...     MoERegressor(3, max_iter=50, random_state=1).fit(data.X[s], data.y[s]).to_message(name)
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
    numbers = numbers_to_try(n_experts)
    if criterion == "elbow":
        _check_elbow(numbers)
    messages = tuple(messages)
    if any(message.model.expert_per == "group" for message in messages):
        _check_of_rows(criterion)
    found = _merged(messages, support, numbers, method, site_weight, random_state, n_jobs)
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


def _check_of_rows(criterion: str) -> None:
    """Refuse a criterion that compares densities of single rows, where groups share an expert."""
    if criterion == "expected_bic":
        raise InvalidInput(Error.EXPECTED_BIC_OF_GROUPS)
