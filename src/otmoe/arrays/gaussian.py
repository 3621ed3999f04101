"""Compiled kernels for Gaussian experts and NumPy arrays: an E-step and its sums in one sweep.

A tile of rows is read, its responsibilities and all weights of its sums stay in the cache, and
Gram matrices are made of them at once (maths 4, 5). As in :mod:`otmoe.arrays.kernels`, kernels
release the GIL and start no threads.
"""

from math import log

import numba
import numpy as np

from otmoe.arrays.kernels import TILE, mirror, scratch, tile_gram, tile_pairs, tile_sum

_FAST = {"reassoc", "contract", "nsz"}
_LOG2_E, _LN2_HIGH, _LN2_LOW = (
    1.4426950408889634,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
)
_SHIFT = 6755399441055744.0  # 1.5 * 2**52: added to a number, its last bits are the nearest integer


# Not inlined into fast-math code, where adding and subtracting a number would be left out.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _exp(a: np.ndarray, n: int, scratch: np.ndarray, bits: np.ndarray) -> None:
    """Replace a[:n], none of it positive, by exp(a) + 1e-130; `bits` are those of `scratch`."""
    for r in range(n):
        x = -700.0 if a[r] < -700.0 else a[r]  # what is not a number stays so
        shifted = x * _LOG2_E + _SHIFT
        scratch[r] = shifted
        k = shifted - _SHIFT
        f = (x - k * _LN2_HIGH) - k * _LN2_LOW
        e = 1 / 479001600.0
        e = e * f + 1 / 39916800.0
        e = e * f + 1 / 3628800.0
        e = e * f + 1 / 362880.0
        e = e * f + 1 / 40320.0
        e = e * f + 1 / 5040.0
        e = e * f + 1 / 720.0
        e = e * f + 1 / 120.0
        e = e * f + 1 / 24.0
        e = e * f + 1 / 6.0
        e = e * f + 0.5
        e = e * f + 1.0
        a[r] = e * f + 1.0
    for r in range(n):
        bits[r] = (bits[r] + 1023) << 52  # the power of two
    for r in range(n):
        a[r] = a[r] * scratch[r] + 1e-130


@numba.njit(nogil=True, cache=True, inline="always", fastmath=_FAST)
def _normalise(
    a: np.ndarray, n: int, top: np.ndarray, total: np.ndarray, scratch: np.ndarray, bits: np.ndarray
) -> None:
    """Replace a[:, :n] by its softmax over the first axis; write the log denominator's parts."""
    K = a.shape[0]
    for r in range(n):
        top[r] = a[0, r]
    for k in range(1, K):
        for r in range(n):
            top[r] = a[k, r] if a[k, r] > top[r] else top[r]
    for r in range(n):
        total[r] = 0.0
    for k in range(K):
        row = a[k]
        for r in range(n):
            row[r] -= top[r]
        _exp(row, n, scratch, bits)
        for r in range(n):
            total[r] += row[r]
    for r in range(n):
        scratch[r] = 1 / total[r]
    for k in range(K):
        for r in range(n):
            a[k, r] *= scratch[r]


@numba.njit(nogil=True, cache=True, inline="always", fastmath=_FAST)
def _predict(features: np.ndarray, coef: np.ndarray, start: int, n: int, out: np.ndarray) -> None:
    """Write ``coef @ features`` of a tile to out[:, :n], four features at a time."""
    K, p = coef.shape
    for k in range(K):
        row = out[k]
        for r in range(n):
            row[r] = 0.0
        j = 0
        while j + 4 <= p:
            c0, c1, c2, c3 = coef[k, j], coef[k, j + 1], coef[k, j + 2], coef[k, j + 3]
            x0 = features[j, start : start + n]
            x1 = features[j + 1, start : start + n]
            x2 = features[j + 2, start : start + n]
            x3 = features[j + 3, start : start + n]
            for r in range(n):
                row[r] += (c0 * x0[r] + c1 * x1[r]) + (c2 * x2[r] + c3 * x3[r])
            j += 4
        while j < p:
            c0 = coef[k, j]
            x0 = features[j, start : start + n]
            for r in range(n):
                row[r] += c0 * x0[r]
            j += 1


