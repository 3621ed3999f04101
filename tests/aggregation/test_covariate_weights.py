"""Weights of sites that depend on x: laws, and what they are worth under covariate shift."""

from dataclasses import replace

import array_api_strict as strict
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    gap,
    log_density,
    message,
    nearby,
    part_of,
    random_model,
    source_costs,
    with_ones,
)
from refusals import refused
from scipy import special

from otmoe import MoERegressor, Policy, Sketch, aggregate, simulate
from otmoe.aggregation import METHODS
from otmoe.aggregation.methods import reduction
from otmoe.aggregation.problem import prepare
from otmoe.aggregation.sources import Budget
from otmoe.arrays.threads import threads
from otmoe.data.sketch import comparable
from otmoe.model.ensemble import pool

pytestmark = pytest.mark.filterwarnings("ignore:aggregate:UserWarning")

AVERAGES = ("weighted_average", "aligned_average", "gram", "median", "trimmed", "krum")
OTHERS = sorted(set(METHODS) - set(AVERAGES))
N = np.array([300.0, 100.0, 600.0])
CENTERS = np.array([[-1.5, 0.0], [0.0, 1.0], [1.5, 0.0]])


@pytest.fixture
def rows(rng):
    """Rows of three sites, each around another centre."""
    return [center + rng.normal(size=(300, 2)) for center in CENTERS]


@pytest.fixture
def sent(rng, rows):
    """Messages of three sites that nearly agree on a model of two experts."""
    truth = random_model(rng)
    models = [nearby(rng, truth, 0.05) for _ in rows]
    return [
        message(model, f"site {m}", n, sketch=Sketch.fit(X))
        for m, (model, n, X) in enumerate(zip(models, N, rows, strict=True))
    ]


@pytest.fixture
def support(rows):
    return np.vstack([X[:60] for X in rows])


def shares(messages, X):
    """Return lambda_m(x), (n, M), from the densities of the sketches."""
    n = np.array([m.n_samples for m in messages])
    sketches = comparable([m.sketch for m in messages], n)
    joint = np.log(n) + np.column_stack([sketch.log_density(X) for sketch in sketches])
    return special.softmax(joint, axis=1)


def merged(messages, support, **options):
    return aggregate(messages, support, site_weight="covariate", **options)


# -- the ensemble ------------------------------------------------------------------------------


def test_a_site_counts_where_its_rows_are(sent):
    density = np.exp(-np.sum((CENTERS[:, None] - CENTERS[None]) ** 2, axis=2) / 2)
    exact = N * density
    assert_allclose(shares(sent, CENTERS), exact / exact.sum(axis=1, keepdims=True), atol=0.05)


def test_the_ensemble_weighs_the_sites_at_every_new_row(rng, sent, support):
    model = merged(sent, support, method="ensemble").model
    new = 3 * rng.normal(size=(50, 2))
    y = rng.normal(size=50)
    share = shares(sent, new)
    each = [np.log(share[:, m]) + log_density(s.model, new, y) for m, s in enumerate(sent)]
    assert_allclose(model.log_density(new, y), special.logsumexp(each, axis=0), rtol=1e-9)
    mean = sum(share[:, m] * s.model.predict(new) for m, s in enumerate(sent))
    assert_allclose(model.predict(new), mean, rtol=1e-9)


def test_far_from_everybody_the_weights_are_numbers(sent, support):
    gate = merged(sent, support, method="ensemble").model.gate
    for far in (1e2, 1e6, 1e60, 1e200):
        prob = gate.site_prob(with_ones(np.array([[far, 0.0], [-far, 0.0], [0.0, far]])))
        assert np.all(np.isfinite(prob))
        assert_allclose(prob.sum(axis=1), 1, rtol=1e-12)


def test_other_array_libraries_give_the_same(sent, support):
    model = merged(sent, support, method="ensemble").model
    found = model.gate_prob(strict.asarray(support))
    assert type(found) is type(strict.asarray(support))
    assert_allclose(np.asarray(found), model.gate_prob(support), rtol=1e-10, atol=1e-14)
    same = merged(sent, strict.asarray(support), method="middle").model
    assert gap(same, merged(sent, support, method="middle").model) < 1e-9


# -- laws of aggregates ------------------------------------------------------------------------


