"""Mixtures of experts fitted to shards of the rows and merged into one."""

from __future__ import annotations

import warnings
from concurrent.futures import Executor
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from otmoe.aggregation import METHODS, Aggregation
from otmoe.distributed import DistributedFit, Task, fit_tasks, split
from otmoe.em import ALPHA, MAX_ITER, TOL
from otmoe.estimators.base import BaseMoE
from otmoe.estimators.classifier import MoEClassifier
from otmoe.estimators.regressor import MoERegressor
from otmoe.experts import FAMILIES
from otmoe.gate import SoftmaxGate
from otmoe.message import LocalModel
from otmoe.model import MoE
from otmoe.numerics import Array, namespace, to_numpy
from otmoe.progress import fit_progress
from otmoe.starts import NOT_TELLING, TELLING
from otmoe.support import N_POINTS, draw_support
from otmoe.validation import check_offset, check_weight, generator


class DistributedMoE(BaseMoE):
    """Split the rows, fit each shard, merge the local models."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_shards", "n_support"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of at least 1.")
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; choose one of {sorted(METHODS)}.")

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
        self, X: Array, y: Array, sample_weight: Any, offset: Any, family: str, n_classes: int = 2
    ) -> Self:
        columns = self._gate_columns()
        weight, offset = check_weight(sample_weight, X), check_offset(offset, X)
        n_rows = self._check_enough(X, weight)
        rng = generator(self.random_state)

        # 1) the shards: rows of positive weight, at random
        p = X.shape[1] + 1
        blank = MoE(
            SoftmaxGate.blank(self.n_experts, p, columns),
            FAMILIES[family].blank(self.n_experts, p, n_classes),
        )
        rows = np.arange(X.shape[0]) if weight is None else np.flatnonzero(to_numpy(weight) > 0)
        shards = [rows[part] for part in split(n_rows, self.n_shards, blank.n_parameters, rng)]
        names = getattr(self, "feature_names_in_", None)
        options = {
            "family": family,
            "gate_columns": columns,
            "alpha": self.alpha,
            "n_init": self.n_init,
            "max_iter": self.max_iter,
            "tol": self.tol,
            "n_classes": n_classes,
        }
        width = len(str(len(shards)))
        tasks = [
            Task(
                site=f"shard {m + 1:0{width}d}",
                X=_take(X, index),
                y=_take(y, index),
                seed=int(rng.integers(2**31)),
                n_experts=self.n_experts,
                weight=None if weight is None else _take(weight, index),
                offset=None if offset is None else _take(offset, index),
                feature_names=None if names is None else tuple(map(str, names)),
                classes=getattr(self, "classes_", None),
                options=options,
            )
            for m, index in enumerate(shards)
        ]

        # 2) local fits and their aggregation, on support points drawn from all shards
        support = draw_support([_take(X, rows)], max(self.n_support, p), random_state=rng)
        if len(support) < p:  # fewer rows than columns: each several times, which changes nothing
            support = np.tile(support, (-(-p // len(support)), 1))
        with fit_progress(self.verbose > 0, {"shards": len(tasks)}) as report:
            fit = fit_tasks(
                tasks,
                support,
                method=self.method,
                executor=self.executor,
                random_state=rng,
                n_jobs=self.n_jobs,
                progress=report and (lambda done: report("shards", done, np.nan)),
            )
        self._keep_distributed(fit)
        return self

    def _keep_distributed(self, fit: DistributedFit) -> None:
        """Store what was fitted and say, in one warning, what the user should know about it."""
        aggregation = fit.aggregation
        self.aggregation_: Aggregation = aggregation
        self.local_models_: tuple[LocalModel, ...] = fit.local_models
        self.n_shards_ = len(fit.local_models)
        self.refitted_ = fit.refitted
        self.timings_ = fit.timings
        self.model_ = aggregation.model
        self.n_iter_ = max(len(aggregation.trace) - 1, 1)
        self.converged_ = aggregation.converged and all(m.converged for m in fit.local_models)
        trouble = [w for w in aggregation.warnings if not w.startswith("the support has")]
        if self.n_shards_ < self.n_shards:
            trouble.append(
                f"there are rows for {self.n_shards_} of {self.n_shards} shards only: give more "
                "rows or ask for fewer shards, experts or features."
            )
        for name, why in aggregation.left_out.items():
            trouble.append(f"{name} was left out: {why}.")
        stopped = [m.site for m in fit.local_models if not m.converged]
        if stopped:
            trouble.append(f"the fits of {stopped} stopped before convergence: raise max_iter.")
        lacking = {w for m in fit.local_models for w in m.warnings}
        if lacking:
            trouble.append(f"of some shards: {sorted(lacking)[0]}")
        if trouble:
            warnings.warn(
                " ".join(f"{type(self).__name__}: {t}" for t in trouble), ConvergenceWarning, 4
            )

    def to_message(self, site: str) -> LocalModel:
        """Refuse: a merged model is no local one."""
        raise TypeError(
            "a merged model is no local model: send the messages in local_models_, or save the "
            "merged one by otmoe.save_model(est.model_, path)."
        )


class DistributedMoERegressor(DistributedMoE, MoERegressor):
    """Mixture of regressions fitted to shards of the rows and merged into one model.

    The rows are split at random, each shard is fitted by itself as :class:`MoERegressor` does it,
    and the local models are merged by :func:`otmoe.aggregate`. A shard that landed in a bad local
    optimum is fitted again, and left out if that does not help.

    Parameters
    ----------
    n_experts : int, default=2
        Number of experts, K.
    n_shards : int, default=16
        Number of shards, M; fewer are made where rows are few.
    method : str, default="reduction"
        How local models are merged; see :func:`otmoe.aggregate`.
    n_support : int
        Rows of X at which local models are compared.
    executor : concurrent.futures.Executor, optional
        Runs the local fits; by default one after another in this process. Clones share it, saved
        estimators lack it.
    family, gate_features, alpha, n_init, max_iter, tol, random_state, verbose
        As in :class:`MoERegressor`.
    n_jobs : int, optional
        Threads of the aggregation; None means 1, -1 all cores.

    Attributes
    ----------
    model_ : MoE
        The merged model; experts ordered by mass, largest first.
    local_models_ : tuple of LocalModel
    aggregation_ : Aggregation
        How the local models were merged, and the part of each.
    timings_ : dict
        Seconds: `local` (the slowest local fit), `aggregation`, and `learning`, their sum.
    refitted_ : tuple of str
        Shards that stood out and were fitted again with more starts.
    n_shards_ : int
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from otmoe import DistributedMoERegressor, simulate
    >>> data = simulate(4000, 2, 3, random_state=0)
    >>> est = DistributedMoERegressor(2, n_shards=4, random_state=0).fit(data.X, data.y)
    >>> est.model_.aligned_to(data.truth, data.X).experts.coef.round() + 0.0
    array([[ 4., -4., -5.,  4.],
           [-5.,  0., -5., -2.]])
    >>> est.n_shards_
    4
    """

    def __init__(
        self,
        n_experts: int = 2,
        *,
        n_shards: int = 16,
        method: str = "reduction",
        n_support: int = N_POINTS,
        executor: Executor | None = None,
        family: str = "gaussian",
        gate_features: Any = None,
        alpha: float = ALPHA,
        n_init: int = TELLING.n_init,
        max_iter: int = MAX_ITER,
        tol: float = TOL,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_experts = n_experts
        self.n_shards = n_shards
        self.method = method
        self.n_support = n_support
        self.executor = executor
        self.family = family
        self.gate_features = gate_features
        self.alpha = alpha
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose


class DistributedMoEClassifier(DistributedMoE, MoEClassifier):
    """Mixture of classifiers fitted to shards of the rows and merged into one model.

    The rows are split at random, each shard is fitted by itself as :class:`MoEClassifier` does it,
    and the local models are merged by :func:`otmoe.aggregate`. A shard that landed in a bad local
    optimum is fitted again, and left out if that does not help.

    Parameters
    ----------
    n_experts : int, default=2
        Number of experts, K.
    n_shards : int, default=16
        Number of shards, M; fewer are made where rows are few.
    method : str, default="reduction"
        How local models are merged; see :func:`otmoe.aggregate`.
    n_support : int
        Rows of X at which local models are compared.
    executor : concurrent.futures.Executor, optional
        Runs the local fits; by default one after another in this process. Clones share it, saved
        estimators lack it.
    classes, gate_features, alpha, n_init, max_iter, tol, random_state, verbose
        As in :class:`MoEClassifier`.
    n_jobs : int, optional
        Threads of the aggregation; None means 1, -1 all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    model_ : MoE
        The merged model; experts ordered by mass, largest first.
    local_models_ : tuple of LocalModel
    aggregation_ : Aggregation
        How the local models were merged, and the part of each.
    timings_ : dict
        Seconds: `local` (the slowest local fit), `aggregation`, and `learning`, their sum.
    refitted_ : tuple of str
        Shards that stood out and were fitted again with more starts.
    n_shards_ : int
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from otmoe import DistributedMoEClassifier, simulate
    >>> data = simulate(4000, 2, 2, family="logistic", random_state=0)
    >>> est = DistributedMoEClassifier(2, n_shards=4, random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        n_experts: int = 2,
        *,
        n_shards: int = 16,
        method: str = "reduction",
        n_support: int = N_POINTS,
        executor: Executor | None = None,
        classes: Any = None,
        gate_features: Any = None,
        alpha: float = ALPHA,
        n_init: int = NOT_TELLING.n_init,
        max_iter: int = MAX_ITER,
        tol: float = TOL,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_experts = n_experts
        self.n_shards = n_shards
        self.method = method
        self.n_support = n_support
        self.executor = executor
        self.classes = classes
        self.gate_features = gate_features
        self.alpha = alpha
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose


def _take(array: Array, index: Any) -> Array:
    """Return some rows, in the namespace and on the device of the array."""
    if isinstance(array, np.ndarray):
        return array[index]
    xp = namespace(array)
    return xp.take(array, xp.asarray(index, device=getattr(array, "device", None)), axis=0)
