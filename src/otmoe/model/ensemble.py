"""The weighted average f^W of several models: their experts side by side under one pooled gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from otmoe.arrays.numerics import Array, Floats, like, log_sum, namespace, take, times
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.html import html_lines

Constant = Mapping[int, float]
"""Features that never varied at a site, by index, and the value they had there."""

Density = Callable[[Array], Array]
"""Log density of a site's covariates at X (n, d), up to a constant that all sites share; (n,)."""

_SAME = 1e-7  # relative: one of the two values may have been in single precision


@dataclass(frozen=True)
class PooledGate:
    """The gate of f^W: lambda_m(x) times the gate of site m (maths 11).

    A sum of softmax gates is not a softmax gate, so the gates are kept side by side.

    A site whose rows all have the same value of a feature knows nothing of other values: its model
    has no part in f^W at an x that differs there (unless this is so for every site, where all of
    them contribute).

    Attributes
    ----------
    gates : tuple of SoftmaxGate
    site_weight : ndarray of shape (M,)
        Positive, adding up to one.
    constant : tuple of Constant, optional
        For each site, the features that did not vary there.
    density : tuple of Density, optional
        For each site, how its covariates are distributed: lambda_m(x) is in proportion to the
        weight times the density. Without it, lambda_m is the weight at every x.
    """

    gates: tuple[SoftmaxGate, ...]
    site_weight: Floats
    constant: tuple[Constant, ...] | None = None
    density: tuple[Density, ...] | None = None

    @property
    def n_experts(self) -> int:
        """Number of experts of all sites, L."""
        return sum(gate.n_experts for gate in self.gates)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of all gates."""
        return sum(gate.n_parameters for gate in self.gates)

    @cached_property
    def site(self) -> Floats:
        """The site of each expert, (L,)."""
        return np.repeat(np.arange(len(self.gates)), [gate.n_experts for gate in self.gates])

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *accumulate(gate.n_experts for gate in self.gates)]

    def experts_of(self, start: int, stop: int | None = None) -> slice:
        """Return where the experts of a site lie among all, or those of several in a row."""
        return slice(self._ends[start], self._ends[start + 1 if stop is None else stop])

    @cached_property
    def _coef(self) -> Floats:
        return np.concatenate([gate.coef for gate in self.gates])

    @cached_property
    def _groups(self) -> tuple[list[tuple[int, Floats, Floats]], Floats | None]:
        """Sites with equally many experts: (K, sites, their experts); and how to undo the sorting.

        The last is None where all sites have the same number of experts.
        """
        sizes = np.array([gate.n_experts for gate in self.gates])
        groups = []
        for size in np.unique(sizes):
            sites = np.flatnonzero(sizes == size)
            groups.append((int(size), sites, np.flatnonzero(sizes[self.site] == size)))
        if len(groups) == 1:
            return groups, None
        return groups, np.argsort(np.concatenate([experts for _, _, experts in groups]))

    def contributes(self, X: Array) -> Array | None:
        """Return whether each site contributes at each row of a design, (n, M); None if all do."""
        if self.constant is None or not any(self.constant):
            return None
        xp = namespace(X)
        ones = xp.ones_like(X[:, 0])
        columns = []
        for constant in self.constant:
            here = ones > 0
            for feature, value in constant.items():
                here = here & (xp.abs(X[:, feature + 1] - value) <= _SAME * abs(value))
            columns.append(here)
        return xp.stack(columns).T

    @property
    def varies(self) -> bool:
        """Whether the weights of sites depend on x."""
        return self.density is not None or any(self.constant or ())

    def _log_weight(self, X: Array) -> Array:
        """Return log lambda_m(x), up to a constant that all sites share at x, (n, M)."""
        weight = like(np.log(self.site_weight), X)[None, :]
        if self.density is None:
            return weight
        at = X[:, 1:]
        return namespace(X).stack([log_density(at) for log_density in self.density]).T + weight

    def _log_votes(self, X: Array, weight: Array) -> Array:
        """Return these log weights, minus infinity where a site does not contribute, (n, M)."""
        contributes = self.contributes(X)
        return weight if contributes is None else namespace(X).where(contributes, weight, -np.inf)

    def log_total(self, X: Array) -> Array:
        """Return the log of the weight of all sites that contribute at each row, (n,)."""
        return log_sum(self._log_votes(X, self._log_weight(X)))

    def site_prob(self, X: Array) -> Array:
        """Return lambda_m(x) at the rows of a design, (n, M), or (1, M) where it is constant."""
        if not self.varies:
            return like(self.site_weight, X)[None, :]
        weight = self._log_weight(X)
        votes = self._log_votes(X, weight)
        xp = namespace(X)
        votes = xp.where(xp.max(votes, axis=1)[:, None] > -np.inf, votes, weight)
        return xp.exp(votes - log_sum(votes)[:, None])

    def group(self, start: int, stop: int) -> PooledGate:
        """Return the gates of some sites with the weights they have here."""
        constant = None if self.constant is None else self.constant[start:stop]
        density = None if self.density is None else self.density[start:stop]
        return PooledGate(self.gates[start:stop], self.site_weight[start:stop], constant, density)

    def site_share(self, X: Array, log_total: Array | None) -> Array:
        """Return :meth:`site_prob` of a group of sites, by :meth:`log_total` of all sites."""
        if log_total is None:
            return like(self.site_weight, X)[None, :]
        return namespace(X).exp(self._log_votes(X, self._log_weight(X)) - log_total[:, None])

    def shared(self, X: Array, site_share: Array) -> Array:
        """Return the gates of the sites times their shares (n, M) or (1, M); (n, L)."""
        return (self._parts(X) * self._per_expert(site_share)).T

    def _parts(self, X: Array, *, log: bool = False) -> Array:
        """Return the probability (or its log) of each expert within its site, (L, n)."""
        xp = namespace(X)
        logits = times(X, self._coef).T  # (L, n)
        groups, undo = self._groups
        parts = []
        for size, sites, experts in groups:
            mine = logits if undo is None else take(logits, experts)
            rows = xp.reshape(mine, (len(sites), size, X.shape[0]))  # (M, K, n)
            rows -= xp.max(rows, axis=1)[:, None, :]
            e = xp.exp(rows)
            e += 1e-130  # as in numerics.softmax
            total = xp.sum(e, axis=1)[:, None, :]
            if log:
                rows -= xp.log(total)
                parts.append(xp.reshape(rows, mine.shape))
            else:
                e /= total
                parts.append(xp.reshape(e, mine.shape))
        if undo is None:
            return parts[0]
        return take(xp.concat(parts), undo)

    def _per_expert(self, of_site: Array) -> Array:
        """Return values of sites (., M) repeated for their experts, (L, .)."""
        return take(of_site.T, self.site)

    def prob(self, X: Array) -> Array:
        """Return lambda_m(x) pi_ml(x) for the experts of all sites, (n, L)."""
        return self.shared(X, self.site_prob(X))

    def logits(self, X: Array) -> Array:
        """Return the log of :meth:`prob`, (n, L); minus infinity where a site is left out."""
        xp = namespace(X)
        share = self.site_prob(X)
        some = share > 0
        log_share = xp.where(some, xp.log(xp.where(some, share, xp.ones_like(share))), -np.inf)
        return (self._parts(X, log=True) + self._per_expert(log_share)).T

    log_prob = logits


@dataclass(frozen=True)
class Ensemble(MoE):
    """f^W as a predictor: it answers with the experts of every site.

    Densities, means, quantiles and draws are those of any :class:`~otmoe.model.mixture.MoE`.
    """

    gate: PooledGate  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        K, family = self.n_experts, self.experts.family
        return html_lines(f"Ensemble of {len(self.gate.gates)} models", f"{K} {family} experts")


def pool(
    models: Sequence[MoE],
    site_weight: Floats,
    constant: Sequence[Constant] | None = None,
    density: Sequence[Density] | None = None,
) -> Ensemble:
    """Return the weighted average f^W of models of one family (maths 11).

    Parameters
    ----------
    models : sequence of MoE
    site_weight : array of shape (M,)
        Positive; scaled to add up to one.
    constant : sequence of Constant, optional
        For each site, the features that did not vary there.
    density : sequence of Density, optional
        For each site, the distribution of its covariates.
    """
    weight = np.asarray(site_weight, dtype=np.float64)
    return Ensemble(
        PooledGate(
            tuple(model.gate for model in models),
            weight / weight.sum(),
            None if constant is None else tuple(constant),
            None if density is None else tuple(density),
        ),
        type(models[0].experts).concat([model.experts for model in models]),
        models[0].feature_names,
        models[0].classes,
    )
