"""Which number of a site's answer is where in the list that is masked (maths 14)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.request import RefineRequest
from otmoe.documents.sketch import symmetric
from otmoe.likelihood.answers import FeatureMoments, SiteInformation
from otmoe.likelihood.grouped import Scatter
from otmoe.likelihood.information import Information
from otmoe.likelihood.predictors import predictors_of

_CONSTANT = 1e-12  # a variance below this share of the mean square is rounding


@dataclass(frozen=True)
class Layout:
    """Where the parts of an answer are in the list of numbers that is masked.

    Attributes
    ----------
    unit : ndarray of shape (P,)
        What each parameter is measured in, so that no unit of y spoils the numbers: powers of two,
        near the standard deviation of the expert for its coefficients.
    center, scale : ndarray of shape (d,)
        Of the features, as in the request.
    n_experts : int
    moments, sandwich : bool
        Whether these are asked for.
    """

    unit: Floats
    center: Floats
    scale: Floats
    n_experts: int
    moments: bool
    sandwich: bool

    @classmethod
    def of(cls, request: RefineRequest) -> Layout:
        """Return the layout of the answers to a request; the same at every site."""
        model, scaling, d = request.model, request.scaling, request.model.n_features
        center = np.zeros(d) if scaling.x_center is None else scaling.x_center
        scale = np.ones(d) if scaling.x_scale is None else scaling.x_scale
        sizes = model.n_experts, request.moments, request.sandwich
        return cls(_units(request), center, scale, *sizes)

    @property
    def sizes(self) -> list[int]:
        """How many numbers each part has; a check is before, between and behind them."""
        P = len(self.unit)
        triangle = P * (P + 1) // 2
        sums = [2, self.n_experts, P, triangle]
        more = [2 * len(self.scale)] if self.moments else []
        return [1, *sums, 1, *more, *([3, triangle] if self.sandwich else []), 1]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(self.sizes)

    @property
    def checks(self) -> Floats:
        """Places at which every site puts 1, so that their sum counts the sites."""
        return np.array([0, sum(self.sizes[:5]), self.size - 1])

    def packed(self, found: SiteInformation) -> Floats:
        """Return the numbers of an answer, (n,); all of them add up over sites."""
        sums, n, one = found.information, found.n_samples, [1.0]
        parts = [one, [n, sums.log_likelihood], sums.mass, sums.score * self.unit]
        parts += [self._triangle(sums.matrix), one]
        if self.moments:
            assert found.moments is not None  # they were asked for
            mean = (found.moments.mean - self.center) / self.scale
            parts.append(n * mean)
            parts.append(n * (found.moments.var / self.scale**2 + mean**2))
        if self.sandwich:
            scatter = found.scatter
            assert scatter is not None  # `masked` sees to it
            parts.append([scatter.n_rows, scatter.n_scores, scatter.n_groups is not None])
            parts.append(self._triangle(scatter.matrix))
        return np.concatenate([np.asarray(part, np.float64) for part in [*parts, one]])

    def unpacked(self, values: Floats, site: str) -> SiteInformation:
        """Return the answer that the sum of such numbers is."""
        parts = iter(np.split(values, np.cumsum(self.sizes)[:-1]))
        next(parts)
        (n, log_likelihood), mass = next(parts), next(parts)
        score, matrix = next(parts) / self.unit, self._matrix(next(parts))
        sums = Information(float(log_likelihood), score, matrix, mass)
        next(parts)
        moments = scatter = None
        if self.moments:
            first, second = np.split(next(parts) / n, 2)
            var = second - first**2
            var = np.where(var > _CONSTANT * second, var, 0.0)
            moments = FeatureMoments(self.center + self.scale * first, self.scale**2 * var)
        if self.sandwich:
            rows, scores, grouped = map(round, next(parts).tolist())
            scatter = Scatter(self._matrix(next(parts)), rows, scores if grouped else None)
        return SiteInformation(site, sums, float(n), moments, scatter)

    def _triangle(self, matrix: Floats) -> Floats:
        scaled = matrix * np.outer(self.unit, self.unit)
        return scaled[np.triu_indices(len(self.unit))]

    def _matrix(self, triangle: Floats) -> Floats:
        scaled = symmetric(triangle.tolist(), len(self.unit))
        return scaled / np.outer(self.unit, self.unit)


def _units(request: RefineRequest) -> Floats:
    """Return what each free parameter is measured in, (P,)."""
    here = request.scaling.from_user(request.model)
    experts, K = here.experts, here.n_experts
    predictor = predictors_of(here)
    linear = K * experts.n_linear
    expert = np.clip((predictor - (K - 1)) // experts.n_linear, 0, K - 1)
    is_coef = (predictor >= K - 1) & (predictor < K - 1 + linear)
    unit = np.exp2(np.rint(np.log2(experts.coef_unit)))
    return np.where(is_coef, unit[expert], 1.0)
