"""Parts of files: what they are called, how large they are, what they reveal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from otmoe.cli.tables import table_of

if TYPE_CHECKING:
    from rich.table import Table


PARTS = {
    "model": (
        "parameters",
        "coefficients of gate and experts, estimated from all rows together; they can tell of "
        "single rows where an expert has hardly more rows than coefficients",
    ),
    "features": (
        "features",
        "names of the columns, levels of categories, centres and scales: the file that all share",
    ),
    "constant_features": (
        "constant features",
        "features that never varied, each with the value that all rows have in common",
    ),
    "sketch": (
        "sketch",
        "how the covariates are spread: a few normal distributions (weights, means, covariances), "
        "shares of levels, values that never vary; no row",
    ),
    "grams": (
        "Grams",
        "sums of products of covariates, as each expert weighs the rows: for levels these are "
        "counts; with the coefficients they give away x AND y of a row that is alone in a level",
    ),
    "support": (
        "support rows",
        "ROWS OF THE DATA: the covariates of single rows as they are, without the response",
    ),
    "x_mean": ("means", "the mean of every covariate over the site's rows"),
    "x_var": ("variances", "the variance of every covariate over the site's rows"),
    "mass": ("mass", "how many of the site's rows are assigned to each expert"),
    "score": (
        "score",
        "how the likelihood of the site's rows changes with each parameter: sums over rows of "
        "residuals times covariates",
    ),
    "information": (
        "information",
        "how sharply it does, pair by pair: sums over rows of products of covariates, weighted by "
        "how surprising y is; with few rows, or with a level that one row has, x AND y of single "
        "rows can be worked out",
    ),
    "scatter": (
        "scatter",
        "B, how far the score differs from group to group, or row to row: for each pair of "
        "parameters a product of scores, summed over groups; no label; that of a group which is "
        "much larger than the others, or has a level alone, can be worked out",
    ),
    "numbers": (
        "masked numbers",
        "nothing by themselves; in the sum over all sites of the roster, log-likelihood, score and "
        "information of all rows",
    ),
    "roster": ("roster", "names and public keys of the sites whose replies are added up"),
    "scaling": ("scaling", "centres and scales in which sites answer, from the support points"),
    "pooled": ("pooled scaling", "mean and standard deviation of the covariates over all sites"),
    "best": ("sums", "what the sites have answered about the best model so far, summed"),
    "between": (
        "how sites differ",
        "the mean of the sites' models and how far they are spread about it, for "
        "`otmoe personalise`; by name of each site, its rows, the parameters that it alone would "
        "have and those after shrinkage: whoever gets the file can predict as that site does",
    ),
    "aggregation": (
        "how it was merged",
        "names of the sites, their rows, weights, what they sent; mean, spread and middle 95 % of "
        "every feature at the support points, what each does to the gate there; for `otmoe report`",
    ),
}
"""Parts of a file that are told apart, by their field: what they are called, what they reveal."""


_REST = {
    "local model": (
        "about",
        "name of the site, number of rows, log-likelihood, how the fit went, versions of software",
    ),
    "model": ("about", "what the author says about the model, versions of software"),
    "features": PARTS["features"],
    "refine request": ("about", "number and digest of the round, versions of software"),
    "refine reply": (
        "about",
        "name of the site, number of rows, log-likelihood, round and digest, versions of software",
    ),
    "masked reply": ("about", "name of the site, round and digest, versions of software"),
    "refine state": ("about", "rounds so far, sites with their rows, versions of software"),
}


@dataclass(frozen=True)
class Part:
    """A part of a file.

    Attributes
    ----------
    name : str
    reveals : str
    bytes : int
    """

    name: str
    reveals: str
    bytes: int


def parts_of(document: dict[str, Any]) -> list[Part]:
    """Return the parts of a document, in the size that otmoe writes them in."""
    from otmoe.text.strict_json import BRACES, sizes_of

    sizes = sizes_of(document)
    held = {field for field, value in document.items() if value and isinstance(value, dict | list)}
    found = [Part(*PARTS[field], sizes[field]) for field in PARTS if field in held]
    left = sum(sizes.values()) + BRACES - sum(part.bytes for part in found)
    return [Part(*_REST[document["otmoe"]], bytes=left), *found]


def total_of(size: int, parts: Sequence[Part]) -> str:
    """Say how large a file is."""
    otherwise = size != sum(part.bytes for part in parts)
    note = " (the file; the parts are counted as otmoe would write them)" if otherwise else ""
    return f"{size:,} bytes in all{note}."


def parts_table(parts: Iterable[Part]) -> Table:
    """Return the parts as a table."""
    rows = [(part.name, f"{part.bytes:,}", part.reveals) for part in parts]
    return table_of(["part", "bytes", "what it reveals"], rows, {"part", "what it reveals"})
