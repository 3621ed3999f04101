"""What the commands share: exit codes, kinds of options, and how they print."""

from __future__ import annotations

import csv
import json
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import isfinite, nan
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli.there import check_there, of_system
from otmoe.cli.words import SHELL
from otmoe.text.errors import OtmoeError
from otmoe.text.names import visible
from otmoe.text.notices import Notice, OtmoeWarning, listed
from otmoe.text.outputs import keep, try_folder
from otmoe.text.progress import fit_progress
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from rich.console import Console

    from otmoe.workers.gather import Progress


Decorator = Callable[[Any], Any]

NAMED = 20
"""Sites or shards that are named one by one."""

# -- errors and warnings ---------------------------------------------------------------------------


class Failed(OtmoeError):
    """The work cannot be done; the sentence says why."""


def usage(code: Error, **facts: Any) -> click.UsageError:
    """Return the error for a command line that is wrong."""
    return click.UsageError(code.value.format(**facts))


def sentence(error: BaseException) -> str:
    """Return an error as one line, in the words of the shell."""
    text = error.in_words(SHELL) if isinstance(error, OtmoeError) else str(error)
    text = " ".join(text.split())
    if isinstance(error, OSError) and not isinstance(error, OtmoeError) and error.strerror:
        text = of_system(error)
    expected = isinstance(error, OtmoeError | ValueError | OSError | RuntimeError | ImportError)
    if expected and text:
        return text
    return f"{type(error).__name__}: {text or 'no details'} (OTMOE_DEBUG=1 shows where)"


def warn(notice: Notice | str) -> None:
    """Write a line to standard error."""
    text = notice.in_words(SHELL) if isinstance(notice, Notice) else notice
    click.echo(f"warning: {visible(text)}", err=True)


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    """Write a warning of Python's, notice by notice in the words of the shell."""
    for notice in message.notices if isinstance(message, OtmoeWarning) else [str(message)]:
        warn(notice)


class Stopped(KeyboardInterrupt):
    """A signal asked the command to end; workers and temporary files go as by Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _signals() -> Iterator[None]:
    """Take SIGTERM and SIGHUP as Ctrl-C is taken."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped(number)

    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if current_thread() is not main_thread():
        known = []
    before = {number: signal.getsignal(number) for number in known}
    known = [number for number in known if before[number] is not signal.SIG_IGN]  # as by nohup
    for number in known:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in known:
            signal.signal(number, before[number])


class Commands(click.Group):
    """Commands whose errors are one line, and whose exit codes scripts can rely on."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command: 1 if the work failed, 130 if it was interrupted, 143 by SIGTERM."""
        try:
            with _signals(), warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = _show
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Stopped as stopped:
            click.echo(f"error: stopped by {signal.Signals(stopped.number).name}", err=True)
            ctx.exit(128 + stopped.number)
        except KeyboardInterrupt:
            click.echo("error: interrupted", err=True)
            ctx.exit(130)
        except Exception as error:
            if os.environ.get("OTMOE_DEBUG") == "1":
                traceback.print_exception(error)
            click.echo(f"error: {sentence(error)}", err=True)
            ctx.exit(1)


# -- options ---------------------------------------------------------------------------------------


