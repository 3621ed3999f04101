"""Four sites of unequal size and prevalence, some of them separated: a stand-in for hospitals."""

import numpy as np
import pytest

from otmoe import DistributedMoEClassifier
from otmoe.data.shards import RowsShard
from otmoe.estimators.base import FitWarning

SITES = {"a": (300, 0.0, 1.0), "b": (290, -0.8, 1.0), "c": (120, 3.0, 4.0), "d": (140, 1.2, 4.0)}


def hospitals(seed):
    """Return shards; at the last two sites classes follow x so closely that planes divide them."""
    rng = np.random.default_rng(seed)
    for name, (n, shift, steep) in SITES.items():
        X = rng.normal(size=(n, 6))
        first = rng.uniform(size=n) < 1 / (1 + np.exp(-2 * X[:, 2]))
        eta = shift + steep * np.where(first, 1.5 * X[:, 0] + X[:, 3], X[:, 4] - X[:, 0])
        yield RowsShard(name, X, (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(int))


@pytest.mark.parametrize("seed", range(3))
def test_separated_sites_refine_to_a_maximum_with_standard_errors(seed):
    est = DistributedMoEClassifier(2, refine="auto", random_state=seed)
    with pytest.warns(FitWarning) as said:
        est.fit_shards(hospitals(seed))
    assert "ridge_moved" in said[0].message.codes
    refinement = est.aggregation_.refinement
    assert refinement.status.code == "at_maximum" and refinement.rounds <= 12
    found = est.inference()
    errors = found.covariance.standard_errors(np.eye(est.model_.n_parameters))
    assert np.mean(np.isfinite(errors)) > 0.8  # the rest is the ridge's
