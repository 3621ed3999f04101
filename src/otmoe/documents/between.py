"""How sites differ, as a model file keeps it: the prior, the spreads, every site (maths 18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from otmoe.arrays.numerics import Floats
from otmoe.documents.aggregation import Count
from otmoe.documents.model import ModelRecord, check_model, model_document, model_of
from otmoe.documents.sketch import Share
from otmoe.documents.sums import (
    NotNegative,
    ScalingRecord,
    check_length,
    check_scaling,
    scaling_document,
    scaling_of,
)
from otmoe.inference.between import Between, SiteEffect, Spread
from otmoe.inference.effects import Comparison
from otmoe.likelihood.prior import BLOCKS, Prior, blocks_of
from otmoe.model.mixture import MoE
from otmoe.text.errors import fail
from otmoe.text.records import (
    LARGEST,
    List,
    Map,
    Number,
    Positive,
    Record,
    Row,
    Site,
    Told,
    check_distinct,
    notice_document,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, shown

Block = Literal[
    "gate intercepts", "gate slopes", "expert intercepts", "expert slopes", "log-variances"
]
Deviation = Annotated[float, Field(ge=0, le=LARGEST)]
AtLeastOne = Annotated[float, Field(ge=1, le=LARGEST)]


class PriorRecord(Record):
    """What a new site needs: the mean of the sites, and the deviation from it by block."""

    centre: ModelRecord
    scaling: ScalingRecord
    tau: Map[Block, Deviation]
    design_effect: AtLeastOne
    n_samples: NotNegative
    n_sites: Count


class AgreementRecord(Record):
    """Cochran's test that sites agree; null where there is none."""

    q: Deviation | None
    df: Deviation
    p_value: Share | None
    n_parameters: Count
    n_sites: Count


class SpreadRecord(AgreementRecord):
    """How much a block differs: deviation, interval, test; `high` is null if it has no bound."""

    block: Block
    tau: Deviation
    low: Deviation
    high: Deviation | None


class ComparisonRecord(Record):
    """Mean log density of held-out rows, by model; null if there is no such model."""

    own: Number | None = None
    common: Number | None = None
    personal: Number | None = None
    best: Literal["own", "common", "personal"]


class SiteEffectRecord(Record):
    """Estimates of one site, on its own and after shrinkage; an infinite error is null."""

    site: Site
    n_samples: Positive
    estimate: Row
    error: List[Deviation | None]
    shrunk: Row
    shrunk_error: List[Deviation]
    q: Deviation
    p_value: Share
    comparison: ComparisonRecord | None = None


class BetweenRecord(Record):
    """How sites differ.

    The common model is the one that the sites replied about. Lists have a number for each free
    parameter: slopes in original units, intercepts at the average of the features.
    """

    prior: PriorRecord
    common: ModelRecord
    spreads: List[SpreadRecord]
    overall: AgreementRecord
    mean: Row
    mean_error: List[Deviation]
    deviation: List[Deviation]
    sites: List[SiteEffectRecord] = []
    warnings: List[Told] = []
    strength: Deviation = 1.0


# -- checks --------------------------------------------------------------------------------------


def checked_between(record: BetweenRecord, model: MoE, source: str, limits: Limits) -> Between:
    """Return how sites differ, once it is known to be about the model beside it.

    Parameters
    ----------
    record : BetweenRecord
    model : MoE
        The model of the file.
    source : str
        Where the record comes from; an error begins with it.
    limits : Limits
    """
    for name, found in (("prior.centre", record.prior.centre), ("common", record.common)):
        check_model(found, None, source, limits, f"between.{name}")
        _check_kind(model_of(found), model, f"between.{name}", source)
    check_scaling(record.prior.scaling, model.n_features, "between.prior.scaling", source)
    _check_spreads(record, model, source)
    P, what = model.n_parameters, "free parameter of the model"
    for name in ("mean", "mean_error", "deviation"):
        check_length(getattr(record, name), P, f"between.{name}", what, source)
    check_distinct([site.site for site in record.sites], "between.sites", source)
    for i, site in enumerate(record.sites):
        for name in ("estimate", "error", "shrunk", "shrunk_error"):
            check_length(getattr(site, name), P, f"between.sites[{i}].{name}", what, source)
    between = between_of(record)
    _check_personal(between, source)
    return between


def _check_personal(between: Between, source: str) -> None:
    """Refuse effects of a site by which its personal model is one that no file may hold."""
    for i, effect in enumerate(between.sites):
        with np.errstate(over="ignore", invalid="ignore"):
            model = between.model_of(effect.site)
        coef = np.append(model.gate.coef, model.experts.coef)
        within = np.all(np.abs(coef) <= LARGEST)
        if (dispersion := model.experts.dispersion) is not None:
            within &= np.all((dispersion >= LARGEST**-2) & (dispersion <= LARGEST**2))
        if not within:
            fail(source, f"between.sites[{i}].shrunk", Error.NO_PERSONAL_MODEL)


def _check_kind(found: MoE, model: MoE, path: str, source: str) -> None:
    """Refuse a model with other parameters than that of the file."""
    classes = [
        None if m.classes is None else np.asarray(m.classes).tolist() for m in (found, model)
    ]
    same = (
        found.experts.family == model.experts.family
        and found.experts.coef.shape == model.experts.coef.shape
        and found.gate.columns == model.gate.columns
        and found.feature_names == model.feature_names
        and classes[0] == classes[1]
    )
    if not same:
        fail(source, path, Error.OTHER_PARAMETERS)


