# Long because all options that commands share are here, each with its help.
"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import known
from otmoe.cli.common import Decorator, Failed, Names, few, option, several, usage, warn
from otmoe.cli.executors import EXECUTORS
from otmoe.cli.kinds import Cut, Family, Numbers, Separator
from otmoe.text.sentences import Error, Warn

if TYPE_CHECKING:
    from otmoe import Aggregation, FeatureSpec, LocalModel
    from otmoe.data.shards import Shard
    from otmoe.documents.model_file import ModelFile
    from otmoe.estimators.shards import DistributedMoE
    from otmoe.inference.between import Between


weight = option("--weight", metavar="COLUMN", section="Columns", help="Case weights.")
offset = option(
    "--offset",
    metavar="COLUMN",
    section="Columns",
    help="Known part of the experts' linear predictors, such as the logarithm of an exposure.",
)
spec = option(
    "--features",
    "spec",
    metavar="FILE",
    section="Columns",
    help="How columns become features: a file written by `otmoe features`, a fit or a run.",
)
columns = option(
    "--columns",
    type=Names(),
    section="Columns",
    help="The features, instead of --features; by default all other columns.",
)
max_levels = option(
    "--max-levels",
    type=click.IntRange(min=2),
    default=known.MAX_LEVELS,
    show_default=True,
    section="Columns",
    help="Refuse a text column with more values; no limit with --features.",
)
sep = option(
    "--sep",
    type=Separator(),
    section="Rows",
    help="Column separator of CSV files; by default detected from the header (comma, semicolon, "
    "tab or bar).",
)
formula = option(
    "--formula",
    metavar="TEXT",
    section="Columns",
    help="The response, the features of the experts and, after a bar, those of the gate, as in "
    "'y ~ spline(hour, 5) + origin | hour'. Levels and knots come from --features, or from "
    "the first rows.",
)
site_column = option(
    "--site-column",
    metavar="COLUMN",
    section="Columns",
    help="One shard for each value of this column.",
)
cut = option(
    "--cut",
    type=Cut(),
    metavar="file|row-group|N",
    section="Rows",
    help="One shard per file (the default) or row group, or N in all.",
)
experts = option(
    "--experts", type=click.IntRange(min=1), required=True, section="Fit", help="Number of experts."
)

experts_or_start = option(
    "--experts", type=click.IntRange(min=1), section="Fit", help="Number of experts."
)

search = several(
    option(
        "--starts",
        "--n-init",
        "n_init",
        type=click.IntRange(min=1),
        section="Fit",
        help="Number of starts of the search; by default 9 (20 for classes).",
    ),
    option(
        "--max-iter",
        type=click.IntRange(min=1),
        section="Fit",
        help=f"Maximum number of iterations of a fit; by default {known.MAX_ITER:,}.",
    ),
)


def search_of(n_init: int | None, max_iter: int | None) -> dict[str, int]:
    """Return what is said about the search, under the names of the estimators."""
    said = {"n_init": n_init, "max_iter": max_iter}
    return {name: value for name, value in said.items() if value is not None}


executor = several(
    option(
        "--executor",
        type=click.Choice(EXECUTORS),
        default="local",
        show_default=True,
        section="Where it runs",
        help="Local processes, a Dask cluster, or a Ray cluster.",
    ),
    option("--address", section="Where it runs", help="Of the cluster; Dask can start one here."),
    option(
        "--n-jobs",
        type=click.IntRange(min=1),
        section="Where it runs",
        help="Processes on this machine; by default one per core, or one if there are few rows.",
    ),
    option(
        "--on-error",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        section="Where it runs",
        help="If a shard fails: stop, or continue without it.",
    ),
    option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        section="Where it runs",
        help="Give up if no shard finishes within this time.",
    ),
    option(
        "--retries",
        type=click.IntRange(min=0),
        default=2,
        show_default=True,
        section="Where it runs",
        help="Retries when a worker dies or a file cannot be reached.",
    ),
)


def target(
    words: str = "The response; y/n for y of n trials, a,b for several responses.",
    required: bool = True,
) -> Decorator:
    """Return the option that names the response."""
    return option("--target", metavar="COLUMN", required=required, section="Columns", help=words)


OR_FORMULA = (
    "The response; y/n for y of n trials, a,b for several responses. May be given in --formula "
    "instead."
)


def missing(section: str = "Rows") -> Decorator:
    """Return the option for rows with gaps."""
    return option(
        "--missing",
        type=click.Choice(["error", "drop"]),
        default="error",
        show_default=True,
        section=section,
        help="Rows with missing values: refuse or drop them.",
    )


def method(section: str, more: tuple[str, ...] = ()) -> Decorator:
    """Return the option for how models are merged; an ensemble has no file format."""
    return option(
        "--method",
        type=click.Choice((*known.METHODS, *more)),
        metavar="NAME",
        default="auto",
        show_default=True,
        section=section,
        help="How models are merged; auto chooses the smallest expected loss relative to the "
        f"sites' own models. Others: {', '.join((*known.METHODS[1:], *more))}.",
    )


