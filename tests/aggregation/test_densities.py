"""Laws of merging densities, and of the choice by what the sites' own models expect."""

from dataclasses import replace

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from oracles import gap, log_density, nearby, random_model
from oracles import messages as with_grams
from refusals import refused
from scipy import special

from otmoe import MoEClassifier, aggregate, draw_support, simulate
from otmoe.aggregation import curvature, densities
from otmoe.aggregation.covariates import (
    MOST_COVARIATES,
    PER_PARAMETER,
    Sampler,
    SiteCovariates,
    places,
    sizes,
)
from otmoe.aggregation.expected import pseudo_rows
from otmoe.aggregation.gram import coefficients
from otmoe.aggregation.problem import prepare
from otmoe.data.sketch import Sketch
from otmoe.likelihood.fit import em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import RowPasses
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

pytestmark = pytest.mark.filterwarnings("ignore:aggregate:UserWarning")

WEIGHT = np.array([300.0, 100.0, 200.0])


@pytest.fixture(params=list(FAMILIES))
def family(request):
    return request.param


@pytest.fixture
def exact(monkeypatch):
    """Have merging go on to the last digit, so that laws can be seen."""
    monkeypatch.setattr(densities, "_TOL", 1e-14)
    monkeypatch.setattr(densities, "_MAX_ITER", 1000)
    monkeypatch.setattr(curvature, "_SHORT", 0.0)


def sites_around(rng, family, n_experts=2, noise=0.1):
    truth = random_model(rng, n_experts, 2, family=family)
    return [nearby(rng, truth, noise) for _ in WEIGHT]


def covariates_of(rng, shift=0.5):
    """Return covariates of three sites, each in a place of its own."""
    return {f"site {m}": rng.normal(m * shift, 1.0, size=(80 + 20 * m, 2)) for m in range(3)}


def messages(models, weight):
    """Return messages without Grams: made-up ones would not fit to the covariates."""
    return [replace(message, grams=None) for message in with_grams(models, weight)]


def as_expected(sent, X, n_experts=2, less=0.0):
    """Return messages with the Grams that their models expect at what is fitted to, or less.

    Features count less by shares that depend on the expert, wherever it stands in its model.
    """
    problem = prepare(sent, X, n_experts)
    found = []
    for message, u in zip(problem.messages, problem.which, strict=True):
        model, at = problem.fitted_places[u]
        Z = np.column_stack([np.ones(len(at.X)), at.X])
        share = np.asarray(model.gate.prob(Z)) * at.weight[:, None]
        grams = Grams.expected(model.experts, Z, share * message.n_samples / at.weight.sum())
        kept = 1 - less * np.cos(40 * coefficients(model.experts)) ** 2
        kept[:, :: Z.shape[1]] = 1.0  # the intercept counts rows
        matrices = kept[:, :, None] * grams.matrices * kept[:, None, :]
        found.append(replace(message, grams=Grams(grams.counts, matrices)))
    return found


def expected(models, weight, covariates, model, family):
    """Return what models expect of another one, by the quadrature of the textbook's densities."""
    total = 0.0
    law = FAMILIES[family]
    for own, w, X in zip(models, weight, covariates.values(), strict=True):
        Z = np.column_stack([np.ones(len(X)), X])
        y, prob = law.quadrature(own.experts, Z)  # (G, n, K)
        gate = np.asarray(own.gate.prob(Z))
        values = np.empty_like(y)
        for g in range(len(y)):
            for k in range(own.n_experts):
                values[g, :, k] = np.maximum(log_density(model, X, y[g, :, k]), -1e4)
        total += w * np.mean(np.einsum("gnk,nk->n", prob * values, gate))
    return total / np.sum(weight)


# -- pseudo-rows -----------------------------------------------------------------------------


