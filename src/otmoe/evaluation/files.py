"""Evaluation on rows in files, batch by batch and by site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec
from otmoe.data.responses import Column, columns_of, labels_of, responses_of
from otmoe.data.shards.files import find, named, names_for
from otmoe.data.shards.gathering import response_values, tallied, weights
from otmoe.data.shards.sources import open_source
from otmoe.data.tables import labels
from otmoe.data.tally import Tally
from otmoe.evaluation.prediction import spec_of
from otmoe.evaluation.scores import Score, score_rows
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.sharing import GroupSums
from otmoe.model.mixture import MoE
from otmoe.model.target import Target
from otmoe.text.arguments import renamed
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error
from otmoe.workers.gather import Progress

_PENDING = 2**16  # groups that wait to be joined with those before; it affects memory alone


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on the rows of some files.

    Attributes
    ----------
    total : Score
    sites : dict of Score
        By site, sorted; empty if no column of sites was named.
    dropped : int
        Rows dropped because a value is missing.
    missing : mapping of int
        Number of rows with a missing value, by column.
    n_groups : int, optional
        Number of groups whose rows share their expert; None if rows were looked at one by one.
    """

    total: Score
    sites: dict[str, Score]
    dropped: int
    missing: Mapping[str, int] = field(default_factory=dict, repr=False)
    n_groups: int | None = None


@renamed(site="site_column")
def evaluate_files(
    model: MoE,
    data: Any,
    target: str,
    *,
    features: FeatureSpec | None = None,
    weight: str | None = None,
    site_column: str | None = None,
    missing: Literal["error", "drop"] = "error",
    progress: Progress | None = None,
    offset: str | None = None,
    sep: str | None = None,
    groups: str | None = None,
) -> Evaluation:
    """Evaluate a model on the rows of some files, in memory that does not grow with the rows.

    With `groups` it grows with their number.

    Parameters
    ----------
    model : MoE
    data : path, or sequence of paths
        As in :func:`otmoe.shards_from`.
    target : str
        Column of the response, or ``"successes/trials"``; several have commas in between.
    features : FeatureSpec, optional
        How columns are encoded; by default the columns ``model.terms[1:]``, as numbers.
    weight, site_column : str, optional
        Columns of case weights, and of sites to be scored separately.
    missing : {"error", "drop"}
        Whether to raise an error for rows with missing values, or to drop them.
    progress : callable, optional
        Called as progress(files done, total number of files, name of the file just read).
    offset : str, optional
        Column with the offset of the linear predictors, if the model was fitted with one.
    sep : str, optional
        Separator of CSV files; by default inferred from the header.
    groups : str, optional
        If rows of a group share their expert: column with the group of each row. The log-likelihood
        is then that of groups, whose rows may lie in several files; otherwise each row is looked at
        alone, as the only one of its group.

    Returns
    -------
    Evaluation
    """
    if groups is not None and model.expert_per == "row":
        raise InvalidInput(Error.GROUPS_NOT_SHARED)
    spec, files = spec_of(model, features), find(data)
    scores: dict[str, Score] = {}
    sums: dict[str, list[GroupSums]] = {}
    read, gaps = 0, Counter[str]()
    for i, (file, name) in enumerate(zip(files, names_for(files), strict=True)):
        with named(name):
            tally, source = Tally(), open_source(file, sep)
            responses = responses_of(target, source.names)
            Target.of(model).check_names(labels_of(responses))
            columns = _Columns(model, spec, responses, weight, site_column, offset, groups)
            for batch in source.batches(columns.names, columns.texts):
                for place, score, some in columns.scores(batch, tally):
                    scores[place] = scores[place] + score if place in scores else score
                    if some is not None:
                        sums[place] = _together([*sums.get(place, []), some], model)
            tally.check(missing, spec.unknown)
            read += tally.n_rows
            gaps.update(tally.missing)
        if progress is not None:
            progress(i + 1, len(files), name)
    if not scores:
        raise InvalidInput(Error.NO_ROWS_TO_EVALUATE)
    found = {place: GroupSums.joined(parts, model) for place, parts in sums.items()}
    _check_apart(found)
    for place, each in found.items():
        shared = {**scores[place].sums, "log_likelihood": each.log_likelihood}
        scores[place] = replace(scores[place], sums=shared)
    total = reduce(add, scores.values())
    sites = {} if site_column is None else dict(sorted(scores.items()))
    n_groups = None if groups is None else sum(len(each.labels) for each in found.values())
    return Evaluation(total, sites, read - total.n_rows, gaps, n_groups)


