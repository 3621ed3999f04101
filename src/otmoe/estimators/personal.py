"""Personal models: fitted along with the common one, and for a new site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from otmoe.arrays.numerics import Array, to_numpy
from otmoe.data.shards import Shard
from otmoe.distributed.personal import PersonalModels, personal_shards
from otmoe.estimators.fitted import FittedMoE
from otmoe.inference.between import Between
from otmoe.likelihood.forecast import Forecast
from otmoe.likelihood.grouped import as_labels
from otmoe.likelihood.prior import fit_with_prior
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.text.arguments import check_offset, check_weight
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error
from otmoe.workers.gather import Workers


class PersonalMoE(FittedMoE):
    """An estimator with sites: how they differ, and a personal model for each of them.

    Attributes
    ----------
    between_ : Between
        How sites differ.
    personal_ : dict
        A fitted estimator for every site.
    forecasts_ : dict of Forecast
        How well the site's own, the common and the personal model predict held-out rows of the
        site, and which is best.
    stacked_ : dict
        An estimator for every site, for predictions only: the mixture of the three models that
        predicts those rows of the site best.
    """

    between_: Between
    personal_: Mapping[str, FittedMoE]
    forecasts_: Mapping[str, Forecast]
    stacked_: Mapping[str, FittedMoE]

    def _fit_personal(
        self,
        shards: Sequence[Shard],
        model: MoE,
        own: Mapping[str, MoE],
        support: Any,
        target: Target,
        groups: str | None,
        workers: Workers,
    ) -> tuple[Notice, ...]:
        """Fit a model for every site and return what the user should know about it."""
        found: PersonalModels = personal_shards(
            shards,
            model,
            scaling=Scaling.of(support),
            target=target,
            ridge=Ridge.of(model.experts, self.alpha, self.expert_alpha),
            restrict=self.personal,
            groups=groups,
            own=own,
            workers=workers,
        )
        self.between_ = found.between
        self.forecasts_ = dict(found.forecasts)
        self.personal_ = {site: self._around(fit.model) for site, fit in found.fits.items()}
        self.stacked_ = {site: self._around(found.stacked(site)) for site in found.fits}
        return found.between.warnings

    def _around(self, model: MoE) -> FittedMoE:
        """Return a fitted estimator around the model of one site."""
        known = replace(model, feature_names=self.model_.feature_names, classes=self.model_.classes)
        return self._one_site.from_model(known)

    def _of_site(self, site: str) -> FittedMoE:
        """Return the estimator of a site."""
        check_is_fitted(self)
        if not hasattr(self, "personal_"):
            raise InvalidInput(Error.NOT_PERSONAL)
        if site not in self.personal_:
            raise InvalidInput(Error.SITE_UNKNOWN, site=site, sites=list(self.personal_))
        return self.personal_[site]

    def _by_site(self, method: str, X: Any, site: Any, offset: Any = None) -> Array:
        """Return what the estimators of the sites say about their rows."""
        self._check_offset_given(offset)
        if isinstance(site, str):
            return self._said(self._of_site(site), method, X, offset)
        rows = self._check_rows(X)
        labels = as_labels(site, rows.shape[0])
        rows, known = to_numpy(rows), None if offset is None else to_numpy(offset)
        found: Any = None
        for name in np.unique(labels):
            some = np.flatnonzero(labels == name)
            there = self._of_site(str(name))
            names = getattr(there, "feature_names_in_", None)
            if names is not None:  # the rows were checked; only their names are gone
                there = self._one_site.from_model(replace(there.model_, feature_names=None))
            part = self._said(there, method, rows[some], None if known is None else known[some])
            if found is None:
                found = np.empty((len(labels), *part.shape[1:]), part.dtype)
            found[some] = part
        return found

    @staticmethod
    def _said(estimator: FittedMoE, method: str, X: Any, offset: Any) -> Array:
        call = getattr(estimator, method)
        found: Array = call(X) if offset is None else call(X, offset=offset)
        return found

    def personalise(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        restrict: str = "auto",
    ) -> FittedMoE:
        """Return an estimator for a new site, shrunk towards the mean of the others.

        With few rows it is close to the mean over sites; with many rows it approaches the site's
        own fit (maths 18). The rows are not sent anywhere.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows of the site.
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.
        restrict : {"auto", "gate", "intercepts"}
            What may differ from the other sites.

        Returns
        -------
        MoERegressor or MoEClassifier
            Fitted.
        """
        check_is_fitted(self)
        if not hasattr(self, "between_"):
            raise InvalidInput(Error.NOT_PERSONAL)
        X = self._check_rows(X)
        y = self._check_target(y, X)
        rows = Rows(X, y, check_weight(sample_weight, X), check_offset(offset, X))
        prior = self.between_.prior_of_new(rows.total_weight)
        fit = fit_with_prior(rows, prior.restricted(restrict))
        return self._around(fit.model)
