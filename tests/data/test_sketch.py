"""Sketches: what they keep of the rows, what they draw, and their densities."""

import array_api_strict as strict
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy import special, stats
from sketches import clustered, mixed, same
from sklearn.mixture import GaussianMixture

from otmoe import FeatureSpec, Sketch
from otmoe.data.clusters import LEAST_ROWS, columns_of
from otmoe.data.columns import Column
from otmoe.data.sketch import comparable

N_DRAWS = 40_000
COMPONENTS = range(1, 5)


@pytest.fixture
def rows(rng):
    return mixed(rng)


def weighted_moments(X, weight):
    mean = np.average(X, axis=0, weights=weight)
    return mean, np.cov(X.T, aweights=weight, ddof=0)


# -- what is kept of the rows ------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_and_variance_are_those_of_the_rows(rng, weighted):
    X = clustered(rng)
    weight = rng.uniform(0.2, 3, len(X)) if weighted else None
    for most in (1, 4):
        sketch = Sketch.fit(X, sample_weight=weight, n_components=most)
        mean, cov = weighted_moments(X, weight)
        found, variance = sketch.moments
        assert_allclose(found, mean, rtol=1e-12)
        tight = 1e-12 if most == 1 else 2 * 4 / 500  # shrinkage evens components out
        assert_allclose(variance, np.diag(cov), rtol=tight)


def test_a_weight_of_two_is_the_row_twice(rng):
    X = clustered(rng, 400)
    weight = rng.integers(0, 3, 400)
    a = Sketch.fit(X, sample_weight=weight, n_components=1)
    b = Sketch.fit(np.repeat(X, weight, axis=0), n_components=1)
    assert_allclose(a.mean, b.mean, rtol=1e-12)
    correlation = [s.cov[0] / np.sqrt(np.outer(*2 * [np.diag(s.cov[0])])) for s in (a, b)]
    assert_allclose(*correlation, atol=0.01)  # shrinkage knows how many rows there were


def test_correlations_are_shrunk_by_as_many_rows_as_columns_with_the_intercept(rng):
    X = clustered(rng, 30, 3, 1)
    cov = np.cov(X.T, ddof=0)
    expected = (30 * cov + 4 * np.diag(np.diag(cov))) / 34
    assert_allclose(Sketch.fit(X, n_components=1).cov[0], expected, rtol=1e-10)


def test_it_finds_as_many_clusters_as_there_are(rng):
    for G in COMPONENTS:
        assert len(Sketch.fit(clustered(rng, 1500, G=G)).weight) == G


def test_new_rows_are_as_likely_as_under_the_mixture_of_scikit_learn(rng):
    X = clustered(rng, 6000, G=3)
    X, new = X[::2], X[1::2]
    theirs = GaussianMixture(3, random_state=0, n_init=3).fit(X).score(new)
    assert Sketch.fit(X).log_density(new).mean() > theirs - 0.005


def test_no_component_has_few_rows(rng):
    X = rng.normal(size=(300, 2))
    for strangers in (1, 5, 9):
        X[:strangers] = 50 + rng.normal(size=(strangers, 2))
        for sketch in (Sketch.fit(X), Sketch.fit(X, sample_weight=np.r_[50, np.ones(299)])):
            assert sketch.weight.min() * 300 >= LEAST_ROWS
            away = np.abs(sketch.mean[:, None, :] - X[None, :strangers]).min()
            assert away > 1


@pytest.mark.parametrize("n", [10, 15, 40, 200])
def test_fewer_rows_than_columns_do_no_harm(rng, n):
    X = rng.normal(size=(n, 30)) * np.geomspace(1e-6, 1e6, 30)
    X[:, 3] = X[:, 4] + X[:, 5]  # collinear
    sketch = Sketch.fit(X)
    assert np.all(np.linalg.eigvalsh(sketch.cov / np.outer(*2 * [X.std(axis=0)])) > 1e-5)
    assert np.all(np.isfinite(sketch.log_density(sketch.draw(100))))


