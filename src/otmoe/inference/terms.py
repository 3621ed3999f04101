"""Joint tests of the coefficients of a term, such as those of a curve or a category (maths 15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from otmoe.arrays.numerics import Floats
from otmoe.inference.covariance import Covariance
from otmoe.inference.estimates import WaldTest
from otmoe.inference.parameters import Parameter, parameters
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class TermTest(Parameter):
    """A test that all coefficients of a term are zero, in one expert or row of the gate.

    Attributes
    ----------
    block : {"gate", "expert"}
    expert : int
    against : int or None
        The gate's reference expert.
    label : object
        The class that the coefficients are about, in classifiers; else None.
    term : str
    statistic : float
        Chi-square; NaN where the rows do not determine the coefficients.
    df : int
    p : float
    """

    statistic: float
    df: int
    p: float


def wald_test(gap: Floats, covariance: Floats) -> WaldTest:
    """Test that m numbers with this covariance (m, m) are zero."""
    if not np.all(np.isfinite(covariance)):
        return WaldTest(np.nan, len(gap), np.nan)
    variance = np.diagonal(covariance)
    free = variance > 0  # the others are fixed: equal by the structure, or left out
    if not np.any(free):
        return WaldTest(np.nan, 0, np.nan)
    gap, covariance = gap[free], covariance[np.ix_(free, free)]
    unit = 1 / np.sqrt(variance[free])
    values, vectors = np.linalg.eigh(covariance * unit[:, None] * unit)
    live = values > 1e-9 * values[-1]  # a combination may have been given twice
    statistic = float(np.sum((vectors.T @ (unit * gap))[live] ** 2 / values[live]))
    df = int(np.sum(live))
    return WaldTest(statistic, df, float(stats.chi2.sf(statistic, df)))


def term_tests(
    model: MoE, covariance: Covariance, terms: Mapping[str, Sequence[str]] | None = None
) -> tuple[TermTest, ...]:
    """Return a test of each term in each row of the gate and each expert (maths 19).

    Parameters
    ----------
    model : MoE
    covariance : Covariance
        Of its free parameters.
    terms : mapping of str to sequence of str, optional
        The features of each term; by default every feature is one of its own.
    """
    known, value = model.terms, model.to_vector()
    terms = {name: [name] for name in known[1:]} if terms is None else terms
    for features in terms.values():
        for name in features:
            if name not in known:
                raise InvalidInput(Error.NOT_ONE_OF, name="terms", value=name, choices=list(known))
    sections: dict[Parameter, dict[str, int]] = {}
    for j, row in enumerate(parameters(model)):
        if row.block in ("gate", "expert"):
            section = Parameter(row.block, row.expert, row.against, row.label, "")
            sections.setdefault(section, {})[row.term] = j
    tests = []
    for section, places in sections.items():
        for term, features in terms.items():
            mine = [places[name] for name in features if name in places]
            if mine:
                matrix = np.eye(len(value))[mine]
                test = wald_test(value[mine], covariance.of(matrix))
                if test.df == 0:
                    continue
                tests.append(
                    TermTest(
                        section.block,
                        section.expert,
                        section.against,
                        section.label,
                        term,
                        test.statistic,
                        test.df,
                        test.p,
                    )
                )
    return tuple(tests)
