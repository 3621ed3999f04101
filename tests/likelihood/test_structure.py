"""Fits within a structure: brute force over what is free, nested models, other libraries."""

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from refusals import refused
from scipy import special, stats
from scipy.optimize import minimize

from otmoe.inference.observed import fitted_inference, observed_inference
from otmoe.likelihood.fit import em
from otmoe.model.structure import Structure

GATE = (0, 2)
OF_INTERCEPT = 0.01  # of the ridge on slopes
PLAIN = {"alpha": 0.0, "expert_alpha": 0.0}


def rising(p):
    return np.array([[p[0], p[1], 0], [p[2], p[3], 0]])


def sloped(p):
    return np.array([[p[0], p[1], p[2]], [p[3], p[4], p[2]]])


def joined(p):
    return np.array([[p[0], p[1], p[2]], [p[0], p[3], p[4]]])


def apart(p):
    return np.array([[p[0], p[1], 0], [p[2], 0, p[3]]])


def constant(p):
    return np.array([[p[0], 0, 0], [p[1], 0, 0]])


def mixed(p):
    return np.array([[p[0], p[1], p[2]], [p[3], 0, p[2]]])


def steep(p):
    return np.array([[0, p[0], p[1]], [0, p[2], p[3]]])


def nested(p):
    return np.array([[0, p[0], 0], [p[1], p[0], p[2]]])


# what each says by hand: coefficients of two experts from so many free numbers
CASES = {
    "gate alone sees x1": (Structure(columns=((0, 1),)), rising, 4),
    "common slope": (Structure(common=(2,)), sloped, 5),
    "common intercept": (Structure(common=(0,)), joined, 5),
    "columns of their own": (Structure(columns=((0, 1), (0, 2))), apart, 4),
    "constants": (Structure(columns=((0,),)), constant, 2),
    "own and common": (Structure(columns=((0, 1, 2), (0, 2)), common=(2,)), mixed, 4),
    "through the origin": (Structure(columns=((1, 2),)), steep, 4),
    "one through the origin": (Structure(columns=((1,), (0, 1, 2)), common=(1,)), nested, 3),
}
TRUTH = {
    "gate alone sees x1": [4.0, 1.0, 1.0, -0.5],
    "common slope": [4.0, 1.0, 0.3, 1.0, -0.5],
    "common intercept": [1.0, 2.0, 0.5, -0.5, 0.2],
    "columns of their own": [4.0, 1.0, 1.0, -0.5],
    "constants": [4.0, 1.0],
    "own and common": [4.0, 1.0, 0.3, 1.0],
    "through the origin": [2.0, -1.0, -1.0, 0.5],
    "one through the origin": [0.5, 5.0, 1.0],
}


