"""Several responses that share gate and responsibilities, against their parts one by one."""

import json
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from families import FAMILIES as LAWS
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian, never_falls, with_ones
from refusals import put, refused
from scipy import special, stats
from scipy.optimize import minimize
from sklearn.metrics import mean_poisson_deviance, r2_score

from otmoe import (
    DistributedMoERegressor,
    LocalModel,
    MoERegressor,
    aggregate,
    load_model,
    report,
    save_model,
)
from otmoe.evaluation.metrics import evaluate
from otmoe.evaluation.scores import score_rows
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.experts import FAMILIES
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE

GATE = SoftmaxGate(np.array([[0.2, 1.0, 0.0], [0.0, 0.0, 0.0]]))
MIXES = [
    "gaussian+poisson",
    "gaussian+gaussian",
    "negative_binomial+gaussian+gamma",
    "student_t+logistic",
    "poisson+poisson",
]


def experts_of(name, rng, K=2, p=3):
    """Return experts of several responses whose parts are random."""
    return FAMILIES[name].of([LAWS[part].make(rng, K, p) for part in name.split("+")])


def drawn(n, rng):
    """Return rows of two experts: a number in thousands, a count, and successes in five trials."""
    X = rng.normal(size=(n, 2))
    first = rng.random(n) < special.expit(X[:, 0])
    y0 = np.where(first, 10 + 5 * X[:, 1], -10 - 5 * X[:, 1]) + rng.normal(0, 4, n)
    y1 = rng.poisson(np.exp(np.where(first, 1 + 0.5 * X[:, 0], 0.2 - 0.5 * X[:, 1])))
    y2 = rng.binomial(5, np.where(first, 0.7, 0.4))
    return X, np.column_stack([1000 * y0, y1, y2, 5 - y2]).astype(float)


def two(family=("gaussian", "poisson"), n_experts=2, **options):
    return MoERegressor(n_experts, family=list(family), random_state=0, **options)


# -- laws ----------------------------------------------------------------------------------------


@pytest.fixture(params=MIXES)
def experts(request, rng):
    return experts_of(request.param, rng)


@pytest.fixture
def X(rng):
    return with_ones(rng.normal(size=(40, 2)))


@pytest.fixture
def y(experts, X, rng):
    return experts.sample(experts.predictor(X), rng)[:, 0]


def test_densities_are_products(experts, X, y):
    parts = [part.log_prob(X, y[:, r]) for r, part in enumerate(experts.parts)]
    assert_allclose(experts.log_prob(X, y), np.sum(parts, axis=0), rtol=1e-12)


def test_vectors_pickles_and_orders_are_kept(experts, X, y):
    vector = experts.to_vector()
    assert_allclose(experts.with_vector(vector).to_vector(), vector, rtol=1e-14)
    assert len(vector) == experts.coef.size + 2 * experts.n_constant
    again = pickle.loads(pickle.dumps(experts))
    assert type(again) is type(experts)
    assert_array_equal(again.log_prob(X, y), experts.log_prob(X, y))
    both = type(experts).concat([experts, experts]).take([3, 0])
    assert_allclose(both.log_prob(X, y), experts.log_prob(X, y)[:, [1, 0]], rtol=1e-14)
    logs = experts.log_dispersions
    assert logs.shape == (2, experts.n_constant)


def test_derivatives_match_finite_differences(experts, X, rng):
    other = experts_of(experts.family, rng)
    response, eta = other.response(other.predictor(X)), experts.predictor(X)
    Q, E, K = experts.n_linear, experts.n_constant, 2

    def slope(function, d, step=1e-5):
        ends = []
        for move in (step, -step):
            vector, there = experts.to_vector(), eta.copy()
            if d < Q:
                there[..., d] += move
            else:
                vector[experts.coef.size + (d - Q) * K :][:K] += move
            ends.append(function(experts.with_vector(vector), there))
        return (ends[0] - ends[1]) / (2 * step)

    found = experts.derivatives(eta, response)
    assert list(found.curvature) == [(d, e) for d in range(Q + E) for e in range(d, Q + E)]
    for d, score in enumerate(found.score):
        expected = slope(lambda at, eta: at.expected_log_prob(eta, response), d)
        assert_allclose(score, expected, rtol=1e-6, atol=1e-7)
    if "student_t" not in experts.family:  # whose steps use weights in the place of curvatures
        for (d, e), curvature in found.curvature.items():
            expected = -slope(lambda at, eta, d=d: at.derivatives(eta, response).score[d], e)
            curvature = np.broadcast_to(curvature, expected.shape)
            assert_allclose(curvature, expected, rtol=1e-5, atol=1e-6)


