"""Rows in the order of time: how the scatter grows with the length of blocks, and what follows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg

from otmoe.inference.between import between_sites
from otmoe.inference.memory import ended, inflation
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.fit import em
from otmoe.likelihood.grouped import Growth, group_scores, growth_ratios
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE

ONE_EXPERT = MoE(SoftmaxGate(np.zeros((1, 2))), GaussianExperts(np.array([[1.0, 0.5]]), np.ones(1)))


def autoregressive(rng, n, phi, columns=1):
    """Return stationary series of variance 1, (n, columns)."""
    found = rng.normal(size=(n, columns))
    for t in range(1, n):
        found[t] = phi * found[t - 1] + np.sqrt(1 - phi**2) * found[t]
    return found


def long_memory(rng, n, c, columns):
    """Return fractional Gaussian noise: the variance of sums of L terms is L to the 1 + c."""
    lag = np.arange(n)
    power = 1 + c
    cov = 0.5 * ((lag + 1.0) ** power - 2 * lag**power + np.abs(lag - 1.0) ** power)
    return np.linalg.cholesky(linalg.toeplitz(cov)) @ rng.normal(size=(n, columns))


def growths(series):
    return [Growth(len(sums), growth_ratios(sums)) for sums in series]


def test_the_growth_is_that_of_sums_of_neighbours(rng):
    sums = autoregressive(rng, 37, 0.5, columns=3)
    wanted = []
    for length in (1, 2, 4, 8):  # 16 would leave two sums
        variances = []
        for column in sums.T:
            blocks = [column[i * length : (i + 1) * length].sum() for i in range(37 // length)]
            variances.append(np.var(blocks, ddof=1) / length / np.var(column, ddof=1))
        wanted.append(np.mean(variances))
    assert_allclose(growth_ratios(sums), wanted)
    assert_allclose(growth_ratios(7 * sums + 100), wanted)


def test_a_parameter_without_scores_does_not_count(rng):
    sums = rng.normal(size=(40, 2))
    without = np.column_stack([sums, np.zeros(40)])
    assert_allclose(growth_ratios(without), growth_ratios(sums))
    assert_array_equal(growth_ratios(np.zeros((40, 2))), 1)
    assert len(growth_ratios(sums[:3])) == 0


def test_independent_groups_are_taken_for_independent(rng):
    found = [inflation(growths(rng.normal(size=(12, 200, 6)))) for _ in range(20)]
    assert min(found) >= 1 and np.mean(found) < 1.05


@pytest.mark.parametrize("phi", [0.5, 0.8])
def test_dependence_that_ends_is_counted_whole(rng, phi):
    # a little more than whole: at the longest lengths it has not quite ended
    found = [
        inflation(growths([autoregressive(rng, 512, phi, 6) for _ in range(12)])) for _ in range(10)
    ]
    assert 0.9 < np.mean(found) * (1 - phi) / (1 + phi) < 1.25


@pytest.mark.parametrize("c", [0.2, 0.4])
def test_dependence_that_does_not_end_is_extrapolated(rng, c):
    found = [
        inflation(growths([long_memory(rng, 200, c, 6) for _ in range(12)])) for _ in range(10)
    ]
    assert_allclose(np.mean(found), 200**c, rtol=0.2)


def test_dependence_ends_or_does_not(rng):
    def share(series):
        return np.mean([ended(growths([series() for _ in range(12)])) for _ in range(10)])

    assert share(lambda: rng.normal(size=(200, 6))) == 1
    assert share(lambda: autoregressive(rng, 512, 0.8, 6)) >= 0.8
    assert share(lambda: long_memory(rng, 200, 0.5, 6)) == 0
    assert share(lambda: np.cumsum(rng.normal(size=(200, 6)), axis=0)) == 0
    assert ended([])


def test_few_groups_say_nothing_about_order(rng):
    assert inflation(growths([np.ones((7, 1)).cumsum(axis=0)] * 9)) == 1.0
    assert inflation([]) == 1.0


def test_lengths_that_few_sites_have_do_not_count(rng):
    short = growths([rng.normal(size=(32, 4)) for _ in range(20)])
    drifting = growths([np.cumsum(rng.normal(size=(320, 4)), axis=0)])
    assert len(drifting[0].ratios) > len(short[0].ratios)
    at_short = [Growth(320, drifting[0].ratios[: len(short[0].ratios)])]
    assert inflation(short + drifting) == inflation(short + at_short)


def test_groups_follow_each_other_as_their_first_rows_do(rng):
    X, y = rng.normal(size=(40, 1)), rng.normal(size=40)
    code = np.repeat(np.arange(20), 2)
    code[1:] = code[:-1].copy()  # the first row of the next group comes before the last one of this
    wanted = growth_ratios(group_scores(ONE_EXPERT, Rows(X, y), code).sums)
    names = rng.permutation(20)[code]
    for labels in (names, names.astype(str), names.astype(object), [(name,) for name in names]):
        found = group_scores(ONE_EXPERT, Rows(X, y), labels).growth(labels)
        assert_allclose(found.ratios, wanted)
        assert found.n_groups == 20
    weight = np.where(code == 3, 0.0, 1.0)  # rows of weight 0 are none
    found = group_scores(ONE_EXPERT, Rows(X, y, weight), names).growth(names)
    some = code != 3
    left = group_scores(ONE_EXPERT, Rows(X[some], y[some]), names[some]).growth(names[some])
    assert_allclose(found.ratios, left.ratios)


def test_slow_changes_are_not_taken_for_differences_between_sites(rng):
    # the same model everywhere, but errors and feature that change slowly
    sites = {}
    for m in range(12):
        x, noise = autoregressive(rng, 400, 0.9, 2).T
        sites[f"site {m:02d}"] = Rows(x[:, None], 1 + 0.5 * x + noise)
    X = np.concatenate([rows.X for rows in sites.values()])
    y = np.concatenate([rows.y for rows in sites.values()])
    scaling, model = Scaling.of(X), em(X, y, 1).model

    def between(groups):
        replies = [
            site_information(name, model, scaling, rows, scatter=True, groups=groups)
            for name, rows in sites.items()
        ]
        return between_sites(model, scaling, scaling, replies)

    alone, in_order = between(None), between(np.arange(400))
    assert alone.overall.p_value < 1e-10 and in_order.overall.p_value > 0.05
    before, after = (np.array(list(found.prior.tau.values())) for found in (alone, in_order))
    assert np.all(before[2:] > 0.1)
    assert np.all(after <= 0.6 * before) and np.sum(after**2) < 0.25 * np.sum(before**2)
    # a mean of errors has the variance of (1 + 0.9) / (1 - 0.9) = 19 times as many independent
    # ones, one of products of two such series that of (1 + 0.81) / (1 - 0.81) = 9.5 times
    assert 5 < in_order.prior.design_effect / alone.prior.design_effect < 25
