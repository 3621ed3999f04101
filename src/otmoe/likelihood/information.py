"""Score and observed information of a mixture of experts (maths 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from otmoe.arrays.numerics import (
    Array,
    Floats,
    block_sum,
    namespace,
    scaled,
    to_numpy,
    weighted_sum,
)
from otmoe.arrays.pairs import Form, pair_gram, upper
from otmoe.likelihood import fused
from otmoe.likelihood.louis import group_information, group_terms
from otmoe.likelihood.predictors import free_entries, predictors_of
from otmoe.likelihood.rows import Block, Blocks, Rows
from otmoe.model.experts import Derivatives
from otmoe.model.mixture import MoE, Posterior


@dataclass(frozen=True)
class Information:
    """Log-likelihood, score and observed information at a model; they add up over rows.

    Parameters are in the order of :meth:`MoE.to_vector`: the gate's free coefficients, the
    experts' coefficients, the logs of their dispersions.

    Attributes
    ----------
    log_likelihood : float
        Up to the base measure of the family.
    score : ndarray of shape (P,)
    matrix : ndarray of shape (P, P)
    mass : ndarray of shape (K,)
        Summed responsibilities: the rows assigned to each expert.
    """

    log_likelihood: float
    score: Floats
    matrix: Floats
    mass: Floats

    def __add__(self, other: Information) -> Information:
        return Information(
            self.log_likelihood + other.log_likelihood,
            self.score + other.score,
            self.matrix + other.matrix,
            self.mass + other.mass,
        )


def observed_information(
    model: MoE, rows: Blocks, *, matrix: bool = True, densities: Floats | None = None
) -> Information:
    """Return log-likelihood, score and observed information, in one pass over the rows.

    Without the matrix, which is then empty, the pass takes a fifth of the time.

    Parameters
    ----------
    model : MoE
    rows : Blocks
    matrix : bool
    densities : ndarray of shape (n,), optional
        Is filled with the terms of the log-likelihood of each row; a group's is at its first.
    """

    def part(some: slice) -> Information:
        into = None if densities is None else densities[some]
        return _block_information(model, rows.block(some), matrix, into)

    return block_sum(part, rows.slices(), rows.pool)


def expected_curvature(model: MoE, found: Information) -> Floats:
    """Return the information without what vanishes on average at the maximum, (P, P) (maths 18).

    Far from its maximum, a step by the observed information overshoots: the derivative of an
    expert's score in the logarithm of its variance is minus that score.
    """
    matrix, owner, score = found.matrix.copy(), predictors_of(model), found.score
    experts, K = model.experts, model.n_experts
    linear = (K - 1) + K * experts.n_linear
    for k in range(K * experts.n_constant):
        here = owner == linear + k
        mine = np.isin(owner, (K - 1) + k % K * experts.n_linear + np.arange(experts.n_linear))
        matrix[np.ix_(mine, here)] -= score[mine, None]
        matrix[np.ix_(here, mine)] -= score[None, mine]
        matrix[here, here] -= score[here]
    return matrix


def score_outer(model: MoE, rows: Rows) -> Floats:
    """Return the sum over rows of w_i^2 s_i s_i', s_i the score of row i, (P, P) (maths 15).

    It adds up over shards, as the information does, and is the middle of the sandwich. Of rows that
    share their expert, scores are those of groups.
    """
    return block_sum(lambda s: _block_outer(model, rows.block(s)), rows.slices(), rows.pool)


def score_sums(model: MoE, rows: Rows, codes: Floats, n_groups: int) -> Floats:
    """Return the sum of w_i s_i over the rows of each group, s_i the score of row i (maths 15).

    Scores are made block by block, so that beside the result there is one block of them.

    Parameters
    ----------
    model : MoE
    rows : Rows
    codes : ndarray of int of shape (n,)
        Group of each row, from 0 to G - 1; -1 for rows that count in none.
    n_groups : int
        G.

    Returns
    -------
    ndarray of shape (G, P)
    """
    p = model.experts.n_columns
    linear = (model.n_experts - 1) + model.n_experts * model.experts.n_linear
    constant = model.n_experts * model.experts.n_constant
    if rows.groups is not None:
        return _sums_of_groups(model, rows, codes, n_groups)
    total = np.zeros((n_groups, linear * p + constant))
    # One block after another: blocks done by threads would wait for each other's turn at the total.
    for some in rows.slices():
        here = np.flatnonzero(codes[some] >= 0)
        there, local = np.unique(codes[some][here], return_inverse=True)
        member = sparse.csr_array(
            (np.ones(len(here)), (local, here)), shape=(len(there), some.stop - some.start)
        )
        block = rows.block(some)
        scores = [to_numpy(score) for score in _block_scores(model, block).score]
        X = to_numpy(block.X)
        for a in range(linear):
            total[there, a * p : (a + 1) * p] += member @ (scores[a][:, None] * X)
        for c in range(constant):
            total[there, linear * p + c] += member @ scores[linear + c]
    return total[:, free_entries(model)]


@dataclass(frozen=True)
class _Scores:
    """A block's scores in the predictors, in the order of the parameter vector.

    The log density of a row is a function of A linear predictors (K - 1 of the gate, Q of each
    expert) and of E K constant ones.

    Attributes
    ----------
    posterior : Posterior
    derivatives : Derivatives
    linear, constant : list of (int, int)
        Component and kind of every predictor; kind -1 is the gate's.
    t : list of arrays of shape (n,)
        r_i u, with u the complete-data score in the predictor (1 for the gate's).
    score : list of arrays of shape (n,)
        The observed score, weighted; the gate's is r - pi.
    """

    posterior: Posterior
    derivatives: Derivatives
    linear: list[tuple[int, int]]
    constant: list[tuple[int, int]]
    t: list[Array]
    score: list[Array]


def _block_scores(model: MoE, block: Block) -> _Scores:
    experts, K = model.experts, model.n_experts
    Q, E = experts.n_linear, experts.n_constant
    response = experts.observe(block.y)
    posterior = model.posterior(block.X, response, block.offset, block.copies)
    derivatives = experts.derivatives(posterior.eta, response)
    r, pi = posterior.responsibilities.T, posterior.gate_prob.T
    linear = [(i, -1) for i in range(K - 1)] + [(i, d) for i in range(K) for d in range(Q)]
    constant = [(i, Q + e) for e in range(E) for i in range(K)]
    predictors = linear + constant
    t = [r[i, :] if d < 0 else r[i, :] * derivatives.score[d].T[i, :] for i, d in predictors]
    score = [
        scaled(t[a] - pi[i, :] if d < 0 else t[a], block.weight)
        for a, (i, d) in enumerate(predictors)
    ]
    return _Scores(posterior, derivatives, linear, constant, t, score)


def _block_outer(model: MoE, block: Block) -> Floats:
    if block.groups is not None:
        score = group_terms(model, block).score
        return np.asarray(score.T @ score)
    found = _block_scores(model, block)
    A, C = len(found.linear), len(found.constant)
    free = free_entries(model)
    form = Form(found.score, [], [], np.full((A + C, A + C), -1))
    return _pair_matrix(A, C, form, block)[np.ix_(free, free)]


def _block_information(
    model: MoE, block: Block, with_matrix: bool, densities: Floats | None = None
) -> Information:
    """Louis's formula for one block.

    With u the complete-data score in a predictor of component i and t = r_i u, minus the second
    derivative in predictors a and b is::

        B_ab + t_a t_b - [same component] t_a u_b

    where B is the complete-data curvature: pi_i ([i = j] - pi_j) in the gate, r_i v in an expert.
    """
    if block.groups is not None:
        return _of_groups(model, block, with_matrix, densities)
    sums = fused.scores(model, block, with_matrix) if densities is None else None
    if sums is not None:
        return _fused_information(model, sums, with_matrix)
    X, w = block.X, block.weight
    xp = namespace(X)
    found = _block_scores(model, block)
    posterior, derivatives, t = found.posterior, found.derivatives, found.t
    r, pi = posterior.responsibilities.T, posterior.gate_prob.T
    predictors = found.linear + found.constant
    A, C = len(found.linear), len(found.constant)

    # 1) the score
    score = np.concatenate(
        [
            to_numpy(weighted_sum(X, block.gathered(xp.stack(found.score[:A]).T))).ravel(),
            to_numpy(xp.sum(xp.stack(found.score[A:]), axis=1)) if C else np.zeros(0),
        ]
    )
    free = free_entries(model)
    terms = scaled(posterior.log_density, w)
    if densities is not None:
        densities[:] = to_numpy(terms)
    log_likelihood = float(xp.sum(terms))
    mass = to_numpy(xp.sum(scaled(posterior.responsibilities, w), axis=0))
    if not with_matrix:
        return Information(log_likelihood, score[free], np.zeros((0, 0)), mass)

    # 2) the curvature of a row in every pair of predictors
    where = np.full((A + C, A + C), -1)
    more: list[Array] = []
    for a, (i, d) in enumerate(predictors):
        for b in range(a, A + C):
            j, e = predictors[b]
            if i != j:
                continue
            where[a, b] = len(more)
            if d < 0:
                more.append(pi[i, :] - r[i, :] if e < 0 else -t[b])
            else:
                v = derivatives.curvature[min(d, e), max(d, e)].T
                more.append(r[i, :] * v[i, :] - t[a] * derivatives.score[e].T[i, :])
    root = None if w is None else w**0.5
    form = Form(
        [scaled(value, root) for value in t],
        [scaled(pi[i, :], root) for i in range(model.n_experts - 1)],
        [scaled(value, w) for value in more],
        where,
    )
    matrix = _pair_matrix(A, C, form, block)
    return Information(log_likelihood, score[free], matrix[np.ix_(free, free)], mass)


def _of_groups(
    model: MoE, block: Block, with_matrix: bool, densities: Floats | None
) -> Information:
    """Louis's formula for a block whose rows share experts (maths 23)."""
    terms = group_terms(model, block)
    values = np.asarray(scaled(terms.posterior.log_density, block.once))
    if densities is not None:
        densities[:] = values
    matrix = group_information(model, block, terms) if with_matrix else np.zeros((0, 0))
    mass = np.sum(scaled(terms.posterior.responsibilities, block.weight), axis=0)
    return Information(float(np.sum(values)), np.sum(terms.score, axis=0), matrix, mass)


def _sums_of_groups(model: MoE, rows: Rows, codes: Floats, n_groups: int) -> Floats:
    """Return :func:`score_sums` where rows share experts: none is in two of the groups."""
    total = np.zeros((n_groups, model.n_parameters))
    for some in rows.slices():
        block = rows.block(some)
        group = codes[some][block.leads]
        np.add.at(total, group[group >= 0], group_terms(model, block).score[group >= 0])
    return total


def _pair_matrix(n_linear: int, n_constant: int, form: Form, block: Block) -> Floats:
    """Return the matrix of a quadratic form in the predictors as one in all parameters.

    Parameters
    ----------
    n_linear, n_constant : int
        A predictors that are linear in x and C that are constants.
    form : Form
    block : Block
        Whose rows it is about.

    Returns
    -------
    ndarray of shape (A p + C, A p + C)
    """
    X = block.X
    xp = namespace(X)
    A, C = n_linear, n_constant
    gram = pair_gram(X, form, A, block.starts)
    corner, constants = np.zeros((0, X.shape[1])), np.zeros(0)
    if C:
        pairs = [form.at(a, A + c) for a in range(A) for c in range(C)]
        corner = to_numpy(weighted_sum(X, block.gathered(xp.stack(pairs).T)))
        both = xp.stack([form.at(A + c, A + e) for c in range(C) for e in range(c, C)])
        constants = to_numpy(xp.sum(both, axis=1))
    return _assembled(A, C, gram, corner, constants)


def _assembled(A: int, C: int, gram: Floats, corner: Floats, constants: Floats) -> Floats:
    """Arrange sums (A (A + 1) / 2, p, p), (A C, p) and (C (C + 1) / 2,) into a matrix."""
    p = gram.shape[1]
    matrix = np.zeros((A * p + C, A * p + C))
    blocks = matrix[: A * p, : A * p].reshape(A, p, A, p)
    first, second = upper(A)
    blocks.swapaxes(1, 2)[first, second] = blocks.swapaxes(1, 2)[second, first] = gram
    if C:
        matrix[: A * p, A * p :].reshape(A, p, C)[:] = corner.reshape(A, C, p).swapaxes(1, 2)
        matrix[A * p :, : A * p] = matrix[: A * p, A * p :].T
        one, other = upper(C)
        rest = matrix[A * p :, A * p :]
        rest[one, other] = rest[other, one] = constants
    return matrix


def _fused_information(model: MoE, found: fused.Scores, with_matrix: bool) -> Information:
    """Return the same as for any block, of the sums that a kernel made."""
    A, C = 2 * model.n_experts - 1, model.n_experts
    free = free_entries(model)
    matrix = np.zeros((0, 0))
    if with_matrix:
        matrix = _assembled(A, C, found.gram, found.corner, found.constants)
        matrix = matrix if len(free) == len(matrix) else matrix[np.ix_(free, free)]
    return Information(found.log_likelihood, found.score[free], matrix, found.mass)