def test_divergences_are_sums(experts, X, rng):
    other = experts_of(experts.family, rng)
    pairs = list(zip(experts.parts, other.parts, strict=True))
    expected = np.sum([part.kl_cost(X, theirs) for part, theirs in pairs], axis=0)
    assert_allclose(experts.kl_cost(X, other), expected, rtol=1e-9, atol=1e-10)
    closeness = np.prod([1 - part.hellinger_cost(X, theirs) for part, theirs in pairs], axis=0)
    assert_allclose(experts.hellinger_cost(X, other), 1 - closeness, rtol=1e-6, atol=1e-9)


def test_a_change_of_scale_is_one(rng):
    experts = experts_of("poisson+gaussian+student_t", rng)
    X, y = with_ones(rng.normal(size=(30, 2))), rng.integers(0, 5, (30, 3)).astype(float)
    T = np.array([[1.0, 0, 0], [0.3, 2, 0], [-1, 0, 0.5]])
    center, scale = np.array([0.0, 7.0, -3.0]), np.array([1.0, 100.0, 0.1])
    there = experts.rescaled(T, center, scale).log_prob(X, center + scale * y)
    assert_allclose(there + np.log(scale).sum(), experts.log_prob(X @ T.T, y), rtol=1e-9)


@pytest.mark.parametrize("name", ["poisson+logistic", "gaussian+poisson", "gaussian+gamma+poisson"])
def test_values_and_widths_integrate(name, rng):
    experts = experts_of(name, rng)
    X = with_ones(rng.normal(size=(5, 2)))
    y, width = experts.grid(experts.predictor(X))
    density = np.stack([np.exp(experts.log_prob(X, at)) for at in y.swapaxes(0, 1)], axis=1)
    total = np.sum(density * width[:, :, None], axis=1)
    drawn = y.shape[1] == 200  # all that there are of two experts
    assert drawn == (name == "gaussian+gamma+poisson")
    assert_allclose(total / total.sum(axis=1, keepdims=True), 0.5, atol=0.12 if drawn else 1e-3)


# -- fits ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return drawn(1200, np.random.default_rng(1))


@pytest.fixture(scope="module")
def fitted(rows):
    return two().fit(rows[0], rows[1][:, :2])


def test_one_expert_is_a_regression_for_each_response(rows):
    X, Y = rows
    est = two(["gaussian", "poisson", "binomial"], 1, expert_alpha=0).fit(X, Y)
    D = with_ones(X)
    parts = [
        sm.OLS(Y[:, 0], D).fit(),
        sm.GLM(Y[:, 1], D, family=sm.families.Poisson()).fit(tol=1e-12),
        sm.GLM(Y[:, 2:], D, family=sm.families.Binomial()).fit(tol=1e-12),
    ]
    assert_allclose(est.log_likelihood_, sum(part.llf for part in parts), rtol=1e-10)
    assert_allclose(est.model_.experts.coef[0], [part.params for part in parts], rtol=1e-5)
    found = est.inference().standard_errors.coef[0]
    assert_allclose(found[1:], [part.bse for part in parts[1:]], rtol=1e-5)
    assert_allclose(found[0], parts[0].bse * np.sqrt(1 - 3 / len(X)), rtol=1e-5)
    assert_allclose(est.predict(X), np.column_stack([p.fittedvalues for p in parts]), rtol=1e-5)


