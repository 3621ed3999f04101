"""What the options about columns ask for: the response, the features, and what the gate sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from otmoe.cli.common import Failed, few, usage
from otmoe.cli.options import features_of
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from otmoe import FeatureSpec
    from otmoe.arrays.numerics import Floats
    from otmoe.data.shards import FileShard


@dataclass(frozen=True)
class Asked:
    """What --target, --formula, --features and --columns ask for.

    Attributes
    ----------
    target : str
    features : FeatureSpec, list of str or None
    gate, experts : list of str, "intercept" or None
        What a formula lets them see; None for all.
    """

    target: str
    features: FeatureSpec | list[str] | None
    gate: list[str] | Literal["intercept"] | None = None
    experts: list[str] | Literal["intercept"] | None = None


def asked_of(
    data: Sequence[str],
    target: str | None,
    formula: str | None,
    spec: str | None,
    columns: list[str] | None,
    *roles: str | None,
    sep: str | None = None,
) -> Asked:
    """Return what to model and by which features; `roles` are columns that are none."""
    from otmoe import FeatureSpec
    from otmoe.data.formula import Formula
    from otmoe.data.shards import sample_rows

    if formula is None:
        if target is None:
            raise usage(Error.SHELL_NO_TARGET)
        return Asked(target, features_of(spec, columns))
    if columns is not None:
        raise usage(Error.SHELL_FORMULA_OR, option="--columns")
    parsed = Formula.parse(formula)
    if target is not None and parsed.target not in (None, target):
        raise usage(Error.SHELL_FORMULA_TARGET, formula=parsed.target, target=target)
    parsed = replace(parsed, target=parsed.target or target)
    if parsed.target is None:
        raise usage(Error.SHELL_NO_TARGET)
    sample, others = sample_rows(list(data), sep=sep), [name for name in roles if name is not None]
    if spec is None:
        features = parsed.features(sample, roles=others)
    else:
        known = features_of(spec, None)
        if not isinstance(known, FeatureSpec):
            raise Failed(Error.SHELL_NO_COLUMNS, file=spec)
        features = known
        parsed.check(features, sample, others)
    seen = parsed.gate_features(features), parsed.expert_features(features)
    return Asked(parsed.target, features, *seen)


def labels_of_site(shard: FileShard, declared: list[str] | None) -> Floats:
    """Return the classes, sorted: those that were declared, or those that occur."""
    import numpy as np

    from otmoe.data.shards.gathering import most_missing
    from otmoe.distributed.task import read
    from otmoe.model.target import as_whole

    if declared is None:
        found = read(shard)
        seen = as_whole(np.unique(found.y))
        if len(seen) < 2:
            dropped, total = found.dropped, found.dropped + len(found.y)
            after = f"{dropped:,} of {total:,} rows were dropped because a value is missing"
            raise Failed(
                Error.SHELL_FEW_CLASSES,
                where=shard.name,
                classes=len(seen),
                dropped=f", after {after}{most_missing(found.missing)}" if dropped else "",
            )
        return seen
    try:
        labels = as_whole(np.unique(np.array(declared, dtype=str if shard.labels else np.float64)))
    except ValueError:
        raise Failed(
            Error.SHELL_CLASSES_NUMBERS,
            where=shard.name,
            column=shard.target,
            classes=few(declared),
        ) from None
    if len(labels) < 2:
        raise Failed(Error.SHELL_ONE_CLASS)
    return labels
