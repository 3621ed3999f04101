"""How much personal models could gain from seconds in a row, at best: chosen on the test rows.

People of `benchmarks.personal`, with their first seconds or some in a row. Personal models with any
spread between people predict the test rows, and the best spread in hindsight is compared with the
common model; models of their own are worse than that by far (`personal.csv`). A rule that chooses a
spread could gain so much if it knew the rest of the day, but not more.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import Benchmark, Column, Settings
from benchmarks.personal import FACTORS, SUBSETS, InOrder, Site, common_model, people
from otmoe.arrays.numerics import Floats
from otmoe.datasets.real import data_folder
from otmoe.distributed.rounds import Question, information_local
from otmoe.inference.between import between_sites
from otmoe.likelihood.answers import pooled_scaling
from otmoe.likelihood.prior import BLOCKS, RESTRICTIONS, Prior, fit_with_prior
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.mixture import MoE
from otmoe.model.target import Target
from otmoe.text.errors import OtmoeError
from studies.rows import Row

EXPERTS = 4
ELSEWHERE = (0, 1, 2)
"""Subsets on which a spread is chosen that the others are judged with."""

TRIED = (0.0, *FACTORS)
"""Factors of the deviations; 0 is the common model."""

DEVIATIONS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5)
"""Of a block, where each has its own."""

CENTRES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Places of the centre on the way from the common model to the mean over people."""

USED = 0.25  # the factor that is used where slow changes do not end
_SWEEPS = 3  # over the blocks
_NEAR = 1e-4  # squared standard errors from a maximum, near enough for a prediction


def cases(settings: Settings) -> list[Row]:
    try:
        data_folder()
    except OtmoeError:
        return []
    if settings.quick:
        return []
    return [
        *(_case("first", n) for n in (100, 300, 1000)),
        *(_case("in a row", n, subset) for subset in SUBSETS for n in (100, 300, 1000)),
    ]


def _case(which: str, rows: int, subset: int | str = "") -> Row:
    return {"seconds": which, "rows": rows, "subset": subset}


# -- losses ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Deviations of the blocks, and the place of the centre from the common model to the mean."""

    tau: Mapping[str, float]
    place: float


@dataclass
class Split:
    """People with seconds to learn from and to be judged by, and their common model.

    Attributes
    ----------
    sites : list of Site
    common : MoE
    priors : dict of Prior
        As they are estimated, by what may differ.
    starts : list of MoE or None
        Where the last fits ended, and the next begin.
    """

    sites: list[Site]
    common: MoE
    priors: dict[str, Prior]
    starts: list[MoE | None]

    def losses(self, prior: Prior) -> Floats:
        """Return nats and squared errors of the test rows of every person, (M, 2)."""
        found = []
        for m, site in enumerate(self.sites):
            fit = fit_with_prior(Rows(site.X, site.y), prior, start=self.starts[m], tol=_NEAR)
            self.starts[m] = fit.model
            wrong = site.y_test - fit.model.predict(site.X_test)
            nats = -fit.model.log_density(site.X_test, site.y_test).mean()
            found.append((nats, np.mean(wrong**2)))
        return np.array(found)

    def tried(self, differ: str) -> list[Floats]:
        """Return the losses at every factor of the deviations, (M, 2) each."""
        return [self.losses(self.priors[differ].at_strength(f, self.common)) for f in TRIED]

    def at(self, spread: Spread) -> Floats:
        """Return the losses at a spread, (M, 2)."""
        there = self.priors["auto"].at_strength(spread.place, self.common)
        return self.losses(replace(there, tau=dict(spread.tau)))


@cache
def _split(which: str, n: int, subset: int) -> Split:
    sites = people(n, which, np.random.default_rng(subset))
    common = common_model(sites, EXPERTS)
    scaling, target = Scaling.of(np.concatenate([s.X for s in sites])), Target.of(common)
    replies = [
        information_local(
            Question(shard, common, scaling, target, moments=True, scatter=True),
        )
        for shard in (InOrder(site.name, site.X, site.y) for site in sites)
    ]
    pooled = pooled_scaling(replies)
    priors = {
        name: between_sites(common, scaling, pooled, replies, restrict=name).prior
        for name in RESTRICTIONS
    }
    return Split(sites, common, priors, [None] * len(sites))


Lead = Callable[[Floats, Floats], float]


def _rmse(losses: Floats, common: Floats) -> float:
    """Return the ratio of the errors to those of the common model, less 1."""
    return float(np.sqrt(losses[:, 1].mean() / common[:, 1].mean())) - 1


def _nats(losses: Floats, common: Floats) -> float:
    """Return the difference of the losses to that of the common model."""
    return float(losses[:, 0].mean() - common[:, 0].mean())


LEADS: dict[str, Lead] = {"rmse": _rmse, "nats": _nats}


