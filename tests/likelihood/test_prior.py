"""Fits with a prior: between the mean of other sites and a site's own maximum."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import jacobian, log_likelihood, never_falls, random_model, random_rows
from refusals import refused

from otmoe.likelihood.fit import em
from otmoe.likelihood.prior import BLOCKS, Prior, blocks_of, fit_with_prior, spread_factor
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.mixture import reordering

SOME = dict.fromkeys(BLOCKS, 0.3)


def case(rng, family, n=60, K=2, d=2):
    centre = random_model(rng, K, d + 1, family=family)
    X, y = random_rows(rng, centre, n)
    return centre, Rows(X, y), Scaling.of(2.0 * X + 1.0)


def objective(prior, rows):
    """Return the log posterior as a function of parameters on the prior's scale."""
    here = prior.here
    covariance = np.linalg.inv(prior.factor @ prior.factor.T)
    centre = here.to_vector()

    def value(theta):
        model = prior.scaling.to_user(here.with_vector(theta))
        shift = theta - centre
        return (
            log_likelihood(model, rows.X, rows.y) / prior.design_effect
            - 0.5 * shift @ covariance @ shift
        )

    return value


def test_the_score_of_the_posterior_is_zero_at_the_fit(rng, family):
    centre, rows, scaling = case(rng, family)
    prior = Prior(centre, scaling, SOME, 1.7)
    fit = fit_with_prior(rows, prior)
    assert fit.converged
    never_falls(fit.trace)
    at = scaling.from_user(fit.model).to_vector()
    assert_allclose(jacobian(objective(prior, rows), at), 0, atol=2e-4)
    assert_allclose(fit.log_likelihood, log_likelihood(fit.model, rows.X, rows.y))


def test_the_covariance_is_that_of_the_posterior(rng):
    centre, rows, scaling = case(rng, "gaussian", n=200)
    prior = Prior(centre, scaling, SOME)
    fit = fit_with_prior(rows, prior)
    at = scaling.from_user(fit.model).to_vector()
    value = objective(prior, rows)
    hessian = jacobian(lambda theta: jacobian(value, theta, 1e-3), at, 1e-3)
    # the information is that of the last step but one, a tenth of a standard error away at most
    assert_allclose(fit.covariance @ -hessian, np.eye(len(at)), atol=0.02)


def test_without_spread_it_is_the_mean(rng, family):
    centre, rows, scaling = case(rng, family)
    fit = fit_with_prior(rows, Prior(centre, scaling, {}))
    assert_allclose(fit.model.to_vector(), centre.to_vector(), rtol=1e-9, atol=1e-9)
    assert_allclose(fit.covariance, 0)


def test_with_a_wide_spread_it_is_the_maximum_of_the_likelihood(rng, family):
    centre, rows, scaling = case(rng, family, n=1000, K=1)
    wide = Prior(centre, scaling, dict.fromkeys(BLOCKS, 1e4))
    own = em(rows.X, rows.y, init=centre, alpha=0.0, expert_alpha=0.0)
    found = fit_with_prior(rows, wide)
    assert_allclose(found.log_likelihood, own.log_likelihood, rtol=1e-9)
    assert_allclose(found.model.to_vector(), own.model.to_vector(), rtol=1e-4, atol=1e-4)


def test_a_design_effect_counts_rows_as_fewer(rng, family):
    centre, rows, scaling = case(rng, family)
    twice = Rows(np.repeat(rows.X, 2, axis=0), np.repeat(rows.y, 2))
    one = fit_with_prior(rows, Prior(centre, scaling, SOME))
    two = fit_with_prior(twice, Prior(centre, scaling, SOME, 2.0))
    assert_allclose(two.model.to_vector(), one.model.to_vector(), rtol=1e-6, atol=1e-6)


def test_weight_two_is_the_row_twice(rng, family):
    centre, rows, scaling = case(rng, family)
    weighted = replace(rows, weight=np.full(len(rows), 2.0))
    twice = Rows(np.repeat(rows.X, 2, axis=0), np.repeat(rows.y, 2))
    prior = Prior(centre, scaling, SOME)
    one, two = fit_with_prior(weighted, prior), fit_with_prior(twice, prior)
    assert_allclose(two.model.to_vector(), one.model.to_vector(), rtol=1e-6, atol=1e-6)
    assert one.n_samples == two.n_samples == 2 * len(rows)


