"""The report: an HTML page on what each site contributed and whether to trust the result."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from otmoe.aggregation import Aggregation
from otmoe.data.features import FeatureSpec
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.files import load_model_file
from otmoe.documents.model_file import ModelFile
from otmoe.inference.between import Between
from otmoe.model.mixture import MoE
from otmoe.reporting.data import page_data
from otmoe.text.errors import InvalidType
from otmoe.text.outputs import write_whole
from otmoe.text.records import typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import LIMITS, Limits, named

SCRIPTS = (
    "base.js",
    "table.js",
    "flow.js",
    "coefficients.js",
    "terms.js",
    "matrix.js",
    "gate.js",
    "sites.js",
    "forest.js",
    "differ.js",
    "main.js",
)
"""Scripts of the page, in order."""


class Page(str):
    """An HTML page, which a notebook displays in a frame."""

    def __repr__(self) -> str:
        return f"<a report of {len(self.encode()):,} bytes; otmoe.report(..., path) writes it>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self)}" sandbox="allow-scripts" '
            'style="width: 100%; height: 80vh; border: 0"></iframe>'
        )


def report(
    source: Aggregation | MoE | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    between: Between | None = None,
    limits: Limits = LIMITS,
) -> Page | Path:
    """Return the report on a merged model, an HTML page that makes no network requests.

    It shows what each site sent and contributed, how its experts were merged, the coefficients
    (with intervals, if the model was refined), the gate, how sites differ, and the convergence of
    the merging.

    Parameters
    ----------
    source : Aggregation, MoE, fitted estimator, or path of a model file
        The page has no sites if this is only a model, or a file without the part that
        :meth:`Aggregation.save` writes.
    path : str or path, optional
        Where to write the page. The file is written completely or not at all.
    title : str, optional
    about : dict, optional
        Further facts to show, by name; by default those in the file.
    between : Between, optional
        How sites differ; by default the part in the file.
    limits : Limits
        Limits on the size of the file.

    Returns
    -------
    Page or Path
        The page as text or, if it was written, its path.

    Examples
    --------
    >>> from otmoe import MoERegressor, aggregate, report, simulate
    >>> data = simulate(3000, 2, 2, random_state=0)
    >>> sites = [
    ...     MoERegressor(2, random_state=0).fit(data.X[m::3], data.y[m::3]).to_message(site=name)
    ...     for m, name in enumerate(["lyon", "nantes", "dijon"])
    ... ]
    >>> page = report(aggregate(sites, data.X))
    >>> page.startswith("<!DOCTYPE html>"), "https://" in page
    (True, False)
    """
    record: AggregationRecord | None = None
    features: FeatureSpec | None = None
    if hasattr(source, "model_"):
        between = getattr(source, "between_", None) if between is None else between
        features = getattr(source, "features_", None)
        source = getattr(source, "aggregation_", source.model_)
    words: Mapping[str, Any] = {}
    if isinstance(source, Aggregation):
        model, features = source.model, source.messages[0].features
        record = typed(AggregationRecord, source.document(), "aggregation")
    elif isinstance(source, MoE):
        model = source
    elif isinstance(source, str | os.PathLike):
        found = load_model_file(source, limits)
        model, features = found.model, found.features
        if isinstance(found, ModelFile):
            record, words = found.aggregation, found.about
            between = found.between if between is None else between
        else:
            words = {"site": found.site, "rows": found.n_samples}
    else:
        raise InvalidType(Error.NO_REPORT, kind=type(source).__name__)
    if title is None:
        file = None if isinstance(source, Aggregation | MoE) else os.path.basename(source)
        title = "Report on the model" if file is None else f"Report on {named(file)}"
    words = dict(words if about is None else about)
    page = _page(page_data(model, record, features, words, title, between), title)
    if path is not None:
        write_whole(path, page)
        return Path(path)
    return page


def _page(data: dict[str, Any], title: str) -> Page:
    """Return the page; names supplied by sites are treated as plain text.

    The data are JSON without a "<", which no element can begin without, and the policy lets the
    page run its own script and nothing else.
    """
    script = "\n".join(_text(name) for name in SCRIPTS)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    parts = {
        "TITLE": escape(title),
        "STYLE": _text("style.css"),
        "SCRIPT": script,
        "POLICY": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "DATA": json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", r"\u003c"),
    }
    return Page(re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], _text("page.html")))


def _text(name: str) -> str:
    return files("otmoe.reporting").joinpath("page", name).read_text(encoding="utf-8")
