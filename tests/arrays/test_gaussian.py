"""The kernels for Gaussian experts do what the way of all arrays does, in one sweep."""

import numpy as np
import pytest

from otmoe.arrays import gaussian
from otmoe.likelihood import fused
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import e_step
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE


@pytest.fixture(
    params=[(700, 20, 4, False), (31, 1, 2, True), (513, 62, 5, True), (300, 0, 3, False)], ids=str
)
def problem(request):
    """A model and rows; their gate saturates at some of them."""
    n, d, K, weighted = request.param
    rng = np.random.default_rng(0)
    gate = 5 * rng.standard_normal((K, d + 1))
    gate[-1] = 0.0
    experts = GaussianExperts(rng.standard_normal((K, d + 1)), rng.uniform(1e-3, 2.0, K))
    weight = rng.random(n) * (rng.random(n) > 0.1) if weighted else None
    return MoE(SoftmaxGate(gate), experts), Rows(
        rng.standard_normal((n, d)), 10 * rng.standard_normal(n), weight
    )


@pytest.fixture
def plainly(monkeypatch):
    """A call without the kernels."""

    def call(function):
        with monkeypatch.context() as without:
            without.setattr(fused, "gaussian", None)
            return function()

    return call


def near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13 * np.abs(wanted).max())


def test_an_iteration_of_em(problem, plainly):
    found, wanted = e_step(*problem), plainly(lambda: e_step(*problem))
    assert fused.fit_sums(problem[0], problem[1].block(slice(None))) is not None
    near(found.log_likelihood, wanted.log_likelihood)
    for part in ("score", "information"):
        near(getattr(found.gate, part), getattr(wanted.gate, part))
    for part in ("weight", "score", "information", "dispersion"):
        near(getattr(found.experts, part), getattr(wanted.experts, part))


@pytest.mark.parametrize("matrix", [True, False])
def test_score_and_information(problem, plainly, matrix):
    found = observed_information(*problem, matrix=matrix)
    wanted = plainly(lambda: observed_information(*problem, matrix=matrix))
    near(found.log_likelihood, wanted.log_likelihood)
    for part in ("score", "mass", "matrix")[: 3 if matrix else 2]:
        near(getattr(found, part), getattr(wanted, part))
    assert found.matrix.shape == wanted.matrix.shape


def test_a_gate_that_sees_some_columns(problem, plainly):
    model, rows = problem
    coef = np.array(model.gate.coef)
    coef[:, 1:] = 0.0
    narrow = MoE(SoftmaxGate(coef, columns=(0,)), model.experts)
    assert fused.fit_sums(narrow, rows.block(slice(None))) is None
    found = observed_information(narrow, rows)
    wanted = plainly(lambda: observed_information(narrow, rows))
    near(found.score, wanted.score)
    near(found.matrix, wanted.matrix)


def test_exponentials():
    """As exact as those of the C library, down to where they vanish beside 1e-130."""
    a = -np.concatenate([[0.0, 1e-300, 1e-17, 710.0, 1e5, 1e300], np.geomspace(1e-9, 800, 4000)])
    found, scratch = a.copy(), np.empty(len(a))
    gaussian._exp(found, len(a), scratch, scratch.view(np.int64))
    np.testing.assert_allclose(found, np.exp(a) + 1e-130, rtol=5e-16)


@pytest.mark.parametrize("k", [0, 1])
def test_what_is_not_a_number_is_not_hidden(problem, k):
    model, rows = problem
    coef = np.array(model.experts.coef)
    coef[k, 0] = np.nan
    broken = MoE(model.gate, GaussianExperts(coef, model.experts.var))
    assert np.isnan(e_step(broken, rows).log_likelihood)
    assert np.isnan(observed_information(broken, rows).log_likelihood)
