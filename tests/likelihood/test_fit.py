import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    jacobian,
    log_likelihood,
    maximum_likelihood,
    never_falls,
    penalised_log_likelihood,
    random_model,
    random_rows,
    responsibilities,
)
from refusals import codes
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_info

from otmoe import MoE, MoERegressor, simulate
from otmoe.arrays import numerics
from otmoe.arrays.threads import threads
from otmoe.likelihood.checks import degeneracies
from otmoe.likelihood.fit import em
from otmoe.model.experts import GaussianExperts
from otmoe.text.notices import Notice
from otmoe.text.sentences import Status, Warn

CLASSES = {"n_classes": 3}  # of the multinomial family in families.py


@pytest.fixture(params=list(FAMILIES))
def family(request):
    return request.param


def problem(seed, family="gaussian", n_experts=3, columns=None, n=300):
    """Return a model, rows from it and unequal weights."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, n_experts, 2, columns, family)
    X, y = random_rows(rng, model, n)
    return model, X, y, rng.uniform(0.2, 2, n)


def same_model(fit, expected, X, tol=1e-6):
    """Assert that a fit has these parameters, up to the numbering of its experts."""
    found = fit.model.aligned_to(expected, X)
    assert_allclose(found.gate.coef, expected.gate.coef, rtol=tol, atol=tol)
    assert_allclose(found.experts.to_vector(), expected.experts.to_vector(), rtol=tol, atol=tol)


def same_path(one, other):
    """Assert that two fits took the same steps; rounding may end one of them a step earlier."""
    steps = min(len(one.trace), len(other.trace))
    assert max(len(one.trace), len(other.trace)) <= steps + 1
    assert_allclose(one.trace[:steps], other.trace[:steps], rtol=1e-10)


# -- the objective -----------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [None, (0, 2)])
@pytest.mark.parametrize("alpha", [0.0, 0.03, 3.0])
def test_the_trace_never_falls_and_ends_at_the_model(family, columns, alpha):
    model, X, y, weight = problem(0, family, columns=columns)
    for init in (None, model):  # a search has the last steps to go, any other start all of them
        fit = em(
            X, y, 3, family=family, init=init, gate_columns=columns, alpha=alpha, n_init=2,
            sample_weight=weight, random_state=0, **CLASSES,
        )  # fmt: skip
        assert fit.n_iter > (3 if init else -1) and never_falls(fit.trace)
        found = penalised_log_likelihood(fit.model, X, y, alpha, weight)
        assert_allclose(fit.trace[-1], found, rtol=1e-10)
        assert_allclose(fit.log_likelihood, log_likelihood(fit.model, X, y, weight), rtol=1e-10)
        assert_allclose(fit.mass, weight @ responsibilities(fit.model, X, y), rtol=1e-6)
        assert np.all(np.diff(fit.mass) <= 0)
        assert_allclose(fit.n_samples, weight.sum())


@pytest.mark.parametrize("columns", [None, (0,), (0, 2)])
def test_the_gradient_is_zero_at_the_end(family, columns):
    model, X, y, weight = problem(0, family, columns=columns, n=600)
    fit = em(X, y, init=model, family=family, alpha=0.5, sample_weight=weight, tol=1e-13, **CLASSES)
    assert fit.converged

    def objective(vector):
        return penalised_log_likelihood(fit.model.with_vector(vector), X, y, 0.5, weight)

    assert_allclose(jacobian(objective, fit.model.to_vector()), 0, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "columns", "alpha"),
    [("gaussian", None, 0.0), ("gaussian", (0, 2), 0.5), ("poisson", (0,), 0.0)],
)
def test_a_general_optimiser_finds_the_same(family, columns, alpha):
    model, X, y, weight = problem(1, family, 2, columns)
    best = maximum_likelihood(model, X, y, alpha, weight)
    fit = em(
        X, y, 2, family=family, gate_columns=columns, alpha=alpha, sample_weight=weight,
        random_state=0,
    )  # fmt: skip
    expected = penalised_log_likelihood(best, X, y, alpha, weight)
    assert_allclose(fit.trace[-1], expected, atol=1e-6)
    same_model(fit, best, X, tol=1e-4)


def test_progress_reports_the_objective():
    _, X, y, _ = problem(0)
    seen = []
    fit = em(X, y, 2, random_state=0, n_init=3, progress=lambda *args: seen.append(args))
    assert [stage for stage, *_ in seen] == sorted(
        (stage for stage, *_ in seen), key=["starts", "em", "newton"].index
    )
    found = [i for stage, i, _ in seen if stage == "starts"]
    assert found == list(range(1, fit.agreement.searches + 1)) and 2 <= len(found) <= 3
    assert_allclose([value for stage, _, value in seen if stage != "starts"], fit.trace[1:])


# -- invariance --------------------------------------------------------------------------------


def start_and_fit(family):
    """Return a start that is not the answer, the rows, and the fit from there."""
    model, X, y, weight = problem(2, family)
    start = model.with_vector(model.to_vector() + 0.2)
    kwargs = {"family": family, "alpha": 0.3, "tol": 1e-12, **CLASSES}
    return start, X, y, weight, kwargs, em(X, y, init=start, sample_weight=weight, **kwargs)


def test_renumbering_the_experts_changes_nothing(family):
    _, X, y, weight, kwargs, fit = start_and_fit(family)
    near = fit.model.with_vector(fit.model.to_vector() + 0.02)
    one, other = (
        em(X, y, init=near.take(order), sample_weight=weight, **kwargs)
        for order in ([0, 1, 2], [2, 0, 1])
    )
    # EM takes the same steps. Newton's damping depends on the gate's reference, its goal does not.
    assert_allclose(other.trace[:20], one.trace[:20], rtol=1e-10)
    assert_allclose(other.trace[-1], one.trace[-1], rtol=1e-10)
    assert_allclose(other.model.to_vector(), one.model.to_vector(), rtol=1e-4, atol=1e-4)


def test_the_order_of_the_rows_changes_nothing(rng, family):
    start, X, y, weight, kwargs, fit = start_and_fit(family)
    order = rng.permutation(len(y))
    other = em(X[order], y[order], init=start, sample_weight=weight[order], **kwargs)
    same_path(other, fit)
    same_model(other, fit.model, X)


def test_weight_two_is_the_row_twice_and_weight_zero_no_row(rng, family):
    start, X, y, _, kwargs, _ = start_and_fit(family)
    count = rng.integers(0, 4, len(y))
    weighted = em(X, y, init=start, sample_weight=count.astype(float), **kwargs)
    X, y = np.repeat(X, count, axis=0), np.repeat(y, count)
    repeated = em(X, y, init=start, **kwargs)
    same_path(weighted, repeated)
    assert_allclose(weighted.log_likelihood, repeated.log_likelihood, rtol=1e-10)
    assert weighted.n_samples == repeated.n_samples == count.sum()
    same_model(weighted, repeated.model, X)


def test_units_change_nothing_but_the_parameters(family):
    start, X, y, weight, kwargs, fit = start_and_fit(family)
    scale, shift = (1000.0, 5.0) if start.experts.has_scale else (1.0, 0.0)
    # For x = T^-1 (1000 x + 5): what start says of x, moved says of 1000 x + 5.
    T = np.diag([1.0, 1e-3, 1e-3])
    T[1:, 0] = -5e-3
    moved = em(
        1000 * X + 5, scale * y + shift, init=start.rescaled(T, shift, scale),
        sample_weight=weight, **kwargs,
    )  # fmt: skip
    jacobian_of_y = weight.sum() * np.log(scale)
    assert_allclose(moved.trace + jacobian_of_y, fit.trace, rtol=1e-9)
    expected = fit.model.rescaled(T, shift, scale)
    assert_allclose(moved.model.gate.coef, expected.gate.coef, rtol=1e-6, atol=1e-6)
    assert_allclose(moved.model.experts.coef, expected.experts.coef, rtol=1e-6, atol=1e-6)


def test_an_offset_is_part_of_the_starts(rng):
    # Exposures from 1 to 1000: a start that ignored them would be far off.
    model = random_model(rng, 2, 2, family="poisson")
    X = rng.normal(size=(500, 2))
    offset = rng.uniform(0, np.log(1000), 500)
    y = model.sample(X, rng, offset)[0].astype(float)
    fit = em(X, y, 2, family="poisson", offset=offset, random_state=0)
    assert fit.log_likelihood >= model.log_density(X, y, offset).sum()


def test_threads_and_blocks_change_nothing(family, monkeypatch):
    start, X, y, weight, kwargs, whole = start_and_fit(family)
    monkeypatch.setattr(numerics, "BLOCK_BYTES", 1)
    X, y, weight = np.tile(X, (3, 1)), np.tile(y, 3), np.tile(weight / 3, 3)
    assert len(list(numerics.row_blocks(len(y), 3))) == 4
    fits = [em(X, y, init=start, sample_weight=weight, n_jobs=n, **kwargs) for n in (1, 2, 3)]
    for fit in fits:
        assert_array_equal(fit.trace, fits[0].trace)
        assert_array_equal(fit.model.to_vector(), fits[0].model.to_vector())
    same_path(fits[0], whole)


def test_blas_keeps_to_one_thread_meanwhile():
    with threads(2):
        assert {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"} == {1}


def test_blas_keeps_to_one_thread_to_the_end_of_a_fit(rng, monkeypatch):
    """Its threads wait for each other: what follows the iterations would take longer than they."""
    seen = []

    def looked(*args):
        seen.extend(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")
        return degeneracies(*args)

    monkeypatch.setattr("otmoe.likelihood.fit.degeneracies", looked)
    X = rng.normal(size=(200, 2))
    em(X, X[:, 0] + rng.normal(size=200), 2, n_jobs=2, random_state=0)
    assert seen and set(seen) == {1}


def test_the_same_seed_gives_the_same_fit():
    _, X, y, _ = problem(3)
    a, b = (em(X, y, 3, n_init=3, random_state=7) for _ in range(2))
    assert_array_equal(a.model.to_vector(), b.model.to_vector())


# -- known answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_single_expert_is_least_squares(weighted):
    _, X, y, weight = problem(4, n_experts=1)
    weight = weight if weighted else None
    fit = em(X, y, 1, sample_weight=weight)
    assert fit.converged and fit.status.code == "converged_near"
    ols = LinearRegression().fit(X, y, weight)
    assert_allclose(fit.model.experts.coef[0], np.append(ols.intercept_, ols.coef_), rtol=1e-8)
    mse = np.average((y - ols.predict(X)) ** 2, weights=weight)
    assert_allclose(fit.model.experts.var[0], mse, rtol=1e-8)


DATA = os.environ.get("OTMOE_DATA")
KNOWN = {
    "tonedata: tuned~stretchratio, K=2, common weights": "intercept",
    "tonedata: tuned~stretchratio, K=2, gate~stretchratio": None,
    "CO2data: CO2~GNP, K=2, common weights": "intercept",
    "CO2data: CO2~GNP, K=2, gate~GNP": None,
    "NPreg: yn~x+x^2, K=2, common weights": "intercept",
    "NPreg: yn~x+x^2, K=2, gate~x": [0],
}
HIGHER = {  # nats by which there is a higher maximum than the one that the literature knows
    "tonedata: tuned~stretchratio, K=2, common weights": 4.218446,
    "tonedata: tuned~stretchratio, K=2, gate~stretchratio": 2.802301,
}


@pytest.fixture
def table():
    """Return the reader of a small public table."""
    if not DATA:
        pytest.skip("OTMOE_DATA does not say where the public tables are")
    return lambda name: np.genfromtxt(
        Path(DATA, "small", f"{name}.csv"), delimiter=",", names=True, dtype=None, encoding="utf-8"
    )


def reference(name):
    """Return the maximum likelihood estimates that BFGS found, as (log-likelihood, MoE)."""
    found = json.loads(Path(DATA, "small", "mle_reference.json").read_text())[name]
    return found["loglik"], found


@pytest.mark.parametrize("name", KNOWN)
def test_public_tables_give_the_known_estimates(table, name):
    log_likelihood, expected = reference(name)
    data = table(name.split(":")[0])
    X, y = {
        "tonedata": lambda d: (d["stretchratio"][:, None], d["tuned"]),
        "CO2data": lambda d: (d["GNP"][:, None], d["CO2"]),
        "NPreg": lambda d: (np.column_stack([d["x"], d["x"] ** 2]), d["yn"]),
    }[name.split(":")[0]](data)
    est = MoERegressor(2, gate_features=KNOWN[name], alpha=0.0, random_state=0).fit(X, y)
    coef = np.array([expected["beta_comp1"], expected["beta_comp2"]])
    experts = GaussianExperts(coef, np.array(expected["sigma2"]))
    gate = np.zeros(coef.shape[1])
    gate[: len(expected["gate_comp2_minus_comp1"])] = expected["gate_comp2_minus_comp1"]
    fit = em(X, y, init=MoE(replace(est.model_.gate, coef=np.array([-gate, 0 * gate])), experts),
             alpha=0.0)  # fmt: skip
    assert_allclose(fit.log_likelihood, log_likelihood, rtol=0, atol=1e-5)
    higher = HIGHER.get(name, 0.0)
    assert_allclose(est.log_likelihood_ - fit.log_likelihood, higher, rtol=0, atol=1e-5)
    if higher:  # 56 of the 150 tones were tuned within .005 of what was heard
        narrow = int(np.argmin(est.model_.experts.var))
        assert_allclose(est.model_.experts.coef[narrow], [0, 1], rtol=0, atol=0.005)
    else:
        same_model(fit, est.model_, X, tol=1e-4)
    model = fit.model.aligned_to(replace(fit.model, experts=experts), X)
    assert_allclose(model.experts.coef, coef, atol=1e-4)
    assert_allclose(model.experts.var, experts.var, atol=1e-4)
    assert_allclose(model.gate.coef[1] - model.gate.coef[0], gate, atol=1e-4)


def test_a_separated_gate_still_gives_the_lines(table):
    _, expected = reference("tempanomalies start from MEteorits")
    data = table("tempanomalies")
    X = ((data["Year"] - 1947.5) / 39.40389152)[:, None]
    est = MoERegressor(2, alpha=0.0, random_state=0).fit(X, data["AnnualAnomaly"])
    assert est.log_likelihood_ >= 102.72
    coef = est.model_.experts.coef[np.argsort(est.model_.experts.coef[:, 1])]
    assert_allclose(coef, [expected["beta_comp1"], expected["beta_comp2"]], atol=1e-3)


@pytest.mark.slow
def test_hard_truths_are_found():
    for seed in range(6):
        data = simulate(4000, 4, 20, random_state=seed)
        fit = em(data.X, data.y, 4, random_state=seed)
        assert fit.log_likelihood >= data.truth.log_density(data.X, data.y).sum() - 20


# -- when there is no good answer --------------------------------------------------------------


def is_sound(fit, X, y):
    """Assert that a fit is finite, speaks in sentences, and is what it says it is."""
    assert np.abs(fit.model.to_vector()).max() < 1e6 and np.all(np.isfinite(fit.trace))
    assert never_falls(fit.trace)
    assert_allclose(fit.log_likelihood, log_likelihood(fit.model, X, y), rtol=1e-6, atol=1e-6)
    assert isinstance(fit.status, Notice) and str(fit.status)
    assert all(isinstance(notice, Notice) for notice in fit.warnings)


def test_a_variance_at_the_floor_is_reported(rng):
    X = rng.normal(size=(100, 2))
    y = np.where(X[:, 0] > 0, 3 + X[:, 1], rng.normal(size=100))
    fit = em(X, y, 2, random_state=0)
    is_sound(fit, X, y)
    assert "variance_at_floor" in codes(fit.warnings)
    assert_allclose(fit.model.experts.var.min(), 1e-6 * y.var(), rtol=1e-5)


def test_a_response_without_noise_is_fitted(rng):
    X = rng.normal(size=(50, 2))
    y = 1 + X @ [2.0, 3.0]
    fit = em(X, y, 2, random_state=0)
    is_sound(fit, X, y)
    assert_allclose(fit.model.predict(X), y, atol=1e-6)


def test_a_constant_response_is_fitted(rng):
    X = rng.normal(size=(50, 2))
    y = np.full(50, 7.0)
    fit = em(X, y, 2, random_state=0)
    is_sound(fit, X, y)
    assert_allclose(fit.model.predict(X), 7.0, rtol=1e-9)


def test_lost_experts_are_reported(rng):
    X = rng.normal(size=(200, 1))
    y = np.append(X[:198, 0] + 0.1 * rng.normal(size=198), [60.0, 60.1])
    fit = em(X, y, 2, alpha=0.0, random_state=0)
    is_sound(fit, X, y)
    assert fit.mass.min() < 4
    assert (
        Warn.EXPERTS_WITHOUT_ROWS(lost=1, experts=2, which=int(fit.mass.argmin())) in fit.warnings
    )


@pytest.mark.parametrize("values", [2, 3])
def test_a_class_that_is_fitted_as_a_number_is_told_as_such(values, rng):
    X = rng.normal(size=(300, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=300), [0.0, 1.0][: values - 1]).astype(float)
    found = codes(em(X, y, values, random_state=0).warnings)
    assert "variance_at_floor" in found and ("two_values" in found) == (values == 2)


def test_newton_that_runs_into_the_floor_is_finished_by_em():
    rng = np.random.default_rng(138)
    model = random_model(rng, 2, 3)
    X, y = random_rows(rng, model, 50)
    fit = em(X, y, init=model, alpha=0.0, max_iter=1000)
    is_sound(fit, X, y)
    assert "variance_at_floor" in codes(fit.warnings)
    assert fit.converged


def test_too_few_iterations_are_reported():
    model, X, y, _ = problem(0)
    fit = em(X, y, init=model, max_iter=2)
    is_sound(fit, X, y)
    assert not fit.converged and fit.n_iter <= 2
    assert fit.status == Status.OUT_OF_PASSES(passes=2)


@pytest.mark.parametrize("alpha", [0.0, 0.03])
def test_a_handful_of_rows_raises_nothing(family, alpha):
    for n in (3, 4, 6, 10):
        _, X, y, _ = problem(5, family, n=n)
        fit = em(X, y, 3, family=family, alpha=alpha, n_init=3, random_state=0, **CLASSES)
        is_sound(fit, X, y)


@pytest.mark.parametrize("seed", [3, 8, 33])
def test_nearly_as_many_experts_as_rows_do_not_explode(seed):
    rng = np.random.default_rng(seed)
    X, y = np.round(rng.normal(size=(5, 5))), rng.poisson(2.0, 5).astype(float)
    fit = em(X, y, 4, family="poisson", alpha=0.0, n_init=3, random_state=0)
    is_sound(fit, X, y)


def test_a_gate_without_a_ridge_does_not_explode(rng):
    # The rows of the two lines are far apart in x: the likelihood has no maximum in the gate.
    X = np.append(rng.uniform(-3, -2, 30), rng.uniform(2, 3, 30))[:, None]
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=60)
    fit = em(X, y, 2, alpha=0.0, random_state=0)
    is_sound(fit, X, y)
    assert_array_equal(fit.model.gate_prob(X).max(axis=1) > 0.999, True)


def test_a_saturated_gate_does_not_run_off():
    # Without a bound, this gate's coefficients end at 1e87.
    rng = np.random.default_rng(23)
    n, d = int(rng.integers(8, 40)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d))
    y = rng.gamma(2.0, size=n) * np.exp(X[:, 0])
    fit = em(X, y, 2, family="gamma", alpha=0.0, random_state=0, n_init=2)
    assert np.max(np.abs(fit.model.gate.coef)) < 1e4
    assert np.all(np.diff(fit.trace) >= 0)


def test_constant_columns_are_named_with_their_value(rng):
    X, y = rng.normal(size=(200, 4)), rng.normal(size=200)
    weight = rng.integers(0, 2, 200).astype(float)
    X[:, 3] = 3.7
    X[weight > 0, 1] = -0.1
    assert em(X, y, n_init=1, random_state=0).constant == {3: 3.7}
    fit = em(X, y, n_init=1, sample_weight=weight, random_state=0)
    assert fit.constant == {1: -0.1, 3: 3.7}
    assert_allclose(fit.model.experts.coef[:, [2, 4]], 0, atol=1e-9)


def test_a_column_that_hardly_varies_is_used_or_left_out(rng):
    x = rng.normal(size=40)
    for size in 10.0 ** np.arange(-14, -3):
        X, y = (1e3 + 1e3 * size * x)[:, None], x + 0.1 * rng.normal(size=40)
        fit = em(X, y, 1)
        assert_allclose(fit.log_likelihood, log_likelihood(fit.model, X, y), rtol=1e-3)


def test_what_no_row_can_tell_apart_is_shared_equally(family):
    model, X, y, _ = problem(0, family, columns=(0, 1, 2))
    twice = MoE(
        replace(model.gate, coef=model.gate.coef[:, [0, 1, 2, 2]], columns=None),
        replace(model.experts, coef=model.experts.coef[..., [0, 1, 2, 2]]),
    )
    start = twice.with_vector(twice.to_vector() + np.linspace(0, 1, twice.n_parameters))
    fit = em(X[:, [0, 1, 1]], y, init=start, family=family, **CLASSES)
    for coef in (fit.model.gate.coef, fit.model.experts.coef):
        assert_allclose(coef[..., 2], coef[..., 3], rtol=1e-6, atol=1e-8)
    assert_allclose(fit.log_likelihood, log_likelihood(fit.model, X[:, [0, 1, 1]], y), rtol=1e-8)


def test_weights_of_any_size_give_the_same_model():
    model, X, y, weight = problem(0, n_experts=2)
    fits = [
        em(X, y, init=model, alpha=0.0, sample_weight=c * weight, tol=1e-14) for c in (1e-3, 1, 1e3)
    ]
    for fit in fits:
        assert_allclose(fit.model.to_vector(), fits[1].model.to_vector(), atol=1e-4)


def test_a_model_to_start_from_says_what_the_family_is(rng, family):
    model = random_model(rng, 1, 2, family=family)
    X, y = random_rows(rng, model, 200)
    n_classes = 3 if family == "multinomial" else 2
    named = em(X, y, 1, family=family, n_classes=n_classes)
    assert_allclose(em(X, y, init=model).log_likelihood, named.log_likelihood, rtol=1e-8)
