"""Secure sums: the same answer as from plain replies, and nothing short of all of them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from numpy.testing import assert_allclose
from oracles import distance, nearby
from refusals import NOTHING, cases, put, refused, refused_document

from otmoe import FeatureSpec, MoERegressor, aggregate, simulate
from otmoe.documents.json_schema import KINDS, json_schema
from otmoe.documents.masked_reply import MaskedReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.roster import Roster
from otmoe.documents.state import RefineState
from otmoe.federation.keys import Answered, Key
from otmoe.federation.layout import Layout
from otmoe.federation.masking import added, frozen, thawed
from otmoe.federation.offers import Offer
from otmoe.federation.requests import Request, message_for, reply_for
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.federation.secure import (
    again,
    check_masked,
    check_roster,
    masked,
    masked_step,
    pooled_reply,
    unmasked,
)
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.text.errors import MessageError

pytest.importorskip("cryptography")

SITES = {
    "Brest": slice(0, 900),
    "Lyon": slice(900, 1500),
    "Nantes": slice(1500, 2400),
    "Nice": slice(2400, 3000),
}
VALIDATORS = {kind: Draft202012Validator(json_schema(kind)) for kind in KINDS}
SCALING = Scaling(np.array([0.3, -1.0]), np.array([2.0, 0.5]))


def by_mail(thing):
    """Return a value as it comes out of the file that it was written to."""
    return type(thing).from_json(thing.to_json())


class Network:
    """Sites with rows and keys, and a server without either."""

    def __init__(self, folder, data, sites=SITES):
        self.rows = {name: Rows(data.X[part], data.y[part]) for name, part in sites.items()}
        self.keys = {name: Key.create(folder / f"{name}.key") for name in sites}
        self.roster = Roster({name: key.public for name, key in self.keys.items()})

    def begun(self, model, **options):
        sizes = {name: len(rows) for name, rows in self.rows.items()}
        return begin(model, sizes, SCALING, **{"roster": self.roster, **options})

    def reply(self, request, name, *, new_roster=False, sandwich=False, groups=None):
        asked = by_mail(request)
        rows = self.rows[name]
        plain = reply_to(unmasked(asked), rows, name, sandwich=sandwich, groups=groups)
        return by_mail(masked(asked, plain, Key.load(self.keys[name].path), new_roster=new_roster))

    def replies(self, request, **options):
        return [self.reply(request, name, **options) for name in request.roster.sites]

    def finished(self, state, **options):
        while not state.done:
            state = by_mail(masked_step(state, self.replies(request_of(state), **options)))
        return state


@pytest.fixture(scope="module")
def data():
    return simulate(3000, 2, 2, softness=1.0, random_state=1)


@pytest.fixture
def network(tmp_path, data):
    return Network(tmp_path, data)


def deviations(inference):
    return np.sqrt(np.diagonal(inference.covariance.matrix))


def plainly(state, rows, **options):
    while not state.done:
        state = step(state, [reply_to(request_of(state), r, n, **options) for n, r in rows.items()])
    return state


# -- the same answer -------------------------------------------------------------------------------


def check_same_end(network, start, data):
    """Assert that masked and plain rounds go the same way, and return the ends of both."""
    state = network.begun(start)
    plain = plainly(replace(state, roster=None), network.rows)
    secure = network.finished(state)
    assert secure.refinement.converged and secure.refinement.rounds == plain.refinement.rounds
    # far below the thousandth of a standard error at which rounds end
    assert distance(secure.model, plain.model, data.X, data.y) < 1e-7
    assert_allclose(secure.refinement.trace, plain.refinement.trace, rtol=1e-12)
    assert_allclose(deviations(secure.inference()), deviations(plain.inference()), rtol=1e-9)
    return secure, plain


def test_masked_rounds_end_where_plain_ones_do(family, rng, tmp_path):
    data = simulate(3000, 2, 2, family=family, n_classes=3, softness=1.0, random_state=1)
    fit = em(data.X, data.y, 2, family=family, n_classes=3, random_state=0)
    secure, plain = check_same_end(Network(tmp_path, data), nearby(rng, fit.model), data)
    assert distance(secure.model, fit.model, data.X, data.y) < 1e-3
    best, known = secure.refinement.best, plain.refinement.best
    assert best.n_samples == 3000 and dict(best.log_likelihood).keys() == {"all 4 sites"}
    assert_allclose(best.information.log_likelihood, known.information.log_likelihood, rtol=1e-13)
    assert secure.absent == () and secure.refinement.status == plain.refinement.status


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_y_does_not_matter(data, unit, tmp_path):
    """Of plain integers with 64 bits after the point, information of 1e-18 would leave little."""
    data = replace(data, y=data.y * unit)
    start = em(data.X[:1000], data.y[:1000], 2, random_state=0).model
    check_same_end(Network(tmp_path, data), start, data)


def test_a_fixed_number_of_rounds_ends_with_a_look(network, data, rng):
    start = nearby(rng, data.truth)
    state = network.begun(start, rounds=1)
    plain = plainly(replace(state, roster=None), network.rows)
    secure = network.finished(state)
    assert secure.refinement.kept is plain.refinement.kept is True
    assert_allclose(secure.model.to_vector(), plain.model.to_vector(), rtol=1e-9)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_scatter_adds_up_as_well(network, data, grouped):
    groups = {name: np.arange(len(rows)) // 3 for name, rows in network.rows.items()}
    state = network.begun(data.truth, sandwich=True)
    plain = replace(state, roster=None)
    while not state.done:
        request = request_of(state)
        options = {n: {"groups": g} if grouped else {"sandwich": True} for n, g in groups.items()}
        state = masked_step(state, [network.reply(request, n, **o) for n, o in options.items()])
        asked = request_of(plain)
        plain = step(plain, [reply_to(asked, network.rows[n], n, **o) for n, o in options.items()])
    found, wanted = state.inference(), plain.inference()
    assert found.kind == wanted.kind == ("clustered" if grouped else "sandwich")
    assert found.n_groups == wanted.n_groups
    assert_allclose(deviations(found), deviations(wanted), rtol=1e-9)


def test_a_feature_that_never_varies_stays_constant(tmp_path, data):
    data = replace(data, X=np.column_stack([data.X[:, 0], np.full(3000, 7.3)]))
    network = Network(tmp_path, data)
    state = network.begun(data.truth)
    asked = request_of(state)
    replies = [network.reply(asked, name) for name in network.rows]
    pooled = pooled_reply(asked, [reply.numbers for reply in replies]).content.moments
    assert pooled.var[1] == 0
    assert_allclose(pooled.mean, data.X.mean(axis=0), rtol=1e-12)
    assert_allclose(pooled.var[0], data.X[:, 0].var(), rtol=1e-12)


def test_the_model_of_a_message_with_a_key_is_the_same(network, data):
    fit = MoERegressor(2, random_state=0).fit(data.X[:500], data.y[:500]).to_message("Lyon")
    sent = replace(fit, key=network.keys["Lyon"].public)
    assert by_mail(sent).key == network.keys["Lyon"].public and by_mail(fit).key is None
    assert "key" not in fit.document()
    others = [replace(sent, site=name, key=key.public) for name, key in network.keys.items()]
    assert Roster.of({m.site: m.key for m in others}).keys == network.roster.keys
    refused("roster_no_key", names="Lyon").by(Roster.of, {"Lyon": fit.key, "Nice": sent.key})
    bad = json.loads(sent.to_json())
    refused_document(type(sent), put(bad, "key", "AB" * 32), "mail", "not_hexadecimal key", {})


# -- a whole study: what leaves, and BIC ---------------------------------------------------------


def studied(folder, data, n_experts):
    """Return all that leaves the sites of a secure study, as text, and its inference."""
    spec = FeatureSpec.of_names(["x0", "x1"])
    frame = pd.DataFrame(data.X, columns=["x0", "x1"]).assign(y=data.y)
    document = {"target": "y", "experts": n_experts, "features": spec.body(), "n_init": 3}
    asked, offers = Request.from_json(json.dumps(document)), []
    for name, part in SITES.items():
        place = folder / f"{name} {n_experts}"
        place.mkdir()
        frame[part].to_parquet(place / "rows.parquet")
        own = {"site": name, "data": str(place / "rows.parquet"), "refine": True}
        offers.append(Offer.from_config(own | {"secure": str(place / "own.key")}, "config"))
    messages = [message_for(asked, offer) for offer in offers]
    left = [message.to_json() for message in messages]
    merged = aggregate(messages, data.X[:500], random_state=0)
    sizes = {m.site: m.n_samples for m in messages}
    roster = Roster({m.site: m.key for m in messages})
    state = begin(merged.model, sizes, SCALING, features=spec, roster=roster)
    while not state.done:
        replies = [reply_for(asked, request_of(state), offer) for offer in offers]
        left += [reply.to_json() for reply in replies]
        state = masked_step(state, replies)
    return left, state.inference()


def test_a_message_and_masked_sums_are_all_that_leaves_and_bic_comes_of_these(tmp_path, data):
    """No site sends sums of EM, nor its log-likelihood at the merged model; BIC is that of all."""
    found = {}
    for K in (1, 2):
        left, inference = studied(tmp_path, data, K)
        kinds = [json.loads(text)["otmoe"] for text in left]
        assert kinds[:4] == ["local model"] * 4 and set(kinds[4:]) == {"masked reply"}
        pooled = em(data.X, data.y, K, n_init=3, random_state=0)
        bic = -2 * pooled.log_likelihood + np.log(len(data.y)) * pooled.rank
        assert_allclose(inference.bic, bic, atol=1e-3)
        found[K] = inference.bic
    assert found[2] < found[1]


# -- what a reply says by itself -------------------------------------------------------------------


def test_a_reply_by_itself_says_nothing(network, data):
    """Numbers of other rows, or under another nonce, differ everywhere and are as large."""
    state = network.begun(data.truth)
    one = network.reply(request_of(state), "Lyon")
    other = replace(state, roster=replace(state.roster, nonce="0" * 32))
    elsewhere = Answered.path_of(network.keys["Lyon"])
    elsewhere.unlink()
    two = network.reply(request_of(other), "Lyon")
    assert np.all(one.numbers != two.numbers)
    sizes = np.log2(np.abs(thawed(one.numbers)))
    assert sizes.min() > 63 - 20 and np.median(sizes) > 61  # of numbers below 2^63
    document = one.document()
    assert document.keys() == {
        *("otmoe", "schema_version", "site", "round", "digest"),
        *("context", "numbers", "checksum", "versions"),
    }


def test_the_server_needs_every_reply(network, data):
    state = network.begun(data.truth)
    request = request_of(state)
    replies = network.replies(request)
    with refused("secure_missing", names="Nice"):
        masked_step(state, replies[:-1])
    with refused("masks_remain"):
        pooled_reply(request, [reply.numbers for reply in replies[:-1]])
    with refused("reply_twice"):
        masked_step(state, [*replies, replies[0]])
    assert masked_step(state, replies[::-1]).to_json() == masked_step(state, replies).to_json()


def test_one_site_with_other_masks_spoils_the_sum_and_is_noticed(network, data, tmp_path):
    """A server that swaps a key for one site, or a file that is changed with its checksum."""
    state = network.begun(data.truth)
    request = request_of(state)
    replies = {reply.site: reply for reply in network.replies(request)}
    Answered.path_of(network.keys["Lyon"]).unlink()
    swapped = Roster({**network.roster.keys, "Nice": Key.create(tmp_path / "x.key").public})
    lie = replace(request, roster=replace(swapped, nonce=network.roster.nonce))
    tampered = replace(network.reply(lie, "Lyon"), context=request.context)
    with refused("masks_remain", names="Brest, Lyon, Nantes, Nice"):
        masked_step(state, [tampered, *(replies[n] for n in ("Brest", "Nantes", "Nice"))])
    rolled = replace(replies["Lyon"], numbers=np.roll(replies["Lyon"].numbers, 1, axis=0))
    with refused("masks_remain"):
        masked_step(state, [rolled, *(replies[n] for n in ("Brest", "Nantes", "Nice"))])


def test_each_check_is_looked_at(network, data):
    state = network.begun(data.truth)
    request = request_of(state)
    numbers = [reply.numbers for reply in network.replies(request)]
    for place in Layout.of(request).checks:
        wrong = numbers[0].copy()
        wrong[place, 0] ^= np.uint64(1)
        refused("masks_remain").by(pooled_reply, request, [wrong, *numbers[1:]])


def test_a_sum_about_other_rows_is_refused(network, data):
    state = network.begun(data.truth)
    network.rows["Lyon"] = Rows(data.X[:500], data.y[:500])
    with refused("reply_rows", rows=2900, fitted=3000, where="the sum of all 4 sites"):
        masked_step(state, network.replies(request_of(state)))


# -- dropouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [1, 3])
def test_after_a_dropout_the_others_reach_their_own_answer(network, data, rng, when):
    start = nearby(rng, data.truth)
    state = network.begun(start)
    for _ in range(when - 1):
        state = by_mail(masked_step(state, network.replies(request_of(state))))
    asked = request_of(state)
    some = [network.reply(asked, name) for name in ("Brest", "Lyon", "Nantes")]  # and Nice is gone
    refused("secure_missing").by(masked_step, state, some)
    fresh = by_mail(again(state, ["Nice"]))
    new = request_of(fresh)
    assert new.roster.sites == ("Brest", "Lyon", "Nantes") and new.round == asked.round
    assert new.digest != asked.digest and new.roster.nonce != asked.roster.nonce
    assert new.moments  # those of before were of other rows
    for reply in some:  # what was sent for the old roster is of no use
        refused("reply_context").by(check_masked, fresh, reply)
    refused("roster_changed").by(network.reply, new, "Lyon")
    secure = network.finished(fresh, new_roster=True)
    rest = {name: network.rows[name] for name in new.roster.sites}
    plain = plainly(begin(start, {n: len(r) for n, r in rest.items()}, SCALING), rest)
    assert secure.refinement.converged
    assert distance(secure.model, plain.model, data.X[:2400], data.y[:2400]) < 1e-3
    assert_allclose(deviations(secure.inference()), deviations(plain.inference()), rtol=1e-3)
    assert secure.refinement.best.n_samples == 2400


def test_two_sums_tell_about_the_site_that_left(network, data):
    """Why sites are asked before they answer for another roster, though the question is new."""
    state = network.begun(em(data.X, data.y, 2, random_state=0).model)
    asked = request_of(state)
    whole = pooled_reply(asked, [reply.numbers for reply in network.replies(asked)]).content
    state = again(masked_step(state, network.replies(asked)), ["Nice"])
    asked = request_of(state)
    rest = network.replies(asked, new_roster=True)
    others = pooled_reply(asked, [reply.numbers for reply in rest]).content
    said = reply_to(unmasked(asked), network.rows["Nice"], "Nice").content.information
    assert_allclose(whole.n_samples - others.n_samples, 600)
    guess = whole.information.matrix - others.information.matrix
    assert np.linalg.norm(guess - said.matrix) < 0.01 * np.linalg.norm(said.matrix)


def test_who_can_be_left_out(network, data):
    state = network.begun(data.truth)
    refused("roster_small sites", sites=2).by(again, state, ["Nice", "Lyon"])
    refused("roster_not_in", site='"Paris"').by(again, state, ["Nice", "Paris"])
    refused("roster_not_in", site="nobody").by(again, state, [])
    refused("roster_missing").by(again, replace(state, roster=None), ["Nice"])


def test_the_question_changes_for_one_expert_too(tmp_path, rng):
    data = simulate(3000, 1, 2, random_state=1)
    network = Network(tmp_path, data)
    state = network.begun(em(data.X, data.y, 1).model)
    fresh = again(state, ["Nice"])
    assert np.all(fresh.model.to_vector() != state.model.to_vector())
    secure = network.finished(fresh)
    fit = em(data.X[:2400], data.y[:2400], 1)
    assert distance(secure.model, fit.model, data.X[:2400], data.y[:2400]) < 1e-3


# -- what a site refuses ---------------------------------------------------------------------------


def test_two_sites_hide_nothing_from_each_other(network, data):
    two = Roster({name: network.keys[name].public for name in ("Lyon", "Nice")})
    sizes = {"Lyon": 600, "Nice": 600}
    refused("roster_small roster.sites", sites=2).by(begin, data.truth, sizes, SCALING, roster=two)
    request = replace(request_of(network.begun(data.truth)), roster=two)
    refused("roster_small roster.sites").by(RefineRequest.from_json, request.to_json())
    # also where the request came by another way than a file
    refused("roster_small").by(check_roster, request, network.keys["Lyon"], "Lyon")
    same = Roster({**network.roster.keys, "Lyon": network.keys["Nice"].public})
    request = replace(request, roster=same)
    refused("roster_same_key roster.sites").by(RefineRequest.from_json, request.to_json())


def test_a_roster_has_to_hold_the_site_and_its_key(network, data, tmp_path):
    request = request_of(network.begun(data.truth))
    key = network.keys["Lyon"]
    refused("roster_without_me", site='"Lyons"').by(check_roster, request, key, "Lyons")
    refused("roster_without_me").by(check_roster, request, Key.create(tmp_path / "new.key"), "Lyon")
    refused("roster_missing").by(check_roster, unmasked(request), key, "Lyon")
    assert check_roster(request, key, "Lyon") == request.roster


def test_the_same_question_is_not_answered_for_two_rosters(network, data):
    state = network.begun(data.truth)
    request = request_of(state)
    first = network.reply(request, "Lyon")
    assert network.reply(request, "Lyon").to_json() == first.to_json()  # lost on its way, say
    keys = {name: key for name, key in network.roster.keys.items() if name != "Nice"}
    fewer = replace(request, roster=Roster(keys))
    refused("roster_changed", before=network.roster.fingerprint).by(network.reply, fewer, "Lyon")
    with refused("question_again", digest=request.digest):
        network.reply(fewer, "Lyon", new_roster=True)
    for other in (
        replace(request, round=2),
        replace(request, moments=False),
        replace(request, roster=replace(request.roster, nonce="1" * 32)),
    ):
        refused("question_again").by(network.reply, other, "Lyon")


def test_masks_serve_one_set_of_rows(network, data):
    """Two replies under the same masks would give away their difference: a single row, say."""
    request = request_of(network.begun(data.truth))
    network.reply(request, "Lyon")
    network.rows["Lyon"] = Rows(data.X[901:1500], data.y[901:1500])
    refused("answer_changed").by(network.reply, request, "Lyon")


def test_the_record_of_answers_is_read_with_suspicion(network, data):
    request = request_of(network.begun(data.truth))
    network.reply(request, "Lyon")
    path = Answered.path_of(network.keys["Lyon"])
    assert path.name == "Lyon.key.answered.json"
    record = Answered.load(path)
    assert record.rosters == (network.roster.fingerprint,) and list(record.questions) == [
        request.digest
    ]
    path.write_text(path.read_text()[:-20])
    refused("json_cut").by(network.reply, request, "Lyon")


def test_plain_and_masked_do_not_mix(network, data):
    state = network.begun(data.truth)
    request = request_of(state)
    refused("secure_request").by(reply_to, request, network.rows["Lyon"], "Lyon")
    plain = reply_to(unmasked(request), network.rows["Lyon"], "Lyon")
    refused("reply_not_masked").by(step, state, [plain])
    refused("reply_not_masked otmoe").by(MaskedReply.from_json, plain.to_json())
    reply = network.reply(request, "Lyon")
    refused("roster_missing").by(check_masked, replace(state, roster=None), reply)
    refused("roster_missing").by(pooled_reply, unmasked(request), [reply.numbers])
    sizes = dict(state.sites)
    with refused("secure_between"):
        begin(data.truth, sizes, SCALING, roster=network.roster, between="auto")
    asked = request_of(network.begun(data.truth, sandwich=True))
    refused("secure_scatter", site='"Nice"').by(network.reply, asked, "Nice")


def test_a_reply_of_somebody_else_is_refused(network, data):
    state = network.begun(data.truth)
    reply = network.reply(request_of(state), "Lyon")
    refused("reply_unasked").by(check_masked, state, replace(reply, site="Paris"))
    refused("reply_context").by(check_masked, state, replace(reply, round=2))
    refused("masked_size").by(check_masked, state, replace(reply, numbers=reply.numbers[1:]))
    assert check_masked(state, reply) is None


def test_a_site_that_lies_in_any_number_breaks_nothing(network, data):
    """The masks are its own business: with them right, the sum is what it wants it to be."""
    state = network.begun(data.truth, sandwich=True)
    replies = network.replies(request_of(state), sandwich=True)
    first, *others = replies
    ends = {"refused": 0, "taken": 0}
    for place in range(len(first.numbers)):
        for lie in (-1e18, -4000.0, 1e-9, 1e18):
            numbers = first.numbers.copy()
            numbers[[place]] = added(numbers[[place]], frozen([lie], 1))
            try:
                after = masked_step(state, [replace(first, numbers=numbers), *others])
                assert np.all(np.isfinite(after.model.to_vector()))
                assert by_mail(after).to_json() == after.to_json()
                ends["taken"] += 1
            except MessageError as error:
                assert str(error)
                ends["refused"] += 1
    assert min(ends.values()) > 50


# -- documents -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "problem", "facts"),
    cases(
        [
            ("site", " ", "site_unnamed site"),
            ("round", 0, "field_not_positive round"),
            ("context", "ab", "not_hexadecimal context", {"digits": 64}),
            ("context", 3, "field_text context"),
            ("checksum", "0" * 64, "checksum checksum"),
            ("checksum", NOTHING, "field_missing checksum"),
            ("numbers", [], "not_whole_numbers numbers", {"bytes": 0}),
            ("numbers", ["AAAA"], "not_whole_numbers numbers", {"bytes": 3}),
            ("numbers", "AAAA", "field_list numbers"),
            ("numbers.0", "é" * 24, "not_base64 numbers[0]"),
            ("numbers.0", "A", "not_base64 numbers[0]"),
            ("numbers.0", 7, "field_text numbers[0]"),
            ("score", [1.0], "field_unknown score"),
        ]
    ),
)
def test_a_spoilt_masked_reply_is_refused(network, data, path, value, problem, facts):
    reply = network.reply(request_of(network.begun(data.truth)), "Lyon")
    document = put(json.loads(reply.to_json()), path, value)
    refused_document(MaskedReply, document, "mail", problem, facts)


def test_a_truncated_masked_reply_is_refused(network, data):
    text = network.reply(request_of(network.begun(data.truth)), "Lyon").to_json()
    for length in range(1, len(text) - 3, 97):
        refused("json_cut").by(MaskedReply.from_json, text[:length])


@pytest.mark.parametrize("seed", range(60))
def test_a_spoilt_file_is_our_error_or_a_value(network, data, seed):
    rng = np.random.default_rng(seed)
    state = network.begun(data.truth)
    request = request_of(state)
    reply = network.reply(request, "Lyon")
    for thing in (state, request, reply):
        text = bytearray(thing.to_json().encode())
        for _ in range(rng.integers(1, 4)):
            text[rng.integers(len(text))] ^= 1 << int(rng.integers(8))
        try:
            found = type(thing).from_json(bytes(text), "mail")
        except MessageError as error:
            assert error.where == "mail" and len(str(error)) < 400
            continue
        VALIDATORS[thing.kind].validate(json.loads(text))
        assert by_mail(found).to_json() == found.to_json()
        try:
            if isinstance(found, MaskedReply):
                check_masked(state, found)
            elif isinstance(found, RefineRequest):
                check_roster(found, network.keys["Lyon"], "Lyon", new_roster=True)
        except MessageError as error:
            assert str(error)


def test_what_is_written_is_valid(network, data):
    state = network.begun(data.truth)
    request = request_of(state)
    replies = network.replies(request)
    for thing in (state, request, *replies, masked_step(state, replies)):
        VALIDATORS[thing.kind].validate(json.loads(thing.to_json()))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("roster.nonce", "00", "not_hexadecimal roster.nonce"),
        ("roster.sites.Lyon", "g" * 64, "not_hexadecimal roster.sites.Lyon"),
        ("roster.sites.Lyon", NOTHING, "state_roster roster.sites"),
        ("roster.sites", {}, "roster_small roster.sites"),
    ],
)
def test_a_spoilt_roster_is_refused(network, data, path, value, problem):
    state = network.begun(data.truth)
    document = put(json.loads(state.to_json()), path, value)
    refused_document(RefineState, document, "mail", problem, {})


def test_a_state_knows_all_sites_by_the_name_of_their_roster(network, data):
    state = masked_step(state := network.begun(data.truth), network.replies(request_of(state)))
    document = json.loads(state.to_json())
    sums = document["best"]["sites"]
    document["best"]["sites"] = {"Lyon": sums["all 4 sites"]}
    refused_document(RefineState, document, "mail", "state_sites best.sites", {})


def test_fingerprints_are_of_names_and_keys(network):
    roster = network.roster
    assert len(roster.fingerprint) == 39
    turned = Roster(dict(reversed(roster.keys.items())))
    assert turned.nonce != roster.nonce and turned.fingerprint == roster.fingerprint
    other = {**roster.keys, "Lyon": "ab" * 32}
    renamed = {name.upper(): key for name, key in roster.keys.items()}
    assert len({roster.fingerprint, Roster(other).fingerprint, Roster(renamed).fingerprint}) == 3