def table(case, family, n, seed=0):
    """Draw rows from the truth of a case; the features are far from standardised."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) + [1.0, -2.0]
    Z = np.column_stack([np.ones(n), X])
    coef = CASES[case][1](np.array(TRUTH[case]))
    if family == "poisson":
        coef = 0.5 * coef
    first = rng.random(n) < special.expit(2.0 * (X[:, 1] + 2.0))
    eta = np.where(first, Z @ coef[0], Z @ coef[1])
    if family == "gaussian":
        return X, eta + rng.normal(size=n) * np.where(first, 0.5, 1.0)
    if family == "poisson":
        return X, rng.poisson(np.exp(eta)).astype(float)
    return X, (rng.random(n) < special.expit(eta - 2.0)).astype(float)


def by_hand(case, family, common_variance, X, y):
    """Return the log-likelihood as a function of the free numbers, in plain NumPy and SciPy."""
    _, place, size = CASES[case]
    Z = np.column_stack([np.ones(len(X)), X])

    def log_likelihood(psi):
        gate, coef, rest = psi[:2], place(psi[2:]), psi[2 + size :]
        logit = gate[0] + gate[1] * X[:, 1]
        eta = Z @ coef.T
        if family == "gaussian":
            sd = np.exp(0.5 * (np.repeat(rest, 2) if common_variance else rest))
            log_prob = stats.norm.logpdf(y[:, None], eta, sd)
        elif family == "poisson":
            log_prob = stats.poisson.logpmf(y[:, None], np.exp(eta))
        else:
            log_prob = stats.bernoulli.logpmf(y[:, None], special.expit(eta))
        log_gate = np.column_stack([special.log_expit(logit), special.log_expit(-logit)])
        return special.logsumexp(log_gate + log_prob, axis=1).sum()

    return log_likelihood


def penalty_by_hand(case, X, alpha, least):
    """Return the ridges on standardised features as a function of the free numbers.

    That of the experts is `least` at least.
    """
    _, place, size = CASES[case]
    center, scale = X.mean(axis=0), X.std(axis=0)

    def penalty(psi):
        gate = np.array([psi[0] + psi[1] * center[1], psi[1] * scale[1]])
        coef = place(psi[2 : 2 + size])
        slopes, intercepts = coef[:, 1:] * scale, coef[:, 0] + coef[:, 1:] @ center
        experts = max(alpha, least) * (np.sum(slopes**2) + OF_INTERCEPT * np.sum(intercepts**2))
        return 0.5 * (alpha * 0.5 * gate @ gate + experts)  # that of the gate is centred

    return penalty


def free_numbers(model, case, common_variance):
    """Read the free numbers of a fitted model off its coefficients."""
    structure, place, size = CASES[case]
    coef = model.experts.coef
    names = place(np.arange(1.0, size + 1))
    psi = np.array([coef[names == i][0] for i in np.arange(1.0, size + 1)])
    parts = [model.gate.coef[0, list(GATE)], psi]
    if model.experts.dispersion is not None:
        logs = np.log(model.experts.dispersion)
        parts.append(logs[:1] if common_variance else logs)
    return np.concatenate(parts)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("family", "common_variance"),
    [("gaussian", False), ("gaussian", True), ("poisson", False), ("logistic", False)],
)
def test_the_fit_is_the_maximum_over_what_is_free(case, family, common_variance):
    X, y = table(case, family, 3000 if family == "logistic" else 400)
    structure = CASES[case][0]
    if common_variance:
        structure = Structure(structure.columns, structure.common, True)
    if family == "logistic" and case in ("gate alone sees x1", "constants"):
        y[::7] = 1 - y[::7]
    ridge = {"alpha": 1e-4, "expert_alpha": 1e-4} if family == "logistic" else PLAIN
    fit = em(
        X, y, 2, family=family, structure=structure, gate_columns=GATE, random_state=0, **ridge
    )
    assert fit.converged and np.diff(fit.trace).min(initial=0.0) >= -1e-9
    log_likelihood = by_hand(case, family, common_variance, X, y)
    penalty = penalty_by_hand(case, X, ridge["alpha"], 0.0 if family == "gaussian" else 1e-5)
    start = free_numbers(fit.model, case, common_variance)
    assert_allclose(log_likelihood(start), fit.log_likelihood, rtol=1e-10)
    assert_allclose(log_likelihood(start) - penalty(start), fit.trace[-1], rtol=1e-10)
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.05, len(start))
    best = minimize(lambda psi: penalty(psi) - log_likelihood(psi), start + noise, method="BFGS")
    assert fit.trace[-1] >= -best.fun - 2e-3
    assert fit.rank == fit.model.n_free == len(start)
    if family != "logistic":  # whose weak ridge moves what rows hardly determine
        assert_allclose(start, best.x, atol=2e-3)


def test_a_multinomial_fit_is_the_maximum_over_what_is_free():
    rng = np.random.default_rng(3)
    n = 3000
    X = rng.normal(size=(n, 2)) + [1.0, -2.0]
    Z = np.column_stack([np.ones(n), X])
    coef = np.array([[[2.0, 1, 0.5], [0, -1, 0.5]], [[-2.0, 0.5, 0.5], [1, 1, 0.5]]])
    first = (rng.random(n) < special.expit(3 * (X[:, 1] + 2))).astype(int)
    eta = np.einsum("kcp,np->nkc", coef, Z)[np.arange(n), 1 - first]
    p = special.softmax(np.column_stack([eta, np.zeros(n)]), axis=1)
    y = (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).astype(float)
    structure = Structure(common=(2,))
    how = {"family": "multinomial", "n_classes": 3, "structure": structure, "gate_columns": GATE}
    fit = em(X, y, 2, random_state=0, alpha=1e-3, expert_alpha=1e-3, **how)
    found = fit.model.experts.coef
    assert fit.converged and np.all(found[0, :, 2] == found[1, :, 2])
    C, model = fit.model.basis, fit.model
    psi = np.linalg.lstsq(C, model.to_vector())[0]

    def loss(psi):
        return -model.with_vector(C @ psi).log_density(X, y).sum()

    best = minimize(loss, psi, method="BFGS", options={"maxiter": 30})
    assert -best.fun - fit.log_likelihood < 2e-2


def test_one_expert_through_the_origin_is_the_regression_without_a_constant():
    X, y = table("through the origin", "gaussian", 300)
    how = {"structure": Structure(columns=((1, 2),)), "random_state": 0, **PLAIN}
    y = y + 1000.0  # far from where y is centred otherwise
    fit, least = em(X, y, 1, **how), sm.OLS(y, X).fit()
    assert_allclose(fit.log_likelihood, least.llf, rtol=1e-10)
    assert_allclose(fit.model.experts.coef, [[0.0, *least.params]], rtol=1e-9)
    se = fitted_inference(fit, fit.model).standard_errors.coef[0]
    assert se[0] == 0
    assert_allclose(se[1:], least.bse * np.sqrt(1 - 2 / 300), rtol=1e-7)
    X, y = table("through the origin", "poisson", 300)
    fit = em(X, y, 1, family="poisson", **how)
    other = sm.GLM(y, X, family=sm.families.Poisson()).fit(tol=1e-12)
    assert_allclose(fit.log_likelihood, other.llf, rtol=1e-10)
    assert_allclose(fit.model.experts.coef, [[0.0, *other.params]], rtol=1e-6)


def test_a_constant_column_would_be_the_intercept_that_is_left_out():
    X, y = table("through the origin", "gaussian", 300)
    more, names = np.column_stack([X, np.full(300, 7.0)]), ("a", "b", "c")
    how = {"random_state": 0, "feature_names": names, **PLAIN}
    refused("origin_constant", feature="c", value=7.0).by(
        em, more, y, 2, structure=Structure(columns=((1, 3), (0, 1))), **how
    )
    fit = em(more, y, 2, structure=Structure(columns=((1, 2), (0, 1, 3))), **how)
    refused("origin_constant", feature="x0", value=1.0).by(
        observed_inference, fit.model, np.ones((300, 3)), y
    )


def test_standard_errors_are_those_of_the_hessian_in_what_is_free():
    for case in CASES:
        X, y = table(case, "gaussian", 400)
        structure = CASES[case][0]
        fit = em(X, y, 2, structure=structure, gate_columns=GATE, random_state=0, **PLAIN)
        log_likelihood = by_hand(case, "gaussian", False, X, y)
        psi = free_numbers(fit.model, case, False)
        h = 1e-4 * np.eye(len(psi))
        hessian = np.array(
            [
                [
                    log_likelihood(psi + a + b)
                    - log_likelihood(psi + a - b)
                    - log_likelihood(psi - a + b)
                    + log_likelihood(psi - a - b)
                    for b in h
                ]
                for a in h
            ]
        ) / (4e-8)
        wanted = np.sqrt(np.diagonal(np.linalg.inv(-hessian)))
        found = fitted_inference(fit, fit.model)
        size = CASES[case][2]
        names = CASES[case][1](np.arange(1.0, size + 1))
        se = found.standard_errors
        assert_allclose(
            [se.coef[names == i][0] for i in np.arange(1.0, size + 1)],
            wanted[2 : 2 + size],
            rtol=1e-3,
        )
        assert np.all(se.coef[names == 0] == 0)
        assert_allclose(se.gate[0, list(GATE)], wanted[:2], rtol=1e-3)
        again = observed_inference(fit.model, X, y, **PLAIN)
        assert_allclose(again.covariance.matrix, found.covariance.matrix, rtol=1e-4, atol=1e-8)
        assert found.rank == fit.rank == len(psi)


def test_a_column_that_no_expert_sees_has_no_row_in_the_summary():
    X, y = table("columns of their own", "gaussian", 400)
    structure = CASES["columns of their own"][0]
    fit = em(X, y, 2, structure=structure, gate_columns=GATE, random_state=0, **PLAIN)
    found = fitted_inference(fit, fit.model)
    assert found.summary().count("x0 ") == 1 and "parameters:                        8" in str(
        found.summary()
    )
    assert [row.note for row in found.table() if row.term == "x0"] == ["", "fixed"]
    assert found.wald(np.eye(10)[[3, 6]]).df == 1  # the other one is zero by the structure


def test_common_coefficients_differ_by_nothing():
    X, y = table("common intercept", "gaussian", 400)
    fit = em(X, y, 2, structure=Structure(common=(0,)), random_state=0, **PLAIN)
    difference = fitted_inference(fit, fit.model).contrast(0, 1, "intercept")[0]
    assert difference.estimate == difference.se == 0 and difference.note == "fixed"


def test_nested_models_are_never_more_likely():
    X, y = table("common slope", "gaussian", 400)
    chain = [
        None,
        Structure(common=(2,)),
        Structure(common=(2,), common_variance=True),
        Structure(columns=((0, 1),), common_variance=True),
        Structure(columns=((0, 1), (0,)), common_variance=True),
        Structure(columns=((0,),), common_variance=True),
    ]
    heights = [em(X, y, 2, structure=s, random_state=0, **PLAIN).log_likelihood for s in chain]
    assert np.diff(heights).max() < 1e-6


def test_a_column_and_its_copy_make_a_free_fit_of_columns_of_their_own():
    X, y = table("gate alone sees x1", "gaussian", 400)
    twice = np.column_stack([X[:, 0], X[:, 0], X[:, 1]])
    own = Structure(columns=((0, 1, 3), (0, 2, 3)))
    free = em(X, y, 2, random_state=0, gate_columns=(0, 2), **PLAIN)
    found = em(twice, y, 2, random_state=0, gate_columns=(0, 3), structure=own, **PLAIN)
    assert_allclose(found.log_likelihood, free.log_likelihood, rtol=1e-9)
    assert found.rank == free.rank


def test_one_expert_is_the_regression_on_what_it_sees():
    X, y = table("common slope", "poisson", 500)
    structure = Structure(columns=((0, 2),))
    fit = em(X, y, 1, family="poisson", structure=structure, **PLAIN)
    other = sm.GLM(y, sm.add_constant(X[:, 1]), family=sm.families.Poisson()).fit(tol=1e-12)
    assert_allclose(fit.model.experts.coef[0, [0, 2]], other.params, rtol=1e-6)
    assert_allclose(fit.log_likelihood, other.llf, rtol=1e-10)
    se = fitted_inference(fit, fit.model).standard_errors.coef[0]
    assert_allclose(se[[0, 2]], other.bse, rtol=1e-5)
    X, y = table("common slope", "gaussian", 500)
    fit = em(X, y, 1, structure=structure, **PLAIN)
    least = sm.OLS(y, sm.add_constant(X[:, 1])).fit()
    assert_allclose(fit.model.experts.coef[0, [0, 2]], least.params, rtol=1e-8)
    assert_allclose(fit.log_likelihood, least.llf, rtol=1e-10)


def test_weight_two_is_the_row_twice():
    X, y = table("own and common", "gaussian", 200)
    weight = 1.0 + (np.arange(200) % 2)
    how = {"structure": CASES["own and common"][0], "random_state": 0, **PLAIN}
    weighted = em(X, y, 2, sample_weight=weight, **how)
    copies = np.repeat(np.arange(200), weight.astype(int))
    repeated = em(X[copies], y[copies], 2, **how)
    assert_allclose(weighted.model.to_vector(), repeated.model.to_vector(), rtol=1e-5, atol=1e-7)


def test_constant_columns_leave_the_structure_alone():
    X, y = table("common slope", "gaussian", 300)
    more = np.column_stack([X, np.full(300, 7.0)])
    structure = Structure(common=(0, 2, 3))
    plain = em(X, y, 2, structure=Structure(common=(0, 2)), gate_columns=GATE, random_state=0)
    found = em(more, y, 2, structure=structure, gate_columns=GATE, random_state=0)
    assert_allclose(found.log_likelihood, plain.log_likelihood, rtol=1e-8)
    assert found.rank == plain.rank and np.ptp(found.model.experts.coef[:, 0]) == 0


def test_experts_with_columns_of_their_own_keep_their_order():
    X, y = table("columns of their own", "gaussian", 400)
    one = Structure(columns=((0, 1), (0, 2)), names=("first", "second"))
    how = {"gate_columns": GATE, "random_state": 0, **PLAIN}
    a = em(X, y, 2, structure=one, **how)
    b = em(X, y, 2, structure=one.take([1, 0]), **how)
    assert a.model.structure == one and b.model.structure.names == ("second", "first")
    assert_allclose(a.model.experts.coef, b.model.experts.coef[::-1], atol=1e-6)