def test_the_fit_is_a_maximum(rows, fitted):
    X, Y = rows[0], rows[1][:, :2]
    assert fitted.converged_ and never_falls(fitted.fit_.trace)
    model = two(alpha=0, expert_alpha=0).fit(X, Y).model_
    D, experts = with_ones(X), model.experts
    log_prob = stats.norm(D @ experts.coef[:, 0].T, np.sqrt(experts.scales[:, 0])).logpdf(Y[:, :1])
    log_prob = log_prob + stats.poisson(np.exp(D @ experts.coef[:, 1].T)).logpmf(Y[:, 1:])
    joint = special.log_softmax(D @ model.gate.coef.T, axis=1) + log_prob
    assert_allclose(model.log_density(X, Y), special.logsumexp(joint, axis=1), rtol=1e-9)
    assert_allclose(model.responsibilities(X, Y), special.softmax(joint, axis=1), atol=1e-9)
    scaling = Scaling.of(X)
    found = site_information("", model, scaling, Rows(X, Y)).information
    step = np.linalg.solve(found.matrix, found.score)
    assert found.score @ step < 1e-6


def test_score_and_information_match_finite_differences(rng):
    X, Y = drawn(120, rng)
    Y[:, 0] /= 1000
    model = MoE(GATE, experts_of("gaussian+poisson", rng))
    found = site_information("", model, Scaling(np.zeros(2), np.ones(2)), Rows(X, Y[:, :2]))

    def height(theta):
        return model.with_vector(theta).log_density(X, Y[:, :2]).sum()

    score = jacobian(height, model.to_vector()).ravel()
    assert_allclose(found.information.score, score, rtol=1e-4, atol=1e-3)
    second = jacobian(lambda t: jacobian(height, t).ravel(), model.to_vector())
    assert_allclose(found.information.matrix, -second, rtol=1e-2, atol=1.0)


def test_two_responses_tell_experts_better_than_one(rows, fitted):
    X, Y = rows[0], rows[1][:, :2]
    alone = MoERegressor(2, family="poisson", random_state=0).fit(X, Y[:, 1])
    both, one = (
        np.max(est.predict_expert_proba(X, y), axis=1).mean()
        for est, y in ((fitted, Y), (alone, Y[:, 1]))
    )
    assert both > one + 0.05


def test_summaries_name_responses(fitted):
    text = str(fitted.summary())
    assert "y0: x1" in text and "y1: intercept" in text and "y0 variance" in text
    names = list(fitted.model_.coefficients["experts"])
    assert names[:4] == ["y0: intercept", "y0: x0", "y0: x1", "y0: variance"]
    assert "gaussian+poisson" in repr(fitted.model_)


def test_structures_hold_for_every_response(rows):
    X, Y = rows[0], rows[1][:, :2]
    est = two(expert_features=[1], common=[1], common_variance=True).fit(X, Y)
    coef = est.model_.experts.coef
    assert np.all(coef[:, :, 1] == 0)
    assert_allclose(coef[0, :, 2], coef[1, :, 2], rtol=1e-10)
    assert_allclose(est.model_.experts.scales[0], est.model_.experts.scales[1], rtol=1e-10)


# -- messages and merging ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sites():
    """Return rows and messages of three sites, and the fit of all rows."""
    rng = np.random.default_rng(2)
    rows = [drawn(700, rng) for _ in range(3)]
    rows = [(X, Y[:, :2]) for X, Y in rows]
    sent = []
    for m, (X, Y) in enumerate(rows):
        message = two().fit(X, Y).to_message(f"site {m}", X, Y, sketch=True, grams=True)
        sent.append(LocalModel.from_json(message.to_json()))
    X, Y = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return X, Y, sent, two().fit(X, Y)


@pytest.mark.parametrize("method", ["reduction", "kl", "gram", "greedy", "aligned_average"])
def test_merging_is_near_the_pooled_fit(sites, method):
    X, Y, sent, pooled = sites
    merged = aggregate(sent, X[::7], method=method, random_state=0).model
    found = merged.log_density(X, Y).sum()
    assert pooled.log_likelihood_ - 3 < found <= pooled.log_likelihood_ + 1e-6


