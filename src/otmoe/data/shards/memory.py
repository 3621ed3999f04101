"""Rows in memory, cut into shards; and what every way of cutting needs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.arrays.stretches import starts_of
from otmoe.data.features import MAX_LEVELS, FeatureSpec
from otmoe.data.responses import Column, labels_of, read_responses
from otmoe.data.shards.files import named
from otmoe.data.shards.reading import ArrayShard, Missing, Shard
from otmoe.data.tables import array, as_arrow, is_table, is_text, names_of, numbers, texts
from otmoe.data.tally import Tally
from otmoe.likelihood.sharing import group_codes
from otmoe.text.errors import InvalidInput, InvalidType, MessageError, ShardError
from otmoe.text.notices import OtmoeWarning
from otmoe.text.records import Record, Site, typed
from otmoe.text.sentences import Error, Warn

Cut = Literal["file", "row_group"] | int

_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")

# -- names, cuts, features -----------------------------------------------------------------------


class _Named(Record):
    site: Site


def checked(name: str) -> str:
    """Return the name of a shard if a message can carry it."""
    try:
        return typed(_Named, {"site": name}, f"shard {name[:200]!r}").site
    except MessageError as error:
        raise error.about("", ShardError) from None


def numbered(n_shards: int) -> list[str]:
    """Return names for shards that have none."""
    return [f"shard {i + 1:0{len(str(n_shards))}d}" for i in range(n_shards)]


def bounds(n_rows: int, n_shards: int) -> list[int]:
    """Return where to cut rows into shards whose sizes differ by one at most."""
    if n_shards > n_rows:
        raise ShardError(Error.CUT_TOO_FINE, cut=n_shards, rows=n_rows)
    return [i * n_rows // n_shards for i in range(n_shards + 1)]


def default_columns(names: Sequence[str], roles: Collection[str]) -> list[str]:
    """Return the columns that are features unless some are named.

    The index of a frame that was written as a nameless column is none; a warning names it.

    Parameters
    ----------
    names : sequence of str
    roles : collection of str
        Columns that are not features: target, weight, site, those in the names of folders.
    """
    index = [name for name in names if name not in roles and _INDEX.fullmatch(name)]
    if index:
        notice = Warn.INDEX_LEFT_OUT(column=index[0])
        warnings.warn(OtmoeWarning("features", [notice]), stacklevel=2)
    return [name for name in names if name not in roles and name not in index]


def spec_for(
    sample: Any,
    features: Any,
    roles: list[str],
    folders: Collection[str] = (),
    max_levels: int = MAX_LEVELS,
) -> FeatureSpec:
    """Return the specification that was given, or one that suits a sample.

    Parameters
    ----------
    sample : table
    features : FeatureSpec, sequence of str, or None for all columns
    roles : list of str
        Columns that are not features: target, weight, site.
    folders : collection of str
        Columns in the names of folders, which are features only where they are named.
    max_levels : int
        A category with more is refused.
    """
    if isinstance(features, str):
        raise InvalidType(Error.FEATURES_TEXT, value=features)
    if not isinstance(features, FeatureSpec):
        names = features
        if names is None:
            names = default_columns(names_of(sample), {*roles, *folders})
        features = FeatureSpec.from_sample(sample, list(names), max_levels=max_levels)
    for name in features.names:
        if name in roles:
            raise InvalidInput(Error.ROLE_AS_FEATURE, column=name)
    return features


def check_sites(values: pa.Array, site: str) -> None:
    """Refuse rows of no site."""
    if values.null_count:
        raise InvalidInput(Error.SITE_MISSING, column=site, count=values.null_count)


# -- rows in memory ------------------------------------------------------------------------------


def of_arrays(data: tuple[Any, ...], features: Any, missing: Missing) -> ArrayShard:
    """Return the arrays (X, y) or (X, y, weight) as one shard."""
    if len(data) not in (2, 3):
        raise InvalidType(Error.TUPLE_SIZE, size=len(data))
    X, y, weight = (*data, None)[:3]
    if is_table(X):
        with named("rows"):
            X, features = _encoded(X, features, [])
    elif features is not None:
        raise InvalidType(Error.FEATURES_OF_ARRAY)
    y, weight = np.asarray(to_numpy(y)), None if weight is None else np.asarray(to_numpy(weight))
    return ArrayShard("rows", X, y, weight, features, missing)


def of_table(
    data: Any,
    responses: Sequence[Column],
    features: Any,
    weight: str | None,
    groups: str | None,
    roles: list[str],
    missing: Missing,
    max_levels: int = MAX_LEVELS,
    offset: str | None = None,
) -> ArrayShard:
    """Return a table with named columns as one shard."""
    with named("rows"):
        table = as_arrow(data, roles)
        X, spec = _encoded(data, features, roles, max_levels)
        y = read_responses(responses, lambda name: _target(table, name, len(responses) == 1))
        w, known = (
            None if name is None else numbers(array(table.column(name), name), name)
            for name in (weight, offset)
        )
        beside = {}
        if groups is not None:
            found = texts(array(table.column(groups), groups), groups)
            beside[groups] = found.to_numpy(zero_copy_only=False)
    shard = ArrayShard("rows", X, y, w, spec, missing, beside, offset=known)
    return replace(shard, response_names=labels_of(responses))


def _target(table: Any, name: str, alone: bool) -> Floats:
    """Return the values of a column of y: numbers, or text where there is no other response."""
    column = array(table.column(name), name)
    if not is_text(column.type):
        return numbers(column, name)
    if not alone:
        raise InvalidInput(Error.TARGET_TEXT, column=name)
    return np.asarray(texts(column, name).to_numpy(zero_copy_only=False))


def _encoded(
    data: Any, features: Any, roles: list[str], max_levels: int = MAX_LEVELS
) -> tuple[Floats, FeatureSpec]:
    spec, tally = spec_for(data, features, roles, max_levels=max_levels), Tally()
    X = spec.encode_table(data, tally)
    tally.check("keep", spec.unknown)  # what is missing is counted when shards are read
    return X, spec


def cut_rows(whole: ArrayShard, cut: Cut) -> list[Shard]:
    """Return a shard in memory cut into several, in the order of its rows."""
    if cut == "row_group":
        raise InvalidInput(Error.NO_ROW_GROUPS)
    if cut == "file":
        return [whole]
    n_shards = int(cut)
    ends = bounds(whole.n_rows, n_shards)
    parts: list[Any] = [slice(*pair) for pair in pairwise(ends)]
    for labels in whole.beside.values():  # groups, whose rows stay together
        codes = group_codes(labels)
        order = np.argsort(codes, kind="stable")
        starts = starts_of(codes[order])
        cuts = sorted({int(starts[np.searchsorted(starts, end)]) for end in ends})
        parts = [order[begin:end] for begin, end in pairwise(cuts)]
    names = numbered(len(parts))
    return [_part(whole, part, name) for part, name in zip(parts, names, strict=True)]


def rows_by_site(whole: ArrayShard, data: Any, site: str) -> list[Shard]:
    """Return a shard in memory cut by the values of a column."""
    with named("rows"):
        values = texts(array(as_arrow(data, [site]).column(site), site), site)
        check_sites(values, site)
    encoded = values.dictionary_encode()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return [
        _part(whole, order[ends[i] : ends[i + 1]], names[i])
        for i in sorted(range(len(names)), key=names.__getitem__)
    ]


def _part(shard: ArrayShard, rows: Any, name: str) -> ArrayShard:
    weight, offset = (None if a is None else a[rows] for a in (shard.weight, shard.offset))
    return replace(
        shard,
        name=checked(name),
        X=shard.X[rows],
        y=shard.y[rows],
        weight=weight,
        offset=offset,
        beside={column: values[rows] for column, values in shard.beside.items()},
    )
