"""Greedy merging of experts, two at a time, after Runnalls (2007)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otmoe.aggregation.sources import Cell, Sources
from otmoe.arrays.numerics import Floats
from otmoe.model.experts import Experts, FitStatistics

CHUNK = 2**22
"""Numbers in one batch of Gram matrices."""


@dataclass(frozen=True)
class Parts:
    """Experts to be merged, as quadratic approximations of their log-likelihoods (maths 11).

    Attributes
    ----------
    weight : ndarray of shape (L,)
    coef : ndarray of shape (L, P)
        Free coefficients; and the logarithm of the dispersion, if y has no scale.
    gram : ndarray of shape (L, P, P)
        Information about them, times the dispersion of a y with a scale.
    dispersion : ndarray of shape (L,), or None
        Where y has a scale.
    """

    weight: Floats
    coef: Floats
    gram: Floats
    dispersion: Floats | None

    def merged(self, i: int, j: int) -> Parts:
        """Return the parts with j merged into i; j stays behind with no weight."""
        weight, coef, gram = self.weight.copy(), self.coef.copy(), self.gram.copy()
        total = weight[i] + weight[j]
        together = gram[i] + gram[j]
        shift = np.linalg.lstsq(together, gram[j] @ (coef[j] - coef[i]), rcond=1e-11)[0]
        dispersion = None
        if self.dispersion is not None:
            dispersion = self.dispersion.copy()
            gap = (coef[j] - coef[i]) @ gram[i] @ shift
            within = weight[i] * dispersion[i] + weight[j] * dispersion[j]
            dispersion[i] = (within + gap) / total
        coef[i] = coef[i] + shift
        gram[i], weight[i], weight[j] = together, total, 0.0
        return Parts(weight, coef, gram, dispersion)

    def costs(self, i: int, others: Floats, chunk: int = CHUNK) -> Floats:
        """Return the divergence, mass times KL, that merging i with each of the others adds."""
        size = max(chunk // self.coef.shape[1] ** 2, 1)
        chunks = [others[a : a + size] for a in range(0, max(len(others), 1), size)]
        return np.concatenate([self._costs(i, chunk) for chunk in chunks])

    def _costs(self, i: int, j: Floats) -> Floats:
        delta = self.coef[j] - self.coef[i]  # (J, P)
        together = self.gram[j] + self.gram[i]
        ridge = 1e-10 * np.trace(together, axis1=1, axis2=2) / together.shape[1]
        together += (ridge[:, None, None] + 1e-300) * np.eye(together.shape[1])
        # One product for each pair: a product of all pairs at once would round with the batch.
        right = self.gram[j] @ delta[..., None]
        left = self.gram[i] @ delta[..., None]
        gap = np.sum(left * np.linalg.solve(together, right), axis=(1, 2))
        gap = np.maximum(gap, 0.0)
        if self.dispersion is None:
            return 0.5 * gap
        wi, wj = self.weight[i], self.weight[j]
        si, sj = self.dispersion[i], self.dispersion[j]
        total = wi + wj
        merged = (wi * si + wj * sj + gap) / total
        return 0.5 * (total * np.log(merged) - wi * np.log(si) - wj * np.log(sj))


def parts(sources: Sources) -> Parts:
    """Return what greedy merging needs of the sources, in one pass over the support."""
    experts = sources.experts
    L = experts.n_experts

    def block(cell: Cell) -> tuple[int, FitStatistics]:
        mine = experts.take(cell.experts)
        return cell.experts.start, mine.statistics(cell.Z, cell.response, cell.weight)

    found: dict[int, FitStatistics] = {}
    for start, sums in sources.each(block):
        found[start] = found[start] + sums if start in found else sums
    weight = np.concatenate([sums.weight for sums in found.values()])
    information = np.concatenate([sums.information for sums in found.values()])
    size = experts.n_linear * experts.n_columns
    gram = information.swapaxes(2, 3).reshape(L, size, size) / len(sources)
    weight = weight / len(sources)
    coef = experts.to_vector()[: L * size].reshape(L, size)
    if experts.has_scale:
        gram = gram * experts.coef_unit[:, None, None] ** 2
        return Parts(weight, coef, gram, experts.dispersion)
    E = experts.n_constant
    if E:  # about which a row knows half, as of a variance
        gram = np.pad(gram, ((0, 0), (0, E), (0, E)))
        logs = np.arange(size, size + E)
        gram[:, logs, logs] = 0.5 * weight[:, None]
        coef = np.column_stack([coef, experts.log_dispersions])
    return Parts(weight, coef, gram, None)


def greedy_labels(sources: Sources, n_experts: int) -> tuple[Floats, Experts]:
    """Merge the two experts whose merger costs least, until `n_experts` are left.

    Returns
    -------
    labels : ndarray of int of shape (L,)
        The target each source ends in.
    experts : Experts
        The targets: exact for Gaussian experts, to first order for the others.
    """
    now = parts(sources)
    L = len(now.weight)
    alive = now.weight > 0
    if alive.sum() < n_experts:  # experts of sites that contribute nowhere: some stay as they are
        alive[np.flatnonzero(~alive)[: n_experts - int(alive.sum())]] = True
    cost = np.full((L, L), np.inf)
    for first in np.flatnonzero(alive).tolist() if alive.sum() > n_experts else []:
        others = np.flatnonzero(alive[first + 1 :]) + first + 1
        cost[first, others] = now.costs(first, others)
    owner = np.arange(L)
    for _ in range(int(alive.sum()) - n_experts):
        i, j = map(int, np.unravel_index(np.argmin(cost), cost.shape))
        now = now.merged(i, j)
        owner[owner == j] = i
        alive[j] = False
        cost[j] = cost[:, j] = np.inf
        others = np.flatnonzero(alive & (np.arange(L) != i))
        fresh = now.costs(i, others)
        low, high = np.minimum(i, others), np.maximum(i, others)
        cost[low, high] = fresh
    kept = np.flatnonzero(alive)
    labels = np.searchsorted(kept, np.where(alive[owner], owner, kept[0]))
    size = sources.experts.n_linear * sources.experts.n_columns
    logs = now.coef[kept, size:] if now.dispersion is None else np.log(now.dispersion[kept])
    vector = np.concatenate([now.coef[kept, :size].ravel(), logs.T.ravel()])
    return labels, sources.experts.take(kept).with_vector(vector)
