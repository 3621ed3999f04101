"""What a site has told before: a file that stays there (docs/threats.md).

Two answers about rows that differ by one person show that person. So the site keeps, for every
study, what it has answered, at which model and about which rows (:class:`RowSet`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec, FeaturesRecord
from otmoe.documents.model import (
    ModelRecord,
    check_model,
    features_of,
    features_part,
    model_document,
    model_of,
)
from otmoe.federation.policy.rowsets import BUCKETS, RowSet
from otmoe.likelihood.answers import digest
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.document import Document
from otmoe.text.errors import InvalidInput, NotThere, fail
from otmoe.text.outputs import whole
from otmoe.text.records import Line, List, Map, Name, Record, Version, Whole, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import UNLIMITED, Limits, to_text

NAME = ".otmoe-ledger.json"
"""What a ledger is called unless its path is given: it lies beside the data."""

ROWS = "rows that differ from an earlier answer"
"""Where a measure counts the rows by which an answer differs from an earlier one."""

_KEY = 32  # bytes
_PLAIN = Scaling()

Kind = Literal["message", "reply"]
_COUNT = Annotated[Whole, Field(ge=0)]


class RowsRecord(Record):
    """Rows by their hashes, summed in buckets: all of each row, and y alone."""

    n_rows: _COUNT
    all: Line
    target: Line
    parts: List[Line] = []


class AnswerRecord(Record):
    """Something that has left."""

    kind: Kind
    digest: Line
    rows: _COUNT
    features: FeaturesRecord | None = None
    model: ModelRecord
    sums: bool
    digits: Annotated[float, Field(ge=0)] = 0.0
    scatter: Annotated[float, Field(ge=0)] | None = None
    file: Name = ""


class LedgerRecord(Record):
    """All that a site has answered."""

    otmoe: Literal["ledger"]
    schema_version: Version
    key: Line
    queries: _COUNT
    rows: List[RowsRecord]
    studies: Map[Line, List[AnswerRecord]]


@dataclass(frozen=True)
class Answer:
    """Something that a site has sent.

    Attributes
    ----------
    kind : {"message", "reply"}
    digest : str
        Of the model it is about, and of the scale of the parameters.
    rows : int
        Position of its rows among those of the ledger.
    model : MoE
    features : FeatureSpec, optional
    sums : bool
        Whether it has sums over rows at the model: a reply has, and a message with Grams.
    digits : float
        Step to which the sums were rounded, in standard errors.
    scatter : float, optional
        Step to which the scatter of a reply was rounded, over its diagonal; None if it had none.
    file : str
        Where a message was written.
    """

    kind: Kind
    digest: str
    rows: int
    model: MoE = field(repr=False)
    features: FeatureSpec | None = field(default=None, repr=False)
    sums: bool = True
    digits: float = 0.0
    scatter: float | None = None
    file: str = ""

    @property
    def what(self) -> tuple[str, str, bool, bool]:
        """What tells it from others about the same rows."""
        return self.kind, self.digest, self.sums, self.scatter is not None


@dataclass(frozen=True)
class Ledger(Document):
    """What a site has answered; it never leaves the site.

    Attributes
    ----------
    key : bytes
        Secret of the hashes.
    queries : int
        Questions that were asked about these data, answered or not, of all studies together.
    rows : tuple of RowSet
        Rows that answers were about.
    studies : dict of tuple of Answer
        What was sent, by study.

    Examples
    --------
    >>> Ledger().asked().queries
    1
    """

    kind: ClassVar[str] = "ledger"
    called: ClassVar[str] = "ledger"

    key: bytes = field(default_factory=lambda: secrets.token_bytes(_KEY), repr=False)
    queries: int = 0
    rows: tuple[RowSet, ...] = field(default=(), repr=False)
    studies: Mapping[str, tuple[Answer, ...]] = field(default_factory=dict, repr=False)

    def asked(self) -> Self:
        """Return the ledger with one more question."""
        return replace(self, queries=self.queries + 1)

    def answers(self, study: str, kind: Kind | None = None) -> tuple[Answer, ...]:
        """Return what was sent in a study."""
        return tuple(a for a in self.studies.get(study, ()) if kind in (None, a.kind))

    def repeats(self, study: str, answer: Answer, rows: RowSet) -> bool:
        """Say whether the same was sent before, about the same rows: it tells nothing new."""
        return any(
            answer.what == a.what and self.rows[a.rows].same(rows) for a in self.answers(study)
        )

    def sent(self, study: str, kind: Kind) -> int:
        """Return how many different messages, or replies, were sent in a study."""
        return len({(a.what, a.rows) for a in self.answers(study, kind)})

    def without(self, file: str) -> Self:
        """Return the ledger without a message that is about to be overwritten: it was not sent."""
        if not file:
            return self
        kept = {
            study: tuple(a for a in answers if a.file != file)
            for study, answers in self.studies.items()
        }
        # Rows of which nothing was sent are dropped; positions do not change.
        used = {a.rows for answers in kept.values() for a in answers}
        nothing = np.zeros(BUCKETS, np.uint64)
        rows = [r if i in used else RowSet(0, nothing, nothing) for i, r in enumerate(self.rows)]
        return replace(self, rows=tuple(rows), studies=kept)

    def with_answer(self, study: str, answer: Answer, rows: RowSet) -> Self:
        """Return the ledger with something that is going to leave."""
        known = [i for i, other in enumerate(self.rows) if other.same(rows)]
        place = known[0] if known else len(self.rows)
        kept = self.rows if known else (*self.rows, rows)
        answer, before = replace(answer, rows=place), self.studies.get(study, ())
        if any((a.what, a.rows, a.file) == (answer.what, place, answer.file) for a in before):
            return self
        mine = (*before, answer)
        return replace(self, rows=kept, studies={**self.studies, study: mine})

    # -- the file -----------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        return {
            "key": self.key.hex(),
            "queries": self.queries,
            "rows": [_rows_document(rows) for rows in self.rows],
            "studies": {
                study: [_answer_document(a) for a in answers]
                for study, answers in self.studies.items()
            },
        }

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the ledger of a parsed document, checked."""
        record = typed(LedgerRecord, document, source)
        for study, answers in record.studies.items():
            for i, answer in enumerate(answers):
                check_model(answer.model, answer.features, source, limits)
                if answer.rows >= len(record.rows):
                    fail(source, f"studies.{study}[{i}].rows", Error.LEDGER_SPOILT)
        rows = tuple(_rows_of(part, source) for part in record.rows)
        studies = {s: tuple(map(_answer_of, found)) for s, found in record.studies.items()}
        return cls(_bytes(record.key, _KEY, source), record.queries, rows, studies)


