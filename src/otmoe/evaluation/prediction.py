"""Predictions for rows in files, batch by batch, written to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec
from otmoe.data.shards.files import find, named, names_for
from otmoe.data.shards.gathering import tallied
from otmoe.data.shards.sources import open_source
from otmoe.data.shards.writing import write_batches
from otmoe.data.tally import Tally
from otmoe.estimators import MoEClassifier, MoERegressor
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.sentences import Error
from otmoe.workers.gather import Progress


def spec_of(model: MoE, features: FeatureSpec | None) -> FeatureSpec:
    """Return how columns are encoded as features of a model; as plain numbers by default."""
    spec = features or FeatureSpec.of_names(model.terms[1:])
    if spec.feature_names != model.terms[1:]:
        raise InvalidInput(Error.OTHER_FEATURES)
    return spec


@dataclass(frozen=True)
class Predictor:
    """What to predict, and which columns to keep.

    Attributes
    ----------
    model : MoE
    features : FeatureSpec, optional
        How columns are encoded; by default the columns ``model.terms[1:]``, as numbers.
    quantiles : sequence of float
        Levels between 0 and 1, for regressors.
    expert : bool
        Whether to give the most probable expert, numbered from 0.
    proba : bool
        Whether to give the probability of every class, for classifiers.
    keep : sequence of str
        Columns of the data to copy to the output. From CSV they are copied as text, unless they
        are numeric features.
    missing : {"error", "keep"}
        Whether to raise an error for rows in which a feature is missing, or to leave their
        prediction empty.
    offset : str, optional
        Column with the offset of the linear predictors, if the model was fitted with one.
    sep : str, optional
        Separator of CSV files; by default inferred from the header.

    Examples
    --------
    >>> from otmoe import simulate
    >>> truth = simulate(10, 2, 3, random_state=0).truth
    >>> Predictor(truth, quantiles=(0.05, 0.95), expert=True).columns
    ('prediction', 'q0.05', 'q0.95', 'expert')

    Several responses have a column each, as in ``prediction(y0)``.
    """

    model: MoE
    features: FeatureSpec | None = None
    quantiles: Sequence[float] = ()
    expert: bool = False
    proba: bool = False
    keep: Sequence[str] = ()
    missing: Literal["error", "keep"] = "error"
    offset: str | None = None
    sep: str | None = None

    def __post_init__(self) -> None:
        labelled = self.model.classes is not None
        if self.model.experts.responses and len(self.quantiles):
            raise InvalidType(Error.JOINT_NO_QUANTILES)
        if labelled and len(self.quantiles):
            raise InvalidInput(Error.QUANTILES_OF_CLASSES)
        if self.proba and not labelled:
            raise InvalidInput(Error.PROBA_OF_NUMBERS)
        for level in self.quantiles:
            if not 0 < level < 1:
                raise InvalidInput(Error.NOT_A_LEVEL, name="quantiles", value=level)
        if self.missing not in ("error", "keep"):
            raise InvalidInput(
                Error.NOT_ONE_OF, name="missing", value=self.missing, choices=["error", "keep"]
            )
        spec_of(self.model, self.features)
        names = [*self.keep, *self.columns]
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        if twice:
            raise InvalidInput(Error.OUTPUT_COLUMN_TWICE, column=twice[0])

    @property
    def spec(self) -> FeatureSpec:
        """How columns are encoded as features."""
        return spec_of(self.model, self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the predicted columns."""
        classes = () if self.model.classes is None or not self.proba else self.model.classes
        responses = [f"prediction({name})" for name in self.model.experts.responses]
        return (
            *(responses or ["prediction"]),
            *(f"q{level:g}" for level in self.quantiles),
            *(f"p({label})" for label in np.asarray(classes).tolist()),
            *(("expert",) if self.expert else ()),
        )

    def predict(self, X: Floats, offset: Floats | None = None) -> dict[str, Floats]:
        """Return the predictions for rows without missing values, by column.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        offset : ndarray of shape (n,), optional
        """
        model = replace(self.model, feature_names=None)  # X has no names
        if model.classes is not None:
            classifier = MoEClassifier.from_model(model)
            found = [classifier.predict(X, offset=offset)]
            if self.proba:
                found += list(classifier.predict_proba(X, offset=offset).T)
        else:
            regressor = MoERegressor.from_model(model)
            mean = regressor.predict(X, offset=offset)
            found = [mean] if mean.ndim == 1 else list(mean.T)
            if len(self.quantiles):
                found += list(regressor.predict_quantile(X, self.quantiles, offset=offset).T)
        if self.expert:
            found.append(np.argmax(model.gate_prob(X), axis=1))
        return dict(zip(self.columns, found, strict=True))

    def write(
        self, data: Any, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> int:
        """Write predictions for all rows of some files, in order, and return their number.

        Memory does not grow with the rows. If anything fails, no partial file remains and an
        existing file is unchanged.

        Parameters
        ----------
        data : path, or sequence of paths
            As in :func:`otmoe.shards_from`.
        path : str or path
            Parquet or CSV, by its extension.
        progress : callable, optional
            Called as progress(files done, total number of files, name of the file just read).
        """
        files = find(data)
        names = names_for(files)
        with named(names[0]):
            source = open_source(files[0], self.sep)
            fields = source.fields(list(self.keep), self._texts)
        types = {field.name: _plain(field.type) for field in fields}
        types |= {name: pa.array(v).type for name, v in self.predict(self._any_row).items()}
        schema = pa.schema(types)

        def batches() -> Iterator[pa.RecordBatch]:
            for i, (file, name) in enumerate(zip(files, names, strict=True)):
                with named(name):
                    yield from self._batches(file, schema)
                if progress is not None:
                    progress(i + 1, len(files), name)

        return write_batches(path, schema, batches())

    @property
    def _any_row(self) -> Floats:
        return np.zeros((1, self.model.n_features))

    @property
    def _texts(self) -> list[str]:
        """Columns that are read as text."""
        spec = self.spec
        categories = [column.name for column in spec.columns if column.kind == "category"]
        numbers = {*spec.names, *self._known}
        return categories + [name for name in self.keep if name not in numbers]

    @property
    def _known(self) -> list[str]:
        return [] if self.offset is None else [self.offset]

    def _batches(self, file: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        spec, tally, wrong = self.spec, Tally(), False
        columns = list(dict.fromkeys([*spec.names, *self.keep, *self._known]))
        for batch in open_source(file, self.sep).batches(columns, self._texts):
            X = np.empty((batch.num_rows, len(spec.feature_names)))
            spec.encode_batch(batch, tally, X)
            offset = None
            if self.offset is not None:
                offset = tallied(batch.column(self.offset), self.offset, tally)
            wrong = wrong or not self._fine(tally)
            if not wrong:  # otherwise the rest is only counted, for the error
                yield self._predicted(batch, X, offset, schema)
        tally.check(self.missing, spec.unknown)

    def _fine(self, tally: Tally) -> bool:
        try:
            tally.check(self.missing, self.spec.unknown)
        except ValueError:
            return False
        return True

    def _predicted(
        self, batch: pa.RecordBatch, X: Floats, offset: Floats | None, schema: pa.Schema
    ) -> pa.RecordBatch:
        arrays = [batch.column(name).cast(schema.field(name).type) for name in self.keep]
        there = np.isfinite(X).all(axis=1)
        if offset is not None:
            there &= np.isfinite(offset)
            offset = offset[there]
        if there.any():
            rows = pa.array(np.cumsum(there) - 1, mask=~there)
            arrays += [
                pa.array(found).take(rows) for found in self.predict(X[there], offset).values()
            ]
        else:
            arrays += [pa.nulls(len(X), schema.field(name).type) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type, which CSV cannot write; others unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
