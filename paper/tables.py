"""Tables of the study: medians, duels, learning times, slopes."""

from __future__ import annotations

from statistics import median

from paper.findings import ESTIMATORS, METRICS, Findings, Place, slope
from studies.tables import Cells

LONG = {
    "G": "centralised (G)",
    "R": "reduction (R)",
    "Mid": "middle (Mid)",
    "W": "weighted average (W)",
    "aligned": "aligned average",
    "gram": "gram",
    "gram + 2": "gram + 2 refine rounds",
    "gram + auto": "gram + refine until done",
    "kl": "merged densities (kl)",
    "auto": "chosen by the server (auto)",
}
PAPER_RATIO = "three to ten, for 4 to 64 sites"


def medians(findings: Findings, kind: str, rows: int) -> Cells:
    """Return medians over truths of the six metrics, by sites and estimator."""
    heads = ["sites", "estimator", "truths", *(words for words, _ in METRICS.values())]
    heads += ["learning time, s", "worst nats"]
    body = []
    for M in findings.sites(rows, kind):
        for name in ESTIMATORS:
            place = Place(kind, rows, M)
            values = {metric: findings.values(place, name, metric) for metric in METRICS}
            if not values["rpe"] or (name == "G" and body):
                continue
            seconds = findings.seconds(place, name).values()
            body.append(
                [
                    "1" if name == "G" else str(M),
                    LONG[name],
                    str(len(values["rpe"])),
                    *(f"{median(found.values()):.3g}" for found in values.values()),
                    f"{median(seconds):.3g}" if seconds else "–",
                    f"{max(values['below_truth'].values()):.2g}",
                ]
            )
    return f"{kind} gates, {rows:,} rows" if kind != "overlap" else overlap(rows), heads, body


def overlap(rows: int) -> str:
    return f"overlapping experts, {rows:,} rows"


def duel(findings: Findings, rival: str) -> Cells:
    """Return for how many truths R is better than a rival, by rows and sites."""
    heads = ["data", "rows", "sites", "truths", *(words for words, _ in METRICS.values())]
    body = []
    for kind in ("hard", "soft", "overlap"):
        for place in findings.places(kind):
            counts = {m: findings.wins(place, "R", rival, m) for m in METRICS}
            number = counts["rpe"][1]
            if number:
                won = [str(count) for count, _ in counts.values()]
                body.append([kind, f"{place.rows:,}", str(place.sites), str(number), *won])
    return f"R is better than the {LONG[rival]}: number of truths", heads, body


def learning_times(findings: Findings) -> list[Cells]:
    """Return G's learning time over that of R and ours, each with its accuracy."""
    tables = []
    for n in findings.sizes():
        heads = ["sites", "estimator", "truths", "learning time, s", "G / this one", "RPE"]
        heads += ["RPE of G", "nats below truth", "nats of G"]
        body = []
        for M in findings.sites(n):
            place = Place("hard", n, M)
            for name in ("R", "gram", "gram + auto"):
                seconds = findings.seconds(place, name)
                if not seconds or not findings.seconds(place, "G"):
                    continue
                pairs = [
                    findings.median(place, who, metric)
                    for metric in ("rpe", "below_truth")
                    for who in (name, "G")
                ]
                body.append(
                    [
                        str(M),
                        LONG[name],
                        str(len(seconds)),
                        f"{median(seconds.values()):.3g}",
                        f"{findings.ratio(place, 'G', name, 'learning_seconds'):.2g}",
                        *(f"{value:.3g}" for value in pairs),
                    ]
                )
        if body:
            G = median(findings.seconds(place, "G").values())
            title = f"{n:,} rows; G takes {G:.3g} s. The paper: {PAPER_RATIO}"
            tables.append((title, heads, body))
    return tables


def refined(findings: Findings) -> Cells:
    """Return whether refine rounds from gram pooling reach G's maximum, and what two do."""
    heads = ["data", "rows", "sites", "truths", "end at G's maximum", "rounds, median", "at most"]
    heads += ["two rounds: less likely than none", "worst nats after two"]
    body = []
    for kind in ("hard", "soft", "overlap"):
        for place in findings.places(kind):
            done = findings.rows(place, "gram + auto")
            none, two = (findings.values(place, n, "below_truth") for n in ("gram", "gram + 2"))
            if not done or not two:
                continue
            rounds = [int(row["rounds"]) for row in done.values()]
            body.append(
                [
                    *(kind, f"{place.rows:,}", str(place.sites), str(len(done))),
                    str(sum(row["same_optimum"] == "True" for row in done.values())),
                    *(f"{median(rounds):g}", str(max(rounds))),
                    str(sum(two[t] > none[t] for t in two.keys() & none.keys())),
                    f"{max(two.values()):.2g}",
                ]
            )
    return "", heads, body


def slopes(findings: Findings, sites: int = 16) -> Cells:
    """Return the exponents with which errors fall as rows are added, at a number of sites."""
    heads = ["data", "error", "rows from", "to", "G", "R", "gram", "gram + auto"]
    body = []
    for kind in ("hard", "soft"):
        for metric, words in (("mse_gate", "gate"), ("mse_coef", "coefficients of experts")):
            found = [findings.errors(kind, sites, name, metric) for name in heads[4:]]
            if all(len(errors) > 1 for errors in found):
                ends = min(found[0]), max(found[0])
                body.append(
                    [kind, words, *(f"{n:,}" for n in ends), *(f"{slope(e):.2f}" for e in found)]
                )
    return f"exponent of N in the MSE, {sites} sites", heads, body
