"""Rows of a group share their expert: estimators, shards, messages, merging, refine rounds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import (
    DistributedMoERegressor,
    LocalModel,
    MoEClassifier,
    MoERegressor,
    aggregate,
    select_from_messages,
    select_n_experts,
    select_over_shards,
    shards_from,
)
from otmoe.data.shards import grouped_by, split
from otmoe.documents.compatible import check_compatible
from otmoe.federation.policy.rules import Policy
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.rounds import Refinement, advance
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge
from otmoe.selection.in_memory import Given, folds_of


def people(seed=0, n_groups=200, size=5):
    """Return rows of people in no order; the probability of an expert depends on their age."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(n_groups), size)
    age = rng.normal(size=n_groups)
    kind = rng.random(n_groups) < 1 / (1 + np.exp(-0.3 - 0.8 * age))
    x = rng.normal(size=len(g))
    y = np.where(kind[g], 1 + 0.8 * x, 0.3 - 0.5 * x) + rng.normal(size=len(g))
    order = rng.permutation(len(g))
    X = pd.DataFrame({"x": x, "age": age[g]}).iloc[order].reset_index(drop=True)
    return X, y[order], np.array([f"p{i}" for i in g[order]])


HOW = {"expert_per": "group", "gate_features": ["age"], "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    return people()


@pytest.fixture(scope="module")
def est(rows):
    X, y, g = rows
    return MoERegressor(2, **HOW).fit(X, y, groups=g)


def test_densities_and_criteria_are_of_groups(rows, est):
    X, y, g = rows
    each = est.log_density(X, y, groups=g)
    assert each.shape == (200,)
    assert_allclose(each.sum(), est.log_likelihood_, rtol=1e-10)
    first = np.flatnonzero(g == g[0])
    assert_allclose(each[0], est.log_density(X.iloc[first], y[first], groups=g[first])[0])
    assert_allclose(est.aic(X, y, groups=g), -2 * est.log_likelihood_ + 20)
    assert_allclose(est.bic(X, y, groups=g), -2 * est.log_likelihood_ + 10 * np.log(1000))
    # A row looked at alone is the first of a new group.
    alone = est.log_density(X, y, groups=np.arange(1000))
    assert_allclose(est.log_density(X, y), alone, rtol=1e-9)


def test_rows_of_a_group_have_its_posterior(rows, est):
    X, y, g = rows
    found = est.predict_expert_proba(X, y, groups=g)
    model, design = est.model_, np.column_stack([np.ones(len(y)), X])
    log_phi, log_pi = model.experts.log_prob(design, y), model.gate.log_prob(design)
    for label in ("p0", "p17", "p199"):
        here = g == label
        joint = log_pi[here][0] + log_phi[here].sum(axis=0)
        expected = np.exp(joint - np.logaddexp.reduce(joint))
        assert_allclose(found[here], np.tile(expected, (here.sum(), 1)), rtol=1e-8)
    assert_array_equal(est.predict_expert(X, y, groups=g), np.argmax(found, axis=1))
    assert_allclose(est.predict_expert_proba(X), model.gate.prob(design))


def test_standard_errors_come_from_the_information_of_groups(rows, est):
    X, y, g = rows
    known, again = est.inference(), est.inference(X, y, groups=g)
    assert (again.kind, again.n_groups) == ("information", None)
    assert_allclose(again.covariance.matrix, known.covariance.matrix, rtol=1e-3, atol=1e-7)
    assert_allclose(again.log_likelihood, est.log_likelihood_, rtol=1e-10)
    for kind in ("sandwich", "clustered"):
        robust = est.inference(X, y, groups=g, kind=kind)
        assert (robust.kind, robust.n_groups) == ("clustered", 200)
        ratio = robust.standard_errors.coef / known.standard_errors.coef
        assert np.all((ratio > 0.7) & (ratio < 1.4))


def test_the_choice_of_k_is_by_the_likelihood_of_groups(rows):
    X, y, g = rows
    found = select_n_experts(X, y, (1, 2), estimator=MoERegressor(**HOW), groups=g)
    assert found.n_experts == 2
    one = MoERegressor(1, **HOW).fit(X, y, groups=g)
    assert_allclose(found.records()[0]["bic"], one.bic(X, y, groups=g))


def test_folds_have_whole_groups_and_add_up_to_all_rows(rows):
    X, y, g = rows
    given = Given(X, y, groups=g)
    folds = folds_of(given, 4)
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(len(y)))
    assert {len(np.unique(g[fold])) for fold in folds} == {50}
    for fold in folds:
        assert not set(g[fold]) & set(np.delete(g, fold))
    assert [len(fold) for fold in folds_of(Given(X, y), 3)] == [334, 333, 333]
    for wrong in (1, 201):
        with refused("folds_range", most=200):
            folds_of(given, wrong)


