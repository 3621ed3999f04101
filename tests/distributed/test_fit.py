"""One search for all shards, local fits, and the estimators around them."""

import copy
import pickle
import warnings
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import codes, refused
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info

from otmoe import (
    DistributedMoEClassifier,
    DistributedMoERegressor,
    MoEClassifier,
    MoERegressor,
    aggregate,
    shards_from,
    simulate,
)
from otmoe.aggregation import merged
from otmoe.data.shards import ArrayShard, RowsShard, ShardError, split
from otmoe.distributed import fit as distributed
from otmoe.distributed import task as local
from otmoe.distributed.fit import fit_shards
from otmoe.distributed.start import shared_start
from otmoe.distributed.task import Task, fit_local
from otmoe.estimators.base import FitWarning
from otmoe.likelihood import search as searching
from otmoe.model.experts import GaussianExperts
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.text.arguments import generator
from otmoe.text.sentences import Error, Finding, Warn
from otmoe.workers.failures import Failure, TasksFailed
from otmoe.workers.gather import HERE, Workers
from otmoe.workers.pools import local_workers

QUICK = {"n_init": 3, "random_state": 0}
N_SHARDS = 8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [DistributedMoERegressor(n_shards=2, n_init=2), DistributedMoEClassifier(n_shards=2, n_init=2)]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return simulate(N_SHARDS * 200, 2, 2, softness=0.5, random_state=1)


@pytest.fixture(scope="module")
def shards(data):
    parts = np.array_split(np.arange(len(data.y)), N_SHARDS)
    return [RowsShard(f"shard {m}", data.X, data.y, index=i) for m, i in enumerate(parts)]


def task_of(shards, m, **options):
    """Return the task that `fitted` gives out for the m-th shard."""
    rng = generator(0)
    seeds = [int(rng.integers(2**31)) for _ in shards]
    alpha = Ridge.of(GaussianExperts).shared(len(shards)).gate
    return Task(shards[m], seeds[m], 2, options={"n_init": 3, "alpha": alpha} | options)


def fitted(shards, **options):
    """Fit shards as all tests here do."""
    options = {"n_support": 300, "options": {"n_init": 3}, "random_state": 0} | options
    return fit_shards(shards, 2, **options)


@pytest.fixture
def supports(monkeypatch):
    """Return the supports at which the good models are merged, as they come."""
    seen = []

    def merge(messages, support, *arguments, **options):
        seen.append(support)
        return merged(messages, support, *arguments, **options)

    monkeypatch.setattr(distributed, "merged", merge)
    return seen


@pytest.fixture(scope="module")
def fit(shards):
    return fitted(shards)


def one_warning(est, *arguments, call="fit", **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(est, call)(*arguments, **options)
    assert [w.category for w in caught] == [FitWarning], [str(w.message) for w in caught]
    assert caught[0].filename == __file__ and issubclass(FitWarning, ConvergenceWarning)
    return caught[0].message.notices


# -- splitting ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "n_shards", "n_parameters", "expected"),
    [
        (1000, 4, 10, 4),
        (1000, 16, 10, 16),
        (1000, 64, 10, 33),  # three rows per parameter at least
        (59, 16, 10, 1),
        (60, 16, 10, 2),
        (5, 16, 10, 1),
        (103, 1, 1, 1),
        (103, 10, 1, 10),
    ],
)
def test_shards_are_equal_parts_of_the_rows(n_rows, n_shards, n_parameters, expected):
    parts = split(n_rows, n_shards, n_parameters, np.random.default_rng(0))
    sizes = [len(part) for part in parts]
    assert len(parts) == expected and max(sizes) - min(sizes) <= 1
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n_rows))
    assert all(np.all(np.diff(part) > 0) for part in parts)


