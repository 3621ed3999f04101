from dataclasses import replace

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose
from oracles import (
    gate_objective,
    jacobian,
    least_squares,
    nearby,
    never_falls,
    penalised_log_likelihood,
    random_model,
    random_rows,
    responsibilities,
    with_ones,
)

from otmoe.likelihood.iterations import run_em, run_newton
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import RowPasses, e_step, m_step
from otmoe.model.ridge import Ridge


@pytest.fixture(params=list(FAMILIES))
def model(request, rng):
    return random_model(rng, 3, 2, family=request.param)


@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_an_iteration_is_least_squares_and_one_newton_step(rng, columns):
    model = random_model(rng, 3, 2, columns)
    X, y = random_rows(rng, model)
    weight, alpha = rng.uniform(0, 2, len(y)), 0.3
    moved = m_step(model, e_step(model, Rows(X, y, weight)), Ridge(alpha, 0.0))
    target = responsibilities(model, X, y) * weight[:, None]
    D = with_ones(X)
    for k in range(3):
        coef, var = least_squares(D, y, target[:, k])
        assert_allclose(moved.experts.coef[k], coef, rtol=1e-9)
        assert_allclose(moved.experts.var[k], var, rtol=1e-9)
    G, v = D if columns is None else D[:, columns], model.gate.to_vector()
    hessian = jacobian(lambda u: gate_objective(u, G, target, alpha)[1], v)
    newton = v - np.linalg.solve(hessian, gate_objective(v, G, target, alpha)[1])
    assert_allclose(moved.gate.to_vector(), newton, rtol=1e-6)


def test_statistics_add_up_over_shards(rng, model):
    X, y = random_rows(rng, model)
    weight = rng.uniform(0, 2, len(y))
    whole = e_step(model, Rows(X, y, weight))
    parts = [e_step(model, Rows(X[s], y[s], weight[s])) for s in (slice(70), slice(70, None))]
    moved, expected = (m_step(model, s, Ridge(0.1, 0.2)) for s in (parts[0] + parts[1], whole))
    assert_allclose(moved.to_vector(), expected.to_vector(), rtol=1e-8)


@pytest.mark.parametrize("walk", [run_em, run_newton])
def test_a_run_never_falls_and_reports_the_point_it_returns(rng, model, walk):
    X, y = random_rows(rng, model)
    rows = Rows(X, y).standardised(model.experts)[0]
    start, seen = rows.scaling.from_user(nearby(rng, model, 1.0)), []
    how = {"max_iter": 15, "tol": 1e-9, "report": lambda *args: seen.append(args)}
    run = walk(RowPasses(rows), start, ridge=Ridge(0.2, 0.4), **how)
    assert len(run.trace) > 3 and never_falls(run.trace)
    assert seen == list(enumerate(run.trace))[1:]
    found = rows.scaling.to_user(run.model)
    expected = penalised_log_likelihood(found, X, y, 0.2, expert_alpha=0.4)
    assert_allclose(run.trace[-1] + rows.log_base(model.experts), expected, rtol=1e-10)
    assert_allclose(run.mass, responsibilities(found, X, y).sum(axis=0), rtol=1e-8)


def test_newton_ends_where_em_is_heading(rng, model):
    X, y = random_rows(rng, model, n=500)
    rows = Rows(X, y).standardised(model.experts)[0]
    passes, ridge = RowPasses(rows), Ridge(1.0, 0.0)
    start = run_em(passes, rows.scaling.from_user(model), ridge=ridge, max_iter=100).model
    slow = run_em(passes, start, ridge=ridge, max_iter=20_000, tol=1e-11)
    fast = run_newton(passes, start, ridge=ridge, max_iter=50, tol=1e-12)
    assert slow.converged and fast.converged and len(fast.trace) < len(slow.trace) / 5
    assert_allclose(fast.trace[-1], slow.trace[-1], rtol=1e-8)
    assert fast.decrement < 1e-12


def test_a_gate_that_overshoots_is_pulled_back(rng):
    model = random_model(rng, 2, 2)
    X, y = random_rows(rng, model, n=500)
    wrong = replace(model, gate=model.gate.with_vector(-20 * model.gate.to_vector()))
    right, pulled = (
        run_em(RowPasses(Rows(X, y)), start, ridge=Ridge(0.01, 0.0), max_iter=500, tol=1e-9)
        for start in (model, wrong)
    )
    assert np.diff(pulled.trace).min() >= 0
    assert_allclose(pulled.trace[-1], right.trace[-1], atol=1e-3)


def test_rounding_at_the_maximum_is_not_taken_for_progress(rng, model):
    X, y = random_rows(rng, model)
    rows = Rows(X, y)
    top = run_newton(RowPasses(rows), model, ridge=Ridge(1.0, 0.0), max_iter=100, tol=1e-14).model
    run = run_em(RowPasses(rows), top, ridge=Ridge(1.0, 0.0), max_iter=300, tol=0.0)
    assert np.diff(run.trace).min(initial=0) >= 0