def test_cross_validation_is_that_of_a_loop_over_the_folds(rows):
    X, y, g = rows
    how = {"estimator": MoERegressor(**HOW), "groups": g, "criterion": "cv"}
    found = select_n_experts(X, y, (1, 2, 3), folds=4, **how)
    assert found.n_experts == 2
    held = 0.0
    for fold in folds_of(Given(X, y, groups=g), 4):
        rest = np.delete(np.arange(len(y)), fold)
        fit = MoERegressor(1, **HOW).fit(X.iloc[rest], y[rest], groups=g[rest])
        held += fit.log_density(X.iloc[fold], y[fold], groups=g[fold]).sum()
    assert_allclose(found.candidates[0].cv, -2 * held, rtol=1e-9)
    assert all(c.cv > -2 * c.log_likelihood for c in found.candidates)
    with refused("not_cross_validated"):
        replace(found, candidates=[replace(found.candidates[0], held_out=None)]).best("cv")


def test_cross_validation_knows_classes_that_a_fold_lacks():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 1)), np.repeat(["a", "b", "c"], [29, 29, 2])
    found = select_n_experts(
        X, y, [1], estimator=MoEClassifier(random_state=0), criterion="cv", folds=2
    )
    assert np.isfinite(found.candidates[0].cv)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # three are too many
def test_shards_and_messages_of_groups_choose_k(rows, est):
    X, y, g = rows
    shards = shards_from(X.assign(person=g, y=y), target="y", groups="person", cut=2)
    distributed = DistributedMoERegressor(refine="auto", **HOW)
    found = select_over_shards(shards, (1, 2, 3), estimator=distributed, groups="person")
    assert found.n_experts == 2
    assert_allclose(found.candidates[1].log_likelihood, est.log_likelihood_, atol=1e-3)
    with refused("sharing_needs_groups"):
        select_over_shards(shards, (1, 2), estimator=distributed)
    with refused("groups_not_shared"):
        select_over_shards(shards, (1, 2), groups="person")
    with refused("not_cross_validated"):
        select_over_shards(shards, (1, 2), criterion="cv")
    first = np.isin(g, [f"p{i}" for i in range(100)])
    messages = [
        MoERegressor(3, **HOW)
        .fit(X[here], y[here], groups=g[here])
        .to_message(name, policy=Policy.off())
        for name, here in (("lyon", first), ("nantes", ~first))
    ]
    with refused("expected_bic_of_groups"):
        select_from_messages(messages, X, (1, 2, 3))
    merged = select_from_messages(messages, X, (1, 2, 3), criterion="elbow")
    assert merged.n_experts == 2
    assert merged.candidates[0].expectation is None


