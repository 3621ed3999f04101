"""Checks of what users hand over: one clear sentence that names the offender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from otmoe.numerics import Floats

if TYPE_CHECKING:
    import pandas as pd


def generator(random_state: Any) -> np.random.Generator:
    """Return a Generator for anything scikit-learn takes as a random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def check_weight(sample_weight: Any, X: Floats) -> Floats | None:
    """Return valid case weights, or None; refuse negative ones, and none above zero."""
    if sample_weight is None:
        return None
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weight < 0):
        row = int(np.flatnonzero(weight < 0)[0])
        raise ValueError(
            f"sample_weight is negative in row {row} ({weight[row]:g}): "
            "weights count rows, give zero or more."
        )
    if not np.any(weight > 0):
        raise ValueError("sample_weight is zero for every row: there is nothing to fit.")
    return weight


def explained(error: ValueError, X: Any) -> ValueError:
    """Say which column holds text, where scikit-learn only says that a conversion failed."""
    if "could not convert string" not in str(error):
        return error
    if hasattr(X, "columns"):
        text = [str(name) for name in X.columns if not _is_numeric(X[name])]
        where = (
            f"the columns {text} of X hold text"
            if len(text) != 1
            else f"column {text[0]!r} of X holds text"
        )
    else:
        where = "X holds text"
    return ValueError(
        f"{where}: encode it as numbers first, for example with OneHotEncoder ({error})."
    )


def _is_numeric(column: Any) -> bool:
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def as_table(rows: dict[str, Floats]) -> pd.DataFrame:
    """Return a data frame with a row per name and a column per expert."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "coefficient tables need pandas: install it with `pip install 'otmoe[pandas]'`, or "
            " read the arrays model_.experts.coef and model_.gate.coef."
        ) from error
    table = pd.DataFrame(rows).T
    table.columns = pd.Index([f"expert {k}" for k in table.columns])
    return table
