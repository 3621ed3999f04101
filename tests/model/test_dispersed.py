"""Families with a dispersion against other libraries and general-purpose optimisers."""

import pickle

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from oracles import jacobian, minimum, with_ones
from refusals import refused
from scipy import integrate, special, stats

from otmoe import MoERegressor
from otmoe.estimators.base import FitWarning
from otmoe.model.experts import FAMILIES, GammaExperts, NegativeBinomialExperts
from otmoe.model.experts.dispersed import log_affinity_on_grid
from otmoe.model.experts.negative_binomial import expected_rising, rising
from otmoe.model.experts.student import DEGREES

RNG = np.random.default_rng(7)
X = RNG.normal(size=(600, 2))
MEAN = np.exp(0.8 + X @ np.array([0.5, -0.3]))
EXPOSURE = RNG.uniform(0.5, 3.0, len(X))
COUNTS = RNG.negative_binomial(1 / 0.7, 1 / (1 + 0.7 * MEAN * EXPOSURE)).astype(float)
AMOUNTS = RNG.gamma(2.5, MEAN / 2.5)


def one_expert(family):
    return MoERegressor(1, family=family, alpha=0, expert_alpha=0, tol=1e-10, random_state=0)


def test_one_negative_binomial_expert_is_that_of_statsmodels():
    est = one_expert("negative_binomial").fit(X, COUNTS, offset=np.log(EXPOSURE))
    theirs = sm.NegativeBinomial(COUNTS, with_ones(X), loglike_method="nb2", exposure=EXPOSURE)
    theirs = theirs.fit(disp=0, method="newton", maxiter=100, tol=1e-12)
    assert_allclose(est.model_.experts.coef[0], theirs.params[:-1], rtol=1e-4)
    assert_allclose(est.model_.experts.phi, theirs.params[-1:], rtol=1e-3)
    log_density = est.log_density(X, COUNTS, offset=np.log(EXPOSURE))
    assert_allclose(log_density.sum(), theirs.llf, rtol=1e-9)
    found = est.inference(X, COUNTS, offset=np.log(EXPOSURE)).standard_errors
    assert_allclose(found.coef[0], theirs.bse[:-1], rtol=1e-3)
    assert_allclose(found.log_var * est.model_.experts.phi, theirs.bse[-1:], rtol=1e-3)


def test_one_gamma_expert_is_the_glm_with_a_shape_of_maximum_likelihood():
    est = one_expert("gamma").fit(X, AMOUNTS)
    glm = sm.GLM(AMOUNTS, with_ones(X), family=sm.families.Gamma(sm.families.links.Log())).fit()
    assert_allclose(est.model_.experts.coef[0], glm.params, rtol=1e-5, atol=1e-7)

    def loss(log_shape):
        shape = np.exp(log_shape[0])
        return -np.sum(stats.gamma(shape, scale=glm.fittedvalues / shape).logpdf(AMOUNTS))

    best = minimum(loss, np.zeros(1), 1e-5, most=1e-2)
    assert_allclose(est.model_.experts.phi, np.exp(-best), rtol=1e-4)
    assert_allclose(est.log_density(X, AMOUNTS).sum(), -loss(best), rtol=1e-9)


@pytest.mark.parametrize(("family", "nu"), [("student_t", 5), ("student_t3", 3)])
def test_one_student_expert_is_the_maximum_of_the_textbook_likelihood(family, nu):
    y = X @ np.array([1.0, -2.0]) + np.random.default_rng(8).standard_t(3, len(X))
    y[:10] += 100  # outliers
    est = one_expert(family).fit(X, y)

    def loss(theta):
        return -np.sum(stats.t(nu, with_ones(X) @ theta[:3], np.exp(theta[3] / 2)).logpdf(y))

    best = minimum(loss, np.array([0.0, 1.0, -2.0, 0.0]), 1e-5, most=1e-2)
    assert_allclose(est.model_.experts.to_vector(), best, atol=1e-4)
    assert_allclose(est.log_density(X, y).sum(), -loss(best), rtol=1e-9)
    hessian = jacobian(lambda at: jacobian(loss, at, 1e-4), best, 1e-4)
    se = np.sqrt(np.diag(np.linalg.inv(hessian)))
    found = est.inference(X, y).standard_errors
    assert_allclose([*found.coef[0], *found.log_var], se, rtol=1e-3)
    assert np.abs(est.model_.experts.coef[0] - [0, 1, -2]).max() < 0.2


@pytest.mark.parametrize("nu", DEGREES)
def test_expected_log_densities_of_any_degrees_of_freedom(nu):
    one, other = (
        FAMILIES[f"student_t{nu}"](np.array([[m]]), np.array([phi]))
        for m, phi in ((0.3, 0.8), (1.5, 2.0))
    )
    sent = other.response(np.array([[1.5]]))
    source, target = stats.t(nu, 1.5, np.sqrt(2.0)), stats.t(nu, 0.3, np.sqrt(0.8))
    wanted = integrate.quad(lambda y: source.pdf(y) * target.logpdf(y), -np.inf, np.inf)[0]
    assert_allclose(one.expected_log_prob(np.array([[0.3]]), sent).item(), wanted, rtol=1e-7)

    def value(at):
        expert = FAMILIES[f"student_t{nu}"](np.array([[at[0]]]), np.exp(at[1:]))
        return expert.expected_log_prob(at[:1][None], sent).item()

    at = np.array([0.3, np.log(0.8)])
    found = one.derivatives(at[:1][None], sent)
    score = jacobian(value, at, 1e-5)
    assert_allclose([part.item() for part in found.score], score, rtol=1e-6)
    bend = -jacobian(lambda x: jacobian(value, x, 1e-4), at, 1e-4)
    mine = [found.curvature[key].item() for key in ((0, 0), (0, 1), (1, 1))]
    assert_allclose(mine, bend[[0, 0, 1], [0, 1, 1]], rtol=1e-4)
    back = pickle.loads(pickle.dumps(one))
    assert type(back) is type(one) and back.degrees == nu


