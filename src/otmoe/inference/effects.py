"""How sites differ, in records: blocks of parameters, sites, coefficients (maths 18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from otmoe.arrays.numerics import Floats
from otmoe.inference.parameters import Parameter
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class Spread:
    """How much a block of parameters differs between sites.

    Attributes
    ----------
    block : str
        One of :data:`otmoe.likelihood.prior.BLOCKS`.
    tau : float
        Standard deviation between sites, on standardised features; for an expert's coefficients, in
        units of its standard deviation. 0 if sites agree or are too few.
    low, high : float
        Its interval, by the profile of the restricted likelihood.
    q, df, p_value : float
        Cochran's test that sites agree in this block: its statistic, the degrees of freedom and
        the probability of a larger one. NaN if there is no such test.
    n_parameters : int
    n_sites : int
        Sites with more scores than the block has parameters.
    """

    block: str
    tau: float
    low: float
    high: float
    q: float
    df: float
    p_value: float
    n_parameters: int
    n_sites: int

    @property
    def i2(self) -> float:
        """Share of the variation over sites that is not noise, I squared."""
        return max(0.0, 1 - self.df / self.q) if self.q > 0 else 0.0


@dataclass(frozen=True)
class Comparison:
    """How well three models predict held-out rows of a site.

    Attributes
    ----------
    own, common, personal : float or None
        Mean log density of a held-out row: of the model of the site's rows alone, of the common
        one, and of the personal one; None if there is no such model.
    best : {"own", "common", "personal"}
    """

    own: float | None
    common: float | None
    personal: float | None
    best: str


@dataclass(frozen=True)
class SiteEffect:
    """A site among the others.

    Attributes
    ----------
    site : str
    n_samples : float
    estimate, error : ndarray of shape (P,)
        Estimate from its reply alone, and its standard errors; infinite if it has no information.
    shrunk, shrunk_error : ndarray of shape (P,)
        The same after shrinkage to the mean: the server's version of its personal model. The
        errors count that of the mean.
    q, p_value : float
        Its contribution to Cochran's Q over all parameters, and the p value.
    comparison : Comparison, optional
        Which model predicts best, if it has compared them.
    """

    site: str
    n_samples: float
    estimate: Floats = field(repr=False)
    error: Floats = field(repr=False)
    shrunk: Floats = field(repr=False)
    shrunk_error: Floats = field(repr=False)
    q: float
    p_value: float
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Coefficient(Parameter):
    """A parameter over sites.

    Attributes
    ----------
    block : {"gate", "expert", "variance"}
    expert : int
    against : int or None
        The gate's reference expert, for its coefficients.
    label : object
        The class that the coefficient is about, in classifiers; else None.
    term : str
    mean, se : float
        Mean over sites and its standard error.
    tau : float
        Standard deviation between sites.
    low, high : float
        Prediction interval for a new site.
    """

    mean: float
    se: float
    tau: float
    low: float
    high: float


def positions(
    about: Sequence[Parameter],
    term: str | int | None = None,
    *,
    expert: int | None = None,
    block: str | None = None,
    label: object = None,
) -> list[int]:
    """Return where the parameters of a term, an expert, a block or a class are.

    Parameters
    ----------
    about : sequence of Parameter
    term : str or int, optional
        A feature, "intercept" or "variance"; or the position itself.
    expert : int, optional
    block : {"expert", "gate", "variance"}, optional
    label : object, optional
        A class.
    """
    if isinstance(term, int):
        if not -len(about) <= term < len(about):
            raise InvalidInput(Error.PARAMETER_POSITION, position=term, last=len(about) - 1)
        return [range(len(about))[term]]
    wanted = {"term": term, "block": block, "expert": expert, "label": label}
    found = list(range(len(about)))
    for name, value in wanted.items():
        if value is None:
            continue
        rest = [j for j in found if getattr(about[j], name) == value]
        if not rest:
            choices = list(dict.fromkeys(getattr(about[j], name) for j in found))
            raise InvalidInput(Error.NOT_ONE_OF, name=name, value=value, choices=choices)
        found = rest
    return found
