"""Drivers that are started and killed, and what is left of them."""

import os
import signal
import subprocess
import time
from pathlib import Path


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
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # as not by nohup
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
