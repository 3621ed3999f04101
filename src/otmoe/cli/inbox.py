"""Messages that have come in: which files they are, and what to do about bad ones."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from contextlib import suppress
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
    n_sites : int
        Sites that count, where `sizes` are those of groups.
    """

    messages: list[LocalModel]
    sizes: dict[str, int]
    bad: dict[str, str]
    n_sites: int


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
        raise unreadable(bad, len(paths), hint=bool(sent) and not skip_bad)
    for site in exclude:
        if site not in sent:
            raise Failed(Error.SHELL_EXCLUDE_UNKNOWN, site=site, sites=few(sent))
    kept = [message for site, (_, message) in sent.items() if site not in exclude]
    if not kept:
        raise Failed(Error.SHELL_EXCLUDES_ALL)
    sizes = {site: path.stat().st_size for site, (path, _) in sent.items()}
    return Inbox(kept, sizes, bad, len(kept))


def unreadable(bad: dict[str, str], n_files: int, *, hint: bool) -> Failed:
    """Return the error about files that cannot be read."""
    return Failed(
        Error.UNREADABLE_MESSAGES,
        bad=len(bad),
        messages=n_files,
        hint=" (--skip-bad skips them)" if hint else "",
        reasons=" ".join(bad.values()),
    )


def first_messages(paths: Sequence[Path], n_messages: int) -> list[LocalModel]:
    """Return the first few messages that can be read, to see what all have."""
    from otmoe import LocalModel

    found: list[LocalModel] = []
    for path in paths:
        with suppress(MessageError, OSError):
            found.append(LocalModel.load(path))
        if len(found) == n_messages:
            break
    if not found:
        raise unreadable(dict.fromkeys(map(str, paths[:1]), str(paths[0])), len(paths), hint=False)
    return found


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