def test_a_formula_takes_the_column_of_groups(rows, est):
    X, y, g = rows
    data = X.assign(person=g, y=y)
    how = {"expert_per": "group", "random_state": 0, "groups": "person"}
    found = MoERegressor.from_formula("y ~ x + age | age", data, 2, **how)
    assert_allclose(found.log_likelihood_, est.log_likelihood_, rtol=1e-9)
    data.loc[[3, 40], "x"] = np.nan
    dropped = MoERegressor.from_formula("y ~ x + age | age", data, 2, missing="drop", **how)
    kept = data["x"].notna()
    again = MoERegressor(2, **HOW).fit(X[kept], y[kept], groups=g[kept])
    assert_allclose(dropped.log_likelihood_, again.log_likelihood_, rtol=1e-9)


def test_classes_are_shared_too():
    X, y, g = people(n_groups=80)
    est = MoEClassifier(2, **HOW).fit(X, y > 0, groups=g)
    assert_allclose(est.log_density(X, y > 0, groups=g).sum(), est.log_likelihood_, rtol=1e-9)


# -- messages, merging, rounds -------------------------------------------------------------------


def test_a_message_says_what_has_an_expert(rows, est, tmp_path):
    X, y, g = rows
    message = est.to_message("Lyon", policy=Policy.off())
    message.save(tmp_path / "lyon.moe.json")
    assert LocalModel.load(tmp_path / "lyon.moe.json").model.expert_per == "group"
    assert '"expert_per": "group"' in (tmp_path / "lyon.moe.json").read_text()
    plain = MoERegressor(2, gate_features=["age"], random_state=0).fit(X, y)
    assert "expert_per" not in plain.to_message("Nantes", policy=Policy.off()).document()["model"]
    with refused("sharing_differs", own="row", wanted="group"):
        check_compatible(plain.model_, None, "one", est.model_, None, "other")


def test_sites_reach_the_pooled_fit(rows, est):
    X, y, g = rows
    sites = [np.isin(g, [f"p{i}" for i in range(m, 200, 3)]) for m in range(3)]
    parts = [(X[here], y[here], g[here]) for here in sites]
    fits = [MoERegressor(2, **HOW).fit(x, t, groups=p) for x, t, p in parts]
    messages = [
        fit.to_message(f"site {m}", x, t, groups=p, grams=True, policy=Policy.off())
        for m, (fit, (x, t, p)) in enumerate(zip(fits, parts, strict=True))
    ]
    found = aggregate(messages, support=X, random_state=0)
    assert found.method == "gram" and found.model.expert_per == "group"
    assert aggregate(messages, support=X, method="reduction").model.expert_per == "group"
    with refused("kl_of_groups"):
        aggregate(messages, support=X, method="kl")
    scaling = Scaling.of(X.to_numpy())
    state = Refinement(found.model, scaling, Ridge.of(found.model.experts))
    while not state.is_done("auto"):
        asked = state.model, scaling
        answers = [
            site_information(str(m), *asked, Rows(x.to_numpy(), t), groups=p)
            for m, (x, t, p) in enumerate(parts)
        ]
        state = advance(state, answers)
    errors = est.inference().covariance.standard_errors(np.eye(10))
    model = state.model.aligned_to(est.model_, X.to_numpy())
    distance = np.abs(model.to_vector() - est.model_.to_vector()) / errors
    assert np.all(distance < 1e-3)


@pytest.mark.parametrize("how", [{"refine": "auto"}, {"method": "em"}])
def test_shards_of_whole_groups_reach_the_pooled_fit(rows, est, how):
    X, y, g = rows
    found = DistributedMoERegressor(2, n_shards=4, **how, **HOW).fit(X, y, groups=g)
    assert found.n_shards_ == 4 and found.model_.expert_per == "group"
    assert_allclose(found.model_.to_vector(), est.model_.to_vector(), atol=1e-4)


