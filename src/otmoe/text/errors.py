"""Errors with a code, a place, facts and one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

from otmoe.text.notices import Notice, in_number
from otmoe.text.sentences import Error


class OtmoeError(Exception):
    """An error with a `code` for programs and a sentence for people.

    Parameters
    ----------
    code : Error
        The sentence says what is wrong and what to do.
    where : str
        The file, shard or site concerned; the sentence begins with it.
    at : str
        The place in a document, such as ``model.experts.var[2]``.
    **facts
        The values in the sentence, by name.

    Examples
    --------
    >>> from otmoe.text.sentences import Error
    >>> error = InvalidInput(Error.NOT_WHOLE, name="n_experts", value=0)
    >>> error.code, error.facts["name"]
    ('not_whole', 'n_experts')
    >>> print(error)
    n_experts is 0; give a whole number of at least 1.
    """

    def __init__(self, code: Error, *, where: str = "", at: str = "", **facts: Any) -> None:
        # Errors are pickled by workers; an exception among the facts might not be picklable.
        self.facts = {k: str(v) if isinstance(v, BaseException) else v for k, v in facts.items()}
        self.member, self.where, self.at = code, where, at
        super().__init__(code)

    @property
    def code(self) -> str:
        """What is wrong, as an identifier for programs."""
        return self.member.code

    def __str__(self) -> str:
        return self.in_words({})

    def in_words(self, words: Mapping[str, str]) -> str:
        """Return the sentence, in the wording given for its code, if any."""
        text = in_number(words.get(self.code, self.member.value).format(**self.facts))
        return f"{self.where}: {self._at}{text}" if self.where else f"{self._at}{text}"

    @property
    def notice(self) -> Notice:
        """The error as a notice, to be reported later."""
        return Notice(self.code, str(self), (), self.facts)

    @property
    def _at(self) -> str:
        return f"`{self.at}` " if self.at else ""

    def about(self, where: str, kind: type[OtmoeError] | None = None) -> OtmoeError:
        """Return the same error with a place in front, as another class if one is given."""
        place = ": ".join(filter(None, (where, self.where)))
        return (kind or type(self))._rebuilt(self.member, place, self.at, self.facts)

    @classmethod
    def _rebuilt(cls, member: Error, where: str, at: str, facts: dict[str, Any]) -> Self:
        error = cls.__new__(cls, member)
        OtmoeError.__init__(error, member, where=where, at=at, **facts)
        return error

    def __reduce__(self) -> Any:
        return type(self)._rebuilt, (self.member, self.where, self.at, self.facts)


class InvalidInput(OtmoeError, ValueError):
    """A value that cannot be used."""


class InvalidType(OtmoeError, TypeError):
    """A value of the wrong type, or an operation that it does not support."""


class MessageError(InvalidInput):
    """A file that cannot be used; the error names the place and says what to do."""


class ShardError(InvalidInput):
    """A shard that cannot be made or read; the error names it and says what to do."""


class InferenceError(InvalidInput):
    """Standard errors would be wrong; the message says why, and what to do."""


class RunError(OtmoeError, RuntimeError):
    """A computation that could not be completed."""


class MissingPackage(OtmoeError, ImportError):
    """An optional package that is not installed."""


class NotThere(OtmoeError, FileNotFoundError):
    """A file or folder that does not exist."""


def fail(source: str, at: str, code: Error, **facts: Any) -> NoReturn:
    """Raise a :class:`MessageError` about one place of a document."""
    raise MessageError(code, where=source, at=at, **facts)
