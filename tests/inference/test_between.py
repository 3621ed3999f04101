"""How sites differ: the spread between them, their mean, and the test that they agree."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian, random_model, random_rows
from refusals import codes, refused
from scipy import stats

from otmoe.inference.between import LEAST_SITES, between_sites
from otmoe.inference.spread import Reml
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.fit import em
from otmoe.likelihood.prior import BLOCKS, blocks_of
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE


def positive(rng, M, P, rank=None):
    A = rng.normal(size=(M, P, (rank or P) + 3))
    return A @ A.swapaxes(1, 2)


def restricted_likelihood(g, information, B, Lambda):
    """Return the restricted likelihood as maths 18 writes it."""
    S = B + information @ Lambda @ information
    S_inv = np.linalg.inv(S)
    A = np.sum(information @ S_inv @ information, axis=0)
    d = np.linalg.solve(A, np.einsum("mij,mjk,mk->i", information, S_inv, g))
    rest = g - information @ d
    value = -0.5 * np.sum(np.linalg.slogdet(S)[1] + np.einsum("mi,mij,mj->m", rest, S_inv, rest))
    return value - 0.5 * np.linalg.slogdet(A)[1], d


def test_the_restricted_likelihood_is_that_of_the_formula(rng):
    M, owner = 7, np.array([0, 1, 1, 2, 3, 3, 4])
    P = len(owner)
    information, B, g = positive(rng, M, P), positive(rng, M, P), 9 * rng.normal(size=(M, P))
    V = information @ np.linalg.inv(B) @ information
    h = np.einsum("mij,mjk,mk->mi", information, np.linalg.inv(B), g)
    reml = Reml(V, h, owner, range(5))
    taus = rng.uniform(0.05, 1.0, size=(4, 5))
    taus[0, 2] = 0.0
    found = [reml.at(tau) for tau in taus]
    expected = [restricted_likelihood(g, information, B, np.diag(tau[owner] ** 2)) for tau in taus]
    values = np.array([at.value for at in found])
    assert_allclose(values - values[0], [e[0] - expected[0][0] for e in expected], atol=1e-8)
    for at, (_, d) in zip(found, expected, strict=True):
        assert_allclose(at.mean, d, rtol=1e-6)
    for tau, at in zip(taus[1:], found[1:], strict=True):
        slope = jacobian(lambda v: reml.at(np.sqrt(v)).value, tau**2)
        assert_allclose(at.slope, slope.ravel(), rtol=1e-4, atol=1e-4)


def test_the_maximum_is_one(rng):
    M, owner = 12, np.array([0, 0, 2, 3, 3, 3])
    V = np.tile(400 * np.eye(6), (M, 1, 1))
    b = rng.normal(size=(M, 6)) * np.array([0.5, 0.5, 0.0, 1.0, 1.0, 1.0])
    h = np.einsum("mij,mj->mi", V, b)
    reml = Reml(V, h, owner, [0, 2, 3])
    tau = reml.maximised()
    assert_array_equal(tau[[1, 4]], 0)
    assert tau[2] == 0  # at the boundary, where it gains nothing
    # one variance a block: that of the estimates less their noise
    spread = b - b.mean(axis=0)
    for block in (0, 3):
        wanted = np.sum(spread[:, owner == block] ** 2) / ((M - 1) * np.sum(owner == block))
        assert_allclose(tau[block] ** 2, wanted - 1 / 400, rtol=1e-3)
    for block, (low, high) in enumerate(reml.intervals(tau)):
        assert low <= tau[block] <= high


def sites_that_differ(rng, family, M=8, n=150, tau=0.5, K=1):
    """Return rows of sites whose intercepts of experts differ, by name."""
    common = random_model(rng, K, 2, family=family)
    found = {}
    for m in range(M):
        shifted = common.to_vector()
        intercept = blocks_of(common) == 2
        shifted[intercept] += tau * rng.normal(size=intercept.sum())
        found[f"site {m}"] = Rows(*random_rows(rng, common.with_vector(shifted), n))
    return common, found


def replies_of(model, scaling, sites, **options):
    return [
        site_information(name, model, scaling, rows, scatter=True, **options)
        for name, rows in sites.items()
    ]


def differing(sites, scaling=None, order=None, **options):
    X = np.concatenate([rows.X for rows in sites.values()])
    y = np.concatenate([rows.y for rows in sites.values()])
    model = options.pop("model", None)
    if model is None:
        model = em(X, y, init=options.pop("init")).model
    pooled = Scaling.of(X)
    scaling = pooled if scaling is None else scaling
    replies = replies_of(model, scaling, sites)
    replies = replies if order is None else [replies[i] for i in order]
    return between_sites(model, scaling, pooled, replies, **options)


@pytest.fixture
def case(rng, family):
    common, sites = sites_that_differ(rng, family)
    return differing(sites, init=common), sites


def test_intercepts_that_differ_are_found(case):
    between, _ = case
    found = {spread.block: spread for spread in between.spreads}
    intercepts = found["expert intercepts"]
    assert intercepts.tau > 0 and intercepts.p_value < 0.01 and intercepts.i2 > 0.5
    assert intercepts.low <= intercepts.tau <= intercepts.high
    assert found["expert slopes"].tau < intercepts.tau


def test_shrinkage_lies_between_the_site_and_the_mean(case):
    between, _ = case
    place = int(np.flatnonzero(blocks_of(between.common) == 2)[0])
    mean = between.mean[place]
    for site in between.sites:
        own, shrunk = site.estimate[place] - mean, site.shrunk[place] - mean
        assert abs(shrunk) < abs(own) + 0.05
        assert site.shrunk_error[place] < site.error[place]
    low, high = between.prediction_interval()
    assert np.all(low <= between.mean) and np.all(between.mean <= high)


def test_a_new_site_is_predicted_as_in_meta_analysis_if_deviations_are_known(case):
    between, _ = case
    known = tuple(replace(s, low=s.tau, high=s.tau) for s in between.spreads)
    low, high = replace(between, spreads=known).prediction_interval(0.9)
    t = stats.t.ppf(0.95, len(between.sites) - 1)
    wide = t * np.hypot(between.deviation, between.mean_error)
    assert_allclose(high - between.mean, wide, rtol=0.02)  # units are those of the centre
    assert_allclose(between.mean - low, high - between.mean)
    # what is not known about them makes the interval longer
    wider = tuple(replace(s, low=s.tau, high=2 * s.tau) for s in between.spreads)
    longer = replace(between, spreads=wider).prediction_interval(0.9)[1]
    some = between.deviation > 0
    assert some.any() and np.all(longer[some] > high[some])


def test_the_order_of_sites_does_not_matter(case):
    between, sites = case
    again = differing(sites, order=[3, 1, 0, 2, 7, 6, 5, 4], model=between.common)
    assert again.prior.tau == between.prior.tau
    assert_array_equal(again.mean, between.mean)


def test_the_scale_of_the_replies_does_not_matter(rng, case):
    between, sites = case
    other = Scaling(rng.normal(size=2), rng.uniform(0.5, 2.0, 2))
    again = differing(sites, scaling=other, model=between.common)
    for name in BLOCKS:
        assert_allclose(again.prior.tau[name], between.prior.tau[name], rtol=1e-3, atol=1e-3)
    assert_allclose(again.mean, between.mean, rtol=1e-5, atol=1e-6)


def test_the_order_of_experts_does_not_matter(rng):
    common, sites = sites_that_differ(rng, "gaussian", K=2, n=300)
    between = differing(sites, init=common)
    again = differing(sites, model=between.common.take([1, 0]))
    for name in BLOCKS:
        assert_allclose(again.prior.tau[name], between.prior.tau[name], rtol=2e-3, atol=2e-3)
    assert_allclose(again.overall.q, between.overall.q, rtol=1e-6)


def test_the_server_can_say_the_model_of_a_site(case):
    between, _ = case
    here = between.prior.scaling.from_user(between.common)
    found = between.prior.scaling.from_user(between.model_of("site 3"))
    moved = found.to_vector() - here.with_vector(here.to_vector()).to_vector()
    place = int(np.flatnonzero(blocks_of(between.common) == 2)[0])
    assert_allclose(found.to_vector()[place], between.sites[3].shrunk[place], rtol=1e-6)
    assert np.any(moved != 0)
    refused("site_unknown", site="nowhere").by(between.model_of, "nowhere")


def test_a_restriction_allows_no_other_spread(rng):
    common, sites = sites_that_differ(rng, "gaussian", K=2, n=300)
    between = differing(sites, init=common, restrict="gate")
    tau = between.prior.tau
    assert tau["expert intercepts"] == tau["expert slopes"] == tau["log-variances"] == 0


def test_few_sites_cannot_say_how_much_they_differ(rng):
    common, sites = sites_that_differ(rng, "gaussian", M=LEAST_SITES - 1)
    between = differing(sites, init=common)
    assert codes(between.warnings) == ["few_sites"]
    assert not any(between.prior.tau.values())
    assert_allclose(between.prior.centre.to_vector(), between.common.to_vector(), atol=1e-9)


def test_a_site_alone_or_without_scatter_is_refused(rng):
    common, sites = sites_that_differ(rng, "gaussian", M=2)
    scaling = Scaling.of(sites["site 0"].X)
    replies = replies_of(common, scaling, sites)
    refused("one_site_alone").by(between_sites, common, scaling, scaling, replies[:1])
    bare = [replace(replies[0], scatter=None), replies[1]]
    refused("no_spread", sites="site 0").by(between_sites, common, scaling, scaling, bare)


def linear_sites(rng, M, n, tau):
    """Return sites of one Gaussian regression whose intercept and slopes differ by tau."""
    sites = {}
    for m in range(M):
        X = rng.normal(size=(n, 3))
        coef = np.array([1.0, -1.0, 0.5, 0.0]) + tau * rng.normal(size=4)
        sites[f"site {m:02d}"] = Rows(X, coef[0] + X @ coef[1:] + rng.normal(size=n))
    return sites


LINE = MoE(SoftmaxGate(np.zeros((1, 4))), GaussianExperts(np.zeros((1, 4)), np.ones(1)))


def test_the_size_of_the_test_is_right_where_sites_agree(rng):
    p = [differing(linear_sites(rng, 10, 100, 0.0), init=LINE).overall.p_value for _ in range(80)]
    # the number of rejections of 80 lies in the middle 99.9 % of what a size of .05 gives
    assert stats.binom.cdf(np.sum(np.array(p) < 0.05), 80, 0.05) > 0.0005
    assert stats.binom.sf(np.sum(np.array(p) < 0.05) - 1, 80, 0.05) > 0.0005
    assert stats.kstest(p, "uniform").pvalue > 1e-4


def test_deviations_are_found_and_covered(rng):
    tau, covered, found = 0.3, 0, []
    for _ in range(40):
        between = differing(linear_sites(rng, 12, 80, tau), init=LINE)
        slopes = next(s for s in between.spreads if s.block == "expert slopes")
        unit = np.sqrt(between.prior.centre.experts.var[0])  # in which deviations are counted
        found.append(unit * slopes.tau)
        covered += unit * slopes.low <= tau <= unit * slopes.high
    assert_allclose(np.mean(found), tau, rtol=0.1)
    assert stats.binom.cdf(covered, 40, 0.9) > 0.001
