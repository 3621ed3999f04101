"""How sites differ as text and as HTML, in the manner of meta-analyses (maths 18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from otmoe.inference.effects import Coefficient, SiteEffect, Spread
from otmoe.inference.estimates import quantile
from otmoe.inference.parameters import Parameter
from otmoe.inference.summary import Text
from otmoe.likelihood.prior import Prior
from otmoe.model.mixture import MoE
from otmoe.text.errors import MissingPackage
from otmoe.text.html import html_lines, html_table
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Finding

if TYPE_CHECKING:
    import pandas as pd

_WIDEST = 28  # characters of a name
_NARROWEST = 9  # characters of a column of numbers
_OVERALL = "all together"
_REJECTED = 0.01  # a p value that asks for a word where tau is 0

SPREAD_LEVEL = 0.90
"""Of the intervals of deviations."""


class Readout(Text):
    """Text that a console shows as it is, and a notebook as tables."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True)
class Section:
    """A table with a heading; the first column is one of words.

    Attributes
    ----------
    heading : str
    heads : tuple of str
    rows : tuple of tuple of str
        The last one is set apart where `total` is true.
    total : bool
    """

    heading: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: bool = False


def readout(
    model: MoE,
    prior: Prior,
    spreads: Sequence[Spread],
    overall: Spread,
    coefficients: Sequence[Coefficient],
    sites: Sequence[SiteEffect],
    warnings: Sequence[Notice],
    level: float,
    n_sites: int,
) -> Readout:
    """Return how sites differ, in words.

    Parameters
    ----------
    model : MoE
        The common model.
    prior : Prior
    spreads : sequence of Spread
    overall : Spread
    coefficients : sequence of Coefficient
    sites : sequence of SiteEffect
    warnings : sequence of Notice
    level : float
        Of the prediction intervals.
    n_sites : int
        Sites that are named.
    """
    K, family = model.n_experts, model.experts.family
    title = f"How {prior.n_sites:,} sites differ: {K} {family} expert{'' if K == 1 else 's'}"
    facts = [
        ("sites", f"{prior.n_sites:,}"),
        ("rows", f"{prior.n_samples:,.0f}"),
        ("parameters", str(len(coefficients))),
        ("design effect", f"{prior.design_effect:.2f}"),
    ]
    sections = [_blocks(spreads, overall), *_coefficients(coefficients, model, level)]
    if sites:  # a file may leave them out
        sections.append(_driving(sites, n_sites))
    notes = [Finding.SPREAD_SCALE(), Finding.NEW_SITE_INTERVAL(level=level)]
    notes += [*remarks(model, prior, spreads), *warnings]
    found = Readout(_as_text(title, facts, sections, list(map(str, notes))))
    found.html = _as_html(title, facts, sections, list(map(str, notes)))
    return found


def remarks(model: MoE, prior: Prior, spreads: Sequence[Spread]) -> list[Notice]:
    """Return what explains numbers that would otherwise puzzle a reader of the tables.

    Parameters
    ----------
    model : MoE
        The common model.
    prior : Prior
    spreads : sequence of Spread
    """
    found = []
    if np.allclose(prior.centre.to_vector(), model.to_vector(), rtol=1e-10, atol=0):
        found.append(Finding.MEAN_IS_COMMON())
    odd = [s.block for s in spreads if s.tau == 0 and s.p_value < _REJECTED]
    if odd:
        found.append(Finding.REJECTED_WITHOUT_SPREAD(blocks=", ".join(odd)))
    return found


def _blocks(spreads: Sequence[Spread], overall: Spread) -> Section:
    ends = f"[{0.5 - SPREAD_LEVEL / 2:.3g}", f"{0.5 + SPREAD_LEVEL / 2:.3g}]"
    rows = [
        (s.block, *map(number, (s.tau, s.low, s.high)), *_test(s), str(s.n_parameters))
        for s in spreads
    ]
    rows.append((_OVERALL, "", "", "", *_test(overall), str(overall.n_parameters)))
    heads = ("", "tau", *ends, "Q", "df", "P>Q", "I²", "params")
    return Section("Standard deviation between sites, by block", heads, tuple(rows), total=True)


def _test(found: Spread) -> tuple[str, ...]:
    if not np.isfinite(found.p_value):
        return "", "", "", ""
    return f"{found.q:.1f}", f"{found.df:.6g}", p_text(found.p_value), f"{found.i2:.0%}"


def _coefficients(rows: Sequence[Coefficient], model: MoE, level: float) -> list[Section]:
    low, high = f"new [{0.5 - level / 2:.3g}", f"{0.5 + level / 2:.3g}]"
    found: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        numbers = map(number, (row.mean, row.se, row.tau, row.low, row.high))
        cells = (coefficient_name(row), *numbers)
        found.setdefault(coefficient_heading(row, model), []).append(cells)
    heads = ("", "mean", "std err", "tau", low, high)
    return [Section(heading, heads, tuple(table)) for heading, table in found.items()]


