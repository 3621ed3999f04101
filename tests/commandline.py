"""Calls of the command ``otmoe`` in this process."""

import json
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner
from refusals import CODES

from otmoe import Policy
from otmoe.cli import common, main
from otmoe.workers.failures import TasksFailed


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def fine(*args):
    result = call(*args)
    assert result.exit_code == 0, result.output
    return result


def told(*args):
    """Return what a command tells with --json."""
    return json.loads(fine(*args, "--json").stdout)


def fails(*args, code=None, **facts):
    """Return the one line that a command which fails writes; check its code, if one is given.

    Where shards have failed, code and facts are those of the first.
    """
    with patch.object(common, "sentence", wraps=common.sentence) as said:
        result = call(*args)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    if code is not None:
        (error,) = said.call_args.args
        error = error.failures[0].cause if isinstance(error, TasksFailed) else error
        assert code in CODES, f"{code} is no code of an error"
        assert getattr(error, "code", None) == code, repr(error)
        for name, value in facts.items():
            assert error.facts[name] == value, f"{name} is {error.facts[name]!r}: {error}"
    return lines[0]


def unguarded(folder="."):
    """Return options for a site whose policy refuses and rounds nothing."""
    path = Path(folder) / "off.json"
    path.write_text(Policy.off().model_dump_json())
    return ["--policy", path]


def refined_by_files(folder, sent, state, ask, options, most=8):
    """Let the sites of messages answer round after round, and return the refined model's file.

    The state and its first request are there; options are those of the answers.
    """
    refined = folder / "refined.json"
    for number in range(1, most + 1):
        replies = [folder / f"{number}-{i}.json" for i in range(len(sent))]
        for message, reply in zip(sent, replies, strict=True):
            fine("refine", "answer", ask, "--fit", message, *options, "-o", reply)
        ask = folder / f"ask{number}.json"
        fine("refine", "step", state, *replies, "--request", ask, "-o", refined)
        if refined.exists():
            break
    return refined


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".tmp")]
