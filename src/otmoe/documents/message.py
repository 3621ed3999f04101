"""What a site sends, and model files: JSON that people can read and any language can write.

``docs/message.md`` describes the files field by field.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from numbers import Integral
from typing import Any, Self

import numpy as np
from array_api_compat import is_array_api_obj

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.data.sketch import N_COMPONENTS, Sketch
from otmoe.documents.model import MOST_SHARED, LocalModelRecord, ModelFileRecord, ModelRecord, check
from otmoe.documents.sketch import document_of, sketch_of
from otmoe.likelihood.fit import Fit
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import take_rows
from otmoe.model.experts import FAMILIES
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.arguments import check_weight, generator
from otmoe.text.errors import InvalidInput, MessageError
from otmoe.text.html import html_lines
from otmoe.text.notices import Notice
from otmoe.text.records import SCHEMA_VERSION, as_notice, notice_document
from otmoe.text.sentences import Error
from otmoe.text.strict_json import (
    BRACES,
    LIMITS,
    Limits,
    named,
    parse,
    read,
    shown,
    sizes_of,
    to_text,
    write_whole,
)

PARTS = ("model", "features", "constant_features", "grams", "sketch", "support")
"""Fields of a message whose bytes are counted apart."""

__all__ = ["LocalModel", "MessageError", "load_features", "load_model", "save_model"]


def versions_used() -> dict[str, str]:
    """Return the versions of otmoe, Python and NumPy, by name."""
    return {
        "otmoe": version("otmoe"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


@dataclass(frozen=True)
class LocalModel:
    """All that a site sends: its model, and how it came about.

    A local model is checked when it is made, whether by a fit, by hand or from a file.

    Attributes
    ----------
    site : str
        Name of the site, up to 200 characters.
    model : MoE
    n_samples : float
        Sum of the weights of the site's rows.
    log_likelihood : float
        Of the site's rows, without the penalty.
    converged : bool
    status : Notice
        How the fit ended; a bare sentence will do.
    warnings : tuple of Notice
        What one should know about the fit.
    constant : dict
        Features that had one and the same value in every row, so that their coefficients could not
        be estimated, by name (``model.terms[1:]``), and that value.
    versions : dict
        Of otmoe, Python and NumPy, by name.
    features : FeatureSpec, optional
        How the site's columns became the model's features; None for plain numbers.
    grams : Grams, optional
        Second moments of x as each expert sees the rows, if the site likes to send them.
    sketch : Sketch, optional
        A small mixture of the site's covariates, if it likes to send one.
    support : ndarray of shape (s, d), optional
        Rows of covariates, without y, if the site likes to send some.

    Examples
    --------
    >>> from otmoe import LocalModel, MoERegressor, simulate
    >>> data = simulate(500, 2, 3, random_state=0)
    >>> sent = MoERegressor(n_experts=2, random_state=0).fit(data.X, data.y).to_message(site="Lyon")
    >>> received = LocalModel.from_json(sent.to_json())
    >>> received.site, received.n_samples
    ('Lyon', 500.0)
    >>> bool(np.all(received.model.to_vector() == sent.model.to_vector()))
    True
    """

    site: str
    model: MoE
    n_samples: float
    log_likelihood: float
    converged: bool
    status: Notice
    warnings: tuple[Notice, ...] = ()
    constant: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions_used)
    features: FeatureSpec | None = None
    grams: Grams | None = None
    sketch: Sketch | None = None
    support: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", as_notice(self.status))
        object.__setattr__(self, "warnings", tuple(map(as_notice, self.warnings)))
        check(self._document(), f"site {shown(self.site)}")

    @classmethod
    def from_fit(
        cls,
        fit: Fit,
        site: str,
        feature_names: Sequence[str] | None = None,
        classes: Any = None,
        features: FeatureSpec | None = None,
    ) -> Self:
        """Return the message about a fit.

        Parameters
        ----------
        fit : Fit
        site : str
            Name of the site, up to 200 characters.
        feature_names : sequence of d str, optional
            By default those of `features`, if given.
        classes : array-like of shape (C,), optional
            Class labels: text, numbers or booleans.
        features : FeatureSpec, optional
            How columns became the d features.
        """
        if feature_names is None and features is not None:
            feature_names = features.feature_names
        model = replace(
            fit.model,
            feature_names=None if feature_names is None else tuple(feature_names),
            classes=None if classes is None else np.asarray(classes),
        )
        return cls(
            site=site,
            model=model,
            n_samples=float(fit.n_samples),
            log_likelihood=float(fit.log_likelihood),
            converged=bool(fit.converged),
            status=fit.status,
            warnings=tuple(fit.warnings),
            constant={model.terms[j + 1]: value for j, value in fit.constant.items()},
            features=features,
        )

    def with_support(
        self,
        X: Any,
        *,
        sketch: bool | int = False,
        share: int = 0,
        sample_weight: Any = None,
        random_state: Any = 0,
    ) -> Self:
        """Return the message with what the site likes to say about its covariates.

        Parameters
        ----------
        X : array-like of shape (n, d)
            The rows of the fit, without y.
        sketch : bool or int
            Whether to send a :class:`~otmoe.data.sketch.Sketch` of them, or of how many components
            at most.
        share : int
            Number of rows to send as they are, drawn at random; all of them if there are fewer.
        sample_weight : array-like of shape (n,), optional
            For the sketch.
        random_state : int, Generator or None
        """
        if not isinstance(share, Integral) or not 0 <= share <= MOST_SHARED:
            raise InvalidInput(Error.SHARE_WRONG, value=share, most=MOST_SHARED)
        rng = generator(random_state)
        X = X if is_array_api_obj(X) else np.asarray(X)
        changes: dict[str, Any] = {}
        if sketch:
            weight = check_weight(sample_weight, X)
            total = float(X.shape[0] if weight is None else np.sum(to_numpy(weight)))
            if not np.isclose(total, self.n_samples, rtol=1e-6):
                raise InvalidInput(Error.OTHER_ROWS, rows=total, fitted=self.n_samples)
            changes["sketch"] = Sketch.fit(
                X,
                features=self.features,
                sample_weight=weight,
                n_components=N_COMPONENTS if sketch is True else sketch,
                random_state=rng,
            )
        if share:
            n = int(X.shape[0])
            index = np.sort(rng.choice(n, min(int(share), n), replace=False))
            changes["support"] = np.asarray(take_rows(X, index), dtype=np.float64)
        return replace(self, **changes)

    def _repr_html_(self) -> str:
        sizes = self.sizes
        sent = ", ".join(f"{name.replace('_', ' ')} {size:,}" for name, size in sizes.items())
        return (
            html_lines(
                f"Message of site {self.site}",
                f"{self.n_samples:,.10g} rows, log-likelihood {self.log_likelihood:.6g}; "
                f"{'' if self.converged else 'NOT CONVERGED: '}{self.status}",
                f"{sum(sizes.values()):,} bytes: {sent}",
                *(f"warning: {text}" for text in self.warnings),
            )
            + "<br>"
            + self.model._repr_html_()
        )

    def support_document(self) -> dict[str, Any]:
        """Return what the message says about the site's covariates, as it stands in its file."""
        part: dict[str, Any] = {}
        if self.sketch is not None:
            part["sketch"] = document_of(self.sketch, self.model.terms[1:])
        if self.support is not None:
            part["support"] = np.asarray(self.support).tolist()
        return part

    def _document(self) -> dict[str, Any]:
        return {
            "otmoe": "local model",
            "schema_version": SCHEMA_VERSION,
            "site": self.site,
            "n_samples": self.n_samples,
            "log_likelihood": self.log_likelihood,
            "fit": {
                "converged": self.converged,
                "status": notice_document(self.status),
                "warnings": list(map(notice_document, self.warnings)),
            },
            "constant_features": self.constant,
            **features_part(self.features),
            "model": model_document(self.model),
            **({} if self.grams is None else {"grams": self.grams.document()}),
            **self.support_document(),
            "versions": self.versions,
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the message by part; `about` is all that is no part of its own."""
        document = self._document()
        found = sizes_of(document)
        parts = {name: found.pop(name) for name in PARTS if document.get(name)}
        return {"about": sum(found.values()) + BRACES, **parts}

    def to_json(self) -> str:
        """Return the message as JSON text; the same numbers come back from it, to the last bit."""
        document = self._document()
        check(document, f"site {shown(self.site)}")  # arrays may have been changed in place
        return to_text(document) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "message", limits: Limits = LIMITS) -> Self:
        """Read a message, or raise a :class:`MessageError` that says what is wrong with it.

        Parameters
        ----------
        text : str or bytes
            JSON; bytes are UTF-8.
        source : str
            Where the text comes from; an error begins with it.
        limits : Limits
            How much is read.
        """
        record = check(parse(text, source, limits), source, limits)
        if not isinstance(record, LocalModelRecord):
            raise MessageError(Error.MODEL_WITHOUT_SITE, where=source, at="otmoe")
        return cls(
            site=record.site,
            model=model_of(record.model),
            n_samples=record.n_samples,
            log_likelihood=record.log_likelihood,
            converged=record.fit.converged,
            status=record.fit.status,
            warnings=tuple(record.fit.warnings),
            constant=record.constant_features,
            versions=record.versions,
            features=_features(record),
            grams=None if record.grams is None else Grams.from_record(record.grams),
            **_support(record),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the message to a file, whole or not at all.

        Parameters
        ----------
        path : str or path
            Its folder has to exist.
        """
        write_whole(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str], limits: Limits = LIMITS) -> Self:
        """Read a message from a file, or raise a :class:`MessageError` that says what is wrong.

        Parameters
        ----------
        path : str or path
        limits : Limits
            How much is read.
        """
        return cls.from_json(read(path, limits), named(path), limits)


