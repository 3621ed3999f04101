from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median, median_low
from types import SimpleNamespace

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from oracles import log_density, message, nearby, random_model

from otmoe import MoE, simulate
from otmoe.aggregation.disagreement import (
    THRESHOLD,
    disagreement,
    divergences,
    likelihood_deviations,
    site_likelihood_deviations,
    standing,
)
from otmoe.data.shards import RowsShard
from otmoe.distributed.task import Task, fit_local
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate

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


def test_a_shard_far_below_stands_out_and_one_far_above_is_not_bad(chance):
    mean, n = chance
    mean[3] += 5
    assert likelihood_deviations(reports(mean, n)).min() > -THRESHOLD
    mean[11] -= 0.8
    deviations = likelihood_deviations(reports(mean, n))
    assert np.flatnonzero(deviations < -THRESHOLD).tolist() == [11]


def test_shards_that_differ_by_chance_seldom_stand_out(rng):
    lowest = []
    for _ in range(300):
        n = rng.integers(100, 2000, 16)
        mean = 2.0 + 0.8 * rng.normal(size=16) / np.sqrt(n)
        pairs = zip(n, n * mean, strict=True)
        sent = [SimpleNamespace(n_samples=size, log_likelihood=value) for size, value in pairs]
        lowest.append(likelihood_deviations(sent).min())
    assert np.mean(np.array(lowest) < -THRESHOLD) < 0.01  # of datasets; 0.2 % are expected


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


# -- what models predict -----------------------------------------------------------------------


def nats(ratio):
    """Return r - 1 - log r, with r no larger than e^2."""
    r = min(ratio, np.exp(2))
    return r - 1 - np.log(r)


def brute_force(models, X, share):
    """Return half the sum of both divergences, and how alike the places are, by loops."""
    M, n = len(models), len(X)
    draws = [model.sample(X, np.random.default_rng(0))[0].astype(float) for model in models]
    cost, overlap = np.full((M, M), np.nan), np.ones((M, M))
    for i, j in np.ndindex(M, M):
        both = share[:, i] * share[:, j]
        if i == j or both.sum() ** 2 < 10 * np.sum(both**2) or not both.any():
            continue
        total = 0.0
        for f, g in [(i, j), (j, i)]:
            own = log_density(models[f], X, draws[f])
            other = log_density(models[g], X, draws[f])
            total += sum(both[s] * nats(np.exp(other[s] - own[s])) for s in range(n))
        cost[i, j] = total / 2 / both.sum()
        overlap[i, j] = both.sum() / np.sqrt(np.sum(share[:, i] ** 2) * np.sum(share[:, j] ** 2))
    return cost, overlap


def test_divergences_are_those_of_loops(family, rng):
    models = [random_model(rng, K, 2, family=family) for K in (2, 1, 3, 2)]
    X = rng.normal(size=(40, 2))
    cost, overlap = divergences(models, X)
    assert_allclose(cost, brute_force(models, X, np.ones((40, 4)))[0], rtol=1e-9)
    assert_allclose(overlap, 1, rtol=1e-12)
    share = rng.uniform(size=(40, 4))
    share[:35, 1] = 0.0  # shares too few points with anybody
    found, expected = divergences(models, X, share), brute_force(models, X, share)
    assert_allclose(found[0], expected[0], rtol=1e-9)
    assert_allclose(found[1], expected[1], rtol=1e-9)
    assert np.isnan(found[0][1]).all() and not np.isnan(found[0][0, 2:]).any()


