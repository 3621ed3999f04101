# Long because loops are written out for the compiler: kernels share next to nothing, and what they
# share would not be inlined.
"""Compiled kernels for NumPy arrays, called where :mod:`otmoe.arrays.numerics` offers them.

They release the GIL and start no threads of their own: the caller runs them on a thread pool over
fixed blocks of rows. (numba's ``parallel=True`` aborts the process when two Python threads enter
it, and OpenMP followed by a fork kills a worker pool.)
"""

import numba
import numpy as np

# Rows per tile: a tile of features and five weights stay in the first two cache levels, while the
# inner loop is long enough to hide its final horizontal sums.
TILE = 256
_LINE = 8  # numbers in a cache line


@numba.njit(nogil=True, cache=True)
def scratch(rows: int) -> np.ndarray:
    """Return room for a tile, (rows, TILE and a cache line), each row at the start of a line.

    A vector that lies across two lines is read twice, which takes half as long again for all of a
    Gram product. Rows at multiples of half a page would compete for the same places in the cache.
    """
    columns = TILE + _LINE
    flat = np.empty(rows * columns + _LINE)
    first = -(flat.ctypes.data // 8) % _LINE
    return flat[first : first + rows * columns].reshape(rows, columns)


@numba.njit(nogil=True, cache=True, inline="always", fastmath={"reassoc", "contract", "nsz"})
def tile_gram(
    features: np.ndarray, weights: np.ndarray, start: int, stop: int, out: np.ndarray
) -> None:
    """Add one tile of rows to weighted Gram matrices, given its weights.

    Five weights at a time go over all pairs of features: all of them would not stay in the cache.
    """
    p, n = features.shape[0], stop - start
    n_weights = weights.shape[0]
    last = n_weights - 1
    q = 0
    while n_weights - q >= 3:  # three or four left: a padded five is no slower
        w0 = weights[q, :n]
        w1 = weights[q + 1, :n]
        w2 = weights[q + 2, :n]
        w3 = weights[min(q + 3, last), :n]
        w4 = weights[min(q + 4, last), :n]
        for i in range(p):
            xi = features[i, start:stop]
            for j in range(i, p, 2):
                xj = features[j, start:stop]
                xk = features[min(j + 1, p - 1), start:stop]
                a0 = a1 = a2 = a3 = a4 = 0.0
                b0 = b1 = b2 = b3 = b4 = 0.0
                for r in range(n):
                    u = xi[r] * xj[r]
                    v = xi[r] * xk[r]
                    a0 += u * w0[r]
                    a1 += u * w1[r]
                    a2 += u * w2[r]
                    a3 += u * w3[r]
                    a4 += u * w4[r]
                    b0 += v * w0[r]
                    b1 += v * w1[r]
                    b2 += v * w2[r]
                    b3 += v * w3[r]
                    b4 += v * w4[r]
                out[q, i, j] += a0
                out[q + 1, i, j] += a1
                out[q + 2, i, j] += a2
                if q + 3 <= last:
                    out[q + 3, i, j] += a3
                if q + 4 <= last:
                    out[q + 4, i, j] += a4
                if j + 1 < p:
                    out[q, i, j + 1] += b0
                    out[q + 1, i, j + 1] += b1
                    out[q + 2, i, j + 1] += b2
                    if q + 3 <= last:
                        out[q + 3, i, j + 1] += b3
                    if q + 4 <= last:
                        out[q + 4, i, j + 1] += b4
        q += 5
    while q < n_weights:
        w0 = weights[q, :n]
        for i in range(p):
            xi = features[i, start:stop]
            for j in range(i, p, 2):
                xj = features[j, start:stop]
                xk = features[min(j + 1, p - 1), start:stop]
                a0 = b0 = 0.0
                for r in range(n):
                    u = xi[r] * w0[r]
                    a0 += u * xj[r]
                    b0 += u * xk[r]
                out[q, i, j] += a0
                if j + 1 < p:
                    out[q, i, j + 1] += b0
        q += 1


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def weighted_gram(features: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """Add the upper triangle of ``features @ diag(w) @ features.T`` to `out`, for every weight w.

    Each product x_i * x_j is formed once and serves five weights; two neighbouring j go together
    so that a weight is loaded once for both.

    Parameters
    ----------
    features : ndarray of shape (p, n), C-contiguous
    weights : ndarray of shape (J, n), C-contiguous
    out : ndarray of shape (J, p, p)
        Only entries with i <= j are written.
    """
    tile = scratch(weights.shape[0])
    for start in range(0, features.shape[1], TILE):
        stop = min(start + TILE, features.shape[1])
        for q in range(weights.shape[0]):
            for r in range(stop - start):
                tile[q, r] = weights[q, start + r]
        tile_gram(features, tile, start, stop, out)


@numba.njit(nogil=True, cache=True)
def mirror(out: np.ndarray) -> None:
    """Fill in the lower triangles of matrices (J, p, p)."""
    for q in range(out.shape[0]):
        for i in range(1, out.shape[1]):
            for j in range(i):
                out[q, i, j] = out[q, j, i]


@numba.njit(nogil=True, cache=True, inline="always", fastmath={"reassoc", "contract", "nsz"})
def tile_pairs(
    t: np.ndarray,
    less: np.ndarray,
    more: np.ndarray,
    where: np.ndarray,
    start: int,
    n: int,
    weights: np.ndarray,
) -> None:
    """Write the weights of all pairs for a tile of rows, as :func:`pair_gram` has them."""
    n_factors, n_less = t.shape[0], less.shape[0]
    q = 0
    for a in range(n_factors):
        for b in range(a, n_factors):
            e = where[a, b]
            for r in range(n):
                weights[q, r] = t[a, start + r] * t[b, start + r]
            if b < n_less:
                for r in range(n):
                    weights[q, r] -= less[a, start + r] * less[b, start + r]
            if e >= 0:
                for r in range(n):
                    weights[q, r] += more[e, start + r]
            q += 1


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def pair_gram(
    features: np.ndarray,
    t: np.ndarray,
    less: np.ndarray,
    more: np.ndarray,
    where: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add Gram matrices whose weights are products of two factors each, formed tile by tile.

    The weight of pair (a, b), a <= b, is ``t_a t_b - less_a less_b + more_e`` with e = where[a, b].

    Parameters
    ----------
    features : ndarray of shape (p, n), C-contiguous
    t : ndarray of shape (A, n)
    less : ndarray of shape (G, n)
        Only pairs with b < G have this term.
    more : ndarray of shape (E, n)
    where : ndarray of int of shape (A, A)
        -1 for pairs without such a term.
    out : ndarray of shape (A (A + 1) / 2, p, p)
        Pairs in the order (0, 0), (0, 1), ...; only entries with i <= j are written.
    """
    n = t.shape[1]
    weights = scratch(out.shape[0])
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        tile_pairs(t, less, more, where, start, stop - start, weights)
        tile_gram(features, weights, start, stop, out)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def pair_gram_of_groups(
    features: np.ndarray,
    t: np.ndarray,
    less: np.ndarray,
    more: np.ndarray,
    where: np.ndarray,
    starts: np.ndarray,
    out: np.ndarray,
) -> None:
    """Do what :func:`pair_gram` does, with weights that are summed over groups of entries first.

    Parameters
    ----------
    features : ndarray of shape (p, n), C-contiguous
    t, less, more : ndarray of shape (A, N), (G, N), (E, N)
    where : ndarray of int of shape (A, A)
    starts : ndarray of int of shape (n + 1,)
        Where the entries of each column of the features begin.
    out : ndarray of shape (A (A + 1) / 2, p, p)
    """
    n_factors, n = t.shape[0], features.shape[1]
    n_less = less.shape[0]
    weights = scratch(out.shape[0])
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        q = 0
        for a in range(n_factors):
            for b in range(a, n_factors):
                e = where[a, b]
                for r in range(stop - start):
                    total = 0.0
                    low, high = starts[start + r], starts[start + r + 1]
                    for i in range(low, high):
                        total += t[a, i] * t[b, i]
                    if b < n_less:
                        for i in range(low, high):
                            total -= less[a, i] * less[b, i]
                    if e >= 0:
                        for i in range(low, high):
                            total += more[e, i]
                    weights[q, r] = total
                q += 1
        tile_gram(features, weights, start, stop, out)


@numba.njit(nogil=True, cache=True, inline="always", fastmath={"reassoc", "contract", "nsz"})
def tile_sum(
    features: np.ndarray, weights: np.ndarray, start: int, stop: int, first: int, out: np.ndarray
) -> None:
    """Add one tile of rows to weighted sums; its weights begin at column `first`."""
    n_weights = weights.shape[0]
    last = n_weights - 1
    end = first + stop - start
    for q in range(0, n_weights, 4):
        w0 = weights[q, first:end]
        w1 = weights[min(q + 1, last), first:end]
        w2 = weights[min(q + 2, last), first:end]
        w3 = weights[min(q + 3, last), first:end]
        for j in range(features.shape[0]):
            x = features[j, start:stop]
            a0 = a1 = a2 = a3 = 0.0
            for r in range(stop - start):
                a0 += w0[r] * x[r]
                a1 += w1[r] * x[r]
                a2 += w2[r] * x[r]
                a3 += w3[r] * x[r]
            out[q, j] += a0
            if q + 1 <= last:
                out[q + 1, j] += a1
            if q + 2 <= last:
                out[q + 2, j] += a2
            if q + 3 <= last:
                out[q + 3, j] += a3


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def weighted_sum(features: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """Add ``weights @ features.T`` to `out`.

    BLAS reaches a tenth of its rate on a product this thin and this long.

    Parameters
    ----------
    features : ndarray of shape (p, n), C-contiguous
    weights : ndarray of shape (J, n), C-contiguous
    out : ndarray of shape (J, p)
    """
    n = features.shape[1]
    for start in range(0, n, TILE):
        tile_sum(features, weights, start, min(start + TILE, n), start, out)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def squared_lengths(features: np.ndarray, root: np.ndarray, out: np.ndarray) -> None:
    """Write the squared length of ``root.T @ x`` of every row to `out`, two components at a time.

    Zeros at the ends of columns of the root cost nothing: a triangular one takes half as long.

    Parameters
    ----------
    features : ndarray of shape (p, n), C-contiguous
    root : ndarray of shape (p, r)
    out : ndarray of shape (n,)
    """
    p, rank = root.shape
    room = scratch(3)
    a, b, total = room[0], room[1], room[2]
    for start in range(0, features.shape[1], TILE):
        n = min(TILE, features.shape[1] - start)
        for r in range(n):
            total[r] = 0.0
        for c in range(0, rank, 2):
            d, two = min(c + 1, rank - 1), 1.0 if c + 1 < rank else 0.0
            for r in range(n):
                a[r] = b[r] = 0.0
            end = p
            while end > 0 and root[end - 1, c] == root[end - 1, d] == 0.0:
                end -= 1
            j = 0
            while j + 4 <= end:
                x0 = features[j, start : start + n]
                x1 = features[j + 1, start : start + n]
                x2 = features[j + 2, start : start + n]
                x3 = features[j + 3, start : start + n]
                c0, c1, c2, c3 = root[j, c], root[j + 1, c], root[j + 2, c], root[j + 3, c]
                d0, d1, d2, d3 = root[j, d], root[j + 1, d], root[j + 2, d], root[j + 3, d]
                for r in range(n):
                    a[r] += (c0 * x0[r] + c1 * x1[r]) + (c2 * x2[r] + c3 * x3[r])
                    b[r] += (d0 * x0[r] + d1 * x1[r]) + (d2 * x2[r] + d3 * x3[r])
                j += 4
            while j < end:
                x0 = features[j, start : start + n]
                c0, d0 = root[j, c], root[j, d]
                for r in range(n):
                    a[r] += c0 * x0[r]
                    b[r] += d0 * x0[r]
                j += 1
            for r in range(n):
                total[r] += a[r] * a[r] + two * (b[r] * b[r])
        for r in range(n):
            out[start + r] = total[r]


@numba.njit(nogil=True, cache=True)
def standardise(X: np.ndarray, center: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
    """Write ``(X.T - center) * factor`` to `out`, a cache line of each column at a time.

    Parameters
    ----------
    X : ndarray of shape (n, d), any float type and layout
    center, factor : ndarray of shape (d,)
    out : ndarray of shape (d, n), float64
    """
    n, d = X.shape
    whole = n // _LINE * _LINE
    for start in range(0, whole, _LINE):
        for j in range(d):
            c = center[j]
            f = factor[j]
            for r in range(_LINE):  # so many rows that the compiler writes out the loop
                out[j, start + r] = (X[start + r, j] - c) * f
    for i in range(whole, n):
        for j in range(d):
            out[j, i] = (X[i, j] - center[j]) * factor[j]


@numba.njit(nogil=True, cache=True)
def nearest_square(
    mean: np.ndarray,
    var: np.ndarray,
    center: np.ndarray,
    precision: np.ndarray,
    constant: np.ndarray,
    index: np.ndarray,
    value: np.ndarray,
) -> None:
    """Find the k with the largest ``constant - precision / 2 * ((mean_l - center_k)^2 + var_l)``.

    Parameters
    ----------
    mean : ndarray of shape (L, n)
    var : ndarray of shape (L, n) or (L, 1)
    center : ndarray of shape (K, n)
    precision, constant : ndarray of shape (K,)
    index : ndarray of int32 of shape (L, n), written
    value : ndarray of shape (L, n), written
    """
    n_sources, n = mean.shape
    shared = var.shape[1] == 1
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for s in range(n_sources):
            m = mean[s, start:stop]
            best = value[s, start:stop]
            which = index[s, start:stop]
            for k in range(center.shape[0]):
                half = 0.5 * precision[k]
                c = center[k, start:stop]
                a = constant[k] - half * var[s, 0] if shared else constant[k]
                for r in range(stop - start):
                    d = m[r] - c[r]
                    v = a - half * d * d
                    if not shared:
                        v -= half * var[s, start + r]
                    better = k == 0 or v > best[r]
                    best[r] = v if better else best[r]
                    which[r] = k if better else which[r]


@numba.njit(nogil=True, cache=True)
def nearest_linear(
    mean: np.ndarray, eta: np.ndarray, cumulant: np.ndarray, index: np.ndarray, value: np.ndarray
) -> None:
    """Find the k with the largest ``sum_q mean_lq eta_kq - cumulant_k``.

    Parameters
    ----------
    mean : ndarray of shape (L, Q, n)
    eta : ndarray of shape (K, Q, n)
    cumulant : ndarray of shape (K, n)
    index : ndarray of int32 of shape (L, n), written
    value : ndarray of shape (L, n), written
    """
    n_sources, n_terms, n = mean.shape
    v = np.empty(TILE)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for s in range(n_sources):
            best = value[s, start:stop]
            which = index[s, start:stop]
            for k in range(eta.shape[0]):
                b = cumulant[k, start:stop]
                for r in range(stop - start):
                    v[r] = -b[r]
                for q in range(n_terms):
                    m = mean[s, q, start:stop]
                    e = eta[k, q, start:stop]
                    for r in range(stop - start):
                        v[r] += m[r] * e[r]
                for r in range(stop - start):
                    better = k == 0 or v[r] > best[r]
                    best[r] = v[r] if better else best[r]
                    which[r] = k if better else which[r]


@numba.njit(nogil=True, cache=True)
def collect(
    index: np.ndarray, weight: np.ndarray, mean: np.ndarray, mass: np.ndarray, total: np.ndarray
) -> None:
    """Add weights, and weighted means, to the targets they go to.

    Parameters
    ----------
    index : ndarray of int32 of shape (L, n)
    weight : ndarray of shape (L, n)
    mean : ndarray of shape (L, Q, n)
    mass : ndarray of shape (K, n), added to
    total : ndarray of shape (K, Q, n), added to
    """
    n_sources, n_terms, n = mean.shape
    for s in range(n_sources):
        for r in range(n):
            mass[index[s, r], r] += weight[s, r]
        for q in range(n_terms):
            for r in range(n):
                total[index[s, r], q, r] += weight[s, r] * mean[s, q, r]


@numba.njit(nogil=True, cache=True)
def collect_spread(
    index: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    center: np.ndarray,
    spread: np.ndarray,
) -> None:
    """Add weighted variances and squared distances to the targets' means.

    Parameters
    ----------
    index : ndarray of int32 of shape (L, n)
    weight, mean : ndarray of shape (L, n)
    var : ndarray of shape (L, n) or (L, 1)
    center : ndarray of shape (K, n)
    spread : ndarray of shape (K, n), added to
    """
    n_sources, n = mean.shape
    shared = var.shape[1] == 1
    for s in range(n_sources):
        for r in range(n):
            k = index[s, r]
            d = mean[s, r] - center[k, r]
            spread[k, r] += weight[s, r] * (d * d + (var[s, 0] if shared else var[s, r]))


@numba.njit(nogil=True, cache=True)
def transport(
    cost: np.ndarray, supply: np.ndarray, demand: np.ndarray, most_moves: int, out: np.ndarray
) -> None:
    """Solve n small transport problems exactly, by successive shortest paths (maths 9).

    Every source sends all it has to its cheapest sink. Mass then moves from sinks that hold too
    much to sinks that hold too little, along cheapest paths between sinks. A plan needs about as
    many moves as there are sources that must change their sink.

    Parameters
    ----------
    cost : ndarray of shape (n, L, K), C-contiguous
        Finite. Fastest with L >= K.
    supply : ndarray of shape (n, L)
    demand : ndarray of shape (n, K)
    most_moves : int
    out : ndarray of shape (n,)
        The least costs; NaN where `most_moves` were not enough.
    """
    n, n_sources, n_sinks = cost.shape
    flow = np.empty((n_sources, n_sinks))
    surplus = np.empty(n_sinks)  # what a sink holds, less its demand
    arc = np.empty((n_sinks, n_sinks))  # cost of moving mass from one sink on to another
    mover = np.empty((n_sinks, n_sinks), dtype=np.int64)  # the source whose mass that is
    potential = np.empty(n_sinks)
    distance = np.empty(n_sinks)
    before = np.empty(n_sinks, dtype=np.int64)  # the sink before this one on the path, or -1
    through = np.empty(n_sinks, dtype=np.int64)  # the source whose mass moves between the two
    closed = np.empty(n_sinks, dtype=np.bool_)
    for row in range(n):
        c = cost[row]
        flow[:] = 0.0
        surplus[:] = -demand[row]
        arc[:] = np.inf
        potential[:] = 0.0
        for source in range(n_sources):
            if supply[row, source] > 0.0:
                nearest = int(np.argmin(c[source]))
                flow[source, nearest] = supply[row, source]
                surplus[nearest] += supply[row, source]
                _offer(c, source, nearest, arc, mover)
        moves = 0
        while True:
            end = _cheapest_path(arc, surplus, potential, distance, before, closed)
            if end < 0 or moves == most_moves:
                break
            moves += 1
            # 1) how much the path carries, from its end to its start
            amount = -surplus[end]
            k = end
            while before[k] >= 0:
                j = before[k]
                source = mover[j, k]
                while before[j] >= 0 and mover[before[j], j] == source:
                    j = before[j]  # a source that moves twice in a row may as well move once
                before[k] = j
                through[k] = source
                amount = min(amount, flow[source, j])
                k = j
            amount = min(amount, surplus[k])
            # 2) move it
            surplus[k] -= amount
            surplus[end] += amount
            k = end
            while before[k] >= 0:
                flow[through[k], before[k]] -= amount
                flow[through[k], k] += amount
                k = before[k]
            # 3) the arcs that it changes
            k = end
            while before[k] >= 0:
                _offer(c, through[k], k, arc, mover)
                if flow[through[k], before[k]] == 0.0:
                    _withdraw(c, flow, through[k], before[k], arc, mover)
                k = before[k]
        value = 0.0
        for source in range(n_sources):
            for k in range(n_sinks):
                value += flow[source, k] * c[source, k]
        out[row] = value if end < 0 else np.nan


@numba.njit(nogil=True, cache=True)
def _offer(c: np.ndarray, source: int, j: int, arc: np.ndarray, mover: np.ndarray) -> None:
    """Let the mass of a source at sink j compete for the arcs that leave j."""
    for k in range(c.shape[1]):
        step = c[source, k] - c[source, j]
        if k != j and step < arc[j, k]:
            arc[j, k] = step
            mover[j, k] = source


@numba.njit(nogil=True, cache=True)
def _withdraw(
    c: np.ndarray, flow: np.ndarray, source: int, j: int, arc: np.ndarray, mover: np.ndarray
) -> None:
    """Find other sources for the arcs out of sink j along which this one's mass would move."""
    for k in range(c.shape[1]):
        if arc[j, k] < np.inf and mover[j, k] == source:
            arc[j, k] = np.inf
            for other in range(c.shape[0]):
                step = c[other, k] - c[other, j]
                if flow[other, j] > 0.0 and step < arc[j, k]:
                    arc[j, k] = step
                    mover[j, k] = other


@numba.njit(nogil=True, cache=True)
def _cheapest_path(
    arc: np.ndarray,
    surplus: np.ndarray,
    potential: np.ndarray,
    distance: np.ndarray,
    before: np.ndarray,
    closed: np.ndarray,
) -> int:
    """Find a cheapest path from sinks with a surplus to one with a deficit (Dijkstra).

    Returns its end, or -1 if there is none; `before` leads back from there to its start. The
    potentials keep all arcs non-negative, up to rounding, and are brought up to date.
    """
    n = len(surplus)
    for k in range(n):
        distance[k] = 0.0 if surplus[k] > 0.0 else np.inf
        before[k] = -1
        closed[k] = False
    while True:
        here = -1
        for k in range(n):
            if not closed[k] and (here < 0 or distance[k] < distance[here]):
                here = k
        if here < 0 or distance[here] == np.inf:
            return -1
        if surplus[here] < 0.0:
            break
        closed[here] = True
        for k in range(n):
            reduced = max(arc[here, k] + potential[here] - potential[k], 0.0)
            if not closed[k] and distance[here] + reduced < distance[k]:
                distance[k] = distance[here] + reduced
                before[k] = here
    for k in range(n):
        potential[k] += min(distance[k], distance[here])
    return here


@numba.njit(nogil=True, cache=True)
def solve_definite(
    H: np.ndarray,
    g: np.ndarray,
    tolerance: float,
    nothing: float,
    out: np.ndarray,
    solved: np.ndarray,
) -> None:
    """Solve small systems ``H d = g`` by Cholesky's method, one after another.

    Parameters
    ----------
    H : ndarray of shape (K, P, P)
    g : ndarray of shape (K, P)
    tolerance : float
        Of the largest entry of the diagonal, above which every squared pivot must be.
    nothing : float
        Which that entry must not be below.
    out : ndarray of shape (K, P), written
    solved : ndarray of bool of shape (K,), written
        False where it is not so; what is written there means nothing.
    """
    K, P = g.shape
    factor = np.empty((P, P))
    for k in range(K):
        largest = 0.0
        for i in range(P):
            largest = max(largest, H[k, i, i])
        least = tolerance * largest
        solved[k] = largest >= nothing
        for i in range(P):
            if not solved[k]:
                break
            for j in range(i + 1):
                total = H[k, i, j]
                for q in range(j):
                    total -= factor[i, q] * factor[j, q]
                if i > j:
                    factor[i, j] = total / factor[j, j]
                elif total > least:
                    factor[i, i] = total**0.5
                else:
                    solved[k] = False
        if not solved[k]:
            continue
        for i in range(P):
            total = g[k, i]
            for q in range(i):
                total -= factor[i, q] * out[k, q]
            out[k, i] = total / factor[i, i]
        for i in range(P - 1, -1, -1):
            total = out[k, i]
            for q in range(i + 1, P):
                total -= factor[q, i] * out[k, q]
            out[k, i] = total / factor[i, i]