def parameters(result, support):
    """Return what a model is made of; of an ensemble, its gate at the support points."""
    if result.method == "ensemble":
        return result.model.gate.prob(with_ones(support))
    return result.model.to_vector()


@pytest.mark.parametrize("method", OTHERS)
def test_neither_the_order_of_the_sites_nor_a_site_in_two_halves_matters(sent, support, method):
    whole, again = (merged(sites, support, method=method) for sites in (sent, sent[::-1]))
    assert_array_equal(parameters(again, support), parameters(whole, support))
    assert [r.weight for r in whole.sites] == [r.weight for r in again.sites[::-1]]
    halves = [part_of(sent[0], 2 / 3, "a"), *sent[1:], part_of(sent[0], 1 / 3, "b")]
    split = merged(halves, support, method=method)
    tight = {"rtol": 0 if method == "ensemble" else 1e-12}
    assert_allclose(parameters(split, support), parameters(whole, support), **tight)
    weight = [record.weight for record in split.sites]
    assert_allclose([weight[0] + weight[3], *weight[1:3]], [r.weight for r in whole.sites])
    assert weight[0] == pytest.approx(2 * weight[3])


@pytest.mark.parametrize("method", OTHERS)
def test_one_site_returns_itself(sent, support, method):
    result = merged(sent[:1], support, method=method)
    if method == "ensemble":
        assert_array_equal(result.model.gate_prob(support), sent[0].model.gate_prob(support))
    else:
        assert gap(result.model.aligned_to(sent[0].model, support), sent[0].model) < 1e-6
    assert result.sites[0].weight == 1.0


@pytest.mark.parametrize("method", OTHERS)
def test_equal_sketches_are_constant_weights(sent, support, method):
    equal = [replace(m, sketch=sent[0].sketch) for m in sent]
    if method == "kl":  # which takes no step by Grams where weights depend on x
        equal = [replace(m, grams=None) for m in equal]
    by_sketch, constant = (
        aggregate(equal, support, site_weight=weight, method=method)
        for weight in ("covariate", None)
    )
    X = with_ones(support)
    gates = [prepare(equal, support, site_weight=w).ensemble.gate for w in ("covariate", None)]
    assert_allclose(*(np.broadcast_to(g.site_prob(X), (len(X), 3)) for g in gates), atol=1e-12)
    if method == "auto":  # which has no candidate by Grams where weights depend on x
        return
    if method == "ensemble":
        assert_allclose(by_sketch.model.predict(support), constant.model.predict(support))
    else:
        assert gap(by_sketch.model, constant.model) < 1e-6
    for a, b in zip(by_sketch.sites, constant.sites, strict=True):
        assert a.weight == pytest.approx(b.weight, rel=1e-12)


@pytest.mark.parametrize("method", AVERAGES)
def test_averages_refuse(sent, support, method):
    refused("average_by_covariate").by(merged, sent, support, method=method)


def test_the_cost_is_the_relaxed_divergence_of_the_weighted_experts(sent, support):
    result = merged(sent, support)
    share = shares(sent, support)
    gates = [special.softmax(with_ones(support) @ m.model.gate.coef.T, axis=1) for m in sent]
    mass = np.hstack([share[:, [m]] * gate for m, gate in enumerate(gates)])
    costs = source_costs([m.model for m in sent], result.model.experts, support)
    assert_allclose(result.cost, np.mean(np.sum(mass * costs.min(axis=2), axis=1)), rtol=1e-9)


def test_the_records_give_the_mean_weight(sent, support):
    result = merged(sent, support)
    expected = shares(sent, support).mean(axis=0)
    assert_allclose([record.weight for record in result.sites], expected, rtol=1e-9)
    assert_allclose(result.mass.sum(), 1, rtol=1e-12)


def prepared(sent, support, pool=None, **budget):
    """Return the problem with a budget of its own."""
    known = prepare(sent, support, site_weight="covariate", pool_of_threads=pool)
    return replace(known, sources=replace(known.sources, budget=Budget(**budget)))


def test_weights_are_the_same_whether_kept_or_not(sent, support):
    kept, other = prepared(sent, support), prepared(sent, support, keep=1)
    assert kept.sources._site_weights.ndim == 2 and other.sources._site_weights.ndim == 1
    a, b = (reduction(known, np.random.default_rng(0)) for known in (kept, other))
    assert gap(a.model, b.model) < 1e-9
    assert_allclose(a.trace, b.trace, rtol=1e-9)


