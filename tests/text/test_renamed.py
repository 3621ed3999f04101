"""Names that have changed: the old ones are refused with a sentence that has the new one."""

import numpy as np
import pytest
from commandline import call
from refusals import refused

from otmoe import draw_support, observed_inference, shards_from, support_from
from otmoe.cli import main
from otmoe.cli.common import RENAMED
from otmoe.evaluation.files import evaluate_files
from otmoe.text.arguments import renamed
from otmoe.text.sentences import Error

SHELL = {
    "run": ["--engine", "--workers", "--support", "--site"],
    "select": ["--engine", "--workers", "--site"],
    "fit": ["--share-support"],
    "aggregate": ["--points"],
    "elbow": ["--points"],
    "features": ["--site"],
}


def said(old):
    return Error["shell_renamed".upper()].value.format(old=old, new=RENAMED[old])


@pytest.mark.parametrize("form", ["{} 3", "{}=3"])
@pytest.mark.parametrize(
    ("command", "old"), [(c, old) for c, names in SHELL.items() for old in names]
)
def test_an_old_option_is_answered_with_the_new_one(command, old, form):
    result = call(command, "data", *form.format(old).split())
    assert result.exit_code == 2 and result.stdout == ""
    assert said(old) in result.stderr
    assert RENAMED[old] in {name for param in main.commands[command].params for name in param.opts}


def test_all_old_options_are_known_somewhere():
    assert {old for names in SHELL.values() for old in names} == set(RENAMED)


@pytest.mark.parametrize(
    ("command", "name"), [("fit", "--site"), ("aggregate", "--support"), ("elbow", "--support")]
)
def test_a_name_that_a_command_still_has_is_none(command, name):
    assert said(name) not in call(command, "data", name, "Lyon").stderr


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (draw_support, "n_points", "n_support"),
        (support_from, "n_points", "n_support"),
        (shards_from, "site", "site_column"),
        (evaluate_files, "site", "site_column"),
        (observed_inference, "n_threads", "n_jobs"),
    ],
)
def test_an_old_argument_is_answered_with_the_new_one(function, old, new):
    with refused("renamed", TypeError, function=function.__name__, old=old, new=new):
        function(None, **{old: 3})


def test_whoever_uses_the_new_name_notices_nothing():
    @renamed(n_points="n_support")
    def draw(n_support=1, *, seed=0):
        """Draw."""
        return np.arange(n_support) + seed

    assert draw.__name__ == "draw" and draw.__doc__ == "Draw."
    assert draw(2, seed=1).tolist() == draw(n_support=2, seed=1).tolist() == [1, 2]
