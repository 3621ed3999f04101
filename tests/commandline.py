"""Calls of the command ``otmoe`` in this process."""

from click.testing import CliRunner

from otmoe.cli import main


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def fine(*args):
    result = call(*args)
    assert result.exit_code == 0, result.output
    return result


def refused(*args):
    """Return the one line that a command which fails writes."""
    result = call(*args)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    return lines[0]


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".tmp")]
