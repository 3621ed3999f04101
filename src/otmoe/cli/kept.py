"""Local fits that outlive a command which does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otmoe.cli.common import warn
from otmoe.text.sentences import Warn


@contextmanager
def kept_fits(output: Path, folder: Path | None) -> Iterator[Path]:
    """Give the folder of local fits; remove it once all is well, unless the user named it.

    Parameters
    ----------
    output : Path
        The model file. By default the folder lies beside it, under its name and ``.parts``.
    folder : Path, optional
        What the user named.
    """
    from otmoe.distributed.saved import SavedFits, check_folder

    kept = SavedFits(output.with_name(f"{output.name}.parts") if folder is None else folder)
    check_folder(kept.folder)
    try:
        yield kept.folder
    except BaseException:
        count = len(kept)
        if count:
            warn(Warn.SHELL_FITS_KEPT(count=count, folder=kept.folder))
        elif folder is None:
            kept.clear()
        raise
    if folder is None:
        kept.clear()