@pytest.mark.parametrize("method", ["reduction", "kl", "gram"])
def test_a_model_merged_with_itself_stays(sites, method):
    X, _, sent, _ = sites
    copies = [replace(sent[0], site=f"copy {i}") for i in range(2)]
    merged = aggregate(copies, X[::7], method=method, random_state=0).model
    there = Scaling.of(X)
    a, b = (there.from_user(m.aligned_to(sent[0].model, X)) for m in (merged, sent[0].model))
    gap = (a.experts.coef - b.experts.coef) / np.array([[1e4], [1.0]])
    assert np.abs(gap).max() < 2e-3


def test_refine_rounds_end_at_the_pooled_fit(sites):
    X, Y, _, pooled = sites
    est = DistributedMoERegressor(
        2, n_shards=3, family=["gaussian", "poisson"], refine="auto", random_state=0
    ).fit(X, Y)
    found = est.model_.log_density(X, Y).sum()
    assert abs(found - pooled.log_likelihood_) < 1e-5


def test_files_keep_models_and_reports_read_them(sites, tmp_path):
    X, Y, sent, _ = sites
    result = aggregate(sent, X[::40], method="reduction", random_state=0)
    result.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert_array_equal(again.to_vector(), result.model.to_vector())
    assert "y1: x0" in report(tmp_path / "model.json")
    est = MoERegressor.from_model(again)
    assert_allclose(est.log_density(X, Y), result.model.log_density(X, Y))


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("family",), "gaussian+multinomial", "family_unknown model.family"),
        (("family",), "+".join(["gaussian"] * 21), "family_unknown model.family"),
        (("family",), "gaussian+poisson+poisson", "length_of_model model.experts.coef[0]"),
        (("experts", "scales"), [[1.0], [0.0]], "field_not_positive model.experts.scales[1][0]"),
        (("experts", "scales"), [[1.0], [1.0, 2.0]], "length_of_model model.experts.scales[1]"),
    ],
)
def test_broken_messages_are_refused(sites, path, value, code):
    document = sites[2][0].document()
    document.pop("grams")
    place = document["model"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with refused(code):
        LocalModel.from_document(document, "it", None)


# -- features of their own -----------------------------------------------------------------------

OWN = {"y0": [[0, 1], ["-intercept", 1]], "y1": [0]}  # of each expert, and of both
COLUMNS = (((0, 1, 2), (0, 1)), ((2,), (0, 1)))


def apart(n, rng):
    """Return rows of two experts as `OWN` has them."""
    X = rng.normal(size=(n, 2)) + [0.0, 3.0]
    first = rng.random(n) < 0.4
    y0 = np.where(first, 12 + 3 * X[:, 0] + X[:, 1], 2 * X[:, 1]) + rng.normal(size=n)
    y1 = rng.poisson(np.exp(np.where(first, 1 + 0.5 * X[:, 0], 0.2 - 0.5 * X[:, 0])))
    return X, np.column_stack([y0, y1]).astype(float)


def own(features=None, **options):
    given = {"alpha": 0.0, "expert_alpha": 0.0, "gate_features": "intercept", **options}
    return two(expert_features=OWN if features is None else features, **given)


def test_responses_have_features_of_their_own():
    X, Y = apart(500, np.random.default_rng(3))
    est = own().fit(X, Y)
    model = est.model_
    assert model.structure.columns == COLUMNS and est.fit_.rank == model.n_free == 11
    assert_array_equal(model.experts.coef != 0, [[[1, 1, 1], [1, 1, 0]], [[0, 0, 1], [1, 1, 0]]])

    def loss(psi):  # by hand: a gate, 3 + 1 coefficients of y0 and 2 + 2 of y1, two variances
        eta0 = np.column_stack([psi[1] + X @ psi[2:4], psi[4] * X[:, 1]])
        eta1 = np.column_stack([psi[i] + psi[i + 1] * X[:, 0] for i in (5, 7)])
        log_prob = stats.norm.logpdf(Y[:, :1], eta0, np.exp(0.5 * psi[9:]))
        log_prob = log_prob + stats.poisson.logpmf(Y[:, 1:], np.exp(eta1))
        return -special.logsumexp(log_prob + special.log_expit([psi[0], -psi[0]]), axis=1).sum()

    coef = model.experts.coef
    gate, logs = model.gate.coef[0, 0], np.log(model.experts.scales[:, 0])
    parts = [coef[0, 0], coef[1, 0, 2:], coef[0, 1, :2], coef[1, 1, :2]]
    here = np.concatenate([[gate], *parts, logs])
    assert_allclose(-loss(here), est.log_likelihood_, rtol=1e-10)
    rng = np.random.default_rng(0)
    best = minimize(loss, here + rng.normal(0, 0.05, 11), method="BFGS")
    assert_allclose(-best.fun, est.log_likelihood_, atol=1e-3)
    assert_allclose(here, best.x, atol=2e-3)
    second = jacobian(lambda psi: jacobian(loss, psi).ravel(), here)
    se = np.sqrt(np.diagonal(np.linalg.inv(second)))
    found = est.inference().standard_errors.coef
    assert_allclose(np.concatenate([found[0, 0], found[1, 0, 2:]]), se[1:5], rtol=1e-2)
    assert_array_equal(found[1, 0, :2], 0.0)


def test_features_by_response_take_every_form():
    X, Y = apart(300, np.random.default_rng(4))
    forms = {
        "one": ({"y1": [0]}, (((0, 1, 2), (0, 1)),)),
        "constant": ({"y0": None, "y1": "intercept"}, (((0, 1, 2), (0,)),)),
        "names": ({"y0": {"a": [0], "b": [1]}}, (((0, 1), (0, 1, 2)), ((0, 2), (0, 1, 2)))),
        "the same": ({"y0": [0], "y1": [0]}, ((0, 1),)),
        "by expert": ({"a": [0], "b": [1]}, ((0, 1), (0, 2))),  # as without responses
    }
    for features, columns in forms.values():
        structure = own(features, max_iter=1, n_init=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            structure = structure.fit(X, Y).model_.structure
        assert structure.columns == columns
        assert structure.names == (("a", "b") if "a" in str(features) else None)
    refused("response_unknown", name="b", responses=["y0", "y1"]).by(
        own({"y0": [0], "b": [1]}).fit, X, Y
    )
    unlike = {"y0": {"a": [0], "b": [1]}, "y1": {"b": [0], "a": [1]}}
    refused("expert_names_differ").by(own(unlike).fit, X, Y)
    refused("expert_features_count", sets=3, experts=2).by(own({"y0": [[0], [0], [1]]}).fit, X, Y)


def test_the_order_of_experts_and_responses_does_not_matter():
    X, Y = apart(400, np.random.default_rng(5))
    one = own().fit(X, Y)
    turned = own({"y0": OWN["y0"][::-1], "y1": [0]}).fit(X, Y)
    assert_allclose(turned.model_.experts.coef, one.model_.experts.coef[::-1], atol=1e-4)
    swapped = {"y0": OWN["y1"], "y1": OWN["y0"]}
    other = own(swapped, family=("poisson", "gaussian")).fit(X, Y[:, ::-1])
    assert_allclose(other.log_likelihood_, one.log_likelihood_, atol=1e-6)
    assert_allclose(other.model_.experts.coef[:, ::-1], one.model_.experts.coef, atol=1e-4)


@pytest.fixture(scope="module")
def own_sites():
    rng = np.random.default_rng(6)
    rows, sent = [apart(600, rng) for _ in range(3)], []
    for m, (X, Y) in enumerate(rows):
        message = own().fit(X, Y).to_message(f"site {m}", X, Y, sketch=True, grams=True)
        sent.append(LocalModel.from_json(message.to_json()))
    X, Y = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return X, Y, sent, own().fit(X, Y)


EVERY = ["auto", "reduction", "kl", "gram", "middle", "weighted_average", "aligned_average"]
EVERY += ["greedy", "median", "trimmed", "geometric_median", "krum"]


@pytest.mark.filterwarnings("ignore::otmoe.text.notices.OtmoeWarning")
@pytest.mark.parametrize("method", EVERY)
def test_merging_keeps_features_of_their_own(own_sites, method):
    X, Y, sent, pooled = own_sites
    model = aggregate(sent, X[::7], method=method, random_state=0).model
    assert model.structure == pooled.model_.structure
    assert_array_equal(model.experts.coef != 0, pooled.model_.experts.coef != 0)
    lost = pooled.log_likelihood_ - model.log_density(X, Y).sum()
    most = 6 if method in ("auto", "reduction", "kl", "gram", "aligned_average") else np.inf
    assert -1e-6 < lost < most
    alone = aggregate(sent[:1], X[::7], method=method, random_state=0).model
    assert_allclose(alone.experts.coef, sent[0].model.experts.coef, rtol=1e-2, atol=1e-2)


def test_refine_rounds_keep_features_of_their_own(own_sites):
    X, Y, _, pooled = own_sites
    how = {name: getattr(own(), name) for name in ("alpha", "expert_alpha", "gate_features")}
    est = DistributedMoERegressor(
        2,
        n_shards=3,
        family=["gaussian", "poisson"],
        refine="auto",
        random_state=0,
        expert_features=OWN,
        **how,
    ).fit(X, Y)
    se = pooled.inference().standard_errors.coef
    gap = np.abs(est.model_.experts.coef - pooled.model_.experts.coef)
    assert np.max(gap / np.where(se > 0, se, 1e-9)) < 1e-3
    assert_allclose(est.inference().standard_errors.coef, se, rtol=1e-3)


def test_files_of_features_by_response_are_checked(own_sites, tmp_path):
    model = own_sites[3].model_
    path = save_model(model, tmp_path / "model.json")
    again = load_model(path)
    assert again.structure == model.structure
    assert_array_equal(again.to_vector(), model.to_vector())
    document = json.loads(path.read_text())
    part = document["model"]["structure"]
    assert part["columns"] is None and part["response_columns"] == [
        [[0, 1, 2], [0, 1]],
        [[2], [0, 1]],
    ]

    def spoilt(place, value):
        path.write_text(json.dumps(put(json.loads(json.dumps(document)), place, value)))
        load_model(path)

    at = "model.structure.response_columns"
    refused(f"structure_twice {at}").by(spoilt, "model.structure.columns", [[0, 1, 2]])
    refused(f"structure_count {at}").by(spoilt, at, [[[0], [0]]] * 3)
    refused(f"structure_responses {at}[0]").by(spoilt, at, [[[0, 1, 2]], [[2], [0, 1]]])
    refused(f"no_columns {at}[1][0]").by(spoilt, f"{at}.1.0", [])
    refused(f"gate_column {at}[1][0][0]").by(spoilt, f"{at}.1.0.0", 9)
    refused("not_zero model.experts.coef[1][0][1]").by(spoilt, "model.experts.coef.1.0.1", 0.5)
    other = replace(own_sites[2][1], model=two().fit(*own_sites[:2]).model_)
    refused("structure_differs").by(aggregate, [own_sites[2][0], other], own_sites[0][:50])


# -- names and measures --------------------------------------------------------------------------


def test_columns_of_a_frame_name_the_responses(rows, tmp_path):
    X, Y = rows[0], pd.DataFrame(rows[1][:, :2], columns=["cost", "visits"])
    est = two(expert_features={"cost": [0, 1], "y1": [1]}).fit(X, Y)
    assert est.model_.experts.responses == ["cost", "visits"]
    assert est.model_.structure.columns == (((0, 1, 2), (0, 2)),)
    assert "visits: x1" in str(est.summary()) and "cost variance" in str(est.summary())
    assert "visits: x0" not in str(est.summary())
    assert list(est.model_.coefficients["experts"])[0] == "cost: intercept"
    again = pickle.loads(pickle.dumps(est.model_))
    assert again.experts.responses == ["cost", "visits"]
    assert type(again.experts) is type(est.model_.experts)
    path = save_model(est.model_, tmp_path / "model.json")
    assert load_model(path).experts.responses == ["cost", "visits"]
    three = two(["gaussian", "poisson", "binomial"]).fit(
        X, pd.DataFrame(rows[1], columns=[*"abcd"])
    )
    assert three.model_.experts.responses == ["a", "b", "c"]  # successes name shares
    plain = two().fit(X, pd.DataFrame(rows[1][:, :2]))  # whose columns have numbers
    assert plain.model_.experts.responses == ["y0", "y1"]
    document = json.loads(path.read_text())
    wrong = {"length_of_responses ": ["a"], "second_time [1]": ["a", "a"]}
    for code, names in wrong.items():
        path.write_text(json.dumps(put(document, "model.response_names", names)))
        with refused(code.replace(" ", " model.response_names")):
            load_model(path)


def test_sites_name_their_responses_alike(rows):
    X, Y = rows[0], rows[1][:, :2]
    sent = []
    for i, names in enumerate((["cost", "visits"], ["visits", "cost"])):
        half = slice(i, None, 2)
        est = two().fit(X[half], pd.DataFrame(Y[half], columns=names))
        sent.append(est.to_message(f"s{i}"))
    refused("responses_differ", responses=["visits", "cost"]).by(aggregate, sent, X[:50])


def test_each_response_is_measured(rows, fitted):
    X, Y = rows[0], rows[1][:, :2]
    found = score_rows(fitted.model_, X, Y)
    assert list(found.measures) == ["log_likelihood"] and np.isnan(found.explained)
    assert_allclose(found.measures["log_likelihood"], fitted.log_likelihood_ / len(X), rtol=1e-9)
    cost, visits = found.responses.values()
    assert list(found.responses) == ["y0", "y1"]
    mean = fitted.predict(X)
    assert_allclose(cost.measures["r2"], r2_score(Y[:, 0], mean[:, 0]), rtol=1e-9)
    assert_allclose(
        visits.measures["deviance"], mean_poisson_deviance(Y[:, 1], mean[:, 1]), rtol=1e-9
    )
    model, D = fitted.model_, with_ones(X)
    gate = special.log_softmax(D @ model.gate.coef.T, axis=1)
    counts = stats.poisson(np.exp(D @ model.experts.coef[:, 1].T)).logpmf(Y[:, 1:])
    margin = special.logsumexp(gate + counts, axis=1).mean()
    assert_allclose(visits.measures["log_likelihood"], margin, rtol=1e-9)
    parts = cost.measures["log_likelihood"] + visits.measures["log_likelihood"]
    assert parts < found.measures["log_likelihood"]  # responses tell about each other
    null = stats.norm(Y[:, 0].mean(), Y[:, 0].std()).logpdf(Y[:, 0]).mean()
    null += stats.poisson(Y[:, 1].mean()).logpmf(Y[:, 1]).mean()
    assert_allclose(found.null["log_likelihood"], null, rtol=1e-9)
    halves = score_rows(model, X[:400], Y[:400]) + score_rows(model, X[400:], Y[400:])
    for name, score in halves.responses.items():
        for measure, value in score.measures.items():
            assert_allclose(value, found.responses[name].measures[measure], rtol=1e-9)
    report = evaluate(model, X, Y)
    assert_allclose(report["y1: rmse"], visits.measures["rmse"], rtol=1e-9)
    assert_allclose(report["log_likelihood"], found.measures["log_likelihood"], rtol=1e-9)


# -- what is refused -----------------------------------------------------------------------------


def test_what_several_responses_do_not_have_is_refused(rows, fitted):
    X, Y = rows[0], rows[1][:, :2]
    facts = {"shape": (1200, 3), "wanted": 2, "family": "gaussian+poisson"}
    refused("joint_columns", **facts).by(two().fit, X, rows[1][:, :3])
    refused("not_counts", family="poisson").by(two().fit, X, Y[:, ::-1])
    refused("joint_no_offset", TypeError).by(two().fit, X, Y, offset=np.zeros(len(X)))
    refused("joint_no_quantiles", TypeError).by(fitted.predict_quantile, X)
    refused("joint_no_quantiles", TypeError).by(
        fitted.model_.experts.cdf, fitted.model_.experts.predictor(with_ones(X)), Y
    )
    found = fitted.inference()
    refused("joint_not_here", what="ratios()").by(found.ratios)
    names = [row.term for row in found.marginal_effects(X)]
    assert names == ["y0: x0", "y1: x0", "y0: x1", "y1: x1"]
    for family in (["gaussian", "multinomial"], ["gaussian", "cauchy"], []):
        refused("not_one_of", name="family").by(two(family).fit, X, Y)
