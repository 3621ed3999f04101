"""EM over shards is EM on the pooled rows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose, assert_array_equal
from oracles import nearby, never_falls, random_model, random_rows
from refusals import refused

from otmoe import DistributedMoEClassifier, DistributedMoERegressor, observed_inference, simulate
from otmoe.data.shards import ArrayShard, ShardError
from otmoe.distributed.passes import em_shards, inference_shards
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Rows
from otmoe.text.errors import InferenceError
from otmoe.text.sentences import Error
from otmoe.workers.failures import TasksFailed
from otmoe.workers.gather import Workers


def shards_of(X, y, n, weight=None):
    return [
        ArrayShard(f"shard {i}", X[s], y[s], None if weight is None else weight[s])
        for i, s in enumerate(np.array_split(np.arange(len(y)), n))
    ]


@pytest.fixture
def problem(rng, request):
    """Rows of a family far from the origin, and a start some way from their model."""
    model = random_model(rng, 2, 3, family=request.param)
    X, y = random_rows(rng, model, 600)
    return X, y, nearby(rng, model), rng.uniform(0.5, 2, 600)


# -- moments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7])
def test_moments_of_shards_standardise_as_those_of_all_rows(rng, n):
    model = random_model(rng, 2, 3)
    X = rng.normal(size=(200, 3)) * [1, 1e-3, 1e4] + [1e6, 5, 0]
    X[:, 2] = 7.0
    y = rng.normal(size=200) + 1e5
    weight = rng.uniform(0, 2, 200)
    parts = [Rows(s.X, s.y, s.weight).moments() for s in shards_of(X, y, n, weight)]
    scaling, correlation = sum(parts[1:], start=parts[0]).standardisation(model.experts)
    cov = np.cov(X.T, aweights=weight, ddof=0)
    assert_allclose(scaling.x_center, np.average(X, axis=0, weights=weight))
    assert_allclose(scaling.x_scale[:2], np.sqrt(cov.diagonal()[:2]), rtol=1e-8)
    assert np.isinf(scaling.x_scale[2])
    assert_allclose(scaling.y_scale, np.sqrt(np.cov(y, aweights=weight, ddof=0)), rtol=1e-8)
    assert_allclose(correlation[1, 2], cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]), rtol=1e-6)


# -- the law -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 20])
@pytest.mark.parametrize("problem", list(FAMILIES), indirect=True)
def test_the_answer_is_that_of_pooled_rows(problem, n):
    X, y, start, weight = problem
    pooled = em(X, y, init=start, family=start.experts.family, sample_weight=weight)
    found = em_shards(shards_of(X, y, n, weight), start)
    assert_allclose(found.model.to_vector(), pooled.model.to_vector(), rtol=1e-8, atol=1e-8)
    assert_allclose(found.trace, pooled.trace, rtol=1e-10)
    assert_allclose(found.log_likelihood, pooled.log_likelihood, rtol=1e-10)
    assert found.n_samples == pytest.approx(weight.sum())
    assert never_falls(found.trace) and found.converged


def test_each_iteration_is_that_of_pooled_rows():
    """Also where the end is not reached: it is the same path, not only the same end."""
    data = simulate(3000, 3, 4, random_state=1)
    start = em(data.X[:500], data.y[:500], 3, random_state=0).model
    pooled = em(data.X, data.y, init=start, max_iter=4)
    found = em_shards(shards_of(data.X, data.y, 5), start, max_iter=4)
    assert not found.converged
    assert_allclose(found.model.to_vector(), pooled.model.to_vector(), rtol=1e-9, atol=1e-9)


def test_the_executor_does_not_matter():
    data = simulate(1000, 2, 3, random_state=0)
    shards = shards_of(data.X, data.y, 6)
    here = em_shards(shards, data.truth)
    with ThreadPoolExecutor(3) as pool:
        there = em_shards(shards, data.truth, workers=Workers(pool))
    assert_array_equal(here.model.to_vector(), there.model.to_vector())


def test_what_the_pooled_fit_warns_of_is_warned_of(rng):
    X = np.column_stack([rng.normal(size=300), np.ones(300)])
    y = X[:, 0] + rng.normal(size=300)
    start = random_model(rng, 1, 2)
    pooled = em(X, y, init=start)
    found = em_shards(shards_of(X, y, 4), start)
    assert found.warnings == pooled.warnings != ()
    assert found.constant == pooled.constant == {1: 1.0}


def test_progress_is_told():
    data = simulate(500, 2, 2, random_state=0)
    told = []
    shards = shards_of(data.X, data.y, 2)
    fit = em_shards(shards, data.truth, max_iter=9, progress=lambda *args: told.append(args))
    assert [step for step, _, _ in told] == list(range(1, fit.n_iter + 1))
    assert told[0][1:] == (9, f"em: {fit.trace[1]:.2f}")


class Gone(ArrayShard):
    def read(self):
        raise ShardError(Error.NO_ROWS, where=self.name)


def test_a_shard_that_fails_is_named():
    data = simulate(400, 2, 2, random_state=0)
    shards = shards_of(data.X, data.y, 2)
    with pytest.raises(TasksFailed) as caught:
        em_shards([*shards, Gone("lyon", data.X, data.y)], data.truth)
    assert [(f.name, f.cause.code) for f in caught.value.failures] == [("lyon", "no_rows")]


# -- standard errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["information", "sandwich"])
@pytest.mark.parametrize("n", [1, 5])
def test_standard_errors_over_shards_are_those_of_all_rows(kind, n):
    data = simulate(2000, 2, 3, softness=1.0, random_state=4)
    weight = np.linspace(0.5, 2, 2000)
    model = em(data.X, data.y, 2, init=data.truth, sample_weight=weight).model
    pooled = observed_inference(model, data.X, data.y, sample_weight=weight, kind=kind)
    found = inference_shards(shards_of(data.X, data.y, n, weight), model, kind=kind)
    assert found.kind == kind and found.n_samples == pytest.approx(weight.sum())
    assert_allclose(found.covariance.matrix, pooled.covariance.matrix, rtol=1e-7, atol=1e-12)
    assert_allclose(found.log_likelihood, pooled.log_likelihood, rtol=1e-12)


def test_a_model_of_one_round_has_none():
    data = simulate(3000, 2, 3, random_state=5)
    shards = shards_of(data.X, data.y, 6)
    est = DistributedMoERegressor(2, random_state=0).fit_shards(shards)
    refused("not_at_maximum", InferenceError).by(est.inference_shards, shards)


def test_a_refined_one_has_the_sandwich_of_all_shards():
    data = simulate(3000, 2, 3, softness=1.0, random_state=5)
    shards = shards_of(data.X, data.y, 3)
    est = DistributedMoERegressor(2, refine="auto", random_state=0).fit_shards(shards)
    found = est.inference_shards(shards, kind="sandwich").standard_errors.coef
    there = est.inference(data.X, data.y, kind="sandwich").standard_errors.coef
    assert_allclose(found, there, rtol=1e-7)


# -- estimators --------------------------------------------------------------------------------


def test_the_estimator_ends_at_the_fit_of_all_rows_and_has_its_standard_errors():
    data = simulate(4000, 2, 3, softness=1.0, random_state=3)
    est = DistributedMoERegressor(2, n_shards=4, method="em", random_state=0).fit(data.X, data.y)
    pooled = em(data.X, data.y, 2, init=est.model_)
    assert_allclose(est.model_.to_vector(), pooled.model.to_vector(), rtol=1e-6, atol=1e-6)
    status = est.aggregation_.status
    assert status.code == "maximised" and status.facts["fit"].code == "converged_near"
    assert est.aggregation_.method == "em"
    there = observed_inference(est.model_, data.X, data.y).standard_errors
    found = est.aggregation_.inference().standard_errors
    assert_allclose(found.coef, there.coef, rtol=1e-5)
    assert_allclose(found.gate, there.gate, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")  # the ridge has its say
def test_a_classifier_goes_the_same_way():
    data = simulate(3000, 2, 3, family="logistic", softness=1.0, random_state=3)
    labels = np.array(["no", "yes"])[data.y.astype(int)]
    est = DistributedMoEClassifier(2, n_shards=4, method="em", random_state=0)
    est.fit(data.X, labels)
    pooled = em(data.X, data.y, 2, family="logistic", init=est.model_)
    found, there = (m.log_density(data.X, data.y) for m in (est.model_, pooled.model))
    assert_allclose(found, there, atol=1e-6)


def test_refine_is_refused_beside_it():
    data = simulate(400, 2, 2, random_state=0)
    with refused("em_and_refine"):
        DistributedMoERegressor(2, method="em", refine=2).fit(data.X, data.y)
