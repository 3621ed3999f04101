from dataclasses import replace

import array_api_strict as strict
import numpy as np
import pytest
from families import CHOSEN, FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian, least_squares, with_ones
from refusals import refused
from scipy import optimize

from otmoe.model.experts import FAMILIES as REGISTERED
from otmoe.model.experts import GaussianExperts, PoissonExperts, Response

N, P, K = 40, 3, 2


@pytest.fixture(params=[*FAMILIES, *CHOSEN])
def family(request):
    return (FAMILIES | CHOSEN)[request.param]


@pytest.fixture
def X(rng):
    return with_ones(rng.normal(size=(N, P - 1)))


@pytest.fixture
def experts(family, rng):
    return family.make(rng, K, P)


@pytest.fixture
def y(experts, X, rng):
    return experts.sample(experts.predictor(X), rng)[:, 0].astype(float)


@pytest.fixture
def weight(rng):
    return rng.uniform(0.1, 3.0, (N, K))


def predictions(experts, X):
    """Return what each expert predicts, as a response of its own."""
    alone = (experts.take([k]) for k in range(experts.n_experts))
    return [expert.response(expert.predictor(X)) for expert in alone]


def test_every_registered_family_obeys_the_laws_here():
    assert set(FAMILIES) == set(REGISTERED)
    assert all(name in REGISTERED for name in CHOSEN)


# -- densities ---------------------------------------------------------------------------------


def test_log_prob_is_the_textbook_density(family, experts, X, y):
    expected = family.log_prob(experts, X, y[:, None])
    assert_allclose(experts.log_prob(X, y), expected, rtol=1e-11, atol=1e-13)


def test_density_integrates_to_one(family, experts, X):
    y, prob = family.quadrature(experts, X)
    textbook = family.log_prob(experts, X, y)
    for k in range(K):
        ours = np.array([experts.log_prob(X, at)[:, k] for at in y[:, :, k]])
        total = np.sum(prob[..., k] * np.exp(ours - textbook[..., k]), axis=0)
        assert_allclose(total, 1, rtol=1e-12)


def test_response_holds_the_moments_of_y(family, experts, X):
    y, prob = family.quadrature(experts, X)
    for k, found in enumerate(predictions(experts, X)):
        # (G, n, 1) or (G, n, 1, C)
        seen = np.array([experts.observe(at).mean for at in y[:, :, k]])
        p = prob[..., k].reshape(*prob.shape[:2], *[1] * (seen.ndim - 2))
        mean = np.sum(p * seen, axis=0)
        assert_allclose(found.mean, mean, rtol=1e-10, atol=1e-12)
        if seen.ndim == 3:  # the class probabilities are all there is to know
            var = np.sum(p * (seen - mean) ** 2, axis=0)
            assert_allclose(np.broadcast_to(found.var, var.shape), var, rtol=1e-10)


def test_samples_follow_the_law(family, experts, X, rng):
    n = 40_000
    assert experts.sample(experts.predictor(X[:1]), rng).shape == (1, experts.n_experts)
    draws = experts.sample(experts.predictor(np.repeat(X[:1], n, axis=0)), rng)
    y, prob = family.quadrature(experts, X[:1])
    for power in (1, 2):
        mean, second = (np.sum(prob * y**q, axis=0)[0] for q in (power, 2 * power))
        error = np.sqrt((second - mean**2) / n)
        assert np.all(np.abs((draws.astype(float) ** power).mean(axis=0) - mean) < 5 * error)


def test_huge_counts_can_be_drawn(rng):
    mean = 10.0 ** np.array([[2.0, 9.0, 14.0, 16.0, 25.0, 130.0]])
    found = PoissonExperts(np.zeros((6, 1))).sample(np.log(mean), rng)
    assert found.shape == mean.shape
    assert np.all(np.abs(found - mean) <= 5 * np.sqrt(mean) + 1e-12 * mean)


def test_cdf_and_quantile_are_the_textbook_ones(family, experts, X, y):
    law, eta = family.law(experts, X), experts.predictor(X)
    if hasattr(law, "cdf"):
        assert_allclose(experts.cdf(eta, y[:, None]), law.cdf(y[:, None]), rtol=1e-10)
        assert_allclose(experts.quantile(eta, 0.3), law.ppf(0.3), rtol=1e-10, atol=1e-12)
    else:
        refused("no_order", TypeError, family="multinomial").by(experts.cdf, eta, y[:, None])
        refused("no_order", TypeError, family="multinomial").by(experts.quantile, eta, 0.3)


