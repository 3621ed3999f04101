"""Jobs on which the thresholds of screening and of refine replies are tried: lies of every size.

Seeds from 8100 on, which had no part in choosing a threshold. Lies come in ladders, from one that
could be honest to one that nobody would believe: where a threshold lies on its ladder is what
halving or doubling it changes. The same sites without lies say what it costs those who are honest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks.jobs import Found, Job, summed
from otmoe import LocalModel, simulate
from otmoe.aggregation.problem import prepare
from otmoe.aggregation.screening import screened
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.likelihood.answers import SiteInformation
from otmoe.likelihood.fit import em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows, Scaling
from studies.attacks import ATTACKS, Study, moved, shifted, stretched, study

FIRST_SEED = 8100
LIAR = "site 0"

# -- messages ----------------------------------------------------------------------------------


@cache
def ten(family: str, seed: int) -> Study:
    return study(seed, {"gaussian": 600, "logistic": 2000}[family], family=family)


def judged(sent: Sequence[LocalModel], liars: Sequence[str], weight: object = None) -> Found:
    """Return who is named, and what the liars weigh, where sites that stand out are excluded."""
    problem = prepare(sent, None, site_weight=weight)
    found = screened(problem, "exclude")
    named = {*found.left_out, *(site for notice in found.warnings for site in notice.sites)}
    rows = {
        message.site: found.counted.get(message.site, problem.rows[m])
        for m, message in enumerate(sent)
        if message.site not in found.left_out
    }
    lied = sum(n for site, n in rows.items() if site in liars)
    return {
        "lies named": float(named >= set(liars)),
        "honest sites excluded": float(len(found.left_out.keys() - set(liars))),
        "weight of liars": lied / sum(rows.values()),
    }


def attacked(quick: bool) -> Found:
    """Judge one and four liars of ten, of every attack in the table."""
    found = []
    for attack in list(ATTACKS.values())[: 2 if quick else None]:
        honest = ten(attack.family, FIRST_SEED)
        for liars in {1, 4} & set(attack.liars):
            sent = honest.attacked(attack, liars, FIRST_SEED)
            names = [message.site for message in sent[:liars]]
            found.append(judged(sent, names, attack.options.get("site_weight")))
    return summed(found)


def steeper(sent: LocalModel, times: float) -> LocalModel:
    """Return a message whose Grams of slopes are larger."""
    assert sent.grams is not None
    p = sent.model.n_features + 1
    unit = np.where(np.arange(sent.grams.matrices.shape[-1]) % p, np.sqrt(times), 1.0)
    matrices = sent.grams.matrices * np.eye(len(unit)) * unit[:, None] * unit
    return replace(sent, grams=replace(sent.grams, matrices=matrices))


def with_experts(sent: LocalModel, n_experts: float) -> LocalModel:
    model = sent.model.take(np.arange(int(n_experts)) % sent.model.n_experts)
    return replace(sent, model=model, grams=None)


def likelier(sent: LocalModel, nats: float) -> LocalModel:
    return replace(sent, log_likelihood=sent.log_likelihood + nats * sent.n_samples)


def light(sent: LocalModel, times: float) -> LocalModel:
    """Claim few rows, which excuse much."""
    lie, per_row = stretched(sent, times), sent.log_likelihood / sent.n_samples
    return replace(lie, n_samples=10.0, log_likelihood=10 * per_row, grams=None)


def heavy(sent: LocalModel, by: float) -> LocalModel:
    """Claim many rows, and predict a little otherwise."""
    lie, per_row = shifted(sent, by), sent.log_likelihood / sent.n_samples
    return replace(lie, n_samples=1e7, log_likelihood=1e7 * per_row, grams=None)


LADDERS: dict[str, tuple[Callable[[LocalModel, float], LocalModel], tuple[float, ...]]] = {
    "covariates": (moved, (5, 12, 18, 30, 60)),
    "Grams": (steeper, (50, 250, 350, 600, 1200)),
    "log-likelihood": (likelier, (-2.4, -1.2, -0.6, 0.3, 0.6, 0.9, 1.2, 2.4)),
    "experts": (with_experts, (4, 7, 12, 18, 30)),
    "few rows": (light, (1.5, 2, 3, 6, 12)),
    "many rows": (heavy, (0.02, 0.05, 0.1, 0.2, 0.4)),
}


@cache
def with_grams(seed: int) -> tuple[LocalModel, ...]:
    """Return ten sites with sketches and Grams."""
    data = simulate(10 * 800, 2, 3, softness=0.5, random_state=seed)
    found = []
    for m in range(10):
        rows = slice(800 * m, 800 * m + 800)
        X, y = data.X[rows], data.y[rows]
        fit = em(X, y, 2, init=data.truth)
        sent = LocalModel.from_fit(fit, f"site {m}").with_support(X, sketch=True, random_state=m)
        found.append(replace(sent, grams=Grams.of(sent.model, Rows(X, y))))
    return tuple(found)


def ladders(quick: bool) -> Found:
    """Judge one liar of ten, with lies of several sizes."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if quick else 3)):
        first, *others = with_grams(seed)
        for name, (lie, sizes) in LADDERS.items():
            weight = np.ones(10) if name == "few rows" else None
            found += [judged([lie(first, size), *others], [LIAR], weight) for size in sizes]
        found += [copied(first, others, size) for size in (1e-8, 3e-7, 1.5e-6, 1e-5, 1e-3)]
    return summed(found)


