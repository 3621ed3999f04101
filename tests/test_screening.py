from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import message, random_model

from otmoe import simulate
from otmoe.local import RowsShard, Task, fit_local
from otmoe.screening import THRESHOLD, likelihood_deviations

MODEL = random_model(np.random.default_rng(0))


def reports(mean, n):
    """Return messages with these mean log-likelihoods per row."""
    return [
        message(MODEL, f"shard {m}", float(size), log_likelihood=float(size * value))
        for m, (value, size) in enumerate(zip(mean, n, strict=True))
    ]


@pytest.fixture
def chance(rng):
    """Shards of unequal size whose means differ by chance alone."""
    n = rng.integers(100, 2000, 16)
    return -1.3 + 0.8 * rng.normal(size=16) / np.sqrt(n), n


def test_a_shard_far_below_stands_out(chance):
    mean, n = chance
    mean[11] -= 0.8
    deviations = likelihood_deviations(reports(mean, n))
    assert np.flatnonzero(deviations < -THRESHOLD).tolist() == [11]


def test_shards_that_differ_by_chance_seldom_stand_out(rng):
    lowest = []
    for _ in range(300):
        n = rng.integers(100, 2000, 16)
        mean = 2.0 + 0.8 * rng.normal(size=16) / np.sqrt(n)
        sent = [
            SimpleNamespace(n_samples=size, log_likelihood=size * value)
            for value, size in zip(mean, n, strict=True)
        ]
        lowest.append(likelihood_deviations(sent).min())
    assert np.mean(np.array(lowest) < -THRESHOLD) < 0.01  # of datasets; 0.2 % are expected


def test_a_shard_far_above_is_not_bad(chance):
    mean, n = chance
    mean[3] += 5
    assert likelihood_deviations(reports(mean, n)).min() > -THRESHOLD


def test_the_unit_of_y_is_irrelevant(chance):
    # Dividing y by c adds log c to the log density of every row.
    mean, n = chance
    expected = likelihood_deviations(reports(mean, n))
    assert_allclose(likelihood_deviations(reports(mean + 7.3, n)), expected, rtol=1e-7, atol=1e-9)


def test_the_order_of_shards_is_irrelevant(chance, rng):
    sent = reports(*chance)
    order = rng.permutation(16)
    found = likelihood_deviations([sent[m] for m in order])
    assert_allclose(found, likelihood_deviations(sent)[order], rtol=1e-12)


def test_larger_shards_are_held_to_more(chance):
    mean, n = chance
    mean, n = np.append(mean, [-1.6, -1.6]), np.append(n, [50, 5000])
    few, many = likelihood_deviations(reports(mean, n))[-2:]
    assert many < -THRESHOLD < few < 0


@pytest.mark.parametrize("n_shards", [1, 2, 3])
def test_few_equal_shards_do_not_stand_out(n_shards):
    deviations = likelihood_deviations(reports(np.full(n_shards, -1.0), np.full(n_shards, 100)))
    assert_allclose(deviations, 0, atol=1e-12)


def test_a_tiny_spread_is_no_reason_to_flag(rng):
    # Equal but for rounding, as for copies of one shard.
    mean = -1.0 + 1e-12 * rng.normal(size=16)
    assert np.abs(likelihood_deviations(reports(mean, np.full(16, 100)))).max() < 1e-6


def test_a_wrong_optimum_among_real_fits_stands_out():
    data = simulate(16 * 150, 2, 2, softness=0.5, random_state=1)
    parts = np.array_split(np.arange(len(data.y)), 16)
    tasks = [
        Task(RowsShard(f"shard {m}", data.X, data.y, index=rows), m, 2, options={"n_init": 3})
        for m, rows in enumerate(parts)
    ]
    sent = [fit_local(task).message for task in tasks]
    assert likelihood_deviations(sent).min() > -THRESHOLD
    alone = fit_local(replace(tasks[5], n_experts=1)).message  # both experts in one place
    sent[5] = replace(sent[5], log_likelihood=alone.log_likelihood)
    assert np.flatnonzero(likelihood_deviations(sent) < -THRESHOLD).tolist() == [5]
