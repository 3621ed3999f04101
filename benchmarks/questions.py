"""What the built-in policy says to real sites: their messages, and whole refine jobs.

``python -m benchmarks messages questions``; the folder OTMOE_DATA has all but the simulated sites.
Every site fits behind the built-in policy and a ledger of its own. Those whose messages pass are
merged and refined to the maximum; a site that refuses a question is left out from then on. The same
job is done once more without a policy, with the sites that answered to the end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pandas as pd

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from otmoe import FeatureSpec, LocalModel, Policy, aggregate, simulate, support_from
from otmoe.datasets import load_beijing, load_flights, load_mmash
from otmoe.datasets.real import data_folder
from otmoe.documents.state import RefineState
from otmoe.federation import requests
from otmoe.federation.offers import Offer
from otmoe.federation.policy import border
from otmoe.federation.policy.border import Border
from otmoe.federation.policy.questions import judged_question
from otmoe.federation.policy.rules import Rule, Verdict
from otmoe.federation.policy.verdict import Refused
from otmoe.federation.requests import Request, message_for, reply_for
from otmoe.federation.rounds import begin, request_of, step
from otmoe.likelihood.rows import Scaling
from otmoe.text.errors import OtmoeError
from studies.rows import Row

Sites = tuple[dict[str, pd.DataFrame], dict[str, object]]


@cache
def simulated(softness: float) -> Sites:
    data = simulate(12_000, 3, 4, softness=softness, random_state=0)
    names = [f"x{j}" for j in range(4)]
    frame = pd.DataFrame(data.X, columns=names).assign(y=data.y)
    cuts = (0, 200, 600, 2000, 12_000)
    sites = {f"{b - a:,} rows": frame[a:b] for a, b in zip(cuts, cuts[1:], strict=False)}
    return sites, {"target": "y", "features": FeatureSpec.of_names(names).body()}


@cache
def stations() -> Sites:
    data = load_beijing()
    names = list(data.feature_names)
    frame = pd.DataFrame(data.X, columns=names).assign(y=data.y, site=data.site)[data.train]
    spec = FeatureSpec.from_sample(frame, names, center=True)
    sites = {str(s): rows.drop(columns="site") for s, rows in frame.groupby("site")}
    return sites, {"target": "y", "features": spec.body()}


@cache
def airlines() -> Sites:
    frame = load_flights().to_pandas()
    frame = frame[frame.day % 5 != 0].astype({"late15": float})
    names = [c for c in frame.columns if c not in ("late15", "carrier", "day")]
    spec = FeatureSpec.from_sample(frame, names, center=True)
    sites = {str(c): rows for c, rows in frame.groupby("carrier")}
    how = {"target": "late15", "features": spec.body()}
    return sites, how | {"family": "classes", "classes": ["0", "1"]}


@cache
def people() -> Sites:
    data = load_mmash()
    names = list(data.feature_names)
    frame = pd.DataFrame(data.X, columns=names).assign(y=data.y, site=data.site)
    spec = FeatureSpec.from_sample(frame, names, center=True)
    sites = {f"person {s}": rows.drop(columns="site") for s, rows in frame.groupby("site")}
    return sites, {"target": "y", "features": spec.body()}


@cache
def hospitals() -> Sites:
    frame = pd.read_parquet(data_folder() / "heart_disease" / "heart4sites.parquet")
    frame = frame.assign(asymptomatic=(frame.cp == 4).astype(float))
    names = ["age", "sex", "asymptomatic", "thalach", "exang", "oldpeak"]
    frame = frame.dropna(subset=names).astype({"disease": float, "site": str})
    spec = FeatureSpec.of_names(names)
    sites = {s: rows[[*names, "disease"]] for s, rows in frame.groupby("site")}
    how = {"target": "disease", "features": spec.body()}
    return sites, how | {"family": "classes", "classes": ["0", "1"]}


STUDIES = {
    "simulated, hard gate": lambda: simulated(0.0),
    "simulated, soft gate": lambda: simulated(1.0),
    "airlines": airlines,
    "stations": stations,
    "people": people,
    "hospitals": hospitals,
}
EXPERTS = (
    ("simulated, hard gate", 3),
    ("simulated, soft gate", 3),
    ("hospitals", 1),
    ("stations", 2),
    ("people", 2),
    ("airlines", 1),
    ("airlines", 2),
)


def studies(settings: Settings) -> Iterator[tuple[str, int]]:
    yield from EXPERTS[:2]
    try:
        data_folder()
    except OtmoeError:
        return
    if not settings.quick:
        yield from EXPERTS[2:]


@cache
def folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def asked(study: str, experts: int) -> Request:
    how = STUDIES[study]()[1]
    return Request.model_validate({**how, "experts": experts, "n_init": 3, "sketch": True})


@cache
def offer(study: str, experts: int, site: str) -> Offer:
    place = Path(folder().name, f"{study} {experts}", site)
    place.mkdir(parents=True)
    STUDIES[study]()[0][site].to_parquet(place / "rows.parquet")
    return Offer(site=site, data=str(place), refine=True, sketch=True, sandwich=True)


# -- messages --------------------------------------------------------------------------------------


@cache
def sent(study: str, experts: int, site: str) -> tuple[LocalModel, Verdict]:
    """Return a site's message, even if it may not leave, and the verdict."""
    found: list[Verdict] = []
    with (
        patch.object(requests, "check", found.append),
        patch.object(Border, "check_size", lambda *_: None),
    ):
        message = message_for(asked(study, experts), offer(study, experts, site))
    return message, found[0]


