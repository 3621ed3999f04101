# Long because loops are written out for the compiler, which would not inline what they share.
"""Compiled kernels for Gaussian experts where rows have several y each (maths 17).

They are those of :mod:`otmoe.arrays.gaussian`, with predictors that are made once for all y of a
row, and sums over these before there are any over x.
"""

from math import log

import numba
import numpy as np

from otmoe.arrays.gaussian import _FAST, _normalise, _predict
from otmoe.arrays.kernels import _LINE, TILE, mirror, scratch, tile_gram, tile_sum


@numba.njit(nogil=True, cache=True)
def _room(rows: int, starts: np.ndarray) -> np.ndarray:
    """Return room for as many y as are looked at at once: those of one row at least."""
    most = TILE
    for i in range(starts.shape[0] - 1):
        most = max(most, starts[i + 1] - starts[i])
    return np.empty((rows, most + _LINE))


@numba.njit(nogil=True, cache=True)
def _stop(starts: np.ndarray, first: int, last: int, most: int) -> int:
    """Return where rows from `first` on have no more y than there is room for."""
    stop = first + 1
    while stop < last and starts[stop + 1] - starts[first] <= most:
        stop += 1
    return stop


@numba.njit(nogil=True, cache=True, inline="always", fastmath=_FAST)
def _tile_predictors(
    features: np.ndarray,
    gate: np.ndarray,
    coef: np.ndarray,
    start: int,
    n: int,
    prob: np.ndarray,
    log_prob: np.ndarray,
    mean: np.ndarray,
    work: np.ndarray,
    bits: np.ndarray,
) -> None:
    """Write gate probabilities, their logarithms and the experts' means of a tile, (K, n)."""
    K = coef.shape[0]
    _predict(features, gate, start, n, prob)
    _predict(features, coef, start, n, mean)
    for k in range(K):
        for r in range(n):
            log_prob[k, r] = prob[k, r]
    _normalise(prob, n, work[0], work[1], work[2], bits)
    for r in range(n):
        work[0, r] += log(work[1, r])
    for k in range(K):
        for r in range(n):
            log_prob[k, r] -= work[0, r]


