"""The effect of a numeric column on the predictor of each expert or of the gate (maths 19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec
from otmoe.data.terms import Spline
from otmoe.inference import Estimate
from otmoe.inference.terms import by_section
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

N_GRID = 100
"""Values at which a curve is computed."""


@dataclass(frozen=True)
class Curve:
    """The effect of a numeric column on one linear predictor, relative to a reference value.

    Attributes
    ----------
    column : str
    block : {"expert", "gate"}
    expert : int
    label : object
        The class of the predictor, for classifiers, or its response where there are several;
        otherwise None.
    x : ndarray of shape (G,)
        In the units of the column.
    effect, low, high : ndarray of shape (G,)
        Difference of the predictor from that at the reference value, and its pointwise interval.
    reference : float
        Value at which the effect is zero: the middle knot.
    """

    column: str
    block: str
    expert: int
    label: Any
    x: Floats
    effect: Floats
    low: Floats
    high: Floats
    reference: float


class Estimated(Protocol):
    """What knows linear combinations of the free parameters, with intervals."""

    @property
    def model(self) -> MoE:
        """That they are about."""
        ...

    def linear(self, matrix: Floats, level: float, /) -> tuple[Estimate, ...]:
        """Return linear combinations (m, P) with intervals."""
        ...


def curves_of(
    found: Estimated,
    features: FeatureSpec,
    column: str,
    *,
    block: Literal["expert", "gate"] = "expert",
    level: float = 0.95,
    n_grid: int = N_GRID,
    at: Sequence[float] | None = None,
) -> tuple[Curve, ...]:
    """Return the curve of a spline for each expert, or for each row of the gate.

    Interactions are left out: the curve holds if the other factors of products are zero.

    Parameters
    ----------
    found : Inference, or FiledInference
    features : FeatureSpec
        Of the model.
    column : str
        A numeric column with a spline.
    block : {"expert", "gate"}
    level : float in (0, 1)
    n_grid : int
        Values between the outer knots.
    at : sequence of float, optional
        Values of the column, instead.
    """
    splines = {term.column: term for term in features.terms if isinstance(term, Spline)}
    if column not in splines:
        raise InvalidInput(Error.NOT_ONE_OF, name="column", value=column, choices=sorted(splines))
    spline = splines[column]
    middle = float(np.median(spline.knots))
    x = np.linspace(spline.knots[0], spline.knots[-1], n_grid)
    if at is not None:
        x, n_grid = np.asarray(at, dtype=np.float64), len(at)
    number = next(c for c in features.columns if c.name == column)
    names = features.term_features[spline.name]

    def columns_at(values: Floats) -> Floats:
        return np.column_stack([(values - number.center) / number.scale, spline.basis(values)])

    away = columns_at(x) - columns_at(np.array([middle]))  # (G, m - 1)
    away[x == middle] = 0.0  # rounding
    curves = []
    for section, places in by_section(found.model).items():
        if section.block != block or section.expert is None:
            continue
        seen = [i for i, name in enumerate(names) if name in places]
        matrix = np.zeros((n_grid, found.model.n_parameters))
        matrix[:, [places[names[i]] for i in seen]] = away[:, seen]
        live = np.any(matrix != 0, axis=1)
        effect, low, high = np.zeros((3, n_grid))
        if live.any():
            rows = found.linear(matrix[live], level)
            effect[live] = [row.estimate for row in rows]
            low[live], high[live] = [row.low for row in rows], [row.high for row in rows]
        about = column, block, section.expert, section.label
        curves.append(Curve(*about, x, effect, low, high, middle))
    return tuple(curves)