def test_too_few_rows_and_few_rows_of_large_weight_are_not_shown(rng):
    for few in (np.ones((1, 2)), np.eye(9), np.zeros((0, 3))):
        refused("sketch_rows", least=10).by(Sketch.fit, few)
    X, row = rng.normal(size=(500, 2)), np.arange(500)
    refused("sketch_rows", rows=9).by(Sketch.fit, X, sample_weight=row < 9)
    with refused("sketch_rows", rows=pytest.approx(2, rel=1e-6)):
        Sketch.fit(X, sample_weight=np.where(row < 2, 1e9, 1))


@pytest.mark.parametrize(
    ("kwargs", "code", "facts"),
    [
        ({"X": np.ones(20)}, "not_a_matrix", {"name": "X", "shape": (20,)}),
        ({"X": np.full((20, 2), np.nan)}, "not_finite", {}),
        ({"sample_weight": -np.ones(20)}, "weight_of_row", {"row": 0}),
        ({"n_components": 0}, "not_whole", {"name": "n_components", "value": 0}),
        ({"features": FeatureSpec.of_names("abc")}, "not_encoded", {"columns": 2, "features": 3}),
    ],
)
def test_a_mistake_is_named(rng, kwargs, code, facts):
    refused(code, **facts).by(Sketch.fit, **{"X": rng.normal(size=(20, 2))} | kwargs)


def test_many_rows_are_sampled(rng):
    X = clustered(rng, 60_000, G=1)
    a, b = Sketch.fit(X, n_components=1), Sketch.fit(X, n_components=1)
    assert same(a, b)
    mean, cov = weighted_moments(X, None)
    error = np.sqrt(np.diag(cov) / 20_000)
    assert np.all(np.abs(a.moments[0] - mean) < 5 * error)
    assert not np.all(np.abs(a.moments[0] - mean) < 1e-9 * error)


def test_other_arrays_and_frames_are_taken(rows):
    expected = Sketch.fit(rows)
    assert same(Sketch.fit(strict.asarray(rows)), expected)
    assert same(Sketch.fit(pd.DataFrame(rows)), expected)
    found = expected.log_density(strict.asarray(rows))
    assert_allclose(np.asarray(found), expected.log_density(rows), rtol=1e-12)


# -- kinds of columns --------------------------------------------------------------------------


def test_columns_are_told_apart(rows):
    sketch = Sketch.fit(rows)
    assert sketch.numbers == (0, 1) and sketch.whole == (1,) and sketch.not_negative == (0, 1)
    assert sketch.categories == ((2,), (3, 4)) and sketch.constant == {5: 0.1}
    assert sketch.n_features == 6 and not sketch.units


def test_dummies_that_are_never_one_together_are_a_category():
    level = np.arange(60) % 4
    one_hot = (level[:, None] == np.arange(4)).astype(float)
    other = (np.arange(60) % 3 == 0).astype(float)
    number, nothing = np.linspace(0, 1, 60), np.zeros(60)
    X = np.column_stack([one_hot, other, nothing, one_hot[:, :2], number, one_hot[:, 2:], nothing])
    found = columns_of(X)
    assert found.categories == ((0, 1, 2, 3), (4,), (6, 7), (9, 10))
    assert found.numbers == (8,) and found.constant == {5: 0.0, 11: 0.0}


def test_a_specification_names_the_categories(rng):
    wind = Column("wind", "category", ("N", "E", "S", "W"))
    spec = FeatureSpec((wind, Column("age", center=40.0, scale=10.0), Column("ill", scale=0.5)))
    n = 500
    table = {
        "wind": rng.choice(["N", "E", "S"], n),  # never W
        "age": rng.integers(20, 90, n),
        "ill": rng.integers(0, 2, n),
    }
    X = spec.encode(table)
    sketch = Sketch.fit(X, features=spec)
    assert sketch.categories == ((0, 1, 2), (4,)) and sketch.whole == (3,) and not sketch.constant
    assert sketch.units == {3: (40.0, 10.0), 4: (0.0, 0.5)}
    assert_allclose(sketch.moments[0][3], table["age"].mean(), rtol=1e-12)  # in years
    assert_array_equal(sketch.prob[0][:, 3], 0)
    drawn = sketch.draw(2000)
    ages = drawn[:, 3] * 10 + 40
    assert_allclose(ages, np.rint(ages), atol=1e-9)
    assert set(drawn[:, 4]) == {0.0, 2.0}
    assert set(map(tuple, drawn[:, :3])) == {(0, 0, 0), (1, 0, 0), (0, 1, 0)}
    plain = FeatureSpec((wind, Column("age"), Column("ill")))
    same_rows = Sketch.fit(plain.encode(table), features=plain)
    assert_allclose(sketch.log_density(X), same_rows.log_density(plain.encode(table)), rtol=1e-9)


