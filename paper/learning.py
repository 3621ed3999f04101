"""The paper's learning time: shards work side by side, though in the studies one after another."""

from __future__ import annotations

from otmoe.distributed.result import DistributedFit


def learning_times(fit: DistributedFit) -> tuple[float, float]:
    """Return the seconds of the slowest local fit, and of the search that serves all of them.

    A second fit of a shard counts as its own. Rows for the search are read from shard after shard
    here, which counts in full.
    """
    return float(fit.seconds.max()), float(fit.timings["search"])
