"""What every benchmark shares: side-by-side timing, the machine in words, CSV files, tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from studies.machines import OtherWork, environment
from studies.rows import Row, append, read, write

RESULTS = Path(__file__).parent / "results"
SEED = 0


@dataclass(frozen=True)
class Settings:
    """What the command line asked for."""

    quick: bool
    threads: tuple[int, ...]


@dataclass(frozen=True)
class Column:
    """A column of the printed table: the CSV's key, the heading, how a value is written."""

    key: str
    head: str
    form: str = "{}"

    def text(self, row: Row) -> str:
        value = row[self.key]
        if value in ("", None):
            return "–"
        return self.form.format(value if self.form == "{}" else float(value))


@dataclass(frozen=True)
class Requirement:
    """A bound that every row of a column has to keep, or those that it is asked of."""

    key: str
    words: str
    at_most: float | None = None
    at_least: float | None = None
    of: Callable[[Row], bool] = lambda row: True

    def verdict(self, rows: list[Row]) -> str:
        asked = [row[self.key] for row in rows if self.of(row)]
        values = [float(value) for value in asked if value not in ("", None)]
        if not values:
            return f"{self.words}: not measured"
        if self.at_most is not None:
            worst, bound = max(values), f"at most {self.at_most:g}"
            holds = worst <= self.at_most
        else:
            worst, bound = min(values), f"at least {self.at_least:g}"
            holds = worst >= self.at_least
        return f"{self.words}: asked {bound}, worst {worst:.3g}, {'holds' if holds else 'MISSED'}"


@dataclass(frozen=True)
class Benchmark:
    """Cases to measure, and how one is measured; a CSV and a table come of it.

    Where `across` names a key, its values become columns of the table, and `cell` says what is
    written in them.
    """

    name: str
    title: str
    cases: Callable[[Settings], Iterable[Row]]
    measure: Callable[[Row, Settings], Row]
    columns: tuple[Column, ...]
    requirements: tuple[Requirement, ...] = ()
    across: str = ""
    cell: str = ""

    def table(self, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the cells of the table."""
        heads = [column.head for column in self.columns]
        if not self.across:
            return heads, [[column.text(row) for column in self.columns] for row in rows]
        values = list(dict.fromkeys(row[self.across] for row in rows))
        body: dict[tuple[str, ...], dict[str, str]] = {}
        for row in rows:
            place = body.setdefault(tuple(column.text(row) for column in self.columns), {})
            place[row[self.across]] = self.cell.format(**{k: _number(v) for k, v in row.items()})
        return (
            heads + [f"{self.across} = {value}" for value in values],
            [[*key, *(cells.get(value, "–") for value in values)] for key, cells in body.items()],
        )

    def is_text(self, place: int) -> bool:
        """Say whether a column of the table holds words, not figures."""
        return place < len(self.columns) and self.columns[place].form == "{}"


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


# -- timing ------------------------------------------------------------------------------------


def side_by_side(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Return seconds of each action in `repeats` rounds, after one round of warm-up.

    Every round runs all actions in turn, so that whatever else the machine is doing hits all.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats + 1):
        for name, action in actions.items():
            start = perf_counter()
            action()
            seconds[name].append(perf_counter() - start)
    return {name: values[1:] for name, values in seconds.items()}


def ratio(above: list[float], below: list[float]) -> float:
    """Return the median over rounds of the ratio within a round."""
    return median(a / b for a, b in zip(above, below, strict=True))


# -- running and reporting ---------------------------------------------------------------------


def run(
    benchmark: Benchmark, settings: Settings, folder: Path, *, resume: bool, console: Console
) -> None:
    """Measure the cases of a benchmark, adding each to the CSV as soon as it is known."""
    path = folder / f"{benchmark.name}.csv"
    known = read(path) if resume else []
    if not resume:
        path.unlink(missing_ok=True)
    cases = list(benchmark.cases(settings))
    for number, case in enumerate(cases, 1):
        words = ", ".join(f"{key} {value}" for key, value in case.items())
        where = f"{benchmark.name} {number}/{len(cases)}"
        if any(all(row[key] == str(case[key]) for key in case) for row in known):
            console.print(f"{where}: {words}: in the CSV already", highlight=False)
            continue
        start, other = perf_counter(), OtherWork()
        row = {**case, **benchmark.measure(case, settings)}
        row.setdefault("seed", SEED)
        busy = other.cores()
        append(path, row | {"other_cores_busy": busy} | environment())
        took = f"{perf_counter() - start:.0f} s, other work {busy:.2f} cores"
        console.print(f"{where}: {words}: {took}", highlight=False)
    if resume:
        write(path, in_order(read(path), cases))
    show(benchmark, read(path), console)


def in_order(rows: list[Row], cases: list[Row]) -> list[Row]:
    """Return rows in the order of their cases; those of no case come last."""
    place = {tuple(map(str, case.values())): number for number, case in enumerate(cases)}
    keys = list(cases[0]) if cases else []
    return sorted(rows, key=lambda row: place.get(tuple(row[key] for key in keys), len(place)))


def show(benchmark: Benchmark, rows: list[Row], console: Console) -> None:
    """Print the table of a benchmark and whether its requirements hold."""
    heads, body = benchmark.table(rows)
    table = Table(title=benchmark.title, box=box.SIMPLE_HEAD, title_justify="left")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if benchmark.is_text(place) else "right")
    for cells in body:
        table.add_row(*map(escape, cells))
    console.print(table)
    for requirement in benchmark.requirements:
        console.print(requirement.verdict(rows), highlight=False)


# -- the page in the documentation -------------------------------------------------------------


def markdown(benchmark: Benchmark, rows: list[Row]) -> str:
    """Return the table of a benchmark for docs/benchmarks.md, and the machine below it."""
    heads, body = benchmark.table(rows)
    rules = ["---" if benchmark.is_text(place) else "---:" for place in range(len(heads))]
    lines = ["| " + " | ".join(cells) + " |" for cells in [heads, rules, *body]]
    machines = dict.fromkeys(
        f"{row['machine']}, Python {row['python']}, NumPy {row['numpy']}" for row in rows
    )
    return "\n".join([*lines, "", f"`{benchmark.name}.csv`: {'; '.join(machines)}."])


def rewrite(page: Path, benchmarks: Iterable[Benchmark], folder: Path) -> None:
    """Replace what stands between the markers of each benchmark in a page by its table."""
    text = page.read_text()
    for benchmark in benchmarks:
        rows = read(folder / f"{benchmark.name}.csv")
        start, end = f"<!-- {benchmark.name} -->\n", f"<!-- end of {benchmark.name} -->"
        if rows and start in text and end in text:
            before, rest = text.split(start)
            text = before + start + markdown(benchmark, rows) + "\n" + end + rest.split(end)[1]
    page.write_text(text)
