"""What a fit of shards returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otmoe.aggregation import Aggregation
from otmoe.aggregation.support import Support
from otmoe.arrays.numerics import Floats
from otmoe.data.shards import rows_dropped
from otmoe.documents.message import LocalModel
from otmoe.likelihood.agreement import Agreement
from otmoe.likelihood.checks import found_once
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Warn
from otmoe.workers.failures import Failure


@dataclass(frozen=True)
class DistributedFit:
    """Local models, what they were merged into, and how long it took.

    Attributes
    ----------
    aggregation : Aggregation
    local_models : tuple of LocalModel
        All of them, those left out too.
    seconds : ndarray of shape (M,)
        Of each local fit, later attempts included, where it ran.
    start : MoE, optional
        Start of the local fits: the maximum for rows drawn from many shards.
    refitted : tuple of str
        Shards that stood out and searched separately.
    failures : tuple of Failure
        Shards that could not be fitted, and why.
    n_rows : int
        Rows fitted.
    dropped : int
        Rows left out because a value is missing.
    missing : mapping of int
        Rows in which a column is missing, by its name, where some were left out.
    empty : tuple of str
        Shards that have no rows, and were skipped.
    agreement : Agreement, optional
        Agreement of the searches for the start; None if there was no search.
    reused : tuple of str
        Shards whose fits an earlier run had kept.
    timings : dict
        Wall-clock seconds by stage: `search`, `fits`, `aggregation`, `refine`, and `total`.
    support : Support, optional
        The covariates at which the local models were merged, by shard.
    """

    aggregation: Aggregation
    local_models: tuple[LocalModel, ...] = field(repr=False)
    seconds: Floats = field(repr=False)
    start: MoE | None = field(default=None, repr=False)
    refitted: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    n_rows: int = 0
    dropped: int = 0
    timings: Mapping[str, float] = field(default_factory=dict, repr=False)
    missing: Mapping[str, int] = field(default_factory=dict, repr=False)
    empty: tuple[str, ...] = ()
    agreement: Agreement | None = None
    reused: tuple[str, ...] = ()
    support: Support | None = field(default=None, repr=False)

    def notices(self) -> list[Notice]:
        """Return warnings about the search and the shards."""
        found: list[Notice] = []
        if self.agreement is not None:
            found += found_once(self.agreement)
        for failure in self.failures:
            facts = {"name": failure.name, "cause": failure.cause}
            found.append(Warn.SHARD_FAILED(sites=(failure.name,), **facts))
        if self.dropped:
            found.append(rows_dropped(self.dropped, self.n_rows, self.missing))
        if self.empty:
            total = len(self.local_models) + len(self.failures) + len(self.empty)
            facts = {"count": len(self.empty), "total": total, "name": self.empty[0]}
            found.append(Warn.EMPTY_SHARDS(sites=self.empty, **facts))
        for name, why in self.aggregation.left_out.items():
            found.append(Warn.SHARD_LEFT_OUT(sites=(name,), name=name, why=why))
        stopped = [m.site for m in self.local_models if not m.converged]
        if stopped:
            found.append(Warn.SHARDS_STOPPED(sites=tuple(stopped), names=listed(stopped)))
        # a shard whose few rows a plane divides is not worth a warning: the ridge keeps it finite
        lacking = {
            str(w): w
            for m in self.local_models
            for w in m.warnings
            if w.code != Warn.SEPARATED.code
        }
        if lacking:  # one stands for all: what explains others, or else the first
            told = min(lacking, key=lambda text: (lacking[text].code != Warn.TWO_VALUES.code, text))
            found.append(Warn.SOME_SHARDS(warning=lacking[told]))
        return found
