"""Sites that lie: what they send in place of an honest message, and what that costs the others.

Ten sites are fitted to rows of one truth, and one to four of them send something else. The cost of
an attack is what rows of the truth lose, in nats per row, by the model merged from all sites,
compared with the model merged by default from the honest sites alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from otmoe import Aggregation, LocalModel, MoE, aggregate, simulate
from otmoe.likelihood.fit import em

SITES = 10
CONSTANT = 0.123456  # a value that no row has
Lie = Callable[[LocalModel, "Study", np.random.Generator], LocalModel]


@dataclass(frozen=True)
class Study:
    """Ten honest sites, and fresh rows of the same truth.

    Attributes
    ----------
    messages : tuple of LocalModel
        Each with a sketch and some rows of x.
    truth : MoE
    X, y : ndarray
        Fresh rows, on which models are judged.
    """

    messages: tuple[LocalModel, ...]
    truth: MoE
    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)

    def mean_log_density(self, model: MoE) -> float:
        """Return the mean log density of the fresh rows."""
        return float(np.mean(model.log_density(self.X, self.y)))

    def honest(self, liars: int) -> list[LocalModel]:
        """Return the messages of those that do not lie."""
        return list(self.messages[liars:])

    @cached_property
    def _references(self) -> dict[int, float]:
        return {}

    def cost(self, model: MoE, liars: int) -> float:
        """Return the nats per row that a model loses to that of the honest sites alone."""
        known = self._references
        if liars not in known:
            known[liars] = self.mean_log_density(quietly(self.honest(liars)).model)
        return known[liars] - self.mean_log_density(model)

    def attacked(self, attack: Attack, liars: int, seed: int = 0) -> list[LocalModel]:
        """Return the messages, the first of them replaced by lies."""
        rng = np.random.default_rng([seed, liars])
        first = self.messages[0]
        lies = [
            attack.lie(first if attack.together else sent, self, rng)
            for sent in self.messages[:liars]
        ]
        named = [
            replace(lie, site=sent.site) for lie, sent in zip(lies, self.messages, strict=False)
        ]
        return named + self.honest(liars)


def study(seed: int, n_rows: int = 600, K: int = 2, d: int = 3, family: str = "gaussian") -> Study:
    """Return ten sites of so many rows each, fitted from the truth: a search would take longer."""
    n = SITES * n_rows
    data = simulate(n + 20_000, K, d, family=family, softness=0.5, random_state=seed)
    messages = []
    for m in range(SITES):
        rows = slice(m * n_rows, (m + 1) * n_rows)
        fit = em(data.X[rows], data.y[rows], K, family=family, init=data.truth, n_classes=3)
        sent = LocalModel.from_fit(fit, f"site {m}")
        messages.append(sent.with_support(data.X[rows], sketch=True, share=50, random_state=m))
    return Study(tuple(messages), data.truth, data.X[n:], data.y[n:])


def quietly(messages: list[LocalModel], support: Any = None, **options: Any) -> Aggregation:
    """Merge messages; what there is to be warned of is in the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return aggregate(messages, support, **options)


# -- lies ----------------------------------------------------------------------------------------


def shifted(sent: LocalModel, by: float) -> LocalModel:
    """Return a message whose every prediction is off by so many residual standard deviations."""
    experts = sent.model.experts
    coef = experts.coef.copy()
    coef[..., 0] += by * np.sqrt(experts.var)
    return replace(sent, model=replace(sent.model, experts=replace(experts, coef=coef)))


def stretched(sent: LocalModel, by: float) -> LocalModel:
    """Return a message with all coefficients of its experts multiplied."""
    experts = sent.model.experts
    larger = replace(experts, coef=by * experts.coef)
    return replace(sent, model=replace(sent.model, experts=larger))


def moved(sent: LocalModel, deviations: float) -> LocalModel:
    """Return a message whose covariates are so many standard deviations away, by its sketch."""
    assert sent.sketch is not None
    sd = np.sqrt(sent.sketch.moments[1][list(sent.sketch.numbers)])
    far = replace(sent.sketch, mean=sent.sketch.mean + deviations * sd)
    return replace(sent, sketch=far, support=None)


def without_covariates(sent: LocalModel) -> LocalModel:
    return replace(sent, sketch=None, support=None)