def test_losses_are_divergences(rng, family):
    models, X = sites_around(rng, family, noise=0.3), covariates_of(rng)
    at = [
        SiteCovariates(x, np.full(len(x), w / len(x)))
        for x, w in zip(X.values(), WEIGHT, strict=True)
    ]
    rows = pseudo_rows(models, at)
    assert_allclose(np.bincount(rows.site, np.add.reduceat(rows.weight, rows.start[:-1])), WEIGHT)
    other = random_model(rng, 3, 2, family=family)
    own = sum(
        w * expected([m], [1.0], {"": x}, m, family)
        for m, w, x in zip(models, WEIGHT, X.values(), strict=True)
    )
    there = expected(models, WEIGHT, X, other, family) * WEIGHT.sum()
    assert_allclose(rows.losses(other, 3) @ WEIGHT, own - there, rtol=2e-3)
    for m, model in enumerate(models):
        lost = rows.losses(model, 3)
        assert abs(lost[m]) < 1e-12 and np.all(np.delete(lost, m) > 0)


def test_a_narrow_expert_beside_a_wide_one_is_seen(rng):
    experts = GaussianExperts(np.array([[0.0, 1.0], [0.3, 0.5]]), np.array([0.01, 9.0]))
    model = MoE(SoftmaxGate(np.array([[0.2, 0.1], [0.0, 0.0]])), experts)
    wider = replace(model, experts=replace(experts, var=np.array([0.02, 9.0])))
    X = rng.normal(size=(200, 1))
    lost = pseudo_rows([model], [SiteCovariates(X, np.ones(200))]).losses(wider, 1)[0]
    y = np.concatenate([np.arange(-12, -3, 0.05), np.arange(-3, 3, 1e-3), np.arange(3, 12, 0.05)])
    exact = 0.0
    for x in X:
        here = np.tile(x, (len(y), 1))
        own, there = model.log_density(here, y), wider.log_density(here, y)
        exact += np.trapezoid(np.exp(own) * (own - there), y) / 200
    assert_allclose(lost, exact, rtol=0.03)


def test_a_few_nodes_serve_as_well_as_the_grid(rng):
    models = [random_model(rng, 3, 2) for _ in WEIGHT]
    at = [SiteCovariates(rng.normal(size=(2000, 2)), np.full(2000, w / 2000)) for w in WEIGHT]
    grid, few = pseudo_rows(models, at), pseudo_rows(models, at, seed=0)
    assert len(few) < 0.5 * len(grid)
    for rows in (grid, few):
        shares = np.add.reduceat(rows.weight, rows.start[:-1])
        assert_allclose(shares, np.concatenate([part.weight for part in at]))
    for other in (nearby(rng, models[0], 0.3), random_model(rng, 2, 2)):
        assert_allclose(few.losses(other, 3), grid.losses(other, 3), rtol=0.02)


def test_nodes_have_the_moments_of_their_expert(rng):
    experts = random_model(rng, 2, 2).experts
    eta = rng.normal(size=(500, 2))
    weight = rng.uniform(0.25, 1.0, size=(500, 2))
    copies, y, share = experts.nodes(eta, np.where([True, False], weight, 0.0), rng)
    begin = np.append(0, np.cumsum(copies)[:-1])
    mean, var = weight[:, 0] * eta[:, 0], weight[:, 0] * (eta[:, 0] ** 2 + experts.var[0])
    for moment, known in enumerate((weight[:, 0], mean, var)):
        assert_allclose(np.add.reduceat(share * y**moment, begin), known, atol=1e-9)


def test_thinning_keeps_the_weight(rng):
    models, X = sites_around(rng, "gaussian"), covariates_of(rng)
    at = [SiteCovariates(x, np.full(len(x), 1.0)) for x in X.values()]
    rows = pseudo_rows(models, at)
    some = rows.thinned(3)
    assert len(some.X) == len(rows.X[::3]) and len(some) == some.start[-1] < len(rows)
    assert_allclose(some.total_weight, rows.total_weight)
    for i in range(0, len(some.X), 7):
        mine = slice(some.start[i], some.start[i + 1])
        theirs = slice(rows.start[3 * i], rows.start[3 * i + 1])
        assert_array_equal(some.y[mine], rows.y[theirs])
        assert_array_equal(some.own[mine], rows.own[theirs])


# -- the model ---------------------------------------------------------------------------------


