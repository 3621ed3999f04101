"""What a target names: a column, ``successes/trials`` for two of them, or several responses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from otmoe.arrays.numerics import Floats

Column = tuple[str, str | None]
"""The column of a response, and that of its trials if it has one."""


def responses_of(target: str, names: Collection[str]) -> tuple[Column, ...]:
    """Return the columns of each response that a target names.

    Parameters
    ----------
    target : str
        The name of a column, or ``"successes/trials"``; or several of these with commas in between.
        A column of that very name comes first.
    names : collection of str
        Columns of the table. A target of none of them is returned as it is.

    Examples
    --------
    >>> responses_of("cost, deaths/total", ["centre", "cost", "deaths", "total"])
    (('cost', None), ('deaths', 'total'))
    >>> responses_of("km/h", ["km/h", "km", "h"])
    (('km/h', None),)
    """
    one = _response(target, names)
    parts = [part.strip() for part in target.split(",")]
    if one[0] in names or len(parts) == 1:
        return (one,)
    return tuple(_response(part, names) for part in parts)


def columns_of(responses: Sequence[Column]) -> list[str]:
    """Return all columns of some responses."""
    return [name for pair in responses for name in pair if name is not None]


def labels_of(responses: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of several responses; none where there is one."""
    return tuple(name for name, _ in responses) if len(responses) > 1 else ()


def read_responses(responses: Sequence[Column], values: Callable[[str], Floats]) -> Floats:
    """Return y, (n,), or (n, C) for several responses or successes and failures.

    Parameters
    ----------
    responses : sequence of Column
    values : callable
        Returns the values of a column, (n,).
    """
    columns = []
    for name, trials in responses:
        found = values(name)
        columns += [found] if trials is None else [found, values(trials) - found]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def _response(target: str, names: Collection[str]) -> Column:
    if target not in names:
        parts = target.split("/")
        for i in range(1, len(parts)):
            successes, trials = "/".join(parts[:i]).strip(), "/".join(parts[i:]).strip()
            if successes in names and trials in names:
                return successes, trials
    return target, None
