"""Errors and warnings by their codes; what they say is in src/otmoe/text/sentences."""

import json
import re

import pytest

from otmoe.text.errors import MessageError, OtmoeError
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

CODES = {member.code for member in Error}


class refused:
    """Expect an error: its code, after a space the place in a document; and facts, if given.

    As a context, or of one call: ``refused("no_expert", expert=2).by(found.contrast, 0, 2)``.
    """

    def __init__(self, expected, kind=OtmoeError, /, where=None, **facts):
        self.code, _, self.at = expected.partition(" ")
        assert self.code in CODES, f"{self.code} is no code of an error"
        self.raises, self.where, self.facts = pytest.raises(kind), where, facts

    def __enter__(self):
        return self.raises.__enter__()

    def __exit__(self, kind, error, traceback):
        if not self.raises.__exit__(kind, error, traceback):
            return False
        assert isinstance(error, OtmoeError), repr(error)
        assert error.code == self.code, f"{error.code}: {error}"
        assert not self.at or error.at == self.at, f"{error.at}: {error}"
        assert self.where is None or error.where == self.where, f"{error.where}: {error}"
        for name, value in self.facts.items():
            assert error.facts[name] == value, f"{name} is {error.facts[name]!r}: {error}"
        assert str(error), "its sentence lacks a fact"
        return True

    def by(self, call, /, *arguments, **options):
        """Make a call, and return the error that it has to raise."""
        with self as caught:
            call(*arguments, **options)
        return caught.value


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


NOTHING = object()


def put(document, path, value):
    """Put a value, or NOTHING, in one place of a document, such as "model.experts.var.1"."""
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = document
    for part in parents:
        place = place[part]
    if value is NOTHING:
        del place[last]
    else:
        place[last] = value
    return document


def cases(rows):
    """Return rows of a table whose last column, the facts of an error, may be left out."""
    width = max(map(len, rows))
    return [(*row, {})[:width] for row in rows]


def refused_document(kind, document, source, problem, facts):
    """Read a document with one thing wrong: the error says where and what, in a short sentence."""
    wrong = refused(problem, MessageError, where=source, **facts)
    error = wrong.by(kind.from_json, json.dumps(document), source)
    says_what_is_there(error, document)
    assert len(str(error)) < 300 and "\n" not in str(error)