def test_names_of_degrees_of_freedom():
    assert "student_t7" in FAMILIES and "student_t7+poisson" in FAMILIES
    for name in ("student_t1", "student_t4", "student_t33", "student_t07", "student_t5.0"):
        assert name not in FAMILIES
    refusal = refused("not_one_of", name="family", value="student_t4")
    said = refusal.by(one_expert("student_t4").fit, X, AMOUNTS)
    assert "student_t3 to student_t31 (odd degrees of freedom)" in str(said)
    assert_allclose(
        one_expert("student_t5").fit(X, AMOUNTS).model_.to_vector(),
        one_expert("student_t").fit(X, AMOUNTS).model_.to_vector(),
    )


def test_counts_that_vary_less_than_poisson_variables_lead_to_their_fit():
    y = np.round(MEAN)  # hardly any variance
    with pytest.warns(FitWarning) as caught:
        est = one_expert("negative_binomial").fit(X, y)
    assert [n.code for w in caught for n in w.message.notices] == ["no_overdispersion"]
    poisson = one_expert("poisson").fit(X, y)
    assert est.model_.experts.phi[0] < 1e-3
    assert_allclose(est.model_.experts.coef, poisson.model_.experts.coef, atol=1e-3)
    assert_allclose(est.log_density(X, y).sum(), poisson.log_density(X, y).sum(), atol=0.05)


def test_the_gamma_family_refuses_nothing_but_what_is_not_positive():
    with refused("not_positive", row=3):
        GammaExperts.check_response(np.array([1.0, 2.0, 1e-9, 0.0]))
    GammaExperts.check_response(np.array([1.0, 2.0, 1e-9]))


# -- the integrals of the negative binomial ------------------------------------------------------


@pytest.mark.parametrize("r", [1e-3, 0.3, 5.0, 99.0, 101.0, 1e4, 1e8])
def test_rising_factorials_and_their_derivatives(r):
    y = np.array([0.0, 1.0, 3.0, 40.0, 1000.0])
    i = [np.arange(n) for n in y.astype(int)]
    expected = [
        [np.sum(np.log1p(j / r)) for j in i],
        [np.sum(1 / (r + j) - 1 / r) for j in i],
        [np.sum(1 / r**2 - 1 / (r + j) ** 2) for j in i],
    ]
    scale = y * np.array([[1.0], [1 / r], [1 / r**2]])
    found = rising(y, np.array(r), 3)
    assert np.all(np.abs(np.array(found) - expected) <= 2e-13 * (scale + np.abs(expected)))


@pytest.mark.parametrize("mean", [1e-4, 0.5, 12.0, 3000.0])
@pytest.mark.parametrize("phi", [1e-6, 0.2, 4.0])
@pytest.mark.parametrize("r", [0.02, 1.0, 300.0])
def test_expected_rising_factorials_are_sums_over_counts(mean, phi, r):
    law = stats.nbinom(1 / phi, 1 / (1 + phi * mean))
    y = np.arange(law.isf(1e-18) + 50)
    prob = law.pmf(y)
    expected = [float(prob @ part) for part in rising(y, np.array(r), 3)]
    found = expected_rising(np.array([mean]), np.array([mean + phi * mean**2]), np.array([r]), 3)
    for order, value in enumerate(expected):
        unit = mean / r**order + abs(value)
        assert abs(found[order][0] - value) < 3e-10 * unit


@pytest.mark.parametrize("mean", [1e11, 1e13, 1e100])
def test_expected_rising_factorials_of_huge_counts(mean):
    # y is nearly mean times a gamma variable of mean 1, and Stirling's series has three terms
    phi, r = 0.7, 1.3
    log = np.log(mean * phi) + special.digamma(1 / phi)
    first = mean * (log + phi - 1 - np.log(r)) + (r - 0.5) * log
    wanted = [
        first + 0.5 * np.log(2 * np.pi) - special.gammaln(r),
        log - mean / r - special.digamma(r),
        mean / r**2 - special.polygamma(1, r),
    ]
    found = expected_rising(np.array([mean]), np.array([mean + phi * mean**2]), np.array([r]), 3)
    np.testing.assert_allclose(np.ravel(found), wanted, rtol=1e-9)


def test_affinities_of_many_counts_are_sums_over_all_of_them():
    mean, phi = np.array([90.0, 300.0]), np.array([0.3, 2.0])
    experts = NegativeBinomialExperts(np.log(mean)[:, None], phi)
    eta = np.log(mean)[None]
    found = log_affinity_on_grid(experts.take([0]), eta[:, :1], experts.take([1]), eta[:, 1:])
    y = np.arange(60_000.0)
    log = stats.nbinom(1 / phi, 1 / (1 + phi * mean)).logpmf(y[:, None])
    assert_allclose(found[0, 0, 0], special.logsumexp(0.5 * log.sum(axis=1)), rtol=1e-5)


def test_a_draw_of_a_gamma_variable_has_a_density():
    experts = GammaExperts(np.zeros((1, 1)), np.array([1e4]))  # most draws are below 1e-300
    y = experts.sample(np.zeros((200, 1)), np.random.default_rng(0))
    eta, response = np.zeros((200, 1)), experts.observe(y[:, 0])
    assert np.all(y > 0) and np.all(np.isfinite(experts.expected_log_prob(eta, response)))