def test_shards_are_random_and_reproducible():
    a, b, c = (split(1000, 4, 10, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert_array_equal(np.concatenate(a), np.concatenate(b))
    assert not np.array_equal(np.concatenate(a), np.concatenate(c))
    assert np.all(np.abs([part.mean() - 499.5 for part in a]) < 60)  # not the rows as they came


# -- fitting -----------------------------------------------------------------------------------


def test_shards_are_fitted_and_merged(supports, shards, data):
    fit = fitted(shards, method="reduction")
    assert [m.site for m in fit.local_models] == [shard.name for shard in shards]
    assert fit.refitted == () and fit.aggregation.left_out == {} and fit.failures == ()
    assert (fit.n_rows, fit.dropped) == (len(data.y), 0)
    (support,) = supports
    expected = aggregate(fit.local_models, support, n_experts=2, method="reduction")
    assert_allclose(fit.aggregation.model.to_vector(), expected.model.to_vector(), rtol=1e-12)
    alone = fit_local(task_of(shards, 3, init=fit.start)).message.model
    assert_array_equal(fit.local_models[3].model.to_vector(), alone.to_vector())
    truth = data.truth
    found = fit.aggregation.model.aligned_to(truth, data.X)
    assert_allclose(found.experts.coef, truth.experts.coef, atol=0.5)


def test_every_shard_says_how_far_it_is_from_the_others(fit):
    for record in fit.aggregation.sites:
        assert 0 <= record.disagreement < 1 and 0 <= record.lost < 1
    assert {c.method for c in fit.aggregation.candidates} >= {"reduction", "gram", "kl"}


def test_shards_may_count_unequally(shards, fit):
    names = [shard.name for shard in shards]
    weight = np.arange(1.0, len(names) + 1)
    by_place = fitted(shards, site_weight=weight).aggregation
    by_name = fitted(shards, site_weight=dict(zip(names, weight, strict=True))).aggregation
    assert_allclose([record.weight for record in by_place.sites], weight / weight.sum())
    assert_array_equal(by_place.model.to_vector(), by_name.model.to_vector())
    assert not np.array_equal(by_place.model.to_vector(), fit.aggregation.model.to_vector())
    refused("weight_shape", sites=len(names)).by(fitted, shards, site_weight=[1.0])


def test_shards_may_count_where_their_rows_are(shards):
    result = fitted(shards, site_weight="covariate", method="reduction").aggregation
    assert all(message.sketch is not None for message in result.messages)
    assert_allclose(sum(record.weight for record in result.sites), 1.0, rtol=1e-6)
    refused("weight_unknown", value="size").by(fitted, shards, site_weight="size")


def test_the_support_is_rows_of_all_shards(supports, shards, data):
    fitted(shards)
    (support,) = supports
    rows = {row.tobytes(): i for i, row in enumerate(np.ascontiguousarray(data.X))}
    drawn = [rows[row.tobytes()] for row in np.ascontiguousarray(support)]
    assert len(drawn) == len(set(drawn)) == 300
    assert set(np.array(drawn) // 200) == set(range(N_SHARDS))


def test_timings_are_those_of_the_clock_by_stage(fit):
    timings = dict(fit.timings)
    assert list(timings) == ["search", "fits", "aggregation", "refine", "total"]
    assert min(timings.values()) >= 0
    assert timings.pop("total") == pytest.approx(sum(timings.values()))
    assert timings["aggregation"] > fit.aggregation.timings["total"] > 0
    assert len(fit.seconds) == N_SHARDS and fit.seconds.min() > 0
    assert fit.seconds.sum() < timings["fits"]  # here one after another


class Backwards(Executor):
    """Does everything at the last moment, the last task first."""

    def __init__(self, n_tasks):
        self.n_tasks, self.waiting = n_tasks, []

    def submit(self, function, *arguments):
        future = Future()
        self.waiting.append((future, function, arguments))
        if len(self.waiting) == self.n_tasks:
            waiting, self.waiting = self.waiting, []
            for late, call, given in reversed(waiting):
                late.set_result(call(*given))
        return future


def test_who_runs_the_fits_and_who_finishes_first_is_irrelevant(fit, shards):
    done = []

    def progress(n, total, name):
        done.append(n)
        assert total == N_SHARDS

    with ThreadPoolExecutor(2) as pool:
        for executor in (pool, Backwards(N_SHARDS)):
            found = fitted(shards, workers=Workers(executor), progress=progress)
            assert [m.site for m in found.local_models] == [shard.name for shard in shards]
            assert_allclose(
                found.aggregation.model.to_vector(), fit.aggregation.model.to_vector(), rtol=1e-12
            )
    assert done == 2 * list(range(1, N_SHARDS + 1))


def test_progress_is_reported_without_an_executor(shards):
    done = []
    fitted(shards[:3], progress=lambda *report: done.append(report))
    assert done == [(1, 3, "shard 0"), (2, 3, "shard 1"), (3, 3, "shard 2")]


def test_fits_in_threads_leave_the_threads_of_blas_as_they_were(shards):
    before = [library["num_threads"] for library in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        fitted(shards, workers=Workers(pool))
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_an_error_in_a_fit_reaches_the_user(shards):
    class Wrong(RowsShard):
        def read(self):
            raise KeyError("cauchy")

    wrong = [Wrong("shard 0", shards[0].X, shards[0].y), *shards[1:]]
    with ThreadPoolExecutor(2) as pool:
        for workers in (HERE, Workers(pool)):
            with refused("fits_failed", TasksFailed, count=1) as caught:
                fitted(wrong, workers=workers)
            (failure,) = caught.value.failures
            assert failure.cause == Finding.TASK_ERROR(why="KeyError: 'cauchy'")


def test_a_shard_in_memory_travels_as_its_own_rows(shards, data):
    sent = pickle.dumps(shards[3])
    assert len(sent) < data.X.nbytes / 4
    there, here = pickle.loads(sent).read(), shards[3].read()
    assert_array_equal(there.X, here.X)
    assert_array_equal(there.y, here.y)
    assert shards[3].n_rows == len(here.y) == 200 and pickle.loads(sent).name == "shard 3"


def test_a_call_that_makes_no_sense_is_refused(shards):
    refused("no_shards").by(fitted, [])
    facts = {"name": "on_error", "value": "ignore", "choices": ["raise", "skip"]}
    refused("not_one_of", **facts).by(fitted, shards, on_error="ignore")


# -- one search for all ------------------------------------------------------------------------


def less_likely(fit, by, **changes):
    """Return a local fit whose log-likelihood is lower."""
    value = fit.message.log_likelihood - by
    return replace(fit, message=replace(fit.message, log_likelihood=value), **changes)


def planted(monkeypatch, bad):
    """Let fits of some shards end in a wrong optimum, as long as `bad(name, again)` says so."""
    calls = []

    def fit(task):
        again = task.options["init"] is None
        calls.append((task.shard.name, again))
        found = fit_local(task)
        if not bad(task.shard.name, again):
            return found
        options = {**task.options, "init": None}
        alone = fit_local(replace(task, n_experts=1, options=options)).message.model
        model = found.message.model
        gate = replace(model.gate, coef=0 * model.gate.coef)
        both = replace(model, experts=alone.experts.take([0, 0]), gate=gate)
        rows = task.shard.read()
        value = float(both.log_density(rows.X, rows.y).sum())
        return replace(found, message=replace(found.message, model=both, log_likelihood=value))

    monkeypatch.setattr(distributed, "fit_local", fit)
    return calls


def test_every_shard_sets_out_from_one_search_on_rows_of_all(monkeypatch, shards, data, fit):
    starts = []

    def watched(task):
        starts.append(task.options["init"])
        return fit_local(task)

    monkeypatch.setattr(distributed, "fit_local", watched)
    found = fitted(shards)
    assert len(starts) == N_SHARDS and all(start is found.start for start in starts)
    assert_array_equal(found.start.to_vector(), fit.start.to_vector())
    # all rows are fewer than the search asks for: it has found their maximum
    whole = MoERegressor(2, **QUICK).fit(data.X, data.y).model_.aligned_to(found.start, data.X)
    assert_allclose(found.start.to_vector(), whole.to_vector(), rtol=1e-4, atol=1e-4)


def test_a_maximum_that_one_search_found_is_named(monkeypatch):
    monkeypatch.setattr(searching, "shaken", lambda stage, run, *rest: run)  # so that ends differ
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.normal(size=300)  # no experts: many maxima
    est = DistributedMoERegressor(3, n_shards=2, n_init=3, random_state=0)
    with pytest.warns(FitWarning, match="1 of 3 independent searches"):
        est.fit(X, y)
    assert (est.agreement_.agreed, est.agreement_.searches) == (1, 3)


def test_rows_of_a_search_stand_for_all_of_their_shard(shards):
    few = RowsShard("few", *(part[:40] for part in (shards[0].read().X, shards[0].read().y)))
    start = shared_start([few], 2, Target(), {"n_init": 1}, HERE, np.random.default_rng(0))
    assert start.model.n_experts == 2
    assert shared_start([few], 41, Target(), {}, HERE, np.random.default_rng(0)) is None


def test_a_start_that_is_given_is_not_searched_for(monkeypatch, shards, fit):
    monkeypatch.setattr(distributed, "shared_start", None)
    found = fitted(shards, options={"init": fit.start})
    assert_array_equal(found.aggregation.model.to_vector(), fit.aggregation.model.to_vector())


def test_a_shard_that_stands_out_searches_for_itself(monkeypatch, shards):
    # by the reduction, whose answer is a smooth function of the messages
    usual = fitted(shards, method="reduction")
    calls = planted(monkeypatch, lambda name, again: name == "shard 5" and not again)
    found = fitted(shards, method="reduction")
    assert found.refitted == ("shard 5",) and found.aggregation.left_out == {}
    assert calls[N_SHARDS:] == [("shard 5", True)]
    assert len(found.aggregation.sites) == N_SHARDS
    gap = found.aggregation.model.to_vector() - usual.aggregation.model.to_vector()
    assert np.abs(gap).max() < 1e-4  # the same optimum as without the accident


def test_the_seconds_of_a_search_of_its_own_count(monkeypatch, shards):
    def fit(task):
        again = task.options["init"] is None
        low = task.shard.name == "shard 5" and not again
        return less_likely(fit_local(task), 300.0 * low, seconds=2.0 if again else 1.0)

    monkeypatch.setattr(distributed, "fit_local", fit)
    found = fitted(shards)
    assert_array_equal(found.seconds, np.where(np.arange(N_SHARDS) == 5, 3.0, 1.0))


@pytest.mark.parametrize("threads", [False, True])
def test_a_shard_that_stays_bad_is_left_out_by_name(monkeypatch, supports, shards, threads):
    planted(monkeypatch, lambda name, again: name in ("shard 2", "shard 6"))
    with ThreadPoolExecutor(2) as pool:
        found = fitted(shards, workers=Workers(pool if threads else None))
    result = found.aggregation
    assert set(result.left_out) == set(found.refitted) == {"shard 2", "shard 6"}
    assert codes(result.left_out.values()) == ["bad_shard", "bad_shard"]
    assert len(found.local_models) == N_SHARDS  # nobody is hidden
    kept = [m for m in found.local_models if m.site not in result.left_out]
    assert [record.site for record in result.sites] == [m.site for m in kept]
    expected = aggregate(kept, supports[-1], n_experts=2)  # from other random starts
    assert_allclose(result.model.to_vector(), expected.model.to_vector(), rtol=1e-12, atol=1e-14)


def test_a_worse_second_fit_is_not_kept(monkeypatch, shards, fit):
    def fit_badly(task):
        loss = 600.0 if task.options["init"] is None else 300.0
        return less_likely(fit_local(task), loss * (task.shard.name == "shard 1"))

    monkeypatch.setattr(distributed, "fit_local", fit_badly)
    found = fitted(shards)
    assert found.local_models[1].log_likelihood == fit.local_models[1].log_likelihood - 300.0
    assert set(found.aggregation.left_out) == {"shard 1"}


def test_a_shard_of_another_law_is_left_out(shards):
    # An odd shard as users meet it: nothing is patched, the rows of one are of another law.
    rows = shards[4].read()
    odd = RowsShard("shard 4", rows.X, np.random.default_rng(0).permutation(rows.y))
    found = fitted([*shards[:4], odd, *shards[5:]])
    assert set(found.aggregation.left_out) == set(found.refitted) == {"shard 4"}


def test_a_search_of_its_own_that_fails_changes_nothing(monkeypatch, shards, fit):
    def fit_once(task):
        if task.options["init"] is None:
            raise MemoryError
        return less_likely(fit_local(task), 300.0 * (task.shard.name == "shard 1"))

    monkeypatch.setattr(distributed, "fit_local", fit_once)
    found = fitted(shards)
    assert found.failures == () and set(found.aggregation.left_out) == {"shard 1"}
    again, before = (f.local_models[1].model.to_vector() for f in (found, fit))
    assert_array_equal(again, before)


# -- the estimators ----------------------------------------------------------------------------

KINDS = {
    "gaussian": (DistributedMoERegressor, MoERegressor, {}),
    "poisson": (DistributedMoERegressor, MoERegressor, {"family": "poisson"}),
    "logistic": (DistributedMoEClassifier, MoEClassifier, {}),
    "multinomial": (DistributedMoEClassifier, MoEClassifier, {}),
}


@pytest.mark.parametrize("family", list(KINDS))
def test_shards_of_every_family_recover_the_truth(family):
    many, one, options = KINDS[family]
    data = simulate(8000, 2, 2, family=family, softness=0.5, random_state=3)
    est = many(2, n_shards=4, n_init=8, random_state=1, **options).fit(data.X, data.y)
    whole = one(2, n_init=8, random_state=0, **options).fit(data.X, data.y)
    assert est.n_shards_ == 4 and est.converged_ and est.refitted_ == ()
    new = data.draw(4000, random_state=9)
    truth = data.truth.log_density(new.X, new.y).mean()
    assert est.model_.log_density(new.X, new.y).mean() > truth - 0.03
    assert abs(est.score(new.X, new.y) - whole.score(new.X, new.y)) < 0.02


@pytest.mark.parametrize("family", list(KINDS))
def test_one_shard_is_the_plain_estimator(family):
    many, one, options = KINDS[family]
    data = simulate(1500, 2, 2, family=family, softness=0.5, random_state=3)
    est = many(2, n_shards=1, random_state=0, **options).fit(data.X, data.y)
    plain = one(2, random_state=0, **options).fit(data.X, data.y)
    found = est.model_.aligned_to(plain.model_, data.X)
    assert_allclose(found.to_vector(), plain.model_.to_vector(), atol=1e-6)


def test_the_fit_describes_itself(data):
    est = DistributedMoERegressor(2, n_shards=4, n_support=300, **QUICK).fit(data.X, data.y)
    assert est.n_shards_ == len(est.local_models_) == len(est.aggregation_.sites) == 4
    assert [m.site for m in est.local_models_] == [f"shard {m}" for m in (1, 2, 3, 4)]
    assert sum(m.n_samples for m in est.local_models_) == len(data.y)
    assert est.model_ is est.aggregation_.model and est.aggregation_.n_support == 300
    assert list(est.timings_) == ["search", "fits", "aggregation", "refine", "total"]
    assert est.n_features_in_ == 2 and est.n_iter_ >= 1


@pytest.fixture(scope="module")
def processes():
    """Share two processes: each has to import all there is."""
    with local_workers(2)() as pool:
        yield pool


def test_the_same_seed_gives_the_same_fit_on_threads_and_processes(data, processes):
    est = DistributedMoERegressor(2, n_shards=4, **QUICK)
    with ThreadPoolExecutor(2) as pool:
        first, *others = (
            clone(est).set_params(executor=executor).fit(data.X, data.y).model_.to_vector()
            for executor in (None, None, pool, processes)
        )
    for other in others:
        assert_allclose(other, first, rtol=1e-12)


@pytest.mark.parametrize("method", ["middle", "aligned_average", "greedy", "ensemble"])
def test_every_method_can_be_asked_for(data, method):
    est = DistributedMoERegressor(2, n_shards=3, method=method, n_support=60, **QUICK)
    est.fit(data.X, data.y)
    assert est.aggregation_.method == method
    assert est.score(data.X, data.y) > 0.5
    assert est.predict_interval(data.X[:5]).shape == (5, 2)


def test_a_frame_keeps_its_names(data):
    X = pd.DataFrame(data.X, columns=["age", "dose"])
    est = DistributedMoERegressor(2, n_shards=2, gate_features=["dose"], **QUICK).fit(X, data.y)
    assert list(est.feature_names_in_) == ["age", "dose"]
    assert est.model_.feature_names == ("age", "dose")
    assert est.local_models_[1].model.feature_names == ("age", "dose")
    assert est.model_.gate.columns == (0, 2) and np.all(est.model_.gate.coef[:, 1] == 0)
    assert list(est.expert_table().index) == ["intercept", "age", "dose", "variance"]
    with pytest.raises(ValueError, match="feature names should match"):
        est.predict(X[["dose", "age"]])


def test_labels_come_back_and_a_class_that_some_shards_lack_is_known_to_all():
    data = simulate(1200, 2, 2, family="multinomial", softness=0.5, random_state=3)
    labels = np.array(["low", "mid", "high"])[data.y.astype(int)]
    est = DistributedMoEClassifier(2, n_shards=2, **{**QUICK, "n_init": 1}).fit(data.X, labels)
    assert list(est.classes_) == ["high", "low", "mid"]
    assert_array_equal(est.local_models_[0].model.classes, est.classes_)
    assert set(est.predict(data.X)) <= set(labels)
    assert_allclose(est.predict_proba(data.X).sum(axis=1), 1)
    data = simulate(900, 1, 2, family="logistic", softness=0.5, random_state=3)
    y = data.y.astype(int)
    y[7] = 2  # one row of a third class
    est = DistributedMoEClassifier(1, n_shards=3, **QUICK).fit(data.X, y)
    assert est.predict_proba(data.X).shape == (900, 3)
    assert np.all(np.isfinite(est.model_.to_vector()))


def test_rows_of_weight_zero_are_ignored(data):
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, len(data.y))
    weight[rng.random(len(data.y)) < 0.3] = 0
    kept = weight > 0
    X = np.where(kept[:, None], data.X, 1e6)
    est = DistributedMoERegressor(2, n_shards=3, **QUICK)
    a = clone(est).fit(X, data.y, sample_weight=weight)
    b = clone(est).fit(data.X[kept], data.y[kept], sample_weight=weight[kept])
    assert_array_equal(a.model_.to_vector(), b.model_.to_vector())
    assert_allclose(sum(m.n_samples for m in a.local_models_), weight.sum())


def test_an_offset_goes_with_its_rows():
    data = simulate(2400, 2, 2, family="poisson", softness=0.5, random_state=3)
    offset = np.random.default_rng(0).uniform(-1, 1, len(data.y))
    y = data.truth.sample(data.X, np.random.default_rng(1), offset)[0]
    est = DistributedMoERegressor(2, n_shards=3, family="poisson", **QUICK)
    est.fit(data.X, y, offset=offset)
    truth = data.truth.log_density(data.X, y, offset).mean()
    assert est.log_density(data.X, y, offset).mean() > truth - 0.01


def test_pipeline_and_grid_search(data):
    with ThreadPoolExecutor(2) as pool:
        est = DistributedMoERegressor(n_shards=2, executor=pool, **QUICK)
        pipe = make_pipeline(StandardScaler(), est)
        grid = {"distributedmoeregressor__n_experts": [1, 2]}
        search = GridSearchCV(pipe, grid, cv=2).fit(data.X, data.y)
    assert search.best_params_ == {"distributedmoeregressor__n_experts": 2}


def test_a_clone_shares_the_executor_and_a_saved_estimator_lacks_it(data):
    with ThreadPoolExecutor(2) as pool:
        est = DistributedMoERegressor(2, n_shards=2, executor=pool, gate_features=[0], **QUICK)
        assert clone(est).executor is pool
        assert clone(est).get_params() == est.get_params()
        assert not hasattr(clone(est.fit(data.X, data.y)), "model_")
        for other in (pickle.loads(pickle.dumps(est)), copy.deepcopy(est)):
            assert other.executor is None
            assert_array_equal(other.predict(data.X), est.predict(data.X))
        assert est.executor is pool


def test_verbose_counts_shards(data, capsys):
    DistributedMoERegressor(2, n_shards=2, verbose=1, **QUICK).fit(data.X, data.y)
    shown = capsys.readouterr().out
    assert "shards" in shown and "2/2" in shown and "nan" not in shown


# -- what the user is told ---------------------------------------------------------------------


def test_few_rows_give_fewer_shards_and_one_warning(data):
    est = DistributedMoERegressor(2, n_shards=16, **QUICK)
    told = one_warning(est, data.X[:200], data.y[:200])
    assert est.n_shards_ == 200 // (3 * 11) == 6
    assert Warn.FEWER_SHARDS(shards=6, wanted=16) in told


def test_fewer_rows_than_columns_give_one_warning():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 9)), rng.normal(size=6)
    est, plain = DistributedMoERegressor(1, random_state=0), MoERegressor(1, random_state=0)
    told = one_warning(est, X, y)
    assert told[0] == Warn.FEWER_SHARDS(shards=1, wanted=16)
    assert "support_short" not in codes(told)
    one_warning(plain, X, y)
    assert_allclose(est.model_.experts.coef, plain.model_.experts.coef, atol=1e-8)


def test_shards_that_stop_early_give_one_warning(data):
    est = DistributedMoERegressor(2, n_shards=3, max_iter=1, tol=0.0, **QUICK)
    (stopped,) = one_warning(est, data.X, data.y)
    assert stopped.code == "shards_stopped"
    assert stopped.sites == ("shard 1", "shard 2", "shard 3")
    assert not est.converged_


def test_a_shard_left_out_gives_one_warning(monkeypatch, data):
    planted(monkeypatch, lambda name, n: name == "shard 3")
    est = DistributedMoERegressor(2, n_shards=N_SHARDS, **QUICK)
    (told,) = one_warning(est, data.X, data.y)
    assert told.code == "shard_left_out" and told.sites == ("shard 3",)
    assert told.facts["why"].code == "bad_shard"
    assert set(est.aggregation_.left_out) == {"shard 3"} and est.refitted_ == ("shard 3",)


def test_a_constant_column_gives_one_warning(data):
    X = np.column_stack([data.X, np.ones(len(data.X))])
    (told,) = one_warning(DistributedMoERegressor(2, n_shards=3, **QUICK), X, data.y)
    assert told == Warn.SOME_SHARDS(warning=Warn.RANK_DEFICIENT(columns=4, rank=3))


def test_of_what_shards_warn_of_the_cause_is_told(rng):
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=400) > 0).astype(float)
    (told,) = one_warning(DistributedMoERegressor(2, n_shards=2, **QUICK), X, y)
    assert told == Warn.SOME_SHARDS(warning=Warn.TWO_VALUES())


