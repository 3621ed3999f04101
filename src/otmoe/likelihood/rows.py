# Long because rows, the scale on which they are read and its moments belong together.
"""Rows to fit: where they are, on which scale, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_array_api_obj
from scipy import linalg

from otmoe.arrays.numerics import (
    Array,
    Floats,
    block_sum,
    design,
    like,
    namespace,
    on_accelerator,
    row_blocks,
    scaled,
    take,
    to_numpy,
    weighted_gram,
    weighted_sums,
)
from otmoe.arrays.stretches import spread_out, starts_of, summed, whole
from otmoe.model.experts import Experts
from otmoe.model.mixture import MoE
from otmoe.model.structure import Structure
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class Scaling:
    """Standardisation of X (and of y, for families with a scale), undone in the parameters.

    Attributes
    ----------
    x_center, x_scale : ndarray of shape (d,), or None for the identity
        An infinite scale makes a (constant) column exactly zero.
    y_center, y_scale : float, or ndarray of shape (R,) for R columns of y
    """

    x_center: Floats | None = None
    x_scale: Floats | None = None
    y_center: Any = 0.0
    y_scale: Any = 1.0

    @classmethod
    def of(cls, X: Any) -> Scaling:
        """Return the standardisation of some rows (n, d); constant columns keep their unit."""
        X = X if is_array_api_obj(X) else np.asarray(X)
        xp = namespace(X)
        center = to_numpy(xp.mean(xp.astype(X, xp.float64), axis=0))
        scale = to_numpy(xp.std(xp.astype(X, xp.float64), axis=0))
        return cls(center, np.where(scale > 1e-10 * np.abs(center), scale, 1.0))

    @property
    def constant(self) -> dict[int, float]:
        """Columns of X that are constant, and their value."""
        if self.x_center is None or self.x_scale is None:
            return {}
        return {int(j): float(self.x_center[j]) for j in np.flatnonzero(np.isinf(self.x_scale))}

    @property
    def transform(self) -> Floats:
        """The matrix that takes a row of the design to the standardised one, (p, p)."""
        if self.x_center is None or self.x_scale is None:
            raise InvalidInput(Error.NO_SCALE)
        T = np.diag(np.append(1.0, 1 / self.x_scale))
        T[1:, 0] = -self.x_center / self.x_scale
        return T

    @property
    def inverse(self) -> Floats:
        """The matrix that takes a standardised row back, (p, p); constant columns stay away."""
        if self.x_center is None or self.x_scale is None:
            raise InvalidInput(Error.NO_SCALE)
        T = np.diag(np.append(1.0, np.where(np.isinf(self.x_scale), 0.0, self.x_scale)))
        T[1:, 0] = self.x_center
        return T

    @property
    def log_jacobian(self) -> float:
        """What a log density of the standardised y lacks on the user's scale."""
        return -float(np.sum(np.log(self.y_scale)))

    def to_user(self, model: MoE) -> MoE:
        """Return a model of the standardised rows on the user's scale."""
        if self.x_center is None:
            return model
        structure = model.structure and model.structure.at(None)
        there = model.rescaled(self.transform, self.y_center, self.y_scale)
        return replace(there, structure=structure)

    def from_user(self, model: MoE) -> MoE:
        """Return a model of the user's rows on the standardised scale."""
        if self.x_center is None:
            return model
        structure = model.structure and model.structure.at(self.transform[:, 0])
        there = model.rescaled(self.inverse, -self.y_center / self.y_scale, 1 / self.y_scale)
        return replace(there, structure=structure)


