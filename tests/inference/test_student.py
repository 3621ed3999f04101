"""Intervals and tests of rows in groups: Student's t with G - 1 degrees of freedom (maths 15)."""

import pickle

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose, assert_array_equal
from oracles import with_ones
from refusals import refused
from scipy import stats

from otmoe import MoEClassifier, MoERegressor, simulate
from otmoe.inference.estimates import by_t, degrees_of_freedom, estimates, quantile
from otmoe.inference.parameters import Parameter
from otmoe.inference.terms import wald_test

N = 600
GROUPS = np.arange(N) % 30


@pytest.fixture(scope="module")
def rows():
    return simulate(N, 2, 2, softness=1.0, random_state=2)


@pytest.fixture(scope="module")
def est(rows):
    return MoERegressor(2, random_state=0).fit(rows.X, rows.y)


@pytest.fixture(scope="module")
def found(est, rows):
    return est.inference(rows.X, rows.y, groups=GROUPS)


def half_widths(table):
    return np.array([(row.high - row.low) / 2 for row in table])


# -- quantiles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("df", [1, 2, 29, 10**6])
def test_quantiles_are_those_of_the_t_distribution(level, df):
    assert_allclose(quantile(level, df), stats.t.ppf(0.5 + level / 2, df), rtol=1e-14)
    assert quantile(level, df) > quantile(level)
    assert quantile(level) == stats.norm.ppf(0.5 + level / 2)  # as without groups, to the bit


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, -0.1])
def test_no_level_is_refused_with_degrees_of_freedom_too(level):
    refused("not_a_level").by(quantile, level, 29)


def test_degrees_of_freedom_are_groups_minus_one():
    assert degrees_of_freedom(30) == 29 and degrees_of_freedom(None) is None
    assert by_t(1) == "t quantiles with 1 degree of freedom" and by_t(None) == ""
    assert "1,999 degrees" in by_t(1999)


def test_an_estimate_of_known_error_has_the_interval_and_test_of_a_textbook():
    (row,) = estimates(
        [Parameter("linear", None, None, None, "")], *np.array([[2.0], [1.0]]), 0.95, 4
    )
    assert_allclose([row.low, row.high], [2 - 2.776445, 2 + 2.776445], rtol=1e-6)
    assert_allclose(row.p, 0.116117, rtol=1e-5)  # 2 P(t_4 > 2)


# -- what they are used in -------------------------------------------------------------------------


def test_one_gaussian_expert_has_the_intervals_of_statsmodels(rng):
    groups = np.repeat(np.arange(12), 10)
    X = rng.normal(size=(120, 2)) + rng.normal(size=(12, 2))[groups]
    y = X @ [0.1, -0.2] + rng.normal(size=12)[groups] + rng.normal(size=120)
    found = MoERegressor(1, random_state=0).fit(X, y).inference(X, y, groups=groups)
    options = {"groups": groups, "use_correction": False}
    there = sm.OLS(y, with_ones(X)).fit(cov_type="cluster", cov_kwds=options, use_t=True)
    half = np.diff(there.conf_int(0.1), axis=1)[:, 0] / 2 * np.sqrt(12 / 11)
    assert_allclose(half_widths(found.table(0.9))[:3], half, rtol=1e-5)
    p = 2 * stats.t.sf(np.abs(there.tvalues) / np.sqrt(12 / 11), 11)
    assert_allclose([row.p for row in found.table()[:3]], p, rtol=1e-4)


def test_every_interval_is_by_the_same_quantile(found, rows):
    assert found.df == 29
    wide, P = stats.t.ppf(0.95, 29), found.model.n_parameters
    for table in (
        found.table(0.9)[:9],
        found.contrast(0, 1, level=0.9),
        found.linear(np.eye(P), 0.9),
        found.marginal_effects(rows.X, 0.9),
    ):
        assert_allclose(half_widths(table), wide * np.array([row.se for row in table]), rtol=1e-9)
        assert_allclose([row.p for row in table], 2 * stats.t.sf(np.abs([r.z for r in table]), 29))
        assert table.df == 29
    ratio = found.ratios(0.9, block="gate")[0]
    assert_allclose(np.log(ratio.high / ratio.low), 2 * wide * ratio.se / ratio.estimate)
    mean = found.mean_interval(rows.X[:5], 0.9)
    assert_allclose(mean.high - mean.mean, wide * mean.se, rtol=1e-9)
    variance = found.table(0.9)[-1]
    assert_allclose(
        np.log(variance.high / variance.low) / 2, wide * variance.se / variance.estimate
    )


def test_probabilities_of_classes_have_them_on_the_scale_of_the_log_odds():
    data = simulate(N, 1, 2, family="logistic", softness=1.0, random_state=1)
    est = MoEClassifier(1, random_state=0).fit(data.X, data.y)
    one = est.inference(data.X, data.y, groups=np.arange(N) % 4).mean_interval(data.X[:3])
    mean, low, se = one.mean, one.low, one.se
    gap = np.log(mean / (1 - mean)) - np.log(low / (1 - low))
    assert_allclose(gap, stats.t.ppf(0.975, 3) * se / (mean * (1 - mean)), rtol=1e-6)


