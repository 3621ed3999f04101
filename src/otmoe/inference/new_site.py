"""One more site: the deviations of its parameters, and how far away they may lie (maths 18)."""

from __future__ import annotations

import numpy as np
from scipy import stats

from otmoe.arrays.numerics import Floats
from otmoe.inference.spread import known_share
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE

_WEIGHTS = np.array([0.185, 0.63, 0.185])  # of an uncertain scale's 5, 50 and 95 % quantiles
_HALVINGS = 50  # of the bracket of a quantile


def new_strength(strength: float, rows: float, n_parameters: int) -> float:
    """Return the factor of the deviations for a site that has not taken part (maths 18).

    A strength above 1 was chosen by fits to as many rows as sites have. With fewer it would let the
    most probable model follow the noise, so it counts as far as the rows tell of the parameters.

    Parameters
    ----------
    strength : float
    rows : float
        Of the site, over the design effect.
    n_parameters : int
    """
    return strength if strength <= 1 else 1 + (strength - 1) * known_share(rows, n_parameters)


def deviations(F: Floats, tau: Floats) -> Floats:
    """Return the deviations of the parameters for those of the coordinates in which F is, (P,)."""
    return np.sqrt(np.einsum("ij,ij->i", F, F * tau**2))


def mixture_quantile(at: float, scale: Floats, df: int) -> Floats:
    """Return a quantile above a half of Student variables of uncertain scale, (P,).

    Parameters
    ----------
    at : float
    scale : ndarray of shape (3, P)
        Its quantiles at 5, 50 and 95 %, which have the weights of Pearson and Tukey.
    df : int
    """
    low, high = stats.t.ppf(at, df) * np.sort(scale, axis=0)[[0, -1]]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        z = np.divide(middle, scale, out=np.full(scale.shape, np.inf), where=scale > 0)
        below = _WEIGHTS @ stats.t.cdf(z, df) < at
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(high)


def units(here: MoE, scaling: Scaling) -> Floats:
    """Return what a number on the user's scale is multiplied with on standardised features, (P,).

    Intercepts stay those at the average of the features.
    """
    if scaling.x_scale is None:
        return np.ones(here.n_parameters)
    scale = np.append(1.0, scaling.x_scale)
    columns = slice(None) if here.gate.columns is None else list(here.gate.columns)
    return np.concatenate(
        [
            np.tile(scale[columns], here.n_experts - 1),
            np.tile(scale, here.n_experts * here.experts.n_linear),
            np.ones(here.n_experts * here.experts.n_constant),
        ]
    )
