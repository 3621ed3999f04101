import array_api_strict as strict
import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from oracles import log_density, random_model, with_ones
from scipy import special, stats

from otmoe.model.ensemble import pool

WEIGHT = np.array([0.5, 0.2, 0.3])


@pytest.fixture(params=[(2, 2, 2), (3, 1, 2), (1, 1, 1)], ids=str)
def sizes(request):
    return request.param


def sites(rng, sizes, family="gaussian", d=2):
    return [random_model(rng, K, d, family=family) for K in sizes]


def votes(X, constant):
    """Return whether each site has a say at each row, (n, M), feature by feature."""
    heard = np.ones((len(X), len(constant)), dtype=bool)
    for m, features in enumerate(constant):
        for j, value in features.items():
            heard[:, m] &= X[:, j] == value
    heard[~heard.any(axis=1)] = True
    return heard


def gate_by_sites(models, weight, X, constant=()):
    """Return lambda_m(x) pi_ml(x), site by site."""
    heard = votes(X, constant) if constant else np.ones((len(X), len(models)))
    share = weight * heard
    share = share / share.sum(axis=1, keepdims=True)
    parts = [
        share[:, [m]] * special.softmax(with_ones(X) @ model.gate.coef.T, axis=1)
        for m, model in enumerate(models)
    ]
    return np.hstack(parts)


# -- the gate ----------------------------------------------------------------------------------


def test_gate_is_that_of_each_site_times_its_weight(rng, sizes):
    models, X = sites(rng, sizes), rng.normal(size=(50, 2))
    pooled = pool(models, 7 * WEIGHT)  # weights are scaled
    expected = gate_by_sites(models, WEIGHT, X)
    for found in (pooled.gate.prob(with_ones(X)), pooled.gate_prob(X)):
        assert_allclose(found, expected, rtol=1e-12)
        assert_allclose(found.sum(axis=1), 1, rtol=1e-14)
    assert_allclose(pooled.gate.logits(with_ones(X)), np.log(expected), rtol=1e-12, atol=1e-12)
    assert pooled.n_experts == pooled.gate.n_experts == sum(sizes)
    assert_array_equal(pooled.gate.site, np.repeat(range(3), sizes))


def test_gate_of_far_rows_is_finite(rng):
    models, X = sites(rng, (3, 2, 1)), 1e4 * rng.normal(size=(20, 2))
    prob = pool(models, WEIGHT).gate_prob(X)
    assert_allclose(prob, gate_by_sites(models, WEIGHT, X), atol=1e-12)
    assert_allclose(prob.sum(axis=1), 1, rtol=1e-14)


def test_number_of_parameters_is_that_of_all_sites(rng, sizes, family):
    models = sites(rng, sizes, family)
    assert pool(models, WEIGHT).n_parameters == sum(model.n_parameters for model in models)


# -- the predictor -----------------------------------------------------------------------------


def test_density_is_the_weighted_sum_of_the_sites(rng, family, sizes):
    models, X = sites(rng, sizes, family), rng.normal(size=(40, 2))
    y = models[0].sample(X, rng)[0].astype(float)
    each = [np.log(w) + log_density(m, X, y) for w, m in zip(WEIGHT, models, strict=True)]
    found = pool(models, WEIGHT).log_density(X, y)
    assert_allclose(found, special.logsumexp(each, axis=0), rtol=1e-10)


def test_mean_is_the_weighted_mean_of_the_sites(rng, family, sizes):
    models, X = sites(rng, sizes, family), rng.normal(size=(40, 2))
    expected = sum(w * m.predict(X) for w, m in zip(WEIGHT, models, strict=True))
    assert_allclose(pool(models, WEIGHT).predict(X), expected, rtol=1e-12)


