"""Names: which are the same, which look the same, and how they are printed."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable

# Invisible characters: soft hyphen, zero width, directions, fillers, selectors.
INVISIBLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
)
JOINERS = r"\u200c\u200d"  # needed for words of some languages
_SUPPLEMENT = "\U000e0000-\U000e0fff"  # tags and selectors
_UNSEEN = re.compile(f"[{INVISIBLE}{_SUPPLEMENT}]")
_UNSEEN_OR_JOINER = re.compile(f"[{INVISIBLE}{JOINERS}{_SUPPLEMENT}]")

# Cyrillic and Greek letters, and dashes, by the character that they look like.
_LATIN = "AaBCceEHIiJjKMNOopPSsTXxYyhdqwv"
_CYRILLIC = "АаВСсеЕНІіЈјКМ\0ОорРЅѕТХхУуһԁԛԝѵ"
_GREEK = "ΑαΒϹϲ\0ΕΗΙι\0ϳΚΜΝΟορΡ\0\0ΤΧχΥγ\0\0\0\0ν"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_SKELETON = {
    ord(like): letter
    for script in (_CYRILLIC, _GREEK)
    for letter, like in zip(_LATIN, script, strict=True)
    if like != "\0"
} | {ord(dash): "-" for dash in _DASHES}


def plain(name: str) -> str:
    """Return a name in the form in which names are compared (NFKC).

    Examples
    --------
    >>> plain("Ｌｙｏｎ")
    'Lyon'
    """
    return unicodedata.normalize("NFKC", name)


def unseen(name: str, *, joiners: bool = False) -> str | None:
    """Return the first invisible character of a name, or None; joiners may be allowed."""
    found = (_UNSEEN if joiners else _UNSEEN_OR_JOINER).search(name)
    return None if found is None else found[0]


def skeleton(name: str) -> str:
    r"""Return a name with letters that look alike replaced by the same letter.

    Examples
    --------
    >>> skeleton("Lyon") == skeleton("L\u0443on")  # the second has a Cyrillic letter
    True
    """
    return " ".join(plain(name).translate(_SKELETON).split())


def look_alikes(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two different names that look alike, or None."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(skeleton(name), name)
        if other != name:
            return other, name
    return None


def visible(name: str) -> str:
    r"""Return a name on one line, with control and invisible characters escaped.

    Examples
    --------
    >>> visible("dose\n(mg)")
    'dose\\n(mg)'
    """
    if name.isprintable() and unseen(name, joiners=True) is None:
        return name
    return "".join(
        c if c.isprintable() and unseen(c, joiners=True) is None else json.dumps(c)[1:-1]
        for c in name
    )
