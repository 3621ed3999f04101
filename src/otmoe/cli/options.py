"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from otmoe import Aggregation, FeatureSpec, load_features, save_model
from otmoe.aggregation import METHODS
from otmoe.cli.common import Decorator, Failed, Names, option

weight = option("--weight", metavar="COLUMN", section="Columns", help="Case weights.")
spec = option(
    "--features",
    "spec",
    metavar="FILE",
    section="Columns",
    help="How columns become features: a file that `otmoe features`, a fit or a run has written.",
)
columns = option(
    "--columns",
    type=Names(),
    section="Columns",
    help="The features instead; by default all other columns.",
)
experts = option(
    "--experts", type=click.IntRange(min=1), required=True, section="Fit", help="Number of experts."
)


def target(words: str = "The response.") -> Decorator:
    """Return the option that names the response."""
    return option("--target", metavar="COLUMN", required=True, section="Columns", help=words)


def missing(section: str = "Rows") -> Decorator:
    """Return the option for rows with gaps."""
    return option(
        "--missing",
        type=click.Choice(["error", "drop"]),
        default="error",
        show_default=True,
        section=section,
        help="Rows with missing values: refuse them, or leave them out.",
    )


def method(section: str, more: tuple[str, ...] = ()) -> Decorator:
    """Return the option for how models are merged; an ensemble has no file format."""
    return option(
        "--method",
        type=click.Choice([m for m in (*METHODS, *more) if m != "ensemble"]),
        default="reduction",
        show_default=True,
        section=section,
        help="How models are merged.",
    )


def family(section: str) -> Decorator:
    """Return the option that says what the response is."""
    return option(
        "--family",
        type=click.Choice(["gaussian", "poisson", "classes"]),
        default="gaussian",
        show_default=True,
        section=section,
        help="What the target is: a number, a count, a class.",
    )


def seed(section: str) -> Decorator:
    """Return the option for the seed."""
    return option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        section=section,
        help="Seed.",
    )


def features_of(spec: str | None, columns: list[str] | None) -> FeatureSpec | list[str] | None:
    """Return what --features and --columns ask for; None for all columns."""
    if spec is None:
        return columns
    if columns is not None:
        raise click.UsageError("give --features or --columns, not both.")
    features = load_features(spec)
    if features is None:
        raise Failed(f"{spec} says nothing about columns; name them by --columns.")
    return features


model_only = option(
    "--model-only",
    is_flag=True,
    section="Output",
    help="Leave out of the file what each site contributed, which `otmoe report` shows.",
)


def write(
    result: Aggregation,
    path: Path,
    about: dict[str, Any],
    features: FeatureSpec | None,
    model_only: bool,
) -> None:
    """Write a merged model, with or without what each site contributed."""
    if model_only:
        save_model(result.model, path, about, features)
    else:
        result.save(path, about, features)