def test_responsibilities_follow_bayes_rule(rng, sizes):
    models, X = sites(rng, sizes), rng.normal(size=(40, 2))
    pooled, y = pool(models, WEIGHT), rng.normal(size=40)
    joint = np.log(gate_by_sites(models, WEIGHT, X)) + pooled.experts.log_prob(with_ones(X), y)
    expected = special.softmax(joint, axis=1)
    assert_allclose(pooled.responsibilities(X, y), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_quantiles_invert_the_distribution_function(rng, name):
    models, X = sites(rng, (3, 1, 2), name), rng.normal(size=(30, 2))
    pooled = pool(models, WEIGHT)
    law = FAMILIES[name].law(pooled.experts, with_ones(X))

    def cdf(y):
        return np.sum(gate_by_sites(models, WEIGHT, X) * law.cdf(y[:, None]), axis=1)

    for level in (0.05, 0.5, 0.9):
        found = pooled.quantile(X, level)
        if name == "gaussian":
            assert_allclose(cdf(found), level, rtol=1e-8)
        else:
            assert np.all(cdf(found) >= level) and np.all(cdf(found - 1) < level)


def test_samples_follow_the_pooled_model(rng):
    models, X = sites(rng, (3, 1, 2)), np.tile([0.4, -1.0], (20_000, 1))
    pooled = pool(models, WEIGHT)
    y, z = pooled.sample(X, rng)
    share = np.bincount(z, minlength=6) / len(z)
    expected = gate_by_sites(models, WEIGHT, X[:1])[0]
    assert np.all(np.abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / len(z)))
    law = FAMILIES["gaussian"].law(pooled.experts, with_ones(X[:1]))
    uniform = np.sum(expected * law.cdf(y[:, None]), axis=1)
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3


# -- features that are constant at a site ------------------------------------------------------

BINARY = np.array([[x, a, b] for x in (-0.5, 0.7) for a in (0.0, 1.0) for b in (0.0, 3.0)])


@pytest.mark.parametrize(
    "constant",
    [
        ({}, {1: 0.0}, {}),
        ({}, {1: 1.0, 2: 3.0}, {2: 0.0}),
        ({1: 0.0}, {1: 0.0}, {1: 0.0, 2: 3.0}),  # nobody has a say where feature 1 is 1
    ],
)
def test_a_site_has_no_say_where_its_constant_feature_differs(rng, sizes, constant):
    models = sites(rng, sizes, d=3)
    pooled = pool(models, WEIGHT, constant)
    expected = gate_by_sites(models, WEIGHT, BINARY, constant)
    prob = pooled.gate_prob(BINARY)
    assert_allclose(prob, expected, rtol=1e-12)
    assert_allclose(prob.sum(axis=1), 1, rtol=1e-14)
    with np.errstate(divide="ignore"):
        expected = np.log(expected)
    assert_allclose(pooled.gate.logits(with_ones(BINARY)), expected, rtol=1e-12, atol=1e-12)


def test_a_site_without_a_say_does_not_change_the_density(rng, family):
    models, y = sites(rng, (2, 2, 1), family, d=3), np.ones(len(BINARY))
    pooled = pool(models, WEIGHT, ({}, {1: 0.0}, {}))
    others = pool([models[0], models[2]], WEIGHT[[0, 2]])
    everyone = pool(models, WEIGHT)
    apart = BINARY[:, 1] == 1
    for ask in (lambda model: model.predict(BINARY), lambda model: model.log_density(BINARY, y)):
        assert_allclose(ask(pooled)[apart], ask(others)[apart], rtol=1e-12)
        assert_allclose(ask(pooled)[~apart], ask(everyone)[~apart], rtol=1e-12)


def test_voters_are_none_where_all_have_a_say(rng):
    models = sites(rng, (2, 2, 2), d=3)
    for constant in (None, ({}, {}, {})):
        gate = pool(models, WEIGHT, constant).gate
        assert gate.contributes(with_ones(BINARY)) is None
        assert_array_equal(gate.site_prob(with_ones(BINARY)), [WEIGHT])


@pytest.mark.parametrize("value", [0.0, 1 / 3, 1e6 / 3, 1e-9])
def test_a_site_has_a_say_at_its_own_value_whatever_the_unit(rng, value):
    models, unit = sites(rng, (1, 1, 1), d=1), value or 1.0
    X = np.array([[value], [value + unit], [value + 0.001 * unit]])
    for sent in (value * (1 + 1e-14), float(np.float32(value))):  # a mean; a site of single floats
        gate = pool(models, WEIGHT, ({}, {0: sent}, {})).gate
        assert_array_equal(gate.contributes(with_ones(X))[:, 1], [True, False, False])


# -- other arrays ------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [None, ({}, {1: 0.0}, {2: 3.0})])
def test_other_array_libraries_give_the_same(rng, family, sizes, constant):
    pooled, y = pool(sites(rng, sizes, family, d=3), WEIGHT, constant), np.ones(len(BINARY))
    X, design = strict.asarray(BINARY), with_ones(BINARY)
    for found, expected in [
        (pooled.gate_prob(X), pooled.gate_prob(BINARY)),
        (pooled.gate.logits(strict.asarray(design)), pooled.gate.logits(design)),
        (pooled.predict(X), pooled.predict(BINARY)),
        (pooled.log_density(X, strict.asarray(y)), pooled.log_density(BINARY, y)),
    ]:
        assert type(found) is type(X)
        assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)