def test_the_order_of_experts_does_not_matter(rng, family):
    centre, rows, scaling = case(rng, family, K=3)
    prior = Prior(centre, scaling, {name: 0.1 * (i + 1) for i, name in enumerate(BLOCKS)})
    order = [2, 0, 1]
    one = fit_with_prior(rows, prior).model.take(order)
    two = fit_with_prior(rows, replace(prior, centre=centre.take(order))).model
    assert_allclose(two.to_vector(), one.to_vector(), rtol=1e-5, atol=1e-6)


def test_the_spread_is_the_same_for_experts_in_any_order(rng, family):
    model = random_model(rng, 3, 2, family=family)
    F, T = spread_factor(model), reordering(model, [1, 2, 0])
    moved = spread_factor(model.take([1, 2, 0]))
    for b in range(len(BLOCKS)):
        here, there = F[:, blocks_of(model) == b], moved[:, blocks_of(model) == b]
        assert_allclose(there @ there.T, T @ here @ here.T @ T.T, atol=1e-12)


def test_classes_vary_alike(rng):
    # the covariance of any two contrasts does not depend on which class is the reference
    Q = random_model(rng, 1, 2, family="multinomial").experts
    spread = Q.contrast_spread
    change = np.array([[0.0, -1.0], [1.0, -1.0]])  # classes 0, 1 against 2 -> 2, 0 against 1
    assert_allclose(change @ spread @ change.T, spread)


def test_a_start_changes_nothing(rng, family):
    centre, rows, scaling = case(rng, family)
    prior = Prior(centre, scaling, SOME)
    one = fit_with_prior(rows, prior)
    two = fit_with_prior(rows, prior, start=one.model)
    assert_allclose(two.model.to_vector(), one.model.to_vector(), rtol=1e-5, atol=1e-6)
    assert len(two.trace) <= 2


@pytest.mark.parametrize("restrict", ["gate", "intercepts"])
def test_a_restriction_leaves_the_rest_at_the_mean(rng, family, restrict):
    centre, rows, scaling = case(rng, family)
    prior = Prior(centre, scaling, SOME)
    fit = fit_with_prior(rows, prior.restricted(restrict))
    moved = scaling.from_user(fit.model).to_vector() - prior.here.to_vector()
    kept = prior.restricted(restrict).tau
    free = np.array([kept[BLOCKS[b]] > 0 for b in blocks_of(centre)])
    assert np.all(np.abs(moved[free]) > 0)
    assert_allclose(moved[~free], 0, atol=1e-12)


def test_a_stronger_prior_stays_closer(rng, family):
    centre, rows, scaling = case(rng, family)
    prior = Prior(centre, scaling, SOME)

    def length(times):
        there = prior.strengthened(times)
        moved = scaling.from_user(fit_with_prior(rows, there).model).to_vector()
        u = np.linalg.lstsq(prior.factor, moved - prior.here.to_vector(), rcond=None)[0]
        return np.sum(u**2)

    assert length(0.3) < length(1.0) < length(3.0)


def test_the_mean_comes_to_the_common_model_as_deviations_shrink(rng, family):
    common, rows, scaling = case(rng, family)
    far = common.with_vector(common.to_vector() + 0.1)
    prior = Prior(far, scaling, SOME)

    def centre(times):
        return scaling.from_user(prior.at_strength(times, common).centre).to_vector()

    near = scaling.from_user(common).to_vector()
    way = prior.here.to_vector() - near
    for times, part in ((0.0, 0.0), (0.25, 0.25), (1.0, 1.0), (2.0, 1.0)):
        assert_allclose(centre(times), near + part * way, atol=1e-10)
        tau = prior.at_strength(times, common).tau
        assert tau == {name: times * value for name, value in prior.tau.items()}
    assert prior.at_strength(0.0, common).centre is common
    none = fit_with_prior(rows, prior.at_strength(1e-6, common)).model
    assert_allclose(none.to_vector(), common.to_vector(), atol=1e-4)


def test_what_is_no_prior_is_refused(rng):
    centre, _, scaling = case(rng, "gaussian")
    refused("prior_wrong", name="slopes").by(Prior, centre, scaling, {"slopes": 1.0})
    refused("prior_wrong", name="gate slopes").by(Prior, centre, scaling, {"gate slopes": -1.0})
    refused("not_one_of", name="restrict").by(Prior(centre, scaling, {}).restricted, "slopes")