# -- spreads ---------------------------------------------------------------------------------------


def searched(splits: Sequence[Split], lead: Lead, start: Spread) -> Spread:
    """Return the spread with the lowest mean loss, each deviation changed in its turn."""
    common = [split.at(Spread({}, 0.0)) for split in splits]

    def loss(spread: Spread) -> float:
        pairs = zip(splits, common, strict=True)
        return float(np.mean([lead(split.at(spread), base) for split, base in pairs]))

    best, least = start, loss(start)
    for _ in range(_SWEEPS):
        before = best
        for block in (*BLOCKS, None):
            here = best
            for value in CENTRES if block is None else DEVIATIONS:
                there = (
                    replace(here, place=value)
                    if block is None
                    else replace(here, tau={**here.tau, block: value})
                )
                found = loss(there)
                if found < least:
                    best, least = there, found
        if best is before:
            break
    return best


@cache
def _elsewhere(name: str) -> Spread:
    """Return the spread that is best on seconds in a row of other subsets."""
    splits = [_split("in a row", n, subset) for subset in ELSEWHERE for n in (300, 1000)]
    return searched(splits, LEADS[name], Spread({}, USED))


def measure(case: Row, settings: Settings) -> Row:
    """Return the leads of the best spreads over the common model, over all people."""
    subset = 0 if case["subset"] == "" else int(case["subset"])
    row: Row = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        split = _split(str(case["seconds"]), int(case["rows"]), subset)
        tried = {differ: split.tried(differ) for differ in RESTRICTIONS}
        common = tried["auto"][0]
        row |= {"common": float(np.sqrt(common[:, 1].mean())), "loss": float(common[:, 0].mean())}
        for column, (name, lead) in zip((1, 0), LEADS.items(), strict=True):
            leads = {d: [lead(losses, common) for losses in tried[d]] for d in tried}
            best = TRIED[int(np.argmin(leads["auto"]))]
            row |= {
                f"{name}: used": leads["auto"][TRIED.index(USED)],
                f"{name}: factor": best,
                **{f"{name}: {differ}": min(found) for differ, found in leads.items()},
            }
            tau = {block: best * value for block, value in split.priors["auto"].tau.items()}
            spread = searched([split], lead, Spread(tau, min(best, 1.0)))
            losses = split.at(spread)
            row |= {f"{name}: blocks": lead(losses, common)}
            row |= {f"{name}: blocks, {other}": f(losses, common) for other, f in LEADS.items()}
            row |= {f"{name}: {block}": spread.tau[block] for block in BLOCKS}
            row |= {f"{name}: centre": spread.place}
            row |= {f"{name}: elsewhere": lead(split.at(_elsewhere(name)), common)}
            every = np.array([losses for found in tried.values() for losses in found])
            person = np.arange(every.shape[1])
            each = every[every[:, :, column].argmin(axis=0), person]
            row |= {f"{name}: each": lead(each, common)}
            row |= {
                f"{name}: {differ} at {f:g}": value
                for differ, found in leads.items()
                for f, value in zip(TRIED[1:], found[1:], strict=True)
            }
    return row


BENCHMARK = Benchmark(
    "personal_hindsight",
    "Personal models from seconds in a row of people, with the spread between people that is best "
    "on the test rows: root mean squared errors relative to those of the common model, and mean "
    "losses (minus log density, in nats) above its loss",
    cases,
    measure,
    (
        Column("seconds", "seconds"),
        Column("rows", "rows of each", "{:.0f}"),
        Column("common", "RMSE: common", "{:.3f}"),
        Column("rmse: used", "as used", "{:+.1%}"),
        Column("rmse: factor", "best factor", "{:g}"),
        Column("rmse: auto", "with it", "{:+.1%}"),
        Column("rmse: gate", "best, gate only", "{:+.1%}"),
        Column("rmse: intercepts", "intercepts only", "{:+.1%}"),
        Column("rmse: blocks", "a deviation for each block", "{:+.1%}"),
        Column("rmse: blocks, nats", "its loss", "{:+.4f}"),
        Column("rmse: elsewhere", "chosen on other seconds", "{:+.1%}"),
        Column("rmse: each", "a factor for each person", "{:+.1%}"),
        Column("loss", "loss: common", "{:.4f}"),
        Column("nats: used", "as used", "{:+.4f}"),
        Column("nats: factor", "best factor", "{:g}"),
        Column("nats: auto", "with it", "{:+.4f}"),
        Column("nats: gate", "best, gate only", "{:+.4f}"),
        Column("nats: intercepts", "intercepts only", "{:+.4f}"),
        Column("nats: blocks", "a deviation for each block", "{:+.4f}"),
        Column("nats: elsewhere", "chosen on other seconds", "{:+.4f}"),
        Column("nats: each", "a factor for each person", "{:+.4f}"),
    ),
)
