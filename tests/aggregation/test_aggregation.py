"""Laws of the transport reduction, over many small random problems of every family."""

from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pytest
from families import FAMILIES
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    best_experts,
    gap,
    log_density,
    messages,
    nearby,
    nearest_plan,
    plan_cost,
    random_model,
    relaxed_cost,
    source_mass,
)

from otmoe import aggregate
from otmoe.aggregation.methods import reduction
from otmoe.aggregation.mm import _no_leap, descend
from otmoe.aggregation.problem import prepare
from otmoe.aggregation.sources import Budget, assign
from otmoe.arrays.threads import threads
from otmoe.model.experts import LogisticExperts
from otmoe.text.sentences import Warn

# The result holds the warnings; test_problem.py checks that they are also given.
pytestmark = pytest.mark.filterwarnings("ignore:aggregate:UserWarning")

N_PROBLEMS = 24

reduced = partial(aggregate, method="reduction")


@dataclass(frozen=True)
class Small:
    """Some sites with unequal numbers of experts and unequal weights, and a number asked for."""

    models: list
    weight: np.ndarray
    X: np.ndarray
    n_experts: int

    @property
    def L(self):
        return sum(model.n_experts for model in self.models)

    def aggregate(self, **options):
        known = {"messages": messages(self.models, self.weight), "support": self.X}
        return reduced(**known | {"n_experts": self.n_experts} | options)

    def cost(self, experts):
        return relaxed_cost(self.models, self.weight, experts, self.X)


def small(family, seed):
    """Draw a problem: K is from 1 to more than all experts together."""
    rng = np.random.default_rng([seed, 4])
    sizes = rng.integers(1, 4, rng.integers(2, 5))
    models = [random_model(rng, int(K), 2, family=family) for K in sizes]
    X = rng.normal(size=(60, 2)) * [0.7, 1.4] + 0.3
    K = int(sizes.sum()) + 1 if seed % 8 == 7 else int(rng.integers(1, sizes.sum() + 1))
    return Small(models, rng.uniform(0.2, 3.0, len(sizes)), X, K)


def around_a_truth(family, seed, noise=0.05, sizes=(2, 2, 2)):
    """Draw sites that nearly agree, as fits to the same law do: the best plan is plain to see."""
    rng = np.random.default_rng([seed, 7])
    while True:
        truth = random_model(rng, 2, 2, family=family)
        X = rng.normal(size=(60, 2)) * [0.7, 1.4] + 0.3
        if relaxed_cost([truth.take([0])], [1.0], truth.take([1]).experts, X) > 0.3:
            break
    models = [nearby(rng, truth, noise).take(rng.permutation(2)[:K]) for K in sizes]
    return Small(models, rng.uniform(0.2, 3.0, len(sizes)), X, 2)


@cache
def solved(family):
    problems = [small(family, seed) for seed in range(N_PROBLEMS)]
    return [(problem, problem.aggregate()) for problem in problems]


def same_model(a, b, X):
    """Return the gap between two models once their experts are in the same order."""
    return gap(a.aligned_to(b, X), b)


# -- the objective -----------------------------------------------------------------------------


def test_the_problems_are_of_every_kind(family):
    problems = [problem for problem, _ in solved(family)]
    largest = [max(model.n_experts for model in p.models) for p in problems]
    assert any(p.n_experts > p.L for p in problems)
    assert any(m < p.n_experts < p.L for m, p in zip(largest, problems, strict=True))
    assert any(p.n_experts < m for m, p in zip(largest, problems, strict=True))


def test_the_objective_never_rises(family):
    for _, result in solved(family):
        assert np.diff(result.trace).max(initial=-1) <= 1e-12
        assert np.all(np.isfinite(result.trace)) and result.trace[-1] >= 0


def test_the_objective_never_rises_from_random_starts(family):
    steps = 0
    for seed in range(N_PROBLEMS):
        problem = small(family, seed)
        known = prepare(messages(problem.models, problem.weight), problem.X).sources
        rng = np.random.default_rng(seed)
        start = FAMILIES[family].make(rng, problem.n_experts, 3)
        run = descend(known, start)
        assert run.converged and np.diff(run.trace).max(initial=-1) <= 1e-12
        back = known.scaling.to_user(replace(problem.models[0], experts=run.experts))
        assert_allclose(run.trace[-1], problem.cost(back.experts), rtol=1e-10, atol=1e-13)
        assert_allclose(run.mass.sum(), 1, rtol=1e-12)
        steps += run.n_iter
    assert steps > 3 * N_PROBLEMS


