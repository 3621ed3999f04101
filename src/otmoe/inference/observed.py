"""Standard errors, tests and intervals for a model at its maximum (maths 15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from otmoe.arrays.numerics import Array, Floats
from otmoe.arrays.threads import threads
from otmoe.inference.covariance import (
    AS_GIVEN,
    NEAR,
    Covariance,
    check_at_maximum,
    distance_to_maximum,
    parameter_covariance,
)
from otmoe.inference.parameters import parameters, unseen
from otmoe.inference.result import Inference, Kind
from otmoe.likelihood.fit import Fit
from otmoe.likelihood.grouped import Scatter, score_scatter
from otmoe.likelihood.information import Information, observed_information
from otmoe.likelihood.rank import check_constants
from otmoe.likelihood.rounds import Refinement
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.likelihood.sharing import rows_for
from otmoe.likelihood.statistics import on_floor
from otmoe.model.mixture import ExpertPer, MoE
from otmoe.model.ridge import Ridge
from otmoe.text.arguments import renamed
from otmoe.text.errors import InferenceError, InvalidInput
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Error, Warn

# There, coverage is 0.94 in place of 0.95; `python -m benchmarks constants` counts what is said.
_PULL = 0.3  # standard errors by which the ridge may move an estimate before it is said (maths 15)


def inference(
    model: MoE,
    information: Information,
    n_samples: float,
    *,
    penalty: Floats | None = None,
    scaling: Scaling = AS_GIVEN,
    scatter: Scatter | None = None,
    log_likelihood: float | None = None,
    distance: float | None = None,
) -> Inference:
    """Return standard errors from information that was summed over all rows, wherever they are.

    Parameters
    ----------
    model : MoE
        On the user's scale, at the maximum of the (penalised) likelihood of all rows.
    information : Information
        At the model, summed over all rows.
    n_samples : float
        Sum of the weights.
    penalty : ndarray of shape (P, P), optional
        Matrix of the ridge that the model was fitted with, from
        :meth:`otmoe.model.ridge.Ridge.matrix`.
    scaling : Scaling
        The scale of `information`, `penalty` and `scatter`; by default the user's.
    scatter : Scatter, optional
        Of the scores at the model, summed over all rows, from
        :func:`otmoe.likelihood.grouped.score_scatter`; gives the sandwich. That of G groups is
        multiplied by G / (G - 1), and intervals and tests have G - 1 degrees of freedom.
    log_likelihood : float, optional
        With the base measure and on the user's scale, for AIC and BIC.
    distance : float, optional
        Standard errors from the model to the maximum; by default, what the score says.

    Returns
    -------
    Inference

    Raises
    ------
    InferenceError
        If the model is not at the maximum, or there is one group only.
    """
    P = model.n_parameters
    kind: Kind = "information" if scatter is None else "sandwich"
    outer, n_groups = (None, None) if scatter is None else (scatter.matrix, scatter.n_groups)
    if outer is not None and n_groups is not None:
        if n_groups < 2:
            raise InferenceError(Error.ONE_GROUP, groups=n_groups)
        kind, outer = "clustered", outer * (n_groups / (n_groups - 1))
    ridge = np.zeros((P, P)) if penalty is None else penalty
    if distance is None:
        distance = distance_to_maximum(model, information, ridge, scaling=scaling)
    check_at_maximum(distance)
    covariance = parameter_covariance(model, information, ridge, scaling=scaling, outer=outer)
    return Inference(
        model,
        covariance,
        n_samples,
        kind,
        log_likelihood,
        information.mass,
        _warnings(model, covariance, n_groups),
        n_groups,
    )


@renamed(n_threads="n_jobs")
def observed_inference(
    model: MoE,
    X: Array,
    y: Array,
    *,
    sample_weight: Array | None = None,
    offset: Array | None = None,
    alpha: float | None = None,
    expert_alpha: float | None = None,
    kind: Kind | None = None,
    groups: Any = None,
    n_jobs: int | None = None,
) -> Inference:
    """Return standard errors of a model from the rows that it was fitted to.

    Parameters
    ----------
    model : MoE
        On the user's scale.
    X : array of shape (n, d)
    y : array of shape (n,)
        A number, 0 or 1, a class number from 0, or a count.
    sample_weight : array of shape (n,), optional
        As in the fit. By the information, weight 2 counts as the row twice; by the sandwich, it
        is one row that counts double.
    offset : array of shape (n,), optional
        As in the fit.
    alpha, expert_alpha : float, optional
        Ridges, as in the fit; by default those of the family.
    kind : {"information", "sandwich", "clustered"}, optional
        The inverse of the observed information, which is right if the model is; the sandwich,
        which is right for what the model estimates even if it is not; or the sandwich of groups,
        which holds where rows of one group depend on each other. By default "clustered" with
        groups and "information" without.
    groups : array-like of shape (n,), optional
        Label of the group of each row, of any hashable kind, such as the person it is about. There
        should be many groups, of which none is a large part of the rows. Their summed scores are
        held in memory, G P numbers. Intervals and tests are by the t distribution with G - 1
        degrees of freedom. Where rows of a group share their expert, these are the groups of the
        fit.
    n_jobs : int, optional
        Threads; None means 1, -1 all cores.

    Returns
    -------
    Inference
    """
    kind = check_kind(kind, groups is not None, model.expert_per)
    with threads(n_jobs) as pool:
        rows = rows_for(model, Rows(X, y, sample_weight, offset, pool=pool), groups)
        groups = None if rows.groups is not None else groups
        rows, _ = rows.standardised(model.experts, model.structure)
        check_constants(model.structure, rows.scaling.constant, model.feature_names)
        here = rows.scaling.from_user(model)
        check_floor(here)
        information = observed_information(here, rows)
        scatter = None if kind == "information" else score_scatter(here, rows, groups)
    return inference(
        model,
        information,
        rows.total_weight,
        penalty=Ridge.of(model.experts, alpha, expert_alpha).matrix(here),
        scaling=rows.scaling,
        scatter=scatter,
        log_likelihood=information.log_likelihood + rows.log_base(model.experts),
    )


def fitted_inference(fit: Fit, model: MoE) -> Inference:
    """Return standard errors from what the last step of a fit knew, without its rows.

    Parameters
    ----------
    fit : Fit
    model : MoE
        That of the fit, with names.
    """
    if fit.evidence is None:
        exact = any(notice.code == Warn.VARIANCE_AT_FLOOR.code for notice in fit.warnings)
        raise InferenceError(Error.VARIANCE_AT_FLOOR if exact else Error.NO_EVIDENCE)
    found = inference(
        model,
        fit.evidence.information,
        fit.n_samples,
        penalty=fit.evidence.penalty,
        scaling=fit.evidence.scaling,
        log_likelihood=fit.log_likelihood,
    )
    return about_fit(found, fit)


def about_fit(found: Inference, fit: Fit) -> Inference:
    """Return standard errors together with what the fit said about itself."""
    said = tuple(notice for notice in fit.warnings if notice not in found.warnings)
    return replace(found, warnings=found.warnings + said, agreement=fit.agreement)


def check_kind(kind: str | None, grouped: bool = False, expert_per: ExpertPer = "row") -> Kind:
    """Return the kind of standard errors that is meant, by its name and whether there are groups.

    Groups make a sandwich that of groups, and are refused beside the information, unless their
    rows share experts: then they are part of the likelihood.
    """
    if kind is not None and kind not in get_args(Kind):
        raise InvalidInput(
            Error.NOT_ONE_OF, name="kind", value=kind, choices=sorted(get_args(Kind))
        )
    if expert_per == "group":
        return "information" if kind in (None, "information") else "clustered"
    if grouped:
        if kind == "information":
            raise InvalidInput(Error.GROUPS_AND_INFORMATION)
        return "clustered"
    if kind == "clustered":
        raise InvalidInput(Error.GROUPS_MISSING)
    return "sandwich" if kind == "sandwich" else "information"


def check_floor(model: MoE) -> None:
    """Refuse a standardised model with a variance at its floor."""
    if on_floor(model):
        raise InferenceError(Error.VARIANCE_AT_FLOOR)


def refined_inference(
    state: Refinement, curves: Mapping[str, Sequence[str]] | None = None
) -> Inference:
    """Return standard errors from what sites have sent in refine rounds.

    By the sandwich if every site has sent its scatter. Where some have not that were asked for it,
    they come from the information, and a warning names these sites.

    Parameters
    ----------
    state : Refinement
    curves : mapping of str to sequence of str, optional
        Its splines, as ``FeatureSpec.curve_features`` has them.

    Raises
    ------
    InferenceError
        If no round has been answered, the model is not at the maximum yet, or rounded replies do
        not tell where that is.
    """
    best = state.best
    if best is None:
        raise InferenceError(Error.NO_ROUND_YET)
    rounded = state.converged and state.unsure > 0
    if rounded and state.unsure > NEAR:
        raise InferenceError(Error.REPLIES_TOO_COARSE, distance=state.unsure, bound=NEAR)
    found = inference(
        state.model,
        best.information,
        best.n_samples,
        penalty=state.penalty,
        scaling=state.scaling,
        scatter=best.scatter,
        log_likelihood=best.information.log_likelihood,
        # The score is that before the last step, which leads as close as rounding lets it.
        distance=state.unsure if rounded else None,
    )
    found = replace(found, curves=curves or {})
    if not best.unscattered:
        return found
    lacking = Warn.SCATTER_MISSING(sites=best.unscattered, names=listed(list(best.unscattered)))
    return replace(found, warnings=(lacking, *found.warnings))


def _warnings(
    model: MoE, covariance: Covariance, n_groups: int | None = None
) -> tuple[Notice, ...]:
    """Say what the reader of the table should know."""
    names, K = parameters(model), model.n_experts
    everything = np.eye(len(names))
    known = covariance.determined(everything)
    unknown = [name for name, fine in zip(names, known, strict=True) if not fine]
    seen = [name for name, hidden in zip(names, unseen(model), strict=True) if not hidden]
    found = []

    # 1) columns that are of no use to any expert
    terms = [name.term for name in unknown if name.block == "expert"]
    at_all = [name.term for name in seen if name.block == "expert"]
    columns = [term for term in dict.fromkeys(terms) if terms.count(term) == at_all.count(term)]
    if columns:
        found.append(Warn.COLUMNS_UNDETERMINED(terms=listed(columns)))
    # 2) what else is not determined, by gate row and expert
    rest = [name for name in unknown if name.term not in columns]
    for block, k in dict.fromkeys((name.block, name.expert) for name in rest):
        terms = [n.term for n in rest if (n.block, n.expert) == (block, k)]
        mine = listed(list(dict.fromkeys(terms)))
        if block == "gate":
            found.append(Warn.GATE_UNDETERMINED(expert=k, reference=K - 1, terms=mine))
        else:
            found.append(Warn.EXPERT_UNDETERMINED(expert=k, terms=mine))
    # 3) what the ridge has moved
    se = covariance.standard_errors(everything)
    pull = np.divide(np.abs(covariance.pull), se, out=np.zeros_like(se), where=known & (se > 0))
    moved = int(np.sum(pull > _PULL))
    if moved:
        worst = int(np.argmax(pull))
        found.append(
            Warn.RIDGE_MOVED(
                count=moved,
                plural="s" if moved > 1 else "",
                bound=_PULL,
                worst=str(names[worst]),
                distance=pull[worst],
            )
        )
    # 4) scores that add up to zero, so that G of them span G - 1 dimensions at most
    if n_groups is not None and n_groups <= model.n_free:
        found.append(Warn.FEW_GROUPS(groups=n_groups, parameters=model.n_free))
    return tuple(found)
