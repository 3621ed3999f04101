"""What docs/threats.md says that a message gives away, and that a site can do, shown."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from refusals import refused

from otmoe import (
    FeatureSpec,
    LocalModel,
    MoEClassifier,
    MoERegressor,
    Policy,
    aggregate,
    shards_from,
    simulate,
)
from otmoe.aggregation.disagreement import THRESHOLD, likelihood_deviations
from otmoe.distributed.task import Task, fit_rows
from otmoe.documents.reply import RefineReply
from otmoe.federation.policy.release import released
from otmoe.federation.policy.verdict import Refused, check
from otmoe.federation.rounds import begin, reply_to, request_of
from otmoe.likelihood.grouped import group_scores, score_scatter
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.prior import Prior, fit_with_prior
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.text.sentences import Warn


@pytest.fixture(scope="module")
def people():
    """Four hundred people, one of whom lives in Nice."""
    rng = np.random.default_rng(0)
    city = np.where(rng.random(400) < 0.5, "Lyon", "Nantes").astype(object)
    city[17] = "Nice"
    frame = pd.DataFrame({"age": rng.normal(50, 10, 400).round(), "city": city})
    frame["sex"] = rng.choice(["f", "m"], 400)
    frame["y"] = 0.1 * frame.age + 2 * (frame.sex == "f") + rng.normal(size=400)
    return frame


SPEC = FeatureSpec.from_sample(
    pd.DataFrame({"age": [50.0, 51, 52], "city": ["Lyon", "Nantes", "Nice"], "sex": list("fmf")}),
    ["age", "city", "sex"],
)


OFF, POLICY = Policy.off(), Policy()


def message(frame, n_experts, policy=OFF, **parts):
    """Return a message as it arrives; by default one of a site that has no policy."""
    (shard,) = shards_from(frame, target="y", features=SPEC)
    found = fit_rows(Task(shard, 0, n_experts, options={"n_init": 3}, **parts))
    made = released(found.local.message, found.rows, policy)
    check(made.verdict)
    return LocalModel.from_json(made.message.to_json())


def refuses(rules, frame, n_experts, policy=POLICY, **parts):
    """Expect that the policy refuses a message, by these rules."""
    with refused("policy_refuses", Refused) as caught:
        message(frame, n_experts, policy, **parts)
    assert set(caught.value.facts["rules"]) == set(rules.split())


def without_nice(people):
    """Return the people of Lyon and Nantes, for messages that may leave."""
    return people[people.city != "Nice"]


def numbers(document):
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return set().union(*map(numbers, document))
    return {document} if isinstance(document, float) else set()


# -- what a message shows ------------------------------------------------------------------------


def test_no_number_of_a_row_is_in_a_message():
    data = simulate(500, 2, 3, random_state=0)
    sent = MoERegressor(2, random_state=0).fit(data.X, data.y).to_message(site="lyon")
    found = numbers(json.loads(sent.to_json()))
    assert len(found) > 10
    assert not found & set(data.X.ravel().tolist() + data.y.tolist())


def test_who_knows_x_of_the_only_row_with_a_level_learns_its_y(people):
    sent = message(people, 1)
    (y,) = sent.model.predict(SPEC.encode(people[17:18]))
    assert_allclose(y, people.y[17], rtol=1e-9)
    refuses("cells leverage", people, 1)
    refuses("leverage", people, 1, Policy(cell=None))  # which no counting of cells replaces


@pytest.mark.parametrize("n_experts", [1, 2])
def test_grams_show_all_of_the_only_row_with_a_level(people, n_experts):
    sent = message(people, n_experts, grams=True)
    terms, matrices = list(sent.model.terms), sent.grams.matrices
    nice = terms.index("city=Nice")
    x = matrices.sum(axis=0)[nice]
    assert_allclose(x[1:], SPEC.encode(people[17:18])[0], atol=1e-9)
    # The normal equations give X'y back.
    y = np.einsum("kij,kj->i", matrices, sent.model.experts.coef)[nice]
    assert_allclose(y, people.y[17], rtol=1e-6)
    refuses("cells leverage", people, n_experts, grams=True)


def test_grams_show_how_many_people_have_two_levels(people):
    sent = message(people, 2, grams=True)
    terms, total = list(sent.model.terms), sent.grams.matrices.sum(axis=0)
    both = (people.city == "Nantes") & (people.sex == "m")
    assert_allclose(total[terms.index("city=Nantes"), terms.index("sex=m")], both.sum())
    some = without_nice(people)
    total = message(some, 1, POLICY, grams=True).grams.matrices[0]
    count = total[terms.index("city=Nantes"), terms.index("sex=m")]
    assert abs(count - both.sum()) < 20  # but not to a person


def differences(before, after):
    """Return what two Grams and models say about the row between them, x and y."""
    (old,), (new,) = before.grams.matrices, after.grams.matrices
    sums = [g @ m.model.experts.coef[0] for g, m in ((new, after), (old, before))]
    return (new - old)[0][1:], (sums[0] - sums[1])[0]


def test_two_messages_with_grams_show_the_row_between_them(people):
    x, y = differences(*(message(p, 1, grams=True) for p in (people[:-1], people)))
    assert_allclose(x, SPEC.encode(people[-1:])[0], atol=1e-8)
    assert_allclose(y, people.y.iloc[-1], rtol=1e-6)


def test_two_rounded_messages_with_grams_show_nothing_of_the_row_between_them(people):
    """What comes out is as far off as a row that is drawn at random, or farther."""
    some, errors = without_nice(people), []
    for last in range(300, 320):
        pair = (message(some[:n], 1, POLICY, grams=True) for n in (last, last + 1))
        x, y = differences(*pair)
        errors.append([x[0] - some.age.iloc[last], y - some.y.iloc[last]])
    errors = np.sqrt(np.mean(np.square(errors), axis=0))
    assert errors[0] > some.age.std() and errors[1] > some.y.std()


def with_sketches(sent):
    """Return n times the mean of x that a sketch gives, x and y alike."""
    sketch, n = sent.sketch, sent.n_samples
    return n * sketch.weight @ sketch.mean


def test_two_messages_with_sketches_show_the_row_between_them(people):
    x = with_sketches(message(people, 1, sketch=1)) - with_sketches(
        message(people[:-1], 1, sketch=1)
    )
    assert_allclose(x[0], people.age.iloc[-1], atol=1e-6)
    some, errors = without_nice(people), []
    for last in range(300, 320):
        sums = [with_sketches(message(some[:n], 1, POLICY, sketch=1)) for n in (last, last + 1)]
        errors.append(sums[1][0] - sums[0][0] - some.age.iloc[last])
    assert np.sqrt(np.mean(np.square(errors))) > 0.5 * some.age.std()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_message_of_one_row_is_that_row(people):
    est = MoERegressor(1).fit(people[["age"]][:1], people.y[:1])
    sent = est.to_message("Lyon", policy=OFF)
    assert sent.constant == {"age": people.age[0]}
    assert_allclose(sent.model.experts.coef[0, 0], people.y[0])
    with refused("policy_refuses", Refused) as caught:
        est.to_message("Lyon")
    assert {"rows", "parameters"} < set(caught.value.facts["rules"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_design_that_lacks_rank_silences_nobody():
    """Twelve rows and 32 parameters, with columns that depend on each other."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 5))
    X = np.column_stack([X, X[:, :4] - X[:, 1:]])
    y = rng.normal(size=12)
    est = MoERegressor(2, n_init=2, random_state=0).fit(X, y)
    assert est.model_.n_parameters == 32
    assert np.corrcoef(est.to_message("Lyon", policy=OFF).model.predict(X), y)[0, 1] > 0.95
    with refused("policy_refuses", Refused) as caught:
        est.to_message("Lyon")
    assert {"parameters", "expert_rows"} <= set(caught.value.facts["rules"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_that_is_certain_of_every_diagnosis_is_them():
    """116 patients whom two experts tell apart, by 9 parameters."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(116, 2))
    sick = X[:, 0] ** 2 > 0.6
    est = MoEClassifier(2, alpha=1e-4, expert_alpha=1e-4, n_init=5, random_state=0).fit(X, sick)
    assert est.log_likelihood_ > -1
    sent = est.to_message("Lyon", policy=OFF)
    assert np.array_equal(sent.model.predict(X) > 0.5, sick)
    with refused("policy_refuses", Refused) as caught:
        est.to_message("Lyon")
    assert "certainty" in caught.value.facts["rules"]


def test_a_model_with_as_many_coefficients_as_rows_shows_y(people):
    few = people[13:18]
    sent = message(few, 1)
    assert sent.model.experts.coef.size == len(few)
    assert_allclose(sent.model.predict(SPEC.encode(few)), few.y, rtol=1e-8)
    assert Warn.FEW_ROWS(rows=5, parameters=6) in sent.warnings
    refuses("rows parameters expert_rows cells leverage certainty", few, 1)


def test_a_message_says_which_levels_nobody_has(people):
    assert message(people[:17], 1).constant == {"city=Nice": 0.0}
    assert message(people[:18], 1).constant == {}


def test_a_sketch_shows_how_many_people_have_a_level_but_not_whose_age(people):
    sent = message(people, 1, sketch=True)
    sketch = sent.sketch
    shares = [weights @ sketch.weight for weights in (p.T for p in sketch.prob)]
    assert_allclose(shares[0] * len(people), people.city.value_counts().sort_index())
    assert len(sketch.weight) == 1 or (sketch.weight * len(people)).min() >= 10
    assert not numbers(json.loads(sent.to_json())) & set(people.y)
    some = without_nice(people)
    (city, _) = message(some, 1, POLICY, sketch=1).sketch.prob
    fives = np.delete(city[0], np.argmax(city[0])) * len(some) / 5  # the largest is what is left
    assert_allclose(fives, np.rint(fives), atol=1e-6)


def test_a_row_far_from_all_others_is_no_component_of_a_sketch(people):
    odd = people.assign(age=people.age.where(people.index != 17, 1e4))
    sketch = message(odd, 1, sketch=True).sketch
    assert not np.isclose(sketch.mean, 1e4).any()


def test_rows_that_a_site_shares_are_rows(people):
    shared = message(people, 1, share=5).support
    rows = {tuple(row) for row in SPEC.encode(people)}
    assert len(shared) == 5 and all(tuple(row) in rows for row in shared)
    refuses("share", without_nice(people), 1, share=5)


# -- what a malicious site can do ----------------------------------------------------------------


@pytest.fixture(scope="module")
def sites():
    data = simulate(3000, 2, 2, random_state=0)
    parts = {"lyon": slice(0, 1000), "nantes": slice(1000, 2000), "paris": slice(2000, None)}
    fit = MoERegressor(2, random_state=0, n_init=3).fit
    return [fit(data.X[p], data.y[p]).to_message(site=name) for name, p in parts.items()], data.X


def turned(sent):
    """Return a message that says the opposite of what the site has seen."""
    experts = replace(sent.model.experts, coef=-sent.model.experts.coef)
    return replace(sent, model=replace(sent.model, experts=experts))


@pytest.mark.filterwarnings("ignore:aggregate")
def test_a_site_that_claims_many_rows_has_the_say_unless_the_server_sets_the_weights(sites):
    (lyon, nantes, paris), X = sites
    liar = replace(turned(paris), n_samples=1e12)
    merged = aggregate([lyon, nantes, liar], X, method="reduction")
    assert merged.sites[2].weight > 0.999999
    assert_allclose(merged.model.predict(X), liar.model.predict(X), atol=1e-3)
    weights = dict.fromkeys(("lyon", "nantes", "paris"), 1)
    merged = aggregate([lyon, nantes, liar], X, method="reduction", site_weight=weights)
    assert_allclose([record.weight for record in merged.sites], 1 / 3)


def test_screening_believes_the_log_likelihood_that_a_site_claims(sites):
    (lyon, nantes, paris), _ = sites
    honest = replace(paris, log_likelihood=paris.log_likelihood - 1e6)  # what the fit deserves
    assert likelihood_deviations([lyon, nantes, nantes, honest])[-1] < -THRESHOLD
    assert likelihood_deviations([lyon, nantes, nantes, turned(paris)])[-1] > -THRESHOLD


@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.parametrize(("shift", "found"), [(0.3, False), (1.0, True)])
def test_screening_finds_a_careless_liar_but_not_a_careful_one(shift, found):
    data = simulate(6000, 2, 2, random_state=0)
    fit = MoERegressor(2, random_state=0, n_init=3).fit
    parts = [slice(i, i + 1000) for i in range(0, 6000, 1000)]
    honest = [fit(data.X[p], data.y[p]).to_message(site=f"{p}") for p in parts]
    experts, deviation = honest[-1].model.experts, np.sqrt(honest[-1].model.experts.var)
    coef = experts.coef + shift * deviation[:, None] * [1, 0, 0]
    model = replace(honest[-1].model, experts=replace(experts, coef=coef))
    liar = replace(honest[-1], site="liar", model=model, n_samples=1e12)
    liar = replace(liar, log_likelihood=1e9 * honest[-1].log_likelihood)  # as before, per row
    merged = aggregate([*honest[:-1], liar], data.X, outliers="exclude")
    assert ("liar" in merged.left_out) == found
    moved = merged.model.predict(data.X) - aggregate(honest, data.X).model.predict(data.X)
    if found:
        assert abs(np.mean(moved)) < 0.1 * shift * deviation.mean()
        return
    assert 0.3 < np.mean(moved) / (shift * deviation.mean()) < 0.6  # half of the weight
    merged = aggregate([*honest[:-1], liar], data.X, outliers="exclude", max_weight=1)
    moved = merged.model.predict(data.X) - aggregate(honest, data.X).model.predict(data.X)
    assert np.mean(moved) > 0.9 * shift * deviation.mean()


# -- what a refine reply shows --------------------------------------------------------------------


def replied(model, X, y):
    """Return a site's reply, and the map of coefficients to those of standardised features."""
    scaling = Scaling.of(np.vstack([X, X + 1.0, 2 * X]))  # somebody's, as the server has it
    state = begin(model, {"Lyon": len(y)}, scaling)
    reply = reply_to(request_of(state), Rows(X, y), "Lyon")
    zero = model.with_vector(np.zeros(model.n_parameters))
    L = [
        scaling.from_user(zero.with_vector(e)).to_vector() - scaling.from_user(zero).to_vector()
        for e in np.eye(model.n_parameters)
    ]
    return RefineReply.from_json(reply.to_json()).content, np.array(L).T


def test_a_refine_reply_of_one_row_is_that_row():
    data = simulate(500, 2, 3, random_state=0)
    x, y = data.X[7], data.y[7]
    found, _ = replied(data.truth, x[None], np.array([y]))
    assert_allclose(found.moments.mean, x)
    experts, p = data.truth.experts, 4
    k = int(np.argmax(found.information.mass))
    score = found.information.score[p + k * p]  # of the expert's intercept, after the gate's
    mean = experts.coef[k] @ np.append(1.0, found.moments.mean)
    assert_allclose(mean + score * experts.var[k] / found.information.mass[k], y)


def test_a_refine_reply_shows_x_and_y_of_the_only_row_with_a_level(people):
    model = message(people, 1).model
    model = model.with_vector(model.to_vector() + 0.1)  # any model that somebody asks about
    X, y = SPEC.encode(people), people.y.to_numpy()
    found, L = replied(model, X, y)
    score, matrix = L.T @ found.information.score, L.T @ found.information.matrix @ L
    nice = SPEC.feature_names.index("city=Nice") + 1
    assert_allclose(matrix[nice, 1:-1] / matrix[nice, 0], X[17], atol=1e-8)
    mean = model.experts.coef[0] @ np.append(1.0, X[17])
    assert_allclose(mean + score[nice] * model.experts.var[0], y[17])


def test_a_scatter_shows_the_score_of_the_only_group_with_a_level(people):
    model = message(people, 1).model
    model = model.with_vector(model.to_vector() + 0.1)
    X, y, groups = SPEC.encode(people), people.y.to_numpy(), np.arange(400) // 4
    scaling, nice = Scaling.of(X), SPEC.feature_names.index("city=Nice")
    state = begin(model, {"Lyon": 400}, scaling, sandwich=True)
    found = reply_to(request_of(state), Rows(X, y), "Lyon", groups=groups).content
    # the dummy of the level is its standardised feature times the scale, and the centre
    dummy = np.zeros(model.n_parameters)
    dummy[nice + 1], dummy[0] = scaling.x_scale[nice], scaling.x_center[nice]
    score = dummy @ found.scatter.matrix / (dummy @ found.information.score)
    rows = Rows(X, y, scaling=scaling)
    there = group_scores(scaling.from_user(model), rows, groups).sums[17 // 4]
    assert_allclose(score, there, rtol=1e-6, atol=1e-8)


# -- what personal models show --------------------------------------------------------------------


def test_a_scatter_of_few_rows_shows_their_scores_but_for_a_rotation():
    data = simulate(500, 2, 3, random_state=0)
    rows, n = Rows(data.X[:6], data.y[:6]), 6
    scores = group_scores(data.truth, rows, np.arange(n)).sums
    values, vectors = np.linalg.eigh(score_scatter(data.truth, rows).matrix)
    guess = np.sqrt(values[-n:, None]) * vectors[:, -n:].T
    turn = scores @ np.linalg.pinv(guess)
    assert_allclose(turn @ turn.T, np.eye(n), atol=1e-6)
    assert_allclose(turn @ guess, scores, atol=1e-6)


def test_who_has_the_prior_learns_a_score_from_a_personal_model(people):
    X, y = SPEC.encode(people), people.y.to_numpy()
    tau = {"expert intercepts": 0.5, "expert slopes": 0.2, "log-variances": 0.1}
    prior = Prior(message(people, 1).model, Scaling.of(X), tau, design_effect=2.0)
    rows = Rows(X[:60], y[:60] + 1.0)  # of a site that differs
    model = fit_with_prior(rows, prior).model
    # what others need is the model and the prior
    moved = prior.scaling.from_user(model).to_vector() - prior.here.to_vector()
    learned = 2.0 * np.linalg.solve(prior.factor @ prior.factor.T, moved)
    there = Rows(rows.X, rows.y, scaling=prior.scaling)
    score = observed_information(prior.scaling.from_user(model), there).score
    assert_allclose(learned, score, atol=1e-3 * np.abs(score).max())
