"""Local fits kept in a folder, so that an interrupted run can be resumed.

A fit is identified by its inputs: the bytes of its files, how they are read, the options, the start
of the fit, and the version of otmoe. A file holds one fit: the shard's message, as JSON, and
arrays; nothing is pickled.

Shards that are added to those of an earlier run begin where these began, and have the same share of
the ridge, so that fits need not be made again because there are others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from hashlib import blake2b
from importlib.metadata import version
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from otmoe.arrays.numerics import to_numpy
from otmoe.data.shards import FileShard, Shard
from otmoe.data.shards.files import kind_of, locate, named
from otmoe.data.shards.partitions import partitions_of
from otmoe.distributed.task import LocalFit, Task, fit_local, read
from otmoe.documents.message import LocalModel
from otmoe.documents.model_file import ModelFile, save_model
from otmoe.likelihood.agreement import Agreement
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.outputs import whole
from otmoe.text.sentences import Error
from otmoe.text.strict_json import UNLIMITED
from otmoe.workers.failures import Failure
from otmoe.workers.gather import Progress, Workers, gather

_CHUNK = 1 << 22  # bytes of a file that are read at a time
_FIT, _START = ".fit.npz", ".start.json"
_FACTOR = 2  # of more or fewer shards, beyond which the search for a start is made again


class Start(NamedTuple):
    """Where local fits begin.

    Attributes
    ----------
    model : MoE or None
        The maximum of rows drawn from many shards; None where they hold too few.
    n_shards : int
        Shards among which the ridge and the support points were shared.
    agreement : Agreement, optional
        How sure the search is of it; None where there was no search.
    """

    model: MoE | None
    n_shards: int
    agreement: Agreement | None = None


@dataclass(frozen=True)
class SavedFits:
    """Local fits in a folder.

    Attributes
    ----------
    folder : Path
        It is made with the first fit that is kept.
    contents : dict of str
        Digest of the rows of each shard, by name.
    about : tuple
        What else the whole run depends on, such as its seed.
    """

    folder: Path
    contents: Mapping[str, str] = field(default_factory=dict, repr=False)
    about: tuple[Any, ...] = ()

    # -- where fits begin ---------------------------------------------------------------------

    def start(self, n_shards: int, about: Sequence[Any], search: Callable[[], Start]) -> Start:
        """Return where the fits of an earlier run began; search where there was none.

        If there are far more or fewer shards now, the search is made again, and so are the fits.

        Parameters
        ----------
        n_shards : int
        about : sequence
            What the search depends on, beside the rows.
        search : callable
        """
        path = self.folder / f"{self._key(*about)}{_START}"
        with suppress(OSError, ValueError, KeyError, TypeError):
            file = ModelFile.load(path, UNLIMITED)
            before = int(file.about["shards"])
            if before <= _FACTOR * n_shards and n_shards <= _FACTOR * before:
                return Start(file.model, before, _agreement_of(file.about))
        start = search()
        if start.model is not None:
            self.folder.mkdir(exist_ok=True)
            save_model(start.model, path, {"shards": n_shards, **_about(start.agreement)})
        return start

    def _key(self, *values: Any) -> str:
        """Return a name for what depends on these values and on the run's own."""
        return digest(version("otmoe"), self.about, *values)

    # -- fits ---------------------------------------------------------------------------------

    def gather(
        self, tasks: Sequence[Task], workers: Workers, progress: Progress | None = None
    ) -> tuple[list[Any], list[Failure]]:
        """Do the local fits that are not here yet, and keep each as soon as it is done.

        Parameters
        ----------
        tasks : sequence of Task
        workers : Workers
        progress : callable, optional

        Returns
        -------
        results, failures
            As of :func:`otmoe.workers.gather.gather`.
        """
        keys = [self._key_of(task) for task in tasks]
        found = [None if key is None else self._load(key) for key in keys]
        rest = [i for i, fit in enumerate(found) if fit is None]
        done = len(tasks) - len(rest)
        if progress is not None and done and rest:
            progress(done, len(tasks), "")

        def report(more: int, total: int, name: str) -> None:
            if progress is not None:
                progress(done + more, len(tasks), name)

        def save(place: int, fit: LocalFit) -> None:
            key = keys[rest[place]]
            if key is not None:
                self._save(key, fit)

        asked, names = [tasks[i] for i in rest], [tasks[i].shard.name for i in rest]
        fits, failures = gather(fit_local, asked, names, workers, progress=report, each=save)
        for i, fit in zip(rest, fits, strict=True):
            found[i] = fit
        return found, failures

    def _key_of(self, task: Task) -> str | None:
        """Return the name of a fit; None where the content of its shard could not be read."""
        content = self.contents.get(task.shard.name)
        if content is None:
            return None
        # the seed depends on the position among all shards; any will do
        others = [f.name for f in fields(task) if f.name not in ("shard", "seed", "again")]
        return self._key(content, {name: getattr(task, name) for name in others})

    def _load(self, key: str) -> LocalFit | None:
        """Return a fit that is here; one that cannot be read is made again."""
        try:
            with (self.folder / f"{key}{_FIT}").open("rb") as file:
                parts = dict(np.load(file, allow_pickle=False))
            message, support = parts["message"].tobytes(), parts["support"]
            about = json.loads(parts["about"].tobytes())
            return LocalFit(
                LocalModel.from_json(message, limits=UNLIMITED),
                about["seconds"],
                support,
                about["n_rows"],
                about["dropped"],
                about["missing"],
                tuple(about["fingerprint"]),
                reused=True,
            )
        except (OSError, ValueError, KeyError, TypeError, BadZipFile):
            return None

    def _save(self, key: str, fit: LocalFit) -> None:
        about = {
            "seconds": fit.seconds,
            "n_rows": fit.n_rows,
            "dropped": fit.dropped,
            "missing": dict(fit.missing),
            "fingerprint": list(fit.fingerprint),
        }
        self.folder.mkdir(exist_ok=True)
        with whole(self.folder / f"{key}{_FIT}") as file:
            np.savez(
                file,
                message=_bytes(fit.message.to_json()),
                support=fit.support,
                about=_bytes(json.dumps(about)),
            )

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob(f"*{_FIT}"))

    def clear(self) -> None:
        """Remove what is kept here, and the folder if nothing else is in it."""
        for path in [*self.folder.glob(f"*{_FIT}"), *self.folder.glob(f"*{_START}")]:
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


