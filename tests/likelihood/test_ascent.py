"""The way to a maximum: without EM from next to it, with EM from anywhere else."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otmoe import simulate
from otmoe.likelihood import ascent
from otmoe.likelihood.fit import em


@pytest.fixture(scope="module")
def data():
    return simulate(6000, 3, 5, softness=1.0, random_state=0)


@pytest.fixture(scope="module")
def start(data):
    """The fit of other rows of the same kind, as shards start from."""
    return em(data.X[2000:], data.y[2000:], 3, random_state=0).model


def fitted(data, start, n_rows):
    stages = []
    some = slice(0, n_rows)
    fit = em(data.X[some], data.y[some], init=start, progress=lambda *a: stages.append(a[0]))
    return fit, set(stages)


def test_a_start_next_to_the_maximum_needs_no_em(data, start, monkeypatch):
    fit, stages = fitted(data, start, 2000)
    assert stages == {"newton"} and fit.converged and fit.evidence is not None
    monkeypatch.setattr(ascent, "_CLOSE", 0.0)
    usual, stages = fitted(data, start, 2000)
    assert stages == {"em", "newton"} and fit.n_iter < usual.n_iter
    assert_allclose(fit.log_likelihood, usual.log_likelihood, rtol=1e-12)
    assert_allclose(fit.model.to_vector(), usual.model.to_vector(), rtol=1e-6, atol=1e-6)


def test_few_rows_and_starts_far_away_have_em(data, start, rng):
    assert "em" in fitted(data, start, 400)[1]
    away = start.with_vector(start.to_vector() + rng.normal(size=start.n_parameters))
    fit, stages = fitted(data, away, 2000)
    assert "em" in stages and np.all(np.diff(fit.trace) >= -1e-9 * abs(fit.trace[0]))


def test_newton_that_does_not_get_there_is_taken_back(data, start, monkeypatch):
    usual = fitted(data, start, 2000)[0]
    monkeypatch.setattr(ascent, "_STEPS", 1)
    fit, stages = fitted(data, start, 2000)
    assert "em" in stages and fit.converged
    assert_allclose(fit.log_likelihood, usual.log_likelihood, rtol=1e-12)
