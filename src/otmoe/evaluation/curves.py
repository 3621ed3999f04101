"""What a number does to the predictor of each expert or of the gate, as a curve (maths 19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec
from otmoe.data.terms import Spline
from otmoe.inference import Inference
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

N_GRID = 100
"""Values at which a curve is computed."""


@dataclass(frozen=True)
class Curve:
    """The effect of a number on one linear predictor, relative to a reference value.

    Attributes
    ----------
    column : str
    block : {"expert", "gate"}
    expert : int
    label : object
        The class that the predictor is about, in classifiers; else None.
    x : ndarray of shape (G,)
        In the units of the column.
    effect, low, high : ndarray of shape (G,)
        Difference of the predictor to that at the reference value, and its pointwise interval.
    reference : float
        Where the effect is zero: the middle knot.
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


def curves_of(
    found: Inference,
    features: FeatureSpec,
    column: str,
    *,
    block: Literal["expert", "gate"] = "expert",
    level: float = 0.95,
    n_grid: int = N_GRID,
) -> tuple[Curve, ...]:
    """Return the curve of a spline for each expert, or for each row of the gate.

    Interactions are left out: the curve is that where the other parts of products are zero.

    Parameters
    ----------
    found : Inference
    features : FeatureSpec
        Of the model.
    column : str
        A number with a spline.
    block : {"expert", "gate"}
    level : float in (0, 1)
    n_grid : int
    """
    splines = {term.column: term for term in features.terms if isinstance(term, Spline)}
    if column not in splines:
        raise InvalidInput(Error.NOT_ONE_OF, name="column", value=column, choices=sorted(splines))
    spline = splines[column]
    middle = float(np.median(spline.knots))
    x = np.linspace(spline.knots[0], spline.knots[-1], n_grid)
    number = next(c for c in features.columns if c.name == column)
    names = features.term_features[spline.name]

    def columns_at(values: Floats) -> Floats:
        return np.column_stack([(values - number.center) / number.scale, spline.basis(values)])

    away = columns_at(x) - columns_at(np.array([middle]))  # (G, m - 1)
    sections: dict[tuple[int, Any], dict[str, int]] = {}
    for j, row in enumerate(found.parameters):
        if row.block == block and row.expert is not None:
            sections.setdefault((row.expert, row.label), {})[row.term] = j
    curves = []
    for (expert, label), places in sections.items():
        seen = [i for i, name in enumerate(names) if name in places]
        matrix = np.zeros((n_grid, len(found.parameters)))
        matrix[:, [places[names[i]] for i in seen]] = away[:, seen]
        live = np.any(matrix != 0, axis=1)
        effect, low, high = np.zeros((3, n_grid))
        if live.any():
            rows = found.linear(matrix[live], level)
            effect[live] = [row.estimate for row in rows]
            low[live], high[live] = [row.low for row in rows], [row.high for row in rows]
        curves.append(Curve(column, block, expert, label, x, effect, low, high, middle))
    return tuple(curves)
