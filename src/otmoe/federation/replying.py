"""A site's reply to a refine request, from where its rows are."""

from __future__ import annotations

import numpy as np

from otmoe.arrays.numerics import to_numpy
from otmoe.data.shards import Shard, ShardRows
from otmoe.distributed.task import read
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.federation.rounds import reply_to
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE
from otmoe.text.arguments import check_counts, class_codes
from otmoe.text.errors import InvalidInput, OtmoeError, ShardError
from otmoe.text.sentences import Error


def reply_from(request: RefineRequest, shard: Shard) -> tuple[RefineReply, ShardRows]:
    """Return what a site replies, and the rows that it has read for it.

    Parameters
    ----------
    request : RefineRequest
    shard : Shard
        The site's rows, under its name; class labels are those of the model.
    """
    found = read(shard)
    try:
        return reply_to(request, _rows(found, request.model), shard.name), found
    except OtmoeError as error:
        raise error.about(shard.name, ShardError) from error


def _rows(found: ShardRows, model: MoE) -> Rows:
    """Return rows whose y are what the model's experts take."""
    y = found.y
    if not found.X.shape[0]:
        raise InvalidInput(Error.NO_ROWS)
    if model.classes is not None:
        y = class_codes(to_numpy(y), model.classes)
    elif isinstance(y, np.ndarray) and y.dtype.kind == "U":
        raise InvalidInput(Error.TARGET_NOT_NUMBERS)
    elif model.experts.family == "poisson":
        check_counts(to_numpy(y))
    return Rows(found.X, y, found.weight, found.offset)
