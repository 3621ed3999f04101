"""How commands that write a model end: its coefficients, how good it is, what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from otmoe.cli.common import console, few
from otmoe.cli.structure import PER
from otmoe.cli.tables import listed
from otmoe.text.sentences import Error, Warn

if TYPE_CHECKING:
    from otmoe import LocalModel
    from otmoe.arrays.numerics import Floats
    from otmoe.documents.aggregation import AggregationRecord, InferenceRecord
    from otmoe.documents.model_file import ModelFile
    from otmoe.inference.matrix import Matrix


def matrix_of(file: ModelFile | LocalModel) -> Matrix:
    """Return the coefficients of a file, with shares and standard errors where it has them."""
    from otmoe.evaluation.filed import FiledInference
    from otmoe.inference.matrix import Matrix

    how = getattr(file, "aggregation", None)
    mass = None if how is None else _mass(how)
    found = None if how is None else how.inference
    errors = None if found is None else found.standard_errors
    curves = None if file.features is None else file.features.curve_features
    if not curves:
        return Matrix.of(file.model, mass, errors)
    tests = FiledInference.read(file.model, found).terms(curves)
    return Matrix.of(file.model, mass, errors, curves, tests)


def closing(file: ModelFile | LocalModel, path: Path) -> list[Any]:
    """Return what to print about a model: facts, coefficients, what to do next.

    Parameters
    ----------
    file : ModelFile or LocalModel
    path : Path
        Where it is.
    """
    from otmoe.inference.matrix import WIDTH

    width = max(console().width, WIDTH)
    return [
        title_of(file),
        listed(facts_of(file)),
        matrix_of(file).text(width),
        "",
        *(f"Next: {line}" for line in next_steps(file, path)),
    ]


def title_of(file: ModelFile | LocalModel) -> str:
    """Return what the model is, in a line."""
    model = file.model
    return f"{model.called}, {model.n_features} features, {model.n_free} parameters"


def facts_of(file: ModelFile | LocalModel) -> list[tuple[str, str]]:
    """Return how good the model is, how its fit ended, and which sites stand out."""
    from otmoe import LocalModel

    if isinstance(file, LocalModel):
        return list(_message_facts(file))
    return list(_model_facts(file))


def _message_facts(message: LocalModel) -> Iterator[tuple[str, str]]:
    from otmoe.evaluation.scores import LOG_LIKELIHOOD

    yield "site", f"{message.site}, {message.n_samples:,.10g} rows"
    yield LOG_LIKELIHOOD, _per_row(message.log_likelihood, message.n_samples)
    yield "fit", f"{'' if message.converged else 'NOT CONVERGED: '}{message.status}"
    for warning in message.warnings:
        yield "warning", str(warning)


def _model_facts(file: ModelFile) -> Iterator[tuple[str, str]]:
    import numpy as np

    from otmoe.evaluation.scores import EXPLAINED, LOG_LIKELIHOOD, NULL
    from otmoe.likelihood.agreement import SEARCHES

    about, how = file.about, file.aggregation
    rows = float(about["rows"]) if isinstance(about.get("rows"), int | float) else np.nan
    known = about.get(LOG_LIKELIHOOD)
    refined = None if how is None else how.refinement
    if refined is not None:
        known, rows = refined.log_likelihood, refined.n_samples
    elif how is not None:
        rows = sum(site.n_samples for site in how.sites)
    if isinstance(known, int | float):
        yield LOG_LIKELIHOOD, _per_row(float(known), rows)
        null = about.get(NULL)
        if isinstance(null, int | float):
            gain = (known - null) / rows
            than = "worse" if gain >= 0 else "BETTER"
            words = f"{_per_row(float(null), rows)}: {abs(gain):.4g} nats per row {than}"
            yield "null model", words
    if isinstance(about.get(EXPLAINED), int | float):
        what = "variance" if file.model.experts.has_scale else "deviance"
        yield f"{what} explained", f"{about[EXPLAINED]:.1%}"
    if how is None:
        yield "sites", "the file does not say how the model was merged"
        return
    sites = len(how.sites)
    if sites == 1:
        yield "fitted to", f"{rows:,.10g} rows of {how.sites[0].site}"
    else:
        yield "merged from", f"{sites:,} sites, {rows:,.10g} rows, by {how.method}"
    if refined is None and sites > 1:
        yield "maximum", "not sought: merged in one round"
    elif refined is not None:
        rounds = f"{refined.rounds} round{'s' * (refined.rounds != 1)}"
        words = "reached in" if refined.converged else "NOT reached in"
        yield "maximum", f"{words} {rounds}"
    stopped = "" if how.converged or refined is not None else "NOT CONVERGED: "
    if sites > 1 or stopped:
        yield "merging", f"{stopped}{how.status.text}"
    if how.inference is not None:
        yield "standard errors", f"{_kind(how.inference)}; in brackets below"
    elif how.no_inference is not None:
        later = sites == 1 or how.no_inference.code == Error.ONE_ROUND.code
        why = "refine rounds provide them" if later else how.no_inference.text
        yield "standard errors", f"none: {why}"
    unfinished = [site.site for site in how.sites if not site.converged]
    if unfinished:
        yield "did not converge", few(unfinished)
    doubtful = [site.site for site in how.sites if _unsure(site)]
    if doubtful:
        yield "starts", f"disagree at {few(doubtful)}"
    elif SEARCHES in about:
        yield SEARCHES, str(about[SEARCHES])
    flagged = [site.site for site in how.sites if site.flagged]
    yield "stand out", few(flagged) if flagged else "no site"
    if how.left_out:
        yield "left out", few(how.left_out)


def _kind(found: InferenceRecord) -> str:
    """Return what standard errors are based on, and what their intervals are by if not normal."""
    from otmoe.inference.estimates import by_t

    if found.n_groups is None or found.df is None:
        return found.kind
    return f"{found.kind}, {found.n_groups:,} groups, {by_t(found.df)}"


def next_steps(file: ModelFile | LocalModel, path: Path) -> Iterator[str]:
    """Yield what to do with the model, in commands of the shell."""
    from otmoe import LocalModel

    if isinstance(file, LocalModel):
        yield f"otmoe inspect {path} shows what the message reveals; otmoe aggregate merges it"
        return
    how, made = file.aggregation, file.about.get("made by")
    if how is not None and how.refinement is None:
        if made == "otmoe run":
            yield "run again with --refine auto for the fit of all rows, with standard errors"
        else:
            yield "for the fit of all rows, with standard errors, in rounds with the sites:"
            yield f"otmoe refine start {path} MESSAGES --state state.json -o round1.request.json"
    elif how is not None and how.refinement is not None and not how.refinement.converged:
        yield "the maximum was not reached: run more rounds, or use fewer experts"
    if how is not None and any(not site.converged for site in how.sites):
        yield "fits that did not converge: raise --max-iter, or use fewer experts"
    if how is not None and any(_unsure(site) for site in how.sites):
        yield "starts that disagree: raise --starts, or use fewer experts (otmoe select)"
    if how is not None and any(site.flagged for site in how.sites):
        yield "check the sites that stand out (otmoe report), or use --exclude-flagged"
    if file.between is not None:
        yield f"otmoe personalise {path} DATA {_columns(file)} --site NAME -o NAME.json, at a site"
    yield f"otmoe evaluate {path} TEST-DATA {_columns(file)}"
    yield f"otmoe report {path} -o report.html"


def _columns(file: ModelFile) -> str:
    """Return the options that name the columns of the fit, as far as the file knows them."""
    names = ",".join(getattr(file.model.experts, "labels", ())) or "COLUMN"
    known = {"--target": file.about.get("target", names)}
    known |= {"--offset": file.about.get("offset"), PER: file.about.get("expert per")}
    return " ".join(f"{option} {quote(str(name))}" for option, name in known.items() if name)


def _mass(how: AggregationRecord) -> Floats | None:
    """Return the share of each expert, (K,)."""
    import numpy as np

    parts = [site.weight * np.sum(site.mass, axis=0) for site in how.sites if site.mass is not None]
    return None if len(parts) < len(how.sites) else np.asarray(np.sum(parts, axis=0))


def _unsure(site: Any) -> bool:
    return any(warning.code == Warn.FOUND_ONCE.code for warning in site.warnings)


def _per_row(total: float, rows: float) -> str:
    return f"{total:,.2f}" + (f" ({total / rows:.4f} per row)" if rows == rows else "")
