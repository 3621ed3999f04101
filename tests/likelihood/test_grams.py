"""Grams: what they are, how they travel, and what pooling by them gives."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import messages, part_of, random_model, random_rows, responsibilities, with_ones
from refusals import refused
from scipy import special

from otmoe import LocalModel, aggregate, simulate
from otmoe.likelihood.fit import em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows

pytestmark = pytest.mark.filterwarnings("ignore:aggregate:UserWarning")


def curvature(model, X, y):
    """Return minus the second derivative of log phi in the predictors, (n, K, Q, Q), variance 1."""
    X, coef = with_ones(X), model.experts.coef
    if model.experts.family == "student_t":  # of EM's weights, times the squared scale
        square = (y[:, None] - X @ coef.T) ** 2
        return (4.5 / (5 + square / model.experts.phi))[..., None, None]
    if hasattr(model.experts, "phi"):
        mean, y, r = np.exp(X @ coef.T), y[:, None], 1 / model.experts.phi
        gamma = model.experts.family == "gamma"
        value = r * y / mean if gamma else r * mean * (r + y) / (r + mean) ** 2
        return value[..., None, None]
    if model.experts.family == "gaussian":
        return np.ones((len(X), len(coef), 1, 1))
    if model.experts.family == "multinomial":
        prob = special.softmax(np.einsum("np,kcp->nkc", X, coef), axis=-1)[..., :-1]
        return prob[..., None] * (np.eye(prob.shape[-1]) - prob[..., None, :])
    eta = X @ coef.T
    mean = np.exp(eta) if model.experts.family == "poisson" else special.expit(eta)
    value = mean if model.experts.family == "poisson" else mean * (1 - mean)
    return value[..., None, None]


def message_of(fit, X, y, site="a", weight=None):
    return replace(LocalModel.from_fit(fit, site), grams=Grams.of(fit.model, Rows(X, y, weight)))


# -- what they are -----------------------------------------------------------------------------


def test_grams_by_brute_force(rng, family):
    model = random_model(rng, 3, 2, family=family)
    X, y = random_rows(rng, model, 50)
    weight = rng.uniform(0.5, 2, 50)
    found = Grams.of(model, Rows(X, y, weight))
    r = responsibilities(model, X, y) * weight[:, None]
    Z = with_ones(X)
    expected = np.einsum("nk,nkab,ni,nj->kaibj", r, curvature(model, X, y), Z, Z)
    assert_allclose(found.counts, r.sum(axis=0), rtol=1e-12)
    assert_allclose(found.matrices, expected.reshape(found.matrices.shape), rtol=1e-9, atol=1e-9)


def test_grams_travel_to_the_last_bit(rng, family):
    model = random_model(rng, 3, 2, family=family)
    (sent,) = messages([model])
    assert sent.grams is not None
    found = LocalModel.from_json(sent.to_json())
    assert_array_equal(found.grams.counts, sent.grams.counts)
    upper = np.triu_indices(sent.grams.matrices.shape[-1])
    for a, b in zip(found.grams.matrices, sent.grams.matrices, strict=True):
        assert_array_equal(a[upper], b[upper])
        assert_array_equal(a, a.T)


def test_a_message_without_grams_has_no_such_field(rng):
    (sent,) = messages([random_model(rng)])
    assert "grams" not in replace(sent, grams=None).to_json()


C = [60.0, 40.0]


@pytest.mark.parametrize(
    ("counts", "triangles", "problem", "facts"),
    [
        ([60.0], [[1.0] * 6] * 2, "length grams.counts", {"length": 1, "wanted": 2}),
        ([60.0, 40.0], [[1.0] * 6], "length grams.triangles", {"length": 1, "wanted": 2}),
        ([-60.0, 160.0], [[1.0] * 6] * 2, "not_rows grams.counts[0]", {"value": -60.0}),
        ([60.0, 41.0], [[1.0] * 6] * 2, "sum_not_rows grams.counts", {"total": 101, "rows": 100}),
        (C, [[1.0] * 6, [1.0] * 5], "triangle grams.triangles[1]", {"length": 5, "wanted": 6}),
        ([60.0, 40.0], [[1.0] * 6, [1.0, 2, 0, 1, 0, 1]], "not_a_gram grams.triangles[1]", {}),
        ([60.0, 40.0], [[-1.0, 0, 0, 1, 0, 1], [1.0] * 6], "not_a_gram grams.triangles[0]", {}),
        (C, [[1e30] * 6, [1.0, 0, 0, 1e30, 1e30, 1]], "not_a_gram grams.triangles[1]", {}),
    ],
)
def test_grams_that_cannot_be_are_refused(rng, counts, triangles, problem, facts):
    (sent,) = messages([random_model(rng)], [100.0])
    document = sent.document() | {"grams": {"counts": counts, "triangles": triangles}}
    with refused(problem, where="lyon.json", **facts):
        LocalModel.from_json(json.dumps(document), "lyon.json")


# -- pooling -----------------------------------------------------------------------------------


def test_one_gaussian_expert_is_pooled_least_squares(rng):
    X = rng.normal(size=(300, 3)) * [1, 5, 0.1] + [0, 100, 3]
    y = X @ [1.0, -2.0, 3.0] + rng.normal(size=300)
    weight = rng.uniform(0.2, 3, 300)
    cuts = [slice(0, 40), slice(40, 150), slice(150, 300)]
    sent = [
        message_of(em(X[s], y[s], 1, sample_weight=weight[s]), X[s], y[s], f"{i}", weight[s])
        for i, s in enumerate(cuts)
    ]
    found = aggregate(sent, X, method="gram").model.experts
    Z = with_ones(X)
    beta = np.linalg.solve(Z.T @ (weight[:, None] * Z), Z.T @ (weight * y))
    assert_allclose(found.coef[0], beta, rtol=1e-8, atol=1e-8)
    assert_allclose(found.var[0], np.average((y - Z @ beta) ** 2, weights=weight), rtol=1e-8)


def test_a_column_that_is_constant_at_a_site_does_no_harm(rng):
    X = rng.normal(size=(300, 2))
    X[:100, 1] = 1.0
    X[100:200, 1] = -2.0
    y = X @ [1.0, -2.0] + rng.normal(size=300)
    cuts = [slice(0, 100), slice(100, 200), slice(200, 300)]
    sent = [message_of(em(X[s], y[s], 1), X[s], y[s], f"{i}") for i, s in enumerate(cuts)]
    found = aggregate(sent, X, method="gram").model.experts
    assert_allclose(found.coef[0], np.linalg.lstsq(with_ones(X), y)[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("family", ["logistic", "poisson", "multinomial"])
def test_one_expert_is_close_to_pooled_maximum_likelihood(rng, family):
    # First-order: within a fraction of a standard error, where the plain mean is far away.
    data = simulate(6000, 1, 2, family=family, n_classes=3, softness=1.0, random_state=3)
    order = np.argsort(data.X[:, 0])  # every site sees x of its own
    X, y = data.X[order], data.y[order]
    options = {"family": family, "n_classes": 3, "expert_alpha": 0.0, "random_state": 0}
    cuts = [slice(i * 2000, (i + 1) * 2000) for i in range(3)]
    fits = [em(X[s], y[s], 1, **options) for s in cuts]
    sent = [
        message_of(f, X[s], y[s], f"{i}") for i, (f, s) in enumerate(zip(fits, cuts, strict=True))
    ]
    pooled = em(X, y, 1, **options).model
    (information,) = Grams.of(pooled, Rows(X, y)).matrices

    def distance(experts):
        gap = (experts.to_vector() - pooled.experts.to_vector())[: len(information)]
        return np.sqrt(gap @ information @ gap)

    vectors = [f.model.experts.to_vector() for f in fits]
    mean = fits[0].model.experts.with_vector(np.mean(vectors, axis=0))
    found = aggregate(sent, X[::10], method="gram").model.experts
    assert distance(found) < 1 < 3 < distance(mean)


def test_one_site_returns_itself(rng, family):
    data = simulate(2000, 2, 2, family=family, n_classes=3, softness=1.0, random_state=1)
    fit = em(data.X, data.y, 2, family=family, n_classes=3, random_state=0)
    (found,) = [aggregate([message_of(fit, data.X, data.y)], data.X[:300], method="gram").model]
    found = found.aligned_to(fit.model, data.X)
    assert_allclose(found.to_vector(), fit.model.to_vector(), rtol=1e-6)


def test_two_halves_are_a_site_and_weights_given_stand_in_for_rows(rng, family):
    model = random_model(rng, 2, 2, family=family)
    models = [model, model.with_vector(model.to_vector() + 0.1)]
    X = rng.normal(size=(200, 2))
    a, b = messages(models, [300.0, 100.0])
    heavy = replace(b, n_samples=300.0, grams=Grams(3 * b.grams.counts, 3 * b.grams.matrices))

    def merged(sent, **options):
        return aggregate(sent, X, method="gram", **options).model.to_vector()

    halves = merged([part_of(a, 0.25, "x"), b, part_of(a, 0.75, "y")])
    assert_allclose(halves, merged([a, b]), rtol=1e-9, atol=1e-12)
    assert_allclose(merged([a, b], site_weight=[1, 1]), merged([a, heavy]), rtol=1e-9, atol=1e-12)


def test_unequal_numbers_of_experts_pool_into_the_nearest(rng):
    data = simulate(4000, 2, 2, softness=0.5, random_state=2)
    cuts = [slice(0, 2000), slice(2000, 4000)]
    sent = []
    for i, (s, K) in enumerate(zip(cuts, (2, 3), strict=True)):
        fit = em(data.X[s], data.y[s], K, random_state=0)
        sent.append(message_of(fit, data.X[s], data.y[s], f"{i}"))
    result = aggregate(sent, data.X[:500], n_experts=2, method="gram")
    assert result.status.code == "pooled_by_grams"
    assert result.status.facts["gate"].code == "gate_unequal"
    pooled = em(data.X, data.y, 2, random_state=0).model
    found = result.model.aligned_to(pooled, data.X)
    # The third expert of the second site has few rows or rows of one of the two: little is lost.
    assert np.abs(found.experts.coef - pooled.experts.coef).max() < 0.1


def test_a_site_without_grams_is_named(rng):
    a, b = messages([random_model(rng) for _ in range(2)])
    with refused("no_grams", site="site 1"):
        aggregate([a, replace(b, grams=None)], rng.normal(size=(50, 2)), method="gram")


def test_gram_is_closer_to_the_pooled_fit_than_the_reduction():
    # Thirty-two sites of 500 rows, nearly hard gates.
    data = simulate(16_000, 3, 4, random_state=0)
    pooled = em(data.X, data.y, 3, random_state=0).model
    sent = []
    for i, rows in enumerate(np.array_split(np.arange(len(data.y)), 32)):
        X, y = data.X[rows], data.y[rows]
        sent.append(message_of(em(X, y, 3, init=pooled), X, y, f"{i}"))
    error = {}
    for method in ("reduction", "gram"):
        found = aggregate(sent, data.X[:2000], method=method).model.aligned_to(pooled, data.X)
        error[method] = [
            np.mean((found.experts.coef - pooled.experts.coef) ** 2),
            np.mean((found.gate.centred - pooled.gate.centred) ** 2),
        ]
    assert error["gram"][0] < 0.1 * error["reduction"][0]
    assert error["gram"][1] < 0.8 * error["reduction"][1]
