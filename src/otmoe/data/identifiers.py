"""Columns that look like identifiers: rows that share a value may not be independent."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from otmoe.data.features import FeatureSpec
from otmoe.data.tables import array, as_arrow, is_table, is_text, names_of
from otmoe.text.errors import OtmoeError
from otmoe.text.notices import Notice
from otmoe.text.sentences import Warn

_WHO = "person|patient|subject|participant|respondent|individual"
_ID = re.compile(
    # a word of its own at either end (id, patient_id, patientId, id-no), or someone, with or
    # without a number; "paid", "width" and "persons" are neither
    rf"(.*[^a-z0-9])?(id|uid|uuid|guid|identifier)|id[^a-z0-9].*|({_WHO})[^a-z0-9]*(id|no|nr|number)?"
)


def is_identifier(name: Any) -> bool:
    """Say whether the name of a column is that of an identifier.

    Examples
    --------
    >>> from otmoe.data.identifiers import is_identifier
    >>> [is_identifier(name) for name in ("id", "patient_id", "patientId", "Person", "SUBJECTID")]
    [True, True, True, True, True]
    >>> [is_identifier(name) for name in ("width", "paid", "grid", "persons", "identity_score")]
    [False, False, False, False, False]
    """
    if not isinstance(name, str):
        return False
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())  # patientId, patientID
    return _ID.fullmatch(words.lower()) is not None


def shared_ids(X: Any) -> tuple[Notice, ...]:
    """Return a notice for every column of a frame that is an identifier of several rows each.

    That is: it has the name of one, whole numbers or text, and from 2 to n / 2 different values. A
    flag, whose values are 0 and 1, is none. Anything but a frame has no names, and no notices.

    Parameters
    ----------
    X : frame of shape (n, d), or any array
    """
    if not is_table(X):
        return ()
    try:
        names = [name for name in names_of(X) if is_identifier(name)]
        return tuple(
            Warn.ROWS_SHARE_AN_ID(column=name)
            for name in names
            if _repeats(array(as_arrow(X, [name]).column(name), name))
        )
    except OtmoeError:  # validating X will raise the error
        return ()


def _repeats(column: pa.Array) -> bool:
    """Say whether values are labels, of which some occur more than once."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    values = pc.drop_null(pc.unique(column))
    if not 2 <= len(values) <= len(column) / 2:
        return False
    if is_text(column.type):
        return True
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return False
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    whole = bool(np.all(numbers == np.floor(numbers)))
    return whole and set(numbers.tolist()) != {0.0, 1.0}


def ids_among(features: FeatureSpec | None) -> tuple[Notice, ...]:
    """Return a notice for every column of a specification that has the name of an identifier.

    Rows are not looked at: those of shards are elsewhere.
    """
    names = () if features is None else features.names
    return tuple(Warn.ROWS_SHARE_AN_ID(column=name) for name in names if is_identifier(name))