def test_the_last_objective_is_the_relaxed_divergence_of_the_model(family):
    for problem, result in solved(family):
        expected = problem.cost(result.model.experts)
        assert_allclose(result.trace[-1], expected, rtol=1e-10, atol=1e-13)
        assert_allclose(result.cost, expected, rtol=1e-10, atol=1e-13)


def test_the_divergences_of_the_sites_add_up(family):
    for problem, result in solved(family):
        for model, record in zip(problem.models, result.sites, strict=True):
            alone = relaxed_cost([model], [1.0], result.model.experts, problem.X)
            assert_allclose(record.cost, alone, rtol=1e-9, atol=1e-13)
        total = sum(record.weight * record.cost for record in result.sites)
        assert_allclose(total, result.cost, rtol=1e-9, atol=1e-13)


def test_nothing_is_lost_where_there_are_experts_for_all(family):
    for problem, result in solved(family):
        if problem.n_experts >= problem.L:
            assert result.cost < 1e-13


def test_no_start_of_ours_beats_the_result(family):
    # Random experts, followed down by MM: by luck, one of 24 may end a little lower.
    ends = []
    for problem, result in solved(family)[:8]:
        known = prepare(messages(problem.models, problem.weight), problem.X).sources
        for seed in range(3):
            start = FAMILIES[family].make(np.random.default_rng(seed), problem.n_experts, 3)
            ends.append((descend(known, start).trace[-1] + 1e-12, result.trace[-1]))
    assert all(end >= reached * (1 - 1e-3) for end, reached in ends)
    assert sum(end < reached * (1 - 1e-6) for end, reached in ends) <= 1


# -- majorisation ------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), scale=st.floats(1e-3, 2.0))
@pytest.mark.parametrize("name", list(FAMILIES))
def test_the_majoriser_touches_and_lies_above(name, seed, scale):
    problem = small(name, seed)
    rng = np.random.default_rng(seed)
    known = prepare(messages(problem.models, problem.weight), problem.X).sources

    def objective(experts):  # R_c as the library computes it, on the standardised scale
        there = known.scaling.from_user(replace(problem.models[0], experts=experts))
        return assign(known, there.experts).cost.sum() / len(known)

    now = FAMILIES[name].make(rng, problem.n_experts, 3)
    plan = nearest_plan(problem.models, now, problem.X)

    def majoriser(experts):
        return plan_cost(problem.models, problem.weight, experts, problem.X, plan)

    other = nearby(rng, now, scale)
    assert_allclose(majoriser(now), objective(now), rtol=1e-10, atol=1e-12)
    assert majoriser(other) >= objective(other) * (1 - 1e-10) - 1e-12


def test_a_gaussian_step_minimises_the_majoriser():
    for seed in range(6):
        problem = small("gaussian", seed)
        models, weight, X = problem.models, problem.weight, problem.X
        known = prepare(messages(models, weight), X).sources
        start = models[0].experts
        here = known.scaling.from_user(models[0]).experts
        step = here.step(assign(known, here).statistics)
        found = known.scaling.to_user(replace(models[0], experts=step)).experts
        plan = nearest_plan(models, start, X)
        best = best_experts(models, weight, start, X, plan)
        assert_allclose(found.to_vector(), best.to_vector(), atol=1e-5)
        here, least = (plan_cost(models, weight, part, X, plan) for part in (found, best))
        assert here <= least + 1e-12


def test_the_result_minimises_the_majoriser_of_its_own_plan(family):
    checked = 0
    for problem, result in solved(family):
        experts = result.model.experts
        if experts.n_parameters <= 12 and result.cost > 1e-6:
            plan = nearest_plan(problem.models, experts, problem.X)
            best = best_experts(problem.models, problem.weight, experts, problem.X, plan)
            least = plan_cost(problem.models, problem.weight, best, problem.X, plan)
            assert result.cost <= least + 1e-10
            assert_allclose(experts.to_vector(), best.to_vector(), atol=1e-4)
            checked += 1
        if checked == 3:
            break
    assert checked == 3


# -- invariance --------------------------------------------------------------------------------