def test_a_merged_model_is_no_message(data):
    est = DistributedMoERegressor(2, n_shards=2, **QUICK).fit(data.X, data.y)
    refused("merged_not_local", TypeError).by(est.to_message, "Lyon")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("n_shards", 0, "not_whole"),
        ("n_shards", 2.5, "not_whole"),
        ("n_support", 0, "not_whole"),
        ("method", "mean", "not_one_of"),
        ("n_experts", 0, "not_whole"),
    ],
)
def test_a_mistake_is_named(data, name, value, code):
    for kind in (DistributedMoERegressor, DistributedMoEClassifier):
        refused(code, name=name, value=value).by(kind(**{name: value}).fit, data.X, data.y > 0)


# -- shards elsewhere --------------------------------------------------------------------------


def written(folder, data, n_files=4, label=float, **columns):
    """Write rows as Parquet files and return them as frames, by name of the file."""
    frames = {}
    for m, rows in enumerate(np.array_split(np.arange(len(data.y)), n_files)):
        frame = pd.DataFrame(data.X[rows], columns=["age", "dose"])
        frame["y"] = [label(v) for v in data.y[rows]]
        frames[f"part-{m}.parquet"] = frame.assign(**columns)
        frame.to_parquet(folder / f"part-{m}.parquet")
    return frames