def test_no_neighbour_is_more_likely(rng, family, exact):
    models, X = sites_around(rng, family), covariates_of(rng)
    problem = prepare(messages(models, WEIGHT), X, 2)
    rows = problem.expected_rows
    found = densities.kl(problem, rng)
    assert found.converged and np.all(np.diff(found.trace) <= 1e-12)
    best = rows.losses(found.model, 3) @ problem.weight
    assert_allclose(best, found.trace[-1], atol=1e-6)  # but for what holds experts
    best += prior_per_row(problem, found.model)
    theta = found.model.to_vector()
    for _ in range(20):
        step = 1e-3 * rng.normal(size=len(theta))
        other = found.model.with_vector(theta + step)
        assert rows.losses(other, 3) @ problem.weight + prior_per_row(problem, other) > best


def prior_of(problem):
    """Return the prior that merging counts: that of the fit of all rows, if it holds experts."""
    prior = Ridge.of(problem.models[0].experts)
    return prior if prior.experts else Ridge(0.0, 0.0)


def prior_per_row(problem, model):
    at = problem.expected_rows.scaling.from_user(model)
    theta = at.to_vector()
    return 0.5 * theta @ prior_of(problem).matrix(at) @ theta / problem.n_rows


def test_it_is_em_on_weighted_rows(rng, family, exact):
    models, X = sites_around(rng, family), covariates_of(rng)
    problem = prepare(messages(models, WEIGHT), X, 2)
    rows, found = problem.expected_rows, densities.kl(problem, rng).model
    copies = np.repeat(rows.X, np.diff(rows.start), axis=0)
    n_classes = 3 if family == "multinomial" else 2
    prior, share = prior_of(problem), rows.total_weight / problem.n_rows
    alphas = {"alpha": prior.gate * share, "expert_alpha": prior.experts * share}
    options = {"family": family, "n_classes": n_classes, **alphas}
    fit = em(copies, rows.y, init=found, sample_weight=rows.weight, tol=1e-14, **options)
    assert_allclose(fit.trace[-1], fit.trace[0], rtol=1e-8)


def test_steps_by_the_curvature_of_some_rows_end_at_the_maximum_of_all(rng, exact, monkeypatch):
    models, X = sites_around(rng, "gaussian", noise=0.3), covariates_of(rng)
    rows = prepare(messages(models, WEIGHT), X, 2).expected_rows
    whole = densities.nearest_model(rows, models[0])
    monkeypatch.setattr(densities, "_LEAD", 4)
    monkeypatch.setattr(densities, "_SECANTS", 200)
    some = densities.nearest_model(rows, models[0])
    assert some.converged
    assert_allclose(some.log_likelihood, whole.log_likelihood, rtol=1e-7)


# -- with Grams --------------------------------------------------------------------------------


def test_expected_grams_are_those_of_pseudo_rows(rng, family):
    model, X = random_model(rng, 2, 2, family=family), rng.normal(size=(60, 2))
    rows = pseudo_rows([model], [SiteCovariates(X, np.ones(60))])
    copies = np.repeat(rows.X, np.diff(rows.start), axis=0)
    found = Grams.of(model, Rows(copies, rows.y, rows.weight))
    Z = np.column_stack([np.ones(60), X])
    known = Grams.expected(model.experts, Z, np.asarray(model.gate.prob(Z)))
    assert_allclose(known.counts, found.counts, rtol=1e-3)
    assert_allclose(known.matrices, found.matrices, rtol=1e-3, atol=1e-2)


def test_grams_tell_what_covariates_left_out_would_have(rng, exact):
    parts = [rng.normal(size=(400, 2)) * [1.0, 1.0 + m] for m in range(3)]
    ys = [X @ [1.0, -1.0] + rng.normal(size=400) for X in parts]
    fits = [em(X, y, 1) for X, y in zip(parts, ys, strict=True)]
    plain = messages([fit.model for fit in fits], [400.0] * 3)
    sent = [
        replace(message, grams=Grams.of(message.model, Rows(X, y)))
        for message, X, y in zip(plain, parts, ys, strict=True)
    ]
    few = {f"site {m}": X[:40] for m, X in enumerate(parts)}
    pooled = aggregate(sent, few, method="gram").model.experts  # least squares of all rows

    def away(messages):
        found = aggregate(messages, few, method="kl").model.experts
        return np.abs(found.coef - pooled.coef).max()

    assert away(sent) < 0.5 * away(plain)


