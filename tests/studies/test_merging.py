"""The figures of the benchmark of merging."""

import numpy as np
from numpy.testing import assert_allclose

from benchmarks.merging import clustered_error


def test_an_error_by_clusters_of_one_is_the_usual_one(rng):
    values = rng.normal(size=50)
    usual = values.std(ddof=1) / np.sqrt(50)
    assert_allclose(clustered_error(values, rng.permutation(50)), usual)


def test_copies_in_a_cluster_tell_nothing_new(rng):
    values, order = rng.normal(size=50), rng.permutation(150)
    many, cluster = np.tile(values, 3)[order], np.tile(np.arange(50), 3)[order]
    assert_allclose(clustered_error(many, cluster), clustered_error(values, np.arange(50)))
