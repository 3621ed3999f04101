"""Checks of what users hand over: one clear sentence that names the offender."""

from __future__ import annotations

from numbers import Integral, Number
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_array_api_obj
from sklearn import get_config
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from otmoe.arrays.numerics import Array, Floats, like, namespace, to_numpy
from otmoe.text.errors import InvalidInput, MissingPackage
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    import pandas as pd


def generator(random_state: Any) -> np.random.Generator:
    """Return a Generator for anything scikit-learn takes as a random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def float_types(X: Any) -> list[Any]:
    """Return the float types X may keep, in its own namespace under scikit-learn's dispatch."""
    dispatch = get_config()["array_api_dispatch"] and is_array_api_obj(X)
    xp = namespace(X) if dispatch else np
    return [xp.float64, xp.float32]


def check_whole(name: str, value: Any) -> None:
    """Refuse what is no whole number of at least 1."""
    if not isinstance(value, Integral) or value < 1:
        raise InvalidInput(Error.NOT_WHOLE, name=name, value=value)


def check_weight(sample_weight: Any, X: Array) -> Array | None:
    """Return valid case weights, or None; refuse negative ones, and none above zero."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Number):
        sample_weight = np.full(X.shape[0], sample_weight)
    weight = _column(sample_weight, X, "sample_weight")
    if np.any(weight < 0):
        row = int(np.flatnonzero(weight < 0)[0])
        raise InvalidInput(Error.WEIGHT_OF_ROW, row=row, value=weight[row])
    if not np.any(weight > 0):
        raise InvalidInput(Error.ROWS_WITHOUT_WEIGHT)
    return like(weight, X)


def check_offset(offset: Any, X: Array) -> Array | None:
    """Return a valid offset, or None."""
    return None if offset is None else like(_column(offset, X, "offset"), X)


def check_counts(y: Floats) -> None:
    """Refuse a target of counts that is negative or fractional."""
    wrong = np.flatnonzero((y < 0) | (y != np.floor(y)))
    if len(wrong):
        raise InvalidInput(Error.NOT_COUNTS, value=y[wrong[0]], row=wrong[0])


def class_codes(y: Floats, classes: Floats) -> Floats:
    """Return the place of each label among the classes, (n,); refuse labels that are not there."""
    order = np.argsort(classes)  # a model from elsewhere may have its own
    places = np.searchsorted(classes, y, sorter=order)
    codes = order[np.minimum(places, len(order) - 1)]
    unknown = classes[codes] != y
    if np.any(unknown):
        raise InvalidInput(
            Error.CLASS_UNKNOWN, label=y[unknown].tolist()[0], classes=classes.tolist()
        )
    return codes.astype(np.float64)


def _column(values: Any, X: Array, name: str) -> Floats:
    """Return one finite number per row of X."""
    column = check_array(to_numpy(values), ensure_2d=False, dtype=np.float64, input_name=name)
    if column.shape != (X.shape[0],):
        raise InvalidInput(Error.ONE_PER_ROW, name=name, shape=column.shape, wanted=(X.shape[0],))
    return column


def explained(error: ValueError, X: Any) -> ValueError:
    """Say which column holds text, where scikit-learn only says that a conversion failed."""
    if "could not convert string" not in str(error):
        return error
    text = []
    if hasattr(X, "columns"):
        text = [str(name) for name in X.columns if not _is_numeric(X[name])]
    where = (
        "X"
        if not text
        else f"column {text[0]!r} of X"
        if len(text) == 1
        else f"the columns {text} of X"
    )
    hold = "hold" if len(text) > 1 else "holds"
    return InvalidInput(Error.TEXT_IN_X, columns=where, hold=hold, error=error)


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
        raise MissingPackage(Error.NO_PANDAS) from error
    table = pd.DataFrame(rows).T
    table.columns = pd.Index([f"expert {k}" for k in table.columns])
    return table
