"""Predictions of rows that were held out: by the common model, a site's own, and personal ones."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import log_density, random_model, random_rows

from otmoe.likelihood import forecast as module
from otmoe.likelihood.fit import em
from otmoe.likelihood.forecast import PARTS, Forecast, Score, best_strength, forecast
from otmoe.likelihood.prior import BLOCKS, Prior, fit_with_prior
from otmoe.likelihood.rows import Rows, Scaling


def case(rng, family="gaussian", n=80, shift=0.8):
    """Return the common model, a prior, and rows of a site whose experts are shifted."""
    common = random_model(rng, 1, 2, family=family)
    moved = common.with_vector(common.to_vector() + shift)
    X, y = random_rows(rng, moved, n)
    return common, Prior(common, Scaling.of(X), dict.fromkeys(BLOCKS, 0.3), 1.0, 1000.0), Rows(X, y)


def parts_of(rows, labels=None, classes=False):
    return module._parts(rows, labels, classes, np.random.default_rng(0))


def test_every_part_has_its_share_of_each_class(rng):
    y = np.repeat([0.0, 1.0, 2.0], [13, 40, 7])
    part = parts_of(Rows(np.zeros((60, 1)), y), classes=True)
    counts = np.array([[np.sum((part == j) & (y == c)) for j in range(PARTS)] for c in range(3)])
    assert np.ptp(counts, axis=1).max() <= 1
    assert np.ptp(np.bincount(part)) <= 1


def test_groups_stay_together_and_in_order():
    labels = np.repeat(["b", "a", "d", "c", "e"], [10, 30, 5, 20, 15])
    part = parts_of(Rows(np.zeros((80, 1)), np.zeros(80)), labels)
    for label in "abcde":
        assert len(set(part[labels == label])) == 1
    assert np.all(np.diff(part) >= 0)
    assert len(set(part)) > 1


def test_rows_before_alone_predict_the_groups_after_them(rng):
    # y of the last groups would be learned from themselves if it were seen
    common, prior, rows = case(rng, n=40, shift=0.0)
    y = rows.y.copy()
    y[-10:] += 5.0
    labels = np.arange(40) // 5
    found = forecast("a", Rows(rows.X, y), common, prior, groups=labels, strengths=[1.0])
    part = parts_of(rows, labels)
    value, weight = 0.0, 0
    for j in range(1, PARTS):
        seen, unseen = part < j, part == j
        model = fit_with_prior(Rows(rows.X[seen], y[seen]), prior).model
        value += log_density(model, rows.X[unseen], y[unseen]).sum()
        weight += unseen.sum()
    optimism = common.n_parameters / prior.n_samples
    assert_allclose(found.personal[1.0].value, value / weight - optimism, atol=1e-3)
    assert found.weight == weight


def test_groups_that_follow_do_not_ask_for_more_spread(rng):
    common, prior, rows = case(rng, n=400)
    labels = np.arange(400) // 4
    found = forecast("a", rows, common, prior, groups=labels)
    assert set(found.personal) == {0.25, 0.5, 1.0}
    assert set(forecast("a", rows, common, prior).personal) == set(module.STRENGTHS)


def test_the_error_of_a_lead_is_that_of_groups(rng):
    common, prior, rows = case(rng, n=40)
    twice = np.repeat(np.arange(40), 2)
    double = Rows(rows.X[twice], rows.y[twice])
    once = forecast("a", rows, common, prior, groups=np.arange(40), strengths=[0.0, 1.0])
    found = forecast("a", double, common, prior, groups=twice, strengths=[0.0])
    assert once.personal[1.0].error > 0
    # with hardly any spread the personal model is the centre, whatever the rows
    center = common.with_vector(common.to_vector() + 0.5)
    shifted = Prior(center, prior.scaling, dict.fromkeys(BLOCKS, 1e-8))
    alone, both = (
        forecast("a", r, common, shifted, groups=g, strengths=[1.0]).personal[1.0]
        for r, g in ((rows, np.arange(40)), (double, twice))
    )
    assert abs(alone.gain) > 0.01
    assert_allclose(both.gain, alone.gain, rtol=1e-6)
    assert_allclose(both.error, alone.error, rtol=1e-6)
    by_rows = forecast("a", double, common, shifted, groups=np.arange(80), strengths=[1.0])
    assert_allclose(by_rows.personal[1.0].error * np.sqrt(2), alone.error, rtol=1e-6)
    assert found.weight == 60


def test_the_common_model_is_charged_for_what_it_has_seen(rng, family):
    common, prior, rows = case(rng, family)
    found = forecast("a", rows, common, prior, strengths=[1.0])
    expected = log_density(common, rows.X, rows.y).mean() - common.n_parameters / 1000
    assert_allclose(found.common, expected)
    assert found.weight == len(rows)
    lead = found.personal[1.0].value - found.common
    assert_allclose(found.personal[1.0].gain, lead, atol=1e-12)


def test_without_spread_nothing_is_gained(rng, family):
    common, prior, rows = case(rng, family)
    found = forecast("a", rows, common, prior, strengths=[0.0])
    assert_allclose(found.personal[0.0].gain, 0, atol=1e-9)


def test_a_site_that_differs_gains(rng, family):
    common, prior, rows = case(rng, family, n=400)
    own = em(rows.X, rows.y, init=common).model
    found = forecast("a", rows, common, prior, own=own)
    assert found.best in ("personal", "own")
    assert found.personal[1.0].gain > 3 * found.personal[1.0].error > 0
    assert abs(found.own.value - found.personal[4.0].value) < 0.05


def test_a_site_that_does_not_differ_keeps_the_common_model(rng):
    common, prior, rows = case(rng, n=200, shift=0.0)
    found = forecast("a", rows, common, prior, own=em(rows.X, rows.y, init=common).model)
    assert found.best == "common"


def test_the_mixture_predicts_held_out_rows_best(rng, family):
    common, prior, rows = case(rng, family, n=400, shift=0.2)
    own = em(rows.X, rows.y, init=common).model
    found = forecast("a", rows, common, prior, own=own, strengths=[1.0])
    assert set(found.stacks) == {0.0, 1.0}
    for strength, names in ((0.0, {"common", "own"}), (1.0, {"common", "personal", "own"})):
        weights = replace(found, strength=strength).weights
        assert set(weights) <= names
        assert min(weights.values()) > 0
        assert_allclose(sum(weights.values()), 1)


def test_a_site_that_differs_by_far_has_no_use_for_the_common_model(rng):
    common, prior, rows = case(rng, n=400, shift=3.0)
    wide = replace(prior, tau=dict.fromkeys(BLOCKS, 3.0))
    found = forecast("a", rows, common, wide, own=em(rows.X, rows.y, init=common).model)
    assert found.weights.get("common", 0.0) < 0.02


def test_a_model_that_is_not_there_has_no_weight(rng):
    common, prior, rows = case(rng, n=5)
    found = forecast("a", rows, common, prior, own=common, strengths=[1.0])
    assert set(found.weights) <= {"common", "personal"}
    alone = forecast("a", rows, common, replace(prior, tau={}))
    assert replace(alone, strength=0.0).weights == {"common": 1.0}
    assert Forecast("a", 1.0, -1.0, {}).weights == {"common": 1.0}


def test_too_few_rows_have_no_model_of_their_own(rng):
    common, prior, rows = case(rng, n=5)
    found = forecast("a", rows, common, prior, own=common)
    assert np.isnan(found.own.value)
    assert found.best in ("common", "personal")


def test_weights_count(rng):
    common, prior, rows = case(rng)
    zero = np.r_[np.ones(40), np.zeros(40)]
    heavy = forecast("a", Rows(rows.X, rows.y, 3 * zero), common, prior, strengths=[1.0])
    light = forecast("a", Rows(rows.X, rows.y, zero), common, prior, strengths=[1.0])
    assert heavy.weight == 3 * light.weight == 120
    assert_allclose(heavy.common, light.common)


def test_many_rows_are_thinned(rng, monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 50)
    common, prior, rows = case(rng, n=300)
    found = forecast("a", rows, common, prior, strengths=[1.0])
    assert found.weight == 50
    again = forecast("a", rows, common, prior, strengths=[1.0])
    assert again == found


@pytest.mark.parametrize(
    ("gains", "wanted"), [({1.0: -0.1, 2.0: -0.2}, 0.0), ({1.0: 0.3, 2.0: 0.1}, 1.0)]
)
def test_the_strength_is_that_which_predicts_best_over_all_sites(gains, wanted):
    big = Forecast("b", 100.0, -1.0, {s: Score(0.0, g, 0.1) for s, g in gains.items()})
    small = Forecast("a", 1.0, -1.0, {s: Score(0.0, -g, 0.1) for s, g in gains.items()})
    assert best_strength([big, small]) == best_strength([small, big]) == wanted


def test_where_level_the_weaker_difference_is_taken():
    level = Forecast("a", 1.0, -1.0, {s: Score(0.0, 0.5, 0.1) for s in (2.0, 1.0)})
    assert best_strength([level]) == 1.0
    assert_array_equal(level.best, "personal")
