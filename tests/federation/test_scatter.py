"""The sandwich over sites: scatters that sites agree to send, and what the server makes of them."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from oracles import random_model, random_rows
from refusals import NOTHING, cases, codes, put, refused, refused_document

from otmoe import LocalModel, aggregate, shards_from, simulate
from otmoe.aggregation.record import refined_document
from otmoe.data.shards import ArrayShard
from otmoe.distributed.passes import inference_shards
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.state import RefineState
from otmoe.evaluation.filed import FiledInference
from otmoe.federation.rounds import LEAST_GROUPS, begin, reply_from, reply_to, request_of, step
from otmoe.inference import observed_inference
from otmoe.likelihood.fit import em
from otmoe.likelihood.grouped import Scatter, score_scatter
from otmoe.likelihood.rounds import advance
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge
from otmoe.reporting.data import page_data
from otmoe.text.errors import InferenceError, ShardError
from otmoe.text.records import typed

SITES = {"Brest": slice(0, 900), "Lyon": slice(900, 1200), "Nantes": slice(1200, 3000)}
N = 3000
RIDGE = Ridge(1e-3, 0.0)


@dataclass(frozen=True)
class Case:
    """Rows of three sites, in groups that lie within one, and the model fitted to all."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray
    model: object

    def rows(self, part):
        return Rows(self.X[part], self.y[part], self.weight[part])

    def observed(self, **options):
        given = {"sample_weight": self.weight, "alpha": RIDGE.gate, "expert_alpha": RIDGE.experts}
        return observed_inference(self.model, self.X, self.y, **given, **options)

    def begin(self, sites=SITES, **options):
        """Begin at the maximum, so that the first round is the last."""
        sizes = {name: float(self.weight[part].sum()) for name, part in sites.items()}
        known = {"ridge": RIDGE, "sandwich": True}
        return begin(self.model, sizes, Scaling.of(self.X[:300]), **known, **options)

    def replies(self, state, sites=SITES, by=None, **options):
        """Return what sites reply that agree, by group unless `by` says otherwise."""
        found = []
        for name, part in sites.items():
            how = {"groups": self.groups[part]} if by is None else by[name]
            reply = reply_to(by_mail(request_of(state)), self.rows(part), name, **how, **options)
            found.append(by_mail(reply))
        return found

    def stepped(self, sites=SITES, by=None):
        state = self.begin(sites)
        return by_mail(step(state, self.replies(state, sites, by)))


def by_mail(thing):
    return type(thing).from_json(thing.to_json())


def made(family):
    data = simulate(N, 2, 2, family=family, n_classes=3, softness=1.0, random_state=3)
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2, N)
    weight[::50] = 0.0  # no rows
    options = {"sample_weight": weight, "family": family, "n_classes": 3}
    options |= {"alpha": RIDGE.gate, "expert_alpha": RIDGE.experts}
    model = em(data.X, data.y, 2, init=data.truth, **options).model
    groups = np.concatenate(
        [1000 * m + rng.integers(0, 60, p.stop - p.start) for m, p in enumerate(SITES.values())]
    )
    return Case(data.X, data.y, weight, groups, model)


@pytest.fixture(scope="module")
def case():
    return made("gaussian")


def assert_same(found, expected):
    """Assert that two inferences have the same covariance, to eight digits of standard errors."""
    a, b = found.covariance.matrix, expected.covariance.matrix
    unit = 1 / np.sqrt(np.diagonal(b))
    assert np.all(np.isfinite(unit))
    assert_allclose(a * unit[:, None] * unit, b * unit[:, None] * unit, rtol=1e-8, atol=1e-8)
    assert (found.kind, found.n_groups) == (expected.kind, expected.n_groups)


# -- laws ------------------------------------------------------------------------------------------


def test_by_files_it_is_the_clustered_covariance_of_pooled_rows(family):
    case = made(family)
    state = case.stepped()
    assert state.refinement.converged and state.refinement.best.unscattered == ()
    found = state.inference()
    assert found.kind == "clustered" and codes(found.warnings) == []
    assert_same(found, case.observed(groups=case.groups))


def test_and_that_of_shards(case):
    names = [f"x{j}" for j in range(case.X.shape[1])]
    frame = pd.DataFrame(case.X, columns=names)
    frame = frame.assign(y=case.y, weight=case.weight, person=case.groups)
    shards = shards_from(frame, target="y", weight="weight", groups="person", cut=4)
    assert_same(
        case.stepped().inference(),
        inference_shards(shards, case.model, ridge=RIDGE, groups="person"),
    )


def test_without_groups_it_is_the_sandwich_of_pooled_rows(case):
    state = case.stepped(by=dict.fromkeys(SITES, {"sandwich": True}))
    assert_same(state.inference(), case.observed(kind="sandwich"))
    assert state.refinement.best.scatter.n_rows == np.sum(case.weight > 0)


