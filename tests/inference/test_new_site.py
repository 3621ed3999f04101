"""The prior of one more site."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otmoe import DistributedMoERegressor

pytestmark = pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")

SITES, N = 8, 40


@pytest.fixture(scope="module")
def between():
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(SITES), N)
    X = rng.normal(size=(SITES * N, 2))
    y = X @ [1.0, -0.5] + rng.normal(size=SITES)[site] + 0.5 * rng.normal(size=len(site))
    return DistributedMoERegressor(1, personal="auto", random_state=0).fit(X, y, site=site).between_


@pytest.mark.parametrize("strength", [0.0, 0.25, 1.0])
def test_a_strength_up_to_one_holds_for_a_new_site(between, strength):
    weak = replace(between, strength=strength)
    for rows in (1, 50, 1e6):
        found = weak.prior_of_new(rows)
        assert found.tau == weak.personal_prior.tau
        assert_allclose(found.centre.to_vector(), weak.personal_prior.centre.to_vector())


def test_a_larger_one_grows_with_the_rows(between):
    strong = replace(between, strength=4.0)
    few, more, many = (strong.prior_of_new(rows).tau for rows in (1e-6, 100, 1e9))
    for block, tau in between.prior.tau.items():
        assert few[block] == pytest.approx(tau, rel=1e-5)
        assert many[block] == pytest.approx(4 * tau, rel=1e-5)
        assert tau == 0 or tau < more[block] < 4 * tau
    at = 10 * between.prior.design_effect * between.common.n_parameters  # where a half is known
    half = strong.prior_of_new(at).tau
    assert half["expert intercepts"] == pytest.approx(2.5 * between.prior.tau["expert intercepts"])
