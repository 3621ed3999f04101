"""Where a model predicts otherwise: at the covariates of most sites, or of few (maths 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from otmoe.aggregation.disagreement import (
    LEAST_SITES,
    Disagreement,
    divergences,
    standing,
)
from otmoe.aggregation.problem import Problem
from otmoe.arrays.numerics import Floats, design
from otmoe.text.notices import Notice
from otmoe.text.sentences import Finding

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
NOTABLE = 2.0
"""Times the usual disagreement, up to which a site does not stand out by it."""

_BLOCK = 40  # points of one site or several, at which models are compared


@dataclass(frozen=True)
class Places:
    """Models, and the covariates of their sites.

    Attributes
    ----------
    problem : Problem
    chosen : sequence of G int
        The distinct models that are compared.
    chance : ndarray of shape (G, R)
        Divergences that errors of estimation explain.
    points : sequence of ndarray of shape (n, d)
        Covariates of single sites; none where these are not known of all.
    """

    problem: Problem
    chosen: Sequence[int]
    chance: Floats
    points: Sequence[Floats]

    def at(self, X: Floats) -> Disagreement:
        """Compare the models at some covariates (n, d)."""
        models = [self.problem.models[u] for u in self.chosen]
        every = (len(X), len(self.problem.models))
        share = np.broadcast_to(self.problem.ensemble.gate.site_prob(design(X)), every)
        cost, _ = divergences(models, X, share[:, list(self.chosen)], self.problem.sources.pool)
        return standing(cost, self.chance)

    @cached_property
    def typical(self) -> Floats:
        """Disagreement of each model at the covariates of each site, or of a few, (B, G)."""
        blocks: list[list[Floats]] = [[]]
        for X in self.points:
            if sum(map(len, blocks[-1])) >= _BLOCK:
                blocks.append([])
            blocks[-1].append(X)
        found = [np.concatenate(block) for block in blocks if sum(map(len, block))]
        none = np.empty((0, len(self.chosen)))
        return np.array([self.at(X).typical for X in found]) if found else none

    def is_among_most(self, g: int) -> bool:
        """Say whether a model is apart from the others at the covariates of most sites.

        If it is at those of few alone, these may be what is odd: a site that claims to have its
        rows far away does not get the others excluded.
        """
        known = self.typical[~np.isnan(self.typical[:, g])]
        if len(known) < LEAST_SITES:
            return True
        return bool(np.mean(known[:, g] > NOTABLE * np.nanmedian(known, axis=1)) > 0.5)

    def reason(self, g: int, own: Floats, nats: float, usual: float) -> Notice:
        """Return what is to be said about a model that predicts otherwise than the others.

        Where its site has its covariates it may agree with them as well as they agree with each
        other: then it is not wrong, but used where its site has no rows.

        Parameters
        ----------
        g : int
        own : ndarray of shape (n, d)
            Covariates of its site.
        nats, usual : float
            How far it is from the others, and how far that usually is.
        """
        facts: dict[str, Any] = {"nats": nats, "usual": usual}
        if len(own):
            there = self.at(np.tile(own, (-(-_BLOCK // len(own)), 1)))
            agrees = there.typical[g] <= NOTABLE * np.nanmedian(there.typical)
            if agrees and there.typical[g] * NOTABLE <= nats:
                return Finding.EXTRAPOLATES(**facts, own=there.typical[g])
        return Finding.PREDICTS_OTHERWISE(**facts)
