"""What aggregate is given: awkward support points, and mistakes, each named."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from oracles import message, messages, nearby, random_model, relaxed_cost
from refusals import codes, refused

from otmoe import aggregate
from otmoe.aggregation import METHODS
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.text.notices import OtmoeWarning
from otmoe.text.sentences import Warn

# The result holds the warnings; test_problem.py checks that they are also given.
pytestmark = pytest.mark.filterwarnings("ignore:aggregate:UserWarning")

ALL = sorted(METHODS)
MERGING = [name for name in METHODS if name != "ensemble"]


def sites(rng, family="gaussian", d=2, n_sites=3, noise=0.1, **changes):
    truth = replace(random_model(rng, 2, d, family=family), **changes)
    return [nearby(rng, truth, noise) for _ in range(n_sites)]


# -- awkward support ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", MERGING)
def test_a_collinear_support_gives_the_same_predictions(rng, family, method):
    models = sites(rng, family, d=3)
    X = rng.normal(size=(80, 3))
    X[:, 2] = X[:, 0] - 2 * X[:, 1]
    result = aggregate(messages(models), X, method=method)
    assert np.all(np.isfinite(result.model.to_vector()))
    assert_allclose(result.cost, relaxed_cost(models, np.ones(3), result.model.experts, X))
    if method in ("reduction", "greedy"):
        # The same problem in two features, which is all that the support shows.
        T = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, -2]])
        plain = aggregate(messages([m.rescaled(T) for m in models]), X[:, :2], method=method)
        assert_allclose(result.cost, plain.cost, rtol=1e-6)
        assert_allclose(result.model.predict(X), plain.model.predict(X[:, :2]), atol=1e-6)


@pytest.mark.parametrize("method", MERGING)
def test_one_site_returns_its_predictions_on_a_collinear_support(rng, family, method):
    model, X = random_model(rng, 2, 3, family=family), rng.normal(size=(80, 3))
    X[:, 2] = X[:, 0] - 2 * X[:, 1]
    found = aggregate(messages([model]), X, method=method).model
    assert_allclose(found.predict(X), model.predict(X), rtol=1e-8)
    assert_allclose(found.gate_prob(X).max(axis=1), model.gate_prob(X).max(axis=1), rtol=1e-8)


@pytest.mark.parametrize("method", ["reduction", "greedy", "weighted_average", "aligned_average"])
def test_coefficients_of_a_column_that_the_support_does_not_vary_are_averaged(rng, family, method):
    # Otherwise they are those of whichever start happens to win.
    models, weight = sites(rng, family), np.array([1.0, 2.0, 3.0])
    X = np.column_stack([rng.normal(size=60), np.full(60, 0.5)])
    found = aggregate(messages(models, weight), X, method=method).model
    mean = np.average([m.experts.coef for m in models], axis=0, weights=weight)
    found = found.aligned_to(models[0], X)
    if method in ("reduction", "greedy"):  # each site's expert counts by its mass
        prob = np.array([m.gate_prob(X).mean(axis=0) for m in models])
        mass = weight[:, None] * prob
        coef = np.array([m.experts.coef for m in models])
        mean = np.array([np.average(coef[:, k], axis=0, weights=mass[:, k]) for k in range(2)])
    assert_allclose(found.experts.coef[..., 2], mean[..., 2], atol=1e-9)


@pytest.mark.parametrize("method", MERGING)
@pytest.mark.parametrize("n_points", [5, 6, 7])
def test_hardly_more_points_than_columns_are_enough_for_an_answer(rng, family, method, n_points):
    models = sites(rng, family, d=5)
    result = aggregate(messages(models), rng.normal(size=(n_points, 5)), method=method)
    assert np.all(np.isfinite(result.model.to_vector()))
    assert result.warnings[0] == Warn.SUPPORT_SHORT(points=n_points, columns=6, least=60)


def test_the_warnings_of_the_result_are_given_as_one(rng):
    with pytest.warns(OtmoeWarning) as given:
        result = aggregate(messages(sites(rng)), rng.normal(size=(9, 2)), n_experts=50)
    assert codes(result.warnings) == ["support_short", "experts_empty"]
    assert result.warnings[0].facts["points"] == 9
    assert [w.message.notices for w in given] == [result.warnings]
    assert str(given[0].message) == " ".join(f"aggregate: {told}" for told in result.warnings)
    assert given[0].filename == __file__


def test_enough_points_give_no_warning(rng):
    models = sites(rng)
    assert aggregate(messages(models), rng.normal(size=(30, 2))).warnings == ()
    (short,) = aggregate(messages(models), rng.normal(size=(29, 2))).warnings
    assert short.code == "support_short" and short.facts["least"] == 30


def test_a_support_of_equal_points_gives_an_answer(rng, family):
    models = sites(rng, family)
    X = np.ones((40, 2))
    for method in MERGING:
        result = aggregate(messages(models), X, method=method)
        assert np.all(np.isfinite(result.model.to_vector()))
        assert np.all(np.isfinite(result.model.predict(X)))


def test_no_feature_at_all(rng, family):
    models = [random_model(rng, 2, 0, family=family) for _ in range(3)]
    result = aggregate(messages(models), np.empty((30, 0)))
    assert np.all(np.isfinite(result.model.to_vector()))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool, object])
def test_support_of_any_number_type(rng, dtype):
    models = sites(rng)
    X = rng.integers(0, 2, (60, 2)).astype(dtype)
    found = aggregate(messages(models), X).model
    expected = aggregate(messages(models), X.astype(float)).model
    assert_allclose(found.to_vector(), expected.to_vector(), rtol=1e-12)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_frame_is_read_by_the_names_of_its_columns(rng, frame):
    models = sites(rng, feature_names=("age", "dose"))
    X = rng.normal(size=(60, 2)) * [1, 3]
    given = frame({"dose": X[:, 1], "other": np.ones(60), "age": X[:, 0]})
    found, expected = aggregate(messages(models), given), aggregate(messages(models), X)
    assert_allclose(found.model.to_vector(), expected.model.to_vector(), rtol=1e-12)
    with refused("support_columns", missing="['age']", features="['age', 'dose']"):
        aggregate(messages(models), given[["dose", "other"]])


def test_lists_and_generators_are_taken(rng):
    models, X = sites(rng), rng.normal(size=(40, 2))
    a = aggregate((m for m in messages(models)), X.tolist())
    assert_allclose(a.model.to_vector(), aggregate(messages(models), X).model.to_vector())


def test_a_gate_on_some_columns_stays_there(rng, family):
    models = [random_model(rng, 2, 3, columns=(0, 2), family=family) for _ in range(3)]
    X = rng.normal(size=(60, 3))
    for method in MERGING:
        gate = aggregate(messages(models), X, method=method).model.gate
        assert gate.columns == (0, 2)
        assert np.all(gate.coef[:, [1, 3]] == 0)
    one = aggregate(messages(models[:1]), X).model.aligned_to(models[0], X)
    assert_allclose(one.gate.coef, models[0].gate.coef, atol=1e-8)
    assert message(one).to_json()  # the zeros of the gate are exact


# -- mistakes ----------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
A, B = (random_model(RNG, 2, 2) for _ in range(2))
X0 = RNG.normal(size=(40, 2))
COUNTS, LABELS = (random_model(RNG, 2, 2, family=f) for f in ("poisson", "multinomial"))


def named(model, *names):
    return replace(model, feature_names=names)


def labelled(*classes):
    return replace(LABELS, classes=np.array(classes))


NAMED, BACK, HEIGHT = named(A, "age", "dose"), named(B, "dose", "age"), named(B, "age", "height")
ABC, ACB = labelled("a", "b", "c"), labelled("a", "c", "b")
FEWER = replace(LABELS, experts=replace(LABELS.experts, coef=LABELS.experts.coef[:, 1:]))


@pytest.mark.parametrize(
    ("models", "code", "facts"),
    [
        ([A, COUNTS], "family_differs", {"family": "poisson", "wanted": "gaussian"}),
        ([A, random_model(RNG, 2, 3)], "n_features_differ", {"features": 3, "wanted": 2}),
        ([NAMED, BACK], "names_order", {"place": 0, "name": "'dose'", "wanted": "'age'"}),
        ([NAMED, HEIGHT], "names_differ", {"extra": "['height']", "missing": "['dose']"}),
        ([NAMED, B], "names_missing", {}),
        ([B, NAMED], "names_missing", {"who": "site 'site 0'", "other": "site 'site 1'"}),
        ([ABC, ACB], "classes_differ", {"classes": "['a', 'c', 'b']", "wanted": "['a', 'b', 'c']"}),
        ([ABC, LABELS], "classes_differ", {"classes": "[0, 1, 2]", "wanted": "['a', 'b', 'c']"}),
        ([LABELS, FEWER], "classes_differ", {"classes": "[0, 1]", "wanted": "[0, 1, 2]"}),
    ],
)
def test_models_that_do_not_match_are_named(models, code, facts):
    who = {"who": "site 'site 1'", "other": "site 'site 0'"}
    refused(code, **who | facts).by(aggregate, messages(models), X0)


@pytest.mark.parametrize("wrong", [A, 7, None, {"site": "a"}])
def test_what_is_no_message_or_no_list_of_them_is_named(wrong):
    with refused("not_a_message", TypeError, number=1, kind=type(wrong).__name__):
        aggregate([message(A), wrong], X0)
    refused("one_message", TypeError).by(aggregate, message(A), X0)


THREE = {"site 0": 1, "site 1": 1, "Lyon": 2}
LYON_TWICE = [message(A, "Lyon"), message(B, "Paris"), message(B, "Lyon")]


def spoiled(value):
    X = X0.copy()
    X[7, 1] = value
    return X


@pytest.mark.parametrize(
    ("kwargs", "code", "facts"),
    [
        ({"site_weight": [1.0, -2.0]}, "weight_negative", {"site": "site 1", "value": -2.0}),
        ({"site_weight": [1.0, np.nan]}, "weight_negative", {"site": "site 1"}),
        ({"site_weight": [np.inf, 1.0]}, "weight_negative", {"site": "site 0", "value": np.inf}),
        ({"site_weight": [0.0, 0.0]}, "weights_zero", {}),
        ({"site_weight": [1.0]}, "weight_shape", {"shape": (1,), "sites": 2}),
        ({"site_weight": 1.0}, "weight_shape", {"shape": (), "sites": 2}),
        ({"site_weight": THREE}, "weight_unknown_sites", {"names": ["Lyon"]}),
        ({"site_weight": {"site 0": 1}}, "weight_lacks_sites", {"names": ["site 1"]}),
        ({"site_weight": ["a", "b"]}, "weight_not_numbers", {}),
        ({"support": None}, "support_missing", {}),
        ({"support": X0[:, :1]}, "support_shape", {"shape": (40, 1), "features": 2}),
        ({"support": X0[:, [0, 1, 0]]}, "support_shape", {"shape": (40, 3), "features": 2}),
        ({"support": X0[:, 0]}, "support_shape", {"shape": (40,), "features": 2}),
        ({"support": spoiled(np.nan)}, "support_not_finite", {"row": 7}),
        ({"support": spoiled(-np.inf)}, "support_not_finite", {"row": 7}),
        ({"support": X0[:1]}, "support_short", {"rows": 1, "columns": 2}),
        ({"support": X0[:0]}, "support_short", {"rows": 0, "columns": 2}),
        ({"support": [["low", "high"]] * 9}, "support_not_numbers", {}),
        ({"method": "mean"}, "not_one_of", {"name": "method", "value": "mean", "choices": ALL}),
        ({"n_experts": 0}, "not_whole", {"name": "n_experts", "value": 0}),
        ({"n_experts": -1}, "not_whole", {"name": "n_experts", "value": -1}),
        ({"n_experts": 2.0}, "not_whole", {"name": "n_experts", "value": 2.0}),
        ({"n_experts": "2"}, "not_whole", {"name": "n_experts", "value": "2"}),
        ({"messages": []}, "no_messages", {}),
        ({"messages": LYON_TWICE}, "site_twice", {"site": "Lyon"}),
    ],
)
def test_a_mistake_is_named(kwargs, code, facts):
    refused(code, **facts).by(aggregate, **{"messages": messages([A, B]), "support": X0} | kwargs)


def test_a_torch_support_with_nan_is_named():
    torch = pytest.importorskip("torch")
    with refused("support_not_finite", ValueError, row=7):
        aggregate(messages([A, B]), torch.asarray(spoiled(np.nan)))


def test_a_variance_near_zero_is_no_mistake(rng):
    # A site whose expert fits its rows exactly: tiny, but right.
    experts = GaussianExperts(rng.normal(size=(2, 3)), np.array([1e-12, 1.0]))
    model = replace(A, experts=experts)
    result = aggregate(messages([model, B]), X0)
    assert np.all(np.isfinite(result.model.to_vector()))
    assert np.all(result.model.experts.var >= 1e-12 * (1 - 1e-9))


def test_a_gate_that_is_nearly_a_partition_gives_a_finite_gate(rng):
    coef = np.array([[50.0, 900.0, -400.0], [0, 0, 0]])
    models = [replace(m, gate=SoftmaxGate(coef * s)) for m, s in ((A, 1.0), (A, 1.1))]
    for method in MERGING:
        model = aggregate(messages(models), X0, method=method).model
        assert np.all(np.isfinite(model.to_vector()))
        assert_allclose(model.predict(X0), models[0].predict(X0), atol=1e-3)