def in_memory(frames):
    return [
        ArrayShard(name, np.ascontiguousarray(frame[["age", "dose"]]), frame["y"])
        for name, frame in frames.items()
    ]


def text(value):
    return ["low", "mid", "high"][int(value)]


@pytest.mark.parametrize("family", list(KINDS))
def test_files_give_the_model_of_the_same_rows_as_arrays(tmp_path, family):
    many, _, options = KINDS[family]
    data = simulate(1600, 2, 2, family=family, softness=0.5, random_state=3)
    frames = written(tmp_path, data, label=text if family == "multinomial" else float)
    est = many(2, **QUICK, **options).fit_shards(shards_from(tmp_path, target="y"))
    same = many(2, **QUICK, **options).fit_shards(in_memory(frames))
    assert_array_equal(est.model_.to_vector(), same.model_.to_vector())
    assert [m.site for m in est.local_models_] == list(frames)
    assert est.n_shards_ == 4 and est.failures_ == () and est.n_features_in_ == 2
    assert list(est.feature_names_in_) == ["age", "dose"] == list(est.features_.names)
    assert est.model_.feature_names == ("age", "dose") and not hasattr(same, "features_")
    X = pd.concat(frames.values())[["age", "dose"]]
    assert_array_equal(est.predict(X), same.predict(X.to_numpy()))
    truth = data.truth.log_density(data.X, data.y).mean()
    if family != "multinomial":  # there the classes are in another order
        assert est.log_density(X, data.y).mean() > truth - 0.02


