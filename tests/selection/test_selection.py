"""Choice of the number of experts."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import call, fails, fine, told
from numpy.testing import assert_allclose, assert_array_equal
from refusals import codes, refused
from sklearn.linear_model import LinearRegression

from otmoe import (
    DistributedMoEClassifier,
    DistributedMoERegressor,
    LocalModel,
    MoEClassifier,
    MoERegressor,
    candidate_scores,
    select_from_messages,
    select_n_experts,
    select_over_shards,
    shards_from,
    simulate,
)
from otmoe.aggregation.problem import prepare
from otmoe.data.shards import RowsShard
from otmoe.likelihood.rounds import Refinement
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.selection import Candidate, Expectation, Score, Selection, merging, select
from otmoe.text.sentences import Warn

FAST = {"max_iter": 30, "n_init": 3, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return simulate(1500, 3, 3, random_state=1)


@pytest.fixture(scope="module")
def found(data):
    return select_n_experts(data.X, data.y, range(1, 5), estimator=MoERegressor(**FAST))


@pytest.fixture(scope="module")
def shards(data):
    return shards_from((data.X, data.y), cut=2)


@pytest.fixture(scope="module")
def over(shards):
    return select_over_shards(shards, range(1, 5), estimator=DistributedMoERegressor(**FAST))


@pytest.fixture(scope="module")
def messages(data):
    parts = np.array_split(np.arange(1500), 3)
    return [
        MoERegressor(4, **FAST).fit(data.X[p], data.y[p]).to_message(f"site {m}")
        for m, p in enumerate(parts)
    ]


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def by_hand(model, X, y, weight):
    """Return log-likelihood and entropy by a loop over the rows."""
    log_likelihood = entropy = 0.0
    pi = model.gate_prob(X)
    for i in range(len(y)):
        joint = []
        for k in range(model.n_experts):
            mean = model.experts.coef[k] @ np.append(1.0, X[i])
            var = model.experts.var[k]
            density = np.exp(-((y[i] - mean) ** 2) / (2 * var)) / np.sqrt(2 * np.pi * var)
            joint.append(pi[i, k] * density)
        total = sum(joint)
        log_likelihood += weight[i] * np.log(total)
        tau = [j / total for j in joint]
        entropy -= weight[i] * sum(t * np.log(t) for t in tau if t > 0)
    return log_likelihood, entropy


# -- on one machine ------------------------------------------------------------------------------


def test_criteria_are_those_of_a_loop_over_the_rows():
    data = simulate(400, 2, 2, softness=1.0, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 400)
    how = {"estimator": MoERegressor(**FAST), "sample_weight": weight}
    found = select_n_experts(data.X, data.y, [1, 2, 3], **how)
    for c, n_parameters in zip(found.candidates, [4, 11, 18], strict=True):
        log_likelihood, entropy = by_hand(c.model, data.X, data.y, weight)
        bic = -2 * log_likelihood + n_parameters * np.log(weight.sum())
        assert_allclose(c.log_likelihood, log_likelihood, rtol=1e-10)
        assert_allclose(c.entropy, entropy, rtol=1e-8, atol=1e-8)
        assert_allclose(c.bic, bic, rtol=1e-10)
        assert_allclose(c.icl, bic + 2 * entropy, rtol=1e-10)
        assert_allclose(c.bic, c.estimator.bic(data.X, data.y, weight), rtol=1e-12)
    assert found.candidates[1].entropy > 1


def test_the_number_of_a_separated_mixture_is_found(found, over):
    assert found.n_experts == found.best("icl").n_experts == 3
    assert found.best_model.n_experts == found.best_estimator.n_experts == 3
    assert over.n_experts == over.best("elbow").n_experts == 3  # and over shards, by both rules


def test_one_expert_is_least_squares_and_can_be_chosen():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 2))
    y = X @ [1.0, -2.0] + rng.standard_normal(500)
    found = select_n_experts(X, y, [1, 2, 3], estimator=MoERegressor(**FAST))
    assert found.n_experts == 1
    assert_allclose(found.best_model.experts.coef[0, 1:], LinearRegression().fit(X, y).coef_)
    assert found.best().entropy == 0


@pytest.mark.parametrize("family", ["logistic", "multinomial", "poisson"])
def test_other_families(family):
    data = simulate(600, 2, 2, family=family, random_state=0)
    est, y = MoERegressor(family="poisson", **FAST), data.y
    if family != "poisson":
        est, y = MoEClassifier(**FAST), np.array(["a", "b", "c"])[data.y.astype(int)]
    for c in select_n_experts(data.X, y, [1, 2], estimator=est).candidates:
        assert_allclose(c.log_likelihood, c.estimator.log_density(data.X, y).sum(), rtol=1e-10)


def test_a_distributed_estimator_can_be_compared_with_itself(data):
    est = DistributedMoERegressor(n_shards=2, **FAST)
    found = select_n_experts(data.X, data.y, [2, 3], estimator=est)
    assert found.n_experts == 3
    assert found.best_estimator.n_shards_ == 2


def test_a_fit_that_warns_stays_in_the_table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1))
    found = select_n_experts(X, X[:, 0] + 1e-3 * rng.standard_normal(60), [1, 6])
    last = found.candidates[-1]
    assert last.n_experts == 6 and last.warnings
    note = Warn.OF_CANDIDATE(experts=6, warning=str(last.warnings[0]))
    assert note in found.notes and str(note) in " ".join(str(found).split())
    assert found.records()[1]["warnings"] == last.warnings


# -- the result ----------------------------------------------------------------------------------


def candidates(log_likelihoods, costs=None, first=1):
    model = simulate(10, 2, 1, random_state=0).truth
    costs = [np.nan] * len(log_likelihoods) if costs is None else costs
    return tuple(
        Candidate(K, model, Score(value, 0.0, 100.0), cost)
        for K, (value, cost) in enumerate(zip(log_likelihoods, costs, strict=True), first)
    )


def test_the_elbow_is_the_largest_second_difference_of_log_cost():
    costs = [4.0, 2.0, 0.02, 0.015, 0.012]
    found = Selection(candidates([0.0] * 5, costs), "elbow")
    log = np.log(costs)
    bend = [log[i - 1] - 2 * log[i] + log[i + 1] for i in (1, 2, 3)]
    assert_allclose(found.bend, [np.nan, *bend, np.nan])
    assert found.n_experts == 3 and found.notes == ()


def test_the_expected_bic_weighs_distance_against_parameters():
    some = [
        replace(c, score=None, expectation=Expectation(lost, apart, 100.0))
        for c, lost, apart in zip(
            candidates([0.0] * 3), [9.0, 0.3, 0.1], [3.0, 0.02, 0.01], strict=True
        )
    ]
    models = [simulate(10, K, 1, random_state=0).truth for K in (1, 2, 3)]
    some = [replace(c, model=model) for c, model in zip(some, models, strict=True)]
    found = Selection(tuple(some), "expected_bic")
    values = [
        200 * apart + model.n_parameters * np.log(100)
        for apart, model in zip([3.0, 0.02, 0.01], models, strict=True)
    ]
    assert_allclose([c.expected_bic for c in found.candidates], values)
    assert found.n_experts == 2 and found.notes == ()
    assert [row["lost"] for row in found.records()] == [9.0, 0.3, 0.1]
    assert "* 2 experts, by the BIC that the sites' own models expect." in str(found)
    assert codes(Selection(tuple(some[:2]), "expected_bic").notes) == ["largest_tried"]


def test_gaps_between_numbers_do_not_look_like_elbows():
    straight = [np.exp(-K) for K in (1, 2, 4, 5)]
    pairs = zip(candidates([0.0] * 4, straight), (1, 2, 4, 5), strict=True)
    numbers = [replace(c, n_experts=K) for c, K in pairs]
    assert_allclose(Selection(tuple(numbers), "elbow").bend[1:-1], 0, atol=1e-12)


def test_a_slight_bend_is_called_slight_and_costs_of_nothing_are_no_trouble():
    found = Selection(candidates([0.0] * 3, [1.0, 0.7, 0.6]), "elbow")
    assert found.n_experts == 2
    assert codes(found.notes) == ["slight_bend"] and found.notes[0].facts == {"experts": 2}
    assert Selection(candidates([0.0] * 4, [1.0, 1e-17, 0.0, 0.0]), "elbow").n_experts == 2


def test_notes_name_the_end_of_the_range_and_a_likelihood_that_falls():
    found = Selection(candidates([-90.0, -50.0, -60.0, -10.0]))
    assert codes(found.notes) == ["largest_tried", "of_candidate"]
    assert [note.facts["experts"] for note in found.notes] == [4, 3]
    warnings = [row["warnings"] for row in found.records()]
    assert warnings == [(), (), (Warn.LESS_LIKELY(fewer=2),), ()]
    backwards = Selection(candidates([-3.0, -2.0, -1.0])[::-1])  # they are put in order
    assert [c.n_experts for c in backwards.candidates] == [1, 2, 3]


def test_its_name_is_short(found):
    assert repr(found) == "Selection(of 1, 2, 3, 4 experts, criterion='bic')"


def test_the_text_is_a_table_with_a_mark_at_the_best(found):
    lines = str(found).splitlines()
    assert lines[0].split()[:4] == ["K", "parameters", "log-likelihood", "BIC"]
    assert "R_c" not in lines[0]
    assert [line.startswith("*") for line in lines[1:5]] == [False, False, True, False]
    assert f"{found.candidates[2].bic:,.1f}" in lines[3]
    assert "* 3 experts, by BIC." in lines


ZERO = {"name": "n_experts", "value": 0}


@pytest.mark.parametrize(
    ("call", "code", "facts"),
    [
        (lambda X, y: select_n_experts(X, y, []), "no_numbers", {}),
        (lambda X, y: select_n_experts(X, y, [0, 1]), "not_whole", ZERO),
        (lambda X, y: select_n_experts(X, y, 3), "one_number", {"value": 3}),
        (lambda X, y: select_n_experts(X, y, criterion="aic"), "not_one_of", {"value": "aic"}),
        (lambda X, y: select_n_experts(X, y, criterion="elbow"), "elbow_on_rows", {}),
        (lambda X, y: Selection(candidates([0.0, 1.0])).best("elbow"), "no_elbow", {}),
        (lambda X, y: select_n_experts(X, y, criterion="expected_bic"), "no_expectation", {}),
        (lambda X, y: Selection(candidates([0.0])).best("expected_bic"), "no_expectation", {}),
        (
            lambda X, y: select_from_messages([], X, [1, 2], criterion="elbow"),
            "elbow_too_few",
            {"numbers": [1, 2]},
        ),
        (
            lambda X, y: select_from_messages([], X, criterion="bic"),
            "not_one_of",
            {"value": "bic", "choices": ["elbow", "expected_bic"]},
        ),
        (lambda X, y: select_from_messages([], X), "no_messages", {}),
    ],
)
def test_mistakes_are_named(data, call, code, facts):
    refused(code, (ValueError, TypeError), **facts).by(call, data.X, data.y)


# -- shards and sites ----------------------------------------------------------------------------


def test_scores_of_shards_are_those_of_all_rows(over, data):
    for c in over.candidates:
        assert_allclose(c.log_likelihood, c.model.log_density(data.X, data.y).sum(), rtol=1e-10)
        assert c.score.n_samples == 1500
        assert_allclose(c.cost, c.aggregation.cost)


def test_the_elbow_asks_nobody(shards):
    est = DistributedMoERegressor(**FAST)
    found = select_over_shards(shards, range(2, 5), estimator=est, criterion="elbow")
    assert found.n_experts == 3
    assert all(c.score is None for c in found.candidates)
    refused("no_likelihoods").by(found.best, "bic")


@pytest.mark.parametrize("how", [{"refine": "auto"}, {"method": "em"}])
def test_refined_candidates_are_as_likely_as_fits_of_all_rows(shards, over, found, how):
    est = DistributedMoERegressor(**how, **FAST)
    refined = select_over_shards(shards, [1, 3, 4], estimator=est)
    assert refined.n_experts == 3
    merged, best, exact = over.candidates[2], refined.candidates[1], found.candidates[2]
    assert merged.log_likelihood < exact.log_likelihood - 0.01  # unlike what follows
    assert_allclose(best.log_likelihood, exact.log_likelihood, atol=1e-3)
    assert_allclose(refined.candidates[0].bic, found.candidates[0].bic, atol=1e-3)


def test_a_refined_model_that_is_less_likely_is_not_taken(shards, over, monkeypatch):
    def astray(shards, model, rounds, **options):
        spoilt = replace(model, experts=replace(model.experts, coef=model.experts.coef + 1))
        return Refinement(spoilt, options["scaling"], options["ridge"])

    monkeypatch.setattr(select, "refine_shards", astray)
    est = DistributedMoERegressor(refine=1, **FAST)
    found = select_over_shards(shards, range(1, 5), estimator=est)
    assert_allclose([c.bic for c in found.candidates], [c.bic for c in over.candidates])


def test_shards_that_fail_are_named(data):
    good = shards_from((data.X, data.y), cut=2)
    bad = replace(good[0], name="small", X=data.X[:2], y=data.y[:2])
    est = DistributedMoERegressor(**FAST)
    found = select_over_shards([*good, bad], [1, 2, 3], estimator=est, on_error="skip")
    assert found.best().score.n_samples == 1500
    assert found.notes[0].code == "shard_failed" and found.notes[0].sites == ("small",)
    assert found.notes[0].facts["cause"].code == "shard_too_small"


def test_shards_without_rows_are_skipped_and_named(data):
    good = shards_from((data.X, data.y), cut=2)
    empty = replace(good[0], name="empty", X=data.X[:0], y=data.y[:0])
    est = DistributedMoERegressor(**FAST)
    found = select_over_shards([*good, empty], [1, 2, 3], estimator=est)
    assert found.best().score.n_samples == 1500
    assert found.notes[0].code == "empty_shards" and found.notes[0].sites == ("empty",)


def test_classes_over_shards():
    data = simulate(1500, 2, 2, family="logistic", random_state=0)
    y = np.array(["no", "yes"])[data.y.astype(int)]
    est = DistributedMoEClassifier(**FAST)
    found = select_over_shards(shards_from((data.X, y), cut=2), [1, 2], estimator=est)
    for c in found.candidates:
        expected = c.estimator.log_density(data.X, y).sum()
        assert_allclose(c.log_likelihood, expected, rtol=1e-10)


def test_the_order_of_sites_changes_nothing(messages, data):
    found = select_from_messages(messages, data.X[:300], [1, 2, 3])
    other = select_from_messages(messages[::-1], data.X[:300], [1, 2, 3])
    assert_array_equal(found.bend, other.bend)
    for a, b in zip(found.candidates, other.candidates, strict=True):
        assert_array_equal(a.model.to_vector(), b.model.to_vector())
    models = [c.model for c in found.candidates]
    parts = np.array_split(np.arange(1500), 3)
    answers = {f"s{m}": candidate_scores(models, data.X[p], data.y[p]) for m, p in enumerate(parts)}
    one, other = (found.scored(said) for said in (answers, dict(reversed(answers.items()))))
    assert [c.bic for c in one.candidates] == [c.bic for c in other.candidates]


def test_what_is_expected_of_candidates_is_seen_at_the_same_places(messages, data):
    found = select_from_messages(messages, data.X[:900], [1, 3, 4])
    assert found.n_experts == 3 and found.best("elbow").n_experts == 3
    rows = prepare(messages, data.X[:900], 4).fresh_rows
    for c in found.candidates:
        assert c.expectation.n_samples == 1500
        assert c.aggregation.method == "kl"
        lost, apart = rows.losses(c.model, 3), rows.distances(c.model, 3)
        assert_allclose(c.lost, lost.mean(), rtol=1e-9)  # sites have as many rows each
        assert_allclose(c.apart, apart.mean(), rtol=1e-9)
        assert 0 < c.apart < 4
    near = found.candidates[1]
    assert_allclose(near.apart, near.lost, rtol=0.3)  # the same for models that are near
    assert found.scored(
        {"all": candidate_scores([c.model for c in found.candidates], data.X, data.y)}
    )
    names = {w.code for c in found.candidates for w in c.warnings}
    assert "sites_differ" not in names  # with one expert they do


def test_two_numbers_are_enough_without_an_elbow(messages, data):
    found = select_from_messages(messages, data.X[:300], [2, 3])
    assert found.n_experts == 3 and np.all(np.isnan(found.bend))
    one = select_from_messages(messages, data.X[:300], [3], method="reduction")
    assert one.candidates[0].aggregation.method == "reduction"
    elbow = select_from_messages(messages, data.X[:300], [1, 2, 3], criterion="elbow")
    assert elbow.criterion == "elbow" and elbow.n_experts == 2


def test_one_expert_is_found_from_messages_alone():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 2))
    y = X @ [1.0, -2.0] + rng.standard_normal(1200)
    sent = [MoERegressor(3, **FAST).fit(X[m::3], y[m::3]).to_message(f"site {m}") for m in range(3)]
    found = select_from_messages(sent, X, [1, 2, 3])
    assert found.n_experts == 1 and found.best("elbow").n_experts == 2


def test_what_few_rows_of_a_site_predict_far_away_calls_for_no_expert():
    """A hundredth of one site, six standard deviations off, is many nats but not far apart."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 2))
    plain = MoE(
        SoftmaxGate(np.zeros((1, 3))), GaussianExperts(np.array([[0, 1.0, -2]]), np.ones(1))
    )
    odd = MoE(
        SoftmaxGate(np.array([[np.log(99), 0, 0], [0, 0, 0]])),
        GaussianExperts(np.array([[0, 1.0, -2], [6, 1, -2]]), np.ones(2)),
    )
    sent = [
        LocalModel(f"site {m}", model, 500.0 + m, -700.0, True, "done")
        for m, model in enumerate([odd, plain, plain])
    ]
    found = select_from_messages(sent, X, [1, 2])
    n = found.candidates[0].expectation.n_samples
    by_nats = [2 * n * c.lost + c.n_parameters * np.log(n) for c in found.candidates]
    assert by_nats[0] > by_nats[1] and found.n_experts == 1


