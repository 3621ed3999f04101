import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian, never_falls, random_model, random_rows, with_ones
from refusals import refused
from scipy import special

from otmoe.likelihood.fit import em
from otmoe.likelihood.information import observed_information, score_outer
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.sharing import group_density, rows_for, sharing
from otmoe.likelihood.stage import subsample
from otmoe.likelihood.statistics import e_step
from otmoe.text.errors import InvalidInput, InvalidType


def grouped_rows(rng, model, n=60, n_groups=17):
    """Return rows, their groups in no order, and the gate's features the same within each."""
    X, _ = random_rows(rng, model, n)
    labels = rng.integers(0, n_groups, n)
    gate = range(model.n_features) if model.gate.columns is None else model.gate.columns
    for j in (j - 1 for j in gate if model.gate.columns is not None and j > 0):
        X[:, j] = rng.normal(size=n_groups)[labels]
    y, _ = model.sample(X, rng)
    return X, y, labels


def brute_force(model, X, y, labels, weight=None):
    """Return the log-likelihood: a loop over groups, a product over rows, a sum over experts."""
    log_phi, log_pi = model.experts.log_prob(with_ones(X), y), model.gate.log_prob(with_ones(X))
    total = 0.0
    for label in np.unique(labels):
        here = np.flatnonzero(labels == label)
        value = special.logsumexp(log_pi[here[0]] + log_phi[here].sum(axis=0))
        total += value * (1.0 if weight is None else weight[here[0]])
    return total


def gated(columns):
    return pytest.mark.parametrize("columns", columns)


@gated([(0, 2), (0,)])
@pytest.mark.parametrize("n_experts", [1, 2, 3])
def test_score_and_information_match_finite_differences(rng, family, n_experts, columns):
    model = random_model(rng, n_experts, 2, columns, family)
    X, y, labels = grouped_rows(rng, model)
    weight = rng.uniform(0, 3, 17)[labels]
    theta = model.to_vector() + 0.1

    def at(vector):
        rows = sharing(Rows(X, y, weight), labels, columns)
        return observed_information(model.with_vector(vector), rows)

    def by_hand(vector):
        return brute_force(model.with_vector(vector), X, y, labels, weight)

    found, there = at(theta), model.with_vector(theta)
    base = np.sum(weight * there.experts.log_base(y))
    assert_allclose(found.log_likelihood + base, by_hand(theta), rtol=1e-10)
    assert_allclose(found.score, jacobian(by_hand, theta), rtol=1e-6, atol=1e-6)
    assert_allclose(found.matrix, -jacobian(lambda v: at(v).score, theta), rtol=1e-6, atol=1e-6)


def test_the_statistics_of_em_have_the_same_score(rng, family):
    # The gradient of EM's bound at the model itself is the score (Fisher's identity).
    model = random_model(rng, 3, 2, (0, 2), family)
    X, y, labels = grouped_rows(rng, model)
    rows = sharing(Rows(X, y), labels, (0, 2))
    there, found = observed_information(model, rows), e_step(model, rows)
    assert_allclose(found.log_likelihood, there.log_likelihood, rtol=1e-12)
    n = model.gate.n_parameters
    assert_allclose(found.gate.score, there.score[:n], rtol=1e-9, atol=1e-9)
    size = n + found.experts.score.size
    assert_allclose(found.experts.score.ravel(), there.score[n:size], rtol=1e-9, atol=1e-9)
    assert_allclose(found.experts.weight, there.mass, rtol=1e-12)


def test_sums_add_up_over_blocks_and_groups_stay_whole(rng, family):
    model = random_model(rng, 2, 2, (0, 1), family)
    X, y, labels = grouped_rows(rng, model, n=1500, n_groups=200)
    rows = sharing(Rows(X, y), labels, (0, 1))
    small = sharing(Rows(X, y, block_bytes=1), labels, (0, 1))
    ends = [some.stop for some in small.slices()]
    assert len(ends) > 3 and ends[-1] == 1500
    assert all(small.groups[end - 1] != small.groups[end] for end in ends[:-1])
    whole, parts = (observed_information(model, some) for some in (rows, small))
    for name, value in vars(whole).items():
        assert_allclose(getattr(parts, name), value, rtol=1e-8, atol=1e-8)
    cut = np.searchsorted(rows.groups, 90)
    joined = Rows.joined([rows.take(np.arange(cut)), rows.take(np.arange(cut, 1500))])
    assert_allclose(observed_information(model, joined).matrix, whole.matrix, rtol=1e-8, atol=1e-8)


def test_scores_of_groups_make_the_sandwich(rng, family):
    model = random_model(rng, 2, 2, (0,), family)
    X, y, labels = grouped_rows(rng, model)
    expected = 0.0
    for label in np.unique(labels):
        here = labels == label
        each = observed_information(model, sharing(Rows(X[here], y[here]), labels[here], (0,)))
        expected = expected + np.outer(each.score, each.score)
    found = score_outer(model, sharing(Rows(X, y), labels, (0,)))
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_group_densities_are_of_the_whole_group(rng, family):
    model = random_model(rng, 2, 2, (0,), family)
    X, y, labels = grouped_rows(rng, model)
    found = group_density(model, sharing(Rows(X, y), labels, (0,)))
    assert len(found) == len(np.unique(labels))
    assert_allclose(found.sum(), brute_force(model, X, y, labels), rtol=1e-10)


# -- fits ----------------------------------------------------------------------------------------