def test_sites_that_name_no_groups_have_one_for_each_row_among_those_that_do(case):
    by = {name: {"groups": case.groups[part]} for name, part in SITES.items()}
    by["Lyon"] = {"sandwich": True}
    groups = case.groups.copy()
    groups[SITES["Lyon"]] = -np.arange(300) - 1
    assert_same(case.stepped(by=by).inference(), case.observed(groups=groups))


def test_a_site_cut_between_groups_changes_nothing(case):
    order = np.argsort(case.groups, kind="stable")
    sorted_ = replace(
        case,
        **{name: getattr(case, name)[order] for name in ("X", "y", "weight", "groups")},
    )
    cut = 1200 + int(np.searchsorted(sorted_.groups[SITES["Nantes"]], 2030))
    halves = {**SITES, "Nantes": slice(1200, cut), "Nantes too": slice(cut, N)}
    assert_same(sorted_.stepped(halves).inference(), sorted_.stepped().inference())
    # within a group it does: the sites do not know that they have one in common
    halves = {**SITES, "Nantes": slice(1200, cut + 1), "Nantes too": slice(cut + 1, N)}
    assert sorted_.groups[cut] == sorted_.groups[cut + 1]
    n_groups = len(set(case.groups[case.weight > 0]))
    assert sorted_.stepped().inference().n_groups == n_groups
    assert sorted_.stepped(halves).inference().n_groups == n_groups + 1


def test_the_names_of_groups_stay_at_the_site_and_do_not_matter(case):
    named = np.array([f"patient {g}" for g in case.groups])
    alike = case.groups % 1000  # the same labels at every site: these are different groups
    there = case.stepped().inference()
    for groups in (named, alike):
        other = replace(case, groups=groups)
        assert_same(other.stepped().inference(), there)
    reply = replace(case, groups=named).replies(case.begin())[0]
    assert "patient" not in reply.to_json()


def test_scatters_add_up_in_any_order(case):
    parts = [
        score_scatter(case.model, case.rows(p), case.groups[p] if i else None)
        for i, p in enumerate(SITES.values())
    ]
    one, two = parts[0] + parts[1] + parts[2], parts[2] + (parts[0] + parts[1])
    assert_allclose(one.matrix, two.matrix, rtol=1e-12)
    assert (one.n_rows, one.n_groups) == (two.n_rows, two.n_groups)
    assert parts[0].n_groups is None and one.n_groups == sum(part.n_scores for part in parts)


# -- who sends it ----------------------------------------------------------------------------------


def test_nothing_more_leaves_unless_it_is_asked_for_and_agreed_on(case):
    rows, groups = case.rows(SITES["Lyon"]), case.groups[SITES["Lyon"]]
    asked = request_of(case.begin())
    plain = request_of(
        replace(case.begin(), refinement=replace(case.begin().refinement, sandwich=False))
    )
    assert '"sandwich"' not in plain.to_json() and by_mail(asked).sandwich
    reply = reply_to(plain, rows, "Lyon").to_json()
    assert '"scatter"' not in reply
    assert reply_to(asked, rows, "Lyon").to_json() == reply
    assert reply_to(plain, rows, "Lyon", groups=groups, sandwich=True).to_json() == reply
    more = json.loads(reply_to(asked, rows, "Lyon", groups=groups).to_json())
    assert list(more.pop("scatter")) == ["n_rows", "n_groups", "matrix"]
    assert more == json.loads(reply)
    by_row = json.loads(reply_to(asked, rows, "Lyon", sandwich=True).to_json())
    assert list(by_row["scatter"]) == ["n_rows", "matrix"]


def test_what_was_not_asked_for_is_not_kept(case):
    state = case.begin()
    silent = replace(state, refinement=replace(state.refinement, sandwich=False))
    after = step(silent, case.replies(state))
    assert after.refinement.best.scatter is None and after.inference().kind == "information"
    assert "scatter" not in after.to_json()


@pytest.mark.parametrize("silent", [["Lyon"], ["Brest", "Lyon", "Nantes"]])
def test_where_a_site_lacks_it_errors_are_by_the_information_and_say_so(case, silent):
    by = {name: {"groups": case.groups[part]} for name, part in SITES.items()}
    state = case.stepped(by=by | dict.fromkeys(silent, {}))
    assert list(state.refinement.best.unscattered) == silent
    assert json.loads(state.to_json())["best"]["unscattered"] == silent
    found = state.inference()
    assert codes(found.warnings) == ["scatter_missing"]
    assert list(found.warnings[0].sites) == silent
    assert_same(found, case.observed())