def _hex(words: Floats) -> str:
    return words.astype("<u8").tobytes().hex()


def _bytes(text: str, length: int, source: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != length:
        raise InvalidInput(Error.LEDGER_SPOILT, where=source)
    return found


def _words(text: str, source: str) -> Floats:
    return np.frombuffer(_bytes(text, 8 * BUCKETS, source), "<u8")


def _rows_document(rows: RowSet) -> dict[str, Any]:
    parts = {"parts": [_hex(part) for part in rows.parts]} if rows.parts else {}
    return {"n_rows": rows.n_rows, "all": _hex(rows.all), "target": _hex(rows.target), **parts}


def _rows_of(record: RowsRecord, source: str) -> RowSet:
    every, target = _words(record.all, source), _words(record.target, source)
    return RowSet(record.n_rows, every, target, tuple(_words(p, source) for p in record.parts))


def _answer_document(answer: Answer) -> dict[str, Any]:
    return {
        "kind": answer.kind,
        "digest": answer.digest,
        "rows": answer.rows,
        **features_part(answer.features),
        "model": model_document(answer.model),
        "sums": answer.sums,
        **({"digits": answer.digits} if answer.digits else {}),
        **({} if answer.scatter is None else {"scatter": answer.scatter}),
        **({"file": answer.file} if answer.file else {}),
    }


def _answer_of(record: AnswerRecord) -> Answer:
    features, model = features_of(record.features), model_of(record.model)
    about = record.digest, record.rows, model, features, record.sums
    return Answer(record.kind, *about, record.digits, record.scatter, record.file)


def study_of(site: str, target: str, features: FeatureSpec | None, model: MoE) -> str:
    """Return what a study is known by: site, target and columns, however they are coded.

    Levels, centres, families and numbers of experts do not matter: who varies them asks about the
    same people.
    """
    columns = model.terms[1:] if features is None else features.names
    return sha256(to_text([site, target, *sorted(columns)]).encode()).hexdigest()[:16]


def answer_of(
    kind: Kind,
    model: MoE,
    features: FeatureSpec | None,
    scaling: Scaling = _PLAIN,
    *,
    sums: bool = True,
    file: str = "",
) -> Answer:
    """Return what a ledger says about a message or a reply."""
    return Answer(kind, digest(model, scaling), 0, model, features, sums, file=file)


def place_of(data: Sequence[str]) -> Path:
    """Return where the ledger of some data files is unless its path is given: beside the first.

    Parameters
    ----------
    data : sequence of str
        Paths, as :func:`otmoe.data.shards.files.find` returns them. For URLs it is the folder in
        which the command runs.
    """
    return Path(NAME) if "://" in data[0] else Path(data[0]).with_name(NAME)


@contextmanager
def opened(path: Path) -> Iterator[Ledger]:
    """Read a ledger, or begin one, while no other process does.

    Yields
    ------
    Ledger
        To be changed and given to :func:`keep` before the context ends.
    """
    with _alone(path):
        yield Ledger.load(path, UNLIMITED) if path.exists() else Ledger()


def keep(ledger: Ledger, path: Path) -> None:
    """Write a ledger whole, for its owner alone."""
    try:
        with whole(path) as file:
            os.chmod(file.name, 0o600)
            file.write(ledger.to_json().encode())
    except OSError as error:
        raise InvalidInput(Error.LEDGER_UNWRITABLE, path=path, reason=error.strerror) from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for other processes that have a ledger of this folder open."""
    if not path.parent.is_dir():
        raise NotThere(Error.NO_FOLDER_TO_WRITE, file=path.name, folder=path.parent)
    try:
        import fcntl
    except ImportError:  # such as on Windows: there two answers at once may be counted as one
        yield
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
