"""What is wrong with rows, counted by column."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.text.arguments import counted
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown


@dataclass
class Tally:
    """What was wrong with the rows read so far, so that one sentence can give the whole count.

    Attributes
    ----------
    n_rows : int
    missing, infinite, negative : Counter
        Rows by column; a negative weight is wrong, a negative feature is not.
    unknown : dict
        Counter of values that are not levels, by column.
    """

    n_rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    infinite: Counter[str] = field(default_factory=Counter)
    negative: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, name: str, values: Floats) -> None:
        """Count the missing and the infinite numbers of a column."""
        finite = np.isfinite(values)
        if not finite.all():
            self.missing[name] += int(np.isnan(values).sum())
            self.infinite[name] += int(np.isinf(values).sum())

    def check(self, missing: str = "error", unknown: str = "error") -> None:
        """Raise a ValueError about what may not be."""
        for name, count in self.missing.items():
            if count == self.n_rows > 0 and missing != "keep":
                raise InvalidInput(Error.COLUMN_EMPTY, column=name, rows=count)
        if missing == "error" and any(self.missing.values()):
            raise InvalidInput(
                Error.COLUMN_MISSING, columns=counted(self.missing), rows=self.n_rows
            )
        for name, count in self.infinite.items():
            if count:
                raise InvalidInput(Error.COLUMN_INFINITE, column=name, count=count)
        for name, count in self.negative.items():
            if count:
                raise InvalidInput(Error.COLUMN_NEGATIVE, column=name, count=count)
        for name, values in self.unknown.items():
            if values and unknown == "error":
                most = ", ".join(f"{shown(value)} ({n} rows)" for value, n in values.most_common(3))
                more = f" and {len(values) - 3} more" if len(values) > 3 else ""
                raise InvalidInput(Error.COLUMN_LEVELS, column=name, values=most, more=more)
