"""What a model's parameters rest on, against loops over the rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import random_model

from otmoe import FeatureSpec, MoERegressor, simulate
from otmoe.data.columns import Column
from otmoe.federation.policy.figures import figures_of
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Rows

FAMILIES = [
    "gaussian",
    "logistic",
    "multinomial",
    "poisson",
    "negative_binomial",
    "gamma",
    "student_t",
]


def drawn(family, n=150, seed=0):
    """Return rows of which two features are dummies, and a model that need not be fitted."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1, 3, 1, 1] + [0, 50, 0, 0]
    X[:, 2:] = X[:, 2:] > [0.3, 1.2]
    model = random_model(rng, 3, 4, family=family)
    gate, experts = model.gate.coef.copy(), model.experts.coef.copy()
    gate[:, 0] -= 50 * gate[:, 2]
    experts[..., 0] -= 50 * experts[..., 2]
    model = type(model)(type(model.gate)(gate), type(model.experts)(experts, *_var(model)))
    y, _ = model.sample(X, rng)
    return X, y, model, rng.integers(0, 3, n).astype(float)


def _var(model):
    return () if model.experts.dispersion is None else (model.experts.dispersion,)


def curvature(model, X, y, k, q):
    """Return minus the second derivative in an expert's predictor at every row, (n,)."""
    D = np.column_stack([np.ones(len(X)), X])
    coef = model.experts.coef[k]
    family = model.experts.family
    if family == "gaussian":
        return np.full(len(X), 1 / model.experts.var[k])
    if family == "poisson":
        return np.exp(D @ coef)
    if family == "student_t":  # three quarters of EM's weights
        return 4.5 / (5 * model.experts.phi[k] + (y - D @ coef) ** 2)
    if family in ("negative_binomial", "gamma"):
        mean, r = np.exp(D @ coef), 1 / model.experts.phi[k]
        return r * y / mean if family == "gamma" else r * mean * (r + y) / (r + mean) ** 2
    if family == "logistic":
        p = 1 / (1 + np.exp(-D @ coef))
        return p * (1 - p)
    odds = np.exp(D @ coef.T)
    p = (odds / odds.sum(axis=1, keepdims=True))[:, q]
    return p * (1 - p)


def leverages(model, X, y, weight):
    """Yield the hat values of all rows, by expert and predictor."""
    D = np.column_stack([np.ones(len(X)), X])
    r = model.responsibilities(X, y)
    for k in range(model.n_experts):
        for q in range(model.experts.n_linear):
            w = weight * r[:, k] * curvature(model, X, y, k, q)
            G = sum(wi * np.outer(x, x) for wi, x in zip(w, D, strict=True))
            yield k, w, D, np.linalg.inv(G)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weighted", [False, True])
def test_leverage_and_mass_are_those_of_loops(family, weighted):
    X, y, model, weight = drawn(family)
    found = figures_of(model, Rows(X, y, weight if weighted else None))
    weight = weight if weighted else np.ones(len(y))
    h = {}
    for k, w, D, inverse in leverages(model, X, y, weight):
        values = [wi * x @ inverse @ x for wi, x in zip(w, D, strict=True)]
        h[k] = max(h.get(k, 0.0), *values)
    assert_allclose(found.leverage, max(h.values()), rtol=1e-7)
    assert h[found.leverage_expert] == max(h.values())
    on = weight > 0
    assert found.rows == on.sum()
    assert_allclose(found.expert_rows, model.responsibilities(X, y)[on].sum(axis=0))
    assert found.parameters == model.n_parameters == len(found.curvature)


