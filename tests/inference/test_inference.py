from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian, log_likelihood, random_model, random_rows, with_ones
from refusals import codes, refused
from scipy import special, stats
from sklearn.exceptions import ConvergenceWarning

from otmoe import DistributedMoERegressor, MoE, MoEClassifier, MoERegressor, simulate
from otmoe.inference import (
    distance_to_maximum,
    fitted_inference,
    inference,
    one_round_refusal,
)
from otmoe.inference import observed_inference as observed_with
from otmoe.inference.covariance import scale_jacobian
from otmoe.inference.parameters import mean_gradient
from otmoe.likelihood.fit import em
from otmoe.likelihood.grouped import score_scatter
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.ridge import Ridge
from otmoe.text.errors import InferenceError
from otmoe.text.sentences import Warn

WEAK = {"alpha": 0.03, "expert_alpha": 0.0}
"""Ridges of any family that leave the parameters to the rows."""

SEEDS = {"gaussian": 2, "logistic": 4, "multinomial": 4, "poisson": 2}
SEEDS |= {"negative_binomial": 2, "gamma": 2, "student_t": 2, "binomial": 2}
"""Truths that a few hundred rows determine."""


def fitted(family="gaussian", n_experts=2, columns=None, n=600, **options):
    """Return rows and the model fitted to them; a class tells less than a number."""
    n = 5 * n if family in ("logistic", "multinomial") else n
    data = simulate(n, n_experts, 2, family=family, softness=1.0, random_state=SEEDS[family])
    start = replace(data.truth, gate=SoftmaxGate.blank(n_experts, 3, columns))
    fit = em(data.X, data.y, n_experts, family=family, init=start, **WEAK | options)
    assert fit.converged
    return data.X, data.y, fit.model


def observed_inference(model, X, y, **options):
    return observed_with(model, X, y, **WEAK | options)


def with_a_zero(model):
    """Return the model for one more feature, which it does not use."""

    def wider(coef):
        return np.concatenate([coef, np.zeros((*coef.shape[:-1], 1))], axis=-1)

    experts = replace(model.experts, coef=wider(model.experts.coef))
    return MoE(SoftmaxGate(wider(model.gate.coef)), experts)


def numbers(estimates):
    return np.array([[e.estimate, e.se, e.z, e.p, e.low, e.high] for e in estimates])


# -- against other ways to the same numbers --------------------------------------------------------


@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_the_covariance_is_the_inverse_of_the_numerical_hessian(rng, family, columns):
    X, y, model = fitted(family, columns=columns, n=300)
    theta = model.to_vector()

    def gradient(vector):
        return jacobian(lambda v: log_likelihood(model.with_vector(v), X, y), vector, 1e-4)

    hessian = jacobian(gradient, theta, 1e-4)
    found, expected = observed_inference(model, X, y), np.linalg.inv(-hessian)
    unit = 1 / np.sqrt(np.diagonal(expected))  # as correlations: blocks have different units
    scale = unit[:, None] * unit
    assert_allclose(found.covariance.matrix * scale, expected * scale, atol=1e-4)
    assert_allclose(found.log_likelihood, log_likelihood(model, X, y), rtol=1e-10)


def test_one_gaussian_expert_is_least_squares(rng):
    X = rng.normal(size=(200, 3)) * [1, 10, 100] + [0, 5, -300]
    y = X @ [1.0, 0.2, 0.03] + rng.normal(size=200) * np.exp(X[:, 0] / 2)
    D = with_ones(X)
    beta = np.linalg.lstsq(D, y)[0]
    residual = y - D @ beta
    var = np.mean(residual**2)
    inverse = np.linalg.inv(D.T @ D)
    model = em(X, y, 1).model
    found = observed_inference(model, X, y)
    assert_allclose(found.covariance.matrix[:4, :4], var * inverse, rtol=1e-7)
    assert_allclose(found.standard_errors.log_var, np.sqrt(2 / 200))
    assert_allclose(found.covariance.matrix[4, :4], 0, atol=1e-8)
    # White's estimator, without a correction for degrees of freedom
    white = inverse @ (D.T * residual**2) @ D @ inverse
    robust = observed_inference(model, X, y, kind="sandwich")
    assert_allclose(robust.covariance.matrix[:4, :4], white, rtol=1e-6)
    assert np.all(robust.standard_errors.coef[0, 1] > 1.1 * found.standard_errors.coef[0, 1])
    # the mean
    grid = rng.normal(size=(7, 3)) * [1, 10, 100]
    interval = found.mean_interval(grid, level=0.9)
    se = np.sqrt(var * np.einsum("ni,ij,nj->n", with_ones(grid), inverse, with_ones(grid)))
    assert_allclose(interval.se, se, rtol=1e-7)
    assert_allclose(interval.high - interval.mean, stats.norm.ppf(0.95) * se, rtol=1e-7)


