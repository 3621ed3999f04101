"""Messages that have come in: which files they are, and what to do about bad ones."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from otmoe.cli.common import Failed, few, sentence
from otmoe.text.errors import MessageError
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from otmoe import LocalModel


@dataclass(frozen=True)
class Inbox:
    """What has come in.

    Attributes
    ----------
    messages : list of LocalModel
    sizes : dict of int
        Bytes of the file, by site.
    bad : dict of str
        Why a file cannot be read, by its name.
    """

    messages: list[LocalModel]
    sizes: dict[str, int]
    bad: dict[str, str]


def open_inbox(files: Sequence[str], exclude: Sequence[str], skip_bad: bool) -> Inbox:
    """Read messages; every file that cannot be read is named.

    Parameters
    ----------
    files : sequence of str
        Names and patterns.
    exclude : sequence of str
        Sites that are left out.
    skip_bad : bool
        Go on without files that cannot be read.
    """
    from otmoe import LocalModel

    paths = paths_of(files)
    sent: dict[str, tuple[Path, LocalModel]] = {}
    bad: dict[str, str] = {}
    for path in paths:
        try:
            message = LocalModel.load(path)
        except (MessageError, OSError) as error:
            bad[str(path)] = sentence(error)
            continue
        if message.site in sent:
            raise Failed(
                Error.FILES_OF_ONE_SITE, file=sent[message.site][0], other=path, site=message.site
            )
        sent[message.site] = path, message
    if bad and not (skip_bad and sent):
        hint = "" if skip_bad or not sent else " (--skip-bad goes on without them)"
        raise Failed(
            Error.UNREADABLE_MESSAGES,
            bad=len(bad),
            messages=len(paths),
            hint=hint,
            reasons=" ".join(bad.values()),
        )
    for site in exclude:
        if site not in sent:
            raise Failed(Error.SHELL_EXCLUDE_UNKNOWN, site=site, sites=few(sent))
    kept = [message for site, (_, message) in sent.items() if site not in exclude]
    if not kept:
        raise Failed(Error.SHELL_EXCLUDES_ALL)
    return Inbox(kept, {site: path.stat().st_size for site, (path, _) in sent.items()}, bad)


def paths_of(files: Sequence[str]) -> list[Path]:
    """Return the files that names, folders and patterns stand for, those of a pattern sorted."""
    found: list[Path] = []
    for item in files:
        if Path(item).is_dir():
            item = str(Path(glob.escape(item), "*.json"))
        matches = (
            sorted(glob.glob(item)) if glob.has_magic(item) and not Path(item).exists() else [item]
        )
        if not matches:
            raise Failed(Error.NO_MATCH, pattern=item)
        found += map(Path, matches)
    return found
