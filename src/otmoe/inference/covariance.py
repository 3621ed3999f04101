"""From the information to the covariance of the parameters, where it exists (maths 15)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats
from otmoe.inference.parameters import parameters, unseen
from otmoe.likelihood.information import Information
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import InferenceError
from otmoe.text.sentences import Error

RIDGE_SHARE = 0.04
"""Share of a weak ridge in what is known of a parameter from which rows do not determine it.

Where a gate separates the rows, or a class those of an expert, its coefficients run off until the
ridge holds them; its share is then 1 / (1 + log(n / alpha)) or more, however small alpha is: from
5 % in practice (maths 15). `python -m benchmarks constants` halves and doubles it.
"""

AS_GIVEN = Scaling()
"""The user's own scale."""

NEAR = 0.1
"""Standard errors from the maximum, where coverage is 0.949 in place of 0.95 (maths 15)."""

NEITHER = 1e6
"""In place of the share of the ridge, where neither rows nor ridge hold any information."""

_ONE_ROW = 0.72  # information that rows must hold where the ridge is a prior: about one row's
_BLIND = 1e-12  # what rows know of a direction that they say nothing about: its inverse is finite
_ROUNDING = 1e-12  # of a combination of fixed parameters
_HELD = 0.5  # part of a parameter's variance from such directions that makes it one of them


@dataclass(frozen=True)
class Covariance:
    """Covariance of the free parameters, some of which the rows may leave undetermined (maths 15).

    Attributes
    ----------
    basis : ndarray of shape (P, q)
        Columns are directions, uncorrelated both for the rows and for the ridge, about which rows
        and ridge together hold information 1; there are as many as free parameters.
    share : ndarray of shape (q,)
        The part of that information which is not the rows'; `NEITHER` where there is none.
    core : ndarray of shape (q, q)
        The covariance is ``basis @ core @ basis.T``.
    pull : ndarray of shape (P,)
        What the ridge has taken from the parameters: the maximum without it is, to first order,
        at the parameters plus this.
    limit : ndarray of shape (q,)
        Share from which on the ridge holds a direction, and the rows do not determine it.
    """

    basis: Floats
    share: Floats
    core: Floats
    pull: Floats
    limit: Floats

    def _along(self, combinations: Floats) -> Floats:
        """Return linear combinations (m, P) in terms of the basis, (m, q); 0 for what is fixed."""
        parts = combinations @ self.basis
        largest = np.max(np.abs(combinations) @ np.abs(self.basis), axis=1, initial=0.0)
        rounding = np.max(np.abs(parts), axis=1, initial=0.0) <= _ROUNDING * largest
        return np.where(rounding[:, None], 0.0, parts)

    def held_part(self, combinations: Floats) -> Floats:
        """Return how much of a variance comes from directions that the ridge holds; (m,).

        Parameters
        ----------
        combinations : ndarray of shape (m, P)
            Linear combinations of the parameters, one per row.
        """
        parts = self._along(combinations) ** 2 * _variance(self.share, self.limit, 1 / _BLIND)
        total = parts.sum(axis=1)
        return np.asarray(parts @ (self.share > self.limit) / np.where(total > 0, total, 1.0))

    def determined(self, combinations: Floats) -> Floats:
        """Say which linear combinations (m, P) the rows determine, (m,)."""
        return self.held_part(combinations) <= _HELD

    def of(self, combinations: Floats) -> Floats:
        """Return the covariance of linear combinations (m, P), (m, m); NaN where not determined."""
        parts = self._along(combinations)
        found = parts @ self.core @ parts.T
        unknown = ~self.determined(combinations)
        found[unknown] = found[:, unknown] = np.nan
        return np.asarray(found)

    def standard_errors(self, combinations: Floats) -> Floats:
        """Return the standard errors of linear combinations (m, P), (m,); NaN if not determined."""
        parts = self._along(combinations)
        variance = np.sum((parts @ self.core) * parts, axis=1)
        known = self.determined(combinations)
        return np.sqrt(np.where(known, np.maximum(variance, 0.0), np.nan))

    @property
    def matrix(self) -> Floats:
        """Covariance of the parameters themselves, (P, P); NaN where the rows do not determine."""
        return self.of(np.eye(len(self.basis)))


def parameter_covariance(
    model: MoE,
    information: Information,
    penalty: Floats,
    *,
    scaling: Scaling = AS_GIVEN,
    outer: Floats | None = None,
) -> Covariance:
    """Return the covariance of the free parameters of a model that is at its maximum.

    The inverse of the rows' information, without the ridge but where the ridge holds a direction;
    or, with the sum of the outer products of scores, the sandwich.

    Parameters
    ----------
    model : MoE
        On the user's scale.
    information : Information
        At the model, summed over all rows.
    penalty : ndarray of shape (P, P)
        Matrix of the ridge that the model was fitted with; zeros for none.
    scaling : Scaling
        The scale of `information`, `penalty` and `outer`; by default the user's.
    outer : ndarray of shape (P, P), optional
        From :func:`otmoe.likelihood.information.score_outer`.
    """
    # 1) directions about which rows and ridge together hold information 1, if they hold any
    scaled = _scaled_basis(model, information, scaling)
    values, vectors, blind = _spectrum(scaled.T @ (information.matrix + penalty) @ scaled)
    root = vectors / np.sqrt(np.where(blind, 1.0, values))
    ridge = root.T @ (scaled.T @ penalty @ scaled) @ root
    ridge[blind] = ridge[:, blind] = 0.0
    ridge[blind, blind] = NEITHER
    # 2) turned so that the ridge's part of each is separate
    share, turn = np.linalg.eigh(ridge)
    basis = scaled @ (root @ turn)
    limit = _limits(model, penalty, basis)

    # 3) in that basis the rows' information is diagonal
    variance = _variance(share, limit, 0.0)
    core = np.diag(variance)
    if outer is not None:
        core = (variance[:, None] * (basis.T @ outer @ basis)) * variance
    pull = basis @ (variance * (basis.T @ (penalty @ scaling.from_user(model).to_vector())))
    to_user = scale_jacobian(model, scaling)
    to_user[unseen(model)] = 0.0  # an intercept that is fixed at zero, up to rounding
    return Covariance(to_user @ basis, share, core, to_user @ pull, limit)


