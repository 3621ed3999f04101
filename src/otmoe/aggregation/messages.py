"""What messages have to be, and their weights, for models to be merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.compatible import check_compatible
from otmoe.documents.message import LocalModel
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.names import look_alikes
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error


def usual_experts(messages: Sequence[LocalModel], weight: Floats) -> int:
    """Return the upper median of the numbers of experts: no site alone decides on it."""
    sizes = [m.model.n_experts for m, w in zip(messages, weight, strict=True) if w > 0]
    return sorted(sizes)[len(sizes) // 2]


def check_messages(messages: Iterable[LocalModel]) -> tuple[LocalModel, ...]:
    """Return messages that can be merged; refuse those that do not match the first, by name."""
    if isinstance(messages, LocalModel):
        raise InvalidType(Error.ONE_MESSAGE)
    messages = tuple(messages)
    if not messages:
        raise InvalidInput(Error.NO_MESSAGES)
    for i, message in enumerate(messages):
        if not isinstance(message, LocalModel):
            raise InvalidType(Error.NOT_A_MESSAGE, number=i, kind=type(message).__name__)
    names = [message.site for message in messages]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidInput(Error.SITE_TWICE, site=twice)
    if pair := look_alikes(names):
        raise InvalidInput(Error.LOOK_ALIKE, name=ascii(pair[1]), other=ascii(pair[0]))
    for message in messages:
        _check_against(message, messages[0])
    return messages


def _check_against(message: LocalModel, first: LocalModel) -> None:
    """Refuse a model that does not match that of the first message."""
    who, other = f"site {message.site!r}", f"site {first.site!r}"
    check_compatible(message.model, message.features, who, first.model, first.features, other)


def check_weights(site_weight: Any, messages: Sequence[Any]) -> Floats:
    """Return the weights of sites, given by name or in order, (M,)."""
    names = [message.site for message in messages]
    if isinstance(site_weight, Mapping):
        unknown = sorted(set(site_weight) - set(names))
        missing = sorted(set(names) - set(site_weight))
        if unknown or missing:
            code = Error.WEIGHT_UNKNOWN_SITES if unknown else Error.WEIGHT_LACKS_SITES
            raise InvalidInput(code, names=unknown or missing, sites=names)
        site_weight = [site_weight[name] for name in names]
    try:
        weight = np.asarray(site_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(Error.WEIGHT_NOT_NUMBERS, error=error) from error
    if weight.shape != (len(names),):
        raise InvalidInput(Error.WEIGHT_SHAPE, shape=weight.shape, sites=len(names))
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise InvalidInput(Error.WEIGHT_NEGATIVE, site=names[wrong[0]], value=weight[wrong[0]])
    if not weight.sum() > 0:
        raise InvalidInput(Error.WEIGHTS_ZERO)
    return weight


def check_sketches(site_weight: str, messages: Sequence[LocalModel]) -> None:
    """Refuse weights by sketches where a site has sent none, or has other units."""
    if site_weight != "covariate":
        raise InvalidInput(Error.WEIGHT_UNKNOWN, value=site_weight)
    without = [message.site for message in messages if message.sketch is None]
    if without:
        raise InvalidInput(Error.NO_SKETCHES, sites=without)
    units = [message.sketch.units for message in messages if message.sketch is not None]
    for message, other in zip(messages, units, strict=True):
        if other != units[0]:
            raise InvalidInput(Error.SKETCH_UNITS, site=message.site, other=messages[0].site)


def remaining(
    messages: Sequence[LocalModel], site_weight: Any, left_out: Mapping[str, Notice]
) -> tuple[list[LocalModel], Any]:
    """Return the messages that are not left out, and their weights in the form they came in."""
    stay = [m for m, message in enumerate(messages) if message.site not in left_out]
    if isinstance(site_weight, Mapping):
        site_weight = {name: w for name, w in site_weight.items() if name not in left_out}
    elif site_weight is not None and not isinstance(site_weight, str):
        site_weight = np.asarray(site_weight)[stay]
    return [messages[m] for m in stay], site_weight