@pytest.mark.parametrize("level", [0.025, 0.5, 0.975])
def test_quantiles_of_huge_counts_are_finite(level):
    mean = 10.0 ** np.arange(0, 19, 3)
    found = PoissonExperts(np.zeros((1, 1))).quantile(np.log(mean)[:, None], level)[:, 0]
    assert np.all(np.abs(found - mean) <= 3 * np.sqrt(mean))


def test_expected_log_prob_is_an_expectation(family, experts, X, rng):
    eta, source = experts.predictor(X), family.make(rng, 3, P)
    y, prob = family.quadrature(source, X)
    for k, response in enumerate(predictions(source, X)):
        each = [experts.expected_log_prob(eta, experts.observe(at)) for at in y[:, :, k]]
        expected = np.sum(prob[:, :, [k]] * each, axis=0)
        assert_allclose(experts.expected_log_prob(eta, response), expected, rtol=1e-9, atol=1e-11)


def test_derivatives_match_finite_differences(family, experts, X, rng):
    other = family.make(rng, K, P)
    response = other.response(other.predictor(X))
    eta, Q = experts.predictor(X), experts.n_linear

    def slope(function, d, step=1e-5):
        """Differentiate a function of (experts, eta) in predictor d."""
        ends = []
        for move in (step, -step):
            vector, there = experts.to_vector(), eta.copy()
            if d < Q:
                (there if eta.ndim == 2 else there[..., d])[...] += move
            else:  # log dispersions come last in the vector
                vector[experts.coef.size + (d - Q) * K :][:K] += move
            ends.append(function(experts.with_vector(vector), there))
        return (ends[0] - ends[1]) / (2 * step)

    found = experts.derivatives(eta, response)
    size = Q + experts.n_constant
    assert sorted(found.curvature) == [(d, e) for d in range(size) for e in range(d, size)]
    for d, score in enumerate(found.score):
        expected = slope(lambda at, eta: at.expected_log_prob(eta, response), d)
        assert_allclose(score, expected, rtol=1e-7, atol=1e-8)
    for (d, e), curvature in found.curvature.items():
        expected = -slope(lambda at, eta, d=d: at.derivatives(eta, response).score[d], e)
        assert_allclose(np.broadcast_to(curvature, (N, K)), expected, rtol=1e-7, atol=1e-8)


def test_the_slope_of_the_mean_reads_nothing_that_was_not_written(family, experts, X, monkeypatch):
    empty, eta = np.empty, np.asarray(experts.predictor(X))

    def poisoned(*args, **options):
        room = empty(*args, **options)
        if np.issubdtype(room.dtype, np.floating):
            room.view(np.uint64)[...] = 0x7FF4 << 48  # a number that warns where it is read
        return room

    monkeypatch.setattr(np, "empty", poisoned)
    assert np.all(np.isfinite(experts.mean_slope(eta)))


# -- costs: Kullback-Leibler divergence and Hellinger distance --------------------------------


def test_kl_is_zero_to_itself_and_positive_to_others(experts, X):
    cost = experts.kl_cost(X, experts)
    assert_allclose(np.diagonal(cost, axis1=1, axis2=2), 0, atol=1e-14)
    assert np.all(cost[:, ~np.eye(K, dtype=bool)] > 0)


def test_costs_agree_with_quadrature(family, experts, X, rng):
    other = family.make(rng, 3, P)
    y, prob = family.quadrature(experts, X)
    own = family.log_prob(experts, X, y)
    kl, hellinger = experts.kl_cost(X, other), experts.hellinger_cost(X, other)
    for k in range(K):
        gap = family.log_prob(other, X, y[..., [k]]) - own[..., [k]]  # (G, n, 3)
        assert_allclose(kl[:, k], np.sum(prob[..., [k]] * -gap, axis=0), rtol=1e-8, atol=1e-11)
        affinity = np.sum(prob[..., [k]] * np.exp(gap / 2), axis=0)
        assert_allclose(hellinger[:, k], 1 - affinity, rtol=1e-8, atol=1e-11)


def test_hellinger_is_zero_to_itself_symmetric_and_at_most_one(family, experts, X, rng):
    other = family.make(rng, 3, P)
    cost = experts.hellinger_cost(X, other)
    assert np.all((cost > 0) & (cost < 1))
    assert_allclose(cost, other.hellinger_cost(X, experts).swapaxes(1, 2), rtol=1e-12)
    itself = np.diagonal(experts.hellinger_cost(X, experts), axis1=1, axis2=2)
    assert_allclose(itself, 0, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-9, 1e3])