def test_a_site_that_misses_the_round_is_not_in_the_scatter_either(case):
    state = case.begin()
    after = step(state, case.replies(state)[1:], allow_missing=True).refinement
    parts = [case.replies(state)[i].content.scatter for i in (1, 2)]
    assert_allclose(after.best.scatter.matrix, (parts[0] + parts[1]).matrix)
    assert after.best.unscattered == () and list(after.best.log_likelihood) == ["Lyon", "Nantes"]


def test_a_step_that_is_taken_back_leaves_the_scatter_of_the_best(case):
    state = case.stepped()
    far = case.model.with_vector(case.model.to_vector() + 1.0)
    away = replace(state, refinement=replace(state.refinement, model=far, decrement=1.0))
    after = advance(away.refinement, [reply.content for reply in case.replies(away)])
    assert after.rounds == 2 and after.best is away.refinement.best


def test_few_groups_are_not_spoken_of(case):
    part = SITES["Lyon"]
    request, rows = request_of(case.begin()), case.rows(part)
    groups = np.arange(300) % LEAST_GROUPS
    assert reply_to(request, rows, "Lyon", groups=groups).content.scatter.n_groups == LEAST_GROUPS
    with refused("few_groups_to_send", groups=9, least=10):
        reply_to(request, rows, "Lyon", groups=groups % 9)
    few = Rows(case.X[:9], case.y[:9])
    refused("few_groups_to_send", groups=9).by(reply_to, request, few, "Lyon", sandwich=True)
    assert reply_to(request, few, "Lyon").content.scatter is None


def test_a_site_reads_its_groups_and_every_row_has_one(case):
    part = SITES["Lyon"]
    request, labels = request_of(case.begin()), case.groups[part].astype(object)
    shard = ArrayShard(
        *("Lyon", case.X[part], case.y[part], case.weight[part]),
        beside={"patient": labels},
        groups="patient",
    )
    reply, rows = reply_from(request, shard)
    there = reply_to(request, case.rows(part), "Lyon", groups=case.groups[part])
    assert reply.to_json() == there.to_json() and len(rows.groups) == 300
    other = replace(shard, groups="ward")
    refused("no_groups_known", ShardError, column="ward").by(reply_from, request, other)
    labels[7] = None
    refused("group_missing", ShardError, row=7, count=1).by(reply_from, request, shard)
    few = replace(shard, beside={"patient": np.zeros(300, int)})
    refused("few_groups_to_send", ShardError, where="Lyon").by(reply_from, request, few)


# -- documents -------------------------------------------------------------------------------------


