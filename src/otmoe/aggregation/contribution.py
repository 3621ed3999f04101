"""What one method returns, and what the result of an aggregation is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice


@dataclass(frozen=True)
class MethodCandidate:
    """The model of one method, among those that a server can choose from.

    Attributes
    ----------
    method : str
    n_experts : int
    lost : float
        Expected loss relative to the sites' own models in nats per row, the weighted mean over the
        sites (maths 17).
    """

    method: str
    n_experts: int
    lost: float


@dataclass(frozen=True)
class Alternative:
    """A merging method, and its expected loss relative to the sites' own models (maths 20).

    Attributes
    ----------
    method : str
    lost : float
        Nats per row, the weighted mean over the sites.
    typical : float
        Nats per row at the median of the sites, each of which counts once: fewer than half of them
        cannot move it far.
    """

    method: str
    lost: float
    typical: float


@dataclass(frozen=True)
class Outcome:
    """What one method returns: a model on the user's scale, experts in any order.

    Attributes
    ----------
    model : MoE
    trace : tuple of float
        The objective, if the method has one.
    converged : bool
    status : Notice
    warnings : tuple of Notice
    timings : dict of float
        Seconds by stage.
    method : str, optional
        The method that was chosen, if the server chose.
    candidates : tuple of MethodCandidate
        What it chose from, the best first.
    lost : ndarray of shape (U,), optional
        Nats per row that each distinct model is expected to lose, if they are known already.
    stepped : float
        Nats per row of that which a step by Grams costs, since the sites' models do not expect
        what their rows were (maths 17).
    """

    model: MoE
    status: Notice
    trace: tuple[float, ...] = ()
    converged: bool = True
    warnings: tuple[Notice, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    method: str | None = None
    candidates: tuple[MethodCandidate, ...] = ()
    lost: Floats | None = None
    stepped: float = 0.0


@dataclass(frozen=True)
class Contribution:
    """The contribution of one site to an aggregate.

    Attributes
    ----------
    site : str
    n_samples : float
    weight : float
        lambda_m; where it depends on x, its mean over the support points.
    cost : float
        R_c(f_m, g): nats by which the site's experts differ from those they are sent to, on
        average over the support points at which the site contributes. NaN if it has none.
    mass : ndarray of shape (K_m, K), or None
        Share of the site's mass that goes from its expert l to the global expert k; adds up to 1.
        None for the ensemble, whose experts are the sites' own.
    coverage : float
        Share of the support points at which the site contributes; less than 1 if a feature never
        varied there.
    disagreement : float
        Typical divergence of the site's predictions from those of the others, in nats per row
        (maths 12). NaN if there is nothing to compare it with.
    flagged : tuple of Notice
        Why the site stands out from the others; empty if it does not.
    lost : float
        Expected loss of the merged model relative to the site's own, in nats per row, at covariates
        of the site (maths 17). NaN if it was not computed.
    """

    site: str
    n_samples: float
    weight: float
    cost: float
    mass: Floats | None = field(repr=False)
    coverage: float = 1.0
    disagreement: float = np.nan
    flagged: tuple[Notice, ...] = ()
    lost: float = np.nan

    @property
    def destination(self) -> Floats | None:
        """The global expert that most of each local expert's mass goes to, (K_m,)."""
        return None if self.mass is None else np.argmax(self.mass, axis=1)


@dataclass(frozen=True)
class Communication:
    """What had to be sent for an aggregate.

    Attributes
    ----------
    floats : int
        Numbers in all messages: free parameters, n, log-likelihood, and what else was sent:
        Grams, sketches, rows of x.
    bytes : int
        Everything that was sent: messages, support rows, refine rounds.
    support_rows : int
        Covariate rows at the server.
    message_bytes : int
        Size of all messages as JSON.
    support_bytes : int
        Covariate rows that shards sent along with their messages, eight bytes per number.
    refine_bytes : int
        Refine rounds, in both directions, eight bytes per number.
    """

    floats: int
    bytes: int
    support_rows: int
    message_bytes: int = 0
    support_bytes: int = 0
    refine_bytes: int = 0


@dataclass(frozen=True)
class Covariates:
    """Distribution of the support points, feature by feature.

    Attributes
    ----------
    mean, sd : ndarray of shape (d,)
    low, high : ndarray of shape (d,)
        The middle 95 % of the points lie between them.
    """

    mean: Floats
    sd: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, X: Floats) -> Covariates:
        """Describe some rows (n, d)."""
        return cls(X.mean(axis=0), X.std(axis=0), *np.quantile(X, [0.025, 0.975], axis=0))
