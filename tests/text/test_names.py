"""Names: the same in one form, none that hides, none that looks like another."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commandline import fine
from oracles import random_model
from refusals import refused

from otmoe import FeatureSpec, LocalModel, MoERegressor, aggregate, save_model, simulate
from otmoe.data.columns import Column
from otmoe.data.shards.memory import checked
from otmoe.model.target import Target
from otmoe.text.errors import MessageError
from otmoe.text.names import _CYRILLIC, _GREEK, look_alikes, plain, skeleton, unseen, visible
from otmoe.text.records import Map, Number, Record, Site, typed


def sent(site="Lyon", names=("age", "dose")):
    model = random_model(np.random.default_rng(0), 2, len(names))
    return LocalModel(site, replace(model, feature_names=names), 300.0, -400.0, True, "converged")


UNSEEN = ["\u200b", "\u00ad", "\u202e", "\u2066", "\ufeff", "\u3164", "\ufe0f", "\U000e0041"]


@pytest.mark.parametrize("character", UNSEEN, ids=ascii)
def test_what_nobody_sees_is_refused(character):
    document = json.loads(sent().to_json())
    document["site"] = f"Ly{character}on"
    with pytest.raises(MessageError) as caught:
        LocalModel.from_json(json.dumps(document))
    assert caught.value.code in ("invisible_character", "control_character")
    document = json.loads(sent().to_json())
    document["model"]["feature_names"] = [f"a{character}", "b"]
    with pytest.raises(MessageError) as caught:
        LocalModel.from_json(json.dumps(document))
    assert caught.value.code in ("invisible_character", "control_character")


def test_words_that_need_joiners_may_be_columns_but_not_sites():
    word = "می\u200cخواهم"
    assert LocalModel.from_json(sent(names=(word, "b")).to_json()).model.feature_names[0] == word
    assert unseen(word) == "\u200c" and unseen(word, joiners=True) is None


def test_sites_are_compared_in_one_form():
    decomposed, wide = "Besanc\u0327on", "Ｌｙｏｎ"
    assert plain(decomposed) == "Besançon" and plain(wide) == "Lyon"
    document = json.loads(sent().to_json()) | {"site": wide}
    assert LocalModel.from_json(json.dumps(document)).site == "Lyon"
    assert checked(decomposed) == "Besançon"


def test_two_spellings_of_one_site_do_not_become_one_silently():
    class Sites(Record):
        sites: Map[Site, Number]

    with refused("names_meet"):
        typed(Sites, {"sites": {"Lyon": 1.0, "Ｌyon": 2.0}}, "state")


@pytest.mark.parametrize("other", ["L\u0443on", "Ly\u043en", "\u0141yon"])
def test_sites_that_look_alike_are_not_merged(other):
    data = simulate(300, 2, 2, random_state=0)
    fit = MoERegressor(2, n_init=1, random_state=0).fit(data.X, data.y)
    messages = [fit.to_message(site=name) for name in ("Lyon", other)]
    if look_alikes(["Lyon", other]):
        refused("look_alike", ValueError).by(aggregate, messages, data.X)
    else:
        assert other == "\u0141yon"  # which has a stroke, and can be told


def test_within_an_alphabet_no_two_letters_are_alike():
    letters = [chr(c) for c in range(33, 127)]
    for script in (letters, [c for c in _CYRILLIC if c > " "], [c for c in _GREEK if c > " "]):
        assert len({skeleton(c) for c in script}) == len(script)


def test_a_name_is_printed_on_one_line(tmp_path):
    forged = "dose\nexpert 1   0.5  <- all is well\x1b[2J"
    assert visible(forged).isprintable() and "\\n" in visible(forged)
    data = simulate(300, 2, 1, random_state=0)
    model = replace(data.truth, feature_names=("dose\nexpert 9 all is well",))
    assert all(term.isprintable() for term in model.terms)
    save_model(model, tmp_path / "m.json", features=FeatureSpec((Column(model.feature_names[0]),)))
    shown = fine("inspect", tmp_path / "m.json").stdout
    assert not any(line.lstrip().startswith("expert 9") for line in shown.splitlines())


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_a_response_that_no_fit_holds_is_one_sentence(family):
    y = np.ones(50)
    y[7] = 1e200
    with refused("response_too_large", ValueError, row=7):
        Target(family).numbers(y)
    with refused("response_too_large", ValueError, row=7):
        MoERegressor(1, family=family).fit(np.arange(50.0)[:, None], y)
