"""Estimators that say what experts see and share; and the same by a formula and over shards."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from refusals import refused

from otmoe import DistributedMoERegressor, MoEClassifier, MoERegressor
from otmoe.likelihood.fit import em
from otmoe.model.structure import Structure


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 900
    a, b, c = rng.normal(size=(3, n))
    first = rng.random(n) < 1 / (1 + np.exp(-2 * c))
    y = np.where(first, 3 + 2 * a, -3) + 0.5 * b + rng.normal(size=n)
    group = rng.choice(["u", "v", "w"], n)
    return pd.DataFrame({"a": a, "b": b, "c": c, "group": group, "y": y})


def test_names_become_columns(rows):
    X, y = rows[["a", "b", "c"]], rows["y"]
    est = MoERegressor(
        2, expert_features=["a", 1], gate_features=["c"], common=["b"], random_state=0
    ).fit(X, y)
    structure = Structure(columns=((0, 1, 2),), common=(2,))
    assert est.model_.structure == structure and est.model_.gate.columns == (0, 3)
    by_hand = em(
        X.to_numpy(), y.to_numpy(), 2, structure=structure, gate_columns=(0, 3), random_state=0
    )
    assert_allclose(est.log_likelihood_, by_hand.log_likelihood)
    assert est.bic(X, y) == pytest.approx(-2 * est.log_likelihood_ + np.log(900) * 9)
    formula = MoERegressor.from_formula("y ~ a + b | c", rows, 2, common=["b"], random_state=0)
    assert_allclose(formula.log_likelihood_, est.log_likelihood_)


def test_a_category_and_a_spline_are_one_name_each(rows):
    est = MoERegressor.from_formula(
        "y ~ spline(a, 3) + b + group | c", rows, 2, common=["group", "spline(a)"], random_state=0
    )
    names = ("intercept", *est.features_.feature_names)
    shared = {names[j] for j in est.model_.structure.common}
    assert shared == {"group=v", "group=w", "spline(a).1", "spline(a).2"}
    for name in shared:
        assert np.ptp(est.model_.coefficients["experts"][name]) == 0
    assert np.all(est.model_.coefficients["experts"]["c"] == 0)
    assert est.predict(rows).shape == (900,)


def test_named_experts_stay_in_their_order(rows):
    X, y = rows[["a", "b", "c"]], rows["y"]
    own = {"flat": ["b"], "rising": ["a", "b"]}
    est = MoERegressor(2, expert_features=own, gate_features=["c"], random_state=0).fit(X, y)
    assert est.model_.structure.names == ("flat", "rising")
    coef = est.model_.experts.coef
    assert coef[0, 1] == 0 and abs(coef[1, 1] - 2) < 0.2 and np.all(coef[:, 3] == 0)
    listed = MoERegressor(
        2, expert_features=[["a", "b"], ["b"]], gate_features=["c"], random_state=0
    ).fit(X, y)
    assert_allclose(listed.model_.experts.coef[::-1], coef, atol=1e-5)
    assert listed.model_.structure.names is None
    constant = MoERegressor(2, expert_features=["intercept", "a"], random_state=0)
    assert constant.fit(X, y).model_.structure.columns == ((0, 1),)  # a list of features for all


def test_an_intercept_may_be_fixed_at_zero(rows):
    X, y = rows[["a", "b", "c"]], rows["y"]
    how = {"gate_features": ["c"], "common": ["b"], "random_state": 0}
    features = {"rising": ["a", "b"], "flat": ["-intercept", "b"]}
    est = MoERegressor(2, expert_features=features, **how).fit(X, y + 3)  # where it is 0
    assert est.model_.structure.columns == ((0, 1, 2), (2,))
    assert est.model_.experts.coef[1, 0] == 0 and est.fit_.rank == 2 + 4 - 1 + 2
    free = MoERegressor(2, expert_features=[["a", "b"], ["b"]], **how).fit(X, y + 3)
    assert 0 < free.log_likelihood_ - est.log_likelihood_ < 5 and free.fit_.rank == 8
    assert "intercept" not in str(est.summary()).partition("Expert 1")[2]
    text = str(est.inference().matrix()).partition("Experts")[2].splitlines()[1]
    assert len(text.split()) == 3  # a name, an estimate and its error: a blank for the other
    every = MoERegressor(2, expert_features=["-intercept", "a", "c"], random_state=0).fit(X, y)
    assert np.all(every.model_.experts.coef[:, [0, 2]] == 0)
    wrong = MoERegressor(2, gate_features=["-intercept", "c"])
    refused("gate_feature_name", name="-intercept", argument="gate_features").by(wrong.fit, X, y)
    wrong = MoERegressor(2, expert_features=["-intercept"])
    refused("expert_without_columns", argument="expert_features").by(wrong.fit, X, y)
    wrong = MoERegressor(2, expert_features=["-intercept", "a"], common=["intercept"])
    refused("common_unseen", name="intercept").by(wrong.fit, X, y)
    named = X.rename(columns={"a": "-intercept"})  # a column of that very name comes first
    odd = MoERegressor(2, expert_features=["-intercept"], random_state=0).fit(named, y)
    assert odd.model_.structure.columns == ((0, 1),)
    labels = MoEClassifier(1, expert_features=["-intercept", "a", "b"], random_state=0)
    assert labels.fit(X, y > 0).model_.experts.coef[0, 0] == 0


@pytest.mark.parametrize("flat", [["b"], ["-intercept", "b"]])
def test_shards_end_at_the_pooled_fit(rows, flat):
    X, y = rows[["a", "b", "c"]], rows["y"] + 3
    how = {
        "expert_features": {"flat": flat, "rising": ["a", "b"]},
        "gate_features": ["c"],
        "common": ["b"],
        "common_variance": True,
        "random_state": 0,
    }
    pooled = MoERegressor(2, **how).fit(X, y)
    se = pooled.inference().standard_errors.coef
    for more in ({"refine": "auto"}, {"method": "em"}):
        est = DistributedMoERegressor(2, n_shards=3, **more, **how).fit(X, y)
        gap = np.abs(est.model_.experts.coef - pooled.model_.experts.coef)
        assert np.max(gap / np.where(se > 0, se, 1)) < 1e-3
        assert est.model_.structure == pooled.model_.structure
        found = est.inference().standard_errors.coef
        assert_allclose(found, se, rtol=1e-3)


def test_a_warm_start_keeps_or_changes_the_structure(rows):
    X, y = rows[["a", "b", "c"]], rows["y"]
    est = MoERegressor(2, warm_start=True, gate_features=["c"], random_state=0).fit(X, y)
    before = est.log_likelihood_
    est.set_params(common=["b"]).fit(X, y)
    assert np.ptp(est.model_.experts.coef[:, 2]) == 0 and est.log_likelihood_ < before
    est.set_params(common=None).fit(X, y)
    assert_allclose(est.log_likelihood_, before, rtol=1e-9)


def test_classes_share_coefficients(rows):
    X, y = rows[["a", "b", "c"]], rows["y"] > 0
    est = MoEClassifier(2, common=["b"], expert_features=["a", "b"], random_state=0).fit(X, y)
    coef = est.model_.experts.coef
    assert coef[0, 2] == coef[1, 2] and np.all(coef[:, 3] == 0)


def test_models_of_single_sites_are_refused(rows):
    est = DistributedMoERegressor(2, n_shards=3, personal="auto", common=[1], random_state=0)
    refused("personal_structure").by(est.fit, rows[["a", "b", "c"]], rows["y"])
