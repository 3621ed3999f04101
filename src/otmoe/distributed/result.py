"""What a fit of shards returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otmoe.aggregation import Aggregation
from otmoe.arrays.numerics import Floats
from otmoe.documents.message import LocalModel
from otmoe.likelihood.agreement import Agreement
from otmoe.model.mixture import MoE
from otmoe.workers.gather import Failure


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
        Where the local fits set out: the maximum of rows drawn from many shards.
    refitted : tuple of str
        Shards that stood out and searched for themselves.
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
        How sure the search for the start is of its maximum; None where there was no search.
    reused : tuple of str
        Shards whose fits an earlier run had kept.
    timings : dict
        Seconds on the clock by stage: `search`, `fits`, `aggregation`, `refine`, and `total`.
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
