"""The options that say what the gate and the experts see, and what experts share."""

from __future__ import annotations

from typing import Any, Literal

from otmoe.cli.common import Names, option, several, usage
from otmoe.text.sentences import Error

GATE, EXPERTS, COMMON, VARIANCE, ZERO, PER = (
    "--gate-features",
    "--expert-features",
    "--common",
    "--common-variance",
    "--zero-expert",
    "--expert-per",
)

gate_features = option(
    GATE,
    type=Names(),
    section="Fit",
    help="Features used by the gate, or `intercept` for none; by default all.",
)
expert_per = option(
    PER,
    metavar="COLUMN",
    section="Fit",
    help="Labels of groups, such as persons, whose rows share one expert; by default every row "
    "has its own. Gate features must be constant within a group.",
)

structure = several(
    gate_features,
    option(
        EXPERTS,
        multiple=True,
        metavar="[NAME=]NAME,...",
        section="Fit",
        help="Features used by the experts, or `intercept` for none; by default all. For experts "
        "with different features, give it once for each, as in rising=hour,month.",
    ),
    option(
        COMMON,
        type=Names(),
        section="Fit",
        help="Features whose coefficient is the same in every expert; may include `intercept`.",
    ),
    option(
        VARIANCE,
        is_flag=True,
        section="Fit",
        help="All experts share one variance (numeric targets).",
    ),
    option(
        ZERO,
        is_flag=True,
        section="Fit",
        help="The last of the experts is always 0, for counts with many zeros.",
    ),
    expert_per,
)


def gate_of(
    names: list[str] | None, formula: list[str] | Literal["intercept"] | None
) -> list[str] | Literal["intercept"] | None:
    """Return what the gate sees, by the option or by what stands after the bar of a formula."""
    if names is None:
        return formula
    if formula is not None:
        raise usage(Error.SHELL_FORMULA_OR, option=GATE)
    return "intercept" if names == ["intercept"] else names


def experts_of(
    given: tuple[str, ...], formula: list[str] | Literal["intercept"] | None
) -> list[str] | Literal["intercept"] | dict[str, Any] | None:
    """Return what the experts see, by the option or by what stands before the bar of a formula."""
    if not given:
        return formula
    if formula is not None:
        raise usage(Error.SHELL_FORMULA_OR, option=EXPERTS)
    if len(given) == 1 and "=" not in given[0]:
        return _names(given[0])
    found: dict[str, Any] = {}
    for each in given:
        name, sign, features = each.partition("=")
        if not sign or not name.strip() or name.strip() in found:
            raise usage(Error.SHELL_EXPERT_FEATURES, value=each)
        found[name.strip()] = _names(features)
    return found


def _names(text: str) -> list[str] | Literal["intercept"]:
    names = Names().convert(text, None, None)
    return "intercept" if names == ["intercept"] else names
