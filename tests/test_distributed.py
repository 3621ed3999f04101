"""Local fits over shards, second chances, and the estimators around them."""

import copy
import pickle
import warnings
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
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
    distributed,
    simulate,
)
from otmoe.distributed import Task, fit_local, fit_tasks, split
from otmoe.starts import TELLING

QUICK = {"n_init": 3, "random_state": 0}
N_SHARDS = 8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [DistributedMoERegressor(n_shards=2, n_init=2), DistributedMoEClassifier(n_shards=2, n_init=2)],
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return simulate(N_SHARDS * 200, 2, 2, softness=0.5, random_state=1)


@pytest.fixture(scope="module")
def tasks(data):
    parts = np.array_split(np.arange(len(data.y)), N_SHARDS)
    return [
        Task(f"shard {m}", data.X[i], data.y[i], seed=m, n_experts=2, options={"n_init": 3})
        for m, i in enumerate(parts)
    ]


@pytest.fixture(scope="module")
def fit(tasks, data):
    return fit_tasks(tasks, data.X[:300])


def one_warning(est, *arguments, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est.fit(*arguments, **options)
    assert [w.category for w in caught] == [ConvergenceWarning], [str(w.message) for w in caught]
    assert caught[0].filename == __file__
    return str(caught[0].message)


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


def test_tasks_are_fitted_and_merged(fit, tasks, data):
    assert [m.site for m in fit.local_models] == [task.site for task in tasks]
    assert fit.refitted == () and fit.aggregation.left_out == {}
    expected = aggregate(fit.local_models, data.X[:300], n_experts=2)
    assert_array_equal(fit.aggregation.model.to_vector(), expected.model.to_vector())
    assert_array_equal(
        fit.local_models[3].model.to_vector(), fit_local(tasks[3]).message.model.to_vector()
    )
    truth = data.truth
    found = fit.aggregation.model.aligned_to(truth, data.X)
    assert_allclose(found.experts.coef, truth.experts.coef, atol=0.5)


def test_learning_time_is_that_of_the_slowest_fit_and_the_aggregation(fit):
    timings = fit.timings
    assert timings["local"] == fit.seconds.max() > 0
    assert timings["aggregation"] == fit.aggregation.timings["total"] > 0
    assert timings["learning"] == timings["local"] + timings["aggregation"]
    assert len(fit.seconds) == N_SHARDS


class Backwards(Executor):
    """Does everything at the last moment, the last task first."""

    def __init__(self, n_tasks):
        self.n_tasks, self.waiting = n_tasks, []

    def submit(self, function, *arguments):
        future = Future()
        self.waiting.append((future, function, arguments))
        if len(self.waiting) == self.n_tasks:
            for late, call, given in reversed(self.waiting):
                late.set_result(call(*given))
        return future


def test_who_runs_the_fits_and_who_finishes_first_is_irrelevant(fit, tasks, data):
    done = []
    with ThreadPoolExecutor(2) as pool:
        for executor in (pool, Backwards(N_SHARDS)):
            found = fit_tasks(tasks, data.X[:300], executor=executor, progress=done.append)
            assert [m.site for m in found.local_models] == [task.site for task in tasks]
            assert_allclose(
                found.aggregation.model.to_vector(),
                fit.aggregation.model.to_vector(),
                rtol=1e-12,
            )
    assert done == 2 * list(range(1, N_SHARDS + 1))


def test_progress_is_reported_without_an_executor(tasks, data):
    done = []
    fit_tasks(tasks[:3], data.X[:300], progress=done.append)
    assert done == [1, 2, 3]


def test_fits_in_threads_leave_the_threads_of_blas_as_they_were(tasks, data):
    before = [library["num_threads"] for library in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        fit_tasks(tasks, data.X[:300], executor=pool)
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_an_error_in_a_fit_reaches_the_user(tasks, data):
    wrong = [replace(tasks[0], options={"family": "cauchy"}), *tasks[1:]]
    with ThreadPoolExecutor(2) as pool:
        for executor in (None, pool):
            with pytest.raises(KeyError, match="cauchy"):
                fit_tasks(wrong, data.X[:300], executor=executor)


# -- second chances ----------------------------------------------------------------------------


def planted(monkeypatch, bad):
    """Let fits of some shards end in a wrong optimum, as long as `bad(task, n_starts)` says so."""
    calls = []

    def fit(task):
        n_starts = task.options["n_init"]
        calls.append((task.site, n_starts, task.seed))
        found = fit_local(task)
        if not bad(task, n_starts):
            return found
        alone = fit_local(replace(task, n_experts=1)).message.model
        both = replace(
            found.message.model,
            experts=alone.experts.take([0, 0]),
            gate=replace(found.message.model.gate, coef=0 * found.message.model.gate.coef),
        )
        value = float(both.log_density(task.X, task.y).sum())
        return replace(found, message=replace(found.message, model=both, log_likelihood=value))

    monkeypatch.setattr(distributed, "fit_local", fit)
    return calls


def test_a_shard_that_stands_out_is_fitted_again_with_more_starts(monkeypatch, tasks, data, fit):
    calls = planted(monkeypatch, lambda task, n: task.site == "shard 5" and n <= 3)
    found = fit_tasks(tasks, data.X[:300])
    assert found.refitted == ("shard 5",) and found.aggregation.left_out == {}
    assert calls[N_SHARDS:] == [("shard 5", 9, tasks[5].seed + 1)]
    assert len(found.aggregation.sites) == N_SHARDS
    gap = found.aggregation.model.to_vector() - fit.aggregation.model.to_vector()
    assert np.abs(gap).max() < 1e-4  # the same optimum as without the accident


def test_the_seconds_of_a_second_chance_count(monkeypatch, tasks, data):
    def fit(task):
        again = task.options["n_init"] > 3
        found = fit_local(task)
        low = task.site == "shard 5" and not again
        value = found.message.log_likelihood - (300.0 if low else 0.0)
        return replace(
            found, message=replace(found.message, log_likelihood=value), seconds=2.0 if again else 1
        )

    monkeypatch.setattr(distributed, "fit_local", fit)
    found = fit_tasks(tasks, data.X[:300])
    assert_array_equal(found.seconds, np.where(np.arange(N_SHARDS) == 5, 3.0, 1.0))
    assert found.timings["local"] == 3.0


@pytest.mark.parametrize("threads", [False, True])
def test_a_shard_that_stays_bad_is_left_out_by_name(monkeypatch, tasks, data, threads):
    planted(monkeypatch, lambda task, n: task.site in ("shard 2", "shard 6"))
    with ThreadPoolExecutor(2) as pool:
        found = fit_tasks(tasks, data.X[:300], executor=pool if threads else None)
    result = found.aggregation
    assert set(result.left_out) == set(found.refitted) == {"shard 2", "shard 6"}
    assert (
        "deviations below the median, also after a fit with more starts"
        in (result.left_out["shard 2"])
    )
    assert len(found.local_models) == N_SHARDS  # nobody is hidden
    kept = [m for m in found.local_models if m.site not in result.left_out]
    assert [record.site for record in result.sites] == [m.site for m in kept]
    expected = aggregate(kept, data.X[:300], n_experts=2)
    assert_array_equal(result.model.to_vector(), expected.model.to_vector())


def test_a_worse_second_fit_is_not_kept(monkeypatch, tasks, data):
    def fit(task):
        found = fit_local(task)
        loss = {3: 300.0}.get(task.options["n_init"], 600.0) if task.site == "shard 1" else 0.0
        value = found.message.log_likelihood - loss
        return replace(found, message=replace(found.message, log_likelihood=value))

    monkeypatch.setattr(distributed, "fit_local", fit)
    found = fit_tasks(tasks, data.X[:300])
    first = fit_local(tasks[1]).message.log_likelihood - 300.0
    assert found.local_models[1].log_likelihood == first
    assert set(found.aggregation.left_out) == {"shard 1"}


def test_a_second_chance_has_more_starts_also_where_none_were_asked_for(monkeypatch, tasks, data):
    starts = []

    def fit(task):
        starts.append(task.options.get("n_init"))
        found = fit_local(replace(task, options={"n_init": 2}))
        low = task.site == "shard 0" and task.options.get("n_init") is None
        value = found.message.log_likelihood - (300.0 if low else 0.0)
        return replace(found, message=replace(found.message, log_likelihood=value))

    monkeypatch.setattr(distributed, "fit_local", fit)
    fit_tasks([replace(task, options={}) for task in tasks], data.X[:300])
    assert starts == [None] * N_SHARDS + [3 * TELLING.n_init]


def test_a_fit_that_was_stopped_at_once_is_left_out(tasks, data):
    # An unlucky shard as users meet it: nothing is patched, one task is not allowed to learn.
    y = np.random.default_rng(0).permutation(tasks[4].y)  # and its rows are of another law
    odd = replace(tasks[4], y=y, options={"n_init": 1, "max_iter": 1})
    found = fit_tasks([*tasks[:4], odd, *tasks[5:]], data.X[:300])
    assert set(found.aggregation.left_out) == {"shard 4"}


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
    est = many(2, n_shards=4, n_init=8, random_state=0, **options).fit(data.X, data.y)
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
    assert est.timings_["learning"] == est.timings_["local"] + est.timings_["aggregation"]
    assert est.n_features_in_ == 2 and est.n_iter_ >= 1


def test_the_same_seed_gives_the_same_fit_with_and_without_threads(data):
    est = DistributedMoERegressor(2, n_shards=4, **QUICK)
    with ThreadPoolExecutor(2) as pool:
        fits = [
            clone(est).set_params(**options).fit(data.X, data.y)
            for options in ({}, {}, {"executor": pool}, {"n_jobs": 2})
        ]
    for other in fits[1:]:
        assert_allclose(other.model_.to_vector(), fits[0].model_.to_vector(), rtol=1e-12)


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


def test_labels_of_any_kind_come_back():
    data = simulate(1200, 2, 2, family="multinomial", softness=0.5, random_state=3)
    labels = np.array(["low", "mid", "high"])[data.y.astype(int)]
    est = DistributedMoEClassifier(2, n_shards=2, **QUICK).fit(data.X, labels)
    assert list(est.classes_) == ["high", "low", "mid"]
    assert_array_equal(est.local_models_[0].model.classes, est.classes_)
    assert set(est.predict(data.X)) <= set(labels)
    assert_allclose(est.predict_proba(data.X).sum(axis=1), 1)


def test_a_class_that_some_shards_lack_is_known_to_all():
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
        pipe = make_pipeline(
            StandardScaler(), DistributedMoERegressor(n_shards=2, executor=pool, **QUICK)
        )
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
    said = one_warning(est, data.X[:200], data.y[:200])
    assert est.n_shards_ == 200 // (3 * 11) == 6
    assert "there are rows for 6 of 16 shards only: give more rows or ask for fewer shards" in said


def test_fewer_rows_than_columns_give_one_warning():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 9)), rng.normal(size=6)
    est, plain = DistributedMoERegressor(1, random_state=0), MoERegressor(1, random_state=0)
    said = one_warning(est, X, y)
    assert "there are rows for 1 of 16 shards only" in said and "support" not in said
    one_warning(plain, X, y)
    assert_allclose(est.model_.experts.coef, plain.model_.experts.coef, atol=1e-8)


