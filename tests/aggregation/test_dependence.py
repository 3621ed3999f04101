"""What a column does to the gate, averaged over support points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import random_model
from sklearn.inspection import partial_dependence

from otmoe import FeatureSpec
from otmoe.aggregation.dependence import gate_dependence
from otmoe.data.columns import Column
from otmoe.data.terms import Interaction, Spline
from otmoe.estimators import MoEClassifier


class Gate(MoEClassifier):
    """The gate as a classifier, for scikit-learn's partial dependence."""

    def predict_proba(self, X):
        return self.model_.gate_prob(X)


def test_it_is_the_partial_dependence_of_scikit_learn():
    rng = np.random.default_rng(0)
    model, X = random_model(rng, 3, 4), rng.normal(size=(60, 4))
    gate = Gate()
    gate.model_, gate.classes_, gate.n_features_in_ = model, np.arange(3), 4
    found = gate_dependence(model, X)
    assert [effect.first for effect in found] == [0, 1, 2, 3]
    for effect in found:
        there = partial_dependence(
            gate,
            X,
            [effect.first],
            custom_values={effect.first: effect.values},
            response_method="predict_proba",
            method="brute",
        )
        assert_allclose(effect.prob.T, there["average"], rtol=1e-12)


def test_terms_follow_their_columns_and_categories_take_their_levels():
    spec = FeatureSpec(
        (Column("hour"), Column("wind", "category", levels=("E", "N", "W"))),
        terms=(Spline("hour", (0.0, 6.0, 12.0, 24.0)), Interaction(("hour", "wind"))),
    )
    rng = np.random.default_rng(1)
    rows = {"hour": rng.uniform(0, 24, 50), "wind": rng.choice(["E", "N", "W"], 50)}
    X = spec.encode(rows)
    model = random_model(rng, 2, X.shape[1])
    hour, wind = gate_dependence(model, X, spec)
    for value, prob in zip(hour.values, hour.prob, strict=True):
        moved = spec.encode({**rows, "hour": np.full(50, value)})
        assert_allclose(prob, model.gate_prob(moved).mean(axis=0), rtol=1e-12)
    assert wind.values is None and wind.first == 1
    for level, prob in zip(("E", "N", "W"), wind.prob, strict=True):
        moved = spec.encode({**rows, "wind": np.full(50, level)})
        assert_allclose(prob, model.gate_prob(moved).mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize(("columns", "seen"), [((0, 2), [1]), ((0,), [])])
def test_a_column_that_the_gate_does_not_see_is_left_out(columns, seen):
    rng = np.random.default_rng(2)
    model = random_model(rng, 3, 2, columns=columns)
    assert [e.first for e in gate_dependence(model, rng.normal(size=(30, 2)))] == seen


def test_a_feature_of_zeros_and_ones_takes_these():
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.integers(0, 2, 40), rng.normal(size=40)]).astype(float)
    first, second = gate_dependence(random_model(rng, 2, 2), X)
    assert first.values.tolist() == [0.0, 1.0] and len(second.values) == 21


def test_one_expert_has_no_gate():
    rng = np.random.default_rng(4)
    assert gate_dependence(random_model(rng, 1, 2), rng.normal(size=(5, 2))) == ()