@pytest.mark.parametrize("name", ["logistic", "poisson", "multinomial"])
def test_one_expert_is_a_generalised_linear_model(rng, name):
    X = rng.normal(size=(400, 2)) * [1, 3] + [0, 5]
    D = with_ones(X)
    weight = rng.uniform(0.5, 2, 400)
    coef = 0.3 * rng.normal(size=(2, 3))
    if name == "multinomial":
        prob = special.softmax(np.column_stack([D @ coef.T, np.zeros(400)]), axis=1)
        y = np.array([rng.choice(3, p=row) for row in prob]).astype(float)
    elif name == "logistic":
        y = (rng.uniform(size=400) < special.expit(D @ coef[0])).astype(float)
    else:
        y = rng.poisson(np.exp(D @ coef[0])).astype(float)
    model = em(X, y, 1, family=name, n_classes=3, sample_weight=weight, **WEAK).model
    if name == "multinomial":
        p = special.softmax(D @ model.experts.coef[0].T, axis=1)[:, :2]
        curvature = p[:, :, None] * (np.eye(2) - p[:, None, :])
        information = np.einsum("n,nab,ni,nj->aibj", weight, curvature, D, D).reshape(6, 6)
    else:
        mean = model.predict(X)
        spread = mean * (1 - mean) if name == "logistic" else mean
        information = (D.T * (weight * spread)) @ D
    found = observed_inference(model, X, y, sample_weight=weight)
    assert_allclose(found.covariance.matrix, np.linalg.inv(information), rtol=1e-6)


def test_z_p_and_interval_are_those_of_the_normal_distribution(rng):
    X, y, model = fitted()
    found = observed_inference(model, X, y)
    for row in found.table(level=0.8)[:-2]:
        assert_allclose(row.z, row.estimate / row.se)
        assert_allclose(row.p, 2 * stats.norm.cdf(-abs(row.z)), atol=1e-15)
        assert_allclose((row.high - row.low) / 2, stats.norm.ppf(0.9) * row.se)
        assert_allclose((row.high + row.low) / 2, row.estimate)
    errors = found.standard_errors.log_var
    for row, var, se in zip(found.table(level=0.8)[-2:], model.experts.var, errors, strict=True):
        assert_allclose([row.estimate, row.se], [var, var * se])
        half = 1.2815516 * se
        assert_allclose(np.log([row.low, row.high]), np.log(var) + [-half, half])
        assert np.isnan(row.z) and np.isnan(row.p)


# -- laws ------------------------------------------------------------------------------------------


def test_information_on_the_users_scale_and_on_the_standardised_one_agree(rng, family):
    X, y, model = fitted(family, n_experts=3)
    standard, _ = Rows(X, y).standardised(model.experts)
    there = standard.scaling.from_user(model)
    penalty = Ridge(0.03, 0.0).matrix(there)
    T = np.linalg.inv(scale_jacobian(model, standard.scaling))
    for sandwich in (False, True):
        of_b = score_scatter(there, standard) if sandwich else None
        of_a = score_scatter(model, Rows(X, y)) if sandwich else None
        information = observed_information(there, standard)
        n, scaling = len(y), standard.scaling
        b = inference(model, information, n, penalty=penalty, scaling=scaling, scatter=of_b)
        information = observed_information(model, Rows(X, y))
        a = inference(model, information, n, penalty=T.T @ penalty @ T, scatter=of_a)
        assert_allclose(a.covariance.matrix, b.covariance.matrix, rtol=1e-5, atol=1e-9)
        assert_allclose(a.covariance.pull, b.covariance.pull, rtol=1e-5, atol=1e-9)


