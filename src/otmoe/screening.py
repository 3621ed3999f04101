"""Which local models stand out: bad local optima show in the log-likelihood per row (maths 12)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otmoe.message import LocalModel
from otmoe.numerics import Floats

THRESHOLD = 5.0
"""Deviations below the median from which a shard counts as badly fitted."""

_LEAST_SPREAD = 1.0  # about the standard deviation of the log density of one row


def likelihood_deviations(messages: Sequence[LocalModel]) -> Floats:
    """Return how far each shard's mean log-likelihood per row is from the median, in deviations.

    For shards of one dataset the mean over n rows varies by chance by about 1 / sqrt(n). The unit
    is the median absolute deviation of sqrt(n) times the distance to the median, scaled to be the
    standard deviation of a normal. A shard in a wrong optimum is tens of units below.

    Parameters
    ----------
    messages : sequence of M LocalModel

    Returns
    -------
    ndarray of shape (M,)
    """
    n = np.array([message.n_samples for message in messages])
    mean = np.array([message.log_likelihood for message in messages]) / n
    distance = np.sqrt(n) * (mean - np.median(mean))
    spread = 1.4826 * np.median(np.abs(distance - np.median(distance)))
    return distance / max(float(spread), _LEAST_SPREAD)
