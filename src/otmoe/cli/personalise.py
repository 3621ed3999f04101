"""``otmoe personalise``: a site's own model, drawn to that of all sites; nothing leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import known, options, policy
from otmoe.cli.between import between_in
from otmoe.cli.common import Command, check_output, data, few, option, output, say, usage, warn
from otmoe.cli.tables import listed, table_of
from otmoe.text.errors import InvalidInput, ShardError
from otmoe.text.sentences import Error, Warn

if TYPE_CHECKING:
    from otmoe.data.features import FeatureSpec
    from otmoe.data.shards import FileShard
    from otmoe.likelihood.forecast import Forecast
    from otmoe.likelihood.prior import Prior
    from otmoe.likelihood.rows import Rows
    from otmoe.model.mixture import MoE


@click.command(
    cls=Command,
    short_help="Fit a personal model for one site.",
    epilog="""\b
Examples:
  otmoe personalise model.json lyon.parquet --target y --site Lyon -o mine.json
  otmoe evaluate model.json lyon-2025.parquet --target y
  otmoe evaluate mine.json lyon-2025.parquet --target y
  otmoe predict mine.json lyon-2025.parquet -o predictions.parquet

A site with few rows gets nearly the mean of the sites, one with many nearly its own fit. A site
that took no part in MODEL can have a personal model, too.