def test_the_jacobian_of_the_scale_is_that_of_the_map(rng, family):
    model = random_model(rng, 3, 2, (0, 2), family)
    X, y = random_rows(rng, model)
    standard, _ = Rows(X * [1, 30] + [0, 7], y).standardised(model.experts)

    def to_user(vector):
        return standard.scaling.to_user(model.with_vector(vector)).to_vector()

    expected = jacobian(to_user, model.to_vector())
    assert_allclose(scale_jacobian(model, standard.scaling), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kind", ["information", "sandwich"])
def test_renumbering_the_experts_renumbers_the_table(rng, family, kind):
    X, y, model = fitted(family, n_experts=3, n=900)
    order = [2, 0, 1]
    here = observed_inference(model, X, y, kind=kind)
    there = observed_inference(model.take(order), X, y, kind=kind)
    before, after = here.standard_errors.coef[order], there.standard_errors.coef
    assert_allclose(after, before, rtol=1e-6, atol=1e-9)
    # What expert 0 was against 1 is now 1 against 2: the gate is compared by contrasts.
    for block in ("gate", "expert"):
        before, after = here.contrast(0, 1, block=block), there.contrast(1, 2, block=block)
        assert_allclose(numbers(after), numbers(before), rtol=1e-5, atol=1e-7)
    before, after = (found.mean_interval(X[:9]).se for found in (here, there))
    assert_allclose(after, before, rtol=1e-6, atol=1e-12)


def test_units_carry_over_to_standard_errors(rng):
    X, y, _ = fitted()
    stretch, shift = np.array([10.0, 0.01]), np.array([3.0, -50.0])
    one, other = em(X, y, 2, random_state=0), em(X * stretch + shift, 7 * y + 5, 2, random_state=0)
    a = observed_inference(one.model, X, y).standard_errors
    found = observed_inference(other.model, X * stretch + shift, 7 * y + 5)
    b = found.standard_errors
    assert_allclose(b.coef[:, 1:], 7 * a.coef[:, 1:] / stretch, rtol=1e-5)
    assert_allclose(b.gate[:, 1:], a.gate[:, 1:] / stretch, rtol=1e-5)
    assert_allclose(b.log_var, a.log_var, rtol=1e-5)
    here = observed_inference(one.model, X, y).mean_interval(X[:5])
    there = found.mean_interval(X[:5] * stretch + shift)
    assert_allclose(there.low, 7 * here.low + 5, rtol=1e-5)


def test_by_the_information_weight_two_is_the_row_twice(rng, family):
    X, y, model = fitted(family)
    twice = rng.integers(0, 3, len(y)).astype(float)
    options = {"family": family, "n_classes": 3, "sample_weight": twice} | WEAK
    model = em(X, y, 2, init=model, **options).model
    repeated = np.repeat(np.arange(len(y)), twice.astype(int))
    weighted = observed_inference(model, X, y, sample_weight=twice)
    spelled = observed_inference(model, X[repeated], y[repeated])
    assert_allclose(weighted.covariance.matrix, spelled.covariance.matrix, rtol=1e-6, atol=1e-12)
    assert weighted.n_samples == len(repeated)


def test_the_sandwich_does_not_depend_on_the_unit_of_the_weights(rng, family):
    X, y, model = fitted(family, alpha=0.0)
    weight = rng.uniform(0.5, 2, len(y))
    options = {"family": family, "n_classes": 3, "init": model} | WEAK | {"alpha": 0.0}
    model = em(X, y, 2, sample_weight=weight, **options).model
    one, ten = (
        observed_inference(model, X, y, sample_weight=c * weight, alpha=0.0, kind="sandwich")
        for c in (1, 10)
    )
    assert_allclose(ten.covariance.matrix, one.covariance.matrix, rtol=1e-4, atol=1e-7)
    naive = observed_inference(model, X, y, sample_weight=10 * weight, alpha=0.0)
    assert np.all(naive.standard_errors.coef <= one.standard_errors.coef)


def test_where_the_model_is_right_the_sandwich_is_near_the_information(rng):
    data = simulate(20_000, 2, 2, softness=1.0, random_state=3)
    model = em(data.X, data.y, 2, random_state=0).model
    a, b = (observed_inference(model, data.X, data.y, kind=k) for k in ("information", "sandwich"))
    assert_allclose(a.standard_errors.coef, b.standard_errors.coef, rtol=0.06)
    assert_allclose(a.standard_errors.gate, b.standard_errors.gate, rtol=0.06)
    assert_allclose(a.standard_errors.log_var, b.standard_errors.log_var, rtol=0.06)


# -- contrasts and tests ---------------------------------------------------------------------------


def test_a_contrast_is_a_difference_with_the_variance_of_one(rng):
    X, y, model = fitted(n_experts=3, n=900)
    found = observed_inference(model, X, y)
    C, names = found.covariance.matrix, found.names
    i, j = names.index("expert 2: x1"), names.index("expert 0: x1")
    (row,) = found.contrast(2, 0, "x1")
    assert_allclose(row.estimate, model.experts.coef[2, 2] - model.experts.coef[0, 2])
    assert_allclose(row.se, np.sqrt(C[i, i] + C[j, j] - 2 * C[i, j]))
    assert (row.expert, row.against, row.term) == (2, 0, "x1")
    # against the reference, the gate's contrast is its coefficient
    assert_allclose(numbers(found.contrast(0, 2, block="gate")), numbers(found.table()[:3]))
    (ratio,) = found.contrast(0, 1, block="variance")
    assert_allclose(ratio.estimate, np.log(model.experts.var[0] / model.experts.var[1]))
    # a matrix says the same
    matrix = np.zeros(len(names))
    matrix[[i, j]] = 1, -1
    assert_allclose(numbers(found.linear(matrix)), numbers([row]))


def test_a_wald_test_of_one_combination_is_the_square_of_z(rng):
    X, y, model = fitted()
    found = observed_inference(model, X, y)
    matrix = np.zeros((1, len(found.names)))
    matrix[0, 4] = 1
    row = found.table()[4]
    test = found.wald(matrix)
    assert_allclose([test.statistic, test.df, test.p], [row.z**2, 1, row.p], atol=1e-15)
    again = found.wald(np.vstack([matrix, 2 * matrix]), [0, 0])
    assert_allclose([again.statistic, again.df], [row.z**2, 1])
    at_estimate = found.wald(matrix, row.estimate)
    assert_allclose([at_estimate.statistic, at_estimate.p], [0, 1], atol=1e-12)


def test_equal_slopes_is_the_wald_test_of_all_slopes(rng):
    X, y, model = fitted()
    found = observed_inference(model, X, y)
    gap = model.experts.coef[0, 1:] - model.experts.coef[1, 1:]
    L = np.zeros((2, len(found.names)))
    L[:, 4:6], L[:, 7:9] = np.eye(2), -np.eye(2)
    test = found.equal_slopes(0, 1)
    expected = gap @ np.linalg.solve(L @ found.covariance.matrix @ L.T, gap)
    assert_allclose([test.statistic, test.df], [expected, 2])
    assert_allclose(test.p, stats.chi2.sf(expected, 2))


def test_equal_slopes_holds_its_level(rng):
    """Two experts with one slope and different intercepts: the p value is uniform."""
    p_values = []
    for _ in range(60):
        X = rng.normal(size=(500, 1))
        z = rng.uniform(size=500) < special.expit(X[:, 0])
        y = 2 * X[:, 0] + 6 * z + rng.normal(size=500)
        experts = GaussianExperts(np.array([[6.0, 2], [0, 2]]), np.ones(2))
        start = MoE(SoftmaxGate(np.array([[0.0, 1], [0, 0]])), experts)
        model = em(X, y, 2, init=start).model
        p_values.append(observed_inference(model, X, y).equal_slopes(0, 1).p)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_what_cannot_be_compared_is_named(rng):
    X, y, model = fitted("poisson")
    found = observed_inference(model, X, y)
    refused("no_expert", expert=2, last=1).by(found.contrast, 0, 2)
    refused("same_expert", expert=1).by(found.contrast, 1, 1)
    wrong = refused("not_one_of", name="term", value="age", choices=["intercept", "x0", "x1"])
    wrong.by(found.contrast, 0, 1, "age")
    wrong = refused("no_block", block="variance", choices=["gate", "expert"])
    wrong.by(found.contrast, 0, 1, block="variance")
    refused("combinations_shape", shape=(1, 3), parameters=9).by(found.linear, np.zeros((1, 3)))
    refused("combination_zero", row=1).by(found.wald, np.eye(9)[[0, 0]] * [[1], [0]])
    refused("not_a_level", name="level", value=95).by(found.table, level=95)
    refused("x_shape", shape=(600, 1), features=2).by(found.mean_interval, X[:, :1])
    with refused("not_one_of", name="kind", value="robust"):
        observed_inference(model, X, y, kind="robust")


# -- the mean --------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [None, (0, 2), (0,)])
@pytest.mark.parametrize("n_experts", [1, 3])
def test_the_gradient_of_the_mean_matches_finite_differences(rng, family, n_experts, columns):
    model = random_model(rng, n_experts, 2, columns, family)
    X, _ = random_rows(rng, model, n=11)
    offset = None if family == "multinomial" else rng.normal(size=11)
    mean, gradient = mean_gradient(model, with_ones(X), offset)

    def predict(vector):
        return model.with_vector(vector).predict(X, offset)

    expected = jacobian(predict, model.to_vector())
    assert_allclose(mean.reshape(model.predict(X).shape), model.predict(X, offset), rtol=1e-12)
    assert_allclose(gradient.reshape(expected.shape), expected, rtol=1e-6, atol=1e-8)


def test_an_interval_for_the_mean_is_the_delta_method_and_stays_in_range(rng, family):
    X, y, model = fitted(family)
    found = observed_inference(model, X, y)
    wide = X[:40] * 3
    interval = found.mean_interval(wide, level=0.99)
    gradient = jacobian(lambda v: model.with_vector(v).predict(wide), model.to_vector())
    C = found.covariance.matrix
    variance = np.einsum("...i,ij,...j->...", gradient, C, gradient)
    assert_allclose(interval.se, np.sqrt(variance), rtol=1e-4, atol=1e-7)
    assert_allclose(interval.mean, model.predict(wide), rtol=1e-10)
    assert np.all(interval.low <= interval.mean) and np.all(interval.mean <= interval.high)
    if family not in ("gaussian", "student_t"):
        assert interval.low.min() >= 0
    if family in ("logistic", "multinomial"):
        assert interval.high.max() <= 1
    near = found.mean_interval(wide, level=0.01)  # where the scale does not matter
    assert_allclose(near.high - near.low, 2 * stats.norm.ppf(0.505) * near.se, rtol=1e-3, atol=1e-9)


def test_an_offset_moves_the_mean_and_its_error(rng):
    X = rng.normal(size=(800, 1))
    exposure = rng.uniform(0, 2, 800)
    y = rng.poisson(np.exp(0.5 * X[:, 0] + exposure)).astype(float)
    est = MoERegressor(1, family="poisson").fit(X, y, offset=exposure)
    found = est.inference(X, y, offset=exposure)
    here = found.mean_interval(X[:5], offset=np.zeros(5))
    there = found.mean_interval(X[:5], offset=np.ones(5))
    assert_allclose(there.low, np.e * here.low, rtol=1e-9)
    assert_allclose(there.se, np.e * here.se, rtol=1e-9)
    refused("not_at_maximum", InferenceError).by(est.inference, X, y)


# -- what the rows do not determine ----------------------------------------------------------------


def test_a_constant_column_is_not_identified(rng):
    X, y, bare = fitted()
    for value in (0.0, 3.0):
        padded = np.column_stack([X, np.full(len(y), value)])
        model = em(padded, y, 2, init=with_a_zero(bare)).model
        found = observed_inference(model, padded, y)
        lost = [row.term for row in found.table() if row.note]
        terms = ["x2"] if value == 0 else ["intercept", "x2"]  # response at x2 = 0: never seen
        assert lost == terms * 3
        assert found.warnings[0] == Warn.COLUMNS_UNDETERMINED(terms=", ".join(terms))
        a, b = observed_inference(bare, X, y).standard_errors, found.standard_errors
        assert_allclose(b.coef[:, 1:3], a.coef[:, 1:], rtol=1e-5)
        assert_allclose(b.gate[0, 1:3], a.gate[0, 1:], rtol=1e-5)
        # The mean is known where the column has its value, and nowhere else.
        there = found.mean_interval(padded[:5])
        assert_allclose(there.se, observed_inference(bare, X, y).mean_interval(X[:5]).se, rtol=1e-5)
        assert np.all(np.isnan(found.mean_interval(padded[:5] + [0, 0, 1]).se))


@pytest.mark.parametrize("name", ["gaussian", "logistic"])
def test_collinear_columns_are_not_identified_but_their_sum_is(rng, name):
    X, y, without = fitted(name)
    twins = np.column_stack([X, 2 * X[:, 0] - 3 * X[:, 1]])
    bare = observed_inference(without, X, y)
    model = em(twins, y, 2, family=name, init=with_a_zero(without), **WEAK).model
    found = observed_inference(model, twins, y)
    lost = {row.term for row in found.table() if row.note}
    assert lost == {"x0", "x1", "x2"}
    assert found.warnings[0] == Warn.COLUMNS_UNDETERMINED(terms="x0, x1, x2")
    assert found.summary().count("not identified") == 9
    assert np.isnan(found.equal_slopes(0, 1).statistic)
    combined = np.zeros(len(found.names))
    start = found.names.index("expert 0: intercept")
    combined[start + 1], combined[start + 3] = 1, 2  # x0 moves x2 by 2
    (row,) = found.linear(combined)
    (same,) = (r for r in bare.table() if str(r) == "expert 0: x0")
    assert_allclose([row.estimate, row.se], [same.estimate, same.se], rtol=1e-3)
    assert_allclose(found.mean_interval(twins[:5]).se, bare.mean_interval(X[:5]).se, rtol=1e-3)


def separated(rng, n=1000, gap=0.5):
    X = rng.normal(size=(n, 2))
    X[:, 0] += gap * np.sign(X[:, 0])
    y = np.where(X[:, 0] > 0, 5 + X[:, 1], -5 - X[:, 1]) + 0.3 * rng.normal(size=n)
    return X, y


@pytest.mark.parametrize("alpha", [0.0, 1e-3, 0.03])
@pytest.mark.parametrize("gap", [0.0, 0.5, 2.0])
def test_a_separated_gate_is_not_identified_however_weak_the_ridge(rng, alpha, gap):
    X, y = separated(rng, gap=gap)
    model = em(X, y, 2, alpha=alpha, random_state=0).model
    found = observed_inference(model, X, y, alpha=alpha)
    notes = {str(row): row.note for row in found.table()}
    assert notes["gate 0 against 1: x0"] == "not identified"
    assert not any(note for name, note in notes.items() if name.startswith("expert"))
    (gate,) = (w for w in found.warnings if w.code == "gate_undetermined")
    assert gate.facts["expert"] == 0 and gate.facts["reference"] == 1
    # where the gate is certain, the mean is known all the same
    certain = np.array([[20.0, 0.0], [-20.0, 1.0]])
    assert np.all(np.isfinite(found.mean_interval(certain).se))


def test_a_level_that_is_never_seen_with_one_expert_is_not_identified(rng):
    """The common kind of separation: a dummy, all of whose rows belong to one expert."""
    n = 3000
    X = np.column_stack([rng.normal(size=n), rng.uniform(size=n) < 0.05]).astype(float)
    first = (rng.uniform(size=n) < special.expit(X[:, 0])) | (X[:, 1] == 1)
    y = np.where(first, 30 + X[:, 0], -30 - X[:, 0]) + rng.normal(size=n)
    start = with_a_zero(em(X[:, :1], y, 2, random_state=0).model)
    found = observed_inference(em(X, y, 2, init=start).model, X, y)
    lost = [str(row) for row in found.table() if row.note]
    assert lost == ["gate 0 against 1: x1", "expert 1: x1"]
    assert codes(found.warnings) == ["gate_undetermined", "expert_undetermined"]
    assert found.warnings[1].facts == {"expert": 1, "terms": "x1"}
    assert 0.03 < found.standard_errors.gate[0, 1] < 0.1


def test_separated_classes_within_an_expert_are_not_identified(rng):
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] > 0).astype(float)
    model = em(X, y, 1, family="logistic", **WEAK).model
    found = observed_inference(model, X, y, **WEAK)
    assert all(row.note for row in found.table() if row.term == "x0")
    assert found.warnings[0].code in ("expert_undetermined", "columns_undetermined")


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_what_a_prior_holds_has_errors_and_the_summary_says_first_that_it_was_moved(rng, family):
    X, y = separated(rng, gap=0.5)
    K, ridges = (2, {"alpha": 1.0}) if family == "gaussian" else (1, {})
    target = y if family == "gaussian" else (X[:, 0] > 0).astype(float)
    model = em(X, target, K, family=family, random_state=0, **ridges).model
    found = observed_with(model, X, target, **ridges)
    row = next(row for row in found.table() if row.term == "x0")  # of the gate, if there is one
    assert row.note == "" and np.isfinite(row.se)
    (moved,) = (w for w in found.warnings if w.code == "ridge_moved")
    assert moved.facts["distance"] > 1
    lines = found.summary().splitlines()
    said = next(i for i, line in enumerate(lines) if line.startswith("The ridge has moved"))
    assert said < next(i for i, line in enumerate(lines) if "std err" in line)


