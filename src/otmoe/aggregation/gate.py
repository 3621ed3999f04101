"""The gate of an aggregate: softmax regression on the mass its experts receive (maths 11)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from otmoe.aggregation.mm import EMPTY
from otmoe.aggregation.sources import Sources, flows, target_gate
from otmoe.aggregation.starts import averaged
from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Array, Floats, namespace, take, to_numpy
from otmoe.model.experts import Experts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.structure import Structure

_ABSENT = 40.0  # logits below the others of an expert without mass: e^-40 is lost beside 1
# Maths 11 says what it saves; `python -m benchmarks constants` halves and doubles it.
_PATIENCE = 10.0  # times its mean cost that a source bears before it leaves its main target


def gated(
    sources: Sources,
    experts: Experts,
    labels: Floats | None = None,
    structure: Structure | None = None,
) -> MoE:
    """Return the model with these experts and the gate that follows from what they receive.

    Parameters
    ----------
    sources : Sources
    experts : Experts
        Targets on the standardised scale.
    labels : ndarray of int of shape (L,), optional
        The target of each source; by default the nearest at each point.
    structure : Structure, optional
        Of the experts, on the user's scale.

    Returns
    -------
    MoE
        On the user's scale.
    """
    slack = None
    if labels is None:
        # Where two targets cross, the nearest one is a toss-up, and a gate fitted to tosses is too
        # flat. A source stays with the target of most of its mass unless that costs clearly more.
        mass, cost = flows(sources, experts)
        labels = np.argmax(mass, axis=1)
        slack = _PATIENCE * cost / np.maximum(mass.sum(axis=1), 1e-300) + 1e-9
    target = target_gate(sources, experts, labels, slack)
    mass = to_numpy(namespace(target).sum(target, axis=0))
    live = np.flatnonzero(mass > EMPTY * mass.sum())
    start = _mean_gate(sources, experts, labels).take(live)
    Z = sources.Z
    experts = _with_unseen(sources, experts, labels, Z)
    # No ridge: it would move the gate of a single site away from itself.
    gate = start.fit(Z, target if len(live) == len(mass) else take(target, live, axis=1))
    if len(live) < len(mass):
        gate = _with_absent(gate, live, len(mass), Z)
    ensemble = sources.ensemble
    model = MoE(gate, experts, ensemble.feature_names, ensemble.classes, structure)
    return sources.scaling.to_user(model).tidied()


def _mean_gate(sources: Sources, experts: Experts, labels: Floats) -> SoftmaxGate:
    """Return the weighted mean gate of the sites whose experts match the targets one to one.

    Where there is no such site it is the gate that knows nothing. With a single site it is the
    answer.
    """
    gate = sources.ensemble.gate
    K = experts.n_experts
    columns = _gate_columns(gate.gates)
    total, weight = np.zeros((K, experts.n_columns)), 0.0
    for m, local in enumerate(gate.gates):
        mine = labels[gate.experts_of(m)]
        if local.n_experts == K and len(set(mine.tolist())) == K:
            total += gate.site_weight[m] * local.centred[np.argsort(mine)]
            weight += gate.site_weight[m]
    if weight == 0:
        return SoftmaxGate.blank(K, experts.n_columns, columns)
    coef = total / weight
    mean = SoftmaxGate(coef - coef[-1], columns)
    return mean.rescaled(sources.scaling.inverse)


def _gate_columns(gates: tuple[SoftmaxGate, ...]) -> tuple[int, ...] | None:
    """Return the columns that any of the gates uses."""
    if any(gate.columns is None for gate in gates):
        return None
    return tuple(sorted(set().union(*(gate.columns for gate in gates if gate.columns))))


def _with_unseen(sources: Sources, experts: Experts, labels: Floats, Z: Array) -> Experts:
    """Return the experts with the mean of their sources in what the support does not show.

    Where the support is constant or collinear it says nothing about some directions, and a fit
    leaves them as they were in the start that happened to win.
    """
    values, vectors = np.linalg.eigh(to_numpy(Z.T @ Z))
    blind = vectors[:, values <= RANK_TOLERANCE * values[-1]]
    if not blind.shape[1]:
        return experts
    K = experts.n_experts
    live = np.bincount(labels, weights=sources.mass, minlength=K) > 0
    mean = averaged(sources.experts, labels, sources.mass, K).coef[live]
    coef = experts.coef.copy()
    coef[live] += ((mean - coef[live]) @ blind) @ blind.T
    return replace(experts, coef=coef)


def _with_absent(gate: SoftmaxGate, live: Floats, n_experts: int, Z: Array) -> SoftmaxGate:
    """Add experts without mass, with a probability that rounds to nothing at every point."""
    xp = namespace(Z)
    lowest = float(xp.min(xp.max(gate.logits(Z), axis=1)))
    coef = np.zeros((n_experts, gate.coef.shape[1]))
    coef[:, 0] = lowest - _ABSENT
    coef[live] = gate.coef
    return SoftmaxGate(coef - coef[-1], gate.columns)
