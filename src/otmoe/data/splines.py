"""Natural cubic splines: a basis that is orthogonal to a straight line (maths 19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from otmoe.arrays.numerics import Floats, row_blocks
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

LEAST_KNOTS, MOST_KNOTS = 3, 50
"""Three knots are the fewest that bend a line."""

OUTER = 0.02
"""Share of the sample beyond the first knot, and beyond the last."""

CLOSEST = 1e-6
"""Distance of neighbouring knots, as a share of the distance of the outer ones."""

_NODES, _SHARES = np.polynomial.legendre.leggauss(4)  # exact for products of cubics


@dataclass(frozen=True)
class Basis:
    """The natural cubic splines with some knots, less the straight lines among them.

    They are cubic between knots, twice continuously differentiable, and straight beyond the outer
    knots. The m - 2 columns are orthogonal to 1 and x, and orthonormal, under the reference
    distribution: equal mass between neighbouring knots, uniform there. Knots at equally spaced
    quantiles make it resemble that of the data. Knots alone determine the basis.

    Attributes
    ----------
    knots : tuple of m float
        Increasing.
    """

    knots: tuple[float, ...]

    def __call__(self, x: Floats) -> Floats:
        """Return the columns at some values, NaN at NaN.

        Parameters
        ----------
        x : ndarray of shape (n,)

        Returns
        -------
        ndarray of shape (n, m - 2)
        """
        first, width = self.knots[0], self.knots[-1] - self.knots[0]
        out = np.empty((len(x), len(self.knots) - 2))
        for rows in row_blocks(len(x), len(self.knots)):
            u = (x[rows] - first) / width
            inside = np.clip(u, 0.0, 1.0)
            with np.errstate(invalid="ignore"):  # infinities are refused elsewhere
                lead = np.column_stack([np.ones_like(u), inside, _powers(inside, self._unit)])
                columns = lead @ self._mix
                for end, slope in zip((0.0, 1.0), self._slopes, strict=True):
                    beyond = u < 0 if end == 0.0 else u > 1
                    columns[beyond] += np.outer(u[beyond] - end, slope)
            out[rows] = columns
        return out

    @cached_property
    def _unit(self) -> Floats:
        """The knots, moved and scaled to [0, 1]."""
        knots = np.array(self.knots)
        return np.asarray((knots - knots[0]) / (knots[-1] - knots[0]))

    @cached_property
    def _mix(self) -> Floats:
        """The combination of 1, u and powers that each column is, (m, m - 2)."""
        m, width = len(self.knots), np.diff(self._unit)
        u = (self._unit[:-1, None] + width[:, None] * (_NODES + 1) / 2).ravel()
        share = np.tile(_SHARES / 2, m - 1) / (m - 1)
        lead = np.column_stack([np.ones_like(u), u, _powers(u, self._unit)])
        root = np.linalg.qr(np.sqrt(share)[:, None] * lead, mode="r")
        root *= np.sign(np.diag(root))[:, None]  # the one with a positive diagonal
        return np.linalg.inv(root)[:, 2:]

    @cached_property
    def _slopes(self) -> Floats:
        """Slopes beyond the first and the last knot, (2, m - 2)."""
        lead = np.zeros((2, len(self.knots)))
        lead[:, 1] = 1.0
        lead[1, 2:] = _end_slopes(self._unit)
        return lead @ self._mix


def _powers(u: Floats, knots: Floats) -> Floats:
    """Return the natural splines that are zero left of a knot each, at u in [0, 1]; (n, m - 2)."""
    cubes = [np.maximum(u - t, 0.0) ** 3 for t in knots[:-1]]
    last = cubes[-1] / (1.0 - knots[-2])
    return np.column_stack(
        [cube / (1.0 - t) - last for cube, t in zip(cubes[:-1], knots[:-2], strict=True)]
    )


def _end_slopes(knots: Floats) -> Floats:
    """Return the slopes of these at the last knot, (m - 2,)."""
    return np.asarray(3 * (1.0 - knots[:-2]) - 3 * (1.0 - knots[-2]))


def knots_of(x: Floats, df: int, name: str, weight: Floats | None = None) -> tuple[float, ...]:
    """Return df + 1 knots that suit some values: equally spaced quantiles.

    The outer ones leave two percent of the values beyond each. Where quantiles coincide, those of
    the distinct values are taken.

    Parameters
    ----------
    x : ndarray of shape (n,)
        Missing values do not count.
    df : int
        Degrees of freedom of the curve beside the intercept, the slope included; at least 2.
    name : str
        Of the column, for errors.
    weight : ndarray of shape (n,), optional

    Examples
    --------
    >>> knots_of(np.arange(1001.0), 4, "x")
    (20.0, 260.0, 500.0, 740.0, 980.0)
    """
    check_df(df, name)
    seen = np.isfinite(x)
    x, weight = x[seen], None if weight is None else weight[seen]
    levels = np.linspace(OUTER, 1 - OUTER, df + 1)
    distinct = np.unique(x)
    if len(distinct) <= df:
        raise InvalidInput(Error.SPLINE_FEW_VALUES, column=name, values=len(distinct), df=df)
    if weight is None:
        knots = np.quantile(x, levels)
    else:
        knots = np.quantile(x, levels, weights=weight, method="inverted_cdf")
    if too_close(knots):
        knots = np.quantile(distinct, levels)
    return tuple(float(f"{knot:.10g}") for knot in knots)


def check_df(df: int, name: str) -> None:
    """Refuse degrees of freedom that make too few or too many knots."""
    if not LEAST_KNOTS <= df + 1 <= MOST_KNOTS:
        raise InvalidInput(
            Error.SPLINE_DF, column=name, df=df, least=LEAST_KNOTS - 1, most=MOST_KNOTS - 1
        )


def too_close(knots: Sequence[float] | Floats) -> bool:
    """Say whether some knots coincide, nearly so, or do not increase."""
    gaps, width = np.diff(knots), knots[-1] - knots[0]
    close = CLOSEST * max(width, CLOSEST * float(np.max(np.abs(knots))))
    return bool(np.any(gaps <= close))
