"""Replies with fewer digits: what they lose, and what they hide."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from refusals import refused

from otmoe import MoERegressor, simulate
from otmoe.documents.reply import RefineReply
from otmoe.federation.policy.replies import rounded_reply
from otmoe.inference import fitted_inference, refined_inference
from otmoe.likelihood.answers import SCORE_STEP, noise_of, site_information
from otmoe.likelihood.fit import em
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rounds import Refinement, advance
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge
from otmoe.text.errors import InferenceError

DIGITS = 0.01


@pytest.fixture(scope="module", params=[("gaussian", 2), ("poisson", 2), ("logistic", 1)])
def asked(request):
    """Return a model near the maximum of some rows whose features hang together, and the rows."""
    family, K = request.param
    data = simulate(2000, K, 3, family=family, softness=1.0, random_state=0)
    X = data.X.copy()
    X[:, 2] = X[:, 0] + 0.05 * X[:, 2]
    model = em(X, data.y, K, family=family, init=data.truth).model
    return model.with_vector(model.to_vector() * 1.01), Rows(X, data.y)


def replied(model, rows, digits=DIGITS, **parts):
    found = site_information("Lyon", model, Scaling.of(rows.X), rows, **parts)
    return found, rounded_reply(found, model, rows, digits)


def test_no_coefficient_moves_by_more_than_the_digits(asked):
    found, coarse = replied(*asked)
    error = coarse.information.score - found.information.score
    covariance = np.linalg.inv(found.information.matrix)
    moved = covariance @ error / np.sqrt(np.diagonal(covariance))
    assert 0 < np.abs(moved).max() < DIGITS
    # and standard errors stay what they are
    after = np.linalg.inv(coarse.information.matrix)
    assert_allclose(np.diagonal(after), np.diagonal(covariance), rtol=2 * DIGITS)
    assert_allclose(coarse.information.mass.sum(), 2000)
    assert coarse.rounding.digits == DIGITS


def test_a_reply_that_is_rounded_is_a_reply(asked):
    model, rows = asked
    groups = np.arange(len(rows)) % 50
    _, coarse = replied(model, rows, scatter=True, groups=groups)
    reply = RefineReply(1, "0", coarse)  # checks all of it: a scatter is one of such scores
    assert RefineReply.from_json(reply.to_json()).to_json() == reply.to_json()
    assert rounded_reply(coarse, model, rows, 0.0) is coarse


def test_the_log_likelihood_has_the_digits_of_its_standard_error(asked):
    model, rows = asked
    found, coarse = replied(model, rows)
    spread = np.std(model.log_density(rows.X, rows.y)) * np.sqrt(len(rows))
    assert_allclose(coarse.rounding.log_likelihood, DIGITS * spread)
    moved = coarse.information.log_likelihood - found.information.log_likelihood
    assert 0 < abs(moved) <= DIGITS * spread / 2


def recovered(model, rows, digits):
    """Return y of row 0 as the difference of two replies has it, if x is known."""
    scaling = Scaling.of(rows.X)
    less = rows.take(np.arange(1, len(rows)))
    one, two = (
        rounded_reply(site_information("Lyon", model, scaling, some), model, some, digits)
        for some in (rows, less)
    )
    score = (one.information.score - two.information.score)[0]
    return float(model.predict(rows.X[:1])[0] + score * model.experts.var[0])


def test_differences_of_rounded_replies_tell_no_more_than_the_rounding_lets_through():
    """Of n rows, one counts 1 / sqrt(n) standard errors: a hundredth of one hides it in 40,000."""
    errors = {}
    for digits in (0.0, DIGITS):
        errors[digits] = []
        for seed in range(5):
            data = simulate(40_000, 1, 2, random_state=seed)
            rows = Rows(data.X, data.y)
            sd = np.sqrt(data.truth.experts.var[0])
            errors[digits].append(abs(recovered(data.truth, rows, digits) - data.y[0]) / sd)
    assert max(errors[0.0]) < 1e-6
    # in residual standard deviations: at least as bad as a guess by the model
    assert np.median(errors[DIGITS]) > 0.5


def test_the_noise_is_that_of_a_uniform_error():
    steps = np.random.default_rng(0).uniform(-0.5, 0.5, 100_000) * SCORE_STEP * DIGITS
    assert_allclose(noise_of(DIGITS), steps.var(), rtol=1e-2)


@pytest.mark.filterwarnings("ignore:MoERegressor")
def test_a_feature_that_never_varies_does_no_harm():
    data = simulate(500, 2, 2, softness=1.0, random_state=0)
    X = np.column_stack([data.X, np.full(500, 3.0)])
    model = MoERegressor(2, random_state=0, n_init=1).fit(X, data.y).model_
    found, coarse = replied(model, Rows(X, data.y))
    assert np.isfinite(coarse.information.score).all()
    back = replace(found, rounding=None)
    assert_allclose(coarse.information.matrix, back.information.matrix, rtol=1e-2, atol=1.0)


def rounds_of(digits):
    """Return refine rounds over four sites, of which two round more than the others."""
    data = simulate(1200, 2, 3, family="logistic", softness=1.0, random_state=0)
    start = em(data.X, data.y, 2, family="logistic", init=data.truth, random_state=0).model
    state = Refinement(
        start.with_vector(1.1 * start.to_vector()), Scaling.of(data.X), Ridge.of(start.experts)
    )
    parts = np.split(np.arange(1200), [400, 800, 1000])
    while not state.is_done("auto"):
        answers = []
        for m, part in enumerate(parts):
            rows = Rows(data.X[part], data.y[part])
            found = site_information(f"site {m}", state.model, state.scaling, rows)
            answers.append(rounded_reply(found, state.model, rows, digits if m > 1 else DIGITS))
        state = advance(state, answers)
    return data, state


def test_coarse_replies_lead_as_close_to_the_maximum_as_is_said():
    data, state = rounds_of(0.15)
    whole = em(data.X, data.y, 2, family="logistic", init=state.model)
    step = state.model.to_vector() - whole.model.aligned_to(state.model, data.X).to_vector()
    matrix = observed_information(whole.model, Rows(data.X, data.y)).matrix
    assert 0.03 < state.unsure < 0.1
    assert np.sqrt(step @ matrix @ step) < 3 * state.unsure
    assert state.converged and state.status.code == "at_rounded_maximum"
    # the score is that before the last step: what counts is where the step has led
    found, exact = refined_inference(state), fitted_inference(whole, whole.model)
    assert_allclose([e.se for e in found.table()], [e.se for e in exact.table()], rtol=0.15)


def test_standard_errors_are_refused_where_rounding_hides_the_maximum():
    state = rounds_of(0.5)[1]
    assert state.converged and state.unsure > 0.1
    with refused("replies_too_coarse", InferenceError, distance=state.unsure, bound=0.1):
        refined_inference(state)
