"""Mixtures of regressions fitted to shards of the rows and merged into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from otmoe.aggregation.support import N_SUPPORT
from otmoe.arrays.numerics import Array
from otmoe.data.shards import Shard
from otmoe.estimators.regressor import MoERegressor
from otmoe.estimators.shards import DistributedMoE
from otmoe.likelihood.fit import MAX_ITER, TOL
from otmoe.model.mixture import ExpertPer
from otmoe.model.target import Target
from otmoe.workers.gather import Workers


class DistributedMoERegressor(DistributedMoE, MoERegressor):
    """Mixture of regressions fitted to shards of the rows and merged into one model.

    The rows are split at random, each shard is fitted separately, from a start found by a search on
    rows of many shards, and the local models are merged by :func:`otmoe.aggregate`. A shard that
    ended in a bad local optimum is refitted, and left out if that does not help.

    Use it for rows that are elsewhere (:meth:`fit_shards`), or for so many that parallel processes
    pay off. For rows in memory and one process, :class:`MoERegressor` is the better choice: it is
    faster, by a factor of two to seven where its search is short, and finds the maximum of the
    likelihood itself.

    Parameters
    ----------
    n_experts : int, default=2
        Number of experts, K.
    n_shards : int, default=16
        Number of shards, M; fewer if there are few rows.
    method : str, default="auto"
        How local models are merged; see :func:`otmoe.aggregate`. "em" continues from the reduction
        by EM over all rows, one pass per iteration, to the fit of pooled rows.
    refine : int or "auto", default=0
        Refine rounds, each one pass over the rows, towards the maximum-likelihood estimate from all
        rows; "auto" for as many as needed.
    personal : {"auto", "gate", "intercepts"}, optional
        Whether to fit a personal model for every shard or site too, shrunk towards the mean of all,
        and what may differ: everything, the gate, or only the intercepts. The common model is then
        refined to the maximum first.
    site_weight : sequence or mapping of float, or "covariate", optional
        Weights of the shards in merging; see :func:`otmoe.aggregate`.
    n_support : int
        Rows of X at which local models are compared.
    executor : concurrent.futures.Executor or callable, optional
        Runs the local fits: an executor, or a function without arguments that makes one, so that
        one whose worker died can be replaced. By default `n_jobs` processes, or this one if that is
        1. Clones share it; saved estimators do not include it.
    family, gate_features, expert_features, common, common_variance : object
        As in :class:`MoERegressor`.
    zero_expert : bool, default=False
        Whether the last expert is always 0, as in :class:`MoERegressor`.
    expert_per : {"row", "group"}, default="row"
        Whether every row has an expert of its own, or all rows of a group share one, as in
        :class:`MoERegressor`. Groups lie in one shard each.
    alpha, expert_alpha, n_init, max_iter, tol, random_state, verbose
        As in :class:`MoERegressor`.
    n_jobs : int, optional
        Processes for the local fits and threads for the aggregation; None means 1, -1 all cores.

    Attributes
    ----------
    model_ : MoE
        The merged model; experts ordered by mass, largest first.
    local_models_ : tuple of LocalModel
    aggregation_ : Aggregation
        How the local models were merged, and the part of each.
    between_ : Between
        How sites differ, with `personal`.
    personal_ : dict
        With `personal`, a fitted estimator for every site.
    forecasts_ : dict of Forecast
        With `personal`: how well the site's own, the common and the personal model predict rows of
        the site that they have not seen, and which of them is best.
    stacked_ : dict
        With `personal`, an estimator for every site, for predictions only: the mixture of the three
        models that predicts those rows best.
    timings_ : dict
        Seconds on the clock: `search`, `fits`, `aggregation`, `refine`, `personal`, and `total`.
    agreement_ : Agreement or None
        How sure the search on rows of many shards is of its maximum.
    refitted_ : tuple of str
        Shards that stood out and were fitted again with more starts.
    reused_ : tuple of str
        Shards whose fits `keep_fits` had from an earlier run.
    failures_ : tuple of Failure
        Shards that could not be fitted, and why (after `fit_shards` with ``on_error="skip"``).
    features_ : FeatureSpec
        How columns became features, where the shards know it.
    n_rows_, dropped_ : int
        Rows fitted, and rows left out because a value is missing.
    warnings_ : tuple of Notice
        What one should know about the fit.
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

    _one_site = MoERegressor

    def __init__(
        self,
        n_experts: int = 2,
        *,
        n_shards: int = 16,
        method: str = "auto",
        refine: int | str = 0,
        personal: str | None = None,
        site_weight: Any = None,
        n_support: int = N_SUPPORT,
        executor: Any = None,
        family: str | Sequence[str] = "gaussian",
        gate_features: Any = None,
        expert_features: Any = None,
        common: Any = None,
        common_variance: bool = False,
        zero_expert: bool = False,
        expert_per: ExpertPer = "row",
        alpha: float | None = None,
        expert_alpha: float | None = None,
        n_init: int | None = None,
        max_iter: int = MAX_ITER,
        tol: float = TOL,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_experts = n_experts
        self.n_shards = n_shards
        self.method = method
        self.refine = refine
        self.personal = personal
        self.site_weight = site_weight
        self.n_support = n_support
        self.executor = executor
        self.family = family
        self.gate_features = gate_features
        self.expert_features = expert_features
        self.common = common
        self.common_variance = common_variance
        self.zero_expert = zero_expert
        self.expert_per = expert_per
        self.alpha = alpha
        self.expert_alpha = expert_alpha
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        site: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Fit shards of the rows and merge the local models.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features, without a column of ones.
        y : array-like of shape (n,)
            Target.
        sample_weight : array-like of shape (n,), optional
            Case weights: weight 2 counts as the row twice.
        offset : array-like of shape (n,), optional
            Known part of the experts' linear predictors; for counts, the log of the exposure.
        site : array-like of shape (n,), optional
            The site of each row; a site is a shard. By default rows are split at random.
        groups : array-like of shape (n,), optional
            Label of the group of each row, of any hashable kind. With ``expert_per="group"``: of
            rows that share their expert. With `personal`: of rows that are not independent, such as
            those of a day; or the time, if rows are in the order of time.

        Returns
        -------
        self
        """
        self._sites = site
        try:
            return super().fit(X, y, sample_weight, offset, groups=groups)
        finally:
            del self._sites

    def predict(self, X: Any, offset: Any = None, site: Any = None) -> Array:
        """Return the mean of y given x, averaged over experts by the gate.

        Parameters
        ----------
        X : array-like of shape (n, d)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.
        site : str or array-like of shape (n,), optional
            With `personal`: predict with the model of this site, or of the site of each row. By
            default the common model is used.

        Returns
        -------
        ndarray of shape (n,)
        """
        if site is not None:
            return self._by_site("predict", X, site, offset)
        return super().predict(X, offset)

    def _target_of(
        self, shards: Sequence[Shard], workers: Workers, on_error: Literal["raise", "skip"]
    ) -> Target:
        self._check_family()
        responses = getattr(shards[0], "response_names", ())
        return Target(self._family, expert_per=self.expert_per, responses=responses)
