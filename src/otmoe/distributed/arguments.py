"""What a fit of shards is asked for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from otmoe.aggregation import METHODS
from otmoe.data.shards import Shard
from otmoe.distributed.rounds import check_rounds
from otmoe.text.errors import InvalidInput, ShardError
from otmoe.text.sentences import Error

METHODS_OF_SHARDS = (*METHODS, "em")
"""Ways to one model of shards: those of :func:`otmoe.aggregate`, and EM over all rows."""

OnError = Literal["raise", "skip"]


def weights_by_name(site_weight: Any, shards: Sequence[Shard]) -> Any:
    """Return the weights of shards by name, or what else says how much each counts."""
    if site_weight is None or isinstance(site_weight, str | Mapping):
        return site_weight
    names = [shard.name for shard in shards]
    if len(site_weight) != len(names):
        raise InvalidInput(Error.WEIGHT_SHAPE, shape=(len(site_weight),), sites=len(names))
    return dict(zip(names, site_weight, strict=True))


def check_arguments(shards: Sequence[Shard], method: str, refine: int | str, on_error: str) -> None:
    """Refuse what cannot be carried out, before anything is."""
    if method not in METHODS_OF_SHARDS:
        choices = sorted(METHODS_OF_SHARDS)
        raise InvalidInput(Error.NOT_ONE_OF, name="method", value=method, choices=choices)
    if on_error not in ("raise", "skip"):
        choices = ["raise", "skip"]
        raise InvalidInput(Error.NOT_ONE_OF, name="on_error", value=on_error, choices=choices)
    if not len(shards):
        raise InvalidInput(Error.NO_SHARDS)
    check_rounds(refine)
    if method == "em" and refine:
        raise InvalidInput(Error.EM_AND_REFINE)
    names = [shard.name for shard in shards]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ShardError(Error.SHARD_TWICE, where=twice)