def _constant_and_large(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    lie = without_covariates(stretched(sent, 1e3))
    return replace(lie, constant={sent.model.terms[1]: CONSTANT})


def _constant_sketch(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    X = rng.normal(size=(int(sent.n_samples), sent.model.n_features))
    X[:, 0] = CONSTANT
    return _constant_and_large(sent, study, rng).with_support(X, sketch=True)


def _few_rows(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    """Claim the one row that there has to be; what it excuses is a thousand times too large."""
    per_row = sent.log_likelihood / sent.n_samples
    return replace(stretched(sent, 1e3), n_samples=1.0, log_likelihood=per_row)


def _many_rows(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    return replace(shifted(sent, 0.7), n_samples=1e9, grams=None)


def _many_rows_consistent(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    per_row = sent.log_likelihood / sent.n_samples
    return replace(shifted(sent, 0.3), n_samples=1e9, log_likelihood=1e9 * per_row)


def _far_sketch(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    return moved(sent, 100)


def _far_rows(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    """Share rows at which the one honest site whose slope differs most looks the oddest."""
    X = 300.0 * rng.normal(size=(2000, sent.model.n_features))
    return replace(sent, sketch=None, support=X)


def _near_copy(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    lie = shifted(sent, 2.0)
    vector = lie.model.to_vector()
    noise = 1e-9 * np.abs(vector) * rng.normal(size=len(vector))
    return replace(lie, model=lie.model.with_vector(vector + noise))


def _wide(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    experts = sent.model.experts
    wide = replace(experts, var=np.full(experts.n_experts, 1e6))
    return replace(sent, model=replace(sent.model, experts=wide))


def _flipped(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    """Fit the site's rows with the labels the wrong way round, as honest software would."""
    return stretched(sent, -1.0)


def _many_experts(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    model = sent.model.take(np.arange(100) % sent.model.n_experts)
    noise = 0.1 * rng.normal(size=model.n_parameters)
    return replace(sent, model=model.with_vector(model.to_vector() + noise))


def _nowhere(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    """Say the truth about a feature that never varied, at a value that no support point has."""
    return replace(without_covariates(sent), constant={sent.model.terms[1]: CONSTANT})


def _overflowing(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    return stretched(sent, 1e25)


def _narrow(sent: LocalModel, study: Study, rng: np.random.Generator) -> LocalModel:
    experts = sent.model.experts
    narrow = replace(experts, var=np.full(experts.n_experts, 1e-50))
    return replace(sent, model=replace(sent.model, experts=narrow))


@dataclass(frozen=True)
class Attack:
    """What liars send, and how the coordinator merges where that matters.

    Attributes
    ----------
    lie : function
        Of an honest message, the study and a generator.
    family : str
        Of the study.
    together : bool
        Whether all liars send (nearly) the same.
    options : dict
        For :func:`otmoe.aggregate`.
    liars : tuple of int
        How many of ten there are.
    """

    lie: Lie
    family: str = "gaussian"
    together: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    liars: tuple[int, ...] = (1, 2, 3, 4)


ATTACKS = {
    "constant feature, coefficients x 1000": Attack(_constant_and_large),
    "the same, with a sketch": Attack(_constant_sketch),
    "one row, coefficients x 1000": Attack(_few_rows),
    "one row, equal weights": Attack(_few_rows, options={"site_weight": np.ones(SITES)}),
    "1e9 rows, likelihood of few": Attack(_many_rows),
    "1e9 rows, consistent": Attack(_many_rows_consistent, liars=(1,)),
    "sketch 100 sd off": Attack(_far_sketch),
    "rows 300 sd off": Attack(_far_rows),
    "copies to the 9th digit": Attack(_near_copy, together=True, liars=(1, 2, 3, 4, 6)),
    "shift by 1 sd": Attack(lambda sent, *_: shifted(sent, 1.0)),
    "variance 1e6": Attack(_wide),
    "variance 1e6, middle model": Attack(_wide, options={"method": "middle"}),
    "flipped": Attack(_flipped),
    "flipped labels": Attack(_flipped, family="logistic"),
    "100 experts": Attack(_many_experts),
    "constant where no point is": Attack(_nowhere),
    "coefficients x 1e25": Attack(_overflowing),
    "variance 1e-50": Attack(_narrow),
}
"""By name."""
