"""How often the number of experts is found: by BIC, by ICL, by the elbow of R_c.

Every truth is another one, with one to four experts; numbers from 1 to 6 are tried. Rows are fitted
in one place, and split over 8 or over 32 sites. Sites fit 6 experts each and send them once; the
elbow needs no more, BIC and ICL one round of log-likelihoods. "Refined" candidates have had two
refine rounds before. One row of the CSV is one choice by each rule.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

from rich import box
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from otmoe import (
    DistributedMoERegressor,
    MoERegressor,
    Selection,
    select_n_experts,
    select_over_shards,
    shards_from,
    simulate,
)
from studies.machines import environment, machines
from studies.rows import Row, append, read
from studies.tables import put
from studies.truths import KINDS

PAGE = Path(__file__).parents[1] / "docs" / "choice_of_k.md"
CSV = Path(__file__).parent / "results" / "choice_of_k.csv"
ROWS, FEATURES, NUMBERS = 10_000, 5, range(1, 7)
WHERE = {  # sites, refine rounds
    "one machine": (1, 0),
    "8 sites": (8, 0),
    "8 sites, refined": (8, 2),
    "32 sites": (32, 0),
    "32 sites, refined": (32, 2),
}
KINDS = {**KINDS, "one expert": {"softness": 0.0}}
OPTIONS = {"max_iter": 40, "random_state": 0}  # fits with too many experts hardly converge
RULES = ("bic", "icl", "elbow")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.choice_of_k", description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--where", nargs="+", default=list(WHERE), choices=list(WHERE))
    parser.add_argument("--truths", type=int, default=20)
    parser.add_argument("--out", type=Path, default=CSV)
    parser.add_argument("--show", action="store_true", help="only print what the CSV holds")
    parser.add_argument("--docs", action="store_true", help="write the table of the documentation")
    args = parser.parse_args()
    if args.docs:
        write_page(read(args.out))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    if not args.show:
        with threadpool_limits(1):
            for kind in args.kinds:
                for where in args.where:
                    for truth in range(args.truths):
                        study(kind, truth, where, args.out)
                    console.print(f"{kind}, {where}: done", highlight=False)
    heads, body = table(read(args.out))
    shown = Table(*heads, box=box.SIMPLE_HEAD)
    for cells in body:
        shown.add_row(*cells)
    console.print(shown)


def study(kind: str, truth: int, where: str, path: Path) -> None:
    """Add a choice, unless the CSV has it."""
    key = {"kind": kind, "truth": truth, "where": where}
    if any(all(row[name] == str(value) for name, value in key.items()) for row in read(path)):
        return
    true = 1 if kind == "one expert" else 2 + truth % 3
    data = simulate(ROWS, true, FEATURES, random_state=truth, **KINDS[kind])
    begin = perf_counter()
    n_sites, rounds = WHERE[where]
    if n_sites == 1:
        est = MoERegressor(**OPTIONS)
        found = select_n_experts(data.X, data.y, NUMBERS, estimator=est)
    else:
        shards = shards_from((data.X, data.y), cut=n_sites)
        est = DistributedMoERegressor(method="reduction", refine=rounds, **OPTIONS)
        found = select_over_shards(shards, NUMBERS, estimator=est)
    row = {**key, "rows": ROWS, "true": true, **chosen(found), "seconds": perf_counter() - begin}
    append(path, row | environment())


def chosen(found: Selection) -> Row:
    """Return the choice of each rule, and the sharpest bend of log R_c."""
    merged = found.candidates[0].aggregation is not None
    row: Row = {rule: found.best(rule).n_experts for rule in ("bic", "icl")}
    place = NUMBERS.index(found.best("elbow").n_experts) if merged else 0
    row["elbow"] = NUMBERS[place] if merged else ""
    row["bend"] = float(found.bend[place]) if merged else ""
    row["costs"] = " ".join(f"{c.cost:.4g}" for c in found.candidates) if merged else ""
    low = min(c.bic for c in found.candidates)
    row["bic_above_least"] = " ".join(f"{c.bic - low:.4g}" for c in found.candidates)
    return row


# -- reading -----------------------------------------------------------------------------------


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells: how often each rule was right, and how it erred."""
    heads = ["data", "rows are", "truths", "BIC", "ICL", "elbow", "bend of the elbow"]
    body = []
    for key in dict.fromkeys((r["kind"], r["where"]) for r in rows):
        mine = [r for r in rows if (r["kind"], r["where"]) == key]
        bends = sorted(float(r["bend"]) for r in mine if r["bend"] != "")
        span = f"{bends[0]:.2f} to {bends[-1]:.2f}" if bends else "–"
        body.append([*key, str(len(mine)), *(verdict(mine, rule) for rule in RULES), span])
    return heads, body


def verdict(rows: list[Row], rule: str) -> str:
    """Return how often a rule was right, too low, too high."""
    errors = [int(r[rule]) - int(r["true"]) for r in rows if r[rule] != ""]
    if not errors:
        return "–"
    low, high = sum(e < 0 for e in errors), sum(e > 0 for e in errors)
    words = [f"{low} low"] * (low > 0) + [f"{high} high"] * (high > 0)
    return f"{errors.count(0)}" + (f" ({', '.join(words)})" if words else "")


def write_page(rows: list[Row]) -> None:
    """Put the table where docs/choice_of_k.md has its marks."""
    heads, body = table(rows)
    rules = ["---" if head in ("data", "rows are") else "---:" for head in heads]
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, rules, *body)]
    lines += ["", f"Measured on: {machines(rows)}."]
    put("choice of k", lines, PAGE)
    data = simulate(4000, 3, 3, random_state=1)  # the example of the page
    shown = str(select_n_experts(data.X, data.y, range(1, 6)))
    put("example", ["```text", shown, "```"], PAGE)


if __name__ == "__main__":
    main()