def _check_spreads(record: BetweenRecord, model: MoE, source: str) -> None:
    """Check that there is a spread for each block of the model, and that the prior has the same."""
    size = np.bincount(blocks_of(model), minlength=len(BLOCKS))
    wanted = [name for name, n in zip(BLOCKS, size, strict=True) if n]
    if [spread.block for spread in record.spreads] != wanted:
        fail(source, "between.spreads", Error.BLOCKS_OF_MODEL, wanted=", ".join(wanted))
    for i, spread in enumerate(record.spreads):
        at = f"between.spreads[{i}]"
        n = int(size[BLOCKS.index(spread.block)])
        if spread.n_parameters != n:
            facts = {"value": shown(spread.n_parameters), "wanted": n}
            fail(source, f"{at}.n_parameters", Error.PARAMETERS_OF_BLOCK, **facts)
        if spread.high is not None and spread.low > spread.high:
            facts = {"low": shown(spread.low), "high": shown(spread.high)}
            fail(source, f"{at}.low", Error.LOW_ABOVE_HIGH, **facts)
        if spread.tau != (tau := record.prior.tau.get(spread.block, 0.0)):
            facts = {"value": shown(spread.tau), "other": shown(tau)}
            fail(source, f"{at}.tau", Error.TAU_OF_PRIOR, **facts)


# -- conversions ---------------------------------------------------------------------------------


def between_document(found: Between) -> dict[str, Any]:
    """Return how sites differ as it stands in a document."""
    prior = found.prior
    return {
        "prior": {
            "centre": model_document(prior.centre),
            "scaling": scaling_document(prior.scaling, prior.centre),
            "tau": {name: float(value) for name, value in prior.tau.items()},
            "design_effect": float(prior.design_effect),
            "n_samples": float(prior.n_samples),
            "n_sites": int(prior.n_sites),
        },
        "common": model_document(found.common),
        "spreads": [
            {
                "block": spread.block,
                "tau": float(spread.tau),
                "low": float(spread.low),
                "high": _or_none(spread.high),
                **_agreement_document(spread),
            }
            for spread in found.spreads
        ],
        "overall": _agreement_document(found.overall),
        "mean": found.mean.tolist(),
        "mean_error": found.mean_error.tolist(),
        "deviation": found.deviation.tolist(),
        **({"sites": [_effect_document(e) for e in found.sites]} if found.sites else {}),
        **({"warnings": [notice_document(w) for w in found.warnings]} if found.warnings else {}),
        **({"strength": float(found.strength)} if found.strength != 1.0 else {}),
    }


def between_of(record: BetweenRecord) -> Between:
    """Return how sites differ, of a checked record."""
    prior = record.prior
    return Between(
        prior=Prior(
            model_of(prior.centre),
            scaling_of(prior.scaling),
            dict(prior.tau.items()),
            prior.design_effect,
            prior.n_samples,
            prior.n_sites,
        ),
        common=model_of(record.common),
        spreads=tuple(
            Spread(
                spread.block,
                spread.tau,
                spread.low,
                np.inf if spread.high is None else spread.high,
                **_agreement(spread),
            )
            for spread in record.spreads
        ),
        overall=Spread("all", np.nan, np.nan, np.nan, **_agreement(record.overall)),
        sites=tuple(map(_effect, record.sites)),
        mean=_array(record.mean),
        mean_error=_array(record.mean_error),
        deviation=_array(record.deviation),
        warnings=tuple(record.warnings),
        strength=record.strength,
    )


def _agreement_document(spread: Spread) -> dict[str, Any]:
    return {
        "q": _or_none(spread.q),
        "df": float(spread.df),
        "p_value": _or_none(spread.p_value),
        "n_parameters": int(spread.n_parameters),
        "n_sites": int(spread.n_sites),
    }


def _agreement(record: AgreementRecord) -> dict[str, Any]:
    found = {name: getattr(record, name) for name in AgreementRecord.model_fields}
    return {name: np.nan if value is None else value for name, value in found.items()}


def _effect_document(effect: SiteEffect) -> dict[str, Any]:
    return {
        "site": effect.site,
        "n_samples": float(effect.n_samples),
        "estimate": effect.estimate.tolist(),
        "error": [_or_none(value) for value in effect.error],
        "shrunk": effect.shrunk.tolist(),
        "shrunk_error": effect.shrunk_error.tolist(),
        "q": float(effect.q),
        "p_value": float(effect.p_value),
        **({} if effect.comparison is None else {"comparison": asdict(effect.comparison)}),
    }


def _effect(record: SiteEffectRecord) -> SiteEffect:
    return SiteEffect(
        record.site,
        record.n_samples,
        _array(record.estimate),
        _array(record.error),
        _array(record.shrunk),
        _array(record.shrunk_error),
        record.q,
        record.p_value,
        None if record.comparison is None else Comparison(**record.comparison.model_dump()),
    )


def _or_none(value: float) -> float | None:
    """Return a number as JSON has it: null where it is none, or infinite."""
    return float(value) if np.isfinite(value) else None


def _array(values: Sequence[float | None]) -> Floats:
    return np.array([np.inf if value is None else value for value in values], np.float64)
