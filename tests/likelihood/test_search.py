from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import penalised_log_likelihood, random_model, random_rows
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from otmoe import MoEClassifier, simulate
from otmoe.likelihood import search
from otmoe.likelihood.fit import em
from otmoe.likelihood.maxima import Maximum, settles
from otmoe.likelihood.moves import divided, grown, improved, labelings, splits
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.search import searched
from otmoe.likelihood.shaking import _by_exchange, shaken
from otmoe.likelihood.stage import Stage, least_mass, rows_needed
from otmoe.likelihood.starts import model_from_labels
from otmoe.likelihood.statistics import VARIANCE_FLOOR
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

RIDGE = Ridge(0.1, 0.2)


def staged(rng, family="gaussian", n_experts=2, n=300, weighted=True):
    """Return a stage, and a model at a maximum of its likelihood."""
    truth = random_model(rng, n_experts, 2, family=family)
    X, y = random_rows(rng, truth, n)
    weight = rng.uniform(0.2, 2, n) if weighted else None
    rows = Rows(X, y, weight).standardised(truth.experts)[0]
    stage = Stage.of_some(rows, n, RIDGE, rng)
    return stage, stage.at_maximum(rows.scaling.from_user(truth))


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


# -- moves -------------------------------------------------------------------------------------


def test_a_divided_model_keeps_the_other_experts_and_their_rows(rng, family):
    stage, run = staged(rng, family, 3)
    model, share = run.model, stage.posterior(run.model).responsibilities
    found = splits(stage, model, 1, share[:, 1] * stage.weight, rng)
    assert len(found) == 1
    after = divided(stage, model, found[0], share)
    assert after.n_experts == 4
    assert_allclose(after.gate.prob(stage.block.X).sum(axis=1), 1, rtol=1e-12)
    assert_allclose(after.experts.take([0, 1]).to_vector(), model.experts.take([0, 2]).to_vector())
    there = stage.posterior(after).responsibilities
    assert_allclose(there.sum(axis=1), 1, rtol=1e-12)
    # The children share the rows of their parent, and the others keep theirs.
    moved = np.abs(there[:, :2] - share[:, [0, 2]]).mean()
    assert moved < 0.15, moved


def test_children_are_at_least_as_likely_as_their_parent_on_its_rows(rng, family):
    stage, run = staged(rng, family)
    share = stage.posterior(run.model).responsibilities
    for k in range(2):
        for split in splits(stage, run.model, k, share[:, k] * stage.weight, rng, most=2):
            assert split.expert == k and split.children.n_experts == 2
            assert split.gain > -1.0  # one iteration of EM is all that the parent had


def test_every_labelling_leaves_rows_on_both_sides(rng, family):
    stage, run = staged(rng, family, weighted=False)
    cuts = list(labelings(stage.block, run.model.experts.take([0]), rng))
    assert len(cuts) == 8
    for cut in cuts:
        assert cut.dtype == bool and cut.shape == (300,)
    if run.model.experts.has_scale:
        assert all(10 < cut.sum() < 160 for cut in cuts)


def test_one_expert_more_is_never_less_likely(rng, family):
    stage, run = staged(rng, family, 1, 200)
    for K in (2, 3):
        more = grown(stage, run, rng)
        heights = [stage.value(end) for end in more]
        assert more[0].model.n_experts == K and heights == sorted(heights, reverse=True)
        assert more[0].trace[-1] > run.trace[-1] - stage.same_within
        run = more[0]


def test_an_expert_with_hardly_any_rows_is_not_split(rng):
    stage, run = staged(rng)
    share = stage.posterior(run.model).responsibilities[:, 0]
    assert splits(stage, run.model, 0, 1e-3 * share, rng) == []
    few = replace(stage, rows=stage.rows.take(np.arange(8)))
    alone = few.at_maximum(run.model.take([0]))
    assert grown(few, alone, rng) == [alone]


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_moves_only_climb_and_stop_where_they_have_been(rng, family):
    stage, run = staged(rng, family, 3)
    runs, tried = improved(stage, run, rng, 6)
    assert tried <= 6 and stage.value(runs[0]) >= stage.value(run)
    assert runs[0].trace[-1] >= max(r.trace[-1] for r in runs if stage.value(r) > -np.inf) - 1
    assert improved(stage, run, rng, 6, [run]) == ([run], 0)
    assert improved(stage, run, rng, 0) == ([run], 0)


# -- shaking -----------------------------------------------------------------------------------


def test_shaking_only_climbs_and_ends_at_a_maximum(rng, family):
    stage, run = staged(rng, family, 3)
    assert shaken(stage, run, rng, 0) is run
    end = shaken(stage, run, rng, 3)
    assert end is run or stage.value(end) > stage.value(run)
    assert stage.same(end, stage.at_maximum(end.model))


