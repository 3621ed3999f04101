"""``otmoe simulate``: data whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

import otmoe
from otmoe.cli import known, options
from otmoe.cli.common import Command, Failed, check_output, option, output, say, usage
from otmoe.text.sentences import Error


@click.command(
    cls=Command,
    short_help="Draw rows from a random mixture of experts.",
    epilog="""\b
Example, four files of two thousand rows each:
  otmoe simulate -o data --files 4 --rows 8000 --experts 2 --features 3 --truth truth.json""",
)
@option(
    "--rows",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    section="Data",
    help="Total number of rows.",
)
@option(
    "--experts",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    section="Data",
    help="Number of experts.",
)
@option(
    "--features",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    section="Data",
    help="Number of features.",
)
@option(
    "--softness",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    section="Data",
    help="0: each expert has its region; 1: regions overlap.",
)
@options.family("Data")
@option(
    "--classes",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    section="Data",
    help="Number of classes.",
)
@options.seed("Data")
@option(
    "--files",
    type=click.IntRange(min=1),
    section="Output",
    help="Write this many Parquet files, into a folder.",
)
@option(
    "--truth",
    type=click.Path(path_type=Path),
    section="Output",
    help="Write the true model as well.",
)
@output("File to write, .parquet or .csv; with --files, a folder.")
def simulate(
    rows: int,
    experts: int,
    features: int,
    softness: float,
    family: str,
    classes: int,
    seed: int,
    files: int | None,
    truth: Path | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Draw rows from a random mixture of experts: columns y, x0, x1, ...

    The binomial family has a column of trials as well.
    """
    if files is not None and files > rows:
        raise usage(Error.SHELL_FILES_ROWS, files=files, rows=rows)
    paths = [output] if files is None else _parts(output, files)
    if files is None:
        check_output(output, force)
    else:
        _check_folder(output, paths, force)
    if truth is not None:
        check_output(truth, force)

    import numpy as np
    import pyarrow as pa

    from otmoe.data.shards import write_batches
    from otmoe.model.experts import family_of_classes

    labelled = family == known.CLASSES
    data = otmoe.simulate(
        rows,
        experts,
        features,
        family=family_of_classes(classes).family if labelled else family,
        n_classes=classes,
        softness=softness,
        random_state=seed,
    )
    names = tuple(f"x{j}" for j in range(features))
    labels = np.array([f"c{c:0{len(str(classes - 1))}d}" for c in range(classes)])
    y = data.y.astype(int) if data.truth.experts.discrete else data.y
    response = {"y": labels[y] if labelled else y}
    if y.ndim == 2:
        response = {"y": y[:, 0], "trials": y.sum(axis=1)}
    columns = {**response, **dict(zip(names, data.X.T, strict=True))}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if files is not None:
        output.mkdir(exist_ok=True)
    ends = [i * rows // len(paths) for i in range(len(paths) + 1)]
    for i, path in enumerate(paths):
        part = table.slice(ends[i], ends[i + 1] - ends[i])
        write_batches(path, table.schema, part.to_batches())
    if truth is not None:
        model = replace(
            data.truth, feature_names=names, classes=labels if labelled else data.truth.classes
        )
        otmoe.save_model(model, truth, about={"made by": "otmoe simulate", "seed": seed})
    report = {
        "command": "simulate",
        "rows": rows,
        "files": [str(path) for path in paths],
        "truth": None if truth is None else str(truth),
    }
    where = str(output) if files is None else f"{files} files in {output}"
    also = "" if truth is None else f", and the truth to {truth}"
    say(report, as_json, quiet, f"wrote {rows:,} rows to {where}{also}")


def _parts(folder: Path, n: int) -> list[Path]:
    width = len(str(n - 1))
    return [folder / f"part-{i:0{width}d}.parquet" for i in range(n)]


def _check_folder(folder: Path, paths: list[Path], force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise Failed(Error.SHELL_FILES_FOLDER, path=folder)
    if not folder.parent.is_dir():
        raise Failed(Error.NO_FOLDER, folder=folder.parent)
    there = set(folder.iterdir()) if folder.exists() else set()
    if there - set(paths):
        raise Failed(Error.FOLDER_IN_USE, folder=folder)
    if there and not force:
        raise Failed(Error.OUTPUT_EXISTS, path=folder)
