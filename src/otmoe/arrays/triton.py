"""Compiled kernel for CUDA tensors; :mod:`otmoe.arrays.numerics` is its only caller."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

MOST_COLUMNS = 64
"""Columns up to which an accumulator fits the registers of two warps."""

_CHUNKS = 264  # programs per weight: two for each multiprocessor of a large card
_TILE = 32  # rows per step


@triton.jit
def _kernel(x, w, out, n, p, rows_per_chunk, n_weights, P: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    # Programs of one chunk and different weights run side by side: x comes from cache for them.
    weight = tl.program_id(0)
    chunk = tl.program_id(1)
    columns = tl.arange(0, P)
    total = tl.zeros((P, P), tl.float64)
    for start in range(0, rows_per_chunk, TILE):
        rows = chunk * rows_per_chunk + start + tl.arange(0, TILE)
        inside = rows < n
        mask = (columns[:, None] < p) & inside[None, :]
        features = tl.load(x + columns[:, None] * n + rows[None, :], mask=mask, other=0.0)
        scale = tl.load(w + weight * n + rows, mask=inside, other=0.0)
        total += tl.dot(features * scale[None, :], tl.trans(features), out_dtype=tl.float64)
    place = out + (chunk * n_weights + weight) * P * P + columns[:, None] * P + columns[None, :]
    tl.store(place, total)


def weighted_gram(X: Any, weights: Any) -> Any:
    """Return ``X.T @ diag(w) @ X`` for every column w of `weights`, without scaled copies of X.

    Chunks of rows are summed in a fixed order, so that results repeat to the last bit.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    weights : CUDA tensor of shape (n, J), float64

    Returns
    -------
    CUDA tensor of shape (J, p, p)
    """
    features, scales = X.T.contiguous(), weights.T.contiguous()
    p, n = features.shape
    n_weights = scales.shape[0]
    P = max(16, triton.next_power_of_2(p))
    rows_per_chunk = triton.cdiv(triton.cdiv(n, _CHUNKS), _TILE) * _TILE
    chunks = triton.cdiv(n, rows_per_chunk)
    out = torch.empty((chunks, n_weights, P, P), dtype=torch.float64, device=X.device)
    _kernel[(n_weights, chunks)](
        features, scales, out, n, p, rows_per_chunk, n_weights, P=P, TILE=_TILE, num_warps=2
    )
    return out.sum(0)[:, :p, :p]
