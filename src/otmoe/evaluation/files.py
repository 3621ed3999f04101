"""How good a model is on rows in files, batch by batch, site by site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from otmoe.data.features import FeatureSpec
from otmoe.data.shards.files import find, named, names_for
from otmoe.data.shards.gathering import tallied, target_values, weights
from otmoe.data.shards.sources import open_source
from otmoe.data.tables import labels
from otmoe.data.tally import Tally
from otmoe.evaluation.prediction import spec_of
from otmoe.evaluation.scores import Score, score_rows
from otmoe.model.mixture import MoE
from otmoe.text.arguments import renamed
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error
from otmoe.workers.gather import Progress


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on the rows of some files.

    Attributes
    ----------
    total : Score
    sites : dict of Score
        By site, sorted, where a column of sites was named.
    dropped : int
        Rows left out because a value is missing.
    missing : mapping of int
        Rows in which a column is missing, by its name.
    """

    total: Score
    sites: dict[str, Score]
    dropped: int
    missing: Mapping[str, int] = field(default_factory=dict, repr=False)


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
) -> Evaluation:
    """Evaluate a model on the rows of some files; memory does not grow with their number.

    Parameters
    ----------
    model : MoE
    data : path, or sequence of paths
        As in :func:`otmoe.shards_from`.
    target : str
        Column of the response.
    features : FeatureSpec, optional
        How columns become features; by default the columns ``model.terms[1:]`` are numbers.
    weight, site_column : str, optional
        Columns of case weights, and of the sites to be told apart.
    missing : {"error", "drop"}
        What to do about rows with missing values.
    progress : callable, optional
        Called as progress(files done, files in all, name of the one that has just ended).
    offset : str, optional
        Column of the known part of the linear predictors, if the model was fitted with one.
    sep : str, optional
        What separates columns of CSV files; by default as their headers have it.

    Returns
    -------
    Evaluation
    """
    columns = _Columns(model, spec_of(model, features), target, weight, site_column, offset)
    files = find(data)
    scores: dict[str, Score] = {}
    read, gaps = 0, Counter[str]()
    for i, (file, name) in enumerate(zip(files, names_for(files), strict=True)):
        with named(name):
            tally = Tally()
            for batch in open_source(file, sep).batches(columns.names, columns.texts):
                for place, score in columns.scores(batch, tally):
                    scores[place] = scores[place] + score if place in scores else score
            tally.check(missing, columns.spec.unknown)
            read += tally.n_rows
            gaps.update(tally.missing)
        if progress is not None:
            progress(i + 1, len(files), name)
    if not scores:
        raise InvalidInput(Error.NO_ROWS_TO_EVALUATE)
    total = reduce(add, scores.values())
    sites = {} if site_column is None else dict(sorted(scores.items()))
    return Evaluation(total, sites, read - total.n_rows, gaps)


@dataclass(frozen=True)
class _Columns:
    """What is read, and what becomes of a batch of it."""

    model: MoE
    spec: FeatureSpec
    target: str
    weight: str | None
    site: str | None
    offset: str | None = None

    @property
    def names(self) -> list[str]:
        roles = [self.target, self.weight, self.site, self.offset]
        return list(dict.fromkeys([*self.spec.names, *(name for name in roles if name)]))

    @property
    def labelled(self) -> bool:
        return self.model.classes is not None and self.model.classes.dtype.kind == "U"

    @property
    def texts(self) -> list[str]:
        """Columns that are read as text, whatever they look like in CSV."""
        found = [column.name for column in self.spec.columns if column.kind == "category"]
        return [
            *found,
            *([self.target] if self.labelled else []),
            *([self.site] if self.site else []),
        ]

    def scores(self, batch: pa.RecordBatch, tally: Tally) -> Iterator[tuple[str, Score]]:
        """Yield the scores of the sites in a batch; rows that the tally objects to are not in."""
        X = np.empty((batch.num_rows, len(self.spec.feature_names)))
        self.spec.encode_batch(batch, tally, X)
        y, absent = target_values(batch.column(self.target), self.target, tally, self.labelled)
        keep = np.isfinite(X).all(axis=1) & ~absent
        if not self.labelled:
            keep &= np.isfinite(y)
        w, place = np.ones(len(y)), np.full(len(y), "")
        if self.weight is not None:
            w = weights(batch.column(self.weight), self.weight, tally)
            keep &= (w >= 0) & (w < np.inf)
        if self.site is not None:
            place, absent = labels(batch.column(self.site), self.site)
            tally.missing[self.site] += int(absent.sum())
            keep &= ~absent
        known = None
        if self.offset is not None:
            known = tallied(batch.column(self.offset), self.offset, tally)
            keep &= np.isfinite(known)
        for name in np.unique(place[keep]).tolist():
            here = keep & (place == name)
            yield (
                name,
                score_rows(
                    self.model, X[here], y[here], w[here], None if known is None else known[here]
                ),
            )