@dataclass(frozen=True)
class Block:
    """Some rows, ready for computing.

    Attributes
    ----------
    X : array of shape (n, p)
        Design, standardised, intercept first.
    y : array of shape (n,), or (n, R) where a family takes R columns
    weight : array of shape (n,), or None for 1
    offset : array of shape (n,), or None for 0
        Known part of the experts' linear predictors.
    copies : ndarray of int of shape (n,), optional
        How many y there are for each x, one after another, with as many weights: sums are then
        taken over the y of an x first.
    groups : ndarray of int of shape (G + 1,), optional
        Where the groups begin whose rows share their expert, and the end (maths 23).
    """

    X: Array
    y: Array
    weight: Array | None = None
    offset: Array | None = None
    copies: Floats | None = None
    groups: Floats | None = None

    @cached_property
    def starts(self) -> Floats | None:
        """Where the y of each x begin, (n + 1,); None where there is one for each."""
        return None if self.copies is None else np.append(0, np.cumsum(self.copies))

    def gathered(self, weights: Array) -> Array:
        """Return weights (rows, J) summed over the y of each x, (n, J)."""
        starts = self.starts
        return weights if starts is None else summed(weights, starts)

    @cached_property
    def once(self) -> Array | None:
        """Weights (n,) with which sums over rows count every group once; None for 1."""
        if self.groups is None:
            return self.weight
        first = np.zeros(len(self.y))
        first[self.leads] = 1.0
        return scaled(first, self.weight)

    @property
    def leads(self) -> Any:
        """Rows that stand for one group each: the first of it, or all where there are none."""
        return slice(None) if self.groups is None else self.groups[:-1]

    def by_group(self, values: Floats) -> Floats:
        """Return values (n, ...) summed over the groups of rows, at each of their rows."""
        starts = self.groups
        return values if starts is None else spread_out(summed(values, starts), starts)


class Blocks(Protocol):
    """Rows to fit that come block by block, wherever they are."""

    @property
    def pool(self) -> Executor | None:
        """Threads over which sums of blocks are spread."""
        ...

    def slices(self) -> Iterator[slice]:
        """Cut the rows into blocks."""
        ...

    def block(self, rows: slice, /) -> Block:
        """Read one block."""
        ...


