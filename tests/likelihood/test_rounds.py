"""Refine rounds: answers add up, steps are safeguarded, and the end is the pooled maximum."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    distance,
    jacobian,
    log_likelihood,
    nearby,
    never_falls,
    random_model,
    random_rows,
)
from refusals import codes, refused

from otmoe import DistributedMoEClassifier, DistributedMoERegressor, observed_inference, simulate
from otmoe.arrays.bounded import length
from otmoe.data.shards import ArrayShard, ShardError
from otmoe.distributed.rounds import refine_shards
from otmoe.estimators.base import FitWarning
from otmoe.likelihood.answers import digest, site_information
from otmoe.likelihood.fit import em
from otmoe.likelihood.predictors import predictors_of
from otmoe.likelihood.rounds import TOL, Refinement, advance
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge
from otmoe.text.errors import InferenceError
from otmoe.text.sentences import Error
from otmoe.workers.failures import TasksFailed

RIDGE = Ridge(0.03, 0.0)


@pytest.fixture(scope="module")
def data():
    return simulate(4000, 2, 3, softness=1.0, random_state=0)


def parts(data, n=4, weight=None):
    return {
        f"site {i}": Rows(data.X[s], data.y[s], None if weight is None else weight[s])
        for i, s in enumerate(np.array_split(np.arange(len(data.y)), n))
    }


def asked(state, sites):
    return [
        site_information(name, state.model, state.scaling, rows) for name, rows in sites.items()
    ]


# -- answers -----------------------------------------------------------------------------------


def test_an_answer_is_the_likelihood_and_its_derivatives(rng, family):
    model = random_model(rng, 2, 2, family=family)
    X, y = random_rows(rng, model, 40)
    X = X * 3 + 10
    weight = rng.uniform(0.5, 2, 40)
    scaling = Scaling(np.array([9.0, 11.0]), np.array([2.0, 4.0]))
    found = site_information("a", model, scaling, Rows(X, y, weight))
    start = scaling.from_user(model)

    def value(vector):
        return log_likelihood(scaling.to_user(start.with_vector(vector)), X, y, weight)

    at = start.to_vector()
    assert_allclose(found.information.log_likelihood, value(at), rtol=1e-9)
    assert_allclose(found.information.score, jacobian(value, at), rtol=1e-4, atol=1e-3)
    assert_allclose(found.n_samples, weight.sum())
    assert_allclose(found.moments.mean, np.average(X, axis=0, weights=weight))
    assert_allclose(found.moments.var, np.cov(X.T, aweights=weight, ddof=0).diagonal())


# -- steps -------------------------------------------------------------------------------------


def test_the_end_is_the_pooled_fit(rng, family):
    data = simulate(3000, 2, 2, family=family, n_classes=3, softness=1.0, random_state=1)
    fit = em(data.X, data.y, 2, family=family, n_classes=3, random_state=0)
    start = nearby(rng, fit.model)
    scaling = Scaling(np.array([0.3, -1.0]), np.array([2.0, 0.5]))
    state = Refinement(start, scaling, Ridge.of(start.experts))
    while not state.is_done("auto"):
        state = advance(state, asked(state, parts(data)))
    assert state.converged and never_falls(np.array(state.trace))
    # the same penalty as that of one fit to all rows, although nobody saw all of them
    assert distance(state.model, fit.model, data.X, data.y) < 1e-4
    assert_allclose(state.trace[-1], fit.trace[-1], rtol=1e-9)
    assert state.status.code == "at_maximum" and not state.status.sites


def test_order_and_number_of_sites_do_not_matter(data):
    start = data.truth
    states = []
    for n, back in [(1, False), (5, False), (5, True)]:
        state = Refinement(start, Scaling.of(data.X), RIDGE)
        for _ in range(2):
            answers = asked(state, parts(data, n))
            state = advance(state, answers[::-1] if back else answers)
        states.append(state.model.to_vector())
    assert_allclose(states[1], states[0], rtol=1e-9)
    assert_array_equal(states[2], states[1])


def test_weight_two_is_each_row_twice(data):
    double = replace(data, X=np.vstack([data.X] * 2), y=np.concatenate([data.y] * 2))
    one = Refinement(data.truth, Scaling.of(data.X), RIDGE)
    two = advance(one, asked(one, parts(double, 1)))
    one = advance(one, asked(one, parts(data, 3, weight=np.full(len(data.y), 2.0))))
    assert_allclose(one.model.to_vector(), two.model.to_vector(), rtol=1e-9)


def test_a_step_that_lowers_the_likelihood_is_taken_back(data):
    sites = parts(data)
    state = Refinement(data.truth, Scaling.of(data.X), RIDGE)
    state = advance(state, asked(state, sites))
    far = replace(state, model=state.model.with_vector(state.model.to_vector() + 1.0))
    back = advance(far, asked(far, sites))
    assert back.best is state.best and back.trace == state.trace and back.rounds == 2
    information = back.best.information.matrix + back.penalty
    blocks = predictors_of(back.model)
    tried, shorter = (
        length(information, back.scaling.from_user(s.model).to_vector() - back.best.theta, blocks)
        for s in (far, back)
    )
    assert 0 < shorter <= back.radius * (1 + 1e-9) and back.radius <= tried / 2


@pytest.mark.parametrize("seed", range(6))
def test_from_afar_what_is_accepted_never_falls(data, seed):
    start = nearby(np.random.default_rng(seed), data.truth, 1.0)
    state, sites = Refinement(start, Scaling.of(data.X), RIDGE), parts(data)
    while not state.is_done("auto"):
        state = advance(state, asked(state, sites))
    assert state.converged and state.rounds <= 25 and never_falls(np.array(state.trace))


def test_parameters_belong_to_predictors():
    model = simulate(10, 3, 2, random_state=0).truth
    found = predictors_of(model)
    assert len(found) == model.n_parameters
    assert_array_equal(np.unique(found, return_counts=True)[1], [3] * 5 + [1] * 3)


def test_a_step_that_keeps_its_promise_frees_the_next(data):
    sites = parts(data)
    state = Refinement(data.truth, Scaling.of(data.X), RIDGE, radius=0.5)
    steps = []
    for _ in range(4):
        state = advance(state, asked(state, sites))
        steps.append(state.radius)
    assert steps[0] == 0.5 and steps == sorted(steps) and steps[-1] > 1.5


def test_a_site_that_misses_a_round_is_named_and_not_compared(data):
    sites = parts(data)
    state = Refinement(data.truth, Scaling.of(data.X), RIDGE)
    state = advance(state, asked(state, sites), list(sites))
    assert state.missing == ()
    less = {name: rows for name, rows in sites.items() if name != "site 2"}
    # fewer rows have a larger log-likelihood; that is no progress, and not taken for it
    worse = replace(state, model=state.model.with_vector(state.model.to_vector() + 1.0))
    after = advance(worse, asked(worse, less), list(sites))
    assert after.missing == ((2, "site 2"),) and after.best is state.best
    better = advance(state, asked(state, less), list(sites))
    assert better.missing == ((2, "site 2"),) and better.best is not state.best
    assert better.best.n_samples == 3000


def test_an_answer_without_a_site_does_not_claim_all_rows(data):
    sites = parts(data)
    less = {name: rows for name, rows in sites.items() if name != "site 2"}
    state = Refinement(data.truth, Scaling.of(data.X), RIDGE)
    while not state.is_done("auto"):
        state = advance(state, asked(state, less), list(sites))
    assert state.status.code == "at_maximum" and state.status.sites == ("site 2",)
    for _ in range(4):  # it is back
        state = advance(state, asked(state, sites), list(sites))
    assert state.status.code == "at_maximum" and not state.status.sites


def test_rounds_are_counted(data):
    sites = parts(data)
    state = Refinement(data.truth, Scaling.of(data.X), RIDGE)
    assert not state.is_done(1) and state.is_done(0) and not state.is_done("auto")
    assert state.status.code == "no_rounds"
    state = advance(state, asked(state, sites))
    assert state.is_done(1) and not state.is_done(2)
    assert state.status.code == "not_at_maximum" and state.rounds == 1


def test_a_digest_tells_questions_apart(rng):
    a, b = random_model(rng), random_model(rng)
    scaling = Scaling.of(rng.normal(size=(9, a.n_features)))
    assert digest(a, scaling) == digest(replace(a), scaling) != digest(b, scaling)
    near = a.with_vector(np.nextafter(a.to_vector(), np.inf))
    assert digest(a, scaling) != digest(near, scaling)
    assert digest(a, scaling) != digest(a, replace(scaling, x_scale=2 * scaling.x_scale))


# -- over an executor --------------------------------------------------------------------------


class Absent(ArrayShard):
    def read(self):
        raise ShardError(Error.NO_ROWS, where=self.name)


def test_shards_that_do_not_answer(data):
    shards = [
        ArrayShard(name, rows.X, rows.y) for name, rows in parts(data).items() if name != "site 1"
    ]
    shards.insert(1, Absent("site 1", data.X[:10], data.y[:10]))
    options = {"scaling": Scaling.of(data.X)}
    with pytest.raises(TasksFailed) as caught:
        refine_shards(shards, data.truth, 1, **options)
    assert [(f.name, f.cause.code) for f in caught.value.failures] == [("site 1", "no_rows")]
    state = refine_shards(shards, data.truth, 2, on_error="skip", **options)
    assert state.missing == ((1, "site 1"), (2, "site 1")) and state.best.n_samples == 3000


@pytest.mark.parametrize("rounds", [-1, 1.5, "often", True, None])
def test_rounds_that_make_no_sense_are_refused(data, rounds):
    with refused("rounds_wrong", value=rounds):
        refine_shards([], data.truth, rounds, scaling=Scaling.of(data.X))


@pytest.mark.parametrize("method", ["reduction", "gram"])
def test_an_estimator_reaches_the_centralised_fit(data, method):
    fit = em(data.X, data.y, 2, random_state=0)
    options = {"n_experts": 2, "n_shards": 10, "method": method, "random_state": 0}
    gaps = []
    for refine in (0, 1, "auto"):
        est = DistributedMoERegressor(refine=refine, **options).fit(data.X, data.y)
        found = est.model_.aligned_to(fit.model, data.X)
        gaps.append(distance(found, fit.model, data.X, data.y))
    assert gaps[0] > 3 * gaps[1] > 3 * gaps[2] and gaps[2] < 1e-3
    state = est.aggregation_.refinement
    assert state.converged and state.decrement < TOL and state.rounds <= 6
    assert est.aggregation_.status.facts["rounds"].code == "at_maximum"


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")  # the ridge has its say
def test_a_classifier_is_refined_too():
    data = simulate(3000, 2, 2, family="logistic", softness=1.0, random_state=5)
    y = np.array(["no", "yes"])[data.y.astype(int)]
    est = DistributedMoEClassifier(2, n_shards=3, refine="auto", random_state=0).fit(data.X, y)
    model = em(data.X, data.y, 2, family="logistic", init=est.model_).model
    assert distance(est.model_, model, data.X, data.y) < 1e-3


def test_standard_errors_after_refining_are_those_of_one_fit(data):
    options = {"n_experts": 2, "n_shards": 5, "random_state": 0}
    est = DistributedMoERegressor(refine="auto", **options).fit(data.X, data.y)
    found = est.aggregation_.inference()
    fit = em(data.X, data.y, 2, random_state=0)
    there = observed_inference(est.model_, data.X, data.y)
    assert_allclose(found.standard_errors.coef, there.standard_errors.coef, rtol=1e-3)
    assert_allclose(found.standard_errors.gate, there.standard_errors.gate, rtol=1e-3)
    assert_allclose(found.log_likelihood, fit.log_likelihood, rtol=1e-9)
    assert found.n_samples == len(data.y)


@pytest.mark.parametrize(
    ("refine", "code", "facts"),
    [(0, "one_round", {"method": "reduction", "sites": 10}), (1, "not_at_maximum", {})],
)
def test_standard_errors_before_that_are_refused(data, refine, code, facts):
    how = {"n_shards": 10, "method": "reduction", "refine": refine}
    est = DistributedMoERegressor(2, **how, random_state=0)
    refused(code, InferenceError, **facts).by(est.fit(data.X, data.y).aggregation_.inference)


def test_a_separated_gate_is_named(rng):
    """Nothing but the ridge holds the gate of two regions with a gap between them."""
    x = np.concatenate([rng.uniform(-3, -1, 1500), rng.uniform(1, 3, 1500)])
    X = np.column_stack([x, rng.normal(size=3000)])
    y = np.where(x < 0, 5 + 3 * x, -4 - 2 * x) + 0.3 * rng.normal(size=3000)
    with pytest.warns(FitWarning) as caught:
        est = DistributedMoERegressor(2, n_shards=4, refine="auto", random_state=0).fit(X, y)
    assert est.aggregation_.refinement.converged
    assert "gate_undetermined" in codes(est.aggregation_.warnings)
    assert "gate_undetermined" in caught[0].message.codes


def test_a_last_step_that_nobody_has_seen_is_taken_back_if_it_is_bad(data):
    """From far off, where the quadratic is no guide, refine=1 must not end below its start."""
    rng = np.random.default_rng(0)
    shards = [ArrayShard(f"s{i}", r.X, r.y) for i, r in enumerate(parts(data).values())]
    scaling, taken_back = Scaling.of(data.X), 0
    for _ in range(20):
        start = nearby(rng, data.truth, 0.6)
        state = refine_shards(shards, start, 1, scaling=scaling)
        first, last = (log_likelihood(m, data.X, data.y) for m in (start, state.model))
        assert last >= first - 1.0  # the ridge's part
        back = np.allclose(state.model.to_vector(), start.to_vector())
        assert back == (state.kept is False) == (state.status.code == "step_taken_back")
        assert codes(state.warnings(1)) == ["step_taken_back"] * back
        taken_back += back
    assert 0 < taken_back < 20


def test_rounds_that_give_up_say_so_and_what_to_do(data, monkeypatch):
    monkeypatch.setattr("otmoe.likelihood.rounds.MOST_ROUNDS", 1)
    est = DistributedMoERegressor(2, n_shards=10, refine="auto", random_state=0)
    with pytest.warns(FitWarning) as caught:
        est.fit(data.X, data.y)
    assert not est.aggregation_.converged and not est.aggregation_.refinement.converged
    assert codes(est.warnings_) == codes(est.aggregation_.warnings) == ["rounds_ended"]
    assert "rounds_ended" in caught[0].message.codes
    document = est.aggregation_.document()
    assert [notice["code"] for notice in document["warnings"]] == ["rounds_ended"]
    state = est.aggregation_.refinement
    (named,) = state.warnings("auto", ["Lyon"])
    assert named.sites == ("Lyon",) and "(Lyon)" in str(named)
    assert state.warnings(1) == ()
