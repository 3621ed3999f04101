"""Are honest refine rounds refused? ``python -m benchmarks.questions [STUDY...]``.

Sites with simulated rows, Beijing's stations and New York's airlines (the folder OTMOE_DATA has
both) fit, are merged and refined, every one behind the built-in policy and a ledger of its own; a
site that refuses is left out. The table has, for each study, the largest figures that the rule
`question` looks at, how coarse a reply had to be, how far the refined coefficients are from those
of replies that are not rounded, in standard errors, and who refused.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pandas as pd

from otmoe import FeatureSpec, aggregate, simulate, support_from
from otmoe.datasets import load_beijing, load_flights
from otmoe.documents.message import LocalModel
from otmoe.documents.state import RefineState
from otmoe.federation.offers import Offer
from otmoe.federation.policy import border
from otmoe.federation.policy.questions import judged_question
from otmoe.federation.policy.rules import Policy
from otmoe.federation.policy.verdict import Refused
from otmoe.federation.requests import Request, message_for, reply_for
from otmoe.federation.rounds import begin, request_of, step
from otmoe.likelihood.rows import Scaling


def simulated(softness: float) -> tuple[dict[str, pd.DataFrame], dict[str, object]]:
    data = simulate(12_000, 3, 4, softness=softness, random_state=0)
    names = [f"x{j}" for j in range(4)]
    frame = pd.DataFrame(data.X, columns=names).assign(y=data.y)
    cuts = (0, 200, 600, 2000, 12_000)
    sites = {f"{b - a} rows": frame[a:b] for a, b in zip(cuts, cuts[1:], strict=False)}
    return sites, {"target": "y", "experts": 3, "features": FeatureSpec.of_names(names).body()}


def beijing() -> tuple[dict[str, pd.DataFrame], dict[str, object]]:
    data = load_beijing()
    names = list(data.feature_names)
    frame = pd.DataFrame(data.X, columns=names).assign(y=data.y, site=data.site)[data.train]
    spec = FeatureSpec.from_sample(frame, names, center=True)
    sites = {str(s): rows.drop(columns="site") for s, rows in frame.groupby("site")}
    return sites, {"target": "y", "experts": 3, "features": spec.body()}


def flights() -> tuple[dict[str, pd.DataFrame], dict[str, object]]:
    frame = load_flights().to_pandas()
    frame = frame[frame.day % 5 != 0].astype({"late15": float})
    names = [c for c in frame.columns if c not in ("late15", "carrier", "day")]
    spec = FeatureSpec.from_sample(frame, names, center=True)
    sites = {str(c): rows for c, rows in frame.groupby("carrier")}
    how = {"target": "late15", "experts": 2, "features": spec.body()}
    return sites, how | {"family": "classes", "classes": ["0", "1"]}


STUDIES = {
    "simulated, hard gate": lambda: simulated(0.0),
    "simulated, soft gate": lambda: simulated(1.0),
    "Beijing": beijing,
    "flights": flights,
}


def refined(
    request: Request, offers: Mapping[str, Offer], messages: Sequence[LocalModel]
) -> tuple[RefineState, Counter[str]]:
    """Lead the merged model on, without sites that refuse; return who did, and why."""
    merged = aggregate(messages, random_state=0)
    sites = {m.site: m.n_samples for m in messages}
    scaling = Scaling.of(support_from(messages, 2000).rows)
    state = begin(merged.model, sites, scaling, features=request.spec)
    refusals: Counter[str] = Counter()
    while not state.done:
        replies = []
        for site in sites:
            try:
                replies.append(reply_for(request, request_of(state), offers[site]))
            except Refused as error:
                refusals[f"{site} ({', '.join(error.facts['rules'])})"] += 1
        state = step(state, replies, allow_missing=True)
    return state, refusals


def study(name: str, folder: Path) -> str:
    sites, how = STUDIES[name]()
    request = Request.model_validate({**how, "n_init": 3})
    offers, messages, seen = {}, [], []
    for site, rows in sites.items():
        (folder / site).mkdir()
        rows.to_parquet(folder / site / "rows.parquet")
        offers[site] = Offer(site=site, data=str(folder / site), refine=True, sketch=True)
    request = request.model_copy(update={"sketch": True})
    silent = []
    for site, offer in offers.items():
        try:
            messages.append(message_for(request, offer))
        except Refused as error:
            silent.append(f"{site} ({', '.join(error.facts['rules'])})")

    def watched(*args):  # type: ignore[no-untyped-def]
        seen.append(judged_question(*args))
        return seen[-1]

    with patch.object(border, "judged_question", watched):
        state, refusals = refined(request, offers, messages)
    (folder / "off.json").write_text(Policy.off().model_dump_json())
    left_out = {who.split(" (")[0] for who in refusals}
    free = {s: o.model_copy(update={"policy": str(folder / "off.json")}) for s, o in offers.items()}
    exact, _ = refined(request, free, [m for m in messages if m.site not in left_out])
    figures: dict[str, float] = {}
    for measures, digits in seen:
        for m in measures:
            figures[m.where] = max(figures.get(m.where, 0.0), m.figure)
        figures["digits"] = max(figures.get("digits", 0.0), digits)
    lines = [f"{name}: {len(sites)} sites, {state.refinement.rounds} rounds, {len(seen)} questions"]
    lines += [f"  {where}: {figure:.3g}" for where, figure in figures.items()]
    lines += [f"  no message: {who}" for who in silent]
    lines += [f"  no reply: {who}, {n} times" for who, n in refusals.items()]
    if not left_out:
        pairs = zip(state.inference().table(), exact.inference().table(), strict=True)
        moved = [abs(a.estimate - b.estimate) / b.se for a, b in pairs]
        lines.append(
            f"  refined coefficients moved by rounding: {np.nanmax(moved):.2g} s.e. at most"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or STUDIES:
        with TemporaryDirectory() as place:
            print(study(chosen, Path(place)), flush=True)