def _together(parts: list[GroupSums], model: MoE) -> list[GroupSums]:
    """Return sums of groups as one part, as soon as the later parts outweigh the first."""
    sizes = [len(part.labels) for part in parts]
    return [GroupSums.joined(parts, model)] if sum(sizes[1:]) > max(sizes[0], _PENDING) else parts


def _check_apart(found: Mapping[str, GroupSums]) -> None:
    """Refuse a group with rows at two sites: its log-likelihood would be nobody's."""
    home: dict[Any, str] = {}
    for site, each in found.items():
        for label in each.labels.tolist():
            if (first := home.setdefault(label, site)) != site:
                places = {"first": first, "second": site}
                raise InvalidInput(Error.GROUP_AT_TWO_SITES, group=repr(label), **places)


@dataclass(frozen=True)
class _Columns:
    """The columns that are read, and how a batch of them is scored."""

    model: MoE
    spec: FeatureSpec
    responses: tuple[Column, ...]
    weight: str | None
    site: str | None
    offset: str | None = None
    groups: str | None = None

    @property
    def names(self) -> list[str]:
        roles = [*columns_of(self.responses), self.weight, self.site, self.offset, self.groups]
        return list(dict.fromkeys([*self.spec.names, *(name for name in roles if name)]))

    @property
    def labelled(self) -> bool:
        return self.model.classes is not None and self.model.classes.dtype.kind == "U"

    @property
    def texts(self) -> list[str]:
        """Columns that are read as text, even if they look like numbers in CSV."""
        found = [column.name for column in self.spec.columns if column.kind == "category"]
        return [
            *found,
            *([self.responses[0][0]] if self.labelled else []),
            *(name for name in (self.site, self.groups) if name),
        ]

    def scores(
        self, batch: pa.RecordBatch, tally: Tally
    ) -> Iterator[tuple[str, Score, GroupSums | None]]:
        """Yield the scores of the sites in a batch, without rows that the tally rejects.

        With groups, the sums of these come along.
        """
        X = np.empty((batch.num_rows, len(self.spec.feature_names)))
        self.spec.encode_batch(batch, tally, X)
        y, absent = response_values(batch, self.responses, tally, self.labelled)
        keep = np.isfinite(X).all(axis=1) & ~absent
        if not self.labelled:
            keep &= np.isfinite(y.reshape(len(y), -1)).all(axis=1)
        w, place, group = np.ones(len(y)), np.full(len(y), ""), None
        if self.weight is not None:
            w = weights(batch.column(self.weight), self.weight, tally)
            keep &= (w >= 0) & (w < np.inf)
        if self.site is not None:
            place, absent = labels(batch.column(self.site), self.site)
            tally.missing[self.site] += int(absent.sum())
            keep &= ~absent
        if self.groups is not None:
            group, absent = labels(batch.column(self.groups), self.groups)
            tally.missing[self.groups] += int(absent.sum())
            keep &= ~absent
        known = None
        if self.offset is not None:
            known = tallied(batch.column(self.offset), self.offset, tally)
            keep &= np.isfinite(known)
        for name in np.unique(place[keep]).tolist():
            here = keep & (place == name)
            seen = X[here], y[here], w[here], None if known is None else known[here]
            score = score_rows(self.model, *seen)
            yield name, score, None if group is None else self._sums(*seen, group[here])

    def _sums(
        self, X: Floats, y: Floats, weight: Floats, offset: Floats | None, group: Floats
    ) -> GroupSums:
        rows = Rows(X, Target.of(self.model).numbers(y), weight, offset)
        return GroupSums.of(self.model, rows, group)
