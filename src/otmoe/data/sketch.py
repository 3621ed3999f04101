"""Sketches: a small mixture model of a site's covariates that can replace rows (maths 11).

``docs/support.md`` says what a sketch shows, and what it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from otmoe.arrays.numerics import FAR, Array, Floats, like, log_sum, namespace, sample_rows, take
from otmoe.data.clusters import (
    Units,
    columns_of,
    components,
    gaussians,
    layout,
    level_prob,
    some_rows,
)
from otmoe.data.features import FeatureSpec
from otmoe.data.terms import Layout
from otmoe.text.arguments import check_whole, generator
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
N_COMPONENTS = 4
"""Components at most, unless another number is asked for."""

_NOISE = 1e-3  # of smoothing: variance as a share of that over all sites; probability of levels
_PEAK_OF_ONE = 1 / (2 * np.pi)  # variance of the normal distribution with density 1 at its mean


@dataclass(frozen=True)
class Sketch:
    """A mixture of G components with normal numbers, and categories independent of all else.

    Numbers are in the units of the site's columns, before features were centred and scaled.
    Features that follow from others, such as those of a spline, are not described but computed.

    Attributes
    ----------
    weight : ndarray of shape (G,)
        Positive, adding up to one.
    numbers : tuple of q int
        Features that are numbers.
    mean : ndarray of shape (G, q)
    cov : ndarray of shape (G, q, q)
        Positive definite.
    categories : tuple of tuple of int
        Features that are the dummies of one category each.
    prob : tuple of ndarray of shape (G, number of dummies + 1)
        For each category, the probability that no dummy is one, then that of each.
    constant : dict
        Features with one and the same value in every row, and that value.
    whole, not_negative : tuple of int
        Numbers that are whole, or not below zero, in every row.
    units : dict
        Features that are not in the units of their columns: their center and scale.
    derived : Layout, optional
        How features that are not described follow from those that are.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(50, 9, 500).round(), rng.random(500) < 0.3])
    >>> sketch = Sketch.fit(X)
    >>> sketch.whole, sketch.categories
    ((0,), ((1,),))
    >>> sketch.draw(3)
    array([[59.,  1.],
           [55.,  0.],
           [37.,  0.]])
    """

    weight: Floats
    numbers: tuple[int, ...]
    mean: Floats
    cov: Floats = field(repr=False)
    categories: tuple[tuple[int, ...], ...] = ()
    prob: tuple[Floats, ...] = ()
    constant: Mapping[int, float] = field(default_factory=dict)
    whole: tuple[int, ...] = ()
    not_negative: tuple[int, ...] = ()
    units: Units = field(default_factory=dict)
    derived: Layout | None = field(default=None, repr=False)

    @property
    def n_features(self) -> int:
        """Number of features that are described, b; all, unless some are derived."""
        return len(self.numbers) + sum(map(len, self.categories)) + len(self.constant)

    @property
    def n_floats(self) -> int:
        """Free numbers that the sketch consists of."""
        q = len(self.numbers)
        each = 1 + q + q * (q + 1) // 2 + sum(map(len, self.categories))
        return len(self.weight) * each + len(self.constant)

    @classmethod
    def fit(
        cls,
        X: Any,
        *,
        features: FeatureSpec | None = None,
        sample_weight: Any = None,
        n_components: int = N_COMPONENTS,
        random_state: Any = 0,
    ) -> Self:
        """Return a sketch of some rows; of more than 20,000 that many are looked at.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features; at least 10 rows of positive weight.
        features : FeatureSpec, optional
            How columns became the features. Without it, dummies are told by their zeros and ones.
        sample_weight : array-like of shape (n,), optional
        n_components : int
            Components at most. Their number is chosen by BIC; if there are several, each has at
            least 10 rows, and 2 (q + 1).
        random_state : int, Generator or None
        """
        check_whole("n_components", n_components)
        rng = generator(random_state)
        rows, weight = some_rows(X, sample_weight, rng)
        known, units = layout(features)
        if features is not None and len(features.feature_names) != rows.shape[1]:
            raise InvalidInput(
                Error.NOT_ENCODED, columns=rows.shape[1], features=len(features.feature_names)
            )
        derived = derived_of(features)
        rows = rows if derived is None else rows[:, : derived.n_base]
        for j, (center, scale) in units.items():
            value = rows[:, j] * scale + center
            near = np.rint(value)
            whole = np.allclose(value, near, rtol=1e-12, atol=1e-9)
            rows[:, j] = near if whole else value
        columns = columns_of(rows, known)
        numbers = rows[:, columns.numbers]
        shift = np.average(numbers, axis=0, weights=weight)
        stretch = np.sqrt(np.average((numbers - shift) ** 2, axis=0, weights=weight))
        Z = (numbers - shift) / stretch
        part = components(Z, weight, n_components, rng)
        mean, cov = gaussians(Z, part)
        n_rows = part.sum(axis=0)
        return cls(
            n_rows / n_rows.sum(),
            columns.numbers,
            shift + stretch * mean,
            np.outer(stretch, stretch) * cov,
            columns.categories,
            tuple(level_prob(rows[:, c], part) for c in columns.categories),
            columns.constant,
            tuple(j for j in columns.numbers if np.all(rows[:, j] == np.rint(rows[:, j]))),
            tuple(j for j in columns.numbers if np.all(rows[:, j] >= 0)),
            units,
            derived,
        )

    def draw(self, n_rows: int, random_state: Any = 0) -> Floats:
        """Draw features: dummies of which at most one is one, whole numbers where rows had them.

        Parameters
        ----------
        n_rows : int
        random_state : int, Generator or None

        Returns
        -------
        ndarray of shape (n_rows, d)
        """
        rng = generator(random_state)
        X = np.empty((n_rows, self.n_features))
        component = rng.choice(len(self.weight), n_rows, p=self.weight / self.weight.sum())
        values = rng.standard_normal((n_rows, len(self.numbers)))
        for g, root in enumerate(np.linalg.cholesky(self.cov)):
            mine = component == g
            values[mine] = self.mean[g] + values[mine] @ root.T
        X[:, self.numbers] = values
        X[:, self.whole] = np.rint(X[:, self.whole])
        X[:, self.not_negative] = np.maximum(X[:, self.not_negative], 0.0)
        for columns, prob in zip(self.categories, self.prob, strict=True):
            level = sample_rows(prob[component], rng)
            X[:, columns] = level[:, None] == np.arange(1, prob.shape[1])
        X[:, tuple(self.constant)] = list(self.constant.values())
        for j, (center, scale) in self.units.items():
            X[:, j] = (X[:, j] - center) / scale
        return X if self.derived is None else self.derived.completed(X)

    # -- density -----------------------------------------------------------------------------

    def log_density(self, X: Array) -> Array:
        """Return the log density of features, per unit of every number; constants have no part.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        array of shape (n,)
        """
        xp = namespace(X)
        X = self._in_own_units(X)
        whitening, log_peak = self._normal
        joint = like(self._log_weight + log_peak, X)[None, :]
        values = take(X, list(self.numbers), axis=1)
        squares = []
        for mean, whiten in zip(self.mean, whitening, strict=True):
            z = xp.clip(values - like(mean, X)[None, :], -FAR, FAR) @ like(whiten.T, X)
            squares.append(xp.sum(z * z, axis=1))
        joint = joint - 0.5 * xp.stack(squares, axis=1)  # (n, G)
        for columns, log_prob in zip(self.categories, self._log_prob, strict=True):
            dummies = take(X, list(columns), axis=1)
            first = xp.argmax(dummies, axis=1) + 1
            level = xp.where(xp.max(dummies, axis=1) > 0.5, first, xp.zeros_like(first))
            joint = joint + xp.take(like(log_prob.T, X), level, axis=0)
        return log_sum(joint)

    def _in_own_units(self, X: Array) -> Array:
        """Return the columns before features were centred and scaled, (n, d)."""
        X = namespace(X).astype(X[:, : self.n_features], namespace(X).float64)
        if not self.units:
            return X
        center, scale = np.zeros(self.n_features), np.ones(self.n_features)
        for j, unit in self.units.items():
            center[j], scale[j] = unit
        return X * like(scale, X)[None, :] + like(center, X)[None, :]

    @cached_property
    def _log_weight(self) -> Floats:
        return np.log(self.weight / self.weight.sum())

    @cached_property
    def _log_prob(self) -> list[Floats]:
        with np.errstate(divide="ignore"):
            return [np.log(prob) - np.log(prob.sum(axis=1, keepdims=True)) for prob in self.prob]

    @cached_property
    def _normal(self) -> tuple[Floats, Floats]:
        """Matrices that make components standard normal, (G, q, q), and log densities at means."""
        root = np.linalg.cholesky(self.cov)
        log_scale = np.log(np.einsum("gii->gi", root)).sum(axis=1)
        return np.linalg.inv(root), -log_scale - 0.5 * len(self.numbers) * np.log(2 * np.pi)

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """Mean and variance of every column in its own units, (d,) each."""
        mean, var = np.zeros(self.n_features), np.zeros(self.n_features)
        share, numbers = np.exp(self._log_weight), list(self.numbers)
        mean[numbers] = share @ self.mean
        var[numbers] = share @ (np.einsum("gii->gi", self.cov) + (self.mean - mean[numbers]) ** 2)
        for columns, log_prob in zip(self.categories, self._log_prob, strict=True):
            prob = share @ np.exp(log_prob[:, 1:])
            mean[list(columns)], var[list(columns)] = prob, prob * (1 - prob)
        mean[list(self.constant)] = list(self.constant.values())
        return mean, var

    def smoothed(self, variance: Floats) -> Self:
        """Return the sketch with noise of this variance (d,) in its numbers and constants.

        Levels that no row has become possible.
        """
        numbers, (G, q) = (*self.numbers, *self.constant), self.mean.shape
        cov = np.zeros((G, len(numbers), len(numbers)))
        cov[:, :q, :q] = self.cov
        fixed = np.tile(list(self.constant.values()), (G, 1))
        return replace(
            self,
            numbers=numbers,
            mean=np.hstack([self.mean, fixed]),
            cov=cov + np.diag(variance[list(numbers)]),
            prob=tuple((1 - _NOISE) * prob + _NOISE / prob.shape[1] for prob in self.prob),
            constant={},
        )


def derived_of(features: FeatureSpec | None) -> Layout | None:
    """Return how features follow from others, where they do."""
    if features is None:
        return None
    imputed = any(column.impute is not None for column in features.columns)
    return features.layout if features.terms or imputed else None


def comparable(sketches: Sequence[Sketch], weight: Floats) -> tuple[Sketch, ...]:
    """Return sketches whose densities can be compared, whatever is constant at which site.

    The same noise is added everywhere: to each number, a thousandth of its variance over all sites.
    If it is whole, it gets at least so much that a constant has density one at its value, just as a
    category that always has the same level has probability one there.

    Parameters
    ----------
    sketches : sequence of M Sketch
    weight : ndarray of shape (M,)
    """
    share = weight / weight.sum()
    means, variances = np.array([sketch.moments for sketch in sketches]).swapaxes(0, 1)  # (M, d)
    noise = _NOISE * share @ (variances + (means - share @ means) ** 2)
    steps = {j for s in sketches for j in (*s.whole, *(j for c in s.categories for j in c))}
    noise[list(steps)] = np.maximum(noise[list(steps)], _PEAK_OF_ONE)
    noise[noise == 0] = 1.0  # one and the same value everywhere
    return tuple(sketch.smoothed(noise) for sketch in sketches)