def test_a_ridge_that_moves_the_gate_is_mentioned():
    X, y, plain = fitted(n=20_000)
    for alpha, said in [(0.03, False), (100.0, True)]:
        model = em(X, y, 2, alpha=alpha, init=plain).model
        found = observed_inference(model, X, y, alpha=alpha)
        moved = [w.facts["worst"] for w in found.warnings if w.code == "ridge_moved"]
        assert any(worst.startswith("gate 0 against 1") for worst in moved) is said
        pull = found.covariance.pull
        free = em(X, y, 2, alpha=0.0, init=model).model
        if not said:
            assert_allclose(pull, free.to_vector() - model.to_vector(), atol=1e-2 * pull.max())


def on_the_floor(rng):
    """Return rows of which an expert fits one half exactly."""
    X = rng.normal(size=(300, 1))
    return X, np.where(np.arange(300) % 2 == 0, 1 + X[:, 0], rng.normal(size=300) - 5)


def test_an_expert_on_the_floor_is_refused(rng):
    X, y = on_the_floor(rng)
    model = em(X, y, 2, random_state=0).model
    refused("variance_at_floor", InferenceError).by(observed_inference, model, X, y)


# -- without rows ----------------------------------------------------------------------------------


def estimated(family, weighted=False):
    """Return an estimator of the family, and the rows that it was fitted to."""
    X, y, model = fitted(family, n=1000)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    if model.experts.classifies:
        est = MoEClassifier(2, random_state=0)
    else:
        est = MoERegressor(2, family=family, random_state=0)
    return est.fit(X, y, sample_weight=weight), (X, y, weight)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_knows_its_standard_errors(family, weighted):
    """The matrix is that of the last full step, a tenth of a standard error away at most."""
    est, rows = estimated(family, weighted)
    found, there = est.inference(), est.inference(*rows)
    a, b = numbers(found.table()), numbers(there.table())
    assert_array_equal(a[:, 0], b[:, 0])
    assert_allclose(a[:, 1], b[:, 1], rtol=1e-2 if weighted else 2e-3)
    assert (found.kind, found.names) == (there.kind, there.names)
    assert codes(found.warnings) == codes(there.warnings)
    assert found.n_samples == pytest.approx(there.n_samples)
    assert_allclose([found.log_likelihood, found.bic], [there.log_likelihood, there.bic])
    assert_allclose(found.mass, there.mass, rtol=1e-5)
    assert est.summary() == found.summary()


