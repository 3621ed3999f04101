"""Warnings, statuses and findings: sentences for people, with codes for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from string import Formatter
from typing import Any

_ONE = re.compile(r"(?<![\d.,-])1 standard errors\b")


def in_number(text: str) -> str:
    """Return a sentence with "1 standard error" in the singular.

    Examples
    --------
    >>> in_number("the last step was 1 standard errors long")
    'the last step was 1 standard error long'
    >>> in_number("the last step was 0.1 standard errors long")
    'the last step was 0.1 standard errors long'
    """
    return _ONE.sub("1 standard error", text)


class Sentence(Enum):
    """Codes and sentences: the name of a member is its code, the value its sentence.

    Calling a member with the values that its sentence needs returns a :class:`Notice`.
    """

    @property
    def code(self) -> str:
        """The code, in lower case."""
        return self.name.lower()

    def __call__(self, *, sites: tuple[str, ...] = (), **facts: Any) -> Notice:
        """Return the notice with this code and these facts."""
        return Notice(self.code, in_number(self.value.format(**facts)), tuple(sites), facts)


NAMED = 5
"""Maximum number of names in a sentence; the rest are counted."""


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """Return the first few names, and how many more there are, for a sentence."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_NO_FACTS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should know.

    The code is for programs and the text for people; ``str(notice)`` is the text.

    Attributes
    ----------
    code : str
        What it is about, such as ``"rank_deficient"``.
    text : str
        The same in a sentence.
    sites : tuple of str
        The sites concerned, if any.
    facts : dict
        The values in the sentence, by name; empty if it was read from a file.

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
        """Return the sentence, in the wording given for its code, if any."""
        text = words.get(self.code)
        if text is None or any(n and n not in self.facts for _, n, *_ in Formatter().parse(text)):
            return self.text  # also if it was read from a file, which has no facts
        return in_number(text.format(**self.facts))


class OtmoeWarning(UserWarning):
    """A Python warning made of notices.

    Parameters
    ----------
    who : str
        The source of the warning; every sentence begins with it.
    notices : iterable of Notice
        Kept in the attribute `notices`, for programs.
    """

    def __init__(self, who: str, notices: Iterable[Notice]) -> None:
        self.notices = tuple(notices)
        super().__init__(" ".join(f"{who}: {notice}" for notice in self.notices))

    @property
    def codes(self) -> tuple[str, ...]:
        """Their codes."""
        return tuple(notice.code for notice in self.notices)
