"""The paper's learning time: shards work side by side, though in the studies one after another."""

from __future__ import annotations

from otmoe.distributed.fit import DistributedFit


def learning_times(fit: DistributedFit) -> tuple[float, float]:
    """Return the seconds of the slowest local fit, and of finding what the fits agree on.

    Later attempts at a fit count as its own. Passes over the rows of several shards are counted as
    if each had gone through its own rows at the same time.

    Parameters
    ----------
    fit : DistributedFit
        In this process: its passes went from shard to shard.
    """
    spent = fit.consensus.seconds
    together = spent.get("together", 0.0) / max(fit.consensus.n_together, 1)
    return float(fit.seconds.max()), spent.get("merging", 0.0) + together
