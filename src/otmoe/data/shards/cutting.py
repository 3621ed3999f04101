"""Split data into shards: by file, by row group, by site, or into n parts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats
from otmoe.arrays.stretches import starts_of
from otmoe.data.columns import check_marks
from otmoe.data.features import MAX_LEVELS, FeatureSpec
from otmoe.data.responses import Column, columns_of, responses_of
from otmoe.data.shards.files import find, named, names_for
from otmoe.data.shards.memory import (
    Cut,
    bounds,
    check_sites,
    checked,
    cut_rows,
    numbered,
    of_arrays,
    of_table,
    rows_by_site,
    spec_for,
)
from otmoe.data.shards.partitions import partitions_of
from otmoe.data.shards.reading import FileShard, Missing, Piece, Shard
from otmoe.data.shards.sources import open_source
from otmoe.data.tables import (
    array,
    check_names,
    described,
    is_number,
    is_table,
    is_text,
    names_of,
    texts,
)
from otmoe.text.arguments import renamed
from otmoe.text.errors import InvalidInput, InvalidType, ShardError
from otmoe.text.sentences import Error


@renamed(site="site_column")
def shards_from(
    data: Any,
    *,
    target: str | None = None,
    features: FeatureSpec | Sequence[str] | None = None,
    weight: str | None = None,
    site_column: str | None = None,
    groups: str | None = None,
    cut: Cut = "file",
    missing: Missing = "error",
    max_levels: int = MAX_LEVELS,
    sep: str | None = None,
    offset: str | None = None,
) -> list[Shard]:
    """Describe data as shards, to be read by the workers.

    Parameters
    ----------
    data : path, sequence of paths, frame, or tuple of arrays
        Parquet, CSV, Feather or Arrow: a file, a folder, a pattern such as ``"data/*.parquet"``, a
        URL that pyarrow knows (``s3://``, ``gs://``, ``file://``), or several of these; folders
        such as ``site=a`` name a column, which can be the site. Or rows in memory: a table with
        named columns, or the arrays (X, y) or (X, y, weight).
    target : str
        Column of the response, unless data are arrays. Text is for classifiers;
        ``"successes/trials"`` names two columns, for the binomial family; several responses have
        commas in between.
    features : FeatureSpec or sequence of str, optional
        With names, or None for all other columns, the encoding is derived from the first rows by
        :meth:`FeatureSpec.from_sample`: a category then has the levels that occur there. A
        specification is preferable.
    weight : str, optional
        Column of case weights.
    site_column : str, optional
        Column with the site of each row: one shard for each of its values, named after it.
    groups : str, optional
        Column with the group of each row, such as the person: not a feature, but available for
        ``inference_shards(shards, groups=...)`` and ``fit_shards(shards, groups=...)``. A numeric
        `cut` is made between groups; in files, between groups of adjacent rows.
    cut : {"file", "row_group"} or int
        One shard per file, or per row group, or as many of nearly equal size, cut in the order of
        the rows.
    missing : {"error", "drop"}
        What reading does about rows with missing values.
    max_levels : int
        A category with more is refused, unless `features` is a specification.
    sep : str, optional
        What separates columns of CSV files: by default comma, semicolon, tab or bar, as the header
        of a file has it.
    offset : str, optional
        Column of the known part of the experts' linear predictors, such as the logarithm of an
        exposure.

    Returns
    -------
    list of FileShard or ArrayShard

    Examples
    --------
    >>> import numpy as np
    >>> from otmoe import shards_from
    >>> rows = {"y": [1.0, 2.0, 3.0], "age": [30, 40, 50], "city": ["Lyon", "Nantes", "Lyon"]}
    >>> [(shard.name, shard.n_rows) for shard in shards_from(rows, target="y", site_column="city")]
    [('Lyon', 2), ('Nantes', 1)]
    >>> shards_from(rows, target="y", features=["age"])[0].read().X.ravel()
    array([30., 40., 50.])
    """
    _check_options(site_column, cut, missing)
    if isinstance(data, tuple) and not all(isinstance(d, str | os.PathLike) for d in data):
        if any(name is not None for name in (target, weight, offset, site_column, groups)):
            raise InvalidType(Error.ARRAYS_HAVE_NO_COLUMNS)
        return cut_rows(of_arrays(data, features, missing), cut)
    if target is None:
        raise InvalidType(Error.TARGET_MISSING)
    beside = weight, offset, site_column
    if is_table(data):
        responses = responses_of(target, names_of(data))
        roles = _roles(columns_of(responses), beside, groups)
        how = missing, max_levels, offset
        whole = of_table(data, responses, features, weight, groups, roles, *how)
        return (
            cut_rows(whole, cut) if site_column is None else rows_by_site(whole, data, site_column)
        )
    files = find(data)
    names = names_for(files)
    name, sample = _first_rows(files, names, sep)
    responses = responses_of(target, sample.schema.names)
    roles = _roles(columns_of(responses), beside, groups)
    with named(name):
        spec, labels = _looked_up(sample, files[0], responses, features, roles, max_levels)
    plan = FileShard("", (), responses[0][0], spec, weight, labels, missing=missing, sep=sep)
    plan = replace(plan, offset=offset, responses=responses)
    if site_column is not None:
        return list(_by_site(plan, files, names, site_column))
    if cut == "row_group":
        return list(_by_row_group(plan, files, names))
    if cut != "file":
        return list(_recut(plan, files, names, int(cut), groups))
    return [
        replace(plan, name=checked(name), pieces=(Piece(file),))
        for file, name in zip(files, names, strict=True)
    ]


def _check_options(site: str | None, cut: Cut, missing: Missing) -> None:
    whole = isinstance(cut, int | np.integer) and not isinstance(cut, bool)
    if not (cut in ("file", "row_group") or (whole and int(cut) > 0)):
        raise InvalidInput(Error.CUT_WRONG, value=cut)
    if site is not None and cut != "file":
        raise InvalidInput(Error.SITE_AND_CUT)
    if missing not in ("error", "drop"):
        raise InvalidInput(
            Error.NOT_ONE_OF, name="missing", value=missing, choices=["drop", "error"]
        )


def _roles(responses: Sequence[str], beside: Sequence[str | None], groups: str | None) -> list[str]:
    """Return the columns that are no features; refuse one that is meant to be two of them."""
    roles = [name for name in (*responses, *beside) if name is not None]
    if len(set(roles)) < len(roles):
        raise InvalidInput(Error.ROLES_SHARED, columns=roles)
    if groups is not None and groups != beside[-1]:  # the rows of a site may be a group
        if groups in roles:
            raise InvalidInput(Error.ROLES_SHARED, columns=[*roles, groups])
        roles.append(groups)
    return roles


def _first_rows(files: list[str], names: list[str], sep: str | None) -> tuple[str, pa.Table]:
    """Return the name and the first rows of a file.

    A file that is empty or cannot be read tells nothing; the next is asked.
    """
    samples: list[tuple[str, pa.Table]] = []
    trouble: list[ShardError] = []
    for file, name in zip(files, names, strict=True):
        try:
            with named(name):
                samples.append((name, open_source(file, sep).sample()))
        except ShardError as error:
            trouble.append(error)
            continue
        if samples[-1][1].num_rows:
            break
    if not samples:
        raise trouble[0]
    return samples[-1]


def _looked_up(
    sample: pa.Table,
    file: str,
    responses: Sequence[Column],
    features: Any,
    roles: list[str],
    max_levels: int,
) -> tuple[FeatureSpec, bool]:
    """Return the features, and whether the target is text, as the first rows of a file have it."""
    check_names(roles, sample.schema.names)
    labels = [_is_text(sample, target) for target, _ in responses]
    if len(responses) > 1 and any(labels):
        raise InvalidInput(Error.TARGET_TEXT, column=responses[labels.index(True)][0])
    return spec_for(sample, features, roles, partitions_of(file), max_levels), labels[0]


def _is_text(sample: pa.Table, target: str) -> bool:
    """Say whether a response is text; refuse one that is neither that nor a number."""
    kind = sample.schema.field(target).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (is_text(kind) or is_number(kind) or pa.types.is_null(kind)):
        raise InvalidInput(Error.TARGET_KIND, column=target, kind=described(kind))
    if is_text(kind):
        seen = texts(array(sample.column(target), target), target).unique().to_pylist()
        check_marks([label for label in seen if label is not None], target)
    return bool(is_text(kind))


def _groups(
    files: list[str], names: list[str], sep: str | None
) -> Iterator[tuple[str, str, list[int]]]:
    """Yield each file, its name, and the rows at which its row groups end, 0 first."""
    for file, name in zip(files, names, strict=True):
        with named(name):
            yield file, name, list(accumulate(open_source(file, sep).groups, initial=0))


def _by_row_group(plan: FileShard, files: list[str], names: list[str]) -> Iterator[FileShard]:
    for file, name, ends in _groups(files, names, plan.sep):
        for i in range(len(ends) - 1):
            piece = Piece(file, ends[i], ends[i + 1])
            yield replace(plan, name=checked(f"{name}#{i}"), pieces=(piece,))


def _recut(
    plan: FileShard, files: list[str], names: list[str], n_shards: int, groups: str | None
) -> Iterator[FileShard]:
    """Cut the rows of all files, one after another, into shards of nearly equal size.

    With groups, none is cut whose rows are next to each other.
    """
    sizes = [ends[-1] for _, _, ends in _groups(files, names, plan.sep)]
    begins = list(accumulate(sizes, initial=0))
    cuts = bounds(begins[-1], n_shards)
    if groups is not None:
        starts = _group_starts(files, names, groups, plan.sep)
        cuts = sorted({int(starts[np.searchsorted(starts, cut)]) for cut in cuts})
    for i, name in enumerate(numbered(len(cuts) - 1)):
        first, last = cuts[i], cuts[i + 1]
        pieces = tuple(
            Piece(file, max(first - begin, 0), min(last - begin, size))
            for file, begin, size in zip(files, begins, sizes, strict=False)
            if begin < last and begin + size > first
        )
        yield replace(plan, name=name, pieces=pieces)


def _group_starts(files: list[str], names: list[str], column: str, sep: str | None) -> Floats:
    """Return where groups of neighbouring rows begin in all files together, and the end."""
    codes: dict[str | None, int] = {}
    found = []
    for file, name in zip(files, names, strict=True):
        with named(name):
            source = open_source(file, sep)
            for batch in source.batches([column], [column], 0, sum(source.groups)):
                labels = texts(batch.column(column), column).to_pylist()
                found.append([codes.setdefault(label, len(codes)) for label in labels])
    return starts_of(np.concatenate([*found, []]).astype(np.int64))


def _by_site(plan: FileShard, files: list[str], names: list[str], site: str) -> Iterator[FileShard]:
    """Split the rows by the values of a column; a row group without a site is not read for it."""
    pieces: dict[str, list[Piece]] = {}
    sizes: Counter[str] = Counter()
    for file, name in zip(files, names, strict=True):
        with named(name):
            source = open_source(file, plan.sep)
            for start, stop in pairwise(accumulate(source.groups, initial=0)):
                found: Counter[str] = Counter()
                for batch in source.batches([site], [site], start, stop):
                    values = texts(batch.column(site), site)
                    check_sites(values, site)
                    for item in values.value_counts():
                        found[item["values"].as_py()] += item["counts"].as_py()
                for value in found:
                    before = pieces.setdefault(value, [])
                    if before and before[-1].path == file and before[-1].stop == start:
                        before[-1] = before[-1]._replace(stop=stop)
                    else:
                        before.append(Piece(file, start, stop))
                sizes.update(found)
    for value in sorted(pieces):
        yield replace(
            plan,
            name=checked(value),
            pieces=tuple(pieces[value]),
            site=(site, value),
            size=sizes[value],
        )
