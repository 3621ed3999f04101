"""Joint tests of the coefficients of a term, such as those of a curve or a category (maths 15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import stats

from otmoe.arrays.numerics import Floats
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
        The class that the coefficients are about, or the response where there are several; else
        None.
    term : str
    statistic : float
        Chi-square, or Hotelling's T squared where rows are in groups; NaN where the rows do not
        determine the coefficients.
    df : int
    p : float
    """

    statistic: float
    df: int
    p: float


def wald_test(gap: Floats, covariance: Floats, df: int | None = None) -> WaldTest:
    """Test that m numbers with this covariance (m, m) are zero.

    Parameters
    ----------
    gap : ndarray of shape (m,)
    covariance : ndarray of shape (m, m)
    df : int, optional
        Degrees of freedom of the covariance, where rows are in groups. The statistic is then
        compared with Hotelling's distribution, which is that of t squared for a single number.
    """
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
    rank = int(np.sum(live))
    if df is None:
        return WaldTest(statistic, rank, float(stats.chi2.sf(statistic, rank)))
    if rank >= df < len(gap):  # more numbers than groups tell apart: their covariance is singular
        return WaldTest(np.nan, rank, np.nan)
    left = df - rank + 1
    return WaldTest(statistic, rank, float(stats.f.sf(statistic * left / (rank * df), rank, left)))


class Covariances(Protocol):
    """What knows the covariance of linear combinations of the free parameters."""

    def of(self, combinations: Floats, /) -> Floats:
        """Return the covariance of linear combinations (m, P), (m, m); NaN where not known."""
        ...


def by_section(model: MoE) -> dict[Parameter, dict[str, int]]:
    """Return where coefficients are, by feature, for each expert and row of the gate.

    Each class, or each of several responses, has a section of its own, whose label it is.
    """
    sections: dict[Parameter, dict[str, int]] = {}
    responses = {
        f"{name}: {term}": (name, term) for name in model.experts.responses for term in model.terms
    }
    for j, row in enumerate(parameters(model)):
        if row.block in ("gate", "expert"):
            own = row.block == "expert" and row.term in responses
            label, term = responses[row.term] if own else (row.label, row.term)
            section = Parameter(row.block, row.expert, row.against, label, "")
            sections.setdefault(section, {})[term] = j
    return sections


def term_places(
    model: MoE, terms: Mapping[str, Sequence[str]] | None = None
) -> Iterator[tuple[Parameter, str, list[int]]]:
    """Yield where the coefficients of each term are, for each row of the gate and each expert.

    Parameters
    ----------
    model : MoE
    terms : mapping of str to sequence of str, optional
        As in :func:`term_tests`.

    Yields
    ------
    section : Parameter
        The expert or row of the gate.
    term : str
    places : list of int
        Among the free parameters.
    """
    known = model.terms
    terms = {name: [name] for name in known[1:]} if terms is None else terms
    for features in terms.values():
        for name in features:
            if name not in known:
                raise InvalidInput(Error.NOT_ONE_OF, name="terms", value=name, choices=list(known))
    for section, places in by_section(model).items():
        for term, features in terms.items():
            mine = [places[name] for name in features if name in places]
            if mine:
                yield section, term, mine


def term_tests(
    model: MoE,
    covariance: Covariances,
    terms: Mapping[str, Sequence[str]] | None = None,
    df: int | None = None,
) -> tuple[TermTest, ...]:
    """Return a test of each term in each row of the gate and each expert (maths 19).

    Parameters
    ----------
    model : MoE
    covariance : Covariances
        Of its free parameters.
    terms : mapping of str to sequence of str, optional
        The features of each term; by default every feature is one of its own.
    df : int, optional
        As in :func:`wald_test`.
    """
    value, tests = model.to_vector(), []
    for section, term, mine in term_places(model, terms):
        test = wald_test(value[mine], covariance.of(np.eye(len(value))[mine]), df)
        if test.df:
            about = section.block, section.expert, section.against, section.label, term
            tests.append(TermTest(*about, test.statistic, test.df, test.p))
    return tuple(tests)