def test_the_evidence_of_a_fit_is_about_its_experts_in_their_order():
    """They are put in order after the last step, by mass, and so is what is known of them."""
    data = simulate(2000, 3, 2, softness=1.0, random_state=1)
    fits = []
    for order in ([0, 1, 2], [2, 0, 1]):
        fit = em(data.X, data.y, 3, init=data.truth.take(order))
        fits.append(fitted_inference(fit, fit.model))
    a, b = (numbers(found.table())[:, :2] for found in fits)
    assert_allclose(a, b, rtol=1e-3)
    whole = observed_inference(fits[1].model, data.X, data.y)
    assert_allclose(b[:, 1], numbers(whole.table())[:, 1], rtol=1e-2)


def test_a_fit_without_newton_steps_has_no_standard_errors(rng):
    with pytest.warns(ConvergenceWarning):  # Newton's method does not serve there
        est = MoERegressor(2, random_state=0).fit(*on_the_floor(rng))
    for code, bare in {
        "variance_at_floor": est,
        "no_evidence": MoERegressor.from_model(est.model_),
    }.items():
        for call in (bare.inference, bare.summary):
            refused(code, InferenceError).by(call)
    # nor has one that was stopped on its way
    data = simulate(1000, 2, 2, softness=1.0, random_state=0)
    far = data.truth.with_vector(data.truth.to_vector() + 0.5)
    fit = em(data.X, data.y, 2, init=far, max_iter=1)
    refused("not_at_maximum", InferenceError).by(fitted_inference, fit, fit.model)