# -- draws -------------------------------------------------------------------------------------


def test_draws_have_the_moments_of_the_rows(rng):
    X = clustered(rng, 20_000)
    drawn = Sketch.fit(X).draw(N_DRAWS)
    cov = np.cov(X.T)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(drawn.mean(axis=0) - X.mean(axis=0)) < 4 * sd / np.sqrt(N_DRAWS))
    error = 5 * np.outer(sd, sd) * np.sqrt(2 / N_DRAWS) + 2e-3 * np.outer(sd, sd)
    assert np.all(np.abs(np.cov(drawn.T) - cov) < error)


def test_draws_have_the_shape_of_the_rows(rng):
    X = clustered(rng, 20_000, d=2)
    drawn = Sketch.fit(X).draw(20_000)
    for direction in rng.normal(size=(10, 2)):
        assert stats.ks_2samp(X @ direction, drawn @ direction).statistic < 0.025


def test_levels_are_as_frequent_as_in_the_rows_and_depend_on_the_numbers_alike(rows):
    drawn = Sketch.fit(rows).draw(N_DRAWS)
    for old in (False, True):
        some, like_them = (X[(X[:, 0] > 50) == old] for X in (rows, drawn))
        frequency = some[:, 2:5].mean(axis=0)
        error = np.sqrt(0.25 / len(some) + 0.25 / len(like_them))
        assert np.all(np.abs(like_them[:, 2:5].mean(axis=0) - frequency) < 4 * error)


def test_draws_are_possible_rows(rows):
    drawn = Sketch.fit(rows).draw(5000)
    assert drawn.shape == (5000, 6)
    assert set(map(tuple, drawn[:, 3:5])) == {(0, 0), (1, 0), (0, 1)}
    assert set(drawn[:, 2]) == {0, 1}
    assert_array_equal(drawn[:, 1], np.rint(drawn[:, 1]))
    assert drawn[:, 1].min() == 0 and drawn[:, 0].min() >= 0
    assert_array_equal(drawn[:, 5], 0.1)


def test_draws_depend_on_the_seed_alone(rows):
    sketch = Sketch.fit(rows)
    assert_array_equal(sketch.draw(50), sketch.draw(50))
    assert_array_equal(sketch.draw(50, 3), sketch.draw(50, 3))
    assert not np.array_equal(sketch.draw(50, 1), sketch.draw(50, 2))
    assert sketch.draw(0).shape == (0, 6)


# -- densities ---------------------------------------------------------------------------------


def test_the_density_of_numbers_is_that_of_scikit_learn(rng):
    X = clustered(rng, G=3)
    sketch = Sketch.fit(X)
    theirs = GaussianMixture(len(sketch.weight))
    theirs.weights_, theirs.means_, theirs.covariances_ = sketch.weight, sketch.mean, sketch.cov
    precision = np.linalg.cholesky(np.linalg.inv(sketch.cov))
    theirs.precisions_cholesky_ = precision
    new = 3 * rng.normal(size=(200, 3))
    assert_allclose(sketch.log_density(new), theirs.score_samples(new), rtol=1e-9)


def test_the_density_sums_to_one(rng):
    X = mixed(rng, 2000)[:, [0, 2, 3, 4]]
    sketch = Sketch.fit(X)
    age = np.linspace(-50, 200, 4001)
    total = 0.0
    for ill in (0, 1):
        for dummies in ((0, 0), (1, 0), (0, 1)):
            at = np.column_stack([age, *(np.full(len(age), v) for v in (ill, *dummies))])
            total += np.trapezoid(np.exp(sketch.log_density(at)), age)
    assert total == pytest.approx(1, rel=1e-8)