def family(section: str) -> Decorator:
    """Return the option that says what the response is."""
    return option(
        "--family",
        type=Family(),
        default="gaussian",
        show_default=True,
        section=section,
        help="Type of the target: a number (gaussian; student_t with outliers, with 5 degrees of "
        "freedom, or as many as the name ends in, as in student_t3), a positive number (gamma), a "
        "count (poisson; negative_binomial), successes in trials (binomial), a class. For several "
        "targets one for all, or one for each, as in gaussian,poisson.",
    )


def numbers(section: str, more: str = "") -> Decorator:
    """Return the option for the numbers of experts to compare, and what else to ask of them."""
    return option(
        "--experts",
        type=Numbers(),
        default="1-6",
        show_default=True,
        section=section,
        help=f"Numbers of experts to compare{more}, as in 1-6 or 2,3,5.",
    )


def seed(section: str) -> Decorator:
    """Return the option for the seed."""
    return option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        section=section,
        help="Random seed.",
    )


def features_of(spec: str | None, columns: list[str] | None) -> FeatureSpec | list[str] | None:
    """Return what --features and --columns ask for; None for all columns."""
    from otmoe import load_features

    if spec is None:
        return columns
    if columns is not None:
        raise usage(Error.SHELL_FEATURES_OR_COLUMNS)
    features = load_features(spec)
    if features is None:
        raise Failed(Error.SHELL_NO_COLUMNS, file=spec)
    return features


exclude = option(
    "--exclude",
    multiple=True,
    metavar="SITE",
    section="Messages",
    help="Leave this site out; may be given several times.",
)
support = option(
    "--support",
    metavar="DATA",
    section="Support",
    help="Rows of covariates at which models are compared, Parquet or CSV; no y is needed. By "
    "default points are drawn from the sketches and rows in the messages.",
)
n_support = option(
    "--n-support",
    type=click.IntRange(min=1),
    default=known.N_SUPPORT,
    show_default=True,
    section="Support",
    help="Maximum number of support points.",
)
model_only = option(
    "--model-only",
    is_flag=True,
    section="Output",
    help="Omit from the file what each site contributed, which `otmoe report` shows.",
)


def write(
    result: Aggregation,
    path: Path,
    about: dict[str, Any],
    features: FeatureSpec | None,
    model_only: bool,
    between: Between | None = None,
) -> None:
    """Write a merged model, with or without what each site contributed."""
    from otmoe import save_model

    if model_only:
        shared = None if between is None else replace(between, sites=())
        save_model(result.model, path, about, features, between=shared)
    else:
        result.save(path, about, features, between)


def shards_of(
    data: Sequence[str],
    target: str,
    features: FeatureSpec | list[str] | None,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    cut: Any,
    missing: Literal["error", "drop"],
    max_levels: int = known.MAX_LEVELS,
    sep: str | None = None,
    groups: str | None = None,
) -> Sequence[Shard]:
    """Return the shards that the options about columns and rows ask for."""
    from otmoe import shards_from

    return shards_from(
        list(data),
        target=target,
        features=features,
        weight=weight,
        offset=offset,
        site_column=site_column,
        cut=cut or "file",
        missing=missing,
        max_levels=max_levels,
        sep=sep,
        groups=groups,
    )


def check_offset(file: ModelFile | LocalModel, offset: str | None) -> None:
    """Warn where a model was fitted with an offset and is used without one."""
    fitted = getattr(file, "about", {}).get("offset")
    if offset is None and fitted is not None:
        warn(Warn.SHELL_OFFSET_UNSAID(column=fitted))


def family_of(family: str, shard: Shard) -> str:
    """Return the family of each of several responses, where one is given for all."""
    names = getattr(shard, "response_names", ())
    if len(names) > 1 and family == known.CLASSES:
        raise usage(Error.SHELL_SEVERAL_CLASSES, responses=few(names))
    return "+".join([family] * len(names)) if names and "+" not in family else family


def check_groups(file: ModelFile | LocalModel, column: str | None) -> None:
    """Warn where rows of a group share an expert in a model, and nobody says which these are."""
    if column is None and file.model.expert_per == "group":
        fitted = getattr(file, "about", {}).get("expert per", "COLUMN")
        warn(Warn.SHELL_GROUPS_UNSAID(column=fitted))


def estimator_of(family: str, **settings: Any) -> DistributedMoE:
    """Return the estimator for what --family says that the target is."""
    from otmoe import DistributedMoEClassifier, DistributedMoERegressor

    if family == known.CLASSES:
        return DistributedMoEClassifier(**settings)
    return DistributedMoERegressor(family=family, **settings)


def default_jobs(executor: str, shards: Sequence[Shard], experts: int) -> int:
    """Return how many processes to use where --n-jobs does not say; a cluster has its own."""
    from loky import cpu_count

    from otmoe.distributed.size import n_jobs_for

    return n_jobs_for(shards, experts) if executor == "local" else int(cpu_count())


def check_where(site_column: str | None, cut: Any, executor: str, address: str | None) -> None:
    """Refuse options about shards and engines that do not go together."""
    if site_column is not None and cut is not None:
        raise usage(Error.SHELL_SITE_OR_CUT)
    if address is not None and executor == "local":
        raise usage(Error.SHELL_ADDRESS)