def test_the_sandwich_needs_the_rows():
    est, rows = estimated("gaussian")
    refused("rows_for_sandwich", InferenceError).by(est.inference, kind="sandwich")
    assert est.inference(*rows, kind="sandwich").kind == "sandwich"
    refused("not_one_of", name="kind", value="bread").by(est.inference, kind="bread")


def test_a_distributed_estimator_knows_what_its_aggregation_knows():
    data = simulate(3000, 2, 3, softness=1.0, random_state=5)
    merged, refined = (
        DistributedMoERegressor(2, n_shards=4, refine=refine, random_state=0).fit(data.X, data.y)
        for refine in (0, "auto")
    )
    refused("one_round", InferenceError).by(merged.inference)
    there = refined.aggregation_.inference()
    assert_array_equal(numbers(refined.inference().table()), numbers(there.table()))
    assert refined.summary() == there.summary()


# -- where standard errors would be wrong ----------------------------------------------------------


def test_the_distance_is_that_of_the_combination_furthest_off(rng):
    X, y, model = fitted(alpha=0.0)
    C = observed_inference(model, X, y, alpha=0.0).covariance.matrix
    shift = np.linalg.cholesky(C) @ rng.normal(size=len(C)) * 1e-3
    moved = model.with_vector(model.to_vector() + shift)
    found = distance_to_maximum(moved, observed_information(moved, Rows(X, y)), np.zeros_like(C))
    assert_allclose(found, np.sqrt(shift @ np.linalg.solve(C, shift)), rtol=0.02)
    per_parameter = np.abs(shift) / np.sqrt(np.diagonal(C))
    assert per_parameter.max() <= found * 1.02


