"""How sure a search is of its maximum (maths 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SEARCHES = "searches that agree"
"""What summaries and model files call it."""


@dataclass(frozen=True)
class Agreement:
    """How sure a search is of its maximum.

    Attributes
    ----------
    searches : int
        Independent ones.
    agreed : int
        Those that ended in the maximum that was taken.
    runner_up : float
        Nats by which the next best maximum lies below it; infinite where none was seen.
    """

    searches: int
    agreed: int
    runner_up: float

    @property
    def gap(self) -> str:
        """The distance of the runner-up, as the rest of a sentence; empty where there is none."""
        return f", and the next best is {self.runner}" if np.isfinite(self.runner_up) else ""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What a summary says of it."""
        return [
            (SEARCHES, self.searches_that_agree),
            ("next best maximum", self.runner),
        ]

    @property
    def searches_that_agree(self) -> str:
        """How many of how many."""
        return f"{self.agreed} of {self.searches}"

    @property
    def runner(self) -> str:
        """The distance of the runner-up."""
        nats = self.runner_up
        return f"{nats:,.1f} nats lower" if np.isfinite(nats) else "none seen"
