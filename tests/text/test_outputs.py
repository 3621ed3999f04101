"""Outputs: tried before the work, never replaced unasked."""

import os
from pathlib import Path

import pytest
from commandline import fails, fine
from refusals import refused

from otmoe import simulate
from otmoe.cli.common import Failed, check_output
from otmoe.documents.model_file import save_model
from otmoe.text import outputs
from otmoe.text.errors import RunError
from otmoe.text.outputs import keep, whole, write_whole

SIMULATE = ("simulate", "--rows", "50", "--experts", "1", "--features", "1")


@pytest.fixture(autouse=True)
def forgotten():
    token = outputs._KEPT.set(frozenset())
    yield
    outputs._KEPT.reset(token)


@pytest.fixture(params=["links", "no links"])
def filesystem(request, monkeypatch):
    if request.param == "no links":

        def link(*_):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)


def test_a_file_that_appears_meanwhile_is_not_replaced(filesystem, tmp_path):
    path = tmp_path / "model.json"
    check_output(path, force=False)
    path.write_text("dear to me")
    with refused("output_appeared", RunError, path=path):
        write_whole(path, "new")
    assert path.read_text() == "dear to me"
    (other,) = (p for p in tmp_path.iterdir() if p != path)
    assert other.read_text() == "new" and other.suffix == ".json"


def test_nor_is_one_that_appears_while_it_is_written(filesystem, tmp_path):
    path = tmp_path / "a.txt"
    keep(path)
    with refused("output_appeared", RunError), whole(path) as file:
        file.write(b"new")
        path.write_text("dear to me")
    assert path.read_text() == "dear to me"


def test_with_force_it_is(tmp_path):
    path = tmp_path / "model.json"
    check_output(path, force=True)
    path.write_text("old")
    write_whole(path, "new")
    assert path.read_text() == "new" and len(list(tmp_path.iterdir())) == 1


def test_what_was_written_by_the_same_run_may_be_written_again(filesystem, tmp_path):
    path = tmp_path / "state.json"
    check_output(path, force=False)
    write_whole(path, "1")
    write_whole(path, "2")
    assert path.read_text() == "2" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_found_before_the_work(tmp_path, monkeypatch):
    def nowhere(self, *args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "open", nowhere)
    with refused("output_unwritable", Failed, why="Read-only file system"):
        check_output(tmp_path / "model.json", force=False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_or_a_device_is_no_place_for_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        refused("output_no_file", Failed, path=path).by(check_output, path, True)


def test_the_command_says_so(tmp_path):
    (tmp_path / "rows.parquet").touch()
    fails(*SIMULATE, "-o", tmp_path / "rows.parquet", code="output_exists")
    os.symlink(tmp_path / "nowhere", tmp_path / "link.parquet")
    fails(*SIMULATE, "-o", tmp_path / "link.parquet", code="output_exists")
    fine(*SIMULATE, "-o", tmp_path / "new.parquet")
    save_model(simulate(10, 1, 1, random_state=0).truth, tmp_path / "m.json")
