"""Rosters: the sites whose masked replies add up, and the public keys from which masks are made."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import AfterValidator, WithJsonSchema

from otmoe.text.errors import InvalidInput, fail
from otmoe.text.records import Map, Record, Site, problem
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown, to_text

LEAST_SITES = 3
"""Sites whose sum hides each: of two, each knows the other's part."""


def _digits(length: int) -> tuple[AfterValidator, WithJsonSchema]:
    """Return what makes a text one of so many hexadecimal digits, in lower case."""
    pattern = re.compile(rf"[0-9a-f]{{{length}}}")

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise problem(Error.NOT_HEXADECIMAL, value=shown(text), digits=length)
        return text

    schema = {"type": "string", "pattern": f"^[0-9a-f]{{{length}}}$"}
    return AfterValidator(check), WithJsonSchema(schema)


PublicKey = Annotated[str, *_digits(64)]
Hash = Annotated[str, *_digits(64)]
Nonce = Annotated[str, *_digits(32)]


class RosterRecord(Record):
    """Who takes part in a secure sum: the public key of each site, and a nonce for the masks."""

    nonce: Nonce
    sites: Map[Site, PublicKey]


@dataclass(frozen=True)
class Roster:
    """The sites of a secure sum.

    Attributes
    ----------
    keys : dict of str
        The public key (X25519, 64 hexadecimal digits) of each site, by its name.
    nonce : str
        32 hexadecimal digits, different for every roster, so that no mask is used twice.
    """

    keys: Mapping[str, str] = field(repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def of(cls, keys: Mapping[str, str | None]) -> Self:
        """Return a new roster of sites, by the keys in their messages; each has to hold one."""
        lacking = [site for site, key in keys.items() if key is None]
        if lacking:
            raise InvalidInput(Error.ROSTER_NO_KEY, names=", ".join(lacking))
        roster = cls({site: str(key) for site, key in keys.items()})
        roster.check("roster", "sites")
        return roster

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(sorted(self.keys))

    @property
    def name(self) -> str:
        """What the sum of all sites is called where the name of a site stands otherwise."""
        return f"all {len(self.keys)} sites"

    @property
    def fingerprint(self) -> str:
        """A short hash of names and keys, for people at different sites to compare.

        32 hexadecimal digits in groups of four, so that collisions cannot be found.
        The nonce has no part in it.
        """
        text = to_text({site: self.keys[site] for site in self.sites})
        digits = sha256(text.encode()).hexdigest()[:32]
        return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))

    def check(self, source: str, at: str) -> None:
        """Refuse a roster of too few sites, or of sites that share a key."""
        if len(self.keys) < LEAST_SITES:
            fail(source, at, Error.ROSTER_SMALL, sites=len(self.keys), least=LEAST_SITES)
        owners: dict[str, str] = {}
        for site, key in self.keys.items():
            if key in owners:
                fail(source, at, Error.ROSTER_SAME_KEY, one=shown(owners[key]), other=shown(site))
            owners[key] = site

    def document(self) -> dict[str, Any]:
        """Return the roster as it stands in a document."""
        return {"nonce": self.nonce, "sites": {site: self.keys[site] for site in self.sites}}


def roster_part(roster: Roster | None) -> dict[str, Any]:
    """Return the field of a document that holds a roster, if there is one."""
    return {} if roster is None else {"roster": roster.document()}


def roster_of(record: RosterRecord | None, source: str) -> Roster | None:
    """Return the roster of a record, checked."""
    if record is None:
        return None
    roster = Roster(dict(record.sites), record.nonce)
    roster.check(source, "roster.sites")
    return roster