def test_one_site_returns_itself(family):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        model = random_model(rng, 1 + seed % 4, 2, family=family)
        X = rng.normal(size=(60, 2)) * [0.7, 1.4] + 0.3
        for method in ("reduction", "greedy", "middle", "weighted_average", "aligned_average"):
            result = reduced(messages([model], [37.0]), X, method=method)
            assert same_model(result.model, model, X) < 1e-8
            assert result.cost < 1e-13


def test_one_site_with_a_steep_gate_returns_itself():
    rng = np.random.default_rng(0)
    model = random_model(rng, 3, 2)
    model = replace(model, gate=replace(model.gate, coef=15 * model.gate.coef))
    result = reduced(messages([model]), rng.normal(size=(200, 2)))
    assert same_model(result.model, model, rng.normal(size=(50, 2))) < 1e-8


def test_copies_with_unequal_weights_return_the_model(family):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model, weight = random_model(rng, 2, 2, family=family), rng.uniform(0.1, 5, 4)
        copies = [model.take(rng.permutation(2)) for _ in weight]
        X = rng.normal(size=(60, 2))
        result = reduced(messages(copies, weight), X)
        assert same_model(result.model, model, X) < 1e-8
        assert result.cost < 1e-12


def test_nearly_equal_copies_return_nearly_the_model(family):
    rng = np.random.default_rng(5)
    model, X = random_model(rng, 2, 2, family=family), rng.normal(size=(60, 2))
    copies = [nearby(rng, model, 1e-9).take(rng.permutation(2)) for _ in range(5)]
    assert same_model(reduced(messages(copies), X).model, model, X) < 1e-7


def test_a_site_may_come_in_two_halves(family):
    for problem, result in solved(family)[:8]:
        models, weight = [*problem.models, problem.models[0]], np.append(problem.weight, 0.0)
        weight[-1] = 0.3 * weight[0]
        weight[0] -= weight[-1]
        halves = replace(problem, models=models, weight=weight).aggregate()
        assert gap(halves.model, result.model) < 1e-12
        assert_allclose(halves.trace, result.trace, rtol=1e-10, atol=1e-14)


def test_the_order_of_sites_is_irrelevant(family):
    for seed, (problem, result) in enumerate(solved(family)[:8]):
        order = np.random.default_rng(seed).permutation(len(problem.models))
        sent = [messages(problem.models, problem.weight)[m] for m in order]
        found = problem.aggregate(messages=sent)
        assert gap(found.model, result.model) < 1e-12
        assert [record.site for record in found.sites] == [message.site for message in sent]
        for m, record in zip(order, found.sites, strict=True):
            assert_allclose(record.mass, result.sites[m].mass, atol=1e-12)


def test_the_order_of_experts_inside_a_site_is_irrelevant(family):
    for seed in range(5):
        problem = around_a_truth(family, seed)
        rng = np.random.default_rng(seed)
        models = [model.take(rng.permutation(model.n_experts)) for model in problem.models]
        a, b = problem.aggregate(), replace(problem, models=models).aggregate()
        assert_allclose(a.cost, b.cost, rtol=1e-6)
        assert same_model(a.model, b.model, problem.X) < 1e-5


def test_units_of_the_features_are_irrelevant(family):
    for seed in range(4):
        problem = around_a_truth(family, seed)
        unit = np.array([1e6, 1e-6])
        T = np.diag([1.0, *(1 / unit)])
        models = [model.rescaled(T) for model in problem.models]
        scaled = replace(problem, models=models, X=problem.X * unit).aggregate()
        back = scaled.model.rescaled(np.diag([1.0, *unit]))
        assert same_model(back, problem.aggregate().model, problem.X) < 1e-6


def test_the_unit_of_y_is_irrelevant():
    for seed in range(4):
        problem = around_a_truth("gaussian", seed)
        models = [model.rescaled(np.eye(3), 5e3, 1e4) for model in problem.models]
        scaled, plain = replace(problem, models=models).aggregate(), problem.aggregate()
        back = scaled.model.rescaled(np.eye(3), -0.5, 1e-4)
        assert_allclose(scaled.cost, plain.cost, rtol=1e-6)
        assert same_model(back, plain.model, problem.X) < 1e-6