def test_grams_as_expected_change_nothing(rng, family, exact):
    models, X = sites_around(rng, family), covariates_of(rng)
    first = aggregate(messages(models, WEIGHT), X, 2, method="kl").model
    other = aggregate(as_expected(messages(models, WEIGHT), X), X, 2, method="kl").model
    assert gap(first, other) < 1e-8


@pytest.fixture
def case(rng, family):
    """Return a problem with Grams, its pseudo-rows, and their most likely model and information."""
    models, X = sites_around(rng, family), covariates_of(rng)
    problem = prepare(as_expected(messages(models, WEIGHT), X, less=0.3), X, 2)
    rows = problem.expected_rows
    run = densities.nearest_model(rows, models[0])
    return problem, rows, run.model, run.information.matrix


def test_slopes_are_those_of_what_the_sites_lack(case):
    problem, rows, model, _ = case
    sent = {id(message.model): message for message in problem.messages}

    def lacking(vector):
        """Return the second term of the objective of maths 17; experts are in the same order."""
        there = rows.scaling.to_user(model.with_vector(vector)).experts
        total = 0.0
        for own, at in problem.fitted_places:
            Z = np.column_stack([np.ones(len(at.X)), at.X])
            share = np.asarray(own.gate.prob(Z)) * at.weight[:, None]
            surplus = sent[id(own)].grams.matrices - Grams.expected(own.experts, Z, share).matrices
            away = coefficients(there) - coefficients(own.experts)
            form = np.einsum("ki,kij,kj->k", away, surplus, away)
            total -= 0.5 * np.sum(form / there.coef_unit**2)
        return total

    found = curvature.Differences.of(problem, rows, model)
    theta, h = model.to_vector(), 1e-5
    slope = [(lacking(theta + e) - lacking(theta - e)) / (2 * h) for e in h * np.eye(len(theta))]
    slope = np.array(slope[-model.experts.n_parameters :])
    assert_allclose(found.slope.ravel(), slope[: found.slope.size], rtol=1e-5, atol=1e-5)
    if model.experts.has_scale:
        assert_allclose(0.5 * found.spread, slope[found.slope.size :], rtol=1e-5, atol=1e-5)


def test_the_share_of_what_is_known_is_that_of_rows(rng):
    X = rng.normal(size=(500, 2))
    model = random_model(rng, 2, 2)
    y = model.sample(X, rng)[0]
    rows = Rows(X, y)
    Z, r = np.column_stack([np.ones(500), X]), model.responsibilities(X, y)
    complete = np.einsum("nk,ni,nj->kij", r, Z, Z) / model.experts.var[:, None, None]
    matrix = RowPasses(rows).information(model).matrix
    found = curvature.Differences(np.zeros((2, 3)), np.zeros(2), complete).known(matrix, 3)
    for k in range(2):  # Louis: what is known is what there would be, less the variance of scores
        e = (y - Z @ model.experts.coef[k]) / model.experts.var[k]
        missing = np.einsum("n,ni,nj->ij", r[:, k] * (1 - r[:, k]) * e**2, Z, Z)
        known = np.trace(np.linalg.solve(complete[k], complete[k] - missing)) / 3
        assert 0 < known < 1
        assert_allclose(found[k], known, rtol=1e-8)


def test_experts_that_are_told_apart_have_all_information(rng):
    X = {f"site {m}": rng.normal(size=(60, 2)) for m in range(3)}
    models = [random_model(rng, 1, 2) for _ in WEIGHT]
    problem = prepare(as_expected(messages(models, WEIGHT), X, 1), X, 1)
    run = densities.nearest_model(problem.expected_rows, models[0])
    found = curvature.Differences.of(problem, problem.expected_rows, run.model)
    assert_allclose(found.known(run.information.matrix, 0), 1.0, rtol=1e-6)