Nothing is sent. The file reveals as much about the site's rows as its message does, at full
precision: the verdict says whether the site's policy would allow it to leave.""",
)
@click.argument("model", type=click.Path(path_type=Path))
@data
@options.target()
@options.weight
@options.offset
@option(
    "--site-column",
    metavar="COLUMN",
    section="Columns",
    help="Use only the rows in which this column holds the name of the site.",
)
@options.missing()
@options.sep
@option("--site", metavar="NAME", section="Fit", help="Name of the site, for the file.")
@option(
    "--restrict",
    type=click.Choice(known.RESTRICTIONS),
    default="auto",
    show_default=True,
    section="Fit",
    help="What may differ at this site: everything in which sites differ, or only the gate or "
    "the intercepts.",
)
@option(
    "--policy",
    "policy_file",
    metavar="FILE",
    envvar="OTMOE_POLICY",
    section="Policy",
    help="Policy on what may be read, and against which the file is checked as if it were to "
    f"leave; by default {known.POLICY} in this folder if it exists, otherwise the built-in "
    "one.",
)
@output("Model file to write, JSON.")
def personalise(
    model: Path,
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    missing: Literal["error", "drop"],
    sep: str | None,
    site: str | None,
    restrict: str,
    policy_file: str | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit a site's personal model, shrunk towards the mean of all sites.

    MODEL must describe how sites differ: `otmoe run --personal` writes such a file, and so does
    the last step of rounds begun with `otmoe refine start --between`. All of DATA is one site,
    read into memory.
    """
    if site_column is not None and site is None:
        raise usage(Error.SHELL_SITE_OF_COLUMN)
    check_output(output, force)

    from otmoe import save_model
    from otmoe.aggregation.record import finite
    from otmoe.data.shards import rows_dropped
    from otmoe.distributed.task import read, rows_in
    from otmoe.documents.files import load_model_file
    from otmoe.evaluation.prediction import spec_of
    from otmoe.federation.policy.border import Border
    from otmoe.federation.policy.figures import figures_of
    from otmoe.federation.policy.rules import in_force
    from otmoe.federation.policy.verdict import judge
    from otmoe.likelihood.answers import site_log_likelihood
    from otmoe.likelihood.prior import BLOCKS, fit_with_prior
    from otmoe.model.target import Target

    begun = perf_counter()
    file = load_model_file(model)
    between = between_in(file, model)
    spec = spec_of(file.model, file.features)
    rules, source = in_force(policy_file)
    shard = _shard(data, target, spec, weight, offset, site_column, missing, sep, site)
    Border(rules).check_columns(shard)
    found = read(replace(shard, ids=rules.id))
    rows = rows_in(found, Target.of(file.model), shard.name)
    if not rows.total_weight > 0:
        raise ShardError(Error.ROWS_WITHOUT_WEIGHT, where=shard.name)
    took_part = site is not None and any(site == effect.site for effect in between.sites)
    prior = between.personal_prior if took_part else between.prior_of_new(rows.total_weight)
    prior = prior.restricted(restrict)
    before = site_log_likelihood(file.model, prior.scaling, rows)
    fit = fit_with_prior(rows, prior)
    compared = _compared(shard.name, rows, file.model, prior, fit.model)
    figures = figures_of(fit.model, rows, features=file.features, ids=found.ids)
    verdict = judge(rules, figures)
    n = fit.n_samples
    moved = prior.moved(fit.model)
    about: dict[str, Any] = {
        "made by": "otmoe personalise",
        **({} if site is None else {"site": site}),
        "rows": n,
        "restrict": restrict,
        "converged": fit.converged,
        "sites of the prior": prior.n_sites,
    }
    save_model(fit.model, output, about, file.features)
    if found.dropped:
        warn(rows_dropped(found.dropped, len(rows), found.missing))
    if not fit.converged:
        warn(Warn.SHELL_PERSONAL_STOPPED())
    if not moved:
        how = "" if restrict == "auto" else f" under --restrict {restrict}"
        warn(Warn.SHELL_NOT_PERSONAL(restricted=how))
    report = {
        "command": "personalise",
        "output": str(output),
        "site": site,
        "rows": int(rows.X.shape[0]),
        "dropped": found.dropped,
        "n_samples": n,
        "restrict": restrict,
        "log_likelihood": {"common": before / n, "personal": fit.log_likelihood / n},
        "held_out": {name: finite(score.value) for name, score in compared.scores.items()},
        "best": compared.best,
        "weights": dict(compared.weights),
        "moved": moved,
        "converged": fit.converged,
        **policy.verdict_report(verdict, source),
        "seconds": perf_counter() - begun,
    }
    pairs = [
        ("rows", f"{report['rows']:,}"),
        ("log-likelihood per row, common model", f"{before / n:.5g}"),
        ("log-likelihood per row, personal model", f"{fit.log_likelihood / n:.5g}"),
        ("converged", "yes" if fit.converged else "NO"),
    ]
    heads = ["block", "deviation between sites", "this site's distance, in deviations"]
    lines = ([b, f"{prior.tau[b]:.3g}", f"{moved[b]:.2f}"] for b in BLOCKS if b in moved)
    say(
        report,
        as_json,
        quiet,
        listed(pairs),
        *([table_of(heads, lines, {"block"})] if moved else []),
        *_comparison(compared),
        "If this file were to leave the site, at full precision:",
        *policy.verdict_lines(verdict, source),
        f"written to {output}; nothing has been sent",
    )


def _shard(
    data: Sequence[str],
    target: str,
    features: FeatureSpec,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    missing: Literal["error", "drop"],
    sep: str | None,
    site: str | None,
) -> FileShard:
    """Return the rows of the site: all, or those in which a column names it."""
    from otmoe import shards_from
    from otmoe.data.shards import joined
    from otmoe.data.shards.memory import checked

    shards = shards_from(
        list(data),
        target=target,
        features=features,
        weight=weight,
        offset=offset,
        site_column=site_column,
        missing=missing,
        sep=sep,
    )
    if site_column is None:
        return joined(shards, checked(site or "site"))
    own = [shard for shard in shards if shard.name == site]
    if not own:
        raise InvalidInput(Error.SITE_UNKNOWN, site=site, sites=few(s.name for s in shards))
    return joined(own, own[0].name)


def _compared(site: str, rows: Rows, common: MoE, prior: Prior, personal: MoE) -> Forecast:
    """Return how well models predict rows of the site that they have not seen."""
    from otmoe.likelihood.fit import em
    from otmoe.likelihood.forecast import forecast

    own = None
    if len(rows) > 2 * personal.n_parameters:
        own = em(rows.X, rows.y, init=personal, sample_weight=rows.weight, offset=rows.offset).model
    return forecast(site, rows, common, prior, own=own, strengths=[1.0])


def _comparison(found: Forecast) -> list[Any]:
    """Return the same for people."""
    import numpy as np

    heads = ["model", "held-out log-likelihood per row", "above common", "standard error"]
    lines = [
        [name, f"{score.value:.5g}", f"{score.gain:+.4f}", f"{score.error:.4f}"]
        for name, score in found.scores.items()
        if np.isfinite(score.value)
    ]
    own = found.own is not None and found.own.value > found.scores["personal"].value
    within = own and found.best != "own"
    weights = ", ".join(f"{weight:.0%} {name}" for name, weight in found.weights.items())
    return [
        table_of(heads, lines, {"model"}),
        f"Held-out rows favour the {found.best} model"
        + ("; the lead of the own one is within its error." if within else ".")
        + " Compare it with the others on later rows, with `otmoe evaluate`.",
        *(
            [f"Of their mixtures, {weights} predicts held-out rows best."]
            if len(found.weights) > 1
            else []
        ),
    ]