def test_an_honest_scatter_is_taken_at_any_model(rng, family):
    """The scores need not be near zero, nor the groups alike, for the check to let them pass."""
    for size in (0.1, 3.0) if family == "gamma" else (0.1, 3.0, 30.0):  # e^30 is no mean
        model = random_model(rng, 3, 2, family=family)
        X, y = random_rows(rng, model, 120)
        far = model.with_vector(model.to_vector() + size * rng.normal(size=model.n_parameters))
        weight = rng.uniform(0, 2, 120) ** 4
        state = begin(far, {"Lyon": weight.sum()}, Scaling.of(X), sandwich=True)
        for groups in (
            None,
            np.arange(120) % 10,
            np.repeat(np.arange(12), 10),
            rng.geometric(0.1, 120),
        ):
            rows = Rows(X, y, weight)
            reply = reply_to(request_of(state), rows, "Lyon", sandwich=True, groups=groups)
            assert by_mail(reply).to_json() == reply.to_json()
    same = Rows(np.repeat(X[:1], 40, axis=0), np.repeat(y[:1], 40))  # nothing is left but rounding
    by_mail(reply_to(request_of(state), same, "Lyon", groups=np.arange(40) // 2))


def test_a_state_comes_back_as_it_was_and_an_old_one_is_read(case):
    state = case.stepped()
    assert by_mail(state).to_json() == state.to_json()
    assert by_mail(case.begin()).refinement.sandwich
    old = json.loads(state.to_json())
    del old["sandwich"], old["best"]["scatter"]
    found = RefineState.from_json(json.dumps(old))
    assert not found.refinement.sandwich and found.inference().kind == "information"
    assert json.loads(found.to_json()) == old


P = 11
A = [0.0] * (P * (P + 1) // 2)
REPLY, STATE = "lyon.json", "state.json"
SPOILT = [
    (REPLY, "scatter.matrix", [1.0], "triangle scatter.matrix", {"size": P, "wanted": len(A)}),
    (REPLY, "scatter.matrix.3", float("nan"), "field_nan scatter.matrix[3]"),
    (REPLY, "scatter.matrix.3", float("inf"), "field_infinite scatter.matrix[3]"),
    (REPLY, "scatter.matrix.3", 1e31, "field_too_large scatter.matrix[3]"),
    (REPLY, "scatter.matrix.0", -1e-12, "not_a_scatter scatter.matrix"),
    (REPLY, "scatter.matrix.1", 1e30, "not_a_scatter scatter.matrix"),
    (REPLY, "scatter.matrix", A, "not_a_scatter scatter.matrix"),
    (REPLY, "scatter.matrix", NOTHING, "field_missing scatter.matrix"),
    (REPLY, "scatter.n_groups", 0, "field_not_positive scatter.n_groups"),
    (REPLY, "scatter.n_groups", 2.5, "field_whole scatter.n_groups"),
    (REPLY, "scatter.n_groups", 295, "groups_above_rows scatter.n_groups", {"rows": 294}),
    (REPLY, "scatter.n_rows", 0, "field_not_positive scatter.n_rows"),
    (REPLY, "scatter.n_rows", 12, "groups_above_rows scatter.n_groups", {"rows": 12}),
    (REPLY, "scatter.labels", ["a"], "field_unknown scatter.labels"),
    (REPLY, "scatter", [], "field_object scatter"),
    (STATE, "sandwich", "yes", "field_boolean sandwich"),
    (STATE, "best.scatter.matrix", [1.0], "triangle best.scatter.matrix", {"size": P}),
    (STATE, "best.scatter.matrix.0", -1.0, "not_a_scatter best.scatter.matrix"),
    (STATE, "best.unscattered", ["Metz"], "state_sites best.unscattered"),
]


@pytest.mark.parametrize(("file", "path", "value", "problem", "facts"), cases(SPOILT))
def test_a_spoilt_scatter_is_refused_with_a_sentence(case, file, path, value, problem, facts):
    found = {REPLY: case.replies(case.begin())[1], STATE: case.stepped()}[file]
    document = put(json.loads(found.to_json()), path, value)
    refused_document(type(found), document, file, problem, facts)


def test_a_scatter_of_other_scores_than_those_beside_it_is_refused(case):
    reply = case.replies(case.begin())[1]
    scatter = reply.content.scatter
    small = replace(scatter, matrix=1e-6 * scatter.matrix)
    with refused("not_a_scatter scatter.matrix"):
        replace(reply, content=replace(reply.content, scatter=small))
    fewer = replace(scatter, n_groups=1)  # of rank one, then
    with refused("not_a_scatter scatter.matrix"):
        replace(reply, content=replace(reply.content, scatter=fewer))


def test_one_group_in_all_gives_no_standard_errors(case):
    state = begin(case.model, {"Lyon": 300.0}, Scaling.of(case.X), sandwich=True)
    rows = Rows(case.X[:300], case.y[:300])
    reply = reply_to(request_of(state), rows, "Lyon")
    score = reply.content.information.score
    alone = replace(reply.content, scatter=Scatter(np.outer(score, score), 300, 1))
    after = step(state, [replace(reply, content=alone)])
    refused("one_group", InferenceError, groups=1).by(after.inference)


def test_a_model_file_and_its_report_say_how_many_groups_there_are(case):
    fits = {
        name: em(*(getattr(case.rows(part), a) for a in "Xy"), 2, init=case.model)
        for name, part in SITES.items()
    }
    merging = aggregate([LocalModel.from_fit(fit, name) for name, fit in fits.items()], case.X)
    record = typed(AggregationRecord, merging.document(), "aggregation")
    said = {}
    for kind, by in {
        "clustered": None,
        "sandwich": dict.fromkeys(SITES, {"sandwich": True}),
        "information": dict.fromkeys(SITES, {}),
    }.items():
        state = case.stepped(by=by)
        found = refined_document(record, state.refinement, "auto", state.sites)
        assert found["inference"]["kind"] == kind
        expected = merging.refined(state.refinement, "auto").document()
        assert expected.pop("gate")  # which the server of the rounds cannot average
        assert found == expected
        again = typed(AggregationRecord, found, "aggregation")
        assert again.inference.n_groups == state.inference().n_groups
        assert ("n_groups" in found["inference"]) == (kind == "clustered")
        page = page_data(state.model, again, None, {}, "page")["model"]
        said[kind] = page["intervals_from"]
        there = state.inference()
        assert again.inference.df == there.df
        ends = [[row["low"], row["high"]] for row in page["estimates"]]
        assert_allclose(ends, [[row.low, row.high] for row in there.table()], rtol=1e-9)
        filed = FiledInference.read(state.model, again.inference)
        some = np.eye(state.model.n_parameters)[4:5]
        assert_allclose(filed.linear(some)[0].p, there.linear(some)[0].p, rtol=1e-6)
    groups = len(set(case.groups[case.weight > 0]))
    assert f"{groups} groups" in said["clustered"] and len(set(said.values())) == 3
    assert f"t quantiles with {groups - 1} degrees of freedom" in said["clustered"]
    assert "quantiles" not in said["sandwich"] + said["information"]
    assert f"{groups}" in case.stepped().inference().summary()