# -- joint tests -----------------------------------------------------------------------------------


def test_a_joint_test_of_one_number_is_that_of_t(found):
    row, P = found.table()[4], found.model.n_parameters
    test = found.wald(np.eye(P)[4])
    assert test.df == 1
    assert_allclose(test.statistic, row.z**2, rtol=1e-8)
    assert_allclose(test.p, row.p, rtol=1e-8)


def test_a_joint_test_is_hotellings(rng):
    """With the mean and covariance of normal vectors, its p values are uniform."""
    G, q, runs = 8, 3, 2000
    root = rng.normal(size=(q, q))
    p = []
    for _ in range(runs):
        Z = rng.normal(size=(G, q)) @ root
        p.append(wald_test(Z.mean(axis=0), np.cov(Z.T) / G, G - 1).p)
    assert stats.kstest(p, "uniform").pvalue > 0.01
    by_chi2 = np.mean([stats.chi2.sf(stats.f.isf(x, q, G - q) * q * 7 / 5, q) < 0.05 for x in p])
    assert by_chi2 > 0.2  # which is why


def test_numbers_that_are_given_twice_count_once(found):
    P = found.model.n_parameters
    once, often = found.wald(np.eye(P)[3:6]), found.wald(np.tile(np.eye(P)[3:6], (12, 1)))
    assert often.df == once.df == 3 and len(np.tile(np.eye(P)[3:6], (12, 1))) > found.df
    assert_allclose(often.p, once.p, rtol=1e-6)


def test_more_numbers_than_groups_tell_apart_are_not_tested(est, rows):
    found = est.inference(rows.X, rows.y, groups=np.arange(N) % 3)
    P = found.model.n_parameters
    several = found.wald(np.eye(P)[3:6])
    assert np.isnan(several.statistic) and np.isnan(several.p)
    assert np.isfinite(found.wald(np.eye(P)[3:5]).p)
    (term, *_) = found.terms({"both": ["x0", "x1"]})
    assert np.isfinite(term.p) and term.df == 2


# -- the ends of the range -------------------------------------------------------------------------


def test_very_many_groups_give_normal_intervals(est, rows):
    single = est.inference(rows.X, rows.y, groups=np.arange(N))
    robust = est.inference(rows.X, rows.y, kind="sandwich")
    assert single.df == N - 1 and robust.df is None
    ratio = half_widths(single.table()[:9]) / half_widths(robust.table()[:9])
    assert_allclose(ratio, stats.t.ppf(0.975, N - 1) / stats.norm.ppf(0.975) * np.sqrt(N / (N - 1)))
    assert np.all(ratio < 1.003)


def test_two_groups_have_one_degree_of_freedom(est, rows):
    found = est.inference(rows.X, rows.y, groups=np.arange(N) % 2)
    table = found.table()
    assert found.df == table.df == 1
    assert_allclose(
        half_widths(table[:9]), 12.706205 * np.array([r.se for r in table[:9]]), rtol=1e-6
    )
    assert "t quantiles with 1 degree of freedom" in repr(table)


@pytest.mark.parametrize("kind", ["information", "sandwich"])
def test_without_groups_nothing_is_by_t(est, rows, kind):
    found = est.inference(rows.X, rows.y, kind=kind)
    table, theta = found.table()[:9], found.model.to_vector()[:9]
    se = found.covariance.standard_errors(np.eye(found.model.n_parameters))[:9]
    assert_array_equal([row.low for row in table], theta - stats.norm.ppf(0.975) * se)
    assert_array_equal([row.p for row in table], 2 * stats.norm.sf(np.abs(theta / se)))
    for text in (repr(table), found.summary(), repr(found.terms()), found._repr_html_()):
        assert "P>|t|" not in text and "quantiles" not in text and "T2" not in text


# -- what is said ----------------------------------------------------------------------------------


def test_tables_say_by_which_quantiles_they_are(found):
    table = found.table()
    lines = repr(table).splitlines()
    assert lines[1].split()[3:5] == ["t", "P>|t|"] and "P>|z|" not in repr(table)
    assert lines[-1] == "t quantiles with 29 degrees of freedom"
    assert lines[-1] in table._repr_html_() and lines[-1] in found._repr_html_()
    tests = repr(found.terms()).splitlines()
    assert tests[1].split() == ["T2", "df", "P>T2"] and tests[-1] == lines[-1]
    for part in (table[:2], found.terms()[1:], found.ratios(block="gate")):
        assert part.df == 29 and repr(part).splitlines()[-1] == lines[-1]
        assert repr(pickle.loads(pickle.dumps(part))) == repr(part)


def test_the_summary_says_it_too(found):
    text = found.summary()
    assert "P>|t|" in text and "P>|z|" not in text
    (line,) = (line for line in text.splitlines() if "quantiles:" in line)
    assert "t, 29 df" in line
