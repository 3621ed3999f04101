"""What ``otmoe inspect`` says about the terms of a refined model: tests, and curves with bands."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from otmoe.cli.tables import table_of

if TYPE_CHECKING:
    from otmoe import FeatureSpec
    from otmoe.documents.aggregation import AggregationRecord
    from otmoe.model.mixture import MoE

_SERIES = ("x", "effect", "low", "high")


def effects(
    model: MoE, features: FeatureSpec, how: AggregationRecord | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int | None]:
    """Return the tests of terms with several coefficients, and the curves of splines.

    Parameters
    ----------
    model : MoE
    features : FeatureSpec
        Of the model.
    how : AggregationRecord or None
        Its standard errors, if it has any; curves have no intervals without.

    Returns
    -------
    tests, curves : list of dict
        A curve is of one expert or row of the gate, at the knots.
    df : int or None
        Degrees of freedom of tests and intervals, where rows are in groups.
    """
    from otmoe.data.terms import Spline
    from otmoe.evaluation.curves import curves_of
    from otmoe.evaluation.filed import FiledInference
    from otmoe.model.gate import SoftmaxGate

    if not isinstance(model.gate, SoftmaxGate):  # an average of models has no curves of its own
        return [], [], None
    found = FiledInference.read(model, None if how is None else how.inference)
    several = {name: part for name, part in features.term_features.items() if len(part) > 1}
    tests = [asdict(test) for test in found.terms(several) if test.df > 1]
    curves = []
    for term in features.terms:
        if isinstance(term, Spline):
            blocks: tuple[Literal["expert", "gate"], ...] = ("expert", "gate")
            for block in blocks:
                for curve in curves_of(found, features, term.column, block=block, at=term.knots):
                    if curve.effect.any():  # else it does not see the column
                        numbers = {key: list(map(_known, getattr(curve, key))) for key in _SERIES}
                        curves.append(vars(curve) | numbers)
    return tests, curves, found.df


def effect_lines(
    tests: list[dict[str, Any]], curves: list[dict[str, Any]], df: int | None
) -> list[Any]:
    """Return these as tables."""
    from otmoe.inference.estimates import by_t
    from otmoe.inference.readout import p_text

    lines: list[Any] = []
    bands = ", with 95 % intervals" + (f" ({by_t(df)})" if df is not None else "")
    if tests:
        rows = [
            [t["term"], _who(t), f"{t['statistic']:.1f}", str(t["df"]), p_text(t["p"])]
            for t in tests
        ]
        lines += ["", "Joint tests of terms:"]
        statistic = "chi-square" if df is None else "T²"
        lines.append(table_of(["term", "in", statistic, "df", "P"], rows, {"term", "in"}))
    for column in dict.fromkeys(curve["column"] for curve in curves):
        mine = [curve for curve in curves if curve["column"] == column]
        rows = [
            [f"{x:.4g}", *(_band(c["effect"][i], c["low"][i], c["high"][i]) for c in mine)]
            for i, x in enumerate(mine[0]["x"])
        ]
        known = any(curve["low"] != curve["high"] for curve in mine)
        lines.append(
            f"spline({column}): effect on the linear predictor relative to {column} = "
            f"{mine[0]['reference']:.4g}{bands * known}:"
        )
        lines.append(table_of([column, *map(_who, mine)], rows))
    return lines


def _who(about: dict[str, Any]) -> str:
    where = f"{'gate, ' * (about['block'] == 'gate')}expert {about['expert']}"
    return where if about["label"] is None else f"{where}, {about['label']}"


def _known(value: float) -> float | None:
    return float(value) if isfinite(value) else None


def _band(effect: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{effect:.2g}"
    return "0" if low == high == 0 else f"{effect:.2g} [{low:.2g}, {high:.2g}]"