@numba.njit(nogil=True, cache=True, inline="always", fastmath=_FAST)
def _posterior(
    y: np.ndarray,
    starts: np.ndarray,
    precision: np.ndarray,
    constant: np.ndarray,
    tile: int,
    first: int,
    stop: int,
    log_prob: np.ndarray,
    mean: np.ndarray,
    place: np.ndarray,
    share: np.ndarray,
    score: np.ndarray,
    half: np.ndarray,
    work: np.ndarray,
    bits: np.ndarray,
) -> None:
    """Write the E-step at all y of some rows; their log densities are left in work[0]."""
    low = starts[first]
    n = starts[stop] - low
    for i in range(first, stop):
        for r in range(starts[i] - low, starts[i + 1] - low):
            place[r] = i - tile
    for k in range(precision.shape[0]):
        s, c = precision[k], constant[k]
        for r in range(n):
            residual = y[low + r] - mean[k, place[r]]
            score[k, r] = residual * s
            half[k, r] = 0.5 * residual * residual * s
            share[k, r] = log_prob[k, place[r]] + c - half[k, r]
    _normalise(share, n, work[0], work[1], work[2], bits)
    for r in range(n):
        work[0, r] += log(work[1, r])


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def log_densities(
    features: np.ndarray,
    starts: np.ndarray,
    y: np.ndarray,
    gate: np.ndarray,
    coef: np.ndarray,
    precision: np.ndarray,
    constant: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the log density at every y.

    Parameters
    ----------
    features : ndarray of shape (p, n), C-contiguous
    starts : ndarray of int of shape (n + 1,)
        Where the y of each row begin, and the end.
    y : ndarray of shape (rows,)
    gate, coef : ndarray of shape (K, p)
    precision, constant : ndarray of shape (K,)
        1 / var and -log(2 pi var) / 2.
    out : ndarray of shape (rows,)
    """
    K = coef.shape[0]
    prob, log_prob, mean, of_tile = scratch(K), scratch(K), scratch(K), scratch(3)
    bits_of_tile = of_tile[2].view(np.int64)
    room = _room(3 * K + 3, starts)
    share, score, half, work = room[:K], room[K : 2 * K], room[2 * K : 3 * K], room[3 * K :]
    bits = work[2].view(np.int64)
    most = room.shape[1] - _LINE
    place = np.empty(most, dtype=np.int64)
    for tile in range(0, features.shape[1], TILE):
        end = min(tile + TILE, features.shape[1])
        _tile_predictors(
            features, gate, coef, tile, end - tile, prob, log_prob, mean, of_tile, bits_of_tile
        )
        first = tile
        while first < end:
            stop = _stop(starts, first, end, most)
            _posterior(
                y, starts, precision, constant, tile, first, stop,
                log_prob, mean, place, share, score, half, work, bits,
            )  # fmt: skip
            low = starts[first]
            for r in range(starts[stop] - low):
                out[low + r] = work[0, r]
            first = stop


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def fit(
    features: np.ndarray,
    starts: np.ndarray,
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
    """Add the sums of an EM iteration of Gaussian experts.

    Parameters
    ----------
    features, starts, y, gate, coef, precision, constant
        As for :func:`log_densities`.
    weight : ndarray of shape (rows,)
    sums, linear, gram
        As for :func:`otmoe.arrays.gaussian.fit`.
    """
    K = coef.shape[0]
    prob, log_prob, mean, of_tile = scratch(K), scratch(K), scratch(K), scratch(3)
    bits_of_tile = of_tile[2].view(np.int64)
    room = _room(3 * K + 3, starts)
    share, score, half, work = room[:K], room[K : 2 * K], room[2 * K : 3 * K], room[3 * K :]
    bits = work[2].view(np.int64)
    most = room.shape[1] - _LINE
    place = np.empty(most, dtype=np.int64)
    total = scratch(1)[0]
    of_x, of_xx = scratch(2 * K), scratch(gram.shape[0])
    for tile in range(0, features.shape[1], TILE):
        end = min(tile + TILE, features.shape[1])
        n = end - tile
        _tile_predictors(features, gate, coef, tile, n, prob, log_prob, mean, of_tile, bits_of_tile)
        first = tile
        while first < end:
            stop = _stop(starts, first, end, most)
            _posterior(
                y, starts, precision, constant, tile, first, stop,
                log_prob, mean, place, share, score, half, work, bits,
            )  # fmt: skip
            low = starts[first]
            likelihood = 0.0
            for r in range(starts[stop] - low):
                likelihood += weight[low + r] * work[0, r]
            sums[0] += likelihood
            for i in range(first, stop):
                value = 0.0
                for r in range(starts[i], starts[i + 1]):
                    value += weight[r]
                total[i - tile] = value
            for k in range(K):
                spread = 0.0
                for i in range(first, stop):
                    mass = moved = 0.0
                    for r in range(starts[i] - low, starts[i + 1] - low):
                        w = share[k, r] * weight[low + r]
                        mass += w
                        moved += w * score[k, r]
                        spread += w * (half[k, r] - 0.5)
                    of_x[k, i - tile] = moved
                    of_xx[k, i - tile] = mass
                sums[1 + K + k] += spread
            first = stop
        q = K
        for k in range(K):
            s, mass = precision[k], 0.0
            for r in range(n):
                mass += of_xx[k, r]
                of_x[K + k, r] = of_xx[k, r] - prob[k, r] * total[r]
                of_xx[k, r] *= s
            sums[1 + k] += mass
            for i in range(k + 1, K):
                for r in range(n):
                    of_xx[q, r] = prob[k, r] * prob[i, r] * total[r]
                q += 1
        tile_sum(features, of_x, tile, end, 0, linear)
        tile_gram(features, of_xx, tile, end, gram)
    mirror(gram)


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def scores(
    features: np.ndarray,
    starts: np.ndarray,
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
    """Add the sums of the scores of Gaussian experts and, if asked for, of their information.

    Predictors are those of the gate but the last, then those of the experts, A = 2 K - 1.

    Parameters
    ----------
    features, starts, y, weight, gate, coef, precision, constant
        As for :func:`fit`.
    sums, linear, gram
        As for :func:`otmoe.arrays.gaussian.scores`.
    """
    K, matrix = coef.shape[0], gram.shape[0] > 0
    A = 2 * K - 1
    prob, log_prob, mean, of_tile = scratch(K), scratch(K), scratch(K), scratch(3)
    bits_of_tile = of_tile[2].view(np.int64)
    room = _room(4 * K + 2 * A + 3, starts)
    share, score, half = room[:K], room[K : 2 * K], room[2 * K : 3 * K]
    spread, t, weighed = room[3 * K : 4 * K], room[4 * K : 4 * K + A], room[4 * K + A : -3]
    work = room[4 * K + 2 * A :]
    bits = work[2].view(np.int64)
    most = room.shape[1] - _LINE
    place = np.empty(most, dtype=np.int64)
    total, mass = scratch(1)[0], scratch(K)
    of_x, of_xx = scratch(linear.shape[0]), scratch(gram.shape[0])
    for tile in range(0, features.shape[1], TILE):
        end = min(tile + TILE, features.shape[1])
        n = end - tile
        _tile_predictors(features, gate, coef, tile, n, prob, log_prob, mean, of_tile, bits_of_tile)
        first = tile
        while first < end:
            stop = _stop(starts, first, end, most)
            _posterior(
                y, starts, precision, constant, tile, first, stop,
                log_prob, mean, place, share, score, half, work, bits,
            )  # fmt: skip
            # 1) what is summed up over the y of each row
            low = starts[first]
            rows = starts[stop] - low
            likelihood = 0.0
            for r in range(rows):
                likelihood += weight[low + r] * work[0, r]
            sums[0] += likelihood
            for i in range(first, stop):
                value = 0.0
                for r in range(starts[i], starts[i + 1]):
                    value += weight[r]
                total[i - tile] = value
            for k in range(K):
                for r in range(rows):
                    t[K - 1 + k, r] = share[k, r] * score[k, r]
                    spread[k, r] = share[k, r] * (half[k, r] - 0.5)
                # A loop of its own: where one writes too, the compiler adds up in another order if
                # arrays lie next to each other, and results would depend on where they are.
                scale = 0.0
                for r in range(rows):
                    scale += weight[low + r] * spread[k, r]
                sums[1 + K + k] += scale
                for i in range(first, stop):
                    value = moved = 0.0
                    for r in range(starts[i] - low, starts[i + 1] - low):
                        value += weight[low + r] * share[k, r]
                        moved += weight[low + r] * t[K - 1 + k, r]
                    mass[k, i - tile] = value
                    of_x[K - 1 + k, i - tile] = moved
                if k < K - 1:
                    for r in range(rows):
                        t[k, r] = share[k, r]
            if matrix:
                for a in range(A):
                    for r in range(rows):
                        weighed[a, r] = weight[low + r] * t[a, r]
                q = 0
                for a in range(A):
                    for b in range(a, A):
                        for i in range(first, stop):
                            value = 0.0
                            for r in range(starts[i] - low, starts[i + 1] - low):
                                value += weighed[a, r] * t[b, r]
                            of_xx[q, i - tile] = value
                        if a == b and a >= K - 1:
                            for i in range(first, stop):
                                value = 0.0
                                for r in range(starts[i] - low, starts[i + 1] - low):
                                    value += weighed[a, r] * score[a - (K - 1), r]
                                of_xx[q, i - tile] -= value
                        q += 1
                # 2) the same with the logarithms of variances, and pairs of these
                q = A
                for a in range(A):
                    own = a if a < K - 1 else a - (K - 1)
                    for j in range(K):
                        for i in range(first, stop):
                            value = 0.0
                            for r in range(starts[i] - low, starts[i + 1] - low):
                                value += weighed[a, r] * spread[j, r]
                            of_x[q, i - tile] = value
                        if own == j:
                            for i in range(first, stop):
                                value = 0.0
                                for r in range(starts[i] - low, starts[i + 1] - low):
                                    if a < K - 1:
                                        value -= weight[low + r] * spread[j, r]
                                    else:
                                        value += weighed[a, r] * (1.5 - half[j, r])
                                of_x[q, i - tile] += value
                        q += 1
                e = 1 + 2 * K
                for i in range(K):
                    for j in range(i, K):
                        value = 0.0
                        for r in range(rows):
                            value += weight[low + r] * spread[i, r] * spread[j, r]
                        if i == j:
                            for r in range(rows):
                                rest = half[i, r] - 0.5
                                rest = share[i, r] * half[i, r] - spread[i, r] * rest
                                value += weight[low + r] * rest
                        sums[e] += value
                        e += 1
            first = stop
        # 3) sums over x
        for k in range(K):
            value = 0.0
            for r in range(n):
                value += mass[k, r]
            sums[1 + k] += value
            if k < K - 1:
                for r in range(n):
                    of_x[k, r] = mass[k, r] - prob[k, r] * total[r]
        if matrix:
            # pairs of gates, of gates with their experts, and of experts have terms of their own
            q = 0
            for a in range(A):
                for b in range(a, A):
                    if b < K - 1:
                        for r in range(n):
                            of_xx[q, r] -= prob[a, r] * prob[b, r] * total[r]
                        if a == b:
                            for r in range(n):
                                of_xx[q, r] += prob[a, r] * total[r] - mass[a, r]
                    elif a < K - 1 and a == b - (K - 1):
                        for r in range(n):
                            of_xx[q, r] -= of_x[b, r]
                    elif a == b:
                        k = a - (K - 1)
                        s = precision[k]
                        for r in range(n):
                            of_xx[q, r] += s * mass[k, r]
                    q += 1
            tile_gram(features, of_xx, tile, end, gram)
        tile_sum(features, of_x, tile, end, 0, linear)
    mirror(gram)
