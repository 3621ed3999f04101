from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from oracles import log_likelihood, penalised_log_likelihood, random_model, random_rows

from otmoe.likelihood.rows import Rows
from otmoe.likelihood.starts import candidates, k_planes, subsample
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


def test_candidates_come_with_the_most_likely_first(rng, family):
    model = random_model(rng, 3, 2, family=family)
    X, y = random_rows(rng, model, n=400)
    rows = Rows(X, y).standardised(model.experts)[0]
    blank = type(model.experts).blank(3, 3, 3)
    found = candidates(blank, rows, None, 0.1, 6, rng)
    value = [penalised_log_likelihood(rows.scaling.to_user(start), X, y, 0.1) for start in found]
    assert len(found) == 6 and value[0] > value[-1]
    assert np.diff(value).max() <= 1e-8 * abs(value[0])
    # The best start should not need to be told what a single expert knows.
    single = candidates(type(model.experts).blank(1, 3, 3), rows, None, 0.1, 6, rng)
    assert len(single) == 1
    assert value[0] > log_likelihood(rows.scaling.to_user(single[0]), X, y)


def test_threads_find_the_same_candidates(rng, family):
    model = random_model(rng, 2, 2, family=family)
    X, y = random_rows(rng, model, n=200)
    blank = type(model.experts).blank(2, 3, 3)
    with ThreadPoolExecutor(3) as pool:
        alone, together = (
            candidates(blank, Rows(X, y, pool=p), None, 0.1, 5, np.random.default_rng(0))
            for p in (None, pool)
        )
    for a, b in zip(alone, together, strict=True):
        assert_array_equal(a.to_vector(), b.to_vector())


def test_candidates_use_the_columns_of_the_gate(rng):
    model = random_model(rng, 2, 3)
    X, y = random_rows(rng, model, n=100)
    for start in candidates(GaussianExperts.blank(2, 4), Rows(X, y), (0, 2), 0.1, 3, rng):
        assert start.gate.columns == (0, 2)
        assert_array_equal(start.gate.coef[:, [1, 3]], 0)


def test_gaussian_starts_cannot_tell_an_offset_from_a_smaller_response(rng):
    X, y = random_rows(rng, random_model(rng, 2, 2), n=100)
    offset = 3 * rng.normal(size=100)
    blank = GaussianExperts.blank(2, 3)
    there, here = (
        candidates(blank, rows, None, 0.1, 4, np.random.default_rng(0))
        for rows in (Rows(X, y, offset=offset), Rows(X, y - offset))
    )
    for a, b in zip(there, here, strict=True):  # equally likely starts may differ in numbering
        assert_allclose(a.aligned_to(b, X).to_vector(), b.to_vector(), rtol=1e-6, atol=1e-8)
