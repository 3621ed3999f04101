"""Where candidates compete: some of the rows, or all of them (maths 12)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.arrays.stretches import starts_of
from otmoe.likelihood.iterations import Run, newton_serves, run_em, run_newton
from otmoe.likelihood.rows import Block, OneBlock, Rows
from otmoe.likelihood.statistics import RowPasses, on_floor
from otmoe.model.mixture import MoE, Posterior
from otmoe.model.ridge import Ridge

_AFTER_SPLIT, _TO_MAXIMUM = 2, 40  # iterations of EM and of Newton's method
_ON_ALL = 120  # of Newton's method on all rows, where a maximum must be one
# `python -m benchmarks constants` halves and doubles the first.
_PER_COEFFICIENT, _PER_FACTOR = 3.0, 1.5  # rows for each coefficient, and for every factor e
_OF_SHARE = 0.45  # of an equal share of the rows, which is enough in any case
_NEAR, _EXACT = 1.0, 1e-3  # squared standard errors from a maximum, on some rows and on all
_APART = 0.1  # nats between two maxima that are told apart
_TIES = 10.0  # floors of a variance, below which it is on its way to that


@dataclass(frozen=True)
class Stage:
    """Rows on which candidates are improved and compared.

    Attributes
    ----------
    rows : Rows
        Standardised.
    ridge : Ridge
    near : float
        Squared standard errors from a maximum at which candidates are compared.
    whole : bool
        Whether these are all the rows.
    """

    rows: Rows
    ridge: Ridge
    near: float = _NEAR
    whole: bool = False

    @classmethod
    def there(cls, rows: Rows, size: int, ridge: Ridge, rng: np.random.Generator) -> Stage:
        """Return about `size` of the rows where they are, one of each stretch of equal length."""
        place = (np.arange(size) + rng.random(size)) * (len(rows) / size)
        return cls(rows.take(place.astype(np.int64), there=True), ridge)

    @classmethod
    def of_some(cls, rows: Rows, size: int, ridge: Ridge, rng: np.random.Generator) -> Stage:
        """Return at most `size` of the rows of positive weight, in memory and standardised."""
        some = subsample(rows, size, rng)
        block = some.block(slice(None))
        flat = Rows(
            block.X[:, 1:], block.y, block.weight, block.offset, pool=rows.pool, groups=some.groups
        )
        whole = size >= len(rows)
        return cls(flat, ridge, _EXACT if whole else _NEAR, whole)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def block(self) -> Block:
        """All rows of the stage at once."""
        return self.rows.block(slice(None))

    @cached_property
    def passes(self) -> RowPasses:
        """Passes over the rows; where they are one block in memory, it is read but once."""
        few = isinstance(self.rows.X, np.ndarray) and len(list(self.rows.slices())) == 1
        return RowPasses(OneBlock(self.block) if few else self.rows)

    @cached_property
    def weight(self) -> Floats:
        """Weights of the rows, (n,)."""
        found = self.rows.weight
        return np.ones(len(self)) if found is None else to_numpy(found)

    @cached_property
    def once(self) -> Floats:
        """Weights of the rows with which groups that share their expert count once, (n,)."""
        return self.weight if self.rows.groups is None else np.asarray(self.block.once)

    @property
    def same_within(self) -> float:
        """Nats between two candidates that count as one maximum."""
        return max(self.near, _APART)

    def posterior(self, model: MoE) -> Posterior:
        """Return the E-step."""
        block = self.block
        response = model.experts.observe(block.y)
        return model.posterior(block.X, response, block.offset, groups=block.groups)

    def log_density(self, model: MoE) -> Floats:
        """Return the log density of every row, (n,), or of every group that shares its expert."""
        return to_numpy(self.posterior(model).log_density[self.block.leads])

    def noise(self, a: MoE, b: MoE) -> float:
        """Return the standard error of the difference between two log-likelihoods."""
        weight = self.once[self.block.leads]
        gap = weight * (self.log_density(a) - self.log_density(b))
        return float(np.std(gap) * np.sqrt(len(gap)))

    def em(self, model: MoE, n_iter: int, tol: float = 0.5) -> Run:
        """Return a few iterations of EM."""
        return run_em(self.passes, model, ridge=self.ridge, max_iter=n_iter, tol=tol)

    def at_maximum(self, model: MoE, most: int | None = None) -> Run:
        """Return a model led so close to its maximum that it can be compared with others."""
        if most is None:
            most = _ON_ALL if self.whole else _TO_MAXIMUM
        run = self.em(model, _AFTER_SPLIT, tol=0.0)
        if not newton_serves(run.model):
            return run.then(self.em(run.model, 3 * most))
        found = run_newton(self.passes, run.model, ridge=self.ridge, max_iter=most, tol=self.near)
        return run.then(found)

    def value(self, run: Run) -> float:
        """Return the penalised log-likelihood; minus infinity where an expert is lost."""
        return run.trace[-1] if self._kept(run) and np.isfinite(run.trace[-1]) else -np.inf

    def _kept(self, run: Run) -> bool:
        """Say whether all experts have rows enough, and none stands on a few ties."""
        enough = np.all(run.mass >= rows_needed(run.model, self.rows.total_weight))
        return bool(enough) and not on_floor(run.model, _TIES)

    def same(self, a: Run, b: Run) -> bool:
        """Say whether two runs ended in one maximum."""
        return abs(a.trace[-1] - b.trace[-1]) <= self.same_within and self._kept(a) == self._kept(b)

    def spread(self, model: MoE) -> float:
        """Return the standard deviation of a row's log-likelihood, summed over the rows.

        Rows that share their expert count as one.
        """
        values, weight = self.log_density(model), self.once[self.block.leads]
        return float(np.sqrt(np.cov(values, aweights=weight, ddof=0)) * weight.sum())


def subsample(rows: Rows, size: int, rng: np.random.Generator) -> Rows:
    """Return at most `size` rows of positive weight, drawn without replacement.

    Of groups that share their expert, all rows come or none; one group comes in any case.
    """
    n = len(rows)
    if rows.groups is not None:
        counted = np.arange(n) if rows.weight is None else np.flatnonzero(rows.weight > 0)
        return rows.take(some_groups(rows.groups, counted, size, rng))
    if rows.weight is None:
        index = np.sort(rng.choice(n, size, replace=False)) if n > size else np.arange(n)
    else:
        index = np.flatnonzero(to_numpy(rows.weight) > 0)
        if len(index) > size:
            index = np.sort(rng.choice(index, size, replace=False))
    return rows.take(index)


def some_groups(codes: Floats, index: Floats, size: int, rng: np.random.Generator) -> Floats:
    """Return at most `size` of some rows, those of whole groups drawn at random.

    Parameters
    ----------
    codes : ndarray of int of shape (n,)
        Of groups, each in one stretch.
    index : ndarray of int
        Rows to choose from, sorted; groups are in it as a whole.
    size : int
    rng : Generator
    """
    if len(index) <= size:
        return index
    starts = starts_of(codes[index])
    order = rng.permutation(len(starts) - 1)
    kept = np.zeros(len(order), dtype=bool)
    kept[order[np.cumsum(np.diff(starts)[order]) <= size]] = True
    kept[order[0]] = True
    return index[np.repeat(kept, np.diff(starts))]


def rows_needed(model: MoE, total: float) -> Floats:
    """Return the rows that each expert must have for its maximum to be believed, (K,).

    A few rows that happen to lie close to a plane make a high and narrow maximum: the smaller its
    variance beside the others', the more rows an expert must show. Counts lie on no plane.
    """
    factor = np.full(model.n_experts, _PER_COEFFICIENT)
    variance = model.experts.dispersion
    if variance is not None and not model.experts.discrete:
        factor += _PER_FACTOR * np.log(variance.max() / np.maximum(variance, 1e-300))
    coefficients = np.array([len(seen) for seen in model.expert_columns])
    return np.minimum(factor * coefficients, _OF_SHARE * total / model.n_experts)


def least_mass(total: float, model: MoE) -> float:
    """Rows below which an expert counts as lost: twice its coefficients, if there are as many."""
    coefficients = max(len(seen) for seen in model.expert_columns)
    return min(2.0 * coefficients, total / (5 * model.n_experts))
