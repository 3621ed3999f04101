"""Tables of the studies: in the terminal, and in the pages of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from studies.machines import machines
from studies.rows import Row
from studies.tables import Cells, markdown, put

PAGE = Path(__file__).parents[1] / "docs" / "real_data.md"

NAMES = {
    "alone": "each site by itself",
    "centralised": "centralised (G)",
    "reduction": "reduction (R)",
    "middle": "middle (Mid)",
    "weighted_average": "weighted average (W)",
    "aligned_average": "aligned average",
    "kl": "merged densities (kl)",
    "auto": "chosen by the server (auto)",
}


def named(row: Row) -> str:
    """Return an estimator in words."""
    name = NAMES.get(row["method"], row["method"].replace("_", " "))
    if row["refine"] == "0":
        return name
    if row["refine"] == "auto":
        end = "done" if row["converged"] == "True" else "not done"
        return f"{name} + refine, {end} after {row['rounds']} rounds"
    return f"{name} + {row['refine']} refine rounds"


def by_sites(rows: Sequence[Row]) -> list[Row]:
    """Return rows in the order in which their sites come first."""
    first = list(dict.fromkeys(row["sites"] for row in rows))
    return sorted(rows, key=lambda row: first.index(row["sites"]))


def write_page(mark: str, tables: Sequence[Cells], rows: Sequence[Row], page: Path) -> None:
    """Put tables where a page has its marks."""
    lines = markdown(tables)
    busy = [float(row["other_cores_busy"]) for row in rows if row["other_cores_busy"]]
    lines.append(
        f"Measured on: {machines(rows)}. Other processes kept {min(busy):.1f} to "
        f"{max(busy):.1f} of its cores busy meanwhile, so that seconds are upper bounds."
    )
    put(mark, lines, page)
