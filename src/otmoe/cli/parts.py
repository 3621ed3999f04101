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
        "coefficients of gate and experts, estimated from all rows together; they can reveal "
        "single rows if an expert has hardly more rows than coefficients",
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
        "the distribution of the covariates: a few normal components (weights, means, "
        "covariances), shares of levels, values that never vary; no rows",
    ),
    "grams": (
        "Grams",
        "sums of products of covariates, with the weights of each expert: for levels these are "
        "counts; with the coefficients they reveal x AND y of a row that is alone in a level",
    ),
    "support": (
        "support rows",
        "ROWS OF THE DATA: the covariates of single rows, unchanged, without the response",
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
        "the curvature of that likelihood, for each pair of parameters: sums over rows of "
        "products of covariates, weighted by how surprising y is; with few rows, or a level "
        "that only one row has, x AND y of single rows can be reconstructed",
    ),
    "scatter": (
        "scatter",
        "B, how much the score varies between groups, or rows: for each pair of parameters a "
        "product of scores, summed over groups; no labels; the score of a group that is much "
        "larger than the others, or that alone has a level, can be reconstructed",
    ),
    "numbers": (
        "masked numbers",
        "nothing on their own; summed over all sites of the roster, the log-likelihood, score "
        "and information of all rows",
    ),
    "roster": ("roster", "names and public keys of the sites whose replies are added up"),
    "scaling": ("scaling", "centres and scales in which sites answer, from the support points"),
    "pooled": ("pooled scaling", "mean and standard deviation of the covariates over all sites"),
    "best": ("sums", "what the sites have answered about the best model so far, summed"),
    "between": (
        "how sites differ",
        "the mean of the sites' models and their spread about it, for `otmoe personalise`; for "
        "each site by name, its rows, the parameters it would have on its own and those "
        "after shrinkage: anyone with the file can predict as that site does",
    ),
    "aggregation": (
        "how it was merged",
        "names of the sites, their rows, weights, what they sent; mean, spread and middle 95 % "
        "of every feature at the support points, the effect of each on the gate there; for "
        "`otmoe report`",
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
    note = " (of the file; parts are counted as otmoe would write them)" if otherwise else ""
    return f"{size:,} bytes in all{note}."


def parts_table(parts: Iterable[Part]) -> Table:
    """Return the parts as a table."""
    rows = [(part.name, f"{part.bytes:,}", part.reveals) for part in parts]
    return table_of(["part", "bytes", "what it reveals"], rows, {"part", "what it reveals"})
