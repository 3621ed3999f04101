"""Whether models are compatible: one check for merging and for refining."""

from __future__ import annotations

from reprlib import repr as brief
from typing import Any

import numpy as np

from otmoe.data.features import FeatureSpec
from otmoe.model.mixture import MoE
from otmoe.model.structure import Structure
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


def check_compatible(
    model: MoE,
    features: FeatureSpec | None,
    who: str,
    reference: MoE,
    reference_features: FeatureSpec | None,
    other: str,
) -> None:
    """Refuse a model whose family, features or classes differ from those of a reference.

    Parameters
    ----------
    model : MoE
    features : FeatureSpec, optional
        How columns became its features; without it, they are plain numbers.
    who : str
        What errors call it, such as ``site 'Lyon'``.
    reference, reference_features, other
        The same of the reference.
    """
    names: dict[str, Any] = {"who": who, "other": other}
    if (mine := model.experts.family) != (theirs := reference.experts.family):
        raise InvalidInput(Error.FAMILY_DIFFERS, family=mine, wanted=theirs, **names)
    if (own := model.experts.responses) != (others := reference.experts.responses):
        raise InvalidInput(Error.RESPONSES_DIFFER, responses=own, wanted=others, **names)
    if model.n_features != reference.n_features:
        names |= {"features": model.n_features, "wanted": reference.n_features}
        raise InvalidInput(Error.N_FEATURES_DIFFER, **names)
    _check_names(model.feature_names, reference.feature_names, who, other)
    ours, wanted = _spec(model, features), _spec(reference, reference_features)
    if ours != wanted:
        raise InvalidInput(Error.ENCODING_DIFFERS, what=_difference(ours, wanted), **names)
    classes, known = _labels(model), _labels(reference)
    if classes != known or model.experts.coef.shape[1:] != reference.experts.coef.shape[1:]:
        names |= {"classes": brief(classes), "wanted": brief(known)}
        raise InvalidInput(Error.CLASSES_DIFFER, **names)
    if model.expert_per != reference.expert_per:
        kinds = {"own": model.expert_per, "wanted": reference.expert_per}
        raise InvalidInput(Error.SHARING_DIFFERS, **kinds, who=who, other=other)
    if model.structure != reference.structure:
        what = _restriction(model.structure, reference.structure)
        raise InvalidInput(Error.STRUCTURE_DIFFERS, what=what, who=who, other=other)


def _check_names(
    names: tuple[str, ...] | None, wanted: tuple[str, ...] | None, who: str, other: str
) -> None:
    if names == wanted:
        return
    if names is None:
        raise InvalidInput(Error.NAMES_MISSING, who=who, other=other)
    if wanted is None:
        raise InvalidInput(Error.NAMES_MISSING, who=other, other=who)
    if sorted(names) == sorted(wanted):
        j = next(j for j, (a, b) in enumerate(zip(names, wanted, strict=True)) if a != b)
        facts: dict[str, Any] = {"place": j, "name": brief(names[j]), "wanted": brief(wanted[j])}
        raise InvalidInput(Error.NAMES_ORDER, who=who, other=other, **facts)
    extra, missing = sorted(set(names) - set(wanted)), sorted(set(wanted) - set(names))
    facts = {"extra": brief(extra), "missing": brief(missing)}
    raise InvalidInput(Error.NAMES_DIFFER, who=who, other=other, **facts)


def _spec(model: MoE, features: FeatureSpec | None) -> FeatureSpec | None:
    """Return how columns became features; a model without a word on it takes plain numbers."""
    if features is not None or model.feature_names is None:
        return features
    return FeatureSpec.of_names(model.feature_names)


def _difference(ours: FeatureSpec | None, wanted: FeatureSpec | None) -> str:
    if ours is None or wanted is None or ours.base == wanted.base:
        terms = [{term.name: term for term in spec.terms} for spec in (ours, wanted) if spec]
        differ = [name for name in terms[0] if terms[0][name] != terms[-1].get(name)]
        return f"term {differ[0]!r} with different knots" if differ else "a different set of terms"
    if ours.columns == wanted.columns:
        return "a different rule for unknown levels"
    pairs = zip(ours.columns, wanted.columns, strict=False)
    return f"column {next(a.name for a, b in pairs if a != b)!r} encoded differently"


def _restriction(ours: Structure | None, wanted: Structure | None) -> str:
    """Return what two structures say differently."""
    ours, wanted = ours or Structure(), wanted or Structure()
    if ours.columns != wanted.columns or ours.names != wanted.names:
        return "experts see different columns"
    if ours.common != wanted.common:
        return "different common coefficients"
    return "a common variance in only one of them"


def _labels(model: MoE) -> list[Any]:
    """Return the classes: labels, or numbers where there are none."""
    if model.classes is not None:
        return list(np.asarray(model.classes).tolist())
    return list(range(model.experts.coef.shape[1])) if model.experts.coef.ndim == 3 else []
