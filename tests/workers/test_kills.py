"""However a driver comes to its end, its workers end too."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otmoe.cli.common import check_output
from otmoe.text import outputs

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

gather(work, range(2), ["a", "b"], Workers(local_workers(2)))
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


def marked(mark):
    """Return the processes that carry a mark in their environment, zombies left out."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = process.joinpath("environ").read_bytes()
            state = process.joinpath("stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"OTMOE_MARK={mark}".encode() in environment.split(b"\0") and state != "Z":
            found.append(int(process.name))
    return found


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def killed(commands, ready, seconds=10.0):
    """Start drivers, end each by its signal when it is busy, and return what is left of each.

    Parameters
    ----------
    commands : dict
        A command and its folder, by signal.
    ready : callable, (mark of the processes, folder) -> bool
    """
    marks, drivers, found = {}, {}, {}
    try:
        for number, (command, folder) in commands.items():
            marks[number] = f"{os.getpid()}-{time.monotonic_ns()}"
            drivers[number] = subprocess.Popen(
                command,
                env={**os.environ, "OTMOE_MARK": marks[number]},
                cwd=folder,
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
        for number, driver in drivers.items():
            folder = commands[number][1]
            assert until(lambda n=number, f=folder: ready(marks[n], f), 120)
            assert driver.poll() is None
            driver.send_signal(number)
        for number, driver in drivers.items():
            _, said = driver.communicate(timeout=30)
            until(lambda n=number: not marked(marks[n]), seconds)
            found[number] = marked(marks[number]), driver.returncode, said.decode()
    finally:
        for number, driver in drivers.items():
            driver.kill()
            for process in marked(marks[number]):
                os.kill(process, signal.SIGKILL)
    return found


def test_workers_end_with_a_driver_that_is_killed(tmp_path):
    """In Python a driver has no handlers: the workers notice by themselves."""
    commands = {}
    for name in ("SIGTERM", "SIGHUP", "SIGKILL"):
        (folder := tmp_path / name).mkdir()
        script = [sys.executable, "-c", DRIVER.format(folder=str(folder))]
        commands[getattr(signal, name)] = script, folder
    found = killed(commands, lambda _, folder: len(list(folder.glob("busy-*"))) == 2)
    assert {n: (left, code) for n, (left, code, _) in found.items()} == {
        number: ([], -number) for number in commands
    }


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_command_stops_by_a_signal_as_by_an_interrupt(name, tmp_path):
    number, script = getattr(signal, name), COMMAND.format(folder=str(tmp_path))
    command = [sys.executable, "-c", script, "busy"]
    found = killed(
        {number: (command, tmp_path)}, lambda _, folder: len(list(folder.glob("busy-*"))) == 2
    )
    assert found[number] == ([], 128 + number, f"error: stopped by {name}\n")
    assert not list(tmp_path.glob(".*"))


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