def test_arrays_that_were_split_are_fitted_as_the_same_shards(data):
    est = DistributedMoERegressor(2, n_shards=4, **QUICK).fit(data.X, data.y)
    rng = generator(0)
    parts = split(len(data.y), 4, est.model_.n_parameters, rng)
    named = enumerate(parts, 1)
    shards = [RowsShard(f"shard {m}", data.X, data.y, index=part) for m, part in named]
    same = DistributedMoERegressor(2, n_init=3, random_state=rng).fit_shards(shards)
    assert_array_equal(est.model_.to_vector(), same.model_.to_vector())


def test_shards_on_processes_give_the_model_of_shards_here(tmp_path, data, processes):
    written(tmp_path, data)
    shards = shards_from(tmp_path, target="y")
    est = DistributedMoERegressor(2, **QUICK)
    a, b = (clone(est).set_params(executor=e).fit_shards(shards) for e in (None, processes))
    assert_allclose(a.model_.to_vector(), b.model_.to_vector(), rtol=1e-10)


def test_text_labels_over_shards(tmp_path):
    data = simulate(1600, 2, 2, family="multinomial", softness=0.5, random_state=3)
    frames = written(tmp_path, data, label=text)
    shards = shards_from(tmp_path, target="y")
    est = DistributedMoEClassifier(2, **QUICK).fit_shards(shards)
    assert list(est.classes_) == ["high", "low", "mid"]
    assert all(list(m.model.classes) == ["high", "low", "mid"] for m in est.local_models_)
    labels = np.array([text(v) for v in data.y])
    X = pd.concat(frames.values())[["age", "dose"]]
    whole = MoEClassifier(2, **QUICK).fit(X, labels)
    assert abs(est.score(X, labels) - whole.score(X, labels)) < 0.02
    told = DistributedMoEClassifier(2, classes=["low", "mid", "high"], **QUICK).fit_shards(shards)
    assert_array_equal(est.model_.to_vector(), told.model_.to_vector())
    est = DistributedMoEClassifier(2, classes=["low", "mid"], **QUICK)  # "high" is not declared
    first, *_ = refused("fits_failed", TasksFailed).by(est.fit_shards, shards).failures
    assert first.name == "part-0.parquet" and first.cause.code == "class_unknown"
    assert first.cause.facts["label"] == "high"