def test_shaking_stops_where_another_search_has_been(rng):
    stage, run = staged(rng, "gaussian", 3)
    state = rng.bit_generator.state
    assert shaken(stage, run, rng, 50, [run]) is run
    assert rng.bit_generator.state == state  # no try was made


def _low(diabetes):
    """Return all rows, and maxima of three experts there from random labels."""
    X, y = diabetes
    rows = Rows(X, y).standardised(GaussianExperts.blank(3, 11))[0]
    ridge = Ridge.of(GaussianExperts)
    stage = Stage.of_some(rows, len(y), ridge, np.random.default_rng(0))
    low = []
    for seed in range(4):
        labels = np.random.default_rng(seed).integers(3, size=len(y))
        start = model_from_labels(GaussianExperts.blank(3, 11), stage.block, labels, None)
        low.append(stage.at_maximum(stage.em(start, 20).model))
    return stage, low


def test_searches_are_shaken_until_two_arrive_at_the_highest(diabetes, monkeypatch):
    stage, low = _low(diabetes)
    top = max((shaken(stage, run, np.random.default_rng(0), 6) for run in low), key=stage.value)
    led = []

    def straight_there(stage, run, rng, patience, known):
        led.append(run)
        return top

    monkeypatch.setattr(search, "shaken", straight_there)
    by_moves, *others = [Maximum(run, frozenset([i][:i])) for i, run in enumerate(low)]
    order = [by_moves, *others]
    found = search._shaken(stage, order, np.random.default_rng(0))
    # The best in any case, then those that a search ended in: two of them are enough. Last the top.
    assert led == [low[0], low[1], low[2], top]
    assert found[0].run is top and found[0].found_by == {1, 2}


def test_nothing_is_shaken_where_searches_agree_after_moves_and_all_experts_are_needed(monkeypatch):
    data = simulate(8000, 4, 5, softness=1.0, random_state=0)
    called = []
    for name in ("_improved", "_shaken"):
        function = getattr(search, name)
        monkeypatch.setattr(search, name, lambda *a, f=function, n=name: called.append(n) or f(*a))
    fit = em(data.X, data.y, 4, random_state=0)
    assert called == ["_improved", "_improved"]  # on 2,000 rows the searches did not agree
    assert fit.agreement.agreed == fit.agreement.searches == 2
    assert fit.trace[-1] >= em(data.X, data.y, init=data.truth).trace[-1] - 1e-6


def test_a_maximum_settles_a_search_only_if_two_found_it_and_no_expert_can_be_spared(rng):
    data = simulate(1000, 2, 2, softness=0.0, random_state=1)
    rows = Rows(data.X, data.y).standardised(data.truth.experts)[0]
    stage = Stage.of_some(rows, len(rows), RIDGE, rng)
    run = stage.at_maximum(rows.scaling.from_user(data.truth))
    assert settles(stage, Maximum(run, frozenset([0, 2])))
    assert not settles(stage, Maximum(run, frozenset([1])))
    one, gate = run.model.take([0]).experts, SoftmaxGate.blank(2, 3, None)
    twice = replace(run, model=MoE(gate, one.take([0, 0])))
    assert not settles(stage, Maximum(twice, frozenset([0, 2])))


def test_shaking_leaves_a_maximum_that_is_not_the_highest(diabetes):
    stage, low = _low(diabetes)
    higher = [shaken(stage, run, np.random.default_rng(0), 6) for run in low]
    gains = [end.trace[-1] - run.trace[-1] for end, run in zip(higher, low, strict=True)]
    assert min(gains) >= 0 and np.mean(gains) > 2, gains


def test_shaking_gives_an_expert_to_another_region():
    """Two experts share a region, one covers two: fewer rows never lead away from there."""
    data = simulate(1000, 3, 2, softness=0.0, random_state=6)
    rows = Rows(data.X, data.y).standardised(data.truth.experts)[0]
    stage = Stage.of_some(rows, len(rows), RIDGE, np.random.default_rng(0))
    high = stage.at_maximum(rows.scaling.from_user(data.truth))
    mine, x = data.z == 1, data.X[:, 0]
    labels = np.where(mine, x > np.median(x[mine]), 2)
    start = model_from_labels(GaussianExperts.blank(3, 3), stage.block, labels, None)
    low = stage.at_maximum(stage.em(start, 20).model)
    assert -np.inf < stage.value(low) < stage.value(high) - 100
    for seed in range(3):
        end = shaken(stage, low, np.random.default_rng(seed), 24)
        assert stage.value(end) > stage.value(high) - 1