def test_rows_that_were_not_fitted_are_refused(rng):
    data = simulate(1000, 2, 2, softness=1.0, random_state=0)
    est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    est.inference(data.X, data.y)
    refused("not_at_maximum", InferenceError).by(est.inference, data.X[:500], data.y[:500])
    with refused("not_at_maximum", InferenceError):
        est.inference(data.X, data.y, sample_weight=rng.uniform(0, 3, 1000))


def test_one_round_over_many_small_sites_is_refused_and_the_refined_model_is_not():
    data = simulate(4000, 2, 3, softness=1.0, random_state=0)
    merged = DistributedMoERegressor(2, n_shards=16, random_state=0).fit(data.X, data.y)
    refused("not_at_maximum", InferenceError).by(merged.inference, data.X, data.y)
    refined = em(data.X, data.y, 2, init=merged.model_).model
    whole = em(data.X, data.y, 2, random_state=0).model.aligned_to(refined, data.X)
    a, b = (observed_inference(m, data.X, data.y).standard_errors for m in (refined, whole))
    assert_allclose(a.coef, b.coef, rtol=1e-6)
    refusal = one_round_refusal("reduction", 16)
    assert refusal.code == "one_round" and refusal.facts == {"method": "reduction", "sites": 16}


def test_information_summed_over_sites_gives_the_standard_errors_of_all_rows(rng, family):
    X, y, model = fitted(family, alpha=0.0, n=900)
    parts = np.array_split(np.arange(len(y)), 3)
    sites = [Rows(X[part], y[part]) for part in parts]
    first, *others = (observed_information(model, site) for site in sites)
    information = sum(others, first)
    first, *others = (score_scatter(model, site) for site in sites)
    for scatter, kind in [(None, "information"), (sum(others, first), "sandwich")]:
        summed = inference(model, information, len(y), scatter=scatter)
        whole = observed_inference(model, X, y, alpha=0.0, kind=kind)
        assert summed.kind == kind and summed.aic is None
        assert_allclose(summed.covariance.matrix, whole.covariance.matrix, rtol=1e-3, atol=1e-7)