def test_sites_around_a_truth_are_averaged(family):
    # Nine sites off by 0.05 each: the merged model is nearer to the truth than any of them.
    problem = around_a_truth(family, 1, noise=0.05, sizes=(2,) * 9)
    truth = around_a_truth(family, 1, noise=0.0, sizes=(2,)).models[0]
    merged = same_model(problem.aggregate(site_weight=np.ones(9)).model, truth, problem.X)
    assert merged < np.median([same_model(m, truth, problem.X) for m in problem.models])


def test_threads_give_the_same(family):
    for problem, result in solved(family)[:3]:
        assert gap(problem.aggregate(n_jobs=2).model, result.model) < 1e-12


def test_many_blocks_give_the_same(family):
    problem = around_a_truth(family, 0)
    X = np.vstack([problem.X, 0.9 * problem.X, 1.1 * problem.X])
    known = prepare(messages(problem.models, problem.weight), X, problem.n_experts)
    whole = reduction(known, np.random.default_rng(0))
    for keep in (0, 2**24):
        for n_jobs in (1, 2):
            with threads(n_jobs) as pool:
                budget = Budget(cell=1, group=1, keep=keep)  # 64 rows of one site at a time
                sources = replace(known.sources, budget=budget, pool=pool)
                found = reduction(replace(known, sources=sources), np.random.default_rng(0))
            assert_allclose(found.trace[-1], whole.trace[-1], rtol=1e-12, atol=1e-14)
            assert same_model(found.model, whole.model, X) < 1e-10  # experts are not in order yet


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_array_libraries_give_the_same(family, library):
    xp = pytest.importorskip(library)
    for seed in range(2):
        problem = around_a_truth(family, seed)
        for method in ("reduction", "greedy", "aligned_average", "ensemble"):
            here = problem.aggregate(method=method)
            there = problem.aggregate(method=method, support=xp.asarray(problem.X))
            assert there.cost == pytest.approx(here.cost, rel=1e-8, abs=1e-13)
            if method == "ensemble":
                X = xp.asarray(problem.X)
                assert_allclose(there.model.predict(X), here.model.predict(problem.X), rtol=1e-12)
            else:
                assert same_model(there.model, here.model, problem.X) < 1e-8
    for problem, result in solved(family)[:3]:  # whatever the experts receive
        there = problem.aggregate(support=xp.asarray(problem.X))
        assert there.cost == pytest.approx(result.cost, rel=1e-8, abs=1e-13)


# -- what the result says ----------------------------------------------------------------------


def test_the_masses_of_a_site_add_up_and_follow_the_plan(family):
    for problem, result in solved(family):
        plan = nearest_plan(problem.models, result.model.experts, problem.X)
        mass = source_mass(problem.models, problem.weight, problem.X)
        K = problem.n_experts
        sent = np.stack([(mass * (plan == k)).mean(axis=0) for k in range(K)], axis=1)  # (L, K)
        first = 0
        for model, record in zip(problem.models, result.sites, strict=True):
            mine = sent[first : first + model.n_experts] / record.weight
            first += model.n_experts
            assert_allclose(record.mass.sum(), 1, rtol=1e-12)
            assert_allclose(record.mass, mine, atol=1e-9)
            assert_array_equal(record.destination, record.mass.argmax(axis=1))
        total = sum(record.weight * record.mass.sum(axis=0) for record in result.sites)
        assert_allclose(total, sent.sum(axis=0), atol=1e-9)
        assert np.all(np.diff(total) <= 1e-12)  # experts by mass


def test_weights_are_the_shares_of_the_rows(family):
    problem, result = solved(family)[0]
    weights = [record.weight for record in result.sites]
    assert_allclose(weights, problem.weight / problem.weight.sum())
    by_name = {f"site {m}": 2.0 + m for m in range(len(problem.models))}
    a = problem.aggregate(site_weight=by_name)
    b = problem.aggregate(site_weight=list(by_name.values()))
    c = replace(problem, weight=np.array(list(by_name.values()))).aggregate()
    assert gap(a.model, b.model) == gap(a.model, c.model) == 0


def test_a_site_of_no_weight_has_no_part(family):
    problem, _ = solved(family)[1]
    weight = problem.weight.copy()
    weight[0] = 0
    found = problem.aggregate(site_weight=weight)
    models, rest = problem.models[1:], weight[1:]
    assert gap(found.model, replace(problem, models=models, weight=rest).aggregate().model) == 0
    record = found.sites[0]
    assert record.weight == 0 and np.isnan(record.cost) and record.mass is None
    assert record.destination is None


