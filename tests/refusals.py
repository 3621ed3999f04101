"""Errors and warnings by their codes; what they say is in src/otmoe/text/sentences."""

import re
from contextlib import contextmanager

import pytest

from otmoe.text.errors import OtmoeError
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

CODES = {member.code for member in Error}


@contextmanager
def refused(expected, kind=OtmoeError, /, where=None, **facts):
    """Expect an error: its code, after a space the place in a document; and facts, if given."""
    code, _, at = expected.partition(" ")
    assert code in CODES, f"{code} is no code of an error"
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert isinstance(error, OtmoeError), repr(error)
    assert error.code == code, f"{error.code}: {error}"
    assert not at or error.at == at, f"{error.at}: {error}"
    assert where is None or error.where == where, f"{error.where}: {error}"
    for name, value in facts.items():
        assert error.facts[name] == value, f"{name} is {error.facts[name]!r}: {error}"
    assert str(error), "its sentence lacks a fact"


def codes(notices):
    """Return the codes of notices, in their order."""
    return [notice.code for notice in notices]


def says_what_is_there(error, document):
    """Assert that an error about a place of a document says what stands there, or how much."""
    place = document
    for part in re.findall(r"\w+", error.at):
        place = place[int(part)] if isinstance(place, list) else place.get(part, {})
    said = re.match(r"(is|has) \{(\w+)", error.member.value)
    if said and not isinstance(place, dict):
        assert error.facts[said[2]] == (shown(place) if said[1] == "is" else len(place))
