import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_model, random_rows

from otmoe.likelihood.rows import Rows
from otmoe.likelihood.stage import subsample
from otmoe.likelihood.starts import k_planes, start_from
from otmoe.model.experts import GaussianExperts


def test_a_subsample_holds_distinct_rows_of_positive_weight(rng):
    X = np.arange(3000.0)[:, None]
    weight = (np.arange(3000) % 2).astype(float)
    few = subsample(Rows(X, X[:, 0], weight), 500, rng)
    assert len(few) == 500 and np.all(np.diff(few.X[:, 0]) > 0) and np.all(few.weight == 1)
    assert_array_equal(few.X[:, 0], few.y)
    everything = subsample(Rows(X, X[:, 0], weight), 2000, rng)
    assert_array_equal(everything.y, np.arange(1, 3000, 2))


def test_k_planes_finds_lines_that_cross(rng):
    X = rng.uniform(-3, 3, (300, 1))
    z = rng.integers(0, 2, 300)
    y = np.where(z == 0, 1 + 2 * X[:, 0], -1 - X[:, 0]) + 0.05 * rng.normal(size=300)
    block = Rows(X, y, rng.uniform(0.5, 2, 300)).block(slice(None))
    start = np.where(rng.random(300) < 0.2, 1 - z, z)
    experts, labels = k_planes(GaussianExperts.blank(2, 2), block, start, 15)
    assert_allclose(experts.coef, [[1, 2], [-1, -1]], atol=0.05)
    assert np.mean(labels == z) > 0.95


@pytest.mark.parametrize("attempt", range(3))
def test_a_start_has_the_experts_and_the_columns_asked_for(rng, family, attempt):
    model = random_model(rng, 2, 3, family=family)
    X, y = random_rows(rng, model, n=100)
    blank = type(model.experts).blank(3, 4, 3)
    start = start_from(blank, Rows(X, y).block(slice(None)), (0, 2), rng, attempt)
    assert start.n_experts == 3 and np.all(np.isfinite(start.to_vector()))
    assert start.gate.columns == (0, 2)
    assert_array_equal(start.gate.coef[:, [1, 3]], 0)


@pytest.mark.parametrize("attempt", range(3))
def test_gaussian_starts_cannot_tell_an_offset_from_a_smaller_response(rng, attempt):
    X, y = random_rows(rng, random_model(rng, 2, 2), n=100)
    offset = 3 * rng.normal(size=100)
    there, here = (
        start_from(
            GaussianExperts.blank(2, 3),
            rows.block(slice(None)),
            None,
            np.random.default_rng(0),
            attempt,
        )
        for rows in (Rows(X, y, offset=offset), Rows(X, y - offset))
    )
    assert_allclose(there.to_vector(), here.to_vector(), rtol=1e-6, atol=1e-8)