def test_hellinger_keeps_its_bounds_close_and_far(family, experts, X, rng, scale):
    other = family.make(rng, K, P)
    coef = experts.coef + scale * (other.coef - experts.coef)
    cost = experts.hellinger_cost(X, replace(experts, coef=coef))
    assert np.all((cost >= 0) & (cost <= 1))
    itself = np.diagonal(cost, axis1=1, axis2=2)
    assert itself.max() < 1e-14 if scale < 1 else itself.max() > 0.5


# -- the weighted fit --------------------------------------------------------------------------


def test_the_score_is_zero_at_the_weighted_fit(family, experts, X, y, weight):
    fitted = experts.fit(X, experts.observe(y), weight, tol=1e-18)

    def likelihood(vector):
        return np.sum(weight * family.log_prob(fitted.with_vector(vector), X, y[:, None]))

    assert_allclose(jacobian(likelihood, fitted.to_vector()), 0, atol=1e-6)


@pytest.mark.parametrize("level", [0.0, 1e6])
def test_gaussian_fit_is_weighted_least_squares(rng, X, weight, level):
    y = level + X @ rng.normal(size=P) + rng.normal(size=N)
    fitted = GaussianExperts.blank(K, P).fit(X, Response(y[:, None]), weight)
    for k in range(K):
        coef, var = least_squares(X, y, weight[:, k])
        assert_allclose(fitted.coef[k], coef, rtol=1e-9)
        assert_allclose(fitted.var[k], var, rtol=1e-8)


def test_weight_two_is_the_row_twice(experts, X, y, rng):
    count = rng.integers(0, 4, N)
    weighted = experts.fit(X, experts.observe(y), np.outer(count, np.ones(K)))
    X, y = np.repeat(X, count, axis=0), np.repeat(y, count)
    repeated = experts.fit(X, experts.observe(y), np.ones((len(y), K)))
    assert_allclose(weighted.to_vector(), repeated.to_vector(), rtol=1e-8)


def test_projection_minimises_the_weighted_kl(family, experts, X, rng):
    X = X[:12]
    mass = rng.uniform(0.1, 2.0, (12, K))  # from source l at row s
    start = family.make(rng, 1, P)
    sources = predictions(experts, X)
    # For one target expert, each source at each row is a row of its own.
    var = [np.broadcast_to(source.var, (12, 1)) for source in sources]
    response = Response(np.concatenate([s.mean for s in sources]), np.concatenate(var))
    fitted = start.fit(np.tile(X, (K, 1)), response, mass.T.reshape(-1, 1))
    y, prob = family.quadrature(experts, X)

    def divergence(vector):
        """Return sum_sl mass KL(source l || target), up to a constant."""
        return -np.sum(mass * prob * family.log_prob(start.with_vector(vector), X, y))

    best = optimize.minimize(divergence, start.to_vector(), options={"gtol": 1e-6})
    assert divergence(fitted.to_vector()) <= best.fun + 1e-10
    assert_allclose(fitted.to_vector(), best.x, atol=1e-4)


def test_projection_may_pool_the_sources_of_a_row(X, rng):
    # maths 2: total mass, mean, and the spread within and between sources say it all.
    sources = GaussianExperts(rng.normal(size=(4, P)), rng.uniform(0.5, 2, 4))
    mass, mean = rng.uniform(0.1, 2, (N, 4)), sources.predictor(X)
    D = mass.sum(axis=1)
    m = np.sum(mass * mean, axis=1) / D
    v = np.sum(mass * (sources.var + (mean - m[:, None]) ** 2), axis=1) / D
    blank = GaussianExperts.blank(1, P)
    pooled = blank.fit(X, Response(m[:, None], v[:, None]), D[:, None])
    each = Response(mean.reshape(-1, 1), np.tile(sources.var, N)[:, None])
    apart = blank.fit(np.repeat(X, 4, axis=0), each, mass.reshape(-1, 1))
    assert_allclose(pooled.to_vector(), apart.to_vector(), rtol=1e-10)


def test_an_expert_without_weight_stays(experts, X, y, weight):
    weight[:, 0] = 0
    fitted = experts.fit(X, experts.observe(y), weight)
    assert_array_equal(fitted.take([0]).to_vector(), experts.take([0]).to_vector())
    assert np.abs(fitted.coef[1] - experts.coef[1]).max() > 0.01


