"""What sketches are made of: kinds of columns, and components of the rows (maths 11)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.likelihood.rows import take_rows
from otmoe.text.arguments import check_weight
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

LEAST_ROWS = 10
"""Rows behind every component at least: a mean over one row would be that row.

What a site gives away decides (docs/support.md), not what is gained by it.
"""

Units = Mapping[int, tuple[float, float]]
"""Features that are (value - center) / scale, by index, and these two."""

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_MOST_ROWS = 20_000  # that are looked at
_NARROWEST = 1e-3  # variance of a component, as a share of that of all rows


@dataclass(frozen=True)
class Columns:
    """What the features are; each is of one kind.

    Attributes
    ----------
    numbers : tuple of int
    categories : tuple of tuple of int
        Dummies that belong together: at most one of them is 1.
    constant : dict
        Features with one and the same value in every row, and that value.
    """

    numbers: tuple[int, ...]
    categories: tuple[tuple[int, ...], ...]
    constant: dict[int, float]


def columns_of(rows: Floats, known: tuple[tuple[int, ...], ...] = ()) -> Columns:
    """Tell numbers, dummies and constants apart.

    Columns of zeros and ones are dummies. If they lie next to each other and are never one
    together, they are taken for one category.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    known : tuple of tuple of int
        Dummies that are known to belong together.
    """
    numbers: list[int] = []
    categories: list[tuple[int, ...]] = []
    constant: dict[int, float] = {}
    taken = np.ones(len(rows), dtype=bool)  # rows in which the last category cannot have one more
    for j in sorted(set(range(rows.shape[1])).difference(*known)):
        x = rows[:, j]
        if x.std() <= 1e-10 * abs(x.mean()):
            constant[j] = float(x[0])
        elif np.all((x == 0) | (x == 1)):
            if np.any(taken & (x == 1)):
                categories.append((j,))
                taken = x == 1
            else:
                categories[-1] = (*categories[-1], j)
                taken = taken | (x == 1)
        else:
            numbers.append(j)
            taken = np.ones(len(rows), dtype=bool)
    return Columns(tuple(numbers), tuple(sorted([*known, *categories])), constant)


def layout(features: FeatureSpec | None) -> tuple[tuple[tuple[int, ...], ...], Units]:
    """Return the dummies of each category, and the units of the numbers that have some."""
    known, units = [], {}
    if features is None:
        return (), {}
    for column in features.columns:
        place = tuple(features.layout.of_columns[column.name])
        if column.kind == "category":
            known.append(place)
            continue
        if (column.center, column.scale) != (0.0, 1.0):
            units[place[0]] = (float(column.center), float(column.scale))
        if column.impute is not None:
            known.append(place[1:])
    return tuple(known), units


def some_rows(X: Any, sample_weight: Any, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return rows of positive weight, not too many, and their weights, of mean 1."""
    X = X if is_array_api_obj(X) else np.asarray(X)
    if X.ndim != 2:
        raise InvalidInput(Error.NOT_A_MATRIX, name="X", shape=tuple(X.shape))
    weight = check_weight(sample_weight, X)
    weight = np.ones(X.shape[0]) if weight is None else to_numpy(weight)
    index = np.flatnonzero(weight > 0)
    n = count(weight[index]) if len(index) else 0
    if n < LEAST_ROWS:
        raise InvalidInput(Error.SKETCH_ROWS, rows=n, least=LEAST_ROWS)
    if len(index) > _MOST_ROWS:
        index = np.sort(rng.choice(index, _MOST_ROWS, replace=False))
    rows = np.asarray(take_rows(X, index), dtype=np.float64)
    if not np.all(np.isfinite(rows)):
        raise InvalidInput(Error.NOT_FINITE)
    return rows, weight[index] / weight[index].mean()


def count(weight: Floats) -> Any:
    """Return how many rows of equal weight a mean over these is worth, for each column (Kish)."""
    return weight.sum(axis=0) ** 2 / (weight**2).sum(axis=0)


def components(Z: Floats, weight: Floats, most: int, rng: np.random.Generator) -> Floats:
    """Return the part of each row in each of a few Gaussian components, (n, G).

    The number of components is that with the lowest BIC, of those that leave no component with
    fewer rows than it needs.

    Parameters
    ----------
    Z : ndarray of shape (n, q)
        Standardised numbers.
    weight : ndarray of shape (n,)
        The parts of a row add up to its weight.
    most : int
        Components at most.
    rng : Generator
    """
    n, q = Z.shape
    least = max(LEAST_ROWS, 2 * (q + 1))
    best, lowest = weight[:, None], np.inf
    if q == 0:
        return best
    # scikit-learn's mixture takes no weights: it sees rows drawn in proportion to them.
    seen = Z if np.ptp(weight) == 0 else Z[rng.choice(n, n, p=weight / weight.sum())]
    seed = int(rng.integers(2**31))
    for G in range(1, min(most, n // least) + 1):
        mixture = GaussianMixture(G, reg_covar=_NARROWEST, random_state=seed)
        # Threads would wait for each other most of the time, and so they do on a busy machine.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)  # nearly there is good enough
            mixture.fit(seen)
        bic = mixture.bic(seen)
        if bic < lowest:
            part = mixture.predict_proba(Z) * weight[:, None]
            if G == 1 or count(part).min() >= least:
                best, lowest = part, bic
    return best


def gaussians(Z: Floats, part: Floats) -> tuple[Floats, Floats]:
    """Return means (G, q) and positive definite covariances (G, q, q) of components.

    Each covariance is that of its rows and of q + 1 more, whose numbers are uncorrelated and have
    the mean variances of all components: that few rows span few directions does no harm.

    Parameters
    ----------
    Z : ndarray of shape (n, q)
        Standardised numbers.
    part : ndarray of shape (n, G)
    """
    n_rows, q = part.sum(axis=0), Z.shape[1]
    mean = part.T @ Z / n_rows[:, None]
    sums = np.empty((len(n_rows), q, q))
    for g in range(len(n_rows)):
        away = (Z - mean[g]) * np.sqrt(part[:, [g]])
        sums[g] = away.T @ away
    within = np.maximum(np.einsum("gii->i", sums) / n_rows.sum(), _NARROWEST)
    return mean, (sums + (q + 1) * np.diag(within)) / (n_rows + q + 1)[:, None, None]


def level_prob(dummies: Floats, part: Floats) -> Floats:
    """Return the probability that no dummy is one, then that of each, by component; (G, c + 1).

    Each component counts one row more, which is an average one: a level that some row has is
    impossible nowhere.

    Parameters
    ----------
    dummies : ndarray of shape (n, c)
    part : ndarray of shape (n, G)
    """
    counts = part.T @ np.column_stack([1 - dummies.sum(axis=1), dummies])
    counts += counts.sum(axis=0) / counts.sum()
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
