"""The paper's claims beside what the CSVs say: our number, and whether the claim holds.

"Close to G" is read as follows: over the truths, the median of the ratio to G is at most 1.1 for
T_c, MSE and RPE; the medians of the log-likelihood and of the ARI are within 0.01.
"Better" is for more than half of the truths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from paper.findings import METRICS, Findings, Place, slope
from paper.mmash import PUBLISHED, RANDOM
from paper.study import FEATURES
from paper.tables import PAPER_RATIO
from paper.traces import OURS
from paper.traces import RANDOM as AT_RANDOM
from studies.tables import Cells

CLOSE, NEAR, SLIGHT = 1.1, 0.01, 0.1
STUDY, TIMING = "python -m paper.study paper", "python -m paper timing"

Claim = tuple[str, str, str, str]
"""What the paper says, what we measure, a verdict, the command."""


def table(findings: Findings) -> Cells:
    heads = ["the paper", "measured here", "holds?", "command"]
    return "", heads, [[a, b, c, f"`{d}`"] for a, b, c, d in claims(findings)]


def claims(findings: Findings) -> Iterator[Claim]:
    """Yield the claims that the CSVs have rows for."""
    sizes = findings.sizes()
    if sizes:
        yield from on_simulated_data(findings, sizes)
    yield from learning_time(findings)
    if findings.traces:
        yield descent(findings)
    yield from consistency(findings)
    yield from on_heart_rates(findings)


# -- simulated data ------------------------------------------------------------------------------


def on_simulated_data(findings: Findings, sizes: list[int]) -> Iterator[Claim]:
    n = sizes[0]
    sites = findings.sites(n)
    places, here = [Place("hard", n, M) for M in sites], f"N = {n:,}. "
    few, many = [p for p in places if p.sites <= 16], [p for p in places if p.sites > 16]
    if few:
        yield (
            "At N = 1,000,000 R is comparable to G with 4 or 16 machines.",
            here + "; ".join(f"{p.sites} sites: {beside_G(findings, p)}" for p in few),
            verdict(all_close(findings, few)),
            STUDY,
        )
    if many:
        yield (
            "With 64 or 128 machines its errors are slightly above those of G,",
            here + "; ".join(f"{p.sites} sites: {beside_G(findings, p)}" for p in many),
            verdict(all_close(findings, many)),
            STUDY,
        )
        for name, words in (("Mid", "the middle estimator"), ("W", "the weighted average")):
            yield (
                f"and below those of {words}.",
                here + "; ".join(f"{p.sites} sites: {won(findings, p, name)}" for p in many),
                f"{verdict(all_better(findings, many, name))}; by medians: "
                f"{verdict(together([by_median(findings, p, name) for p in many]))}",
                STUDY,
            )
    last = Place("hard", n, sites[-1])
    ratio = findings.ratio(last, "R", "G", "transport")
    blind = ""
    if hard := [row for row in findings.variants if row["kind"] == "hard"]:
        R, G = (
            median(float(row["relaxed"]) for row in hard if row["variant"] == variant)
            for variant in ("otmoe.aggregate", "centralised")
        )
        blind = (
            f"; in the relaxed distance, which sees no gate, R has {R:.3g} and G {G:.3g} "
            f"(16 sites, {int(hard[0]['rows']):,} rows: python -m paper.variants)"
        )
    yield (
        "In transportation distance R is as close to the truth as G even with 128 machines.",
        f"{here}{last.sites} sites: T_c {findings.median(last, 'R', 'transport'):.3g} against "
        f"{findings.median(last, 'G', 'transport'):.3g}, {ratio:.2g} times as far{blind}",
        "holds" if ratio <= CLOSE else "does not hold",
        STUDY,
    )
    yield across_rows(findings, sizes, sites[-1])
    others = [Place("hard", m, M) for m in sizes[1:] for M in findings.sites(m)]
    if others:
        smaller = f"N = {listed([f'{m:,}' for m in reversed(sizes[1:])])}, {len(others)} settings; "
        yield (
            "At N = 100,000 and 500,000 R is close to G in every metric and for every M.",
            f"{smaller}close in "
            + ", ".join(
                f"{METRICS[m][0]}: {sum(close(findings, p)[m] for p in others)}" for m in METRICS
            ),
            verdict(all_close(findings, others)),
            STUDY,
        )
        for name, words in (("Mid", "middle"), ("W", "weighted average")):
            yield (
                f"There R generally outperforms the {words}, above all in T_c, log-likelihood, "
                "RPE and ARI.",
                f"{smaller}better for most truths in "
                + ", ".join(
                    f"{METRICS[m][0]}: {sum(better(findings, p, name)[m] for p in others)}"
                    for m in METRICS
                ),
                verdict(mostly_better(findings, others, name)),
                STUDY,
            )
    yield degrading(findings, sizes)
    yield sent(findings, last)


def across_rows(findings: Findings, sizes: list[int], sites: int) -> Claim:
    falls, texts = {}, []
    for metric in METRICS:
        errors = findings.errors("hard", sites, "R", metric)
        errors = {n: value for n, value in errors.items() if n in sizes}
        values = list(errors.values())
        sign = METRICS[metric][1]
        falls[metric] = all(sign * b > sign * a for a, b in zip(values, values[1:], strict=False))
        texts.append(f"{METRICS[metric][0]} " + ", ".join(f"{v:.3g}" for v in values))
    return (
        "With 128 machines the metrics behave as expected across N: errors of R fall.",
        f"R with {sites} sites at N = {listed([f'{n:,}' for n in sorted(sizes)])}: "
        + "; ".join(texts),
        verdict(falls),
        STUDY,
    )


def degrading(findings: Findings, sizes: list[int]) -> Claim:
    n = sizes[-1]
    sites = findings.sites(n)
    worse, slight, texts = {}, {}, []
    for name in ("R", "Mid", "W"):
        values = [findings.median(Place("hard", n, M), name, "below_truth") for M in sites]
        worse[name], slight[name] = values == sorted(values), values[-1] <= SLIGHT
        texts.append(f"{name} " + ", ".join(f"{value:.2g}" for value in values))
    return (
        "As machines are added, all distributed estimators get slightly worse.",
        f"nats below truth at N = {n:,}, {listed(sites)} sites: {'; '.join(texts)}",
        f"worse: {listed([n for n in worse if worse[n]] or ['none'])}; less than {SLIGHT} nats "
        f"below the truth to the end: {listed([n for n in slight if slight[n]] or ['none'])}",
        STUDY,
    )


def sent(findings: Findings, place: Place) -> Claim:
    R, gram = (findings.median(place, name, "site_bytes") for name in ("R", "gram"))
    rows = place.rows // place.sites * (FEATURES + 1) * 8
    return (
        "Communication is frugal: one message from each machine, of the order of its parameters, "
        "and a support sample.",
        f"{R:,.0f} bytes a site (gram: {gram:,.0f}), where its rows have {rows:,} "
        f"({place.sites} sites, N = {place.rows:,})",
        "holds" if R < rows / 10 else "does not hold",
        STUDY,
    )


def beside_G(findings: Findings, place: Place) -> str:
    """Return R beside G in the five metrics."""
    texts = [
        f"{words} {findings.median(place, 'R', m):.3g} (G {findings.median(place, 'G', m):.3g})"
        for m, (words, _) in METRICS.items()
    ]
    return ", ".join(texts)


def close(findings: Findings, place: Place) -> dict[str, bool]:
    """Say in which metrics R is close to G."""
    found = {}
    for metric in METRICS:
        if metric in ("below_truth", "ari"):
            a, b = (findings.median(place, name, metric) for name in ("R", "G"))
            found[metric] = abs(a - b) <= NEAR
        else:
            found[metric] = findings.ratio(place, "R", "G", metric) <= CLOSE
    return found


def better(findings: Findings, place: Place, rival: str) -> dict[str, bool]:
    """Say in which metrics R beats a rival for more than half of the truths."""
    found = {}
    for metric in METRICS:
        count, truths = findings.wins(place, "R", rival, metric)
        found[metric] = 2 * count > truths
    return found


def by_median(findings: Findings, place: Place, rival: str) -> dict[str, bool]:
    """Say in which metrics the median of R is better than that of a rival."""
    return {
        metric: sign * findings.median(place, "R", metric)
        > sign * findings.median(place, rival, metric)
        for metric, (_, sign) in METRICS.items()
    }


def all_close(findings: Findings, places: list[Place]) -> dict[str, bool]:
    return together([close(findings, place) for place in places])


def all_better(findings: Findings, places: list[Place], rival: str) -> dict[str, bool]:
    return together([better(findings, place, rival) for place in places])


def mostly_better(findings: Findings, places: list[Place], rival: str) -> dict[str, bool]:
    found = [better(findings, place, rival) for place in places]
    return {metric: 2 * sum(each[metric] for each in found) > len(found) for metric in METRICS}


def together(found: list[dict[str, bool]]) -> dict[str, bool]:
    return {metric: all(each[metric] for each in found) for metric in METRICS}


def won(findings: Findings, place: Place, rival: str) -> str:
    """Return for how many truths R is better, metric by metric."""
    counts = {m: findings.wins(place, "R", rival, m) for m in METRICS}
    truths = counts["rpe"][1]
    texts = (f"{METRICS[m][0]} {count}" for m, (count, _) in counts.items())
    return f"of {truths} truths, R is better in {', '.join(texts)}"


def verdict(holds: dict[str, bool]) -> str:
    """Return in words for which metrics a claim holds."""
    names = {m: METRICS[m][0] for m in holds}
    yes, no = ([names[m] for m in holds if holds[m] is want] for want in (True, False))
    if not no:
        return "holds"
    return f"holds in {listed(yes)}; not in {listed(no)}" if yes else "does not hold"


def listed(items: Iterable[object]) -> str:
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


# -- the rest ------------------------------------------------------------------------------------


def learning_time(findings: Findings) -> Iterator[Claim]:
    """Compare learning times, if there are some that may be quoted."""
    if not findings.timing:
        return
    for n in findings.sizes():
        places = [
            place
            for place in findings.places()
            if place.rows == n and findings.seconds(place, "R") and findings.seconds(place, "G")
        ]
        ratios = {p.sites: findings.ratio(p, "G", "R", "learning_seconds") for p in places}
        if not ratios:
            continue
        inside = [3 <= ratio <= 10 for M, ratio in ratios.items() if M <= 64]
        texts = [
            f"{place.sites} sites: {ratios[place.sites]:.2g} times, RPE "
            f"{findings.median(place, 'R', 'rpe'):.3g} against "
            f"{findings.median(place, 'G', 'rpe'):.3g}"
            for place in places
        ]
        yield (
            f"R learns faster than G ({PAPER_RATIO}, at N = 1,000,000). Here N = {n:,}.",
            "; ".join(texts),
            "holds" if all(inside) else faster_or_not(ratios),
            TIMING,
        )
        if len(ratios) > 1:
            best = max(ratios, key=ratios.__getitem__)
            grows = list(ratios.values()) == sorted(ratios.values())
            yield (
                "The more machines, the larger the gain in time.",
                f"N = {n:,}: the gain is largest with {best} sites, {ratios[best]:.2g} times",
                "holds" if grows else f"holds up to {best} sites",
                TIMING,
            )


def faster_or_not(ratios: dict[int, float]) -> str:
    """Return a verdict where not all ratios are those of the paper."""
    faster = [M for M, ratio in ratios.items() if ratio > 1]
    if not faster:
        return "does not hold"
    return f"faster with {listed(faster)} sites, in other proportions"


def descent(findings: Findings) -> Claim:
    runs: dict[tuple[str, ...], list[float]] = {}
    for row in findings.traces:
        key = (row["start"], row["rows"], row["truth"])
        runs.setdefault(key, []).append(float(row["objective"]))
    steps, rises = 0, 0
    lengths: dict[str, list[int]] = {OURS: [], AT_RANDOM: []}
    for (start, *_), trace in runs.items():
        steps += len(trace) - 1
        rises += sum(b - a > 1e-9 * trace[0] for a, b in zip(trace, trace[1:], strict=False))
        lengths[start].append(len(trace) - 1)
    stuck = sum(
        trace[-1] > 1.01 * runs[(OURS, *rest)][-1]
        for (start, *rest), trace in runs.items()
        if start == AT_RANDOM
    )
    return (
        "The MM objective decreases monotonically and is stable after 30 to 35 iterations.",
        f"it rose in {rises} of {steps} steps; median of {median(lengths[AT_RANDOM]):.0f} "
        f"iterations (at most {max(lengths[AT_RANDOM])}) from random local experts and of "
        f"{median(lengths[OURS]):.0f} from where `aggregate` begins; {stuck} of "
        f"{len(lengths[AT_RANDOM])} random starts end more than 1 % higher",
        f"decreases: {'holds' if rises == 0 else 'does not hold'}; the number of iterations hangs "
        "on the start",
        "python -m paper.traces",
    )


def consistency(findings: Findings) -> Iterator[Claim]:
    for kind in ("hard", "soft"):
        texts, falls = [], []
        for metric, words in (("mse_gate", "gate"), ("mse_coef", "experts")):
            errors = {n: findings.errors(kind, 16, n, metric) for n in ("R", "G")}
            if len(errors["R"]) < 2:
                break
            values = list(errors["R"].values())
            falls.append(all(b < a for a, b in zip(values, values[1:], strict=False)))
            texts.append(
                f"MSE of the {words} as N to the power {slope(errors['R']):.2f} "
                f"(G {slope(errors['G']):.2f})"
            )
        else:
            yield (
                f"R is consistent where the local estimators are ({kind} gates, 16 sites).",
                "; ".join(texts),
                "holds" if all(falls) else "not seen",
                "python -m paper.study paper consistency",
            )


def on_heart_rates(findings: Findings) -> Iterator[Claim]:
    rows = {
        (row["sites"], row["method"]): row
        for row in findings.mmash
        if row["split"] == RANDOM and row["refine"] == "0"
    }
    pairs = [key for key in PUBLISHED if key in rows]
    if ("1", "centralised") not in pairs or len(pairs) < 2:
        return
    theirs_G, G = PUBLISHED["1", "centralised"], rows["1", "centralised"]
    texts, losses, times, gains = [], [], [], []
    for M, method in pairs:
        if method != "reduction":
            continue
        theirs, ours = PUBLISHED[M, method], rows[M, method]
        losses.append(float(ours["rmse"]) / float(G["rmse"]) - 1)
        texts.append(
            f"{M} sites: RMSE {100 * losses[-1]:.1f} % above G "
            f"(the paper's {100 * (theirs[1] / theirs_G[1] - 1):.0f} %)"
        )
        gains.append(float(G["learning_seconds"]) / float(ours["learning_seconds"]))
        times.append(
            f"{M} sites: {gains[-1]:.2g} times as fast (the paper's {theirs_G[3] / theirs[3]:.2g})"
        )
    yield (
        "On MMASH R predicts about as well as G,",
        "; ".join(texts),
        "holds" if max(losses) <= CLOSE - 1 else "does not hold",
        "python -m paper.mmash",
    )
    yield (
        "and takes much less time.",
        "; ".join(times) + ", on a machine that was not quiet",
        "holds"
        if min(gains) >= 3
        else "less, not much less"
        if min(gains) > 1
        else "does not hold",
        "python -m paper.mmash",
    )
