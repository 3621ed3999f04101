"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from otmoe.aggregation import Aggregation
    from otmoe.model.mixture import MoE


_TERMS = 5  # coefficients that are shown


def listed(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and what they are."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    for name, value in pairs:
        table.add_row(name, value)
    return table


def table_of(heads: Sequence[str], rows: Iterable[Sequence[str]], words: Any = ()) -> Table:
    """Return a table, figures to the right.

    Parameters
    ----------
    heads : sequence of str
    rows : iterable of sequences of str
    words : collection of str
        Heads of columns that hold words.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, justify="left" if head in words else "right")
    for row in rows:
        table.add_row(*row)
    return table


def candidates_of(result: Aggregation) -> list[dict[str, Any]]:
    """Return what the server chose from as --json prints it, the best first."""
    return [
        {**vars(candidate), "chosen": candidate.method == result.method}
        for candidate in result.candidates
    ]


def candidates_tables(candidates: Sequence[dict[str, Any]]) -> list[Table]:
    """Return the table of what the server chose from; none where the method was given."""
    if not candidates:
        return []
    heads = ["candidate", "experts", "expected nats lost per row", ""]
    rows = (
        [c["method"], str(c["n_experts"]), f"{c['lost']:.4g}", "chosen" if c["chosen"] else ""]
        for c in candidates
    )
    return [table_of(heads, rows, {"candidate", ""})]


def experts_table(model: MoE, mass: Sequence[float]) -> Table:
    """Return the experts: mass, variance, first coefficients; by class where there are several."""
    import numpy as np

    terms = model.terms[:_TERMS]
    variance = getattr(model.experts, "var", None)
    several = model.experts.coef.ndim == 3
    heads = ["expert", "mass", *([] if variance is None else ["variance"])]
    rows = []
    for k, coef in enumerate(model.experts.coef):
        first = [str(k), f"{mass[k]:.3f}", *([] if variance is None else [f"{variance[k]:.4g}"])]
        if not several:
            rows.append([*first, *(f"{b:.4g}" for b in coef[:_TERMS])])
            continue
        for label, row in zip(np.asarray(model.classes).tolist(), coef, strict=True):
            rows.append([*first, str(label), *(f"{b:.4g}" for b in row[:_TERMS])])
            first = [""] * len(first)
    table = table_of([*heads, *(["class"] if several else []), *terms], rows)
    left = len(model.terms) - len(terms)
    if left:
        table.caption = f"and {left} more coefficients each"
    return table