@dataclass(frozen=True)
class Rows:
    """Rows in memory, read in standardised blocks; the data are never copied whole.

    Attributes
    ----------
    X : array of shape (n, d)
    y : array of shape (n,), or (n, R) where a family takes R columns
    weight : array of shape (n,), optional
        Case weights; None means 1.
    offset : array of shape (n,), optional
        Known part of the experts' linear predictors.
    scaling : Scaling
        The identity unless given.
    pool : Executor, optional
        Threads over which sums of blocks are spread.
    block_bytes : int, optional
        Size of a block; by default one that fits the cache.
    groups : ndarray of int of shape (n,), optional
        Codes of groups whose rows share their expert, each in one stretch; see
        :func:`otmoe.likelihood.sharing.sharing`. None where every row has an expert of its own.
    """

    X: Array
    y: Array
    weight: Array | None = None
    offset: Array | None = None
    scaling: Scaling = Scaling()
    pool: Executor | None = field(default=None, repr=False)
    block_bytes: int | None = field(default=None, repr=False)
    groups: Floats | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(len(self)) if self.weight is None else float(np.sum(to_numpy(self.weight)))

    def take(self, index: Floats, *, there: bool = False) -> Rows:
        """Return some rows, as NumPy arrays or, if asked, where they are."""
        of = take if there else take_rows
        return replace(
            self,
            X=of(self.X, index),
            y=of(self.y, index),
            weight=None if self.weight is None else of(self.weight, index),
            offset=None if self.offset is None else of(self.offset, index),
            groups=None if self.groups is None else self.groups[index],
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Return NumPy rows of several parts as one, on the scale of the first."""

        def together(name: str, default: float) -> Floats | None:
            arrays = [getattr(part, name) for part in parts]
            if all(array is None for array in arrays):
                return None
            blank = [np.full(len(part), default) for part in parts]
            return np.concatenate(
                [b if a is None else a for a, b in zip(arrays, blank, strict=True)]
            )

        X, y = (np.concatenate([getattr(part, name) for part in parts]) for name in "Xy")
        whole = cls(X, y, together("weight", 1.0), together("offset", 0.0), parts[0].scaling)
        return whole if parts[0].groups is None else replace(whole, groups=_told_apart(parts))

    def slices(self) -> Iterator[slice]:
        """Cut the rows into blocks; the cuts depend on the shape alone."""
        on_device = not isinstance(self.X, np.ndarray)
        n, p = len(self), self.X.shape[1] + 1
        how = {"on_device": on_device, "even": not on_device}
        found = row_blocks(n, p, block_bytes=self.block_bytes, **how)
        return found if self.groups is None else whole(found, starts_of(self.groups))

    def block(self, rows: slice) -> Block:
        """Read one block; rows on a device that are a single block are standardised once."""
        if on_accelerator(self.X) and [rows] == list(self.slices()):
            return self._only_block
        return self._read(rows)

    @cached_property
    def _only_block(self) -> Block:
        return self._read(slice(0, len(self)))

    def _read(self, rows: slice) -> Block:
        scaling = self.scaling
        X = design(self.X[rows, :], scaling.x_center, scaling.x_scale)
        y = like(self.y[rows], X)
        y = (y - _unit(scaling.y_center, y)) / _unit(scaling.y_scale, y)
        weight = None if self.weight is None else like(self.weight[rows], X)
        offset = None if self.offset is None else like(self.offset[rows], X)
        if offset is not None and isinstance(scaling.y_scale, float):
            offset = offset / scaling.y_scale  # several responses take none
        groups = None if self.groups is None else starts_of(self.groups[rows])
        return Block(X, y, weight, offset, groups=groups)

    def log_base(self, experts: Experts) -> float:
        """Return what the log-likelihood of standardised blocks leaves out, summed over the rows.

        That is the base measure of the family and the Jacobian of scaling y.
        """

        def block(rows: slice) -> float:
            y = self.y[rows]
            base = experts.log_base(y) * (1.0 if self.weight is None else self.weight[rows])
            return float(namespace(y).sum(base))

        base = 0.0 if type(experts).log_base is Experts.log_base else sum(map(block, self.slices()))
        return base + self.total_weight * self.scaling.log_jacobian

    def _first_that_count(self) -> tuple[slice, Any]:
        """Return the first block with a row of positive weight, and which of its rows are such.

        Blocks are as small as those in memory, since they are brought there.
        """
        n, p = len(self), self.X.shape[1] + 1
        for rows in row_blocks(n, p, block_bytes=self.block_bytes):
            if self.weight is None:
                return rows, slice(None)
            counts = to_numpy(self.weight[rows]) > 0
            if np.any(counts):
                return rows, counts
        raise InvalidInput(Error.ROWS_WITHOUT_WEIGHT)

    def moments(self) -> Moments:
        """Return the moments of X and y, in one pass."""
        first, counts = self._first_that_count()
        shift = np.append(
            to_numpy(self.X[first, :])[counts].mean(axis=0, dtype=np.float64),
            to_numpy(self.y[first])[counts].mean(axis=0),
        )
        d = int(self.X.shape[1])

        def block(rows: slice) -> Floats:
            Z = design(self.X[rows, :], shift[:d], np.ones(d))
            xp, y = namespace(Z), like(self.y[rows], Z)
            apart = (y[None, :] if y.ndim == 1 else y.T) - like(shift[d:], Z)[:, None]  # (R, n)
            w = xp.ones_like(Z[:, 0]) if self.weight is None else like(self.weight[rows], Z)
            inside, across = weighted_sums(Z, w[:, None], (apart * w).T)
            among = to_numpy(weighted_gram(apart.T, w[:, None]))[0]
            return np.block([[inside[0], across.T], [across, among]])

        return Moments(shift, block_sum(block, self.slices(), self.pool), len(shift) - d)

    def standardised(
        self, experts: Experts, structure: Structure | None = None
    ) -> tuple[Rows, Floats]:
        """Return the rows on a scale of mean 0 and variance 1, and the correlations of the design.

        A constant column becomes zero. y is scaled too if the family allows it.

        Parameters
        ----------
        experts : Experts
        structure : Structure, optional
            Of the experts; y keeps its origin if an intercept is fixed there.

        Returns
        -------
        rows : Rows
        correlation : ndarray of shape (p, p)
            Second moments of the standardised design, intercept first.
        """
        scaling, correlation = self.moments().standardisation(experts, structure)
        return replace(self, scaling=scaling), correlation


@dataclass(frozen=True)
class Moments:
    """First and second moments of X and y; they add up over shards.

    Attributes
    ----------
    shift : ndarray of shape (d + R,)
        A point near the mean of (x, y), so that rounding does no harm.
    gram : ndarray of shape (d + R + 1, d + R + 1)
        Weighted Gram matrix of (1, (x, y) - shift).
    n_responses : int
        Columns of y, R.
    """

    shift: Floats
    gram: Floats
    n_responses: int = 1

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(self.gram[0, 0])

    @property
    def feature_mean(self) -> Floats:
        """Mean of X, (d,)."""
        d = len(self.shift) - self.n_responses
        return np.asarray(self.shift[:d] + self.gram[0, 1 : d + 1] / self.gram[0, 0])

    @property
    def feature_covariance(self) -> Floats:
        """Covariance of X, (d, d)."""
        inside = slice(1, 1 + len(self.shift) - self.n_responses)
        mean = self.gram[0, inside] / self.gram[0, 0]
        return np.asarray(self.gram[inside, inside] / self.gram[0, 0] - np.outer(mean, mean))

    def __add__(self, other: Moments) -> Moments:
        T = np.eye(len(self.gram))
        T[1:, 0] = other.shift - self.shift
        return replace(self, gram=self.gram + T @ other.gram @ T.T)

    def standardisation(
        self, experts: Experts, structure: Structure | None = None
    ) -> tuple[Scaling, Floats]:
        """Return the scale of mean 0 and variance 1, and the correlations of the design (p, p)."""
        gram, d = self.gram, len(self.shift) - self.n_responses
        mean = gram[0, 1:] / gram[0, 0]
        covariance = gram[1:, 1:] / gram[0, 0] - np.outer(mean, mean)
        center = self.shift + mean
        sd = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        constant = sd <= 1e-10 * np.abs(center)
        sd[constant] = 1.0
        covariance[constant] = covariance[:, constant] = 0.0
        scaling = Scaling(center[:d], np.where(constant, np.inf, sd)[:d])
        scaled = experts.scaled_columns()
        if any(scaled):
            fixed = structure is not None and structure.through_origin
            centred = np.logical_and(scaled, not fixed)
            unit = np.where(centred, center[d:], 0.0), np.where(scaled, sd[d:], 1.0)
            at, size = unit if self.n_responses > 1 else (float(a[0]) for a in unit)
            scaling = replace(scaling, y_center=at, y_scale=size)
        return scaling, linalg.block_diag(1.0, (covariance / np.outer(sd, sd))[:d, :d])


@dataclass(frozen=True)
class OneBlock:
    """Rows that are one block, read once and kept.

    Attributes
    ----------
    only : Block
    """

    only: Block
    pool: Executor | None = None  # one block is no work for several threads

    def slices(self) -> Iterator[slice]:
        """Cut the rows into blocks, of which there is one."""
        yield slice(None)

    def block(self, rows: slice, /) -> Block:
        """Return it."""
        return self.only


def _unit(value: Any, y: Array) -> Any:
    """Return a number, or one for each column, as y is."""
    return value if isinstance(value, float) else like(value, y)


def _told_apart(parts: Sequence[Rows]) -> Floats:
    """Return codes of groups of several parts, none of which is in two of them."""
    codes = [starts_of(part.groups) for part in parts if part.groups is not None]
    sizes = np.concatenate([np.diff(starts) for starts in codes])
    return np.repeat(np.arange(len(sizes)), sizes)


def take_rows(array: Array, index: Floats) -> Floats:
    """Return some rows of an array of any namespace, in NumPy."""
    return to_numpy(take(array, index))