@pytest.mark.parametrize("declared", [None, ["no", "yes"]])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_shard_with_a_single_class(tmp_path, declared):
    data = simulate(1600, 2, 2, family="logistic", softness=0.5, random_state=3)
    frames = written(tmp_path, data, label=lambda v: ["no", "yes"][int(v)])
    frames["part-2.parquet"].assign(y="no").to_parquet(tmp_path / "part-2.parquet")
    shards = shards_from(tmp_path, target="y")
    est = DistributedMoEClassifier(1, classes=declared, **QUICK).fit_shards(shards)
    assert list(est.classes_) == ["no", "yes"] and est.failures_ == ()
    assert np.all(np.isfinite(est.model_.to_vector())) and est.n_shards_ == 4
    p = est.predict_proba(pd.concat(frames.values())[["age", "dose"]])
    assert p.shape == (1600, 2)
    assert np.all(p >= 0)


def test_counts_are_checked_in_every_shard(tmp_path):
    data = simulate(1600, 2, 2, family="poisson", softness=0.5, random_state=3)
    frames = written(tmp_path, data)
    frames["part-1.parquet"].assign(y=-1.0).to_parquet(tmp_path / "part-1.parquet")
    est = DistributedMoERegressor(2, family="poisson", **QUICK)
    with refused("fits_failed", TasksFailed, count=1) as caught:
        est.fit_shards(shards_from(tmp_path, target="y"))
    (failure,) = caught.value.failures
    assert failure.name == "part-1.parquet" and failure.cause.code == "not_counts"
    facts = {"value": -1, "row": 0, "family": "poisson", "lowest": 0}
    assert facts.items() <= failure.cause.facts.items()