def test_a_divergence_is_that_of_kullback_and_leibler(family, rng):
    model = random_model(rng, 2, 1, family=family)
    other = nearby(rng, model, 0.15)
    x = np.array([[-0.5], [0.8]])
    if family == "gaussian":
        y, step = np.linspace(-15, 15, 6001), 30 / 6000
    elif FAMILIES[family].n_values is None:
        w = np.linspace(-12, 12, 6001)  # y = e^w, or sinh w
        y = np.exp(2 * w - 3) if FAMILIES[family].positive else np.sinh(w)
        step = 24 / 6000 * (2 * y if FAMILIES[family].positive else np.cosh(w))
    else:
        y, step = np.arange(float(FAMILIES[family].n_values)), 1.0
    expected = 0.0
    for row in x:
        at = np.repeat(row[None, :], len(y), axis=0)
        log_f, log_g = log_density(model, at, y), log_density(other, at, y)
        expected += np.sum(step * (np.exp(log_f) - np.exp(log_g)) * (log_f - log_g)) / 4
    cost, _ = divergences([model, other], np.tile(x, (50_000, 1)))
    assert_allclose(cost[0, 1], expected, rtol=0.02)  # a hundred thousand draws


def test_threads_and_groups_do_not_matter(rng):
    models = [random_model(rng, int(K), 2) for K in rng.integers(1, 4, 80)]
    X = rng.normal(size=(50, 2))
    cost, _ = divergences(models, X)
    assert cost.shape == (80, 32)  # some of them stand for all
    with ThreadPoolExecutor(2) as pool:
        assert_array_equal(divergences(models, X, pool=pool)[0], cost)
    assert_allclose(divergences(models, X, group=7)[0], cost, rtol=1e-10)


def test_of_many_models_each_is_compared_with_some(rng):
    truth = random_model(rng, 2, 2)
    models = [nearby(rng, truth, 0.02) for _ in range(300)]
    wrong = rng.choice(300, 60, replace=False)
    for m in wrong:
        experts = replace(models[m].experts, coef=10 + 0 * truth.experts.coef)
        models[m] = replace(models[m], experts=experts)
    found = disagreement(models, np.full(300, 2000.0), rng.normal(size=(100, 2)))
    assert_array_equal(np.flatnonzero(found.deviation > THRESHOLD), np.sort(wrong))


def test_a_model_is_judged_where_it_has_a_say():
    # Right of zero, the first model has learnt nothing.
    gate = SoftmaxGate(np.array([[0.0, 9.0], [0.0, 0.0]]))
    var = np.ones(2)

    def model(right, shift):
        return MoE(gate, GaussianExperts(np.array([[right + shift, 0.0], [shift, 1.0]]), var))

    models = [model(5.0, 0.0), *(model(0.0, 0.01 * m) for m in range(5))]
    X = np.linspace(-2, 2, 200)[:, None]
    n = np.full(6, 1000.0)
    share = np.ones((200, 6))
    assert_array_equal(np.flatnonzero(disagreement(models, n, X).deviation > THRESHOLD), [0])
    share[X[:, 0] > -0.5, 0] = 0.0
    assert disagreement(models, n, X, share).deviation.max() < 1
    assert disagreement(models, n, X, 1e-250 * share).deviation.max() < 1


# -- the rule ----------------------------------------------------------------------------------


def pairs(size, cost=0.05, odd=None, far=None):
    """Return equal costs between models, none to themselves; `far` to and from an odd one."""
    costs = np.full((size, size), cost)
    if odd is not None:
        costs[odd, :] = costs[:, odd] = far
    return np.where(np.eye(size) > 0, np.nan, costs)