def test_shards_need_no_second_pass_for_what_is_expected(shards):
    est = DistributedMoERegressor(**FAST)
    found = select_over_shards(shards, [2, 3], estimator=est, criterion="expected_bic")
    assert found.n_experts == 3 and all(c.score is None for c in found.candidates)


def test_shards_are_judged_at_their_own_covariates(rng, monkeypatch):
    X = np.concatenate([rng.normal(m, 0.3, size=(400, 1)) for m in (-3.0, 3.0)])
    y = X[:, 0] * np.repeat([1.0, -1.0], 400) + rng.normal(0, 0.3, 800)  # each its own line
    parts = [RowsShard(name, X, y, index=np.arange(400) + 400 * m) for m, name in enumerate("ab")]
    seen = []

    def prepared(messages, support, *rest):
        seen.append(support)
        return prepare(messages, support, *rest)

    monkeypatch.setattr(merging, "prepare", prepared)
    est = DistributedMoERegressor(**FAST)
    found = select_over_shards(parts, [1, 2], estimator=est, criterion="expected_bic")
    (support,) = seen
    for m, name in enumerate("ab"):
        own = {float(x) for x in X[400 * m : 400 * (m + 1), 0]}
        rows = support.by_site()[name]
        assert len(rows) > 100 and {float(x) for x in rows[:, 0]} <= own
    # at the other's covariates, far away, a shard's model expects something else
    common = select_from_messages(found.best().aggregation.messages, X[::2], [1, 2])
    assert all(
        here.lost < 0.5 * there.lost
        for here, there in zip(found.candidates, common.candidates, strict=True)
    )