def test_an_exchange_crosses_two_experts_that_were_continued_wrongly():
    """Two lines that cross, each continued by the other beyond: two maxima, one of them low."""
    rng = np.random.default_rng(3)
    x, z = rng.uniform(-1, 1, 600), rng.integers(2, size=600)
    y = np.where(z, 2 * x, -2 * x) + 0.1 * rng.standard_normal(600)
    rows = Rows(x[:, None], y).standardised(GaussianExperts.blank(2, 2))[0]
    stage = Stage.of_some(rows, len(rows), RIDGE, np.random.default_rng(0))
    start = GaussianExperts.blank(2, 2)
    high, low = (
        stage.at_maximum(stage.em(model_from_labels(start, stage.block, labels, None), 20).model)
        for labels in (z, z ^ (x > 0))
    )
    assert -np.inf < stage.value(low) < stage.value(high) - 50
    ends = [
        stage.at_maximum(_by_exchange(stage, low.model, np.random.default_rng(seed)))
        for seed in range(12)
    ]
    assert max(map(stage.value, ends)) > stage.value(high) - 1


@pytest.mark.parametrize("columns", [0, 1])
def test_nothing_is_exchanged_without_features_or_without_a_region(rng, columns):
    y = rng.standard_normal(50)
    rows = Rows(np.ones((50, columns)), y).standardised(GaussianExperts.blank(2, 1 + columns))[0]
    stage = Stage.of_some(rows, len(rows), RIDGE, rng)
    model = MoE(SoftmaxGate.blank(2, 1 + columns), GaussianExperts.blank(2, 1 + columns))
    assert _by_exchange(stage, model, rng) is None


# -- stages ------------------------------------------------------------------------------------


def test_a_maximum_is_one_only_if_every_expert_has_rows(rng):
    stage, run = staged(rng)
    assert stage.value(run) == run.trace[-1]
    lost = replace(run, mass=np.array([stage.weight.sum() - 1.0, 1.0]))
    assert stage.value(lost) == -np.inf and not stage.same(run, lost)
    assert stage.value(replace(run, trace=(np.nan,))) == -np.inf
    # However high, a maximum at the floor stands on ties.
    experts = replace(run.model.experts, var=np.array([1.0, VARIANCE_FLOOR]))
    ties = replace(run, model=replace(run.model, experts=experts), trace=(1e9,))
    assert np.all(ties.mass >= rows_needed(ties.model, stage.rows.total_weight))
    assert stage.value(ties) == -np.inf
    # Nor is it one on its way there: Newton's method stops short of a floor.
    experts = replace(experts, var=np.array([1.0, 1.0006 * VARIANCE_FLOOR]))
    assert stage.value(replace(ties, model=replace(run.model, experts=experts))) == -np.inf


def test_a_narrow_expert_needs_more_rows():
    def needed(var, total=1000.0):
        model = MoE(SoftmaxGate.blank(2, 3), GaussianExperts(np.zeros((2, 3)), np.array([1, var])))
        return rows_needed(model, total)

    found = np.array([needed(var) for var in (1.0, 0.1, 1e-3, 1e-6)])
    assert_allclose(found[:, 0], 9.0)
    assert found[0, 1] == 9.0 and np.all(np.diff(found[:, 1]) > 0)
    assert_allclose(needed(1e-6, 60.0), [9.0, 13.5])  # less than half of their share
    assert np.all(np.isfinite(needed(0.0)))
    model = MoE(SoftmaxGate.blank(2, 3), GaussianExperts(np.zeros((2, 3)), np.ones(2)))
    assert [least_mass(total, model) for total in (1000.0, 20.0)] == [6.0, 2.0]


