import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import simulate

KINDS = {"hard": {}, "soft": {"softness": 1.0}, "overlap": {"overlap": True}}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def whole(a):
    return np.array_equal(a, np.round(a))


@every_kind
def test_shapes_and_shares(kind):
    for seed in range(5):
        data = simulate(5000, 4, 20, random_state=seed, **kind)
        assert data.X.shape == (5000, 20) and data.y.shape == data.z.shape == (5000,)
        assert data.truth.gate.coef.shape == data.truth.experts.coef.shape == (4, 21)
        assert_array_equal(data.truth.gate.coef[-1], 0)
        assert np.bincount(data.z, minlength=4).min() >= 0.1 * 5000 - 3 * np.sqrt(450)


@every_kind
def test_the_same_seed_gives_the_same_rows(kind):
    a, b, c = (simulate(50, 2, 3, random_state=seed, **kind) for seed in (1, 1, 2))
    assert_array_equal(a.X, b.X)
    assert_array_equal(a.y, b.y)
    assert not np.array_equal(a.X, c.X)


def test_a_hard_truth_has_whole_numbers():
    truths = [simulate(1, 4, 5, random_state=seed).truth for seed in range(30)]
    coef = np.concatenate([truth.experts.coef for truth in truths])
    gate = np.concatenate([truth.gate.coef for truth in truths])
    var = np.concatenate([truth.experts.var for truth in truths])
    assert whole(coef) and (coef.min(), coef.max()) == (-5, 5)
    assert whole(gate) and 5 < np.abs(gate).max() <= 10  # a difference of two in [-5, 5]
    assert set(var) == {1, 2, 3, 4, 5}


def test_a_hard_gate_is_nearly_a_partition():
    data = simulate(20_000, 4, 20, random_state=0)
    assert np.mean(data.truth.gate_prob(data.X).max(axis=1) > 0.99) > 0.75


def test_a_soft_truth_has_standardised_features_and_small_gates():
    gates = []
    for seed in range(40):
        data = simulate(4000, 4, 20, softness=1.0, random_state=seed)
        gates.append(data.truth.gate.coef[:-1])
        assert whole(data.truth.experts.coef) and whole(data.truth.experts.var)
        # The clusters are of equal size, so only the noise around them is random.
        assert_allclose(data.X.mean(axis=0), 0, atol=6 / np.sqrt(4000))
        assert_allclose(data.X.std(axis=0), 1, atol=0.08)
    # A difference of two normals of standard deviation 0.45.
    assert_allclose(np.std(gates), 0.45 * np.sqrt(2), rtol=0.1)


def test_an_overlapping_truth_has_small_experts():
    truths = [simulate(1, 4, 20, overlap=True, random_state=seed).truth for seed in range(40)]
    var = np.concatenate([truth.experts.var for truth in truths])
    assert_allclose(np.std([truth.experts.coef for truth in truths]), 0.6, rtol=0.05)
    assert 0.5 <= var.min() < 0.6 and 1.9 < var.max() <= 2
    assert_allclose(np.std([truth.gate.coef[:-1] for truth in truths]), 0.45 * np.sqrt(2), rtol=0.1)


@every_kind
def test_features_in_a_cluster_have_the_stated_covariance(kind):
    data = simulate(60_000, 3, 12, random_state=1, **kind)
    x = data.X * data.stretch + data.shift
    apart = np.linalg.norm(data.centers[:, None] - data.centers, axis=2)
    assert apart[np.triu_indices(3, 1)].min() > 12  # so that the nearest centre is the right one
    cluster = np.linalg.norm(x[:, None] - data.centers, axis=2).argmin(axis=1)
    assert_array_equal(np.bincount(cluster), 20_000)
    lag = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    assert_allclose(np.cov((x - data.centers[cluster]).T), 0.25**lag, atol=0.03)


@every_kind
def test_responses_come_from_the_expert_that_is_named(kind):
    data = simulate(60_000, 3, 6, random_state=3, **kind)
    gate, mean = data.truth.gate_prob(data.X), data.truth.expert_mean(data.X)
    for k, var in enumerate(data.truth.experts.var):
        own = data.z == k
        error = (data.y - mean[:, k])[own]
        assert_allclose(error.var(), var, rtol=5 * np.sqrt(2 / own.sum()))
        assert_allclose(error.mean(), 0, atol=5 * np.sqrt(var / own.sum()))
        assert_allclose(own.mean(), gate[:, k].mean(), atol=5 * np.sqrt(0.25 / 60_000))


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_other_families_follow_their_means(family):
    data = simulate(60_000, 3, 6, family=family, random_state=3)
    mean = data.truth.expert_mean(data.X)
    for k in range(3):
        own = data.z == k
        variance = mean[own, k] * (1 - mean[own, k] if family == "logistic" else 1)
        error = np.sum(data.y[own] - mean[own, k]) / np.sqrt(variance.sum())
        assert own.mean() > 0.09 and abs(error) < 5


def test_classes_follow_their_probabilities():
    data = simulate(60_000, 3, 6, family="multinomial", n_classes=4, random_state=3)
    prob = data.truth.expert_mean(data.X)[np.arange(60_000), data.z]  # (n, 4)
    seen = data.y[:, None] == np.arange(4)
    assert seen.any(axis=0).all() and seen.sum() == 60_000
    error = np.sum(seen - prob, axis=0) / np.sqrt(np.sum(prob * (1 - prob), axis=0))
    assert np.abs(error).max() < 5


@pytest.mark.parametrize(("family", "size"), [("logistic", 3.0), ("poisson", 0.7)])
def test_linear_predictors_vary_as_stated(family, size):
    spread = []
    for seed in range(60):
        data = simulate(2000, 2, 10, family=family, softness=0.5, random_state=seed)
        coef = data.truth.experts.coef
        spread.append(np.var(data.X @ coef[:, 1:].T, axis=0))
    assert_allclose(np.sqrt(np.mean(spread)), size, rtol=0.1)


@every_kind
def test_draw_gives_other_rows_of_the_same_truth(kind):
    data = simulate(30_000, 3, 4, random_state=0, **kind)
    other = data.draw(20_000, random_state=1)
    assert other.truth is data.truth
    assert other.X.shape == (20_000, 4) and not np.array_equal(other.X[0], data.X[0])
    assert_allclose(other.X.mean(axis=0), data.X.mean(axis=0), atol=0.06)
    assert_allclose(other.X.std(axis=0), data.X.std(axis=0), rtol=0.03)
    errors = other.y - other.truth.expert_mean(other.X)[np.arange(20_000), other.z]
    assert_allclose(np.mean(errors**2 / other.truth.experts.var[other.z]), 1, atol=0.05)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"n_samples": 0}, "too_small"),
        ({"n_experts": 0}, "too_small"),
        ({"n_features": -1}, "too_small"),
        ({"softness": 1.5}, "softness"),
        ({"n_classes": 1}, "too_small"),
        ({"family": "cauchy"}, "not_one_of"),
        ({"family": "poisson", "overlap": True}, "overlap_family"),
        ({"n_experts": 12, "n_features": 1}, "no_truth_found"),
    ],
)
def test_impossible_wishes_are_refused(kwargs, sentence):
    refused(sentence).by(simulate, **{"n_samples": 10, **kwargs})