def copied(first: LocalModel, others: Sequence[LocalModel], away: float) -> Found:
    """Judge a model that a second site sends too, but for some digits."""
    vector, rng = first.model.to_vector(), np.random.default_rng(0)
    noise = rng.normal(size=len(vector))
    noise *= away * np.linalg.norm(vector) / np.linalg.norm(noise)
    copy = replace(first, model=first.model.with_vector(vector + noise), site="site 1", grams=None)
    return judged([first, copy, *others[1:]], [LIAR, "site 1"])


# -- replies -----------------------------------------------------------------------------------

Lie = Callable[[SiteInformation, int], SiteInformation]


def part(content: SiteInformation, **parts: object) -> SiteInformation:
    return replace(content, information=replace(content.information, **parts))


def informed(times: float) -> Lie:
    def lie(content: SiteInformation, number: int) -> SiteInformation:
        matrix = content.information.matrix.copy()
        matrix[-1, -1] *= times
        return part(content, matrix=matrix)

    return lie


def far(deviations: float) -> Lie:
    def lie(content: SiteInformation, number: int) -> SiteInformation:
        if content.moments is None:
            return content
        sd = np.sqrt(content.moments.var)
        return replace(
            content, moments=replace(content.moments, mean=content.moments.mean + deviations * sd)
        )

    return lie


def unlikely(nats: float) -> Lie:
    def lie(content: SiteInformation, number: int) -> SiteInformation:
        less = content.information.log_likelihood - nats * content.n_samples
        return part(content, log_likelihood=less)

    return lie


def steep(times: float) -> Lie:
    return lambda content, number: part(content, score=times * content.information.score)


def falling(nats: float) -> Lie:
    def lie(content: SiteInformation, number: int) -> SiteInformation:
        less = content.information.log_likelihood - nats * number
        return part(content, log_likelihood=less)

    return lie


def bent(times: float) -> Lie:
    def lie(content: SiteInformation, number: int) -> SiteInformation:
        matrix = content.information.matrix.copy()
        matrix[-3:, -3:] *= times if number > 2 else 1.0
        return part(content, matrix=matrix)

    return lie


REPLIES: dict[str, tuple[Callable[[float], Lie], tuple[float, ...]]] = {
    "information": (informed, (100, 300, 700, 1500, 3000, 1e4)),
    "features": (far, (20, 40, 70, 150, 300)),
    "unlikely": (unlikely, (200, 400, 700, 1500, 3000)),
    "score": (steep, (1e2, 1e3, 1e4, 1e5, 1e6)),
    "falling": (falling, (0.01, 0.1, 1, 10, 100)),
    "bent": (bent, (0.2, 1.5, 2, 4, 8, 16)),
}


@cache
def rows_of(family: str, seed: int) -> tuple[object, dict[str, Rows]]:
    """Return a truth, and rows of it cut along a feature, at six sites of unequal size."""
    data = simulate(3000, 2, 2, family=family, softness=1.0, random_state=seed)
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(200, 2800, 60), 5, replace=False))
    parts = np.split(np.argsort(data.X[:, 0]), cuts)
    return data, {f"site {m}": Rows(data.X[p], data.y[p]) for m, p in enumerate(parts)}


def rounds(family: str, seed: int, lie: Lie | None) -> set[str]:
    """Return the sites that are dropped in up to eight rounds."""
    data, rows = rows_of(family, seed)
    rng = np.random.default_rng(seed)
    theta = data.truth.to_vector()
    start = data.truth.with_vector(theta + 0.2 * rng.normal(size=theta.shape))
    state = begin(start, {n: len(r) for n, r in rows.items()}, Scaling.of(data.X[:300]))
    while not state.done and state.refinement.rounds < 8:
        asked = request_of(state)
        replies = [reply_to(asked, part, name) for name, part in rows.items()]
        if lie is not None:
            first = replace(replies[0], content=lie(replies[0].content, asked.round))
            replies = [first, *replies[1:]]
        state = step(state, replies)
    return set(state.dropped)


def lies_of(quick: bool) -> Iterator[Lie | None]:
    yield None
    for make, sizes in REPLIES.values():
        yield from (make(size) for size in sizes[: 1 if quick else None])


def replied(family: str) -> Job:
    """Return the job of telling replies that are lies from those of honest sites."""

    def run(quick: bool) -> Found:
        named = blamed = 0
        for lie in lies_of(quick):
            found = rounds(family, FIRST_SEED, lie)
            named += LIAR in found and lie is not None
            blamed += len(found - {LIAR}) + (LIAR in found and lie is None)
        return {"lies named": float(named), "honest sites excluded": float(blamed)}

    return Job(run, ("lies named", "honest sites excluded"))


SCREENED = ("lies named", "honest sites excluded", "weight of liars")
JOBS: dict[str, Job] = {
    "attacks": Job(attacked, SCREENED),
    "lies in messages": Job(ladders, SCREENED),
    **{f"lies in replies, {family}": replied(family) for family in ("gaussian", "poisson")},
}
