"""`otmoe run` that was killed: the same command goes on, and writes the same file."""

import signal
import sys

import pytest
from commandline import call, fails, fine, told
from processes import killed

pytestmark = pytest.mark.usefixtures("own_folder")

SIZE = "--files 6 --rows 1800 --experts 2 --features 2 --softness 0.5 --seed 3".split()
RUN = ["run", "data", "--target", "y", "--experts", 2, "--starts", 2, "--n-jobs", 1]
DONE = 5  # fits before it is killed

# the command, but for its last fit, which never ends
STUCK = f"""
import sys, time
from otmoe.cli import main
from otmoe.distributed import saved

real, done = saved.fit_local, []

def fit_local(task):
    if len(done) == {DONE}:
        time.sleep(600)
    done.append(task)
    return real(task)

saved.fit_local = fit_local
main(sys.argv[1:])
"""


def parts(folder):
    return sorted(path.name for path in folder.glob("*.fit.npz"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_goes_on_and_writes_the_same_bytes(number, tmp_path):
    fine("simulate", "-o", "data", *SIZE)
    fine(*RUN, "-o", "whole.json")
    assert not (tmp_path / "whole.json.parts").exists()
    command = [sys.executable, "-c", STUCK, *map(str, RUN), "-o", "model.json"]
    kept = tmp_path / "model.json.parts"
    stopped = killed({number: (command, tmp_path)}, lambda mark, _: len(parts(kept)) == DONE)
    left, code, said = stopped[number]
    assert left == [] and code != 0 and not (tmp_path / "model.json").exists()
    if number == signal.SIGINT:
        assert f"local fits done so far ({DONE}) are kept in" in said
    done = told(*RUN, "-o", "model.json")
    assert len(done["reused"]) == DONE and len(done["shards"]) == 6
    assert (tmp_path / "model.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert not kept.exists()


def test_a_folder_that_the_user_names_stays_and_serves_shards_that_come_later(tmp_path):
    fine("simulate", "-o", "data", *SIZE)
    last = tmp_path / "data" / "part-5.parquet"
    rows = last.read_bytes()
    last.unlink()
    fine(*RUN, "--keep-fits", "fits", "-o", "five.json")
    assert len(parts(tmp_path / "fits")) == 5
    last.write_bytes(rows)
    done = call(*RUN, "--keep-fits", "fits", "-o", "six.json")
    assert "6, 5 fitted before" in done.output
    assert len(parts(tmp_path / "fits")) == 6
    (tmp_path / "note").write_text("")
    fails(*RUN, "--keep-fits", "note", "-o", "no.json", code="keep_no_folder")


def test_a_run_that_could_not_begin_leaves_nothing(tmp_path):
    fine("simulate", "-o", "data", *SIZE)
    for path in (tmp_path / "data").iterdir():
        if path.name != "part-0.parquet":
            path.write_bytes(b"no table")
    fails(*RUN[:5], 500, *RUN[6:], "-o", "model.json")
    assert not (tmp_path / "model.json.parts").exists()
