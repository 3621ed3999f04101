# Long because fitting shards, in memory or elsewhere, has many arguments to hand on.
"""What estimators that fit shards and merge the local models share."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from otmoe.aggregation import Aggregation
from otmoe.arrays.numerics import Array, to_numpy
from otmoe.data.identifiers import ids_among
from otmoe.data.shards import RowsShard, Shard, grouped_by, split
from otmoe.data.shards.memory import checked, numbered
from otmoe.distributed.arguments import METHODS_OF_SHARDS
from otmoe.distributed.fit import fit_shards
from otmoe.distributed.passes import inference_shards
from otmoe.distributed.result import DistributedFit
from otmoe.documents.message import LocalModel
from otmoe.estimators.base import BaseMoE, FitWarning
from otmoe.estimators.personal import PersonalMoE
from otmoe.inference import Inference, Kind
from otmoe.likelihood.grouped import as_labels
from otmoe.likelihood.prior import check_restriction
from otmoe.likelihood.sharing import group_codes
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.structure import Structure
from otmoe.model.target import Target
from otmoe.text.arguments import check_offset, check_weight, check_whole, generator
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.notices import Notice
from otmoe.text.progress import fit_progress
from otmoe.text.sentences import Error, Warn
from otmoe.workers.gather import Progress, Workers, kept
from otmoe.workers.pools import local_workers


class DistributedMoE(PersonalMoE, BaseMoE):
    """Split the rows, fit each shard, merge the local models."""

    _sites: Any = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_shards", "n_support"):
            check_whole(name, getattr(self, name))
        if self.method not in METHODS_OF_SHARDS:
            raise InvalidInput(
                Error.NOT_ONE_OF,
                name="method",
                value=self.method,
                choices=sorted(METHODS_OF_SHARDS),
            )
        if self.personal is not None:
            check_restriction(self.personal, "personal")
            if self.expert_per == "group":
                raise InvalidInput(Error.PERSONAL_SHARED)

    def _check_groups(self, groups: Any) -> None:
        if self.expert_per == "group" or self.personal is None:  # else personal models use them
            super()._check_groups(groups)

    def _structure(self, target: Target) -> Structure | None:
        found = super()._structure(target)
        if found is not None and self.personal is not None:
            raise InvalidInput(Error.PERSONAL_STRUCTURE)
        return found

    def __sklearn_clone__(self) -> Self:
        # An executor cannot be copied: clones share it.
        executor = self.executor
        parameters = self.get_params(deep=False) | {"executor": None}
        copy = type(self)(**{name: clone(v, safe=False) for name, v in parameters.items()})
        return copy.set_params(executor=executor)

    def __getstate__(self) -> dict[str, Any]:
        # Nor can it be saved: it stays behind.
        return {**super().__getstate__(), "executor": None}

    def _fit(
        self,
        X: Array,
        y: Array,
        sample_weight: Any,
        offset: Any,
        target: Target,
        groups: Any = None,
    ) -> Self:
        self._check_groups(groups)
        columns, structure = self._gate_columns(), self._structure(target)
        weight, offset = check_weight(sample_weight, X), check_offset(offset, X)
        self._with_offset = offset is not None
        n_rows = self._check_enough(X, weight)
        rng = generator(self.random_state)
        p = X.shape[1] + 1
        blank = MoE(
            SoftmaxGate.blank(self.n_experts, p, columns),
            target.blank(self.n_experts, p),
            structure=structure,
        )
        rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(to_numpy(weight) > 0)
        people = None if groups is None else as_labels(groups, X.shape[0])
        codes = None
        if self.expert_per == "group" and people is not None:
            codes = group_codes(people[rows])
        if self._sites is None:
            parts = split(n_rows, self.n_shards, blank.n_free, rng, codes)
            names = numbered(len(parts))
        else:
            labels = as_labels(self._sites, X.shape[0])[rows]
            known = np.unique(labels)
            parts = [np.flatnonzero(labels == label) for label in known]
            names = [checked(str(label)) for label in known]
        shards = [
            RowsShard(name, X, y, weight, offset, rows[part], people)
            for name, part in zip(names, parts, strict=True)
        ]
        alone = shards if codes is not None else [replace(shard, groups=None) for shard in shards]
        with kept(self._workers(len(shards))) as workers:
            fit = self._fit_all(alone, target, columns, rng, workers)
            fit, said = self._personal_of(shards, fit, target, workers)
        trouble = [*self._shared_ids, *said]
        if self._sites is None and len(shards) < self.n_shards:
            trouble.append(Warn.FEWER_SHARDS(shards=len(shards), wanted=self.n_shards))
        self._keep_distributed(fit, trouble, stacklevel=5)
        return self

    def _fit_all(
        self,
        shards: Sequence[Shard],
        target: Target,
        columns: tuple[int, ...] | None,
        rng: np.random.Generator,
        workers: Workers,
        progress: Progress | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        keep_fits: str | os.PathLike[str] | None = None,
    ) -> DistributedFit:
        """Fit the shards and merge the local models."""
        names = getattr(self, "feature_names_in_", None)
        with fit_progress(self.verbose > 0, {"shards": len(shards)}, left=True) as report:
            return fit_shards(
                shards,
                self.n_experts,
                target=target,
                method=self.method,
                refine=self.refine or ("auto" if self.personal and self.method != "em" else 0),
                site_weight=self.site_weight,
                feature_names=None if names is None else tuple(map(str, names)),
                n_support=self.n_support,
                options={
                    "gate_columns": columns,
                    "structure": self._structure(target),
                    "alpha": self.alpha,
                    "expert_alpha": self.expert_alpha,
                    "n_init": self.n_init,
                    "max_iter": self.max_iter,
                    "tol": self.tol,
                },
                workers=workers,
                on_error=on_error,
                random_state=rng,
                n_jobs=self.n_jobs,
                progress=progress
                or (report and (lambda done, total, name: report("shards", done, np.nan))),
                keep_fits=keep_fits,
            )

    def _personal_of(
        self,
        shards: Sequence[Shard],
        fit: DistributedFit,
        target: Target,
        workers: Workers,
        groups: str | None = None,
    ) -> tuple[DistributedFit, tuple[Notice, ...]]:
        """Fit models of single shards, if they are asked for, and say what one should know."""
        for name in ("between_", "forecasts_", "personal_", "stacked_"):
            if hasattr(self, name):
                delattr(self, name)
        if self.personal is None:
            return fit, ()
        self.model_ = fit.aggregation.model
        own = {local.site: local.model for local in fit.local_models}
        kept = [shard for shard in shards if shard.name in own]
        support = fit.aggregation.support
        begin = perf_counter()
        said = self._fit_personal(kept, self.model_, own, support, target, groups, workers)
        seconds = perf_counter() - begin
        laps = {**fit.timings, "personal": seconds, "total": fit.timings["total"] + seconds}
        return replace(fit, timings=laps), said

    def _workers(self, n_shards: int, retries: int = 2, timeout: float | None = None) -> Workers:
        """Return what runs the local fits."""
        n_workers = min(effective_n_jobs(self.n_jobs), n_shards)
        own = self.executor is None and n_workers > 1
        return Workers(local_workers(n_workers) if own else self.executor, retries, timeout)

    def fit_shards(
        self,
        shards: Any,
        *,
        retries: int = 2,
        timeout: float | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        progress: Progress | None = None,
        groups: str | None = None,
        keep_fits: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit rows that are elsewhere: every shard is read and fitted by a worker.

        The rows are not collected here: a worker sends its local model, and some rows of X as
        support points.

        Parameters
        ----------
        shards : sequence of Shard
            From :func:`otmoe.shards_from`.
        retries : int
            Retries for a shard whose worker died or whose file could not be reached.
        timeout : float, optional
            Give up the running shards if none finishes within this many seconds.
        on_error : {"raise", "skip"}
            Raise an error that names the shards that failed and why, or continue without them and
            name them in `failures_`.
        progress : callable, optional
            Called as progress(shards done, total number of shards, name of the last one).
        groups : str, optional
            Column with the label of the group of each row. For `personal`: of rows that are not
            independent, such as those of an hour; or the time, if rows are in the order of time.
            For ``expert_per="group"``: of rows that share their expert; a group lies in one shard.
        keep_fits : path, optional
            Folder in which to keep the local fits. A second call, with the same options and integer
            `random_state`, fits only shards that are missing there or whose rows have changed.

        Returns
        -------
        self
        """
        fit, said = self._fit_elsewhere(
            shards, retries, timeout, on_error, progress, groups, keep_fits
        )
        self._keep_distributed(fit, said, stacklevel=3)
        return self

    def _fit_elsewhere(
        self,
        shards: Iterable[Shard],
        retries: int,
        timeout: float | None,
        on_error: Literal["raise", "skip"],
        progress: Progress | None,
        groups: str | None = None,
        keep_fits: str | os.PathLike[str] | None = None,
    ) -> tuple[DistributedFit, list[Notice]]:
        """Return what :meth:`fit_shards` stores, and what one should know about it."""
        self._check_parameters()
        shards = list(shards)
        if not shards:
            raise InvalidInput(Error.NO_SHARDS)
        self._names_from(shards[0])
        self._with_offset = any(getattr(s, "offset", None) is not None for s in shards)
        if self.expert_per == "group":
            self._check_groups(groups)
            shards = [grouped_by(shard, str(groups)) for shard in shards]
        with kept(self._workers(len(shards), retries, timeout)) as workers:
            target = self._target_of(shards, workers, on_error)
            columns, rng = self._gate_columns(), generator(self.random_state)
            fit = self._fit_all(
                shards, target, columns, rng, workers, progress, on_error, keep_fits
            )
            fit, said = self._personal_of(shards, fit, target, workers, groups)
        return fit, [*ids_among(shards[0].features), *said]

    def inference_shards(
        self,
        shards: Any,
        *,
        kind: Kind | None = None,
        groups: str | None = None,
        retries: int = 2,
        timeout: float | None = None,
    ) -> Inference:
        """Return standard errors, tests and intervals from rows that are elsewhere.

        Two passes over the rows, three for a sandwich; no rows are moved. A model that is not at
        the maximum of their likelihood is refused: fit with `refine` or ``method="em"``.

        Parameters
        ----------
        shards : sequence of Shard
            Those that were fitted.
        kind : {"information", "sandwich", "clustered"}, optional
            As in :meth:`inference`.
        groups : str, optional
            Column with the label of the group that each row belongs to, as text or whole numbers; a
            group may have rows in several shards. Every shard sends the labels that occur in it,
            with a sum of scores for each.
        retries, timeout
            As in :meth:`fit_shards`.

        Returns
        -------
        Inference
        """
        check_is_fitted(self)
        shards = list(shards)
        with kept(self._workers(len(shards), retries, timeout)) as workers:
            found = inference_shards(
                shards,
                self.model_,
                ridge=Ridge.of(self.model_.experts, self.alpha, self.expert_alpha),
                kind=kind,
                groups=groups,
                workers=workers,
            )
        return self._in_terms(found)

    def _known_inference(self) -> Inference:
        return self.aggregation_.inference()

    def _names_from(self, shard: Shard) -> None:
        """Take number and names of the features from a shard."""
        for name in ("feature_names_in_", "n_features_in_", "features_"):
            if hasattr(self, name):
                delattr(self, name)
        if shard.features is not None:
            self.features_ = shard.features
            self.feature_names_in_ = np.array(shard.features.feature_names, dtype=object)
            self.n_features_in_ = len(self.feature_names_in_)
        else:
            self.n_features_in_ = int(shard.read().X.shape[1])

    @abstractmethod
    def _target_of(
        self, shards: Sequence[Shard], workers: Workers, on_error: Literal["raise", "skip"]
    ) -> Target:
        """Return what y is in the shards."""

    def _keep_distributed(
        self, fit: DistributedFit, trouble: list[Notice], *, stacklevel: int
    ) -> None:
        """Store what was fitted and say, in one warning, what the user should know about it."""
        aggregation = fit.aggregation
        self.aggregation_: Aggregation = aggregation
        self.local_models_: tuple[LocalModel, ...] = fit.local_models
        self.n_shards_ = len(fit.local_models)
        self.failures_ = fit.failures
        self.refitted_, self.reused_ = fit.refitted, fit.reused
        self.timings_ = dict(fit.timings)
        self.n_rows_, self.dropped_ = fit.n_rows, fit.dropped
        self.agreement_ = fit.agreement
        self.model_ = aggregation.model
        self.n_iter_ = max(len(aggregation.trace) - 1, 1)
        self.converged_ = aggregation.converged and all(m.converged for m in fit.local_models)
        known = {Warn.SUPPORT_SHORT.code}
        if self.personal is not None:  # which is the answer to it
            known.add(Warn.SITES_DIFFER.code)
        found = [w for w in aggregation.warnings if w.code not in known]
        found += [*trouble, *fit.notices()]
        self.warnings_ = tuple(found)
        if found:
            warnings.warn(FitWarning(type(self).__name__, found), stacklevel=stacklevel)

    def to_message(self, site: str, *args: Any, **kwargs: Any) -> LocalModel:
        """Refuse: a merged model is not a local one."""
        raise InvalidType(Error.MERGED_NOT_LOCAL)