def coefficient_heading(row: Coefficient, model: MoE) -> str:
    """Return the heading of the table that a coefficient belongs to."""
    if row.block == "gate":
        return f"Gate: expert {row.expert} against expert {row.against}"
    if row.block == "variance":
        several = model.n_experts > 1
        return f"Logarithms of the {row.term}s" if several else f"Logarithm of the {row.term}"
    about = "" if row.label is None else f", class {row.label}"
    if row.label is not None and model.experts.n_linear > 1:
        last = model.experts.n_linear if model.classes is None else model.classes[-1]
        about += f" against {last}"
    return f"Expert {row.expert}{about}"


def coefficient_name(row: Coefficient) -> str:
    """Return what a coefficient is called in its table."""
    return f"expert {row.expert}" if row.block == "variance" else row.term


def _driving(sites: Sequence[SiteEffect], most: int) -> Section:
    """Return the sites with the largest parts of Q."""
    total = sum(site.q for site in sites)
    order = sorted(sites, key=lambda site: (-site.q, site.site))[:most]
    rows = tuple(
        (
            site.site,
            f"{site.n_samples:,.0f}",
            f"{site.q:.1f}",
            f"{site.q / total:.0%}" if total > 0 else "",
            p_text(site.p_value),
        )
        for site in order
    )
    which = "Sites that differ most" + (f", {len(rows)} of {len(sites):,}" * (most < len(sites)))
    return Section(which, ("", "rows", "Q", "of Q", "P>Q"), rows)


# -- the two forms -------------------------------------------------------------------------------


def _as_text(
    title: str,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    notes: Sequence[str],
) -> str:
    names = [row[0] for section in sections for row in section.rows]
    first = min(max(map(len, names)), _WIDEST)
    width = first + max(sum(_widths(section)) for section in sections)
    out = [title.center(width).rstrip(), "=" * width]
    out += ["   ".join(f"{name}: {value}" for name, value in facts)]
    for section in sections:
        sizes = _widths(section)
        lines = [
            f"{_cut(name, first):{first}}"
            + "".join(f"{cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))
            for name, *cells in (section.heads, *section.rows)
        ]
        if section.total:
            lines.insert(-1, "-" * width)
        out += ["=" * width, section.heading, lines[0], "-" * width, *lines[1:]]
    out.append("=" * width)
    below = "    "
    out += [fill(f"[{i}] {s}", width, subsequent_indent=below) for i, s in enumerate(notes, 1)]
    return "\n".join(line.rstrip() for line in out)


def _widths(section: Section) -> list[int]:
    """Return how wide each column of numbers is."""
    columns = list(zip(*(section.heads, *section.rows), strict=True))[1:]
    return [max(_NARROWEST, *(len(cell) + 2 for cell in column)) for column in columns]


def _as_html(
    title: str,
    facts: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    notes: Sequence[str],
) -> str:
    line = ", ".join(f"{name}: {value}" for name, value in facts)
    tables = [
        html_lines(section.heading) + html_table(section.heads, section.rows)
        for section in sections
    ]
    return html_lines(title, line) + "<br>" + "".join(tables) + html_lines("Notes", *notes)


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def number(value: float) -> str:
    """Return four decimals where these are enough, else four significant digits."""
    if not np.isfinite(value):
        return "" if np.isnan(value) else ("∞" if value > 0 else "-∞")
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4f}" if abs(value) < 1e3 else f"{value:.1f}"
    return f"{value:.3g}"


def p_text(p: float) -> str:
    """Return a p value with three decimals.

    Examples
    --------
    >>> p_text(0.0312), p_text(1e-9)
    ('0.031', '<0.001')
    """
    if np.isnan(p):
        return ""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def site_rows(
    sites: Sequence[SiteEffect], about: Sequence[Parameter], where: Sequence[int], level: float
) -> list[dict[str, Any]]:
    """Return a row for each site and each of some parameters, before and after shrinkage."""
    wide, rows = quantile(level), []
    for site in sites:
        for j in where:
            alone, error = float(site.estimate[j]), float(site.error[j])
            alone = alone if np.isfinite(error) else np.nan
            after, rest = float(site.shrunk[j]), float(site.shrunk_error[j])
            rows.append(
                {
                    "site": site.site,
                    "n_samples": site.n_samples,
                    **asdict(about[j]),
                    "estimate": alone,
                    "se": error,
                    "low": alone - wide * error,
                    "high": alone + wide * error,
                    "shrunk": after,
                    "shrunk_se": rest,
                    "shrunk_low": after - wide * rest,
                    "shrunk_high": after + wide * rest,
                    "q": site.q,
                    "p_value": site.p_value,
                }
            )
    return rows


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame, or say how to get pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingPackage(Error.NO_FRAME) from error
    return pd.DataFrame(rows)
