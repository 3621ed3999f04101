"""What people are told, with a code for programs: warnings, statuses, findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Sentence(Enum):
    """Codes and what they say: the name of a member is the code, its value the sentence.

    Calling a member with the facts that its sentence names gives a :class:`Notice`.
    """

    @property
    def code(self) -> str:
        """The code, in lower case."""
        return self.name.lower()

    def __call__(self, *, sites: tuple[str, ...] = (), **facts: Any) -> Notice:
        """Return the notice of this code, with these facts."""
        return Notice(self.code, self.value.format(**facts), tuple(sites), facts)


NAMED = 5
"""Names in a sentence; the others are counted."""


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """Return names as a sentence lists them: the first few, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_NO_FACTS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should know.

    Programs look at the code, people at the text; ``str(notice)`` is the text.

    Attributes
    ----------
    code : str
        What it is about, such as ``"rank_deficient"``.
    text : str
        The same in a sentence.
    sites : tuple of str
        The sites concerned, if it is about some of several.
    facts : dict
        The figures in the sentence, by name; empty where it was read from a file.

    Examples
    --------
    >>> from otmoe.text.sentences import Warn
    >>> found = Warn.ROWS_DROPPED(rows=3, total=90, columns=" (age in 3)")
    >>> found.code, str(found)
    ('rows_dropped', '3 of 90 rows were dropped because a value is missing (age in 3).')
    """

    code: str
    text: str
    sites: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=lambda: _NO_FACTS, repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def in_words(self, words: Mapping[str, str]) -> str:
        """Return the sentence, in other words where some are given for its code."""
        known = self.code in words and self.facts  # not where it was read from a file
        return words[self.code].format(**self.facts) if known else self.text


class OtmoeWarning(UserWarning):
    """Notices as one Python warning.

    Parameters
    ----------
    who : str
        Who gives it; every sentence begins with it.
    notices : iterable of Notice
        The attribute `notices` keeps them, for programs.
    """

    def __init__(self, who: str, notices: Iterable[Notice]) -> None:
        self.notices = tuple(notices)
        super().__init__(" ".join(f"{who}: {notice}" for notice in self.notices))

    @property
    def codes(self) -> tuple[str, ...]:
        """Their codes."""
        return tuple(notice.code for notice in self.notices)