@pytest.mark.parametrize("family", FAMILIES)
def test_people_are_counted_in_place_of_rows(family):
    X, y, model, _ = drawn(family)
    ids = np.array([f"p{i}" for i in np.random.default_rng(1).integers(0, 40, len(y))])
    found = figures_of(model, Rows(X, y), ids=ids)
    people = np.unique(ids)
    assert found.people and found.rows == len(people)
    r = model.responsibilities(X, y)
    assert_allclose(found.expert_rows, sum(r[ids == g].max(axis=0) for g in people))
    worst = 0.0
    for _, w, D, inverse in leverages(model, X, y, np.ones(len(y))):
        for g in people:
            own = (D[ids == g] * w[ids == g, None]).T @ D[ids == g]
            values = np.linalg.eigvals(inverse @ own).real
            worst = max(worst, values.max() if (ids == g).sum() > 1 else values.sum())
    # where the sum of a person's leverages is small, that bound is taken
    assert worst * (1 - 1e-7) <= found.leverage <= max(worst, 0.5) * (1 + 1e-7)
    alone = figures_of(model, Rows(X, y), ids=np.arange(len(y)))
    rows = figures_of(model, Rows(X, y))
    assert_allclose(alone.leverage, rows.leverage)
    assert_allclose(alone.expert_rows, rows.expert_rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_smallest_cell_is_that_of_loops(family):
    X, y, model, _ = drawn(family)
    found = figures_of(model, Rows(X, y)).cell
    r = np.column_stack([model.responsibilities(X, y), np.ones(len(y))])
    labels = np.unique(y) if model.experts.classifies else [None]
    cells = {}
    for j in (2, 3):
        for has in (True, False):
            for k in range(4):
                for label in labels:
                    mine = (X[:, j] == has) & ((y == label) if label is not None else True)
                    part = r[mine, k]
                    if part.sum() >= 0.5:
                        name = "" if label is None else str(int(label))
                        key = (f"x{j}", has, k if k < 3 else -1, name)
                        cells[key] = part.sum() ** 2 / (part**2).sum()
    least = min(cells, key=cells.get)
    assert (found.term, found.has, found.expert, found.label) == least
    assert_allclose(found.rows, cells[least])


def test_reference_levels_are_counted():
    spec = FeatureSpec((Column("age"), Column("wind", "category", ("N", "S", "E"), reference="E")))
    wind = np.repeat(["N", "S", "E"], [60, 37, 3])
    X = spec.encode({"age": np.random.default_rng(0).normal(size=100), "wind": wind})
    fit = em(X, X[:, 0] + np.random.default_rng(1).normal(size=100), 1)
    found = figures_of(fit.model, Rows(X, X[:, 0]), features=spec)
    assert found.levels == {"wind=N": 60, "wind=S": 37, "wind=E": 3}
    assert (found.cell.term, found.cell.rows, found.cell.has) == ("wind=E", 3.0, True)
    assert figures_of(fit.model, Rows(X, X[:, 0])).cell.rows == 37  # nobody says what belongs
    first = FeatureSpec((Column("wind", "category", ("N", "S")),))
    fit = em(first.encode({"wind": wind[:97]}), np.arange(97.0), 1)
    found = figures_of(
        fit.model, Rows(first.encode({"wind": wind[:97]}), np.zeros(97)), features=first
    )
    assert found.levels == {"wind=S": 37, "wind=N": 60}


def test_certainty_is_of_the_standard_deviation_or_of_the_deviance():
    data = simulate(400, 2, 2, random_state=0)
    fit = em(data.X, data.y, 2, random_state=0)
    found = figures_of(fit.model, Rows(data.X, data.y))
    residual = np.sqrt(np.mean((data.y - fit.model.predict(data.X)) ** 2))
    assert_allclose(found.certainty, 1 - residual / data.y.std())
    coin = np.random.default_rng(0).random(400) < 0.3
    fit = em(data.X, coin.astype(float), 1, family="logistic")
    found = figures_of(fit.model, Rows(data.X, coin.astype(float)))
    p = coin.mean()
    null = 400 * (p * np.log(p) + (1 - p) * np.log(1 - p))
    assert_allclose(found.certainty, 1 - fit.log_likelihood / null)


def test_a_response_that_never_varies_is_known():
    data = simulate(100, 1, 2, random_state=0)
    fit = em(data.X, np.zeros(100), 1, family="logistic")
    assert figures_of(fit.model, Rows(data.X, np.zeros(100))).certainty == 1.0


def test_an_expert_that_fits_its_rows_exactly_is_known():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    y = np.where(X[:, 0] > 0, 2 * X[:, 0] + 1, rng.normal(size=200) * 3)
    fit = em(X, y, 2, random_state=0)
    found = figures_of(fit.model, Rows(X, y))
    assert np.min(fit.model.experts.var) < 1e-4 and found.certainty == 1.0


def test_rows_that_determine_no_coefficient_have_all_the_leverage():
    """As many rows as coefficients, fewer, and a column that is constant beside them."""
    rng = np.random.default_rng(0)
    for n in (3, 5):
        X = np.column_stack([rng.normal(size=(n, 4)), np.full(n, 7.0)])
        fit = em(X, rng.normal(size=n), 1)
        assert_allclose(figures_of(fit.model, Rows(X, np.zeros(n))).leverage, 1.0, rtol=1e-6)


def test_a_coefficient_that_experts_have_in_common_counts_once():
    data = simulate(300, 2, 2, random_state=0)
    model = MoERegressor(2, common=[0], random_state=0).fit(data.X, data.y).model_
    figures = figures_of(model, Rows(data.X, data.y))
    assert figures.parameters == model.n_free == model.n_parameters - 1