def _about(agreement: Agreement | None) -> dict[str, float]:
    """Return what a file says about a search; an infinite distance is left out."""
    said = {} if agreement is None else asdict(agreement)
    return {name: value for name, value in said.items() if isfinite(value)}


def _agreement_of(about: Mapping[str, Any]) -> Agreement | None:
    if "searches" not in about:
        return None
    return Agreement(about["searches"], about["agreed"], float(about.get("runner_up", inf)))


def check_folder(folder: Path) -> None:
    """Refuse, before any work, a folder that cannot be made."""
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(Error.KEEP_NO_FOLDER, path=folder)
    if not folder.parent.is_dir():
        raise InvalidInput(Error.NO_FOLDER, folder=folder.parent)


# -- what a fit depends on -------------------------------------------------------------------------


def contents_of(shards: Sequence[Shard], workers: Workers) -> dict[str, str]:
    """Return a digest of the rows of each shard, by name; of those that can be read.

    Files are read where the work is done, each once; rows in memory are hashed as they are.

    Parameters
    ----------
    shards : sequence of Shard
    workers : Workers
    """
    files = {piece.path for s in shards if isinstance(s, FileShard) for piece in s.pieces}
    units: list[Any] = [*sorted(files), *(s for s in shards if not isinstance(s, FileShard))]
    names = [unit if isinstance(unit, str) else unit.name for unit in units]
    found, _ = gather(content_local, units, names, workers)
    known = {name: value for name, value in zip(names, found, strict=True) if value is not None}
    contents = {}
    for shard in shards:
        if not isinstance(shard, FileShard):
            if shard.name in known:
                contents[shard.name] = digest(shard.name, known[shard.name])
        elif all(piece.path in known for piece in shard.pieces):
            contents[shard.name] = digest(
                {f.name: getattr(shard, f.name) for f in fields(shard) if f.name != "pieces"},
                [
                    (known[path], kind_of(path), partitions_of(path), start, stop)
                    for path, start, stop in shard.pieces
                ],
            )
    return contents


def content_local(unit: str | Shard) -> str:
    """Return a digest of a file, or of the rows of a shard in memory, where they are.

    Files on another machine's file system are known by path, size and time of change.
    """
    if not isinstance(unit, str):
        rows = read(unit)
        return digest(*(getattr(rows, f.name) for f in fields(rows)))
    with named(unit):
        system, inner = locate(unit)
        if system.type_name != "local":
            info = system.get_file_info(inner)
            return digest(unit, info.size, info.mtime_ns)
        hashed = blake2b(digest_size=20)
        with open(inner, "rb") as file:
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
        return hashed.hexdigest()


def digest(*values: Any) -> str:
    """Return a digest that is the same for the same values, in any process.

    Parameters
    ----------
    *values
        Numbers, texts, arrays, dataclasses, and sequences and mappings of these.

    Examples
    --------
    >>> digest(1, "a", {"b": 2.0, "c": None}) == digest(1, "a", {"c": None, "b": 2.0})
    True
    >>> digest(["ab", "c"]) == digest(["a", "bc"])
    False
    """
    hashed = blake2b(digest_size=20)
    for part in _parts(values):
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Yield a value in pieces, each after what it is."""
    if isinstance(value, str | bytes):
        yield b"text"
        yield value.encode() if isinstance(value, str) else value
    elif value is None or isinstance(value, bool | int | float):
        yield repr(value).encode()
    elif isinstance(value, Mapping):
        yield f"mapping of {len(value)}".encode()
        for name in sorted(value):
            yield from _parts((name, value[name]))
    elif isinstance(value, list | tuple):
        yield f"sequence of {len(value)}".encode()
        for item in value:
            yield from _parts(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for f in fields(value):
            yield from _parts((f.name, getattr(value, f.name)))
    else:
        array = np.asarray(to_numpy(value))
        if array.dtype.kind == "O" and array.ndim:
            yield from _parts(array.tolist())
        elif array.dtype.kind == "O":
            raise TypeError(f"no digest of a {type(value).__name__}")
        else:
            yield f"array of {array.dtype} {array.shape}".encode()
            yield array.tobytes()


def _bytes(text: str) -> Any:
    """Return text as an array of bytes, which needs no pickling."""
    return np.frombuffer(text.encode(), np.uint8)
