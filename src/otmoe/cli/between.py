"""How sites differ, as commands show it; and the model of a site that does not compute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli import known
from otmoe.cli.common import Decorator, Failed, option, several
from otmoe.cli.tables import table_of
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from rich.table import Table

    from otmoe.documents.message import LocalModel
    from otmoe.documents.model_file import ModelFile
    from otmoe.inference.between import Between, Spread
    from otmoe.model.mixture import MoE


_SITES = 5  # that are shown, those that differ most
_CHANCE = 0.05  # below this a site is said to differ


def site(section: str) -> Decorator:
    """Return the option that names a site whose version of the model is meant."""
    return option(
        "--site",
        metavar="NAME",
        section=section,
        help="Use the server's version of this site's personal model, from a file that describes "
        "how sites differ: one step from the common model, so rough for a site that differs "
        "greatly.",
    )


personal_options = several(
    option(
        "--personal",
        type=click.Choice(known.RESTRICTIONS),
        section="Fit",
        help="Also fit a personal model for every shard, such as a site of --site-column: "
        "everything may differ, or only the gate or the intercepts. The common model is refined "
        "first; otmoe personalise and otmoe report use the estimated differences.",
    ),
    option(
        "--groups",
        metavar="COLUMN",
        section="Fit",
        help="With --personal: labels of rows that are not independent, such as the patient or "
        "the day; or the time, if rows are in the order of time. Slow changes are then not taken "
        "for differences between sites, and later groups are predicted from earlier ones.",
    ),
)


def model_for(file: ModelFile | LocalModel, path: Path, name: str | None) -> MoE:
    """Return the model of a file, or the server's version of that of a site."""
    return file.model if name is None else between_in(file, path).model_of(name)


def between_in(file: ModelFile | LocalModel, path: Path) -> Between:
    """Return how sites differ, as a file says it, or refuse a file that does not."""
    from otmoe.documents.model_file import ModelFile

    found = file.between if isinstance(file, ModelFile) else None
    if found is None:
        raise Failed(Error.SHELL_NO_PRIOR, where=str(path))
    return found


def between_report(found: Between) -> dict[str, Any]:
    """Return how sites differ as --json prints it."""
    prior = found.prior
    return {
        "sites": prior.n_sites,
        "rows": prior.n_samples,
        "design_effect": prior.design_effect,
        "spreads": [
            {**_told(s), "tau": s.tau, "low": s.low, "high": s.high} for s in found.spreads
        ],
        "overall": _told(found.overall),
        "by_site": [
            {"site": e.site, "rows": e.n_samples, "q": e.q, "p": e.p_value} for e in found.sites
        ],
    }


def personal_report(est: Any) -> dict[str, Any]:
    """Return how shards differ, and which models serve them, as --json prints it."""
    from otmoe.aggregation.record import finite

    return {
        "between": between_report(est.between_) | {"strength": est.between_.strength},
        "forecasts": {
            site: {
                "held_out": {name: finite(score.value) for name, score in found.scores.items()},
                "best": found.best,
                "weights": dict(found.weights),
            }
            for site, found in est.forecasts_.items()
        },
    }


def strength_words(strength: float) -> str:
    """Say what personal models make of the deviations."""
    if strength == 0:
        return "No site is predicted better by a personal model: all are the common one."
    return f"Personal models use {strength:g} times these deviations, as held-out rows ask for."


def _told(spread: Spread) -> dict[str, Any]:
    return {
        "block": spread.block,
        "q": spread.q,
        "df": spread.df,
        "p": spread.p_value,
        "i2": spread.i2,
        "n_parameters": spread.n_parameters,
        "n_sites": spread.n_sites,
    }


def between_lines(found: Between) -> list[Any]:
    """Return how sites differ in words and tables: the blocks, and the sites that drive it."""
    prior = found.prior
    effect = ""
    if prior.design_effect > 1:
        effect = f"; {prior.design_effect:.3g} rows of a site count as one"
    lines: list[Any] = [
        f"How {prior.n_sites:,} sites with {prior.n_samples:,.10g} rows differ, on standardised "
        f"features{effect}:",
        spread_table(found),
    ]
    apart = [effect for effect in found.sites if effect.p_value < _CHANCE]
    most = sorted(apart, key=lambda e: (-e.q, e.site))[:_SITES]
    if most:
        rows = ([e.site, f"{e.n_samples:,.10g}", f"{e.q:.1f}", _p(e.p_value)] for e in most)
        lines += ["Sites that differ most from the others:"]
        lines += [table_of(["site", "rows", "part of Q", "p"], rows, {"site"})]
    elif found.sites:
        lines += [f"No site differs from the others more than one in {1 / _CHANCE:.0f} would."]
    return lines


def spread_table(found: Between) -> Table:
    """Return the deviations between sites by block, with the test that sites agree."""
    heads = ["block", "deviation", "90 % interval", "Q", "df", "p", "I²"]
    rows = [
        [s.block, f"{s.tau:.3g}", f"{s.low:.3g} to {s.high:.3g}", *_test(s)] for s in found.spreads
    ]
    return table_of(heads, [*rows, ["all", "", "", *_test(found.overall)]], {"block"})


def _test(spread: Spread) -> list[str]:
    return [f"{spread.q:.1f}", f"{spread.df:.0f}", _p(spread.p_value), f"{spread.i2:.0%}"]


def _p(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}"