def test_a_long_step_is_shortened(case):
    problem, rows, model, matrix = case
    step, squared = curvature.Differences.of(problem, rows, model).step(model, matrix)

    def walked(longest, short=np.inf, factor=1.0, agree=np.inf):
        with pytest.MonkeyPatch.context() as patch:
            for name, bound in (("_LONGEST", longest), ("_SHORT", short), ("_AGREE", agree)):
                patch.setattr(curvature, name, bound * squared / len(step))
            there, nats = curvature.corrected(problem, rows, model, factor * matrix)
        return there.to_vector() - model.to_vector(), 2 * problem.n_rows * nats / squared

    went, cost = walked(np.inf)
    assert_allclose(went, step, rtol=1e-9, atol=1e-12)
    assert_allclose(cost, 1.0)
    whole, _ = walked(np.inf, short=0.0)
    for longest, share in ((0.25, 0.5), (0.01, 0.1)):
        went, cost = walked(longest, short=0.0)
        assert_allclose(went / np.linalg.norm(went), whole / np.linalg.norm(whole), atol=1e-9)
        assert_allclose(cost, share**2)
    went, cost = walked(np.inf, short=0.0, agree=0.9)  # too far
    assert cost == 0 and not went.any()
    # a step that is not short is made by the information itself, whatever came with it
    assert_array_equal(walked(np.inf, short=0.0, factor=2.0)[0], whole)
    assert np.abs(walked(np.inf, factor=2.0)[0] - step).max() > 0.1 * np.abs(step).max()


def test_grams_of_sites_that_differ_change_nothing(rng, exact):
    truth, X = random_model(rng, 2, 2), covariates_of(rng)

    def moved(n):
        sent = messages([nearby(np.random.default_rng(m), truth, 0.1) for m in range(3)], [n] * 3)
        both = (prepare(some, X, 2) for some in (sent, as_expected(sent, X, less=0.5)))
        first, other = (densities.kl(problem, np.random.default_rng(0)) for problem in both)
        return gap(first.model, other.model), other.stepped

    distance, nats = moved(400.0)
    assert distance > 1e-5 and nats > 0
    assert moved(4e6) == (0.0, 0.0)  # chance never is that large


def test_one_gaussian_expert_is_pooled_least_squares(rng, exact):
    models = [random_model(rng, 1, 2) for _ in WEIGHT]
    X = covariates_of(rng)
    found = aggregate(messages(models, WEIGHT), X, method="kl").model.experts
    G, v, n = np.zeros((3, 3)), np.zeros(3), WEIGHT.sum()
    grams = []
    for model, w, x in zip(models, WEIGHT, X.values(), strict=True):
        rest = len(x) // 10  # they judge
        Z = np.column_stack([np.ones(len(x)), x])
        kept = prepare(messages(models, WEIGHT), X, 1).expected_rows
        Z = Z[[np.any(np.all(np.isclose(kept.X, row[1:]), axis=1)) for row in Z]]
        assert len(Z) >= len(x) - max(rest, 25)
        grams.append(w * Z.T @ Z / len(Z))
        G, v = G + grams[-1], v + grams[-1] @ model.experts.coef[0]
    coef = np.linalg.solve(G, v)
    spread = sum(
        w * model.experts.var[0]
        + (model.experts.coef[0] - coef) @ g @ (model.experts.coef[0] - coef)
        for model, w, g in zip(models, WEIGHT, grams, strict=True)
    )
    assert_allclose(found.coef[0], coef, rtol=2e-3, atol=2e-3)
    assert_allclose(found.var[0], spread / n, rtol=2e-3)