# -- shards that fail --------------------------------------------------------------------------


TEXT_DOSE = {"column": "dose", "kind": "text"}
FAULTS = {
    # what becomes of the rows of a file, or of the file itself
    "unreadable": (b"PAR1 this is no Parquet", "unreadable", {}),
    "gone": (None, "unreadable", {}),
    "lacking": (lambda frame: frame[["age", "y"]], "no_column", {"column": "dose"}),
    "wrong_type": (lambda frame: frame.assign(dose="much"), "not_numbers", TEXT_DOSE),
    "wrong_target": (lambda frame: frame.assign(y="much"), "target_text", {"column": "y"}),
    "all_nan": (lambda frame: frame.assign(dose=np.nan), "column_empty", {"column": "dose"}),
    "too_few": (lambda frame: frame[:1], "shard_too_small", {"rows": 1, "experts": 2}),
}


def spoil(path, frame, fault):
    if callable(fault):
        fault(frame).to_parquet(path)
    elif fault is None:
        path.unlink()
    else:
        path.write_bytes(fault)


@pytest.mark.parametrize("name", FAULTS)
def test_a_shard_that_fails_is_named(tmp_path, data, name):
    fault, code, facts = FAULTS[name]
    frames = written(tmp_path, data)
    shards = shards_from(tmp_path, target="y")
    spoil(tmp_path / "part-2.parquet", frames["part-2.parquet"], fault)
    est = DistributedMoERegressor(2, **QUICK)
    with ThreadPoolExecutor(2) as pool:
        for executor in (None, pool):
            est.set_params(executor=executor)
            with refused("fits_failed", TasksFailed, count=1) as caught:
                est.fit_shards(shards)
            (failure,) = caught.value.failures
            assert failure.name == "part-2.parquet" and failure.cause.code == code
            assert facts.items() <= failure.cause.facts.items()
    est.set_params(executor=None)
    (told,) = one_warning(est, shards, call="fit_shards", on_error="skip")
    assert told.code == "shard_failed" and told.sites == ("part-2.parquet",)
    assert told.facts == {"name": "part-2.parquet", "cause": failure.cause}
    assert est.failures_ == (failure,) and est.n_shards_ == 3
    assert isinstance(failure, Failure)
    # the run without it
    kept = [shard for shard in shards if shard.name != "part-2.parquet"]
    alone = DistributedMoERegressor(2, **QUICK).fit_shards(kept)
    X = frames["part-0.parquet"][["age", "dose"]]
    assert_allclose(est.predict(X), alone.predict(X), atol=0.2)