def save_model(
    model: MoE,
    path: str | os.PathLike[str],
    about: dict[str, Any] | None = None,
    features: FeatureSpec | None = None,
    aggregation: dict[str, Any] | None = None,
) -> None:
    """Write a model to a file, whole or not at all.

    Parameters
    ----------
    model : MoE
    path : str or path
        Its folder has to exist.
    about : dict, optional
        What else the file should say: text, numbers or booleans by name. It is there for readers
        of the file; :func:`load_model` does not return it.
    features : FeatureSpec, optional
        How columns become the model's features; :func:`load_features` returns it.
    aggregation : dict, optional
        How the model was merged, from :meth:`otmoe.Aggregation.document`, for ``otmoe report``;
        :meth:`otmoe.Aggregation.save` writes a model with it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from otmoe import load_model, save_model, simulate
    >>> truth = simulate(10, 2, 3, random_state=0).truth
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "truth.moe.json")
    ...     save_model(truth, path, about={"made by": "simulate"})
    ...     bool(np.all(load_model(path).to_vector() == truth.to_vector()))
    True
    """
    document = {
        "otmoe": "model",
        "schema_version": SCHEMA_VERSION,
        "about": {} if about is None else about,
        **features_part(features),
        "model": model_document(model),
        **({} if aggregation is None else {"aggregation": aggregation}),
        "versions": versions_used(),
    }
    check(document, "model")
    write_whole(path, to_text(document) + "\n")