def test_one_logistic_expert_is_a_weighted_regression(rng, exact):
    models = [random_model(rng, 2, 2, family="logistic") for _ in WEIGHT]
    X = covariates_of(rng)
    problem = prepare(messages(models, WEIGHT), X, 1)
    rows = problem.expected_rows
    found = rows.scaling.from_user(densities.one_expert(problem).model)
    Z = (rows.X - rows.scaling.x_center) / rows.scaling.x_scale
    Z = np.repeat(np.column_stack([np.ones(len(Z)), Z]), np.diff(rows.start), axis=0)
    prior = prior_of(problem).matrix(found) * rows.total_weight / problem.n_rows
    theta = np.zeros(3)
    for _ in range(20):  # Newton's method
        mean = special.expit(Z @ theta)
        score = Z.T @ (rows.weight * (rows.y - mean)) - prior @ theta
        theta += np.linalg.solve((Z.T * rows.weight * mean * (1 - mean)) @ Z + prior, score)
    assert_allclose(found.experts.coef[0], theta, rtol=1e-6)


@pytest.mark.parametrize("method", ["kl", "auto"])
def test_one_site_returns_itself(rng, family, method):
    model, X = random_model(rng, 3, 2, family=family), rng.normal(size=(200, 2))
    for support in (X, {"site 0": X}):
        found = aggregate(messages([model], [50.0]), support, method=method)
        assert gap(found.model.aligned_to(model, X), model) < 1e-8
        assert abs(found.lost) < 1e-12 and not found.warnings


@pytest.mark.parametrize("less", [None, 0.3], ids=["without Grams", "with Grams"])
def test_order_halves_and_labels_do_not_matter(rng, family, less, exact):
    models, X = sites_around(rng, family), covariates_of(rng)
    everywhere = np.concatenate(list(X.values()))

    def merged(models, weight, X, names=None):
        sent = messages(models, weight)
        if names is not None:
            sent = [replace(m, site=name) for m, name in zip(sent, names, strict=True)]
        if less is not None:
            sent = as_expected(sent, X, less=less)
        return aggregate(sent, X, 2, method="kl").model

    first = merged(models, WEIGHT, X)
    names = [f"site {m}" for m in (2, 0, 1)]
    other = merged([models[m] for m in (2, 0, 1)], WEIGHT[[2, 0, 1]], X, names)
    assert gap(other.aligned_to(first, everywhere), first) < 1e-5
    flipped = [model.take([1, 0]) for model in models]
    other = merged(flipped, WEIGHT, X)
    assert gap(other.aligned_to(first, everywhere), first) < 1e-5
    common = everywhere[::2]
    first = merged(models, WEIGHT, common)
    halves = [*models, models[2]]
    other = merged(halves, [*WEIGHT[:2], 50.0, 150.0], common)
    assert gap(other.aligned_to(first, everywhere), first) < 1e-8


def test_numbers_of_experts_may_differ(rng, family):
    models = [random_model(rng, K, 2, family=family) for K in (1, 3, 2)]
    result = aggregate(messages(models, WEIGHT), covariates_of(rng), 2, method="kl")
    assert result.model.n_experts == 2 and np.all([s.lost >= 0 for s in result.sites])


def test_a_feature_that_never_varied_at_a_site_is_learnt_from_the_others(rng, exact):
    truth = random_model(rng, 1, 2)
    there = nearby(rng, truth, 0.0)
    blind = replace(
        there, experts=replace(there.experts, coef=there.experts.coef * [1.0, 1.0, 0.0])
    )
    sent = messages([truth, blind], [200.0, 200.0])
    sent[1] = replace(sent[1], constant={"x1": 0.0})
    X = {"site 0": rng.normal(size=(300, 2)), "site 1": rng.normal(size=(300, 2)) * [1.0, 0.0]}
    for support in (X, np.concatenate(list(X.values()))):
        found = aggregate(sent, support, method="kl").model
        assert gap(found, truth) < 0.01


# -- the choice --------------------------------------------------------------------------------