def message_cases(settings: Settings) -> Iterator[Row]:
    for study, experts in studies(settings):
        for site in STUDIES[study]()[0]:
            yield {"study": study, "experts": experts, "site": site}


def measure_message(case: Row, settings: Settings) -> Row:
    study, experts, site = str(case["study"]), int(case["experts"]), str(case["site"])
    message, verdict = sent(study, experts, site)
    figures = {m.rule: m for m in verdict.measures}

    def figure(rule: Rule) -> float | str:
        return figures[rule].figure if rule in figures else ""

    return {
        "rows": message.n_samples,
        "parameters": message.model.n_parameters,
        "expert_rows": figure(Rule.EXPERT_ROWS),
        "cell": figure(Rule.CELLS),
        "cell_of": figures[Rule.CELLS].where if Rule.CELLS in figures else "",
        "leverage": figure(Rule.LEVERAGE),
        "certainty": figure(Rule.CERTAINTY),
        "component_rows": figure(Rule.SKETCH),
        "verdict": verdict.word,
        "rules": " ".join(str(m.rule) for m in verdict.refused),
    }


# -- refine jobs -----------------------------------------------------------------------------------


def question_cases(settings: Settings) -> Iterator[Row]:
    for study, experts in studies(settings):
        for scatter in ("no", "yes"):
            yield {"study": study, "experts": experts, "scatter": scatter}


def refined(
    request: Request, offers: Mapping[str, Offer], messages: Sequence[LocalModel], scatter: bool
) -> tuple[RefineState, dict[str, str], Counter[str]]:
    """Lead the merged model on, without sites that have refused.

    Returns
    -------
    RefineState
    dict of str
        Sites that have refused, and the rules.
    Counter
        Questions "answered" and "refused", and "scatters" sent.
    """
    merged = aggregate(messages, random_state=0)
    sites = {m.site: m.n_samples for m in messages}
    scaling = Scaling.of(support_from(messages, 2000).rows)
    state = begin(merged.model, sites, scaling, features=request.spec, sandwich=scatter)
    refusals: dict[str, str] = {}
    count: Counter[str] = Counter()
    while not state.done:
        replies = []
        for site in [site for site in sites if site not in refusals]:
            try:
                replies.append(reply_for(request, request_of(state), offers[site]))
                count["answered"] += 1
                count["scatters"] += replies[-1].content.scatter is not None
            except Refused as error:
                refusals[site] = " ".join(error.facts["rules"])
                count["refused"] += 1
        if not replies:
            break
        state = step(state, replies, allow_missing=True)
    return state, refusals, count


