"""What an aggregation returns: one model, and the part that every site had in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from otmoe.inference import Inference, InferenceError, inference, one_round_refusal
from otmoe.message import LocalModel
from otmoe.model import MoE
from otmoe.numerics import Array, Floats
from otmoe.refinement import Refinement


@dataclass(frozen=True)
class Outcome:
    """What one method returns: a model on the user's scale, experts in any order.

    Attributes
    ----------
    model : MoE
    trace : tuple of float
        The objective, if the method has one.
    converged : bool
    status : str
    warnings : tuple of str
    timings : dict of float
        Seconds by stage.
    """

    model: MoE
    status: str
    trace: tuple[float, ...] = ()
    converged: bool = True
    warnings: tuple[str, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteRecord:
    """The part of one site in an aggregate.

    Attributes
    ----------
    site : str
    n_samples : float
    weight : float
        lambda_m; where it depends on x, its mean over the support points.
    cost : float
        R_c(f_m, g): nats by which the site's experts differ from those they are sent to, on
        average over the support points at which the site has a say. NaN if it has none.
    mass : ndarray of shape (K_m, K), or None
        Share of the site's mass that goes from its expert l to the global expert k; adds up to 1.
        None for the ensemble, whose experts are the sites' own.
    heard : float
        Share of the support points at which the site has a say; less than 1 if a feature never
        varied there.
    disagreement : float
        Typical divergence of what the site predicts from what the others predict, in nats per row
        (maths 12). NaN if there is nothing to compare it with.
    flagged : tuple of str
        Why the site stands out from the others; empty if it does not.
    """

    site: str
    n_samples: float
    weight: float
    cost: float
    mass: Floats | None = field(repr=False)
    heard: float = 1.0
    disagreement: float = np.nan
    flagged: tuple[str, ...] = ()

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
        Size of all messages as JSON.
    support_rows : int
        Covariate rows at the server.
    """

    floats: int
    bytes: int
    support_rows: int


@dataclass(frozen=True)
class Aggregation:
    """One model made of many.

    Attributes
    ----------
    model : MoE
        Experts ordered by mass, largest first.
    method : str
    cost : float
        R_c(f^W, g): nats by which the experts of all sites differ from those they are sent to.
    trace : ndarray
        R_c on the whole support, from the start that won to the end; it never rises. Empty for
        methods without iterations.
    converged : bool
    status : str
        What happened, in a sentence.
    warnings : tuple of str
        What the user should know, a sentence each.
    sites : tuple of SiteRecord
        In the order of the messages.
    left_out : dict of str
        Sites that were left out, and why.
    timings : dict of float
        Seconds by stage; `total` is all of it.
    messages : tuple of LocalModel
    n_support : int
        Support points used.
    support : array of shape (S, d), optional
        These points.
    refinement : Refinement, optional
        The refine rounds, if there were any.
    """

    model: MoE
    method: str
    cost: float
    trace: Floats = field(repr=False)
    converged: bool
    status: str
    warnings: tuple[str, ...]
    sites: tuple[SiteRecord, ...] = field(repr=False)
    timings: Mapping[str, float] = field(repr=False)
    messages: tuple[LocalModel, ...] = field(repr=False)
    n_support: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    support: Array | None = field(default=None, repr=False)
    refinement: Refinement | None = field(default=None, repr=False)

    def refined(self, state: Refinement, rounds: int | str) -> Aggregation:
        """Return the aggregate with the model to which refine rounds have led.

        Parameters
        ----------
        state : Refinement
        rounds : int or "auto"
            As asked for; "auto" has to have converged.
        """
        return replace(
            self,
            model=state.model,
            converged=self.converged and (rounds != "auto" or state.converged),
            status=f"{self.status}; {state.status}",
            refinement=state,
        )

    def inference(self) -> Inference:
        """Return standard errors, tests and intervals, from what the sites sent while refining.

        Raises
        ------
        InferenceError
            If the model was merged in one round, or is not at the maximum yet.
        """
        state = self.refinement
        if state is None or state.best is None:
            raise InferenceError(one_round_refusal(self.method, len(self.sites)))
        return inference(
            state.model,
            state.best.information,
            state.best.n_samples,
            penalty=state.penalty,
            scaling=state.scaling,
            log_likelihood=state.best.information.log_likelihood,
        )

    @property
    def mass(self) -> Floats | None:
        """Share of the mixture that each expert has, (K,); None for the ensemble."""
        parts = [s.weight * s.mass.sum(axis=0) for s in self.sites if s.mass is not None]
        if len(parts) < len(self.sites):
            return None
        total = np.sum(parts, axis=0)
        return np.asarray(total / total.sum())

    @cached_property
    def communication(self) -> Communication:
        """What was sent: floats, bytes of JSON, support rows."""
        return Communication(
            floats=sum(_floats(message) for message in self.messages),
            bytes=sum(len(message.to_json().encode()) for message in self.messages),
            support_rows=self.n_support,
        )


def _floats(message: LocalModel) -> int:
    sketch = 0 if message.sketch is None else message.sketch.n_floats
    rows = 0 if message.support is None else message.support.size
    grams = 0 if message.grams is None else message.grams.n_floats
    return message.model.n_parameters + 2 + grams + sketch + rows