def test_the_density_is_the_sum_over_components(rows):
    sketch = Sketch.fit(rows)
    assert len(sketch.weight) > 1
    expected = np.zeros((len(rows), len(sketch.weight)))
    for g, weight in enumerate(sketch.weight):
        normal = stats.multivariate_normal(sketch.mean[g], sketch.cov[g])
        expected[:, g] = np.log(weight) + normal.logpdf(rows[:, :2])
        for columns, prob in zip(sketch.categories, sketch.prob, strict=True):
            levels = rows[:, columns] @ np.arange(1, len(columns) + 1)
            expected[:, g] += np.log(prob[g][levels.astype(int)])
    assert_allclose(sketch.log_density(rows), special.logsumexp(expected, axis=1), rtol=1e-10)


def test_levels_that_no_row_has_are_impossible_until_smoothed(rows):
    wind = Column("wind", "category", ("a", "b", "c", "d"))
    spec = FeatureSpec((Column("age"), wind))
    X = np.column_stack([rows[:, [0, 3, 4]], np.zeros(len(rows))])
    sketch, never = Sketch.fit(X, features=spec), [[50.0, 0.0, 0.0, 1.0]]
    assert sketch.log_density(np.array(never)) == -np.inf
    (smooth,) = comparable([sketch], np.ones(1))
    assert -20 < smooth.log_density(np.array(never)) < smooth.log_density(X).min() + 10


def test_far_away_the_density_is_small_but_a_number(rows):
    sketches = comparable([Sketch.fit(rows), Sketch.fit(rows[:300])], np.ones(2))
    for sketch in sketches:
        for far in (1e3, 1e30, 1e200, 1e308, -1e308):
            found = sketch.log_density(np.full((2, 6), far))
            assert np.all(np.isfinite(found)) and np.all(found < -100)


# -- sites side by side ------------------------------------------------------------------------


def site_shares(sites, X, n=None):
    """Return lambda_m(x), (n, M)."""
    weight = np.array([len(rows) for rows in sites]) if n is None else np.asarray(n)
    sketches = comparable([Sketch.fit(rows) for rows in sites], weight)
    densities = np.column_stack([s.log_density(X) for s in sketches])
    return special.softmax(densities + np.log(weight), axis=1)


def test_shares_of_a_level_are_the_shares_of_its_rows():
    def column(zeros, ones):
        return np.repeat([0.0, 1.0], [zeros, ones])[:, None]

    sites = [column(300, 100), column(400, 0), column(0, 200)]
    found = site_shares(sites, np.array([[0.0], [1.0]]))
    # One unit away from a constant the density is e^-pi; its site has no say there anyway.
    expected = np.array([[300, 400, 200 * np.exp(-np.pi)], [100, 400 * np.exp(-np.pi), 200]])
    assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), atol=1e-3)


def test_shares_of_a_whole_number_are_the_shares_of_its_rows(rng):
    years = np.rint(rng.normal(2020, 3, 10_000))[:, None]
    constant = np.full((500, 1), 2020.0)
    for year in (2017, 2020, 2021):
        found = site_shares([years, constant], np.array([[float(year)]]))[0, 1]
        rows = 500 * (year == 2020)
        assert found == pytest.approx(rows / (rows + np.sum(years == year)), abs=0.03)


def test_a_number_that_is_constant_at_one_site_is_its_own_there(rng):
    varied, constant = rng.normal(size=(500, 2)), rng.normal(size=(500, 2))
    constant[:, 1] = 0.3
    at = np.array([[0.0, 0.3], [0.0, 0.8], [0.0, -2.0]])
    found = site_shares([varied, constant], at)[:, 1]
    assert found[0] > 0.9 and np.all(found[1:] < 1e-6)
    nobody = site_shares([constant, constant], at)
    assert_allclose(nobody, 0.5, rtol=1e-12)


def test_smoothing_adds_the_same_variance_everywhere(rng):
    a, b = Sketch.fit(clustered(rng, 500)), Sketch.fit(clustered(rng, 500))
    smooth = comparable([a, b], np.array([1.0, 3.0]))
    pooled = np.vstack([a.draw(10_000, 1), b.draw(30_000, 2)])
    for sketch, found in zip((a, b), smooth, strict=True):
        added = found.cov - sketch.cov
        expected = np.broadcast_to(np.diag(pooled.var(axis=0)), added.shape)
        assert_allclose(1e3 * added, expected, rtol=0.05, atol=1e-9)