def test_files_reach_the_pooled_fit(rows, est, tmp_path):
    X, y, g = rows
    table = X.assign(person=g, y=y)
    for m in range(3):
        here = table["person"].isin([f"p{i}" for i in range(m, 200, 3)])
        table[here].to_csv(tmp_path / f"{m}.csv", index=False)
    shards = shards_from(tmp_path, target="y", groups="person")
    found = DistributedMoERegressor(2, refine="auto", **HOW).fit_shards(shards, groups="person")
    assert_allclose(found.model_.to_vector(), est.model_.to_vector(), atol=1e-4)
    errors = found.inference_shards(shards, groups="person").standard_errors.coef
    assert_allclose(errors, est.inference().standard_errors.coef, rtol=1e-3)
    robust = found.inference_shards(shards, groups="person", kind="sandwich")
    assert robust.n_groups == 200
    expected = est.inference(X, y, groups=g, kind="sandwich").standard_errors.coef
    assert_allclose(robust.standard_errors.coef, expected, rtol=1e-3)
    with refused("sharing_needs_groups"):
        found.fit_shards(shards)


def test_a_group_in_two_shards_is_refused(rows, tmp_path):
    X, y, g = rows
    table = X.assign(person=g, y=y)
    table.iloc[:500].to_csv(tmp_path / "a.csv", index=False)
    table.iloc[500:].to_csv(tmp_path / "b.csv", index=False)
    shards = shards_from(tmp_path, target="y", groups="person")
    with refused("group_in_two_shards", first="a.csv", second="b.csv"):
        DistributedMoERegressor(2, **HOW).fit_shards(shards, groups="person")
    site = np.where(np.arange(len(y)) < 500, "north", "south")
    with refused("group_in_two_shards", first="north", second="south"):
        DistributedMoERegressor(2, **HOW).fit(X, y, site=site, groups=g)


def test_tables_are_cut_between_groups(rows):
    X, y, g = rows
    shards = shards_from(X.assign(person=g, y=y), target="y", groups="person", cut=7)
    labels = [set(shard.beside["person"]) for shard in shards]
    assert len(shards) == 7 and sum(shard.n_rows for shard in shards) == len(y)
    assert sum(map(len, labels)) == len(set.union(*labels)) == 200


def test_files_are_cut_between_groups(rows, tmp_path):
    X, y, g = rows
    table = X.assign(person=g, y=y).sort_values("person")
    for i in range(2):
        table.iloc[500 * i : 500 * (i + 1)].to_csv(tmp_path / f"{i}.csv", index=False)
    shards = shards_from(tmp_path, target="y", groups="person", cut=7)
    labels = [set(grouped_by(shard, "person").read().groups) for shard in shards]
    assert len(shards) == 7 and sum(map(len, labels)) == len(set.union(*labels)) == 200
    assert sum(shard.n_rows for shard in shards) == len(y)


def test_random_shards_hold_whole_groups(rng):
    codes = np.repeat(np.arange(50), rng.integers(1, 30, 50))
    shuffled = rng.permutation(codes)
    parts = split(len(codes), 6, 2, rng, shuffled)
    held = [set(shuffled[part]) for part in parts]
    assert len(parts) == 6 and sum(map(len, held)) == 50 and sum(map(len, parts)) == len(codes)


# -- what is refused -----------------------------------------------------------------------------


def test_groups_and_what_they_are_for_are_asked_for_together(rows, est):
    X, y, g = rows
    with refused("sharing_needs_groups"):
        MoERegressor(2, **HOW).fit(X, y)
    with refused("groups_not_shared"):
        MoERegressor(2, random_state=0).fit(X, y, groups=g)
    with refused("not_one_of", name="expert_per"):
        MoERegressor(2, expert_per="person").fit(X, y, groups=g)
    with refused("sharing_needs_groups"):
        est.bic(X, y)
    with refused("sharing_needs_groups"):
        est.inference(X, y)
    with refused("gate_varies", name="x"):
        MoERegressor(2, expert_per="group").fit(X, y, groups=g)


def test_models_of_single_sites_are_refused(rows):
    X, y, g = rows
    with refused("personal_shared"):
        DistributedMoERegressor(2, personal="auto", **HOW).fit(X, y, groups=g)
