"""The pages docs/paper.md and docs/differences.md: tables from the CSVs, between their marks."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from paper import claims, figures, tables, theory
from paper.findings import Findings
from studies.machines import machines
from studies.rows import Row
from studies.tables import Cells, markdown, put

DOCS = Path(__file__).parents[1] / "docs"
NOT_QUIET = (
    "No learning times were measured on a quiet machine yet: `python -m paper timing` does it. "
    "Those of `study.csv` come from many fits side by side and are not to be quoted."
)


def write_docs(findings: Findings) -> None:
    """Write the tables and the figures of both pages."""
    write_pages(findings, DOCS)
    figures.save(findings, figures.IMAGES)


def write_pages(findings: Findings, folder: Path) -> None:
    """Write the tables of both pages in a folder."""
    for mark, lines in marks(findings).items():
        put(mark, lines, folder / "paper.md")
    put("checks", markdown([checks(findings.variants)]), folder / "differences.md")


def marks(findings: Findings) -> dict[str, list[str]]:
    """Return what stands between each pair of marks of docs/paper.md."""
    sizes = findings.sizes()
    times = tables.learning_times(findings)
    softer = [(kind, n) for kind in ("soft", "overlap") for n in findings.sizes(kind)]
    return {
        "claims": markdown([claims.table(findings)]),
        "medians": markdown([tables.medians(findings, "hard", n) for n in sizes]),
        "softer": markdown([tables.medians(findings, *of) for of in softer]),
        "refined": markdown([tables.refined(findings)]),
        "duels": markdown([tables.duel(findings, rival) for rival in ("Mid", "W")]),
        "times": [*markdown(times), machine(findings.timing)] if times else [NOT_QUIET],
        "slopes": markdown([tables.slopes(findings)]),
        "ran": markdown([ran(findings)]),
    }


def machine(rows: list[Row]) -> str:
    busy = [float(row["other_cores_busy"]) for row in rows if row["other_cores_busy"]]
    return (
        f"Measured on: {machines(rows)}, one core for each fit. Other processes kept "
        f"{min(busy):.1f} to {max(busy):.1f} of its cores busy meanwhile, in the median "
        f"{median(busy):.1f}."
    )


def ran(findings: Findings) -> Cells:
    """Return what ran where."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name, rows in (("study.csv", findings.study), ("learning_time.csv", findings.timing)):
        for row in rows:
            if row["method"] == "centralised":
                where = row["device"], row["machine"], row["python"], row["numpy"]
                found.setdefault((name, row["kind"], row["rows"], *where), set()).add(row["truth"])
    heads = ["CSV", "data", "rows", "rows fitted on", "machine", "Python", "NumPy", "truths"]
    body = [
        [name, kind, f"{int(n):,}", *where, str(len(truths))]
        for (name, kind, n, *where), truths in sorted(found.items())
    ]
    return "", heads, body


def checks(variants: list[Row]) -> Cells:
    """Return a number for each point in which the paper and this package differ."""

    def middle(kind: str, variant: str, column: str) -> float:
        mine = [r for r in variants if (r["kind"], r["variant"]) == (kind, variant)]
        return median(float(row[column]) for row in mine)

    def rises(kind: str, variant: str) -> str:
        mine = [r for r in variants if (r["kind"], r["variant"]) == (kind, variant)]
        up, all_ = (sum(int(row[c]) for row in mine) for c in ("rises", "iterations"))
        return f"R_c rose in {up} of {all_} steps"

    def times(kind: str, variant: str, column: str) -> str:
        return f"{middle(kind, variant, column) / middle(kind, 'exact', column):.2g} times"

    same, renumbered, between = theory.between()
    erased, lost = theory.without_gate()
    heads = ["point", "check", "number"]
    body = [
        [
            "1",
            "two gates with log-odds 4x + 2 and 4x - 2, averaged: largest distance of the log-odds "
            "from the best straight line",
            f"{theory.bent_gate():.2f}",
        ],
        [
            "2",
            "R_c at two experts, at the same two renumbered, half-way between them (averaging "
            "parameters; averaging densities)",
            f"{same:g}, {renumbered:g}, {between:g}; {theory.between_densities():.2f}",
        ],
        [
            "3",
            "R_c from a truth to itself with the gate erased; nats a row that this loses",
            f"{erased:g}; {lost:.2f}",
        ],
        [
            "4",
            "published variance: error of the variances beside the exact update (hard; soft)",
            f"{times('hard', 'published variance', 'mse_var')}; "
            f"{times('soft', 'published variance', 'mse_var')}; soft: "
            f"{rises('soft', 'published variance')}",
        ],
        [
            "5",
            "logistic closed form: error of the experts beside the exact update",
            f"{times('logistic', 'published closed form', 'mse_coef')}; "
            f"{rises('logistic', 'published closed form')}",
        ],
        [
            "6",
            "the posterior as gate target: error of the gate beside the exact target (soft)",
            times("soft", "posterior gate target", "mse_gate"),
        ],
        [
            "7",
            "our aggregate, its gate erased (hard): relaxed distance before, after; T_c likewise",
            ", ".join(
                f"{middle('hard', variant, 'relaxed'):.3g}"
                for variant in ("otmoe.aggregate", "gate erased")
            )
            + "; "
            + ", ".join(
                f"{middle('hard', variant, 'transport'):.3g}"
                for variant in ("otmoe.aggregate", "gate erased")
            ),
        ],
        [
            "9",
            "share of test rows in training and test rows, N = 100,000; 500,000; 1,000,000",
            "; ".join(f"{100 * share:.0f} %" for share in theory.shares_of_tests().values()),
        ],
        [
            "10",
            "root mean square (RMSE / √RPE) and mean (RMSE / SI) of the heart rate: "
            + "; ".join(theory.heart_rates()),
            "; ".join(f"{rms:.1f}, {mean:.1f}" for rms, mean in theory.heart_rates().values()),
        ],
    ]
    return "", heads, body