@numba.njit(nogil=True, cache=True, inline="always", fastmath=_FAST)
def _tile_posterior(
    features: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    gate: np.ndarray,
    coef: np.ndarray,
    precision: np.ndarray,
    constant: np.ndarray,
    start: int,
    n: int,
    prob: np.ndarray,
    share: np.ndarray,
    score: np.ndarray,
    half: np.ndarray,
    total: np.ndarray,
    work: np.ndarray,
    bits: np.ndarray,
) -> float:
    """Write the E-step of a tile, and return its log-likelihood.

    Gate probabilities, responsibilities, scores in the mean, and halves of the squared residuals
    in variances, (K, n); weights (n,).
    """
    K = coef.shape[0]
    _predict(features, gate, start, n, prob)
    _predict(features, coef, start, n, score)
    for k in range(K):
        s, c = precision[k], constant[k]
        for r in range(n):
            residual = y[start + r] - score[k, r]
            score[k, r] = residual * s
            half[k, r] = 0.5 * residual * residual * s
            share[k, r] = prob[k, r] + c - half[k, r]
    _normalise(prob, n, work[0], work[1], work[4], bits)
    _normalise(share, n, work[2], work[3], work[4], bits)
    for r in range(n):
        total[r] = weight[start + r] if weight.shape[0] else 1.0
    likelihood = 0.0
    for r in range(n):
        likelihood += total[r] * (work[2, r] - work[0, r] + log(work[3, r] / work[1, r]))
    return likelihood


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def fit(
    features: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    gate: np.ndarray,
    coef: np.ndarray,
    precision: np.ndarray,
    constant: np.ndarray,
    sums: np.ndarray,
    linear: np.ndarray,
    gram: np.ndarray,
) -> None:
    """Add the sums of an EM iteration of Gaussian experts, in one read of the rows.

    Parameters
    ----------
    features : ndarray of shape (p, n), C-contiguous
    y : ndarray of shape (n,)
    weight : ndarray of shape (n,)
        Empty where every row counts once.
    gate, coef : ndarray of shape (K, p)
    precision, constant : ndarray of shape (K,)
        1 / var and -log(2 pi var) / 2.
    sums : ndarray of shape (1 + 2 K,)
        Log-likelihood, rows of each expert, scores of the logarithms of variances.
    linear : ndarray of shape (2 K, p)
        Of the experts, then of the gate.
    gram : ndarray of shape (K + K (K - 1) / 2, p, p)
        Of the experts, then of pairs of the gate.
    """
    K, total = coef.shape[0], scratch(1)[0]
    prob, share, score, half = scratch(K), scratch(K), scratch(K), scratch(K)
    work = scratch(5)
    bits = work[4].view(np.int64)
    of_x, of_xx = scratch(2 * K), scratch(gram.shape[0])
    for start in range(0, features.shape[1], TILE):
        stop = min(start + TILE, features.shape[1])
        n = stop - start
        sums[0] += _tile_posterior(
            features, y, weight, gate, coef, precision, constant, start, n,
            prob, share, score, half, total, work, bits,
        )  # fmt: skip
        q = K
        for k in range(K):
            s = precision[k]
            mass = spread = 0.0
            for r in range(n):
                w = share[k, r] * total[r]
                mass += w
                spread += w * (half[k, r] - 0.5)
                of_x[k, r] = w * score[k, r]
                of_x[K + k, r] = w - prob[k, r] * total[r]
                of_xx[k, r] = w * s
            sums[1 + k] += mass
            sums[1 + K + k] += spread
            for i in range(k + 1, K):
                for r in range(n):
                    of_xx[q, r] = prob[k, r] * prob[i, r] * total[r]
                q += 1
        tile_sum(features, of_x, start, stop, 0, linear)
        tile_gram(features, of_xx, start, stop, gram)
    mirror(gram)


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def scores(
    features: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    gate: np.ndarray,
    coef: np.ndarray,
    precision: np.ndarray,
    constant: np.ndarray,
    where: np.ndarray,
    sums: np.ndarray,
    linear: np.ndarray,
    gram: np.ndarray,
) -> None:
    """Add the sums of the scores of Gaussian experts and, if asked for, of their information.

    Predictors are those of the gate but the last, then those of the experts, A = 2 K - 1.

    Parameters
    ----------
    features, y, weight, gate, coef, precision, constant
        As for :func:`fit`.
    where : ndarray of int of shape (A, A)
        The term of every pair of predictors that a component has for itself, or -1. Terms are those
        of gates, of gates with their experts, of experts.
    sums : ndarray of shape (1 + 2 K,), or (1 + 2 K + K (K + 1) / 2,)
        Those of :func:`fit`; then pairs of the logarithms of variances.
    linear : ndarray of shape (A, p), or (A + A K, p)
        Scores; then pairs of a predictor and the logarithm of a variance.
    gram : ndarray of shape (0, p, p), or (A (A + 1) / 2, p, p)
        Pairs of predictors; empty where no information is asked for.
    """
    K, matrix, total = coef.shape[0], gram.shape[0] > 0, scratch(1)[0]
    A = 2 * K - 1
    prob, share, score, half = scratch(K), scratch(K), scratch(K), scratch(K)
    work = scratch(5)
    bits = work[4].view(np.int64)
    moved, spread = scratch(K), scratch(K)
    t, less, more = scratch(A), scratch(K - 1), scratch(3 * K - 2)
    of_x, of_xx = scratch(linear.shape[0]), scratch(gram.shape[0])
    for start in range(0, features.shape[1], TILE):
        stop = min(start + TILE, features.shape[1])
        n = stop - start
        sums[0] += _tile_posterior(
            features, y, weight, gate, coef, precision, constant, start, n,
            prob, share, score, half, total, work, bits,
        )  # fmt: skip
        for k in range(K):
            mass = scale = 0.0
            for r in range(n):
                moved[k, r] = share[k, r] * score[k, r]
                spread[k, r] = share[k, r] * (half[k, r] - 0.5)
                of_x[K - 1 + k, r] = total[r] * moved[k, r]
                mass += total[r] * share[k, r]
                scale += total[r] * spread[k, r]
            sums[1 + k] += mass
            sums[1 + K + k] += scale
            if k < K - 1:
                for r in range(n):
                    of_x[k, r] = total[r] * (share[k, r] - prob[k, r])
        if matrix:
            # 1) pairs of linear predictors: gates, gates with their experts, experts
            for r in range(n):
                work[0, r] = total[r] ** 0.5
            for k in range(K):
                s = precision[k]
                for r in range(n):
                    t[K - 1 + k, r] = work[0, r] * moved[k, r]
                    more[2 * K - 2 + k, r] = total[r] * (
                        share[k, r] * s - moved[k, r] * score[k, r]
                    )
                if k < K - 1:
                    for r in range(n):
                        t[k, r] = work[0, r] * share[k, r]
                        less[k, r] = work[0, r] * prob[k, r]
                        more[k, r] = total[r] * (prob[k, r] - share[k, r])
                        more[K - 1 + k, r] = -total[r] * moved[k, r]
            # 2) with the logarithms of variances, and pairs of these
            q, e = A, 1 + 2 * K
            for a in range(A):
                i = a if a < K - 1 else a - (K - 1)
                for j in range(K):
                    same = 1.0 if i == j else 0.0
                    if a < K - 1:
                        for r in range(n):
                            of_x[q, r] = total[r] * spread[j, r] * (share[i, r] - same)
                    else:
                        for r in range(n):
                            own = same * (1.5 - half[i, r])
                            of_x[q, r] = total[r] * moved[i, r] * (spread[j, r] + own)
                    q += 1
            for i in range(K):
                for j in range(i, K):
                    value = 0.0
                    for r in range(n):
                        value += total[r] * spread[i, r] * spread[j, r]
                    if i == j:
                        for r in range(n):
                            own = share[i, r] * half[i, r] - spread[i, r] * (half[i, r] - 0.5)
                            value += total[r] * own
                    sums[e] += value
                    e += 1
            tile_pairs(t, less, more, where, 0, n, of_xx)
            tile_gram(features, of_xx, start, stop, gram)
        tile_sum(features, of_x, start, stop, 0, linear)
    mirror(gram)