def test_names_of_features_and_classes_are_those_of_the_messages(data):
    import pandas as pd

    X = pd.DataFrame(data.X, columns=["age", "dose", "weight"])
    y = np.where(data.y > np.median(data.y), "high", "low")
    sent = [
        MoEClassifier(2, **FAST).fit(X.iloc[m::2], y[m::2]).to_message(f"site {m}") for m in (0, 1)
    ]
    for c in select_from_messages(sent, X.iloc[:300], [1, 2]).candidates:
        assert c.model.feature_names == ("age", "dose", "weight")
        assert c.model.classes.tolist() == ["high", "low"]


def test_a_site_in_two_halves_changes_nothing(messages, data):
    half = messages[0].n_samples / 2
    halves = [replace(messages[0], site=name, n_samples=half) for name in ("left", "right")]
    found = select_from_messages(messages, data.X[:300], [1, 2, 3])
    split = select_from_messages([*halves, *messages[1:]], data.X[:300], [1, 2, 3])
    assert_allclose(split.bend, found.bend, rtol=1e-8)
    assert_allclose(
        [c.expected_bic for c in split.candidates],
        [c.expected_bic for c in found.candidates],
        rtol=1e-8,
    )
    models = [c.model for c in found.candidates]
    whole = {"all": candidate_scores(models, data.X, data.y)}
    cut = {
        "left": candidate_scores(models, data.X[:700], data.y[:700]),
        "right": candidate_scores(models, data.X[700:], data.y[700:]),
    }
    for a, b in zip(found.scored(whole).candidates, found.scored(cut).candidates, strict=True):
        assert_allclose(a.bic, b.bic, rtol=1e-12)
        assert_allclose(a.icl, b.icl, rtol=1e-12)


