"""The vocabulary: every sentence can be said, every code is used, every error is tested."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import otmoe
from otmoe.cli.kinds import Family
from otmoe.cli.words import SHELL
from otmoe.text.sentences import Error, Finding, Status, Warn

KINDS = {kind.__name__: kind for kind in (Error, Warn, Status, Finding)}
SOURCE, TESTS = Path(otmoe.__file__).parent, Path(__file__).parents[1]
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in SOURCE.rglob("*.py")
    if "sentences" not in path.parts
}

members = pytest.mark.parametrize(
    "member", [m for kind in KINDS.values() for m in kind], ids=lambda m: f"{m!s}"
)


def facts_of(template):
    """Return the names of the facts that a sentence needs."""
    return {name for _, name, *_ in Formatter().parse(template) if name is not None}


def member_at(node):
    """Return the member of the vocabulary that a node of a program is, such as Error.LIMIT."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id in KINDS:
            return KINDS[node.value.id].__members__.get(node.attr)
    return None


# -- what is said ------------------------------------------------------------------------------


@members
def test_a_sentence_can_be_said(member):
    facts = facts_of(member.value)
    assert all(name.isidentifier() for name in facts)
    text = member.value.format(**dict.fromkeys(facts, 3))
    assert text.isprintable() and text == " ".join(text.split())
    assert "mend" not in text


@pytest.mark.parametrize(
    ("distance", "long"),
    [(1.04, "1 standard error"), (0.1, "0.1 standard errors"), (2.3, "2 standard errors")],
)
def test_a_length_in_standard_errors_is_in_the_right_number(distance, long):
    for status in (Status.NOT_AT_MAXIMUM, Status.AT_MAXIMUM):
        said = status(rounds="1 refine round", distance=distance, but="")
        assert f"the last step was {long} long" in said.text
    assert Status.CONVERGED_NEAR(iterations=3, distance=1e-5).text.endswith(
        "1e-05 standard errors from the maximum"
    )


@members
def test_what_is_a_sentence_ends_as_one(member):
    """What goes on does not: in a fact, after a status, or in a list of what nodes did."""
    if isinstance(member, Status):
        assert not member.value.endswith(".")
    elif isinstance(member, Finding):
        assert member.value.endswith((".", "}")) or not member.value[0].isupper()
    elif not member.code.startswith("node_"):
        assert member.value.endswith((".", "}"))


@pytest.mark.parametrize("code", SHELL)
def test_the_shell_says_it_with_the_same_facts(code):
    (member,) = (m for kind in (Error, Warn) for m in kind if m.code == code)
    assert facts_of(SHELL[code]) <= facts_of(member.value)
    assert "='" not in SHELL[code] and "max_iter" not in SHELL[code]  # words of Python
    assert SHELL[code].endswith(".")
    families = re.findall(r"--family (\w+)", SHELL[code])
    assert [Family().convert(name, None, None) for name in families] == families


# -- where it is said --------------------------------------------------------------------------


@pytest.mark.parametrize("file", TREES)
def test_whoever_says_it_gives_the_facts(file):
    for call in (node for node in ast.walk(TREES[file]) if isinstance(node, ast.Call)):
        given = {keyword.arg for keyword in call.keywords}
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        raised = call.args if name[:1].isupper() or name in ("fail", "problem", "usage") else []
        for member in filter(None, map(member_at, [call.func, *raised])):
            lacking = facts_of(member.value) - given
            assert not lacking or None in given, f"line {call.lineno}: {member} lacks {lacking}"


def test_every_code_is_used():
    trees = [tree for file, tree in TREES.items() if file != "cli/words.py"]
    used = {member_at(node) for tree in trees for node in ast.walk(tree)}
    assert [str(m) for kind in KINDS.values() for m in kind if m not in used] == []


def test_every_error_is_tested():
    tested = set()
    for path in TESTS.rglob("*.py"):
        if path != Path(__file__):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    tested.add(node.value.partition(" ")[0])
    assert sorted({member.code for member in Error} - tested) == []