def measure_questions(case: Row, settings: Settings) -> Row:
    study, experts, scatter = str(case["study"]), int(case["experts"]), case["scatter"] == "yes"
    request, names = asked(study, experts), list(STUDIES[study]()[0])
    made = {site: sent(study, experts, site) for site in names}
    messages = [message for message, verdict in made.values() if not verdict.refused]
    offers = {}
    for m in messages:  # a ledger of its own for each job
        ledger = Path(folder().name, f"{study} {experts}", m.site, f"ledger {case['scatter']}.json")
        own = offer(study, experts, m.site)
        ledger.write_bytes(Path(own.data, ".otmoe-ledger.json").read_bytes())
        offers[m.site] = own.model_copy(update={"ledger": str(ledger)})
    seen: list[tuple[list[object], float]] = []

    def watched(*args):  # type: ignore[no-untyped-def]
        seen.append(judged_question(*args))
        return seen[-1]

    with patch.object(border, "judged_question", watched):
        state, refusals, count = refined(request, offers, messages, scatter)
    off = Path(folder().name, "off.json")
    off.write_text(Policy.off().model_dump_json())
    free = {s: o.model_copy(update={"policy": str(off)}) for s, o in offers.items()}
    left = [m for m in messages if m.site not in refusals]
    moved: float | str = ""
    if left and state.refinement.converged:
        exact, _, _ = refined(request, free, left, scatter)
        pairs = zip(state.inference().table(), exact.inference().table(), strict=True)
        moved = float(np.nanmax([abs(a.estimate - b.estimate) / b.se for a, b in pairs]))
    largest: dict[str, float] = {}
    for measures, digits in seen:
        for m in measures:
            largest[m.where] = max(largest.get(m.where, 0.0), m.figure)
        largest["digits"] = max(largest.get("digits", 0.0), digits)
    return {
        "sites": len(names),
        "passed": len(messages),
        "rounds": state.refinement.rounds,
        "answered": count["answered"],
        "refused": count["refused"],
        "scatters": count["scatters"],
        "converged": state.refinement.converged,
        "moved_se": moved,
        "digits": largest["digits"],
        "told": largest["the share of one row's y that replies tell"],
        "loss": largest["the loss of log-likelihood per row"],
        "steepness": largest["the steepness of the gate"],
        "refusals": json.dumps(refusals) if refusals else "",
    }


@dataclass(frozen=True)
class Verdicts(Benchmark):
    """A table in which sites whose messages pass are one line for each study."""

    def table(self, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
        heads, cells = [column.head for column in self.columns], []
        for study in dict.fromkeys((row["study"], row["experts"]) for row in rows):
            mine = [row for row in rows if (row["study"], row["experts"]) == study]
            passing = [row for row in mine if row["verdict"] == "send"]
            if passing:
                cells.append([self._range(column, passing) for column in self.columns])
            others = (row for row in mine if row["verdict"] != "send")
            cells += [[column.text(row) for column in self.columns] for row in others]
        return heads, cells

    @staticmethod
    def _range(column: Column, rows: list[Row]) -> str:
        if column.key == "site":
            return f"{len(rows)} that pass"
        ends = [column.text(row) for row in rows]
        if column.form != "{}":
            values = [row for row in rows if row[column.key] not in ("", None)]
            values.sort(key=lambda row: float(row[column.key]))
            ends = [column.text(row) for row in (values or rows)[:: max(len(values) - 1, 1)]]
        return " to ".join(dict.fromkeys([ends[0], ends[-1]]))


MESSAGES = Verdicts(
    name="messages",
    title="What the built-in policy says to real sites",
    cases=message_cases,
    measure=measure_message,
    columns=(
        Column("study", "sites", "{}"),
        Column("experts", "experts", "{:.0f}"),
        Column("site", "site", "{}"),
        Column("rows", "rows", "{:,.0f}"),
        Column("parameters", "parameters", "{:.0f}"),
        Column("expert_rows", "rows of the smallest expert", "{:,.0f}"),
        Column("cell", "rows of the smallest cell", "{:,.1f}"),
        Column("leverage", "leverage", "{:.3f}"),
        Column("certainty", "certainty", "{:.2f}"),
        Column("verdict", "verdict", "{}"),
        Column("rules", "rules", "{}"),
    ),
)

QUESTIONS = Benchmark(
    name="questions",
    title="Whole refine jobs under the built-in policy",
    cases=question_cases,
    measure=measure_questions,
    columns=(
        Column("study", "sites", "{}"),
        Column("experts", "experts", "{:.0f}"),
        Column("scatter", "scatter", "{}"),
        Column("sites", "asked for a message", "{:.0f}"),
        Column("passed", "messages that pass", "{:.0f}"),
        Column("rounds", "rounds", "{:.0f}"),
        Column("answered", "questions answered", "{:.0f}"),
        Column("refused", "refused", "{:.0f}"),
        Column("scatters", "scatters sent", "{:.0f}"),
        Column("digits", "coarsest digits", "{:g}"),
        Column("told", "told of one y", "{:.2f}"),
        Column("moved_se", "coefficients moved, s.e.", "{:.1e}"),
        Column("refusals", "who refused", "{}"),
    ),
    requirements=(Requirement("moved_se", "coefficients moved, s.e.", at_most=0.01),),
)
