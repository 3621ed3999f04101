"""Checks of arguments, with one clear sentence that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Integral, Number
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from array_api_compat import is_array_api_obj
from sklearn import get_config
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from otmoe.arrays.numerics import Array, Floats, like, namespace, to_numpy
from otmoe.text.errors import InvalidInput, InvalidType, MissingPackage
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    import pandas as pd


_NAMED = 5  # columns with missing values that a sentence names


def generator(random_state: Any) -> np.random.Generator:
    """Return a Generator for anything that scikit-learn accepts as a random state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def float_types(X: Any) -> list[Any]:
    """Return the float types that X may keep, in its namespace under scikit-learn's dispatch."""
    dispatch = get_config()["array_api_dispatch"] and is_array_api_obj(X)
    xp = namespace(X) if dispatch else np
    return [xp.float64, xp.float32]


F = TypeVar("F", bound=Callable[..., Any])


def renamed(**names: str) -> Callable[[F], F]:
    """Return a decorator that refuses old names of keywords and names the new ones.

    Parameters
    ----------
    **names : str
        The new name, by the old one.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                facts = {"function": function.__name__, "old": old, "new": names[old]}
                raise InvalidType(Error.RENAMED, where="", at="", **facts)
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate


def check_whole(name: str, value: Any) -> None:
    """Refuse anything but a whole number of at least 1."""
    if not isinstance(value, Integral) or value < 1:
        raise InvalidInput(Error.NOT_WHOLE, name=name, value=value)


def check_weight(sample_weight: Any, X: Array) -> Array | None:
    """Return valid case weights, or None; refuse negative weights, and weights all zero."""
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


def _column(values: Any, X: Array, name: str) -> Floats:
    """Return one finite number per row of X."""
    column = check_array(to_numpy(values), ensure_2d=False, dtype=np.float64, input_name=name)
    if column.shape != (X.shape[0],):
        raise InvalidInput(Error.ONE_PER_ROW, name=name, shape=column.shape, wanted=(X.shape[0],))
    return column


def check_numbers(y: Any) -> None:
    """Refuse a target that is text."""
    values = np.asarray(to_numpy(y)) if is_array_api_obj(y) else np.asarray(y)
    if values.dtype.kind in "USO":
        try:
            values.astype(np.float64)
        except (TypeError, ValueError):
            if any(isinstance(value, str) for value in values.ravel()):
                raise InvalidInput(Error.TARGET_IS_TEXT) from None


def explained(error: ValueError, X: Any) -> ValueError:
    """Return an error that names the columns with text or missing values, unlike scikit-learn's."""
    if "contains NaN" in str(error):
        return _gaps(X) or error
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


def counted(missing: Mapping[str, int]) -> str:
    """Return how many values each column lacks, in words, largest counts first.

    Examples
    --------
    >>> counted({"age": 3, "sex": 0, "dose": 14})
    "14 of column 'dose', 3 of column 'age'"
    """
    most = sorted(((count, name) for name, count in missing.items() if count), reverse=True)
    said = [f"{count:,} of column {name!r}" for count, name in most[:_NAMED]]
    if len(most) > _NAMED:
        said.append(f"and some of {len(most) - _NAMED} more columns")
    return ", ".join(said)


def _gaps(X: Any) -> InvalidInput | None:
    """Return an error about the missing values of X; None if they cannot be counted."""
    names = getattr(X, "columns", None)
    try:
        table = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    missing = np.isnan(table).sum(axis=0) if table.ndim == 2 else np.zeros(0)
    if not missing.any():
        return None
    known = [f"x{j}" for j in range(len(missing))] if names is None else list(map(str, names))
    columns = counted({name: int(count) for name, count in zip(known, missing, strict=True)})
    return InvalidInput(Error.GAPS_IN_X, rows=len(table), columns=columns)


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
