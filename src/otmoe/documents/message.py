"""What a site sends: human-readable JSON that any language can write.

``docs/message.md`` describes the file field by field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import is_array_api_obj

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.data.sketch import N_COMPONENTS, Sketch
from otmoe.documents.grams import grams_document, grams_of
from otmoe.documents.message_record import MOST_SHARED, checked_record
from otmoe.documents.model import (
    features_of,
    features_part,
    model_document,
    model_of,
    versions_used,
)
from otmoe.documents.sketch import document_of, sketch_of
from otmoe.likelihood.fit import Fit
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import take_rows
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.arguments import check_weight, generator
from otmoe.text.document import Document
from otmoe.text.errors import InvalidInput
from otmoe.text.html import html_lines
from otmoe.text.notices import Notice
from otmoe.text.records import adds_up, as_notice, notice_document
from otmoe.text.sentences import Error
from otmoe.text.strict_json import BRACES, UNLIMITED, Limits, shown, sizes_of

PARTS = ("model", "features", "constant_features", "grams", "sketch", "support")
"""Fields of a message whose bytes are counted apart."""

# -- fields --------------------------------------------------------------------------------------


# -- the message ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalModel(Document):
    """Everything that a site sends: its model, and how it was fitted.

    A local model is validated when it is created, whether from a fit, manually or from a file.

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
        How the fit ended; a plain string is accepted.
    warnings : tuple of Notice
        Warnings about the fit.
    constant : dict
        Features with the same value in every row, so that their coefficients could not be
        estimated, by name (``model.terms[1:]``), and that value.
    versions : dict
        Of otmoe, Python and NumPy, by name.
    overrides : dict
        Rules of the site's policy that were overridden for this message, and why.
    features : FeatureSpec, optional
        How the site's columns became the model's features; None for plain numbers.
    grams : Grams, optional
        Second moments of x as each expert sees the rows, if the site likes to send them.
    sketch : Sketch, optional
        A small mixture of the site's covariates, if it likes to send one.
    support : ndarray of shape (s, d), optional
        Rows of covariates, without y, if the site likes to send some.
    key : str, optional
        The site's public key, 64 hexadecimal digits, if it is to take part in secure sums.

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

    kind: ClassVar[str] = "local model"
    called: ClassVar[str] = "message"
    other_kinds: ClassVar[dict[str, Error]] = {"model": Error.MODEL_WITHOUT_SITE}

    site: str
    model: MoE
    n_samples: float
    log_likelihood: float
    converged: bool
    status: Notice
    warnings: tuple[Notice, ...] = ()
    constant: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions_used)
    overrides: dict[str, str] = field(default_factory=dict)
    features: FeatureSpec | None = None
    grams: Grams | None = None
    sketch: Sketch | None = None
    support: Floats | None = None
    key: str | None = None

    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        object.__setattr__(self, "status", as_notice(self.status))
        object.__setattr__(self, "warnings", tuple(map(as_notice, self.warnings)))
        if not checked:  # else it was, on its way from a file
            if isinstance(self.model.gate, SoftmaxGate):
                object.__setattr__(self, "model", self.model.frozen())
            checked_record(self.document(), f"site {shown(self.site)}", UNLIMITED)

    def __repr__(self) -> str:
        return f"LocalModel({self.site!r}, {self.model!r}, {self.n_samples:,.10g} rows)"

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
        """Return the message with what the site chooses to reveal about its covariates.

        Parameters
        ----------
        X : array-like of shape (n, d)
            The rows of the fit, without y.
        sketch : bool or int
            Whether to send a :class:`~otmoe.data.sketch.Sketch` of them, or of how many components
            at most.
        share : int
            Number of rows to send unchanged, drawn at random; all of them if there are fewer.
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
            if not adds_up(total, self.n_samples):
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

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        return {
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
            **({} if self.grams is None else {"grams": grams_document(self.grams)}),
            **self.support_document(),
            **({"overrides": self.overrides} if self.overrides else {}),
            **({} if self.key is None else {"key": self.key}),
            "versions": self.versions,
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the message by part; `about` is everything else."""
        document = self.document()
        found = sizes_of(document)
        parts = {name: found.pop(name) for name in PARTS if document.get(name)}
        return {"about": sum(found.values()) + BRACES, **parts}

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the message of a parsed document, checked."""
        record = checked_record(document, source, limits)
        model = model_of(record.model)
        sketch, support, features = record.sketch, record.support, features_of(record.features)
        return cls(
            site=record.site,
            model=model,
            n_samples=record.n_samples,
            log_likelihood=record.log_likelihood,
            converged=record.fit.converged,
            status=record.fit.status,
            warnings=tuple(record.fit.warnings),
            constant=record.constant_features,
            versions=record.versions,
            overrides=record.overrides,
            features=features,
            grams=None if record.grams is None else grams_of(record.grams),
            sketch=None if sketch is None else sketch_of(sketch, model.terms[1:], features),
            support=None if support is None else np.array(support, np.float64),
            key=record.key,
            checked=True,
        )