def _variance(share: Floats, limit: Floats, unknown: float) -> Floats:
    """Return the variance along each direction: that of the rows, or the ridge's where it holds."""
    rows = 1 / np.maximum(1 - share, _BLIND)
    return np.asarray(np.where(share >= 0.5 * NEITHER, unknown, np.where(share > limit, 1.0, rows)))


def _limits(model: MoE, penalty: Floats, basis: Floats) -> Floats:
    """Return the share from which on the ridge holds a direction, (P,).

    A weak ridge should hold nothing, so that a small share is suspicious. One that is as strong as
    some rows is a prior, and what it has moved is said; there, the rows have to hold about as much
    as one row could. A direction has the limit of the ridge that bears on it most.
    """
    split = model.gate.n_parameters
    limits, parts = [], []
    for part in (slice(None, split), slice(split, None)):
        block = penalty[part, part]
        alpha = np.max(np.diagonal(block), initial=0.0)
        limits.append(max(RIDGE_SHARE, alpha / (alpha + _ONE_ROW)))
        parts.append(np.sum(basis[part] * (block @ basis[part]), axis=0))
    return np.asarray(np.where(parts[0] > parts[1], *limits))


def scale_jacobian(model: MoE, scaling: Scaling) -> Floats:
    """Return the derivative of the user's free parameters in the standardised ones, (P, P).

    The map is linear but for the logs of variances, which it shifts. A constant column has scale 1
    here: what such a column leaves undetermined on one scale is undetermined on the other.
    """
    P = model.n_parameters
    if scaling.x_center is None or scaling.x_scale is None:
        return np.eye(P)
    finite = np.where(np.isinf(scaling.x_scale), 1.0, scaling.x_scale)
    plain = replace(scaling, x_scale=finite, y_center=0.0)

    def to_user(vector: Floats) -> Floats:
        return plain.to_user(model.with_vector(vector)).to_vector()

    origin = to_user(np.zeros(P))
    return np.reshape([to_user(unit) - origin for unit in np.eye(P)], (P, P)).T


def distance_to_maximum(
    model: MoE, information: Information, penalty: Floats, *, scaling: Scaling = AS_GIVEN
) -> float:
    """Return how far the maximum is, in standard errors of the combination that is furthest off.

    The root of ``g' I^-1 g``: no linear combination of the parameters is further from its value at
    the maximum, in its standard errors. Infinite where the information is not positive definite.

    Parameters
    ----------
    model, information, penalty, scaling
        As in :func:`parameter_covariance`.
    """
    theta, scaled = scaling.from_user(model).to_vector(), _scaled_basis(model, information, scaling)
    values, vectors, blind = _spectrum(scaled.T @ (information.matrix + penalty) @ scaled)
    if np.any(values < -1e3 * RANK_TOLERANCE * np.max(values, initial=0.0)):
        return np.inf
    along = vectors.T @ (scaled.T @ (information.score - penalty @ theta))
    return float(np.sqrt(np.sum(along[~blind] ** 2 / values[~blind])))


def _scaled_basis(model: MoE, information: Information, scaling: Scaling) -> Floats:
    """Return C with columns in units in which information is comparable, (P, q) (maths 21)."""
    unit = _units(model, information)
    C = scaling.from_user(model).basis
    if C is None:
        return np.diag(unit)
    # what several parameters have in common is known as well as the best known of them
    return np.asarray(C * np.min(np.where(C != 0, unit[:, None], np.inf), axis=0))


def _units(model: MoE, information: Information) -> Floats:
    """Return units of the parameters in which information about them is comparable, (P,).

    A coefficient's unit is that of its column of the design, as the coefficient with the most
    information about it sees it: there, a gate that has run off has no information left. (With a
    unit of its own, every coefficient would look well known.)
    """
    names, unit = parameters(model), model.experts.coef_unit
    var = np.array([1.0 if n.block != "expert" else unit[n.expert] ** 2 for n in names])
    seen = np.abs(np.diagonal(information.matrix)) * var
    terms = np.array([n.term if n.block != "variance" else "" for n in names])
    most = np.array([seen[terms == term].max() for term in terms])
    return np.asarray(np.sqrt(var / np.where(most > 0, most, 1.0)))


def _spectrum(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """Return eigenvalues, eigenvectors, and which of the values count as zero."""
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors, values <= RANK_TOLERANCE * np.max(values, initial=0.0)


def check_at_maximum(distance: float) -> None:
    """Refuse standard errors for a model that is not at the maximum of the likelihood (maths 15).

    An interval is centred at the estimate: if that is off by more than a tenth of a standard error
    of any combination, the interval does not have its nominal coverage. This is the case for the
    one-round estimate, whose sites share a bias of order 1 / n_m.

    Parameters
    ----------
    distance : float
        From :func:`distance_to_maximum`.
    """
    if not distance <= NEAR:
        far = f"{distance:.2g} standard errors" if np.isfinite(distance) else "far"
        raise InferenceError(Error.NOT_AT_MAXIMUM, distance=far)


def one_round_refusal(method: str, n_sites: int) -> InferenceError:
    """Return the error for a model that was merged in one round and not refined."""
    return InferenceError(Error.ONE_ROUND, method=method, sites=n_sites)