@pytest.mark.parametrize("n_models", [3, 6, 7])
def test_the_rule_is_that_of_loops(n_models, rng):
    models = [random_model(rng, 1 + m % 3, 2) for m in range(n_models)]
    n = rng.integers(20, 2000, n_models).astype(float)
    X, share = rng.normal(size=(150, 2)), rng.uniform(size=(150, n_models)) ** 2
    cost, overlap = brute_force(models, X, share)
    typical, excess = [], []
    for i in range(n_models):
        others = [j for j in range(n_models) if j != i]
        ratios = []
        for j in others:
            error = (models[i].n_parameters / n[i] + models[j].n_parameters / n[j]) / 2
            ratios.append(cost[i, j] / (error / overlap[i, j] + 0.001))
        typical.append(median_low([cost[i, j] for j in others]))
        excess.append(np.log(1 + median_low(ratios)))
    below = [median(excess) - u for u in excess if u <= median(excess)]
    distance = np.array(excess) - np.quantile(excess, 1 / 3)
    spread = max(1.4826 * median(below), 0.3) * n_models / (n_models - 1)
    found = disagreement(models, n, X, share)
    assert_allclose(found.typical, typical, rtol=1e-9)
    assert_allclose(found.deviation, distance / spread, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("size", [3, 4, 5, 10])
def test_one_that_is_far_from_all_stands_out(size):
    found = standing(pairs(size, odd=1, far=4.0), np.full((size, size), 0.05))
    assert_array_equal(np.flatnonzero(found.deviation > THRESHOLD), [1])
    assert_allclose(found.typical, np.where(np.arange(size) == 1, 4.0, 0.05))


def test_less_than_half_may_stand_out():
    cost = pairs(5, 4.0)
    cost[:3, :3] = pairs(3)
    cost[3:, 3:] = pairs(2)  # the two that are wrong agree with each other
    found = standing(cost, np.full((5, 5), 0.05))
    assert_array_equal(np.flatnonzero(found.deviation > THRESHOLD), [3, 4])


@pytest.mark.parametrize("size", [1, 2])
def test_of_two_models_nothing_is_said(size):
    found = standing(pairs(size), np.ones((size, size)))
    assert np.isnan(found.deviation).all()
    assert_array_equal(found.typical, [np.nan] if size == 1 else [0.05, 0.05])


@pytest.mark.parametrize("cost", [0.0, 1e-12, 0.05, 1e300])
def test_equal_costs_make_nobody_stand_out(cost):
    assert_allclose(standing(pairs(6, cost), np.full((6, 6), 0.01)).deviation, 0, atol=1e-9)


def test_few_rows_excuse_a_large_cost():
    cost, error = pairs(6, odd=2, far=2.0), np.full((6, 6), 0.02)
    assert standing(cost, error).deviation[2] > THRESHOLD
    error[2, :] = error[:, 2] = 0.8
    assert abs(standing(cost, error).deviation[2]) < 1


def test_what_nobody_would_notice_is_no_reason():
    found = standing(pairs(6, 1e-9, odd=2, far=1e-3), np.full((6, 6), 1e-9))
    assert found.deviation.max() < 2


def test_the_order_of_models_is_irrelevant(rng):
    cost, error = (a + a.T for a in rng.exponential(size=(2, 9, 9)))
    np.fill_diagonal(cost, np.nan)
    order = np.ix_(*[rng.permutation(9)] * 2)
    expected, found = standing(cost, error), standing(cost[order], error[order])
    assert_array_equal(found.typical, expected.typical[order[1][0]])
    assert_array_equal(found.deviation, expected.deviation[order[1][0]])


def test_sites_may_differ_in_noise():
    mean = np.array([-1.0, -1.1, -0.9, -1.3, -0.7, -1.05])
    n = np.full(6, 1e5)
    assert np.abs(site_likelihood_deviations(mean, n)).max() < THRESHOLD
    assert site_likelihood_deviations(mean - [0, 0, 4.6, 0, 0, 0], n)[2] < -THRESHOLD  # y times 100
    assert site_likelihood_deviations(mean + [0, 0, 4.6, 0, 0, 0], n)[2] > THRESHOLD


def test_the_mean_of_few_rows_may_be_low():
    mean, n = np.array([-1.0, -1.0, -1.0, -1.0, -1.9]), np.full(5, 1e5)
    assert site_likelihood_deviations(mean, n)[4] < -THRESHOLD
    n[4] = 10.0
    assert site_likelihood_deviations(mean, n)[4] > -THRESHOLD