def load_model(path: str | os.PathLike[str], limits: Limits = LIMITS) -> MoE:
    """Read a model from a file that :func:`save_model` or :meth:`LocalModel.save` has written.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.

    Returns
    -------
    MoE
    """
    return model_of(load_record(path, limits).model)


def load_record(
    path: str | os.PathLike[str], limits: Limits = LIMITS
) -> LocalModelRecord | ModelFileRecord:
    """Read a model file or a message as it stands, checked.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.
    """
    source = named(path)
    return check(parse(read(path, limits), source, limits), source, limits)


def load_features(path: str | os.PathLike[str], limits: Limits = LIMITS) -> FeatureSpec | None:
    """Read how columns become features, from a model file, a message or a file of features.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.

    Returns
    -------
    FeatureSpec or None
        None where the model takes plain numbers.
    """
    source = named(path)
    text = read(path, limits)
    document = parse(text, source, limits)
    if document.get("otmoe") == "features":
        return FeatureSpec.from_json(text, source, limits)
    return _features(check(document, source, limits))


def features_part(features: FeatureSpec | None) -> dict[str, Any]:
    """Return the field of a document that holds a specification, if there is one."""
    return {} if features is None else {"features": features.document()}


def _features(record: LocalModelRecord | ModelFileRecord) -> FeatureSpec | None:
    return None if record.features is None else FeatureSpec.from_record(record.features)


def _support(record: LocalModelRecord) -> dict[str, Any]:
    """Return what a checked record says about the site's covariates."""
    sketch, support = record.sketch, record.support
    return {
        "sketch": None if sketch is None else sketch_of(sketch, model_of(record.model).terms[1:]),
        "support": None if support is None else np.array(support, np.float64),
    }


def model_document(model: MoE) -> dict[str, Any]:
    """Return a model as it stands in a document."""
    gate, experts = model.gate, model.experts
    if not isinstance(gate, SoftmaxGate):
        raise MessageError(Error.GATE_WITHOUT_FILE, where="model", kind=type(gate).__name__)
    return {
        "family": experts.family,
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "classes": None if model.classes is None else np.asarray(model.classes).tolist(),
        "gate": {
            "coef": np.asarray(gate.coef).tolist(),
            "columns": None if gate.columns is None else [int(j) for j in gate.columns],
        },
        "experts": {f.name: np.asarray(getattr(experts, f.name)).tolist() for f in fields(experts)},
    }


def model_of(record: ModelRecord) -> MoE:
    """Return the model of a checked record."""
    columns = record.gate.columns
    parameters = {name: np.array(value, np.float64) for name, value in record.experts.items()}
    return MoE(
        SoftmaxGate(
            np.array(record.gate.coef, np.float64), None if columns is None else tuple(columns)
        ),
        FAMILIES[record.family](**parameters),
        None if record.feature_names is None else tuple(record.feature_names),
        None if record.classes is None else np.array(record.classes),
    )