def test_a_stage_has_the_rows_of_positive_weight_in_memory(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    weight = np.append(np.zeros(10), rng.uniform(1, 2, 40))
    rows = Rows(X, y, weight, offset=y / 2).standardised(GaussianExperts.blank(2, 3))[0]
    stage = Stage.of_some(rows, 100, RIDGE, rng)
    assert len(stage) == 40 and stage.whole and stage.near < 1
    assert_array_equal(stage.weight, weight[10:])
    here, there = stage.block, rows.block(slice(10, None))
    for name in ("X", "y", "weight", "offset"):
        assert_array_equal(getattr(here, name), getattr(there, name))
    assert_array_equal(replace(stage, rows=Rows(X, y)).weight, 1)


# -- searches ----------------------------------------------------------------------------------


def test_a_search_ends_at_a_maximum_and_says_how_sure_it_is(rng, family):
    truth = random_model(rng, 2, 2, family=family)
    X, y = random_rows(rng, truth, 200)
    rows = Rows(X, y).standardised(truth.experts)[0]
    blank, heights = type(truth.experts).blank(2, 3, 3), []

    def report(i, value):
        heights.append((i, value))

    model, sure, known = searched(rows, blank, (0, 2), RIDGE, 4, np.random.default_rng(0), report)
    assert sure.searches == 4 and 0 <= sure.agreed <= 4 and sure.runner_up > 0
    assert known is None  # all rows were few
    assert model.gate.columns == (0, 2)
    assert [i for i, _ in heights] == [1, 2, 3, 4]
    user = rows.scaling.to_user(model)
    value = penalised_log_likelihood(user, X, y, RIDGE.gate, expert_alpha=RIDGE.experts)
    assert value - rows.log_base(truth.experts) >= heights[-1][1] - 0.1
    with ThreadPoolExecutor(3) as pool:
        threaded = Rows(X, y, pool=pool).standardised(truth.experts)[0]
        same, _, _ = searched(threaded, blank, (0, 2), RIDGE, 4, np.random.default_rng(0))
    assert_array_equal(same.to_vector(), model.to_vector())


def test_a_single_expert_needs_one_search(rng, family):
    truth = random_model(rng, 1, 2, family=family)
    X, y = random_rows(rng, truth)
    agreement = em(X, y, 1, family=family, n_classes=3, random_state=0).agreement
    assert (agreement.searches, agreement.agreed, agreement.runner_up) == (1, 1, np.inf)
    assert em(X, y, init=truth, family=family, n_classes=3).agreement is None


def test_a_single_expert_of_many_rows_is_the_plain_model(rng, family):
    truth = random_model(rng, 1, 2, family=family)
    X, y = random_rows(rng, truth, 40_000)  # more than the first stages look at
    fit = em(X, y, 1, family=family, n_classes=3, random_state=0)
    assert fit.converged and fit.agreement.searches == 1
    again = em(X, y, init=truth, family=family, n_classes=3)
    assert_allclose(fit.log_likelihood, again.log_likelihood, rtol=1e-12)


def test_every_seed_finds_the_same_maximum_and_more_searches_none_that_is_lower(diabetes):
    found = []
    for seed in range(5):
        three = em(*diabetes, 2, n_init=3, random_state=seed)
        six = em(*diabetes, 2, random_state=seed)  # few rows: twice as many searches
        assert three.agreement.searches <= 3 and six.agreement.searches <= 6
        assert six.trace[-1] >= three.trace[-1] - 0.01
        assert 1 <= three.agreement.agreed <= 3 and 1 <= six.agreement.agreed <= 6
        found.append(six.log_likelihood)
    assert np.ptp(found) < 0.5


# -- ridges ------------------------------------------------------------------------------------


def test_classes_that_x_separates_have_finite_coefficients(rng):
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(float)
    for family in ("logistic", "multinomial"):
        fit = em(X, y, 2, family=family, n_classes=2, random_state=0)
        assert fit.converged and np.abs(fit.model.to_vector()).max() < 50
        likely = fit.model.log_density(X, y) > np.log(0.5)
        assert np.mean(likely) > 0.95
    held = em(X, y, 1, family="logistic", expert_alpha=0.0)
    assert held.converged and np.all(np.isfinite(held.model.to_vector()))
    assert held.log_likelihood > em(X, y, 1, family="logistic").log_likelihood > -60


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_default_ridge_predicts_rows_that_are_separable():
    X, y = load_breast_cancer(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    losses = []
    for train, test in folds.split(X, y):
        est = MoEClassifier(1, random_state=0).fit(X[train], y[train])
        losses.append(log_loss(y[test], est.predict_proba(X[test])))
    assert np.mean(losses) <= 0.085


def test_without_ridges_one_expert_is_the_plain_model(rng):
    X = rng.normal(size=(400, 3)) + 2
    eta = X @ [0.5, -0.3, 0.0] - 0.4
    tables = {
        "logistic": (rng.uniform(size=400) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": rng.poisson(np.exp(eta)).astype(float),
    }
    others = {
        "logistic": LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000),
        "poisson": PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000),
    }
    for family, y in tables.items():
        plain = em(X, y, 1, family=family, alpha=0, expert_alpha=0).model.experts.coef[0]
        other = others[family].fit(X, y)
        expected = np.append(other.intercept_, other.coef_)
        assert_allclose(plain, expected, atol=1e-4)
        shrunk = em(X, y, 1, family=family).model.experts.coef[0]
        assert np.linalg.norm(shrunk[1:]) < np.linalg.norm(plain[1:])
        assert_allclose(shrunk, plain, atol=0.1)


@pytest.mark.parametrize("n", [400, 12_000])  # all rows are few, or phases follow each other
def test_searches_side_by_side_find_what_they_find_in_turn(rng, n):
    truth = random_model(rng, 3, 3)
    X, y = random_rows(rng, truth, n)
    one, two = (em(X, y, 3, random_state=0, n_jobs=jobs) for jobs in (1, 2))
    assert_array_equal(one.model.to_vector(), two.model.to_vector())
    assert one.agreement == two.agreement
