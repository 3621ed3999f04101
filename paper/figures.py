"""Figures of the study: CSVs in, PNG files out.

One figure for each number of rows: six metrics over numbers of sites, a box for each estimator.
One across numbers of rows, with the most sites; the objective of the MM iterations; the error
against the rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from PIL import Image

from paper.findings import RESULTS, Findings, Place, Values, slope

IMAGES = Path(__file__).parents[1] / "docs" / "images" / "paper"

COLOURS = {  # Okabe and Ito: told apart by the colour-blind too
    "G": "#000000",
    "R": "#0072B2",
    "Mid": "#E69F00",
    "W": "#D55E00",
    "gram": "#56B4E9",
    "gram + 2": "#009E73",
    "gram + auto": "#CC79A7",
}
PANELS = {
    "transport": "$T_c$",
    "below_truth": "log-likelihood: nats a row below the truth",
    "mse_total": "MSE of all parameters",
    "rpe": "RPE: per cent above that of G",
    "ari": "ARI, less that of G",
    "learning_seconds": "learning time, s",
}
NOT_QUIET = "\n(many fits side by side: not to be quoted)"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
}

Groups = dict[str, dict[str, list[float]]]
"""By what stands below the axis, and by estimator: a number for each truth."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.figures", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the CSVs")
    parser.add_argument("--out", type=Path, default=IMAGES)
    args = parser.parse_args()
    save(Findings.read(args.results), args.out)


