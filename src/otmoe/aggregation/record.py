"""How a model was merged, as its file keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from otmoe.aggregation.contribution import Contribution
from otmoe.aggregation.dependence import GateDependence
from otmoe.data.features import FeatureSpec
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.message import LocalModel
from otmoe.inference import Inference, refined_inference
from otmoe.inference.terms import term_places
from otmoe.likelihood.rounds import Refinement
from otmoe.text.errors import InferenceError, InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.records import LARGEST, LONGEST_NAME, LONGEST_SENTENCE, notice_document
from otmoe.text.sentences import Error, Status
from otmoe.text.strict_json import named

MOST_JOINT = 24
"""Coefficients of a term, at most, for a file to have their covariance: 300 numbers."""


def refinement_document(state: Refinement, features: FeatureSpec | None = None) -> dict[str, Any]:
    """Return refine rounds that were answered, and standard errors, as a model file has them.

    Parameters
    ----------
    state : Refinement
        One round has been answered at least.
    features : FeatureSpec, optional
        How columns became features: its terms are tested jointly.
    """
    best = state.best
    if best is None:
        raise InvalidInput(Error.NO_ROUND_YET)
    part: dict[str, Any] = {
        "refinement": {
            "rounds": state.rounds,
            "converged": state.converged,
            "status": told(state.status),
            "log_likelihood": best.information.log_likelihood,
            "n_samples": best.n_samples,
            "trace": list(state.trace),
            "missing": [{"round": r, "site": words(site)} for r, site in state.missing],
        }
    }
    try:
        found = refined_inference(state)
    except InferenceError as error:
        return part | {"no_inference": told(error.notice)}
    errors = found.covariance.standard_errors(np.eye(len(found.names)))
    groups = {} if found.n_groups is None else {"n_groups": found.n_groups}
    part["inference"] = {
        "kind": found.kind,
        **groups,
        "standard_errors": list(map(finite, errors)),
        "warnings": list(map(told, found.warnings)),
    }
    joint = [] if features is None else joint_document(found, features)
    if joint:
        part["inference"]["joint"] = joint
    return part


def joint_document(found: Inference, features: FeatureSpec) -> list[dict[str, Any]]:
    """Return the covariance of the coefficients of each term, as a model file has it.

    Terms with one coefficient have its standard error, and those with very many have none.

    Parameters
    ----------
    found : Inference
    features : FeatureSpec
        Of the model.
    """
    joint: list[dict[str, Any]] = []
    known: set[int] = set()
    for _, _, places in term_places(found.model, features.term_features):
        if not 1 < len(places) <= MOST_JOINT or known.issuperset(places):
            continue  # the departure from a line is a part of its curve
        matrix = found.covariance.of(np.eye(len(found.names))[places])
        if np.all(np.isfinite(matrix)):
            known.update(places)
            lower = matrix[np.tril_indices(len(places))]
            joint.append({"at": places, "covariance": list(map(finite, lower))})
    return joint


def refined_document(
    record: AggregationRecord,
    state: Refinement,
    rounds: int | str,
    asked: Iterable[str],
    features: FeatureSpec | None = None,
) -> dict[str, Any]:
    """Return how a model was merged and then refined, where the merging is known from its file.

    It is the document of :meth:`Aggregation.refined`. What an earlier refinement said about
    intervals makes way for what this one says.

    Parameters
    ----------
    record : AggregationRecord
        How the model was merged that the rounds began with.
    state : Refinement
        One round has been answered at least.
    rounds : int or "auto"
        As asked for; "auto" has to have converged.
    asked : iterable of str
        The sites that were asked; `status` says so if they are not those that were merged.
    features : FeatureSpec, optional
        How columns became features.
    """
    known = refinement_document(state, features)
    before = record.model_dump(
        exclude_unset=True, exclude={"gate", "refinement", "inference", "no_inference"}
    )
    old = () if record.inference is None else record.inference.warnings
    doubts = known["inference"]["warnings"] if state.converged and "inference" in known else []
    apart = [site.site for site in record.sites if site.flagged]
    doubts = [*map(told, state.warnings(rounds, apart)), *doubts]
    end = ended(record.converged, record.status, state, rounds)
    merged, asked = dict.fromkeys(site.site for site in record.sites), dict.fromkeys(asked)
    for words, sites in (
        ("not asked in these rounds", [site for site in merged if site not in asked]),
        ("asked, though not merged", [site for site in asked if site not in merged]),
    ):
        if sites:
            status = end["status"]
            facts = {"status": status, "words": words, "names": ", ".join(sites)}
            end["status"] = Status.REFINED_BY_OTHERS(sites=(*status.sites, *sites), **facts)
    return {
        **before,
        **known,
        "converged": end["converged"],
        "status": told(end["status"]),
        "warnings": [*(told(w) for w in record.warnings if w not in old), *doubts],
    }


def ended(converged: bool, status: Notice, state: Refinement, rounds: int | str) -> dict[str, Any]:
    """Return how a merging ended that refine rounds have led on from."""
    return {
        "converged": converged and (rounds != "auto" or state.converged),
        "status": Status.REFINED(merging=status, rounds=state.status),
    }


def site_document(record: Contribution, message: LocalModel, influence: float) -> dict[str, Any]:
    """Return the part of a site as it stands in a model file."""
    return {
        "site": record.site,
        "n_samples": record.n_samples,
        "log_likelihood": message.log_likelihood,
        "converged": message.converged,
        "status": told(message.status),
        "warnings": list(map(told, message.warnings)),
        "weight": min(record.weight, 1.0),  # rounding
        "cost": finite(record.cost),
        "mass": None if record.mass is None else np.minimum(record.mass, 1.0).tolist(),
        "coverage": record.coverage,
        "disagreement": finite(record.disagreement),
        "flagged": list(map(told, record.flagged)),
        "lost": finite(record.lost),
        "influence": finite(influence),
        "sent": message.sizes,
        "versions": message.versions,
    }


def dependence_document(found: GateDependence) -> dict[str, Any]:
    """Return what a column does to the gate as it stands in a model file."""
    return {
        "first": found.first,
        "values": None if found.values is None else found.values.tolist(),
        "prob": np.minimum(found.prob, 1.0).tolist(),
    }


def told(notice: Notice) -> dict[str, Any]:
    """Return a notice as files hold it."""
    sites = tuple(words(site)[:LONGEST_NAME] for site in notice.sites)
    return notice_document(replace(notice, text=words(notice.text), sites=sites))


def words(text: str) -> str:
    """Return words as files hold them: on one line, and no more than one reads."""
    return named(text).strip()[:LONGEST_SENTENCE] or "?"


def finite(value: float) -> float | None:
    """Return a number as files hold it: null for none, and no larger than they allow."""
    return None if np.isnan(value) else float(np.clip(value, -LARGEST, LARGEST))