def test_cells_of_some_sites_have_the_weights_of_all(sent, support):
    for keep in (2**24, 1):
        found = prepared(sent, support, group=2, keep=keep).sources
        assert len(found._groups) == 3
        mass = found.ensemble.gate.prob(with_ones(support)).mean(axis=0)
        assert_allclose(found.mass, mass, rtol=1e-10)


@pytest.mark.parametrize("keep", [2**24, 1])
def test_threads_change_nothing(sent, support, keep):
    found = []
    for n_jobs in (1, 2):
        with threads(n_jobs) as workers:
            known = prepared(sent, np.tile(support, (3, 1)), workers, keep=keep, cell=1)
            found.append(reduction(known, np.random.default_rng(0)).model.to_vector())
    assert_array_equal(*found)


# -- with features that do not vary ------------------------------------------------------------


def test_constant_features_and_sketches_go_together(rng):
    treated = (rng.random(300) < 0.5).astype(float)
    varied = np.column_stack([rng.normal(size=300), treated])
    never = np.column_stack([rng.normal(size=200), np.zeros(200)])
    sites = [
        message(random_model(rng), "varied", 300.0, sketch=Sketch.fit(varied)),
        message(random_model(rng), "never", 200.0, sketch=Sketch.fit(never), constant={"x1": 0.0}),
    ]
    gate = prepare(sites, varied, site_weight="covariate").ensemble.gate
    first = 0 if gate.constant[0] == {} else 1
    prob = gate.site_prob(with_ones(varied))[:, first]
    assert_array_equal(prob[treated == 1], 1.0)
    zero = 300 * np.mean(treated == 0)
    assert np.mean(prob[treated == 0]) == pytest.approx(zero / (zero + 200), abs=0.05)
    nowhere = pool([s.model for s in sites], N[:2], [{1: 0.0}, {1: 0.0}], gate.density).gate
    assert np.all(nowhere.site_prob(with_ones(varied)) > 0)  # where nobody has a say, all have


# -- mistakes ----------------------------------------------------------------------------------


PAIR = {"site": "site 1", "other": "site 0"}


@pytest.mark.parametrize(
    ("change", "weight", "code", "facts"),
    [
        ({"sketch": None}, "covariate", "no_sketches", {"sites": ["site 1"]}),
        ({}, "sketch", "weight_unknown", {"value": "sketch"}),
        ({"units": {0: (1.0, 2.0)}}, "covariate", "sketch_units", PAIR),
    ],
)
def test_a_mistake_is_named(sent, support, change, weight, code, facts):
    if "units" in change:
        change = {"sketch": replace(sent[1].sketch, **change)}
    sites = [sent[0], replace(sent[1], **change), sent[2]]
    refused(code, **facts).by(aggregate, sites, support, site_weight=weight)


# -- what they are worth -----------------------------------------------------------------------


def gate_error(model, truth, X):
    """Return the mean over x of the squared distance of gate probabilities, experts paired."""
    prob = model.aligned_to(truth, X).gate_prob(X)
    return np.mean(np.sum((prob - truth.gate_prob(X)) ** 2, axis=1))


def shifted(data, rng, region, n=2000):
    """Draw rows of a site that are in one region of x, but for one in twenty."""
    home = replace(data, centers=data.centers[[region]])
    X = np.vstack([home.draw_x(n - n // 20, rng), data.draw_x(n // 20, rng)])
    return X, data.truth.sample(X, rng)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [0, 1])
def test_under_covariate_shift_the_gate_is_twice_as_good(seed):
    data = simulate(1, 4, 10, softness=1.0, random_state=seed)
    rng = np.random.default_rng(seed)
    sites = []
    for m in range(8):
        X, y = shifted(data, rng, m % 4)
        est = MoERegressor(4, random_state=0).fit(X, y)
        sites.append(est.to_message(f"site {m}", X, sketch=True, policy=Policy.off()))
    X = data.draw_x(5000, rng)
    constant, covariate = (
        gate_error(aggregate(sites, site_weight=weight, method="reduction").model, data.truth, X)
        for weight in (None, "covariate")
    )
    assert covariate <= 0.5 * constant
    assert gate_error(aggregate(sites, method="kl").model, data.truth, X) <= 0.5 * constant
