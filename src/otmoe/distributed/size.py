"""Whether a run is large enough for several processes (`python -m benchmarks latency`)."""

from __future__ import annotations

from collections.abc import Sequence

from otmoe.data.shards import FileShard, Shard
from otmoe.data.shards.files import locate
from otmoe.text.errors import ShardError

WORTH = 4e9
"""Rows times squared parameters from which a pool of processes pays.

On one core local fits and refine rounds took 6 to 14 ns for each, and two processes took 2 to 4 s
to start, several times as long on a busy machine: from here on, one core would work for 25 s or
more, half of which a second can take over.
"""

_BYTES = 8  # of a number in a CSV file, roughly
_PACKED = 4  # times smaller if it is packed


def n_jobs_for(shards: Sequence[Shard], n_experts: int) -> int:
    """Return how many processes suit the work: one for few rows, else one per core.

    Parameters
    ----------
    shards : sequence of Shard
    n_experts : int
    """
    from loky import cpu_count

    least = WORTH / n_parameters_of(shards[0], n_experts) ** 2
    rows = 0
    for shard in shards:
        rows += estimated_rows(shard)
        if rows >= least:
            return int(cpu_count())
    return 1


def n_parameters_of(shard: Shard, n_experts: int) -> int:
    """Return about how many parameters a model of these features has: gates and slopes."""
    p = 1 if shard.features is None else len(shard.features.feature_names) + 1
    return (2 * n_experts - 1) * p


def estimated_rows(shard: Shard) -> int:
    """Return the rows of a shard, estimated from the size of its files if they were not counted."""
    try:
        if shard.n_rows is not None or not isinstance(shard, FileShard):
            return shard.n_rows or 0
        total = 0
        for path in {piece.path for piece in shard.pieces}:
            system, inner = locate(path)
            size = system.get_file_info(inner).size or 0
            total += size * (_PACKED if path.endswith(".gz") else 1)
    except (OSError, ShardError):  # reading it will raise the error
        return 0
    return int(total // (_BYTES * (len(shard.features.names) + 1)))