def test_the_server_takes_what_is_expected_to_lose_least(rng, family):
    X = covariates_of(rng)
    sent = as_expected(messages(sites_around(rng, family, noise=0.5), WEIGHT), X)
    result = aggregate(sent, X)
    lost = [candidate.lost for candidate in result.candidates]
    assert lost == sorted(lost) and len({c.method for c in result.candidates}) == len(lost)
    assert {c.method for c in result.candidates} == {"reduction", "gram", "kl", "one_expert"}
    (taken,) = [c for c in result.candidates if c.method == result.method]
    assert taken.n_experts == result.model.n_experts
    chance = result.model.n_parameters / (2 * WEIGHT.sum())
    assert taken.lost - lost[0] <= 0.05 * chance * (1 + 1e-9)
    assert_allclose(result.lost, taken.lost)
    assert result.status.code == "chosen" and result.status.facts["method"] == result.method
    alone = aggregate(sent, covariates_of(np.random.default_rng(5)), method="reduction")
    assert alone.candidates == () and alone.lost > 0


def test_without_grams_there_is_no_such_candidate(rng):
    sent = [replace(m, grams=None) for m in messages(sites_around(rng, "gaussian"), WEIGHT)]
    result = aggregate(sent, covariates_of(rng))
    assert "gram" not in {c.method for c in result.candidates}


def test_sites_that_differ_are_named(rng):
    truth = random_model(rng, 2, 2)
    moved = replace(truth, experts=replace(truth.experts, coef=truth.experts.coef + [2.0, 0, 0]))
    X = {f"site {m}": rng.normal(size=(300, 2)) for m in range(4)}
    sent = messages([nearby(rng, truth, 0.01) for _ in range(3)] + [moved], [900.0] * 4)
    result = aggregate(sent, X)
    (told,) = [w for w in result.warnings if w.code == "sites_differ"]
    assert told.sites[0] == "site 3" and result.sites[3].lost == max(s.lost for s in result.sites)
    same = aggregate(messages([nearby(rng, truth, 0.01) for _ in range(4)], [900.0] * 4), X)
    assert "sites_differ" not in {w.code for w in same.warnings}


def test_labels_that_are_skewed_between_sites_do_no_harm():
    """Each site has mostly two or three of seven classes, and covariates of its own."""
    data = simulate(1, 2, 4, family="multinomial", n_classes=7, random_state=0)
    rng = np.random.default_rng(0)
    X, y, site = [], [], []
    for m in range(4):
        x = data.draw_x(6000, rng) + 0.5 * rng.normal(size=4)
        label = data.truth.sample(x, rng)[0]
        rare = rng.random(len(x)) < np.where(np.isin(label, [m, m + 1, (m + 4) % 7]), 1.0, 0.1)
        X.append(x[rare]), y.append(label[rare]), site.append(np.full(rare.sum(), m))
    X, y, site = map(np.concatenate, (X, y, site))
    test = rng.random(len(y)) < 0.3
    classes = np.arange(7)

    def loss(model):
        return -np.mean(np.log(model.predict(X[test])[np.arange(test.sum()), y[test].astype(int)]))

    fits = [
        MoEClassifier(1, classes=classes, random_state=0).fit(X[here], y[here])
        for here in ((site == m) & ~test for m in range(4))
    ]
    sent = [fit.to_message(f"site {m}") for m, fit in enumerate(fits)]
    support = {f"site {m}": X[(site == m) & ~test] for m in range(4)}
    pooled = MoEClassifier(1, classes=classes, random_state=0).fit(X[~test], y[~test])
    merged = aggregate(sent, support)
    assert loss(merged.model) < loss(pooled.model_) + 0.01
    assert loss(aggregate(sent, support, method="reduction").model) > loss(merged.model) + 0.02


# -- covariates --------------------------------------------------------------------------------


def test_covariates_by_site_may_come_in_several_ways(rng, exact):
    models, X = sites_around(rng, "gaussian"), covariates_of(rng)
    sent = messages(models, WEIGHT)
    first = aggregate(sent, X, method="kl").model
    by_place = draw_support(list(X.values()), 100, site_weight=WEIGHT)
    assert gap(aggregate(sent, by_place, method="kl").model, first) < 0.05
    brought = [replace(m, support=x) for m, x in zip(sent, X.values(), strict=True)]
    assert gap(aggregate(brought, method="kl").model, first) < 0.05
    some = {name: X[name] for name in ("site 0", "site 2")}  # the other looks at what there is
    assert aggregate(sent, some, method="kl").sites[1].lost >= 0
    refused("support_unknown_sites", names=["Nice"]).by(aggregate, sent, {**X, "Nice": X["site 0"]})
    refused("support_missing").by(aggregate, sent, {})


