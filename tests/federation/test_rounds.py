"""Refine rounds by files: the same steps as over an executor, and nothing else is taken in."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import distance, nearby
from refusals import NOTHING, cases, put, refused, refused_document

from otmoe import FeatureSpec, Limits, LocalModel, aggregate, simulate
from otmoe.aggregation.record import refined_document
from otmoe.data.shards import ArrayShard, ShardError
from otmoe.distributed.rounds import refine_shards
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.reply import RefineReply
from otmoe.documents.state import RefineState
from otmoe.federation.rounds import begin, check_merged, reply_from, reply_to, request_of, step
from otmoe.inference import observed_inference
from otmoe.likelihood.fit import em
from otmoe.likelihood.rounds import MOST_ROUNDS, advance
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.text.errors import InferenceError, MessageError
from otmoe.text.records import notice_document, typed
from otmoe.text.sentences import Status

SITES = {"Brest": slice(0, 900), "Lyon": slice(900, 1500), "Nantes": slice(1500, 3000)}


@pytest.fixture(scope="module")
def data():
    return simulate(3000, 2, 2, softness=1.0, random_state=1)


@pytest.fixture(scope="module")
def scaling(data):
    return Scaling.of(data.X[:500])


def rows_of(data, sites=SITES, weight=None):
    return {
        name: Rows(data.X[part], data.y[part], None if weight is None else weight[part])
        for name, part in sites.items()
    }


def begun(data, scaling, sites=SITES, **options):
    rows = rows_of(data, sites)
    sizes = {name: part.total_weight for name, part in rows.items()}
    return begin(data.truth, sizes, scaling, **options)


def by_mail(thing):
    """Return a value as it comes out of the file that it was written to."""
    return type(thing).from_json(thing.to_json())


def replies_to(request, rows):
    return [by_mail(reply_to(by_mail(request), part, name)) for name, part in rows.items()]


def spoilt(thing, path, value):
    """Return a document as it was written, but for one place."""
    return json.dumps(put(json.loads(thing.to_json()), path, value))


# -- the same as elsewhere -------------------------------------------------------------------------


def test_the_end_is_the_pooled_fit(family, rng):
    data = simulate(3000, 2, 2, family=family, n_classes=3, softness=1.0, random_state=1)
    fit = em(data.X, data.y, 2, family=family, n_classes=3, random_state=0)
    start = nearby(rng, fit.model)
    rows = rows_of(data)
    sizes = {name: len(part) for name, part in rows.items()}
    state = begin(start, sizes, Scaling(np.array([0.3, -1.0]), np.array([2.0, 0.5])))
    while not state.done:
        state = by_mail(step(state, replies_to(request_of(state), rows)))
    assert state.refinement.converged and state.refinement.rounds <= 12
    assert distance(state.model, fit.model, data.X, data.y) < 1e-3
    assert_allclose(state.refinement.trace[-1], fit.trace[-1], rtol=1e-9)


def test_every_round_is_that_of_the_executor(data, scaling):
    shards = [ArrayShard(name, part.X, part.y) for name, part in rows_of(data).items()]
    state = begun(data, scaling)
    for rounds in range(1, 5):
        state = by_mail(step(state, replies_to(request_of(state), rows_of(data))))
        there = refine_shards(shards, data.truth, rounds, scaling=scaling)
        assert_allclose(state.model.to_vector(), there.model.to_vector(), rtol=0, atol=1e-10)
        assert_allclose(state.refinement.decrement, there.decrement, rtol=1e-6)
        assert state.refinement.rounds == rounds


def test_stopping_and_going_on_changes_no_bit(data, scaling):
    rows = rows_of(data)
    at_once = stopped = begun(data, scaling, rounds=4)
    while not at_once.done:
        at_once = step(at_once, replies_to(request_of(at_once), rows))
        replies = replies_to(request_of(stopped), rows)
        stopped = by_mail(by_mail(step(by_mail(stopped), replies)))
        assert stopped.to_json() == at_once.to_json()
        assert_array_equal(stopped.model.to_vector(), at_once.model.to_vector())
    assert stopped.refinement.rounds == 4 and stopped.done


def test_a_state_keeps_what_a_bad_step_leaves(data, scaling):
    """The radius, an infinite decrement, who was missing: all of it comes back."""
    state = step(begun(data, scaling), replies_to(request_of(begun(data, scaling)), rows_of(data)))
    far = replace(state.refinement, model=data.truth.with_vector(data.truth.to_vector() + 1.0))
    state = replace(state, refinement=replace(far, decrement=np.inf))
    some = replies_to(request_of(state), rows_of(data))[1:]
    after = step(state, some, allow_missing=True)
    assert after.refinement.radius < np.inf and after.refinement.missing == ((2, "Brest"),)
    again = by_mail(after)
    assert again.to_json() == after.to_json()
    assert again.refinement.radius == after.refinement.radius
    assert again.refinement.missing == after.refinement.missing
    assert by_mail(state).refinement.decrement == np.inf


def test_a_site_in_two_halves_changes_nothing(data, scaling):
    halves = {**SITES, "Nantes": slice(1500, 2100), "Nantes too": slice(2100, 3000)}
    states = []
    for sites in (SITES, halves):
        state = begun(data, scaling, sites)
        for _ in range(3):
            state = step(state, replies_to(request_of(state), rows_of(data, sites)))
        states.append(state)
    one, two = states
    assert_allclose(two.model.to_vector(), one.model.to_vector(), rtol=1e-9, atol=1e-10)
    assert_allclose(two.refinement.trace, one.refinement.trace, rtol=1e-12)


def test_weight_two_is_each_row_twice(data, scaling):
    double = replace(data, X=np.repeat(data.X, 2, axis=0), y=np.repeat(data.y, 2))
    twice = {name: slice(2 * part.start, 2 * part.stop) for name, part in SITES.items()}
    one = begun(double, scaling, twice)
    two = step(one, replies_to(request_of(one), rows_of(data, weight=np.full(3000, 2.0))))
    one = step(one, replies_to(request_of(one), rows_of(double, twice)))
    assert_allclose(two.model.to_vector(), one.model.to_vector(), rtol=1e-9)


def test_the_order_of_replies_does_not_matter(data, scaling):
    state = begun(data, scaling)
    replies = replies_to(request_of(state), rows_of(data))
    assert step(state, replies).to_json() == step(state, replies[::-1]).to_json()


def test_any_rough_scale_will_do(data):
    """Features far from zero and in odd units: the answer does not depend on the scale given."""
    far = replace(data, X=data.X * [1e4, 1e-3] + [5e5, 30])
    ends = []
    for part in (far.X[:300], far.X[1000:1040] * [1, 3]):
        start = em(far.X, far.y, 2, random_state=0, max_iter=3).model
        state = begin(start, {name: len(r) for name, r in rows_of(far).items()}, Scaling.of(part))
        while not state.done:
            state = step(state, replies_to(request_of(state), rows_of(far)))
        assert state.refinement.converged
        ends.append(state.model)
    assert distance(ends[0], ends[1], far.X, far.y) < 1e-3


def test_standard_errors_are_those_of_one_fit(data, scaling):
    state = begun(data, scaling)
    refused("no_round_yet", InferenceError).by(state.inference)
    while not state.done:
        state = step(state, replies_to(request_of(state), rows_of(data)))
    found = by_mail(state).inference()
    there = observed_inference(em(data.X, data.y, 2, init=state.model).model, data.X, data.y)
    assert_allclose(found.standard_errors.coef, there.standard_errors.coef, rtol=1e-3)
    assert_allclose(found.standard_errors.gate, there.standard_errors.gate, rtol=1e-3)
    assert found.n_samples == 3000


# -- how the start was merged ----------------------------------------------------------------------


def record_of(document):
    return typed(AggregationRecord, document, "aggregation")


@pytest.fixture(scope="module")
def merging(data):
    """Return an aggregation whose model is a few standard errors from the maximum."""
    fits = {
        name: em(part.X, part.y, 2, init=data.truth, max_iter=50)
        for name, part in rows_of(data).items()
    }
    messages = [LocalModel.from_fit(fit, name) for name, fit in fits.items()]
    found = aggregate(messages, data.X[:500])
    return replace(found, model=found.model.with_vector(found.model.to_vector() + 0.1))


@pytest.fixture(scope="module")
def merged(merging, scaling):
    """Return the state before the first round, which knows how its model was merged."""
    sizes = {message.site: message.n_samples for message in merging.messages}
    record = record_of(merging.document())
    return by_mail(begin(merging.model, sizes, scaling, aggregation=record))


@pytest.mark.parametrize("rounds", ["auto", 1])
def test_the_merging_is_said_as_over_an_executor(merged, merging, data, scaling, rounds):
    state = replace(merged, rounds=rounds)
    while not state.done:
        state = by_mail(step(state, replies_to(request_of(state), rows_of(data))))
    assert state.aggregation.model_dump(exclude_unset=True) == merging.document()
    found = refined_document(state.aggregation, state.refinement, rounds, state.sites)
    expected = merging.refined(state.refinement, rounds).document()
    assert expected.pop("gate")  # the server of the rounds has no support points to average over
    assert found == expected

    shards = [ArrayShard(name, part.X, part.y) for name, part in rows_of(data).items()]
    end = refine_shards(shards, merging.model, rounds, scaling=scaling)
    there = merging.refined(end, rounds).document()
    del there["gate"]
    assert found.keys() == there.keys() and ("inference" in found) == (rounds == "auto")
    assert found["sites"] == there["sites"] and found["converged"] == there["converged"]
    assert found["refinement"]["rounds"] == there["refinement"]["rounds"]
    assert found["refinement"]["status"] == there["refinement"]["status"]
    assert found["warnings"] == there["warnings"] and state.refinement.kept == end.kept
    assert_allclose(state.model.to_vector(), end.model.to_vector(), rtol=1e-7)
    assert_allclose(found["refinement"]["trace"], there["refinement"]["trace"], rtol=1e-10)
    if rounds == "auto":
        errors = [part["inference"]["standard_errors"] for part in (found, there)]
        assert_allclose(*errors, rtol=1e-6)


def test_a_second_refinement_replaces_what_the_first_said(merged, data):
    first = step(merged, replies_to(request_of(merged), rows_of(data)))
    sites = first.sites
    once = record_of(refined_document(first.aggregation, first.refinement, 1, sites))
    assert once.no_inference is not None and once.inference is None
    state = replace(merged, aggregation=once)
    while not state.done:
        state = by_mail(step(state, replies_to(request_of(state), rows_of(data))))
    twice = refined_document(state.aggregation, state.refinement, "auto", sites)
    assert "no_inference" not in twice and twice["inference"]["kind"] == "information"
    assert twice["refinement"]["rounds"] == state.refinement.rounds
    status = Status.REFINED(merging=once.status, rounds=state.refinement.status)
    assert twice["status"] == notice_document(status)

    doubt = {**twice["inference"], "warnings": ["the rows do not determine this."]}
    doubted = {**twice, "inference": doubt, "warnings": ["a site is small.", *doubt["warnings"]]}
    again = refined_document(record_of(doubted), state.refinement, "auto", sites)
    assert again["warnings"] == [{"code": "said", "text": "a site is small."}]


def test_sites_that_were_merged_or_asked_but_not_both_are_named(merged, data):
    sizes = {"Metz": merged.sites["Brest"], "Lyon": merged.sites["Lyon"]}
    state = replace(merged, sites=sizes)
    rows = rows_of(data, {"Metz": SITES["Brest"], "Lyon": SITES["Lyon"]})
    state = step(state, replies_to(request_of(state), rows))
    found = refined_document(state.aggregation, state.refinement, 1, state.sites)
    assert found["status"]["code"] == "refined_by_others"
    assert found["status"]["sites"] == ["Brest", "Nantes", "Metz"]
    assert [site["site"] for site in found["sites"]] == list(SITES)


def test_a_state_need_not_know_how_its_model_was_merged(merged):
    found = RefineState.from_json(spoilt(merged, "aggregation", NOTHING))
    assert found.aggregation is None and "aggregation" not in json.loads(found.to_json())
    assert RefineState.from_json(spoilt(merged, "aggregation", None)).aggregation is None


# -- refusals --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def state(data, scaling):
    """One round has been answered."""
    first = begun(data, scaling)
    return step(first, replies_to(request_of(first), rows_of(data)))


@pytest.fixture(scope="module")
def replies(state, data):
    return replies_to(request_of(state), rows_of(data))


def test_a_round_that_is_over_is_refused(state, replies, data, scaling):
    old = replies_to(request_of(begun(data, scaling)), rows_of(data))
    refused("reply_round", where="reply", round=1, wanted=2, site='"Brest"').by(step, state, old)
    early = [replace(reply, round=3) for reply in old]
    refused("reply_round", round=3, wanted=2).by(step, state, early)
    refused("reply_round", round=2, wanted=3).by(step, step(state, replies), replies)  # twice


def test_moments_travel_in_the_first_round_alone(data, scaling, state):
    first = begun(data, scaling)
    request, rows = request_of(first), rows_of(data)
    assert request.moments and not request_of(state).moments
    replies = replies_to(request, rows)
    assert all("x_mean" not in json.loads(r.to_json()) for r in replies_to(request_of(state), rows))
    flat = json.loads(replies[0].to_json()) | {"x_mean": [0.0], "x_var": [1.0]}
    flat = RefineReply.from_json(json.dumps(flat))
    with refused("reply_size", field="x_mean", length=1, wanted=2):
        step(first, [flat], allow_missing=True)
    without = [replace(r, content=replace(r.content, moments=None)) for r in replies]
    refused("reply_size", field="x_mean", length=0, wanted=2).by(step, first, without)
    refused("no_moments").by(advance, first.refinement, [reply.content for reply in without])


def test_a_reply_to_another_request_is_refused(state, replies, data, scaling):
    other = replace(scaling, x_scale=2 * scaling.x_scale)
    moved = replace(request_of(state), scaling=other)  # the same model on another scale
    foreign = reply_to(moved, rows_of(data)["Lyon"], "Lyon")
    refused("reply_digest", round=2).by(step, state, [replies[0], foreign, replies[2]])


def test_a_site_replies_once(state, replies):
    again = replace(replies[1], source="lyon-2.json")
    first = replace(replies[1], source="lyon-1.json")
    with refused("reply_twice", file="lyon-1.json", other="lyon-2.json", site='"Lyon"'):
        step(state, [*replies[:1], first, again])


def test_a_site_that_was_not_asked_is_refused(state, replies):
    other = replace(replies[0], content=replace(replies[0].content, site="Metz"))
    with refused("reply_unasked", site='"Metz"', sites="Brest, Lyon, Nantes"):
        step(state, [*replies, other])


def test_of_very_many_missing_sites_some_are_named(state):
    more = {f"site {i}": 10.0 for i in range(4000)}
    many = replace(state, sites={**state.sites, **more})
    with pytest.raises(MessageError, match="site 8 and 3,991 more") as caught:
        step(many, [])
    assert len(str(caught.value)) < 600


def test_missing_sites_are_named_and_waited_for_unless_allowed(state, replies):
    refused("replies_missing", round=2, names="Brest, Nantes").by(step, state, replies[1:2])
    after = step(state, replies[1:2], allow_missing=True)
    assert after.refinement.missing == ((2, "Brest"), (2, "Nantes"))
    assert after.absent == ("Brest", "Nantes") and after.refinement.best.n_samples == 600
    with refused("no_replies", round=2, names="Brest, Lyon, Nantes"):
        step(state, [], allow_missing=True)


def test_other_rows_than_those_of_the_fit_are_refused(state, data):
    rows = rows_of(data, weight=np.full(3000, 2.0))["Lyon"]
    reply = reply_to(request_of(state), rows, "Lyon")
    with refused("reply_rows", site='"Lyon"', rows=1200, fitted=600):
        step(state, [reply], allow_missing=True)


def test_a_reply_about_a_model_of_another_size_is_refused(state, replies, data):
    document = json.loads(replies[0].to_json())
    small = dict(document, score=[1.0, 2.0], information=[1.0, 0.0, 1.0])
    with refused("reply_size", field="score", length=2, wanted=11):
        step(state, [RefineReply.from_json(json.dumps(small))])
    three = dict(document, mass=[*document["mass"], 0.0])
    with refused("reply_size", field="mass", length=3, wanted=2):
        step(state, [RefineReply.from_json(json.dumps(three))])


def test_replies_from_which_no_step_can_be_taken_are_refused(state, replies):
    P = len(replies[0].content.information.score)
    wild = {"information": [1e30] * (P * (P + 1) // 2), "score": [1e30] * P}
    wild = RefineReply.from_json(json.dumps(json.loads(replies[0].to_json()) | wild))
    before = state.to_json()
    try:
        after = step(state, [wild, *replies[1:]])
    except MessageError as error:
        assert error.code == "no_step" and error.facts["round"] == 2
        assert error.facts["sites"] == "Brest, Lyon, Nantes"
    else:
        assert np.all(np.isfinite(after.model.to_vector()))
    assert state.to_json() == before


ONE_ERROR = {"kind": "sandwich", "standard_errors": [1.0]}
MERGED, REPLY, REQUEST, STATE = "merged.json", "lyon.json", "ask.json", "state.json"
A = "aggregation."
SPOILT = [
    (MERGED, "aggregation", [], "field_object aggregation"),
    (MERGED, A + "sites", [], "no_sites_merged aggregation.sites"),
    (MERGED, A + "sites.1.site", "Brest", "second_time aggregation.sites[1]", {"value": '"Brest"'}),
    (MERGED, A + "sites.0.mass", [[1.0]], "length_of_experts aggregation.sites[0].mass[0]"),
    (MERGED, A + "sites.0.weight", 2.0, "field_too_large aggregation.sites[0].weight"),
    (MERGED, A + "sites.0.site", "a\nb", "control_character aggregation.sites[0].site"),
    (MERGED, A + "cost", float("nan"), "field_nan aggregation.cost"),
    (MERGED, A + "covariates.mean", [0.0], "length aggregation.covariates.mean"),
    (MERGED, A + "rows", 3, "field_unknown aggregation.rows", {"version": 1}),
    (MERGED, A + "inference", ONE_ERROR, f"length {A}inference.standard_errors", {"wanted": 11}),
    (REPLY, "otmoe", "local model", "other_document otmoe", {"wanted": '"refine reply"'}),
    (REPLY, "otmoe", NOTHING, "kind_missing otmoe", {"kind": "null"}),
    (REPLY, "schema_version", 2, "schema_version schema_version", {"known": 1}),
    (REPLY, "site", NOTHING, "field_missing site"),
    (REPLY, "site", "Ly\non", "control_character site", {"character": "000A"}),
    (REPLY, "round", 0, "field_not_positive round"),
    (REPLY, "round", 1.5, "field_whole round"),
    (REPLY, "log_likelihood", float("nan"), "field_nan log_likelihood"),
    (REPLY, "log_likelihood", -1e31, "field_too_small log_likelihood"),
    (REPLY, "score.3", float("inf"), "field_infinite score[3]"),
    (REPLY, "information.0", "1", "field_number information[0]"),
    (REPLY, "mass.0", -1.0, "field_too_small mass[0]", {"least": 0}),
    (REPLY, "mass.0", 1.0, "sum_not_rows mass"),
    (REPLY, "x_var", [1.0, -0.5], "field_too_small x_var[1]", {"least": 0}),
    (REPLY, "x_var", [1.0], "length_for_each x_var", {"wanted": 0}),
    (REPLY, "n_samples", 0, "field_not_positive n_samples"),
    (REPLY, "information.65", NOTHING, "triangle information", {"size": 11, "wanted": 66}),
    (REPLY, "rows", [[1.0]], "field_unknown rows", {"version": 1}),
    (REQUEST, "digest", "0" * 16, "digest digest"),
    (REQUEST, "model.experts.coef.0.0", 1.25, "digest digest"),
    (REQUEST, "scaling.x_scale.0", 1.25, "digest digest"),
    (REQUEST, "scaling.x_scale", [1.0], "length_for_each scaling.x_scale", {"wanted": 2}),
    (REQUEST, "scaling.x_scale.0", 0.0, "field_not_positive scaling.x_scale[0]"),
    (REQUEST, "model.family", "cauchy", "family_unknown model.family"),
    (REQUEST, "model.gate.coef.1.0", 1.0, "not_zero model.gate.coef[1][0]"),
    (STATE, "sites", {}, "no_sites_asked sites"),
    (STATE, "best", None, "state_incomplete best"),
    (STATE, "rounds", 0, "state_incomplete best"),
    (STATE, "best.theta", [1.0], "length_for_each best.theta", {"wanted": 11}),
    (STATE, "best.score", [1.0], "length_for_each best.score", {"wanted": 11}),
    (STATE, "best.sites.Metz", -3.0, "state_sites best.sites"),
    (STATE, "missing", [{"round": 1, "site": "Metz"}], "state_missing missing[0]"),
    (STATE, "missing", [{"round": 7, "site": "Lyon"}], "state_missing missing[0]"),
    (STATE, "pooled.x_center", [1.0], "length_for_each pooled.x_center", {"wanted": 2}),
    (STATE, "most_rounds", "auto", "field_whole most_rounds"),
    (STATE, "radius", -1.0, "field_not_positive radius"),
]


@pytest.mark.parametrize(("file", "path", "value", "problem", "facts"), cases(SPOILT))
def test_a_spoilt_document_is_refused_with_a_sentence(
    merged, state, replies, file, path, value, problem, facts
):
    documents = {MERGED: merged, REPLY: replies[0], REQUEST: request_of(state), STATE: state}
    document = put(json.loads(documents[file].to_json()), path, value)
    refused_document(type(documents[file]), document, file, problem, facts)


def test_a_truncated_or_too_large_file_is_refused(state, replies, tmp_path):
    for thing in (state, request_of(state), replies[0]):
        path = tmp_path / "file.json"
        thing.save(path)
        assert type(thing).load(path).to_json() == thing.to_json()
        refused("limit", limit="bytes", most=100).by(type(thing).load, path, Limits(bytes=100))
        path.write_text(thing.to_json()[:-30])
        refused("json_cut", where=str(path)).by(type(thing).load, path)


def test_when_it_is_over_nothing_more_is_asked(data, scaling, state, replies):
    asked = replace(state, rounds=1)
    assert not asked.done and asked.looking and not state.looking
    kept = replace(asked, refinement=replace(asked.refinement, kept=True))
    over = RefineState.from_json(kept.to_json(), "state")
    assert over.done and not over.looking and over.refinement.kept
    refused("rounds_over").by(request_of, over)
    refused("rounds_over").by(step, over, replies)
    tired = replace(state, refinement=replace(state.refinement, rounds=MOST_ROUNDS))
    assert tired.looking and not tired.refinement.converged


def test_a_site_reads_its_shard(state, data):
    part = SITES["Lyon"]
    request = request_of(state)
    reply, rows = reply_from(request, ArrayShard("Lyon", data.X[part], data.y[part]))
    assert reply.to_json() == reply_to(request, rows_of(data)["Lyon"], "Lyon").to_json()
    assert len(rows.X) == 600
    with refused("no_rows", ShardError, where="Lyon"):
        reply_from(request, ArrayShard("Lyon", data.X[:0], data.y[:0]))


def test_a_model_has_to_be_of_the_messages(data):
    message = LocalModel("Lyon", data.truth, 600.0, -900.0, True, "converged")
    check_merged(data.truth, None, [message], "model.json")
    named = FeatureSpec.of_names(data.truth.terms[1:])
    whose = {"who": 'the message of site "Lyon"', "other": "model.json"}
    with refused("encoding_differs", **whose):
        check_merged(data.truth, named, [message], "model.json")
    poisson = simulate(9, 2, 2, family="poisson").truth
    refused("family_differs", **whose).by(check_merged, poisson, None, [message], "model.json")
    labels = [
        replace(simulate(9, 2, 2, family="logistic").truth, classes=np.array(classes))
        for classes in (["no", "yes"], ["non", "oui"])
    ]
    message = replace(message, model=labels[0])
    refused("classes_differ", **whose).by(check_merged, labels[1], None, [message], "model.json")


def test_a_reply_is_as_large_as_the_page_says():
    """Four experts, twenty features; the number of digits depends a little on the machine."""
    data = simulate(20_000, 4, 20, random_state=0)
    request = request_of(begin(data.truth, {"Lyon": 20_000}, Scaling.of(data.X)))
    reply = reply_to(request, Rows(data.X, data.y), "Lyon")
    page = (Path(__file__).parents[2] / "docs" / "refine.md").read_text()
    said = re.search(r"request has ([\d,]+) bytes and a reply has ([\d,]+), of which", page)
    for number, thing in zip(said.groups(), (request, reply), strict=True):
        assert_allclose(int(number.replace(",", "")), len(thing.to_json()), rtol=0.01)