def test_equal_columns_get_equal_coefficients(experts, X, y, weight):
    blank = experts.with_vector(np.zeros(experts.n_parameters))
    coef = blank.fit(X[:, [0, 1, 1]], experts.observe(y), weight).coef
    assert_allclose(coef[..., 1], coef[..., 2], rtol=1e-6, atol=1e-8)


def test_statistics_add_up_over_rows(experts, X, y, weight):
    def statistics(rows):
        return experts.statistics(X[rows], experts.observe(y[rows]), weight[rows])

    whole, parts = statistics(slice(None)), statistics(slice(11)) + statistics(slice(11, None))
    for name, value in vars(whole).items():
        assert_allclose(getattr(parts, name), value, rtol=1e-12, atol=1e-12)


def test_an_offset_is_added_to_the_predictor(family, experts, X, rng):
    offset = rng.normal(size=N)
    if family is FAMILIES["multinomial"]:
        refused("no_offset", TypeError).by(experts.predictor, X, offset)
    else:
        assert_array_equal(experts.predictor(X, offset), experts.predictor(X) + offset[:, None])


# -- parameters --------------------------------------------------------------------------------


def test_take_and_concat_are_indexing(family, experts, X, y, rng):
    other = family.make(rng, 3, P)
    together = type(experts).concat([experts, other])
    columns = np.hstack([experts.log_prob(X, y), other.log_prob(X, y)])
    assert_array_equal(together.log_prob(X, y), columns)
    assert_array_equal(together.take([4, 0]).log_prob(X, y), columns[:, [4, 0]])


def test_vector_and_back(experts):
    vector = np.linspace(-1, 1, experts.n_parameters)
    assert_allclose(experts.with_vector(vector).to_vector(), vector, rtol=1e-14, atol=1e-15)
    assert_allclose(experts.with_vector(experts.to_vector()).coef, experts.coef, rtol=1e-14)


def test_what_is_drawn_is_a_response(experts, y):
    experts.check_response(y)
    if not experts.discrete:
        return
    for wrong, place in ((-1.0, 3), (0.5, 0)):
        spoilt = np.where(np.arange(N) == place, wrong, y)
        with refused("not_counts", value=wrong, row=place, family=experts.family, lowest=0.0):
            experts.check_response(spoilt)


def test_a_family_says_between_what_bounds_y_lies(y):
    class Shares(GaussianExperts):
        family, lowest, highest = "shares", 0.0, 1.0

    Shares.check_response(np.array([0.0, 0.3, 1.0]))
    with refused("not_counts", value=1.5, row=1, highest=1.0):
        Shares.check_response(np.array([0.3, 1.5]))


def test_bounds_of_means_stay_where_means_can_be(experts, X):
    mean = np.asarray(experts.response(experts.predictor(X)).mean)
    low, high = experts.mean_bounds(mean, np.full(mean.shape, 5.0))
    top = 1.0 if experts.classifies else np.inf
    assert np.all((low <= mean) & (mean <= high))
    assert np.all((low >= experts.lowest) & (high <= top))
    low, high = experts.mean_bounds(mean, half := 1e-5 * mean * (top - mean if top == 1 else 1))
    assert_allclose(high - low, 2 * half, rtol=1e-3, atol=1e-9)  # where the scale does not matter


def test_rescaled_experts_agree_on_transformed_rows(experts, X, y, rng):
    T = np.eye(P) + 0.3 * rng.normal(size=(P, P))
    T[0] = np.eye(P)[0]
    center, scale = (2.0, 3.0) if experts.has_scale else (0.0, 1.0)
    there = experts.rescaled(T, center, scale).log_prob(X, center + scale * y)
    assert_allclose(there, experts.log_prob(X @ T.T, y) - np.log(scale), rtol=1e-10)


def test_other_array_libraries_give_the_same(experts, X, y, weight):
    def everything(convert):
        A, B = convert(X), convert(y)
        sums = experts.statistics(A, experts.observe(B), convert(weight))
        costs = [experts.kl_cost(A, experts), experts.hellinger_cost(A, experts)]
        return [np.asarray(a) for a in (experts.log_prob(A, B), *costs, *vars(sums).values())]

    for plain, other in zip(everything(np.asarray), everything(strict.asarray), strict=True):
        assert_allclose(other, plain, rtol=1e-12, atol=1e-12)


def test_gaussian_variance_stops_at_the_floor(X):
    y = X @ np.arange(1.0, P + 1)
    experts = GaussianExperts.blank(1, P)
    statistics = experts.statistics(X, Response(y[:, None]), np.ones((N, 1)))
    assert experts.step(statistics, floor=0.01).var == [0.01]
