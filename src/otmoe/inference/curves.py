"""Splines as tables show them: a joint test in the place of coefficients (maths 19)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from otmoe.inference.parameters import Parameter, parameters, unseen
from otmoe.inference.readout import p_text
from otmoe.inference.terms import TermTest, term_places
from otmoe.model.mixture import MoE

UNKNOWN = "(–)"
"""In the place of a standard error or test that the rows do not determine."""

Some = TypeVar("Some", bound=Parameter)


def curve_places(
    model: MoE, curves: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Parameter, str, list[int]]]:
    """Yield where curves are that tables show as a whole: those with several free coefficients.

    An expert, or a gate, that sees the number but not its spline has a slope, which is a
    coefficient as others are.

    Parameters
    ----------
    model : MoE
    curves : mapping of str to sequence of str
        As ``FeatureSpec.curve_features`` has them.

    Yields
    ------
    section, term, places
        As in :func:`term_places`.
    """
    held = unseen(model) | model.held
    for section, term, places in term_places(model, curves):
        free = [j for j in places if not held[j]]
        if len(free) > 1:
            yield section, term, free


def as_listed(about: Some, model: MoE) -> Some:
    """Return a section or test with the label and term that lists of parameters have.

    There, a response is a part of the term.
    """
    if about.label not in model.experts.responses or about.block != "expert":
        return about
    return replace(about, label=None, term=f"{about.label}: {about.term}")


def curve_tests(
    model: MoE, curves: Mapping[str, Sequence[str]], tests: Sequence[TermTest]
) -> list[TermTest]:
    """Return those tests that are of curves which tables show, named as lists of parameters do.

    Parameters
    ----------
    model : MoE
    curves : mapping of str to sequence of str
        As in :func:`curve_places`.
    tests : sequence of TermTest
    """
    shown = {replace(section, term=term) for section, term, _ in curve_places(model, curves)}
    return [as_listed(test, model) for test in tests if _key(test) in shown]


@dataclass(frozen=True)
class CurveRow:
    """A spline, or a product with one, which is shown as a whole.

    Attributes
    ----------
    block : {"gate", "expert"}
    label : object
        As in :class:`Block`.
    term : str
    features : dict of tuple of str
        Terms of the block that it stands for, by expert that sees it.
    tests : dict of TermTest
        By expert, where it is known.
    """

    block: str
    label: Any
    term: str
    features: dict[int, tuple[str, ...]]
    tests: dict[int, TermTest]

    def cell(self, expert: int, tested: bool) -> str:
        """Return what is shown of an expert's curve.

        Parameters
        ----------
        expert : int
        tested : bool
            Whether curves of the model have tests; without, their degrees of freedom are shown.
        """
        if expert not in self.features:
            return ""
        test = self.tests.get(expert)
        if not tested:
            return f"{len(self.features[expert])} df"
        if test is None or np.isnan(test.statistic):
            return UNKNOWN
        return f"{test.statistic:.1f} ({test.df}) {p_text(test.p)}"


def curve_rows(
    model: MoE, curves: Mapping[str, Sequence[str]], tests: Sequence[TermTest]
) -> tuple[CurveRow, ...]:
    """Return the curves of each block of a table, with their tests.

    Parameters
    ----------
    model : MoE
    curves : mapping of str to sequence of str
        As in :func:`curve_places`.
    tests : sequence of TermTest
        Of :func:`~otmoe.inference.terms.term_tests`, as far as they are known.
    """
    about = parameters(model)
    known = {as_listed(_key(test), model): test for test in tests}
    found: dict[tuple[str, Any, str], CurveRow] = {}
    for section, term, places in curve_places(model, curves):
        key = as_listed(replace(section, term=term), model)
        at, expert = (key.block, key.label, key.term), key.expert or 0
        row = found.setdefault(at, CurveRow(*at, {}, {}))
        row.features[expert] = tuple(about[j].term for j in places)
        if key in known:
            row.tests[expert] = known[key]
    return tuple(found.values())


def _key(test: TermTest) -> Parameter:
    return Parameter(test.block, test.expert, test.against, test.label, test.term)
