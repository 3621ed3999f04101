"""Kinds of options that several commands have."""

from __future__ import annotations

from typing import Any

import click

from otmoe.cli import known


class Cut(click.ParamType):
    """How rows are cut into shards."""

    name = "cut"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return what :func:`otmoe.shards_from` calls it."""
        if value in ("file", "row-group", "row_group"):
            return value.replace("-", "_")
        if isinstance(value, int) or (value.isdecimal() and int(value) > 0):
            return int(value)
        return self.fail(f"{value!r}: give file, row-group or a number of shards.", param, ctx)


class Separator(click.ParamType):
    """One character; tab may be written out."""

    name = "character"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the character."""
        found = {"tab": "\t", "\\t": "\t"}.get(value, value)
        if len(found) != 1:
            self.fail(f"{value!r}: give one character, or tab.", param, ctx)
        return str(found)


class Family(click.ParamType):
    """What responses are; families may be added while the command is there."""

    name = "family"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the families there are."""
        return f"[{'|'.join(known.families())}]"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Return the name of a family, or "classes"; with a plus between those of several."""
        choices, parts = known.families(), str(value).replace("+", ",").split(",")
        names = [part.strip() for part in parts]
        student = [f"student_t{nu}" for nu in known.DEGREES]
        for name in names:
            if name not in (*choices, *student) or (len(names) > 1 and name == known.CLASSES):
                several = ", and one for each of several targets" if len(names) > 1 else ""
                least = [name for name in choices if len(names) == 1 or name != known.CLASSES]
                least.append(f"{student[0]} to {student[-1]} (odd degrees of freedom)")
                self.fail(f"{name!r}: give one of {', '.join(least)}{several}.", param, ctx)
        return "+".join(names)


class Numbers(click.ParamType):
    """Whole numbers: some, as in 2,3,5, or all from one to another, as in 1-6."""

    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a list of int."""
        if not isinstance(value, str):
            return value
        first, dash, last = value.partition("-")
        try:
            if dash:
                numbers = list(range(int(first), int(last) + 1))
            else:
                numbers = [int(part) for part in value.split(",")]
        except ValueError:
            numbers = []
        if not numbers or min(numbers) < 1:
            self.fail(f"{value!r}: give numbers, as in 1-6 or 2,3,5.", param, ctx)
        return numbers