def save(findings: Findings, folder: Path) -> list[Path]:
    """Write all figures that the CSVs have rows for, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context(STYLE):
        for name, figure in figures(findings):
            paths.append(folder / f"{name}.png")
            drawn = BytesIO()
            figure.savefig(drawn, dpi=110)
            plt.close(figure)
            Image.open(drawn).convert("RGB").quantize(128).save(paths[-1], optimize=True)
    return paths


def figures(findings: Findings) -> Iterator[tuple[str, Figure]]:
    for n in findings.sizes():
        title = f"{n:,} rows"
        yield f"rows_{n}", boxes(findings, over_sites(findings, n), title, "sites")
    if len(findings.sizes()) > 1:
        M = findings.sites(findings.sizes()[0])[-1]
        yield "across_rows", boxes(findings, over_rows(findings, M), f"{M} sites", "rows")
    if findings.traces:
        yield "mm_traces", traces(findings)
    kinds = [k for k in ("hard", "soft") if len(findings.errors(k, SITES, "R", "mse_gate")) > 1]
    if kinds:
        yield "consistency", consistency(findings, kinds)


# -- boxes ---------------------------------------------------------------------------------------

Places = dict[str, list[tuple[str, Place]]]
"""By what stands below the axis: names of estimators and where they are."""


def over_sites(findings: Findings, n: int) -> Places:
    """Return one group for all rows in one place, and one for each number of sites."""
    sites = findings.sites(n)
    first = {"1": [("G", Place("hard", n, sites[0]))]}
    others = [name for name in COLOURS if name != "G"]
    return first | {str(M): [(name, Place("hard", n, M)) for name in others] for M in sites}


def over_rows(findings: Findings, M: int) -> Places:
    sizes = sorted(findings.sizes())
    return {f"{n:,}": [(name, Place("hard", n, M)) for name in COLOURS] for n in sizes}


def panel_values(findings: Findings, places: Places, metric: str) -> tuple[Groups, bool]:
    """Return the values of a panel, and whether they may be quoted.

    Across rows the truths are those that all numbers of rows have.
    """
    quoted = metric != "learning_seconds" or all(
        findings.seconds(place, name) for group in places.values() for name, place in group
    )

    def values(name: str, place: Place) -> Values:
        if metric == "learning_seconds" and quoted:
            return findings.seconds(place, name)
        mine = findings.values(place, name, metric)
        if metric not in ("rpe", "ari"):
            return mine
        G = findings.values(place, "G", metric)
        pairs = {truth: (mine[truth], G[truth]) for truth in mine.keys() & G.keys()}
        return {t: 100 * (a / b - 1) if metric == "rpe" else a - b for t, (a, b) in pairs.items()}

    found = {
        label: {name: values(name, place) for name, place in group}
        for label, group in places.items()
    }
    every = [values for group in found.values() for values in group.values() if values]
    common = set.intersection(*map(set, every)) if every else set()
    return {
        label: {name: [v[t] for t in sorted(common)] for name, v in group.items() if v}
        for label, group in found.items()
    }, quoted


def boxes(findings: Findings, places: Places, title: str, below: str) -> Figure:
    """Draw six panels of boxes."""
    figure, axes = plt.subplots(3, 2, figsize=(10, 10), layout="constrained")
    count = 0
    for ax, (metric, words) in zip(axes.flat, PANELS.items(), strict=True):
        groups, quoted = panel_values(findings, places, metric)
        panel(ax, groups)
        truths = len(next(iter(next(iter(groups.values())).values())))
        if metric == "learning_seconds":
            many = f"{truths} truth{'s' * (truths > 1)}"
            words += f"\n(on a quiet machine, {many})" if quoted else NOT_QUIET
        ax.set_title(words, loc="left")
        ax.set_xlabel(below)
        scale(ax, metric, groups)
        if metric == "transport":
            count = truths
    handles = [plt.Rectangle((0, 0), 1, 1, fc=pale(c), ec=c) for c in COLOURS.values()]
    figure.legend(
        handles,
        COLOURS,
        loc="outside upper center",
        ncols=len(COLOURS),
        title=f"Hard gates, {title}, {count} truths",
        title_fontsize=11,
    )
    return figure


def panel(ax: Axes, groups: Groups) -> None:
    """Draw a box for each estimator in each group; the line is the median, dots are far runs."""
    ticks, edge = [], 0.0
    for group in groups.values():
        at = [edge + i for i in range(len(group))]
        drawn = ax.boxplot(
            list(group.values()),
            positions=at,
            widths=0.75,
            patch_artist=True,
            manage_ticks=False,
            flierprops={"marker": ".", "markersize": 3, "markeredgewidth": 0.4},
            medianprops={"linewidth": 2},
        )
        parts = zip(group, drawn["boxes"], drawn["fliers"], drawn["medians"], strict=True)
        for i, (name, box, far, middle) in enumerate(parts):
            colour = COLOURS[name]
            box.set(facecolor=pale(colour), edgecolor=colour)
            far.set(markeredgecolor=colour, markerfacecolor=colour)
            middle.set(color=colour, gid=name)
            for line in (*drawn["whiskers"][2 * i : 2 * i + 2], *drawn["caps"][2 * i : 2 * i + 2]):
                line.set(color=colour)
        ticks.append(edge + (len(group) - 1) / 2)
        edge += len(group) + 1
    ax.set_xticks(ticks, list(groups))
    ax.tick_params(axis="x", length=0)


def pale(colour: str) -> tuple[float, ...]:
    return to_rgba(colour, 0.35)


NEAR_ZERO = {"ari": 1e-3, "rpe": 0.1, "below_truth": 1e-4}
"""Where the axis is linear, for metrics that may be negative."""


def scale(ax: Axes, metric: str, groups: Groups) -> None:
    """Choose the axis: values run over many orders of magnitude, and differences have signs."""
    every = [value for group in groups.values() for values in group.values() for value in values]
    low, high = min(every), max(every)
    if metric in NEAR_ZERO and low <= 0:
        near = NEAR_ZERO[metric]
        ax.set_yscale("symlog", linthresh=near)
        ax.set_ylim(2 * low if low < -near else -2 * near, 2 * high if high > near else 2 * near)
    else:
        logarithmic(ax, low, high)


def logarithmic(ax: Axes, low: float, high: float) -> None:
    """Make the axis logarithmic, with more ticks where it is short."""
    ax.set_yscale("log")
    if high / low < 100:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())


# -- lines ---------------------------------------------------------------------------------------


def traces(findings: Findings) -> Figure:
    """Draw the objective of MM iterations; a trace ends where it stands still."""
    starts = list(dict.fromkeys(row["start"] for row in findings.traces))
    figure, axes = plt.subplots(1, len(starts), figsize=(10, 4), layout="constrained", sharey=True)
    sizes = list(dict.fromkeys(row["rows"] for row in findings.traces))
    colours = dict(zip(sizes, ("#0072B2", "#D55E00", "#009E73"), strict=False))
    for ax, start in zip(axes, starts, strict=True):
        for (n, _), points in by_run(findings, start).items():
            ax.plot(*zip(*points, strict=True), ".-", color=colours[n], lw=1, ms=4, alpha=0.8)
        ax.set_title(f"start: {start}", loc="left")
        ax.set_xlabel("MM iteration")
        ax.set_yscale("log")
    axes[0].set_ylabel("objective $R_c$")
    lines = [plt.Line2D([], [], marker=".", color=colour) for colour in colours.values()]
    axes[-1].legend(lines, [f"{int(n):,} rows" for n in colours])
    figure.suptitle("The MM objective, 16 sites, one line for each truth", fontsize=11)
    return figure


def by_run(findings: Findings, start: str) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Return iterations and objectives by rows and truth."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in findings.traces:
        if row["start"] == start:
            point = (int(row["iteration"]), float(row["objective"]))
            found.setdefault((row["rows"], row["truth"]), []).append(point)
    return found


ERRORS = {"mse_gate": "MSE of the gate", "mse_coef": "MSE of the experts' coefficients"}
SITES, LINES = 16, {"G": "o", "R": "s", "gram": "^", "gram + auto": "D"}


def consistency(findings: Findings, kinds: list[str]) -> Figure:
    """Draw errors against rows, both in logarithms, and write the slopes down."""
    figure, axes = plt.subplots(
        len(kinds), 2, figsize=(10, 3.9 * len(kinds)), layout="constrained", squeeze=False
    )
    for kind, pair in zip(kinds, axes, strict=True):
        for ax, (metric, words) in zip(pair, ERRORS.items(), strict=True):
            for name, marker in LINES.items():
                errors = findings.errors(kind, SITES, name, metric)
                ax.plot(
                    list(errors),
                    list(errors.values()),
                    marker + "-",
                    color=COLOURS[name],
                    label=f"{name}: slope {slope(errors):.2f}",
                    markerfacecolor="none" if name == "G" else COLOURS[name],
                    ms=9 if name == "G" else 5,
                    lw=1.2,
                )
            every = [v for line in ax.lines for v in line.get_ydata()]
            logarithmic(ax, min(every), max(every))
            ax.set_xscale("log")
            ax.set_xticks(list(errors), [f"{n:,}" for n in errors])
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_title(f"{kind} gates: {words}", loc="left")
            ax.set_xlabel(f"rows, over {SITES} sites")
            ax.legend()
    figure.suptitle("Medians over truths; a slope of -1 is that of an error of 1/N", fontsize=11)
    return figure


if __name__ == "__main__":
    main()
