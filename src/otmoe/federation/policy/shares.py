"""What the sums of all replies reveal about single rows (docs/threats.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import linalg, sparse

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats, kernels, to_numpy
from otmoe.likelihood.rows import Block, Rows
from otmoe.model.mixture import MoE

_AT_A_TIME = 1024  # rows whose products stay in cache: ten times as fast as all at once


def quadratic(X: Floats, root: Floats) -> Floats:
    """Return x_i' R R' x_i of every row, (n,).

    Parameters
    ----------
    X : ndarray of shape (n, p)
    root : ndarray of shape (p, r)
        R.
    """
    found = np.empty(len(X))
    if kernels is not None and X.T.flags.c_contiguous:
        kernels.squared_lengths(X.T, np.ascontiguousarray(root), found)
        return found
    for start in range(0, len(X), _AT_A_TIME):
        some = slice(start, start + _AT_A_TIME)
        turned = root.T @ X[some].T
        found[some] = np.einsum("rn,rn->n", turned, turned)
    return found


@dataclass(frozen=True)
class Told:
    """What replies reveal about the y of single rows, or about their residuals.

    A reply at a model has the sums of r_ik x_ij y_i over the rows, for every expert k and feature
    j; an earlier one is taken to have those of r_ik y_i. Let Z be the matrix of these weights, a
    column for each sum, and N the variances of the rounding of the sums. Who knows x, and nothing
    of y beforehand but its variance, learns the share Z_i' (Z'Z + N)^-1 Z_i of that of y_i: 1 if
    some combination of the sums is y_i.

    The diagonal of a scatter has sums of squared residuals, with the squares of the same weights.
    What is told of these, row by row or group by group, is measured in the same way.

    Attributes
    ----------
    rows : Rows
        Standardised.
    model : MoE
        That is asked about, on their scale.
    past : tuple of MoE
        Those that were asked about before.
    noise : ndarray of shape (K T,)
        Variance of the rounding of each earlier sum, over its squared weights.
    gram : ndarray of shape (K p + K T, K p + K T)
        Z'Z.
    units : ndarray of shape (K p + K T,)
        What variances of rounding are multiplied by.
    squares : bool
        Whether it is about squared residuals.
    groups : ndarray of int of shape (n,), optional
        Places of the groups whose scores are squared, from 0; by default every row is one.
    """

    rows: Rows
    model: MoE
    past: tuple[MoE, ...]
    noise: Floats
    gram: Floats
    units: Floats
    squares: bool = False
    groups: Floats | None = None

    @classmethod
    def of(
        cls,
        model: MoE,
        rows: Rows,
        past: Sequence[tuple[MoE, float]] = (),
        *,
        squares: bool = False,
        groups: Floats | None = None,
    ) -> Self:
        """Return what replies at a model, and at earlier ones, tell.

        Parameters
        ----------
        model : MoE
            On the user's scale.
        rows : Rows
            On the user's scale.
        past : sequence of (MoE, float)
            With the variance of the rounding of their sums: over that of the sum; or, if it is
            about squares, over the square of the sum, in units of what one residual varies by.
        squares, groups
            As in the attributes.
        """
        scaling = replace(
            rows.moments().standardisation(model.experts)[0], y_center=0.0, y_scale=1.0
        )
        here, rows = scaling.from_user(model), replace(rows, scaling=scaling)
        before = tuple(scaling.from_user(m) for m, _ in past)
        noise = np.repeat([v for _, v in past], [m.n_experts for m, _ in past]).astype(float)
        blank = cls(rows, here, before, np.empty(0), np.empty(0), np.empty(0), squares, groups)
        sums = [(Z.T @ Z, Z.sum(axis=0)) for Z in blank._weights()]
        gram, first = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
        second = np.diagonal(gram)
        units = np.ones(len(second))
        if squares:  # rounded in proportion to the sum, which many rows make large
            units = np.square(first) / np.where(second > 0, second, 1.0)
        return replace(blank, noise=noise, gram=gram, units=units)

    def share(self, noise: float = 0.0) -> float:
        """Return the largest share of the variance of one row that is told, from 0 to 1.

        Parameters
        ----------
        noise : float
            Of the present reply, as of the past ones.
        """
        now = len(self.gram) - len(self.noise)
        added = np.append(np.full(now, noise), self.noise) * self.units
        unit = np.sqrt(np.diagonal(self.gram))
        unit = np.where(unit > 0, unit, 1.0)
        scaled = self.gram / np.outer(unit, unit) + np.diag(added)
        values, vectors = linalg.eigh(scaled)
        some = values > RANK_TOLERANCE * values[-1]
        root = vectors[:, some] / np.sqrt(values[some]) / unit[:, None]
        return max(float(np.max(quadratic(Z, root))) for Z in self._weights())

    def _weights(self) -> Iterator[Floats]:
        """Yield the weights that sums give to rows, or to groups, (n, K p + K T) in parts."""
        parts = (_weights(self.rows.block(s), self.model, self.past) for s in self.rows.slices())
        if self.squares:
            parts = (np.square(Z) for Z in parts)
        if self.groups is None:
            yield from parts
            return
        groups, n_groups = self.groups, int(self.groups.max()) + 1

        def summed(some: slice, Z: Floats) -> Floats:
            place = groups[some], np.arange(len(Z))
            return sparse.csr_array((np.ones(len(Z)), place), shape=(n_groups, len(Z))) @ Z

        yield np.asarray(sum(map(summed, self.rows.slices(), parts)))


def _weights(block: Block, model: MoE, past: Sequence[MoE]) -> Floats:
    """Return the weights that sums give to each row, (n, K p + K T)."""
    X, models = to_numpy(block.X), [model, *past]
    response = model.experts.observe(block.y)
    here, *before = (
        to_numpy(m.posterior(block.X, response, block.offset, None, block.groups).responsibilities)
        for m in models
    )
    parts = [r[:, None] * X for r in here.T]
    weight = 1.0 if block.weight is None else to_numpy(block.weight)[:, None]
    return weight * np.concatenate([*parts, *before], axis=1)
