"""The rules of a site: conditions for anything that leaves it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field

from otmoe.text.errors import InvalidInput
from otmoe.text.records import List, Name, Record, Whole, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import named, parse, read, shown

VARIABLE = "OTMOE_POLICY"
"""The environment variable that names the policy of a site."""

FILE = "policy.json"
"""What a policy is called in the folder where a command runs, if neither option nor variable is
given."""

BUILT_IN = "built in"
"""Where a policy is from that no file has."""

Least = Annotated[Whole, Field(ge=0)]
Share = Annotated[float, Field(ge=0)]


class Rule(StrEnum):
    """A rule by its name: in policies, verdicts, refusals and overrides."""

    ROWS = "rows"
    PARAMETERS = "parameters"
    EXPERT_ROWS = "expert_rows"
    CELLS = "cells"
    LEVERAGE = "leverage"
    CERTAINTY = "certainty"
    SKETCH = "sketch"
    SHARE = "share"
    NAMES = "names"
    COLUMNS = "columns"
    QUESTION = "question"
    SCATTER = "scatter"
    LEDGER = "ledger"


def overrides_of(reasons: Mapping[str, str] | None) -> dict[Rule, str]:
    """Return overridden rules by name, and why."""
    reasons = reasons or {}
    for name in reasons:
        if name not in set(Rule):
            raise InvalidInput(Error.RULE_UNKNOWN, at="overrides", value=shown(name))
    return {Rule(name): why for name, why in reasons.items()}


class Policy(Record):
    """What may leave a site; set at the site and applied to all output. None turns a rule off.

    Attributes
    ----------
    rows : int, optional
        Minimum number of rows, or of people if `id` names a column.
    parameters, parameters_warn : float, optional
        Maximum number of free parameters per row, and the value above which to warn.
    expert_rows, expert_rows_per_coefficient : int, optional
        Minimum number of rows behind each expert, and for each of its coefficients.
    cell : int, optional
        Minimum number of rows in a nonempty cell: level, expert and class.
    leverage : float, optional
        Maximum share of one row in its own fitted value.
    certainty : float, optional
        Maximum share of y that the model determines: of its standard deviation, or of its deviance.
    component_rows : int, optional
        Minimum number of rows behind a component of a sketch.
    share : int, optional
        Maximum number of rows of x that leave unchanged.
    digits : float, optional
        Numbers are rounded to this fraction of their standard errors, or to the change that one row
        could make if that is more.
    names : bool
        Whether constant features and rare levels that are not in the coordinator's file may be
        named.
    allow, deny : list of str
        Columns that may be used, if any are listed, and columns that may not.
    id : str, optional
        Column that identifies the person of a row: people are then counted instead of rows.
    messages, replies, queries : int, optional
        Maximum number of each in one study.
    """

    rows: Least | None = 10
    parameters: Share | None = 0.33
    parameters_warn: Share | None = 0.1
    expert_rows: Least | None = 10
    expert_rows_per_coefficient: Least | None = 3
    cell: Least | None = 5
    leverage: Share | None = 0.9
    certainty: Share | None = 0.99
    component_rows: Least | None = 10
    share: Least | None = 0
    digits: Share | None = 0.01
    names: bool = False
    allow: List[Name] = []
    deny: List[Name] = []
    id: Name | None = None
    messages: Least | None = 5
    replies: Least | None = 60
    queries: Least | None = 100

    @classmethod
    def off(cls) -> Self:
        """Return the policy that refuses and rounds nothing, for rows that are not confidential."""
        numbers = {k for k, f in cls.model_fields.items() if isinstance(f.default, int | float)}
        return cls.model_validate({**dict.fromkeys(numbers), "names": True})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a policy from a JSON file; missing fields have their defaults.

        Parameters
        ----------
        path : str or path
        """
        source = named(path)
        return typed(cls, parse(read(path), source), source)

    def allows(self, column: str) -> bool:
        """Say whether a column may be used."""
        return column not in self.deny and (not self.allow or column in self.allow)

    @property
    def smallest_count(self) -> int:
        """Rows, or people, below which no count is disclosed."""
        return max(self.rows or 1, self.cell or 1)


def in_force(path: str | os.PathLike[str] | None = None) -> tuple[Policy, str]:
    """Return the policy of this site, and its source.

    Parameters
    ----------
    path : str or path, optional
        Its file; by default the one named by OTMOE_POLICY, or ``policy.json`` in the working
        directory, or the built-in one.
    """
    found = path or os.environ.get(VARIABLE) or (FILE if os.path.isfile(FILE) else None)
    return (Policy(), BUILT_IN) if found is None else (Policy.load(found), os.fspath(found))


@dataclass(frozen=True)
class Measure:
    """One figure checked by one rule.

    Attributes
    ----------
    rule : Rule
    figure, limit : float
        What was found, and what the policy allows.
    outcome : {"pass", "warn", "refuse"}
    where : str
        What the figure is about: an expert, a level, a column; empty for all of the rows.
    """

    rule: Rule
    figure: float
    limit: float
    outcome: Literal["pass", "warn", "refuse"]
    where: str = ""


@dataclass(frozen=True)
class Verdict:
    """All figures checked by a policy.

    Attributes
    ----------
    measures : tuple of Measure
        One per rule that is on: the worst of its kind.
    overrides : dict
        Broken rules that the site has overridden this once, and why.
    people : bool
        Whether people were counted instead of rows.
    """

    measures: tuple[Measure, ...]
    overrides: dict[Rule, str] = field(default_factory=dict)
    people: bool = False

    @property
    def refused(self) -> Sequence[Measure]:
        """The rules that are broken and not overridden."""
        return [m for m in self.measures if m.outcome == "refuse" and m.rule not in self.overrides]

    @property
    def word(self) -> Literal["send", "consider", "do not send"]:
        """The verdict in a word."""
        if self.refused:
            return "do not send"
        return "send" if all(m.outcome == "pass" for m in self.measures) else "consider"
