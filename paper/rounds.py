"""How close to the centralised fit after how many rounds: tables from the study's CSV.

`python -m paper.study rounds` measures; this reads. Errors are mean squared errors to the truth,
divided by those of the centralised fit of the same rows.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median

from otmoe import LocalModel, simulate
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.federation.rounds import begin, reply_to, request_of
from otmoe.likelihood.fit import em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.likelihood.statistics import e_step
from paper.study import EXPERTS, FEATURES, RESULTS
from studies.rows import Row, read
from studies.tables import put

PAGE = Path(__file__).parents[1] / "docs" / "refine.md"
KINDS = {"hard": "sharp gates (the paper's data)", "soft": "soft gates", "overlap": "overlap"}
SITES = (16, 64, 128)
STEPS = ("0", "1", "2", "3", "4", "auto")
PARTS = {"mse_gate": "gate", "mse_coef": "beta", "mse_var": "variance"}
NAMES = {"reduction": "reduction", "gram": "gram"}
ROWS, TRUTHS = 100_000, 10

BARS = (
    ("soft, 128 sites, gram + 1 round, worst of gate, beta, variance", "soft", 128, "1", 1.1),
    ("soft, 128 sites, gram + 2 rounds", "soft", 128, "2", 1.02),
    ("overlap, 16 sites, gram + 3 rounds", "overlap", 16, "3", 1.05),
    ("overlap, 64 sites, gram + 3 rounds", "overlap", 64, "3", 1.05),
    ("overlap, 128 sites, gram + 3 rounds", "overlap", 128, "3", 1.05),
    ("hard, 16 sites, gram + auto", "hard", 16, "auto", 1.05),
    ("hard, 64 sites, gram + auto", "hard", 64, "auto", 1.05),
    ("hard, 128 sites, gram + auto", "hard", 128, "auto", 1.05),
)
NATS = (
    ("hard, 64 sites, gram, nats per row below the centralised fit", "0", 0.015),
    ("hard, 64 sites, gram + 2 rounds, nats per row below the centralised fit", "2", 0.002),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.rounds", description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "study.csv")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/refine.md")
    args = parser.parse_args()
    print("\n".join(verdicts(Study(read(args.csv)))))
    parts = {"rounds": page(read(args.csv)), "sizes": sizes()}
    if not args.docs:
        print("\n".join(parts.values()))
        return
    for name, part in parts.items():
        put(name, part.splitlines(), PAGE)


class Study:
    """Rows of the study at one size, with the centralised fit beside each.

    Parameters
    ----------
    rows : iterable of dict
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        mine = [r for r in rows if int(r["rows"]) == ROWS and int(r["truth"]) < TRUTHS]
        self._whole = {(r["kind"], r["truth"]): r for r in mine if r["method"] == "centralised"}
        self._of: dict[tuple[str, int, str, str], list[Row]] = {}
        for row in mine:
            key = row["kind"], int(row["sites"]), row["method"], row["refine"]
            self._of.setdefault(key, []).append(row)

    def runs(self, kind: str, sites: int, method: str, refine: str) -> list[Row]:
        """Return one estimator in all truths."""
        return self._of.get((kind, sites, method, refine), [])

    def ratio(self, kind: str, sites: int, method: str, refine: str, part: str) -> float:
        """Return the median over truths of an error, in units of the centralised fit's."""
        runs = self.runs(kind, sites, method, refine)
        return median(float(r[part]) / float(self._whole[kind, r["truth"]][part]) for r in runs)

    def worst(self, kind: str, sites: int, method: str, refine: str) -> float:
        """Return the largest of the three."""
        return max(self.ratio(kind, sites, method, refine, part) for part in PARTS)

    def below(self, kind: str, sites: int, method: str, refine: str) -> float:
        """Return the median of the nats per new row below the centralised fit."""
        return median(
            float(r["below_truth"]) - float(self._whole[kind, r["truth"]]["below_truth"])
            for r in self.runs(kind, sites, method, refine)
        )

    def rounds(self, kind: str, sites: int, method: str) -> tuple[float, int]:
        """Return the median and the largest number of rounds that "auto" took."""
        taken = [int(r["rounds"]) for r in self.runs(kind, sites, method, "auto")]
        return median(taken), max(taken)


