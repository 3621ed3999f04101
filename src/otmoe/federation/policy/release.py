"""A message on its way out: checked by the site's policy, and rounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from otmoe.documents.message import LocalModel
from otmoe.federation.policy.figures import Figures, figures_of
from otmoe.federation.policy.rounding import (
    rounded_grams,
    rounded_log_likelihood,
    rounded_model,
    rounded_sketch,
)
from otmoe.federation.policy.rules import Policy, Rule, Verdict
from otmoe.federation.policy.verdict import judge
from otmoe.likelihood.rows import Rows


@dataclass(frozen=True)
class Release:
    """A message that could leave, and what is to be said about it.

    Attributes
    ----------
    message : LocalModel
        Rounded as the policy says; not to be sent if the verdict is against it.
    verdict : Verdict
    figures : Figures
    """

    message: LocalModel
    verdict: Verdict
    figures: Figures


def released(
    message: LocalModel,
    rows: Rows,
    policy: Policy,
    *,
    ids: Any = None,
    columns: Iterable[str] = (),
    own_names: bool = False,
    overrides: Mapping[Rule, str] | None = None,
) -> Release:
    """Check a message against a policy; the caller has to call :func:`verdict.check`.

    Parameters
    ----------
    message : LocalModel
    rows : Rows
        That it was fitted to, on the user's scale.
    policy : Policy
    ids : array-like of shape (n,), optional
        Whose each row is.
    columns, own_names, overrides
        As in :func:`verdict.judge`.
    """
    figures = figures_of(message.model, rows, features=message.features, ids=ids)
    return release(
        message, figures, policy, columns=columns, own_names=own_names, overrides=overrides
    )


def release(
    message: LocalModel,
    figures: Figures,
    policy: Policy,
    *,
    columns: Iterable[str] = (),
    own_names: bool = False,
    overrides: Mapping[Rule, str] | None = None,
) -> Release:
    """Do what :func:`released` does, with figures that are known."""
    if message.sketch is not None:
        smallest = float(message.sketch.weight.min() * figures.rows)
        figures = replace(figures, component_rows=smallest)
    if message.support is not None:
        figures = replace(figures, shared=len(message.support))
    verdict = judge(policy, figures, columns=columns, own_names=own_names, overrides=overrides)
    if own_names and not policy.names:
        message = replace(message, constant={})
    kept = {str(rule): why for rule, why in verdict.overrides.items()}
    message = replace(_rounded(message, figures, policy.digits), overrides=kept)
    return Release(message, verdict, figures)


def _rounded(message: LocalModel, figures: Figures, digits: float | None) -> LocalModel:
    """Return a message of fewer digits, as many as the policy says."""
    if digits is None:
        return message
    model, n, scaling = message.model, figures.rows, figures.scaling
    grams, sketch = message.grams, message.sketch
    if grams is not None:
        levels = [term in figures.levels for term in model.terms[1:]]
        grams = rounded_grams(grams, scaling, levels)
    return replace(
        message,
        model=rounded_model(model, scaling, figures.curvature, n, figures.expert_rows, digits),
        log_likelihood=rounded_log_likelihood(message.log_likelihood, n, digits),
        grams=grams,
        sketch=None if sketch is None else rounded_sketch(sketch, n, digits),
    )
