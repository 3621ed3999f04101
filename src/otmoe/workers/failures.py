"""Tasks that failed: which, why, and how an error tells of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otmoe.text.errors import OtmoeError, RunError
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Error, Finding

MOST_TOLD = 3
"""Kinds of failures that an error tells."""


@dataclass(frozen=True)
class Failure:
    """A task that failed.

    Attributes
    ----------
    name : str
    cause : Notice
        Why.
    """

    name: str
    cause: Notice

    def __str__(self) -> str:
        return f"{self.name}: {self.cause}"


class TasksFailed(RunError):
    """Some tasks failed; `failures` names them."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        shown = self._shown({})
        super().__init__(Error.FITS_FAILED, count=len(self.failures), failures=shown)

    def _shown(self, words: Mapping[str, str]) -> str:
        """Return the first failures, each in the wording given for its code, if any.

        Those of a kind are told once, with the names of the others.
        """
        kinds: dict[str, list[Failure]] = {}
        for failure in self.failures:
            own = failure.cause.code == Finding.TASK_ERROR.code  # any error of any kind
            kinds.setdefault(str(failure) if own else failure.cause.code, []).append(failure)
        told = list(kinds.values())[:MOST_TOLD]
        lines = []
        for first, *others in told:
            names = listed([failure.name for failure in others])
            alike = f" (similarly {names})" if others else ""
            lines.append(f"{first.name}: {first.cause.in_words(words).removesuffix('.')}{alike}")
        left = len(self.failures) - sum(map(len, told))
        return "; ".join([*lines, *([f"and {left} more"] if left else [])]) + "."

    def in_words(self, words: Mapping[str, str]) -> str:
        """Return the sentence, with the failures in these words too."""
        text = words.get(self.code, self.member.value)
        return text.format(**{**self.facts, "failures": self._shown(words)})

    def __reduce__(self) -> Any:
        return TasksFailed, (self.failures,)


def sentence(error: BaseException) -> str:
    """Return an error as one sentence, preceded by its type unless the text is enough."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | OtmoeError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cause_of(error: BaseException, name: str) -> Notice:
    """Return why a task failed, without a leading name of the task."""
    cause = sentence(error)
    for begin in (f"{name}: ", f"shard {name!r}: "):
        cause = cause.removeprefix(begin)
    if isinstance(error, OtmoeError):
        return Notice(error.code, cause, (), error.facts)
    return Finding.TASK_ERROR(why=cause)
