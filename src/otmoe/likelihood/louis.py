"""Scores and Louis's formula where the rows of a group share their expert (maths 23)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otmoe.arrays.numerics import Floats, scaled, to_numpy, weighted_gram, weighted_sum
from otmoe.arrays.stretches import summed
from otmoe.likelihood.predictors import free_entries
from otmoe.likelihood.rows import Block
from otmoe.model.experts import Derivatives
from otmoe.model.mixture import MoE, Posterior


@dataclass(frozen=True)
class GroupTerms:
    """What the groups of a block contribute to score and information.

    Attributes
    ----------
    posterior : Posterior
    derivatives : Derivatives
    weight : ndarray of shape (G,)
    own : list of ndarray of shape (G, q)
        By expert: the score of a group in its own parameters (and its coefficients in the gate,
        but for the last) if the group were known to be the expert's.
    place : list of ndarray of int of shape (q,)
        Where these parameters are among all: p for every linear predictor, then the constants, in
        the order of the parameter vector, structural zeros of the gate among them.
    score : ndarray of shape (G, P)
        The observed score of every group, weighted, in the free parameters.
    """

    posterior: Posterior
    derivatives: Derivatives
    weight: Floats
    own: list[Floats]
    place: list[Floats]
    score: Floats


def group_terms(model: MoE, block: Block) -> GroupTerms:
    """Return the scores of the groups of a block."""
    X, groups, experts, K = block.X, block.groups, model.experts, model.n_experts
    assert groups is not None, "rows share experts"
    Q, E, p = experts.n_linear, experts.n_constant, X.shape[1]
    response = experts.observe(block.y)
    posterior = model.posterior(X, response, block.offset, groups=groups)
    derivatives = experts.derivatives(posterior.eta, response)
    first, weight = X[block.leads], np.asarray(block.once)[block.leads]
    r, pi = posterior.responsibilities[block.leads], posterior.gate_prob[block.leads]
    linear = (K - 1) + K * Q
    score = np.zeros((len(first), linear * p + K * E))
    own, place = [], []
    for k in range(K):
        u = [each[:, k] for each in derivatives.score]
        parts = [summed(u[d][:, None] * X, groups) for d in range(Q)]
        parts += [summed(u[Q + e], groups)[:, None] for e in range(E)]
        at = [(K - 1 + k * Q + d) * p + np.arange(p) for d in range(Q)]
        at += [np.array([linear * p + e * K + k]) for e in range(E)]
        if k < K - 1:
            parts, at = [first, *parts], [k * p + np.arange(p), *at]
        own.append(np.hstack(parts))
        place.append(np.concatenate(at))
        score[:, place[k]] = r[:, k, None] * own[k]
        if k < K - 1:
            score[:, at[0]] -= pi[:, k, None] * first
    score = weight[:, None] * score[:, free_entries(model)]
    return GroupTerms(posterior, derivatives, weight, own, place, score)


def group_information(model: MoE, block: Block, terms: GroupTerms) -> Floats:
    """Return the observed information of the groups of a block in the free parameters, (P, P).

    With s_k the score that a group would have if it were known to be expert k's, it is the
    expectation of the complete-data curvature, less the covariance of s_k, both over the posterior
    of the group.
    """
    X, experts, K, p = block.X, model.experts, model.n_experts, block.X.shape[1]
    Q, E = experts.n_linear, experts.n_constant
    size, weight, first = ((K - 1) + K * Q) * p + K * E, terms.weight, X[block.leads]
    r = terms.posterior.responsibilities
    share, pi = r[block.leads], terms.posterior.gate_prob[block.leads]
    # 1) the covariance of s_k, whose gate part is that of the indicator of k
    mean, matrix = np.zeros((len(first), size)), np.zeros((size, size))
    for k in range(K):
        own, at = terms.own[k], terms.place[k]
        mean[:, at] = share[:, k, None] * own
        matrix[np.ix_(at, at)] -= own.T @ ((weight * share[:, k])[:, None] * own)
    matrix += mean.T @ (weight[:, None] * mean)
    # 2) the curvature of the gate, at one row for each group
    gate = matrix[: (K - 1) * p, : (K - 1) * p].reshape(K - 1, p, K - 1, p)
    for i in range(K - 1):
        for j in range(K - 1):
            c = weight * pi[:, i] * ((i == j) - pi[:, j])
            gate[i, :, j, :] += first.T @ (c[:, None] * first)
    # 3) that of the experts, at every row
    r = scaled(r, block.weight)
    begin = [*(d * p for d in range(Q)), *(Q * p + e for e in range(E))]
    for k in range(K):
        mine = terms.place[k][-(Q * p + E) :]
        for (d, e), v in terms.derivatives.curvature.items():
            c = r[:, [k]] * np.broadcast_to(v, r.shape)[:, [k]]
            if e < Q:
                part = to_numpy(weighted_gram(X, c))[0]
            elif d < Q:
                part = to_numpy(weighted_sum(X, c)).T
            else:
                part = np.sum(c, keepdims=True)
            rows = mine[begin[d] : begin[d] + part.shape[0]]
            columns = mine[begin[e] : begin[e] + part.shape[1]]
            matrix[np.ix_(rows, columns)] += part
            if d != e:
                matrix[np.ix_(columns, rows)] += part.T
    free = free_entries(model)
    return matrix[np.ix_(free, free)]