# -- names and text --------------------------------------------------------------------------------


def test_the_table_has_the_users_names():
    pd = pytest.importorskip("pandas")
    data = simulate(1500, 2, 2, family="multinomial", softness=1.0, random_state=0)
    X = pd.DataFrame(data.X, columns=["age", "dose"])
    y = np.array(["bad", "fair", "good"])[data.y.astype(int)]
    est = MoEClassifier(2, gate_features=["dose"], random_state=0, **WEAK).fit(X, y)
    found = est.inference(X, y)
    gate = "gate 0 against 1: intercept", "gate 0 against 1: dose"
    assert found.names[:3] == (*gate, "expert 0, class bad: intercept")
    frame = pd.DataFrame(found.table())
    assert list(frame.columns) == [
        "block", "expert", "against", "label", "term", "estimate", "se", "z", "p", "low", "high"
    ]  # fmt: skip
    assert set(frame.label.dropna()) == {"bad", "fair"}
    text = est.summary(X, y)
    assert "Gate: expert 0 against expert 1" in text and "class bad against good" in text
    rows = [line for line in text.splitlines() if line.startswith("dose")]
    assert len(rows) == 5
    for line, row in zip(rows, [r for r in found.table() if r.term == "dose"], strict=True):
        assert line.split()[1:3] == [f"{row.estimate:.4f}", f"{row.se:.4f}"]


def test_two_classes_are_named_by_the_second(rng):
    data = simulate(1500, 1, 2, family="logistic", softness=1.0, random_state=0)
    y = np.array(["no", "yes"])[data.y.astype(int)]
    est = MoEClassifier(1).fit(data.X, y)
    assert {row.label for row in est.inference(data.X, y).table()} == {"yes"}
    assert "Expert 0, class yes, 100.0% of rows" in est.summary(data.X, y)


def test_the_summary_says_what_was_fitted():
    data = simulate(1500, 2, 2, softness=1.0, random_state=0)
    est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    text = est.summary(data.X, data.y, kind="sandwich", level=0.9)
    criteria = est.log_likelihood_, est.aic(data.X, data.y), est.bic(data.X, data.y)
    words = "Mixture of 2 gaussian experts", "sandwich", "[0.05", "0.95]", "variance"
    for piece in (*words, *(f"{value:.2f}" for value in criteria)):
        assert piece in text
    assert repr(text) == str(text) and max(map(len, text.splitlines())) < 80
    long = replace(est.model_, feature_names=("x" * 60, "é"))
    assert "…" in observed_inference(long, data.X, data.y).summary()


# -- coverage --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_intervals_cover_the_truth_as_often_as_they_say(name):
    data = simulate(10, 2, 2, family=name, softness=1.0, random_state=1)
    truth, runs = data.truth.to_vector(), 100
    grid = data.draw_x(20, np.random.default_rng(0))
    covered, covered_mean = [], []
    for i in range(runs):
        rows = data.draw(2000, i)
        model = em(rows.X, rows.y, 2, family=name, init=data.truth, **WEAK).model
        found = observed_inference(model.aligned_to(data.truth, rows.X), rows.X, rows.y)
        ends = np.array([[row.low, row.high] for row in found.table()])
        at = np.where([row.block == "variance" for row in found.table()], np.exp(truth), truth)
        covered.append((ends[:, 0] <= at) & (at <= ends[:, 1]))
        mean = found.mean_interval(grid)
        expected = data.truth.predict(grid)
        covered_mean.append((mean.low <= expected) & (expected <= mean.high))
    # 100 draws of probability .95 fall outside these bounds about once in 2,000; so for each of
    # the parameters, and the more so for the mean over them.
    low, high = stats.binom.ppf([2.5e-4, 1 - 2.5e-4], runs, 0.95) / runs
    share = np.mean(covered, axis=0)
    assert np.all(share >= low) and np.all(share <= high)
    assert low <= np.mean(covered_mean) <= high