def test_shards_that_stop_early_give_one_warning(data):
    est = DistributedMoERegressor(2, n_shards=3, max_iter=1, tol=0.0, **QUICK)
    said = one_warning(est, data.X, data.y)
    assert "stopped before convergence: raise max_iter" in said and "shard 1" in said
    assert not est.converged_


def test_a_shard_left_out_gives_one_warning(monkeypatch, data):
    planted(monkeypatch, lambda task, n: task.site == "shard 3")
    est = DistributedMoERegressor(2, n_shards=N_SHARDS, **QUICK)
    said = one_warning(est, data.X, data.y)
    assert "shard 3 was left out: its mean log-likelihood per row is" in said
    assert set(est.aggregation_.left_out) == {"shard 3"} and est.refitted_ == ("shard 3",)


def test_a_constant_column_gives_one_warning(data):
    X = np.column_stack([data.X, np.ones(len(data.X))])
    said = one_warning(DistributedMoERegressor(2, n_shards=3, **QUICK), X, data.y)
    assert "of some shards: the 4 columns of the design (intercept included) span only 3" in said


def test_a_merged_model_is_no_message(data):
    est = DistributedMoERegressor(2, n_shards=2, **QUICK).fit(data.X, data.y)
    with pytest.raises(TypeError, match="send the messages in local_models_"):
        est.to_message("Lyon")


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"n_shards": 0}, "n_shards is 0; give a whole number of at least 1"),
        ({"n_shards": 2.5}, "n_shards is 2.5; give a whole number"),
        ({"n_support": 0}, "n_support is 0; give a whole number of at least 1"),
        ({"method": "mean"}, "method is 'mean'; choose one of"),
        ({"n_experts": 0}, "n_experts is 0"),
    ],
)
def test_a_mistake_is_named(data, parameters, sentence):
    for kind in (DistributedMoERegressor, DistributedMoEClassifier):
        with pytest.raises(ValueError, match=sentence):
            kind(**parameters).fit(data.X, data.y > 0)
