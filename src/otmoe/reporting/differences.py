"""What the page shows about differences between sites, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.inference.between import Between
from otmoe.inference.effects import SiteEffect, Spread
from otmoe.inference.estimates import quantile
from otmoe.inference.readout import (
    SPREAD_LEVEL,
    coefficient_heading,
    coefficient_name,
    remarks,
)
from otmoe.text.notices import Notice
from otmoe.text.sentences import Finding

_CHANCE = 0.01  # p value below which sites are said to differ


def differences(between: Between, level: float) -> dict[str, Any]:
    """Return blocks, coefficients and sites; unknown values are None.

    Parameters
    ----------
    between : Between
    level : float
        Of the intervals.
    """
    about = between.coefficients(level)
    notes = [
        Finding.SPREAD_SCALE(),
        *remarks(between.common, between.prior, between.spreads),
    ]
    return {
        "n_sites": between.prior.n_sites,
        "n_samples": between.prior.n_samples,
        "design_effect": between.prior.design_effect,
        "level": level,
        "spread_level": SPREAD_LEVEL,
        "quantile": quantile(level),
        "spreads": [_spread(spread) for spread in between.spreads],
        "overall": _spread(between.overall),
        "coefficients": [
            {
                "group": coefficient_heading(row, between.common),
                "name": coefficient_name(row),
                "expert": row.expert,
                **{key: _short(getattr(row, key)) for key in ("mean", "se", "tau", "low", "high")},
            }
            for row in about
        ],
        "sites": [_site(site) for site in between.sites],
        "scale": " ".join(map(str, notes)),
        "warnings": [str(warning) for warning in between.warnings],
    }


def finding(between: Between) -> Notice | None:
    """Return the finding on whether sites differ, if that was tested."""
    found = between.overall
    if not np.isfinite(found.p_value):
        return None
    if found.p_value >= _CHANCE:
        return Finding.SITES_ALIKE(p=found.p_value)
    return Finding.SITES_NOT_ALIKE(i2=found.i2)


def _spread(spread: Spread) -> dict[str, Any]:
    found = asdict(spread) | {"i2": spread.i2}
    return {key: _short(v) if isinstance(v, float) else v for key, v in found.items()}


def _site(site: SiteEffect) -> dict[str, Any]:
    known = np.isfinite(site.error)
    return {
        "site": site.site,
        "n_samples": site.n_samples,
        "q": _short(site.q),
        "p_value": _short(site.p_value),
        "estimate": _numbers(np.where(known, site.estimate, np.nan)),
        "error": _numbers(site.error),
        "shrunk": _numbers(site.shrunk),
        "shrunk_error": _numbers(site.shrunk_error),
        "comparison": None if site.comparison is None else asdict(site.comparison),
    }


def _numbers(values: Floats) -> Sequence[float | None]:
    return [_short(value) for value in values.tolist()]


def _short(value: float) -> float | None:
    """Return a number with six digits: with many sites, these numbers are most of the page."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