def test_the_result_describes_itself(family):
    problem, result = solved(family)[0]
    sent = messages(problem.models, problem.weight)
    assert result.method == "reduction" and result.left_out == {}
    assert result.converged and result.status.code == "reduced"
    facts = {"iterations": len(result.trace) - 1, "cost": result.trace[-1]}
    assert facts.items() <= result.status.facts.items()
    assert set(result.timings) >= {"checks", "starts", "mm", "gate", "method", "records", "total"}
    assert all(seconds >= 0 for seconds in result.timings.values())
    parts = [result.timings[name] for name in ("checks", "screening", "method", "records")]
    assert_allclose(sum(parts), result.timings["total"], rtol=1e-9)
    said = result.communication
    assert said.message_bytes == sum(len(message.to_json().encode()) for message in sent)
    assert said.bytes == said.message_bytes  # the support was the server's own
    grams = sum(1 + len(triangle) for m in sent for triangle in m.document()["grams"]["triangles"])
    assert said.floats == grams + sum(model.n_parameters + 2 for model in problem.models)
    assert said.support_rows == result.n_support == len(problem.X)
    assert [m.site for m in result.messages] == [m.site for m in sent]


def test_the_default_number_of_experts_is_the_largest(family):
    problem, _ = solved(family)[2]
    largest = max(model.n_experts for model in problem.models)
    assert problem.aggregate(n_experts=None).model.n_experts == largest


def test_names_and_classes_stay(rng):
    model = random_model(rng, 2, 2, family="multinomial")
    model = replace(model, feature_names=("age", "dose"), classes=np.array(["a", "b", "c"]))
    sent = messages([model, replace(model, gate=model.gate.take([1, 0]))])
    for method in ("reduction", "greedy", "middle", "aligned_average", "ensemble"):
        found = reduced(sent, rng.normal(size=(60, 2)), method=method).model
        assert found.feature_names == ("age", "dose")
        assert_array_equal(found.classes, ["a", "b", "c"])


# -- empty experts -----------------------------------------------------------------------------


def test_an_expert_far_away_is_put_where_it_helps(family):
    for seed in range(5):
        problem = around_a_truth(family, seed)
        known = prepare(messages(problem.models, problem.weight), problem.X).sources
        start = known.experts.take([0, 0])
        start.coef[(1, 0, 0) if start.coef.ndim == 3 else (1, 0)] = 40.0
        alone = descend(known, start.take([0]))
        run = descend(known, start)
        assert run.converged and np.diff(run.trace).max() <= 1e-12
        assert run.mass.min() > 0.01
        assert run.trace[-1] < 0.9 * alone.trace[-1]


def test_where_no_step_leads_down_the_run_has_not_converged(monkeypatch):
    problem = around_a_truth("gaussian", 0)
    known = prepare(messages(problem.models, problem.weight), problem.X).sources
    start = known.experts.take([0, 1])
    far = replace(start, coef=start.coef + 1e9)
    monkeypatch.setattr(type(start), "step", lambda self, statistics, floor: far)
    run = descend(known, start)
    assert not run.converged and len(run.trace) == 1


@pytest.mark.parametrize("length", [6.0, 1e20, 1e200, 1e300])
def test_a_step_into_nowhere_is_shortened(length):
    here = LogisticExperts(np.zeros((2, 2)))
    there = LogisticExperts(np.array([[0.0, -length], [0.0, 1.0]]))
    assert_allclose(_no_leap(here, there).coef, [[0.0, -5.0], [0.0, 1.0]], rtol=1e-12)


def test_more_experts_than_all_sites_have_are_left_without_mass(family):
    rng = np.random.default_rng(3)
    model, X = random_model(rng, 2, 2, family=family), rng.normal(size=(60, 2))
    y = model.sample(X, rng)[0].astype(float)
    result = reduced(messages([model, model], [1, 2]), X, n_experts=4)
    assert result.model.n_experts == 4 and result.cost < 1e-13
    assert Warn.EXPERTS_EMPTY(empty=2, experts=4) in result.warnings
    assert result.model.gate_prob(X)[:, 2:].max() < 1e-15
    assert_allclose(result.model.log_density(X, y), log_density(model, X, y), rtol=1e-8)
    assert_array_equal(result.sites[0].mass.sum(axis=0)[2:], 0)