def page(rows: list[Row]) -> str:
    """Return the tables, and the figures that have a bar, as Markdown."""
    study = Study(rows)
    lines: list[str] = []
    for kind, words in KINDS.items():
        heads = [
            "sites",
            "start",
            "truths",
            *(f"+ {s}" if s != "0" else "one round" for s in STEPS),
        ]
        heads[-1], tail = "auto", ["rounds of auto", "nats, one round", "nats, + 2"]
        lines += [f"**{words.capitalize()}**: gate / beta / variance", ""]
        lines += [f"| {' | '.join(heads + tail)} |", "|" + " ---: | --- |" + " ---: |" * 10]
        for M in SITES:
            for method, name in NAMES.items():
                if study.runs(kind, M, method, "auto"):
                    lines.append(line(study, kind, M, method, name))
        lines.append("")
    found = [f"* {words}: {value:.3g}" for words, value, _ in measures(study)]
    lines += [*found, "", maxima(rows), "", measured(rows)]
    return "\n".join(lines) + "\n"


def line(study: Study, kind: str, M: int, method: str, name: str) -> str:
    cells = [
        " / ".join(short(study.ratio(kind, M, method, step, part)) for part in PARTS)
        for step in STEPS
    ]
    middle, most = study.rounds(kind, M, method)
    nats = [f"{study.below(kind, M, method, step):.4f}" for step in ("0", "2")]
    runs = str(len(study.runs(kind, M, method, "auto")))
    return f"| {' | '.join([str(M), name, runs, *cells, f'{middle:g} (at most {most})', *nats])} |"


def short(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def measures(study: Study) -> list[tuple[str, float, float]]:
    """Return the figures that have a bar: what they are, their value, the bar."""
    found = [(words, study.worst(kind, M, "gram", step), bar) for words, kind, M, step, bar in BARS]
    found += [(words, study.below("hard", 64, "gram", step), bar) for words, step, bar in NATS]
    return found


def verdicts(study: Study) -> list[str]:
    """Say which of the bars hold."""
    return [
        f"{words}: {value:.3g}, asked at most {bar:g}: {'holds' if value <= bar else 'MISSED'}"
        for words, value, bar in measures(study)
    ]


def maxima(rows: list[Row]) -> str:
    """Say how close "auto" came to the maximum, in every run of the CSV."""
    auto = [r for r in rows if r["refine"] == "auto"]
    done = [r for r in auto if r["converged"] == "True"]
    furthest = max(float(r["to_mle"]) for r in done)
    same = sum(r["same_optimum"] == "True" for r in done)
    return (
        f'In all {len(auto)} runs of "auto" in the CSV: {len(done)} ended by themselves, at most '
        f"{furthest:.1g} standard errors from a maximum of all rows' likelihood. In {same} it is "
        "that of the centralised fit, in the others a different one."
    )


def sizes() -> str:
    """Return what a site sends by each method, of a model as large as those of the study."""
    data = simulate(5_000, EXPERTS, FEATURES, random_state=0)
    rows, model = Rows(data.X, data.y), data.truth
    fit = em(data.X, data.y, EXPERTS, init=model)
    plain = LocalModel.from_fit(fit, "site")
    sketched = plain.with_support(data.X, sketch=True)
    state = begin(model, {"site": len(rows)}, Scaling.of(data.X))
    asked = request_of(state)
    reply = reply_to(asked, rows, "site")
    pass_of_em = len(pickle.dumps(e_step(model, rows)))
    lines = ["| what | when | bytes a site |", "| --- | --- | ---: |"]
    for what, when, size in (
        ("parameters (`reduction` and the averages)", "once", length_of(plain)),
        ("with Grams (`gram`)", "once", length_of(replace(plain, grams=Grams.of(model, rows)))),
        ("with a sketch of x, for support points", "once", length_of(sketched)),
        ("request of a refine round", "every round, to the site", length_of(asked)),
        ("reply", "every round", length_of(reply)),
        ('statistics of `method="em"`, between processes', "every iteration", pass_of_em),
    ):
        lines.append(f"| {what} | {when} | {size:,} |")
    shape = f"{EXPERTS} experts, {FEATURES} features, {model.n_parameters} parameters"
    return (
        "\n".join([*lines, "", f"A Gaussian model of {shape}; JSON but for the last line."]) + "\n"
    )


def length_of(sent: LocalModel | RefineRequest | RefineReply) -> int:
    return len(sent.to_json().encode())


def measured(rows: list[Row]) -> str:
    devices = dict.fromkeys(f"{r['device']} ({r['machine']})" for r in rows)
    return (
        f"Medians over truths, {ROWS:,} rows, 4 experts, 20 features, default local fits "
        f"with screening. Rows were fitted on: {'; '.join(devices)}."
    )


if __name__ == "__main__":
    main()
