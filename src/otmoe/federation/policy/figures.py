"""What the parameters of a model rest on: figures that a policy limits (docs/policy.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Array, Floats, block_sum, scaled, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.federation.policy.cells import Cell, Levels
from otmoe.federation.policy.rounding import coarse_scaling
from otmoe.federation.policy.shares import quadratic
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.likelihood.statistics import VARIANCE_FLOOR, Statistics, e_step
from otmoe.model.mixture import MoE

_SUSPECT = 0.5  # a person whose rows have leverages that add up to more is looked at closely


@dataclass(frozen=True)
class Figures:
    """What a model's parameters rest on.

    Where rows belong to people, people are counted in place of rows.

    Attributes
    ----------
    rows : int
        Rows of positive weight, or people.
    parameters, coefficients : int
        Free parameters of the model, and coefficients of an expert.
    expert_rows : ndarray of shape (K,)
        Summed responsibilities of every expert; a person has that of the row that has most.
    cell : Cell, optional
        The smallest that is not empty; None where no feature has levels.
    leverage : float
        Largest share that one row, or one person, has in what an expert says about it.
    leverage_expert : int
        Which expert that is.
    certainty : float
        Share of y that the model knows: of its standard deviation, or of its deviance where it is
        a class.
    levels : dict of int
        Rows that have each level of each category, by the name of the feature.
    people : bool
        Whether people were counted.
    curvature : ndarray of shape (P,)
        Complete-data information of every parameter, on a coarse scale; what rounding goes by.
    scaling : Scaling
        That scale.
    component_rows : float, optional
        Rows behind the smallest component of the sketch, if there is one.
    shared : int
        Rows of x that are sent as they are.
    """

    rows: int
    parameters: int
    coefficients: int
    expert_rows: Floats
    cell: Cell | None
    leverage: float
    leverage_expert: int
    certainty: float
    levels: Mapping[str, int] = field(default_factory=dict)
    people: bool = False
    curvature: Floats = field(default_factory=lambda: np.empty(0), repr=False)
    scaling: Scaling = field(default=Scaling(), repr=False)
    component_rows: float | None = None
    shared: int = 0


def figures_of(
    model: MoE, rows: Rows, *, features: FeatureSpec | None = None, ids: Any = None
) -> Figures:
    """Return what a model's parameters rest on, from two sweeps over the rows, O(n K p^2).

    Parameters
    ----------
    model : MoE
        On the user's scale; fitted to the rows, or any that somebody asks about.
    rows : Rows
        On the user's scale.
    features : FeatureSpec, optional
        Which features belong to one category; without it the reference level is not counted.
    ids : array-like of shape (n,), optional
        Whose each row is: people are counted in place of rows.
    """
    moments = rows.moments()
    scaling = coarse_scaling(moments)
    rows, here = replace(rows, scaling=scaling), scaling.from_user(model)
    sums = e_step(here, rows)
    variance = _variance(model, rows)
    look = _Look(here, rows, _roots(sums), Levels.of(rows, model, features), ids, variance)
    return replace(look.figures(), curvature=_curvature(here, sums), scaling=scaling)


def _variance(model: MoE, rows: Rows) -> Floats:
    """Return the variance of y, or of the share of successes; of each of several responses."""
    weight = None if rows.weight is None else to_numpy(rows.weight)
    y = _outcomes(model, to_numpy(rows.y))
    return np.average((y - np.average(y, axis=0, weights=weight)) ** 2, axis=0, weights=weight)


def _outcomes(model: MoE, y: Floats) -> Floats:
    """Return y as the experts predict it, (n,), or (n, R) of R responses."""
    return y if y.ndim == 1 else to_numpy(model.experts.observe(y).mean)[:, 0]


def _curvature(model: MoE, sums: Statistics) -> Floats:
    """Return the complete-data information of each free parameter, (P,)."""
    experts = sums.experts
    dispersion = np.repeat(experts.weight[None] / 2, model.experts.n_constant, axis=0)
    return np.concatenate(
        [
            np.diagonal(sums.gate.information),
            np.einsum("kqqii->kqi", experts.information).ravel(),
            dispersion.ravel(),
        ]
    )


def _roots(sums: Statistics) -> Floats:
    """Return R_kq with R R' = (sum_i r_ik v_ikq x_i x_i')^+, (K Q, p, p); triangular if it can."""
    information = np.einsum("kqqij->kqij", sums.experts.information)
    K, Q, p, _ = information.shape
    roots = []
    for gram in information.reshape(K * Q, p, p):
        unit = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
        unit = np.where(unit > 0, unit, 1.0)
        scaleless = gram / np.outer(unit, unit)
        values, vectors = linalg.eigh(scaleless)
        some = values > RANK_TOLERANCE * max(values[-1], 0.0)
        if np.all(some):
            lower = np.linalg.cholesky(scaleless)
            roots.append(linalg.solve_triangular(lower, np.diag(1 / unit), lower=True).T)
            continue
        inverse = np.where(some, 1 / np.sqrt(np.where(some, values, 1.0)), 0.0)
        roots.append(vectors * inverse / unit[:, None])
    return np.reshape(roots, (K * Q, p, p))


@dataclass(frozen=True)
class _Sums:
    """Sums over blocks of rows, without reference to people."""

    rows: int
    mass: Floats  # (K,)
    first: Floats  # (2 J, A C): summed responsibilities by level, expert and class
    second: Floats  # the same of their squares
    unknown: Floats  # of y, with x known: squares, of each response, or deviance
    counts: Floats  # (C,): weight of each class, or of all rows
    worst: tuple[float, int]  # leverage, expert

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.rows + other.rows,
            self.mass + other.mass,
            self.first + other.first,
            self.second + other.second,
            self.unknown + other.unknown,
            self.counts + other.counts,
            max(self.worst, other.worst),
        )


@dataclass(frozen=True)
class _Look:
    """One look at the rows."""

    model: MoE
    rows: Rows
    roots: Floats
    levels: Levels
    ids: Any
    variance: Floats  # of y

    def figures(self) -> Figures:
        """Return the figures."""
        model, K = self.model, self.model.n_experts
        found = (
            block_sum(self._block, self.rows.slices(), self.rows.pool)
            if self.ids is None
            else self._by_person()
        )
        J = len(self.levels.names)
        every = found.first[:J, -len(self.levels.labels) :].sum(axis=1)
        return Figures(
            rows=found.rows,
            parameters=model.n_free,
            coefficients=model.experts.n_linear * model.experts.n_columns,
            expert_rows=found.mass,
            cell=self.levels.smallest(found.first, found.second, K),
            leverage=found.worst[0],
            leverage_expert=found.worst[1] // (len(self.roots) // K),
            certainty=self._certainty(found),
            levels=dict(zip(self.levels.names, np.rint(every).astype(int).tolist(), strict=True)),
            people=self.ids is not None,
        )

    # -- rows ---------------------------------------------------------------------------------

    def _parts(self, some: slice) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
        """Return of a block: its design, levels, parts in cells, leverages, what y is, weights."""
        model, block = self.model, self.rows.block(some)
        response = model.experts.observe(block.y)
        posterior = model.posterior(block.X, response, block.offset, groups=block.groups)
        X, r = to_numpy(block.X), to_numpy(posterior.responsibilities)
        weight = np.ones(len(X)) if block.weight is None else to_numpy(block.weight)
        heard = scaled(posterior.responsibilities, block.weight)
        curved = model.experts.fit_weights(posterior.eta, response, heard)[1]
        Q = model.experts.n_linear
        alone = [q * Q - q * (q - 1) // 2 for q in range(Q)]  # of a predictor with itself
        v = to_numpy(curved).reshape(len(X), -1, model.n_experts)[:, alone]
        v = v.swapaxes(1, 2).reshape(len(X), -1)  # (n, K Q)
        h = v * np.stack([quadratic(X, root) for root in self.roots], axis=1)
        y = _outcomes(model, to_numpy(block.y))
        by_row = posterior  # what is known of a row without the others of its group
        if block.groups is not None:
            by_row = model.posterior(block.X, response, block.offset)
        unknown = self._unknown(block.X, y, by_row)
        in_cells = r if model.n_experts == 1 else np.column_stack([r, np.ones(len(r))])
        C = len(self.levels.labels)
        own = y[:, None] == np.arange(C) if C > 1 else np.ones((len(X), 1), dtype=bool)
        in_cells = (in_cells[:, :, None] * own[:, None, :]).reshape(len(X), -1)
        counts = own * weight[:, None]
        return (
            h,
            self.levels.at(to_numpy(self.rows.X[some, :])),
            in_cells,
            (unknown.T * weight).T,
            counts,
            weight,
        )

    def _unknown(self, X: Array, y: Floats, posterior: Any) -> Floats:
        """Return what is not known of each y by one who knows x: a deviance or squares, (n,)."""
        experts = self.model.experts
        if experts.classifies:
            return -to_numpy(posterior.log_density)
        mean = to_numpy(experts.response(posterior.eta).mean)
        mean = np.einsum("nk,nk...->n...", to_numpy(posterior.gate_prob), mean)
        return np.asarray(np.square(y - mean))

    def _block(self, some: slice) -> _Sums:
        h, levels, part, unknown, counts, weight = self._parts(some)
        K, on = self.model.n_experts, weight > 0
        part = part * on[:, None]
        place = int(np.argmax(h)) if h.size else 0
        C = len(self.levels.labels)
        return _Sums(
            int(on.sum()),
            part[:, : K * C].sum(axis=0).reshape(K, C).sum(axis=1),
            levels.T @ part,
            levels.T @ part**2,
            unknown.sum(axis=0),
            counts.sum(axis=0),
            (float(h.flat[place]), place % h.shape[1]),
        )

    # -- people -------------------------------------------------------------------------------

    def _by_person(self) -> _Sums:
        """Return the sums with people in place of rows; all rows' parts are kept meanwhile."""
        slices = list(self.rows.slices())
        h, levels, part, unknown, counts, weight = (
            np.concatenate(parts) for parts in zip(*map(self._parts, slices), strict=True)
        )
        K, C, on = self.model.n_experts, len(self.levels.labels), weight > 0
        _, codes = np.unique(np.asarray(self.ids)[on], return_inverse=True)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        part, levels = part[on][order], levels[on][order]
        whole = part[:, : K * C].reshape(-1, K, C).sum(axis=2)
        cells = [np.maximum.reduceat(part * level[:, None], starts) for level in levels.T]
        return _Sums(
            len(starts),
            np.maximum.reduceat(whole, starts).sum(axis=0),
            np.reshape([cell.sum(axis=0) for cell in cells], (-1, part.shape[1])),
            np.reshape([(cell**2).sum(axis=0) for cell in cells], (-1, part.shape[1])),
            unknown.sum(axis=0),
            counts.sum(axis=0),
            self._worst_person(
                np.add.reduceat(h[on][order], starts), np.flatnonzero(on)[order], starts
            ),
        )

    def _worst_person(self, total: Floats, index: Floats, starts: Floats) -> tuple[float, int]:
        """Return the largest leverage of all rows of a person, from their sums (G, K Q).

        The sum bounds it; where it could matter, it is the largest eigenvalue.
        """
        ends = np.append(starts[1:], len(index))
        Q = self.model.experts.n_linear
        worst = (0.0, 0)
        for place in np.argsort(-total, axis=None):
            g, j = divmod(int(place), total.shape[1])
            value = float(total[g, j])
            if value <= worst[0]:
                break
            mine = index[starts[g] : ends[g]]
            if value > _SUSPECT and len(mine) > 1:
                value = self._largest(self.rows.take(mine), j // Q, j % Q)
            worst = max(worst, (value, j))
        return worst

    def _largest(self, rows: Rows, k: int, q: int) -> float:
        """Return the largest eigenvalue of some rows' part in what an expert rests on."""
        information = e_step(self.model, rows).experts.information[k, q, q]
        root = self.roots[k * self.model.experts.n_linear + q]
        return float(linalg.eigvalsh(root.T @ information @ root)[-1])

    # -- sums to figures ------------------------------------------------------------------------

    def _certainty(self, found: _Sums) -> float:
        """Return how much of y is known to one who knows x; of the response that is known best."""
        counts = found.counts
        if self.model.experts.classifies:
            some = counts[counts > 0]
            before = -float(some @ np.log(some / some.sum()))
            return 1.0 - float(found.unknown) / before if before > 0 else 1.0
        for part, spread in zip(
            self.model.experts.parts, np.atleast_1d(self.variance), strict=True
        ):
            var = part.dispersion
            if var is not None and np.any(var <= VARIANCE_FLOOR * (1 + 1e-3) * spread):
                return 1.0
        total = np.atleast_1d(self.variance * counts[0])
        left = np.atleast_1d(found.unknown) / np.where(total > 0, total, np.inf)
        return 1.0 - float(np.min(left)) ** 0.5
