# Long because one value has all that is asked of a merging.
"""What an aggregation returns: one model, and the contribution of every site."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from otmoe.aggregation.alternatives import alternatives
from otmoe.aggregation.contribution import (
    Alternative,
    Communication,
    Contribution,
    Covariates,
    MethodCandidate,
)
from otmoe.aggregation.dependence import GateDependence, gate_dependence
from otmoe.aggregation.influence import influence_by_site
from otmoe.aggregation.problem import Problem
from otmoe.aggregation.record import (
    dependence_document,
    ended,
    finite,
    refinement_document,
    site_document,
    told,
    words,
)
from otmoe.arrays.numerics import Array, Floats, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.documents.message import LocalModel
from otmoe.documents.model_file import save_model
from otmoe.inference import Inference, one_round_refusal, refined_inference
from otmoe.inference.between import Between
from otmoe.likelihood.fit import Fit
from otmoe.likelihood.rounds import Refinement
from otmoe.likelihood.rows import take_rows
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.errors import InferenceError
from otmoe.text.html import html_lines, html_table
from otmoe.text.notices import Notice
from otmoe.text.records import LONGEST_NAME
from otmoe.text.sentences import Status

_BYTES = 8  # of a number that travels between processes
_DESCRIBED = 5_000  # support points that say where all of them lie
_SHOWN = 20  # sites in the table of a notebook


@dataclass(frozen=True)
class Aggregation:
    """One model merged from many.

    Attributes
    ----------
    model : MoE
        Experts ordered by mass, largest first.
    method : str
    cost : float
        R_c(f^W, g): nats by which the experts of all sites differ from those they are sent to.
    trace : ndarray
        R_c on the whole support, from the best start to the end; it never increases. Empty for
        methods without iterations.
    converged : bool
    status : Notice
        What happened.
    warnings : tuple of Notice
        What the user should know.
    sites : tuple of Contribution
        In the order of the messages.
    left_out : dict of Notice
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
    candidates : tuple of MethodCandidate
        The candidates for the method, best first; empty if the method was given.
    problem : Problem, optional
        What was merged, if sites were screened.
    merged : MoE, optional
        The model as merged in one round, where sites have an influence on it that can be told.
    brought : int
        Rows of covariates that shards sent along with their messages.
    groups : dict of tuple of str
        If sites were merged in groups, the sites of each; `sites` and `messages` are then those of
        the groups.
    """

    model: MoE
    method: str
    cost: float
    trace: Floats = field(repr=False)
    converged: bool
    status: Notice
    warnings: tuple[Notice, ...]
    sites: tuple[Contribution, ...] = field(repr=False)
    timings: Mapping[str, float] = field(repr=False)
    messages: tuple[LocalModel, ...] = field(repr=False)
    n_support: int
    left_out: Mapping[str, Notice] = field(default_factory=dict)
    support: Array | None = field(default=None, repr=False)
    refinement: Refinement | None = field(default=None, repr=False)
    candidates: tuple[MethodCandidate, ...] = field(default=(), repr=False)
    problem: Problem | None = field(default=None, repr=False, compare=False)
    merged: MoE | None = field(default=None, repr=False, compare=False)
    brought: int = field(default=0, repr=False)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def refined(self, state: Refinement, rounds: int | str) -> Aggregation:
        """Return the aggregate with the model obtained by refine rounds.

        Parameters
        ----------
        state : Refinement
        rounds : int or "auto"
            As asked for; "auto" has to have converged.
        """
        found = replace(
            self,
            model=state.model,
            refinement=state,
            warnings=self.warnings
            + state.warnings(rounds, [site.site for site in self.sites if site.flagged]),
            **ended(self.converged, self.status, state, rounds),
        )
        return found._with_doubts() if state.converged else found

    def maximised(self, fit: Fit, state: Refinement) -> Aggregation:
        """Return the aggregate with the model obtained by EM over all rows.

        Parameters
        ----------
        fit : Fit
        state : Refinement
            One round about that model: its information, for :meth:`inference`.
        """
        return replace(
            self,
            model=fit.model,
            method="em",
            converged=fit.converged,
            status=Status.MAXIMISED(merging=self.status, fit=fit.status),
            warnings=self.warnings + fit.warnings,
            refinement=replace(state, model=fit.model),
        )._with_doubts()

    def _with_doubts(self) -> Aggregation:
        """Return the aggregate with warnings about what the rows do not determine (maths 15).

        At a maximum that only the ridge holds, a gate separates rows or an expert has too few.
        """
        try:
            doubts = self.inference().warnings
        except InferenceError:  # not at the maximum: the status says so
            return self
        return replace(self, warnings=self.warnings + doubts)

    def inference(self) -> Inference:
        """Return standard errors, tests and intervals, from what the sites sent while refining.

        Raises
        ------
        InferenceError
            If the model was merged in one round, or is not at the maximum yet.
        """
        if self.refinement is None or self.refinement.best is None:
            raise one_round_refusal(self.method, len(self.sites))
        features = self.messages[0].features
        curves = None if features is None else features.curve_features
        return refined_inference(self.refinement, curves)

    @property
    def lost(self) -> float:
        """Expected loss of the one-round model relative to the sites' own, in nats per row.

        The weighted mean over the sites (maths 17); NaN if it was not computed.
        """
        known = [s for s in self.sites if not np.isnan(s.lost)]
        if not known:
            return np.nan
        return float(np.average([s.lost for s in known], weights=[s.weight for s in known]))

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Expected losses of the merged model and of the robust methods.

        The first is the model as merged in one round. They are computed on first access; empty if
        sites were not screened, or are fewer than three.
        """
        if self.problem is None:
            return ()
        known = {site.site: site.lost for site in self.sites}
        lost = np.full(len(self.problem.models), np.nan)
        for message, u in zip(self.problem.messages, self.problem.which, strict=True):
            if u >= 0:
                lost[u] = known.get(message.site, np.nan)
        return alternatives(self.problem, self.method, lost)

    @cached_property
    def influence(self) -> Mapping[str, float]:
        """Expected gain of the other sites in nats per row if a site were left out, by site.

        It is computed on first access (maths 20); sites that sent one model are left out together.
        NaN if sites were not screened, for methods in which each has one vote, or where it would
        take too long.
        """
        found = {}
        if self.problem is not None and self.merged is not None:
            found = influence_by_site(self.problem, self.merged)
        return {site.site: found.get(site.site, np.nan) for site in self.sites}

    @property
    def mass(self) -> Floats | None:
        """Share of the mixture that each expert has, (K,); None for the ensemble."""
        parts = [s.weight * s.mass.sum(axis=0) for s in self.sites if s.mass is not None]
        if not parts:
            return None  # a site without mass contributes at no support point
        total = np.sum(parts, axis=0)
        return np.asarray(total / total.sum())

    @cached_property
    def covariates(self) -> Covariates | None:
        """Summary of the support points, if they are known, from a subsample of them."""
        if self.support is None:
            return None
        index = np.arange(self.support.shape[0])
        if len(index) > _DESCRIBED:
            index = np.sort(np.random.default_rng(0).choice(index, _DESCRIBED, replace=False))
        return Covariates.of(np.asarray(take_rows(self.support, index), np.float64))

    @cached_property
    def gate_dependence(self) -> tuple[GateDependence, ...]:
        """Effect of each column on the gate, averaged over the support points, if known."""
        if self.support is None or not isinstance(self.model.gate, SoftmaxGate):
            return ()
        return gate_dependence(self.model, to_numpy(self.support), self.messages[0].features)

    @cached_property
    def communication(self) -> Communication:
        """What was sent: floats, bytes, support rows."""
        messages = sum(sum(message.sizes.values()) for message in self.messages)
        support = _BYTES * self.brought * self.model.n_features
        refine = 0
        if self.refinement is not None:
            P = self.model.n_parameters
            each = P + 1 + P + P * (P + 1) // 2  # the model there; value, score, information back
            refine = _BYTES * self.refinement.rounds * len(self.sites) * each
        return Communication(
            floats=sum(_floats(message) for message in self.messages),
            bytes=messages + support + refine,
            support_rows=self.n_support,
            message_bytes=messages,
            support_bytes=support,
            refine_bytes=refine,
        )

    def __repr__(self) -> str:
        sites = f"{len(self.sites):,} site{'s' * (len(self.sites) != 1)}"
        ended = "" if self.converged else ", NOT CONVERGED"
        return f"Aggregation({self.model.called}, from {sites}, method={self.method!r}{ended})"

    def _repr_html_(self) -> str:
        rows = sum(s.n_samples for s in self.sites)
        names = [s.site for s in self.sites if s.flagged]
        shown = sorted(self.sites, key=lambda s: (not s.flagged, -s.weight))[:_SHOWN]
        left = len(self.sites) - len(shown)
        cells = (
            [
                s.site,
                f"{s.n_samples:,.10g}",
                *(
                    f"{value:.3g}"
                    for value in (s.weight, s.cost, s.disagreement, s.lost, self.influence[s.site])
                ),
                "; ".join(map(str, s.flagged)),
            ]
            for s in shown
        )
        heads = [
            "site",
            "rows",
            "weight",
            "cost",
            "disagreement",
            "lost",
            "influence",
            "stands out",
        ]
        return html_lines(
            f"{self.model.n_experts} {self.model.experts.family} experts, merged from "
            f"{len(self.sites):,} sites by {self.method}",
            f"{rows:,.10g} rows, {self.communication.bytes:,} bytes sent, R_c {self.cost:.4g} nats",
            *([f"expected loss {self.lost:.3g} nats per row"] if self.lost == self.lost else []),
            f"{'' if self.converged else 'NOT CONVERGED: '}{self.status}",
            *([f"stand out: {len(names)} of {len(self.sites):,} sites"] if names else []),
            *([f"left out: {', '.join(list(self.left_out)[:_SHOWN])}"] if self.left_out else []),
        ) + html_table(heads, cells, f"and {left:,} more sites" if left else "")

    # -- files --------------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        about: dict[str, Any] | None = None,
        features: FeatureSpec | None = None,
        between: Between | None = None,
    ) -> None:
        """Write the model and how it was merged to a file, whole or not at all.

        :func:`otmoe.load_model` reads the model, ``otmoe report`` all of it.

        Parameters
        ----------
        path : str or path
            Its folder has to exist.
        about : dict, optional
            Further entries for the file: text, numbers or booleans by name.
        features : FeatureSpec, optional
            How columns become the model's features; by default as the messages have it.
        between : Between, optional
            How the sites differ, for ``otmoe personalise``.
        """
        features = self.messages[0].features if features is None else features
        save_model(self.model, path, about, features, self.document(), between)

    def document(self) -> dict[str, Any]:
        """Return how the model was merged, as it stands in a model file; without the model."""
        part: dict[str, Any] = {
            "method": self.method,
            "cost": finite(self.cost),
            "trace": np.asarray(self.trace).tolist(),
            "converged": bool(self.converged),
            "status": told(self.status),
            "warnings": list(map(told, self.warnings)),
            "n_support": int(self.n_support),
            "left_out": {words(s)[:LONGEST_NAME]: told(why) for s, why in self.left_out.items()},
        }
        if self.candidates:
            part["candidates"] = [
                {"method": c.method, "n_experts": c.n_experts, "lost": finite(c.lost)}
                for c in self.candidates
            ]
        if self.alternatives:
            part["alternatives"] = [
                {"method": a.method, "lost": finite(a.lost), "typical": finite(a.typical)}
                for a in self.alternatives
            ]
        if self.covariates is not None:
            part["covariates"] = {k: v.tolist() for k, v in vars(self.covariates).items()}
            part["gate"] = [dependence_document(found) for found in self.gate_dependence]
        state = self.refinement
        if state is None or state.best is None:
            part["no_inference"] = told(one_round_refusal(self.method, len(self.sites)).notice)
        else:
            part |= refinement_document(state, self.messages[0].features)
        influence = self.influence
        return part | {
            "sites": [
                site_document(site, message, influence[site.site])
                for site, message in zip(self.sites, self.messages, strict=True)
            ]
        }


def _floats(message: LocalModel) -> int:
    sketch = 0 if message.sketch is None else message.sketch.n_floats
    rows = 0 if message.support is None else message.support.size
    grams = 0 if message.grams is None else message.grams.n_floats
    return message.model.n_parameters + 2 + grams + sketch + rows