def made(seed=0, n_groups=80, size=5, family="gaussian"):
    """Return rows of groups that share one of two lines."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(n_groups), size)
    kind = rng.random(n_groups) < 0.4
    x = rng.normal(size=(len(g), 1))
    eta = np.where(kind[g], 1.0 + 0.8 * x[:, 0], 0.3 - 0.5 * x[:, 0])
    y = eta + rng.normal(size=len(g)) if family == "gaussian" else rng.poisson(np.exp(eta))
    return x, y.astype(float), g


HOW = {"gate_columns": (0,), "random_state": 0}


def test_one_row_for_each_group_is_the_fit_without_groups(family):
    rng = np.random.default_rng(5)
    model = random_model(rng, 2, 2, (0, 1), family)
    X, y = random_rows(rng, model, 300)
    one = em(X, y, 2, family=family, gate_columns=(0, 1), random_state=0)
    each = em(X, y, 2, family=family, gate_columns=(0, 1), random_state=0, groups=np.arange(300))
    assert_allclose(each.log_likelihood, one.log_likelihood, rtol=1e-10)
    assert_allclose(each.model.to_vector(), one.model.to_vector(), rtol=1e-6, atol=1e-6)
    assert (one.model.expert_per, each.model.expert_per) == ("row", "group")


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_fit_is_at_the_maximum_whatever_the_order_of_the_rows(family):
    x, y, g = made(family=family)
    fit = em(x, y, 2, family=family, groups=g, alpha=0.0, expert_alpha=0.0, **HOW)
    assert fit.converged and never_falls(fit.trace)
    assert_allclose(fit.log_likelihood, brute_force(fit.model, x, y, g), rtol=1e-10)
    slope = jacobian(
        lambda v: brute_force(fit.model.with_vector(v), x, y, g), fit.model.to_vector()
    )
    assert_allclose(slope, 0, atol=2e-3)
    order = np.random.default_rng(1).permutation(len(y))
    other = em(
        x[order],
        y[order],
        2,
        family=family,
        groups=[f"g{i}" for i in g[order]],
        alpha=0.0,
        expert_alpha=0.0,
        **HOW,
    )
    assert_allclose(other.log_likelihood, fit.log_likelihood, rtol=1e-9)
    assert_allclose(other.model.to_vector(), fit.model.to_vector(), rtol=1e-5, atol=1e-5)


def test_groups_find_lines_that_single_rows_cannot(rng):
    x, y, g = made(seed=3, n_groups=150)
    fit = em(x, y, 2, groups=g, **HOW)
    coef = fit.model.experts.coef
    assert_allclose(coef[np.argsort(coef[:, 1])], [[0.3, -0.5], [1.0, 0.8]], atol=0.2)


def test_weight_two_is_the_group_twice():
    x, y, g = made(n_groups=40)
    weight = np.where(g % 2 == 0, 2.0, 1.0)
    twice = np.concatenate([np.arange(len(y)), np.flatnonzero(g % 2 == 0)])
    again = np.concatenate([g, g[g % 2 == 0] + 1000])
    one = em(x, y, 2, groups=g, sample_weight=weight, **HOW)
    two = em(x[twice], y[twice], 2, groups=again, **HOW)
    assert_allclose(one.log_likelihood, two.log_likelihood, rtol=1e-9)
    assert_allclose(one.model.to_vector(), two.model.to_vector(), rtol=1e-5, atol=1e-5)


def test_samples_take_whole_groups(rng):
    x, y, g = made()
    rows = sharing(Rows(x, y), rng.permutation(g), (0,))
    for size in (1, 57, 300, 399, 400, 1000):
        some = subsample(rows, size, rng)
        assert len(some) <= max(size, 5)
        taken = np.unique(some.groups)
        assert len(some) == np.isin(rows.groups, taken).sum()


# -- what is refused -----------------------------------------------------------------------------


def test_features_of_the_gate_and_weights_are_constant_within_a_group(rng):
    x, y, g = made()
    labels = np.array([f"person {i}" for i in g])
    with refused("gate_varies", InvalidInput, name="age", group="'person 0'"):
        em(x, y, 2, groups=labels, feature_names=("age",))
    with refused("weight_varies", InvalidInput, group="3"):
        em(x, y, 2, groups=g, sample_weight=np.where(np.arange(len(y)) == 16, 2.0, 1.0), **HOW)
    with refused("group_missing", InvalidInput):
        em(x, y, 2, groups=[None, *g[1:]], **HOW)


def test_a_model_whose_rows_share_experts_asks_for_groups():
    x, y, g = made(n_groups=20)
    model = em(x, y, 1, groups=g, **HOW).model
    with refused("sharing_needs_groups", InvalidInput):
        rows_for(model, Rows(x, y))
    with refused("sharing_needs_groups", InvalidInput):
        em(x, y, init=model)
    assert_array_equal(rows_for(model, Rows(x, y), g).groups, g)


def test_other_arrays_than_those_of_numpy_are_refused():
    xp = pytest.importorskip("array_api_strict")
    x, y, g = made(n_groups=20)
    with refused("sharing_on_device", InvalidType):
        em(xp.asarray(x), xp.asarray(y), 2, groups=g, **HOW)


@pytest.mark.parametrize("n_groups", [1, 2, 3, 5])
@pytest.mark.parametrize("n_experts", [1, 2, 3])
def test_a_handful_of_groups_raises_nothing(family, n_groups, n_experts):
    rng = np.random.default_rng(n_groups)
    model = random_model(rng, 2, 1, (0,), family)
    X, y = random_rows(rng, model, 4 * n_groups)
    g = np.arange(4 * n_groups) % n_groups
    n_classes = 3 if family == "multinomial" else 2
    fit = em(X, y, n_experts, family=family, n_classes=n_classes, groups=g, alpha=0.0, **HOW)
    assert np.isfinite(fit.log_likelihood) and np.all(np.isfinite(fit.model.to_vector()))
    assert never_falls(fit.trace)