class Option(click.Option):
    """An option that has its place under a heading of the help."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


RENAMED = {
    "--engine": "--executor",
    "--workers": "--n-jobs",
    "--points": "--n-support",
    "--support": "--n-support",
    "--share-support": "--share",
    "--site": "--site-column",
}
"""Options that had other names; some commands have the old name for something else."""


class Command(click.Command):
    """A command whose help has headings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse old names of options with a sentence that has the new one."""
        known = {name for param in self.params for name in param.opts}
        for name in (arg.partition("=")[0] for arg in args):
            if name in RENAMED and name not in known and RENAMED[name] in known:
                raise usage(Error.SHELL_RENAMED, old=name, new=RENAMED[name])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Refuse files that do not exist before anything is imported to read them."""
        check_there(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, heading by heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record is not None:
                sections.setdefault(getattr(param, "section", "Other"), []).append(record)
        sections["Other"] = sections.pop("Other", [])  # --help comes last
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def option(*names: str, section: str, **kwargs: Any) -> Decorator:
    """Return a decorator that adds an option under a heading."""
    return click.option(*names, cls=Option, section=section, **kwargs)


class Names(click.ParamType):
    """Names separated by commas; one that holds a comma is quoted as in CSV."""

    name = "name,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        """Return the names."""
        if isinstance(value, list):
            return value
        names = [name.strip() for name in next(csv.reader([value], skipinitialspace=True), [])]
        if not all(names) or not names:
            self.fail(f"{value!r} has an empty name; give names as in a,b,c.", param, ctx)
        return names


class Levels(Names):
    """Numbers between 0 and 1, separated by commas."""

    name = "level,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the numbers."""
        try:
            levels = [float(item) for item in super().convert(value, param, ctx)]
        except ValueError:
            levels = [nan]
        if not all(0 < level < 1 for level in levels):
            self.fail(f"{value!r}: give numbers between 0 and 1, as in .05,.5,.95.", param, ctx)
        return levels


class Rounds(click.ParamType):
    """A number of refine rounds, or auto."""

    name = "N|auto"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        """Return the number, or "auto"."""
        if value == "auto" or isinstance(value, int):
            return value
        if value.isdecimal() and int(value) >= self.least:
            return int(value)
        return self.fail(f"{value!r}: give auto or a number from {self.least}.", param, ctx)


data = click.argument("data", nargs=-1, required=True, metavar="DATA...")


def several(*decorators: Decorator) -> Decorator:
    """Return a decorator that adds several options, in this order."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


speech = several(
    option(
        "--json",
        "as_json",
        is_flag=True,
        section="Output",
        help="Print one JSON object instead of text.",
    ),
    option("-q", "--quiet", is_flag=True, section="Output", help="Print no report."),
)


def output(what: str) -> Decorator:
    """Return a decorator that adds where to write, and the options about what to print."""
    return several(
        option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            required=True,
            section="Output",
            help=what,
        ),
        option("--force", is_flag=True, section="Output", help="Overwrite an existing file."),
        speech,
    )


def check_output(path: Path, force: bool) -> None:
    """Refuse, before any work, what could not be written after it.

    Without force, a file that appears there during the work is not replaced either.
    """
    if path.is_dir():
        raise Failed(Error.OUTPUT_FOLDER, path=path)
    if path.exists() and not path.is_file():
        raise Failed(Error.OUTPUT_NO_FILE, path=path)
    if os.path.lexists(path) and not force:
        raise Failed(Error.OUTPUT_EXISTS, path=path)
    if not path.parent.is_dir():
        raise Failed(Error.NO_FOLDER, folder=path.parent)
    try:
        try_folder(path.parent)
    except OSError as error:
        raise Failed(Error.OUTPUT_UNWRITABLE, path=path, why=error.strerror) from error
    if not force:
        keep(path)


# -- printing --------------------------------------------------------------------------------------


def console(*, stderr: bool = False) -> Console:
    """Return where to print; names are printed as they are, whatever brackets they hold."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


@contextmanager
def progress(what: str, quiet: bool, n: int | None = None) -> Iterator[Progress | None]:
    """Give a callback that shows progress and the time left on stderr, if that is a terminal."""
    screen = console(stderr=True)
    totals = {} if n is None else {what: n}
    with fit_progress(screen.is_terminal and not quiet, totals, screen, left=True) as report:
        if report is None:
            yield None
            return
        if n is not None:
            report(what, 0, nan)

        def show(done: int, total: int, name: str) -> None:
            totals.setdefault(what, total)
            report(what, done, nan)

        yield show


def say(report: dict[str, Any], as_json: bool, quiet: bool, *lines: Any) -> None:
    """Print a result: as one JSON object, or as lines and tables."""
    if as_json:
        click.echo(json.dumps(_plain(report), ensure_ascii=False))
    elif not quiet:
        screen = console()
        for line in lines:
            if isinstance(line, str):
                line = "\n".join(visible(part) for part in line.split("\n"))
            screen.print(line, soft_wrap=isinstance(line, str))


def _plain(value: Any) -> Any:
    """Return a report as JSON can hold it: null for a number that is none."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def few(names: Iterable[str]) -> str:
    """Return names in a row, not more than one cares to read, none of which forges a line."""
    return listed([visible(name) for name in names], NAMED)