def test_local_fits_with_too_few_rows_are_mentioned(messages, data):
    n_parameters = messages[0].model.n_parameters
    for rows, said in [(9.9 * n_parameters, True), (10.1 * n_parameters, False)]:
        some = [replace(message, n_samples=rows) for message in messages]
        notes = select_from_messages(some, data.X[:300], [1, 2, 3]).notes
        thin = [note.facts["ratio"] for note in notes if note.code == "thin_sites"]
        assert thin == ([pytest.approx(9.9)] if said else [])


def test_answers_about_other_models_are_refused(messages, data):
    found = select_from_messages(messages, data.X[:300], [1, 2, 3])
    some = candidate_scores([found.candidates[0].model], data.X, data.y)
    refused("scores_count", site="lyon", models=1, wanted=3).by(found.scored, {"lyon": some})
    refused("no_scores").by(found.scored, {})


@pytest.mark.slow
def test_the_page_runs_and_every_way_finds_the_number():
    text = (Path(__file__).parents[2] / "docs" / "choice_of_k.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 5
    here = {}
    chosen = []
    for block in blocks:
        exec(block, here)
        chosen.append(here["found"].n_experts)
    assert here["est"].n_experts == 3
    assert chosen == [3, 3, 3, 3, 3]


# -- the command line ----------------------------------------------------------------------------


ELBOW = ["--criterion", "elbow", "--n-jobs", "1"]


@pytest.fixture
def files(data, tmp_path):
    for i, part in enumerate(np.array_split(np.arange(900), 2)):
        columns = {f"x{j}": data.X[part, j] for j in range(3)} | {"y": data.y[part]}
        pq.write_table(pa.table(columns), tmp_path / f"part-{i}.parquet")
    return tmp_path


def test_the_command_says_what_python_says(files):
    report = told("select", files, "--target", "y", "--experts", "2-4", "--n-jobs", "1")
    found = select_over_shards(shards_from([str(files)], target="y"), [2, 3, 4])
    assert report["n_experts"] == found.n_experts == 3
    assert report["elbow"] == found.best("elbow").n_experts
    assert_allclose([row["bic"] for row in report["table"]], [c.bic for c in found.candidates])
    assert report["table"][0]["bend"] is None


def test_the_command_prints_the_table_and_refuses_numbers_that_are_none(files):
    out = fine("select", files, "--target", "y", "--experts", "2,3,4", *ELBOW)
    assert "* 3 experts, by the elbow of R_c." in out.stdout
    assert " BIC " not in out.stdout.replace("expected BIC", "")
    out = call("select", files, "--target", "y", "--experts", "2-x")
    assert out.exit_code == 2 and "'2-x'" in out.stderr
    fails("select", files, "--target", "y", "--experts", "2,3", *ELBOW, code="elbow_too_few")


@pytest.fixture
def inbox(data, tmp_path):
    for name, rows in {"lyon": slice(0, 450), "nantes": slice(450, 900)}.items():
        est = MoERegressor(4, random_state=0).fit(data.X[rows], data.y[rows])
        message = est.to_message(name, data.X[rows], sketch=True)
        message.save(tmp_path / f"{name}.moe.json")
    return tmp_path / "*.moe.json"


def test_the_elbow_of_messages_is_that_of_python(inbox, tmp_path):
    report = told("elbow", inbox, "--experts", "1-4", "--n-support", "500")
    messages = [LocalModel.load(tmp_path / f"{name}.moe.json") for name in ("lyon", "nantes")]
    found = select_from_messages(messages, 500, range(1, 5))
    assert report["n_experts"] == report["elbow"] == found.n_experts == 3
    assert_allclose([row["cost"] for row in report["table"]], [c.cost for c in found.candidates])
    assert report["expected_bic"] == 3 and report["criterion"] == "expected_bic"
    for key in ("lost", "apart", "expected_bic"):
        assert_allclose(
            [row[key] for row in report["table"]], [getattr(c, key) for c in found.candidates]
        )
    out = fine("elbow", inbox, "--experts", "1-4").stdout
    assert "expected BIC" in out and "R_c" in out and "own models expect" in out
    assert max(map(len, out.splitlines())) <= 80
    out = fine("elbow", inbox, "--experts", "1-4", "--criterion", "elbow").stdout
    assert "by the elbow of R_c" in out
    report = told("elbow", inbox, "--experts", "2,3")
    assert report["n_experts"] == 3 and report["elbow"] is None


def test_the_elbow_needs_three_numbers_and_something_to_compare_at(inbox, tmp_path):
    args = ["--experts", "2,3", "--criterion", "elbow"]
    fails("elbow", inbox, *args, code="elbow_too_few", numbers=[2, 3])
    bare = LocalModel.load(tmp_path / "lyon.moe.json")
    replace(bare, sketch=None, support=None).save(tmp_path / "bare.json")
    fails("elbow", tmp_path / "bare.json", code="shell_no_support")
