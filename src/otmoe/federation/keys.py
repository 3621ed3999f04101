"""A site's key pair, what it has answered with it, and the masks that it shares with other sites.

The private key never leaves the site. Beside it is a small file of what was answered: a mask that
is used for two different replies would give away their difference.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from otmoe.documents.masked_reply import Words
from otmoe.documents.request import RefineRequest
from otmoe.documents.roster import Hash, Roster
from otmoe.federation.masking import added, negated
from otmoe.text.document import Document
from otmoe.text.errors import InvalidInput, MessageError, MissingPackage, NotThere
from otmoe.text.notices import listed
from otmoe.text.records import Line, List, Map, Record, Version, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, named, shown

_ANSWERED = ".answered.json"  # what the name of the file beside a key ends in


def _x25519() -> Any:
    """Return the module of key pairs."""
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError as error:
        raise MissingPackage(Error.NO_CRYPTOGRAPHY) from error
    return x25519


@dataclass(frozen=True)
class Key:
    """The key pair of a site (X25519).

    Attributes
    ----------
    path : Path
        The file of the private key, readable by its owner alone.
    public : str
        What the site's message holds, 64 hexadecimal digits.
    """

    path: Path
    public: str
    _private: Any = field(repr=False)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """Make a key pair and write it to a file, which must not exist yet."""
        path, private = Path(path), _x25519().X25519PrivateKey.generate()
        if not path.parent.is_dir():
            raise NotThere(Error.NO_FOLDER_TO_WRITE, file=path.name, folder=path.parent)
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with os.fdopen(os.open(temporary, mode, 0o600), "wb") as file:
                file.write(private.private_bytes_raw().hex().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)  # unlike a renaming, it replaces nothing
            except FileExistsError:
                raise InvalidInput(Error.KEY_EXISTS, file=named(path)) from None
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        return cls(path, private.public_key().public_bytes_raw().hex(), private)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a key pair."""
        x25519, path = _x25519(), Path(path)
        try:
            secret = bytes.fromhex(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            raise NotThere(Error.NO_KEY, file=named(path)) from None
        except ValueError:
            secret = b""
        if len(secret) != 32:
            raise InvalidInput(Error.NOT_A_KEY, file=named(path))
        private = x25519.X25519PrivateKey.from_private_bytes(secret)
        return cls(path, private.public_key().public_bytes_raw().hex(), private)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Return the key pair of a file, which is made if there is none."""
        return cls.load(path) if Path(path).exists() else cls.create(path)

    def masked(self, numbers: Words, roster: Roster, site: str, context: str) -> Words:
        """Return integers plus the masks that this site shares with the others, (n, 2).

        Of each pair of sites, the first adds a mask and the second takes it away.

        Parameters
        ----------
        numbers : ndarray of uint64 of shape (n, 2)
        roster : Roster
        site : str
            This one.
        context : str
            What the masks are for, in hexadecimal digits: another one, other masks.
        """
        for other in roster.sites:
            if other != site:
                mask = self._shared(other, roster.keys[other], context, len(numbers))
                numbers = added(numbers, mask if site < other else negated(mask))
        return numbers

    def _shared(self, other: str, public: str, context: str, n: int) -> Words:
        """Return the mask that two sites share: a stream of ChaCha20 under a key of the two."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        key = _x25519().X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        try:
            secret = self._private.exchange(key)
        except ValueError:  # a point of small order: everybody would know the secret
            raise InvalidInput(Error.ROSTER_BAD_KEY, site=shown(other)) from None
        salt = bytes.fromhex(context)
        derived = HKDF(SHA256(), 32, salt, b"otmoe: mask of a secure sum").derive(secret)
        # The derived key serves this one stream, so that its counter and nonce may begin at 0.
        stream = Cipher(algorithms.ChaCha20(derived, bytes(16)), mode=None).encryptor()
        return np.frombuffer(stream.update(bytes(16 * n)), "<u8").astype(np.uint64).reshape(n, 2)


# -- what was answered -----------------------------------------------------------------------------


class AnswerRecord(Record):
    """A question that was answered: for which request, and a hash of the numbers."""

    context: Hash
    numbers: Hash


class AnsweredRecord(Record):
    """What a site has answered with its key."""

    otmoe: Literal["answered"]
    schema_version: Version
    rosters: List[Line]
    questions: Map[Line, AnswerRecord]


@dataclass(frozen=True)
class Answered(Document):
    """What a site has answered with its key.

    Attributes
    ----------
    rosters : tuple of str
        Fingerprints of the rosters.
    questions : dict of AnswerRecord
        By the digests of the questions.
    """

    kind: ClassVar[str] = "answered"
    called: ClassVar[str] = "record of answers"

    rosters: tuple[str, ...] = ()
    questions: Mapping[str, AnswerRecord] = field(default_factory=dict, repr=False)

    @classmethod
    def beside(cls, key: Key) -> Self:
        """Return what was answered with a key so far."""
        path = Answered.path_of(key)
        return cls.load(path) if path.exists() else cls()

    @staticmethod
    def path_of(key: Key) -> Path:
        """Return the file beside a key."""
        return key.path.with_name(key.path.name + _ANSWERED)

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        questions = {digest: answer.model_dump() for digest, answer in self.questions.items()}
        return {"rosters": list(self.rosters), "questions": questions}

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the record of a parsed document, checked."""
        record = typed(AnsweredRecord, document, source)
        return cls(tuple(record.rosters), record.questions)

    def check_roster(self, roster: Roster, new_roster: bool) -> None:
        """Refuse another roster than before, unless the site agrees to it."""
        if self.rosters and roster.fingerprint not in self.rosters and not new_roster:
            raise MessageError(
                Error.ROSTER_CHANGED,
                roster=roster.fingerprint,
                names=listed(list(roster.sites)),
                before=self.rosters[-1],
            )

    def check_question(self, asked: RefineRequest) -> None:
        """Refuse a question that was answered for another request, roster included."""
        before = self.questions.get(asked.digest)
        if before is not None and before.context != asked.context:
            raise MessageError(Error.QUESTION_AGAIN, digest=asked.digest)

    def with_answer(self, asked: RefineRequest, roster: Roster, numbers: Words) -> Self:
        """Return the record with one more answer, or refuse a second that differs.

        Parameters
        ----------
        asked : RefineRequest
        roster : Roster
            Its own.
        numbers : ndarray of uint64 of shape (n, 2)
            The masked ones, of which a hash is kept.
        """
        self.check_question(asked)
        known, found = self.questions.get(asked.digest), hash_of(numbers)
        if known is not None and known.numbers != found:
            raise MessageError(Error.ANSWER_CHANGED, digest=asked.digest)
        answer = AnswerRecord(context=asked.context, numbers=found)
        return replace(
            self,
            rosters=tuple(dict.fromkeys((*self.rosters, roster.fingerprint))),
            questions={**self.questions, asked.digest: answer},
        )


def hash_of(numbers: Words) -> str:
    """Return a hash of integers."""
    return sha256(np.ascontiguousarray(numbers, dtype="<u8").tobytes()).hexdigest()