def test_rows_come_before_draws_and_some_are_kept_to_judge_by(rng):
    X = rng.normal(size=(1000, 2))
    fit, fresh = Sampler(X).drawn(400, 100, rng)
    rows = {tuple(row) for row in X}
    assert len(fit) == 400 and len(fresh) == 100
    assert len({tuple(r) for r in np.concatenate([fit, fresh])} & rows) == 500
    fit, fresh = Sampler(X).drawn(5000, 500, rng)
    assert len(fit) == 900 and len(fresh) == 100
    fit, fresh = Sampler(X[:50]).drawn(5000, 500, rng)  # too few to be divided
    assert len(fit) == 50 and len(fresh) == 50
    fit, fresh = Sampler(X, Sketch.fit(X)).drawn(1500, 500, rng)
    assert len(fit) == 1500 and len(fresh) == 500
    assert sum(tuple(row) in rows for row in fit) == 1000
    assert Sampler().is_empty and not Sampler(X).is_empty


def test_enough_covariates_and_never_too_many():
    assert sizes(100, 4, 20.0, 1e6)[0] == PER_PARAMETER * 100
    fit, fresh = sizes(100, 4096, 20.0, 1e6)
    assert 4096 * fit <= 4 * MOST_COVARIATES and fresh >= 25
    assert sizes(100, 64, 1000.0, 1e6)[0] < sizes(100, 64, 10.0, 1e6)[0]
    assert sizes(100, 64, 100.0, 1e4)[0] < sizes(100, 64, 100.0, 1e6)[0]


def test_common_points_serve_sites_of_which_nothing_is_known(rng):
    models, X = sites_around(rng, "gaussian"), rng.normal(size=(500, 2))
    problem = prepare(messages(models, WEIGHT), X, 2)
    found = places(problem.samplers, problem.ensemble.gate, X, 100, 50, rng)
    for part in (found.fit, found.fresh):
        for at, weight in zip(part, WEIGHT.sum() * problem.weight, strict=True):
            assert_allclose(at.weight.sum(), weight)
        assert len({tuple(row) for at in part for row in at.X}) == 3 * len(part[0].X)
    assert len(found.fit[0].X) == 100 and len(found.fresh[0].X) == 50
    all_of_them = places(problem.samplers, problem.ensemble.gate, X, 500, 50, rng)
    assert_array_equal(all_of_them.fit[0].X, all_of_them.fit[1].X)


def test_a_site_of_which_nothing_is_known_has_the_weight_of_its_rows(rng):
    some = {f"site {m}": x for m, x in enumerate(rng.normal(size=(2, 300, 2)))}
    rows = prepare(messages(sites_around(rng, "gaussian"), WEIGHT), some, 2).expected_rows
    site = np.repeat(rows.site, np.diff(rows.start))
    assert_allclose(sorted(np.bincount(site, rows.weight)), sorted(WEIGHT))


@pytest.mark.slow
def test_hard_gates_of_many_shards_are_nearly_as_good_as_pooled():
    data = simulate(30_000, 4, 20, random_state=1)
    parts = np.array_split(np.arange(30_000), 30)
    fits = [em(data.X[p], data.y[p], init=data.truth, alpha=1e-3) for p in parts]
    sent = messages([fit.model for fit in fits], [1000.0] * 30)
    X = {f"site {m}": data.X[p] for m, p in enumerate(parts)}
    pooled = em(data.X, data.y, init=data.truth).model
    y = data.truth.sample(data.X, np.random.default_rng(0))[0]

    def below(model):
        return np.mean(data.truth.log_density(data.X, y) - model.log_density(data.X, y))

    one_round = below(aggregate(sent, X).model)
    assert one_round < 3 * below(pooled)
    assert one_round < below(aggregate(sent, X, method="reduction").model)