def test_if_all_fail_there_is_no_model(tmp_path, data):
    frames = written(tmp_path, data)
    shards = shards_from(tmp_path, target="y")
    for name, frame in frames.items():
        frame[:0].to_parquet(tmp_path / name)
    est = DistributedMoERegressor(2, **QUICK)
    for on_error in ("raise", "skip"):
        with refused("fits_failed", TasksFailed, count=4) as caught:
            est.fit_shards(shards, on_error=on_error)
        assert [failure.name for failure in caught.value.failures] == list(frames)
        assert not hasattr(est, "model_")


def test_a_shard_given_twice_is_refused(tmp_path, data):
    written(tmp_path, data)
    file = tmp_path / "part-0.parquet"
    refused("file_twice", ShardError, file=str(file)).by(shards_from, [file, file], target="y")
    (shard,) = shards_from(file, target="y")
    for on_error in ("raise", "skip"):
        with refused("shard_twice", ShardError, where="part-0.parquet"):
            DistributedMoERegressor(2, **QUICK).fit_shards([shard, shard], on_error=on_error)


def test_rows_with_missing_values_are_dropped_if_that_was_asked_for(tmp_path, data):
    frames = written(tmp_path, data)
    frame = frames["part-1.parquet"].copy()
    frame.loc[frame.index[:7], "dose"] = np.nan
    frame.to_parquet(tmp_path / "part-1.parquet")
    est = DistributedMoERegressor(2, **QUICK)
    shards = shards_from(tmp_path, target="y", missing="drop")
    said = Warn.ROWS_DROPPED(rows=7, total=len(data.y), columns=" (dose in 7)")
    assert one_warning(est, shards, call="fit_shards") == (said,)
    frames["part-1.parquet"] = frame[7:]
    same = DistributedMoERegressor(2, **QUICK).fit_shards(in_memory(frames))
    assert_array_equal(est.model_.to_vector(), same.model_.to_vector())


def test_a_file_that_could_not_be_reached_for_a_moment_is_read_again(monkeypatch, shards, fit):
    monkeypatch.setattr(local, "sleep", lambda seconds: None)
    tries = []

    class Weak(RowsShard):
        def read(self):
            tries.append(self.name)
            if len(tries) < 3:
                raise ShardError(Error.NO_ROWS, where=self.name) from OSError("away")
            return super().read()

    weak = Weak("shard 0", shards[0].X, shards[0].y, index=shards[0].index)
    found = fitted([weak, *shards[1:]])
    # the third attempt succeeds; the fourth reading is for the start that is offered
    assert tries == ["shard 0"] * 4 and found.failures == ()
    assert_array_equal(found.aggregation.model.to_vector(), fit.aggregation.model.to_vector())
