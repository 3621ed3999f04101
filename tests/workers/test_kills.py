"""However a driver comes to its end, its workers end too."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import killed, marked, until

from otmoe.cli.common import check_output
from otmoe.text import outputs
from otmoe.workers import ray_watch

if not Path("/proc/self/environ").exists():
    pytest.skip("processes are found by /proc", allow_module_level=True)

DRIVER = """
import sys, time
from pathlib import Path
from otmoe.workers.gather import Workers, gather
from otmoe.workers.pools import local_workers

def work(i):
    import time
    from pathlib import Path
    Path({folder!r}, f"busy-{{i}}").touch()
    time.sleep(300)

gather(work, range(1), ["a"], Workers(local_workers(1)))
"""

COMMAND = (
    DRIVER.replace("gather(work", "def busy():\n    gather(work")
    + """
import click
from otmoe.cli.common import Command, Commands

main = click.group(cls=Commands)(lambda: None)
main.command("busy", cls=Command)(busy)
main()
"""
)


def test_workers_end_with_a_driver_that_is_killed(tmp_path):
    """In Python a driver has no handlers: the workers notice by themselves."""
    commands = {}
    for name in ("SIGTERM", "SIGHUP", "SIGKILL"):
        (folder := tmp_path / name).mkdir()
        script = [sys.executable, "-c", DRIVER.format(folder=str(folder))]
        commands[getattr(signal, name)] = script, folder
    found = killed(commands, lambda _, folder: folder.joinpath("busy-0").exists())
    assert {n: (left, code) for n, (left, code, _) in found.items()} == {
        number: ([], -number) for number in commands
    }


RAYLET = """
import subprocess, sys, time
from pathlib import Path
from otmoe.workers.ray_watch import watch
raylet = subprocess.Popen([{folder!r} + "/raylet"])
while not Path({folder!r}, "agent").exists():
    time.sleep(0.05)
watch()
watch()  # one watcher is enough
other = subprocess.Popen(["sleep", "6"])  # no business of Ray's
Path({folder!r}, "busy-0").touch()
time.sleep(300)
"""


def test_what_ray_leaves_behind_ends_with_its_driver(tmp_path):
    """Ray itself is tested with the engines; here its daemon is a script that starts another."""
    raylet = tmp_path / "raylet"
    raylet.write_text('#!/bin/sh\nsleep 300 &\ntouch "$(dirname "$0")/agent"\nwait\n')
    raylet.chmod(0o755)
    script = [sys.executable, "-c", RAYLET.format(folder=str(tmp_path))]

    def ready(mark, folder):
        # driver, raylet and agent, a watcher, and what has nothing to do with it
        return folder.joinpath("busy-0").exists() and len(marked(mark)) == 5

    found = killed({signal.SIGKILL: (script, tmp_path)}, ready)
    assert found[signal.SIGKILL][:2] == ([], -signal.SIGKILL)


def test_a_driver_that_ends_before_the_first_check_leaves_nothing_behind(tmp_path):
    raylet = tmp_path / "raylet"
    raylet.write_text(f'#!/bin/sh\nsleep 300 &\n: >"{tmp_path}/agent"\nwait\n')
    raylet.chmod(0o755)
    with subprocess.Popen([raylet]) as daemon:
        try:
            assert until((tmp_path / "agent").exists, 30)
            family = ray_watch._family(ray_watch._processes(), os.getpid())
        finally:
            daemon.kill()  # its agent is nobody's child now
    assert len(family) == 2
    late = [sys.executable, "-I", "-S", ray_watch.__file__, "1"]  # whose driver is gone already
    subprocess.run([*late, *(f"{pid}:{began}" for pid, began in family)], check=True)
    assert until(lambda: not ray_watch._alive(ray_watch._processes(), family), 10)


def test_a_command_stops_by_a_signal_as_by_an_interrupt(tmp_path):
    commands = {}
    for name in ("SIGTERM", "SIGHUP"):
        (folder := tmp_path / name).mkdir()
        script = [sys.executable, "-c", COMMAND.format(folder=str(folder)), "busy"]
        commands[getattr(signal, name)] = script, folder
    found = killed(commands, lambda _, folder: folder.joinpath("busy-0").exists())
    for number in commands:
        said = f"error: stopped by {number.name}\n"
        assert found[number] == ([], 128 + number, said)


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    mine = outputs._temporary()
    old = mine.replace(f"-{os.getpid()}-", f"-{gone.pid}-")
    elsewhere = mine.replace(outputs._MACHINE, "0" * 8)
    for name in (mine, old, elsewhere):
        (tmp_path / name).touch()
    check_output(tmp_path / "model.json", force=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine, elsewhere])
