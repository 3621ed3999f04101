"""The paper's generator, with soft and overlapping variants (maths 7)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.model.experts import (
    FAMILIES,
    BinomialExperts,
    DispersedExperts,
    Experts,
    GaussianExperts,
    StudentExperts,
)
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_LEAST_SHARE = 0.10  # of the rows, for every expert of a truth
_PILOT = 4000  # rows on which the shares are estimated
_TRIES = 1000  # truths drawn before giving up
_TRIALS = 10.0  # per row of the binomial family


@dataclass(frozen=True)
class Simulation:
    """Rows drawn from a known mixture of experts.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    z : ndarray of int of shape (n,)
        The expert that produced each row.
    truth : MoE
    centers : ndarray of shape (K, d)
        Cluster centres of x, before `shift` and `stretch`.
    shift, stretch : ndarray of shape (d,)
        X is ``(x - shift) / stretch`` for x drawn around the centres.
    """

    X: Floats = field(repr=False)
    y: Floats = field(repr=False)
    z: Floats = field(repr=False)
    truth: MoE
    centers: Floats = field(repr=False)
    shift: Floats = field(repr=False)
    stretch: Floats = field(repr=False)

    def draw(
        self, n_samples: int, random_state: int | np.random.Generator | None = None
    ) -> Simulation:
        """Draw new rows from the same truth, for testing."""
        rng = np.random.default_rng(random_state)
        X = self.draw_x(n_samples, rng)
        y, z = self.truth.sample(X, rng)
        return replace(self, X=X, y=y, z=z)

    def draw_x(self, n_samples: int, rng: np.random.Generator) -> Floats:
        """Draw rows of X only, (n, d)."""
        return (_clusters(self.centers, n_samples, rng) - self.shift) / self.stretch


def simulate(
    n_samples: int = 1000,
    n_experts: int = 4,
    n_features: int = 20,
    *,
    family: str = "gaussian",
    n_classes: int = 3,
    softness: float = 0.0,
    overlap: bool = False,
    random_state: int | np.random.Generator | None = None,
) -> Simulation:
    """Draw rows from a random mixture of experts.

    x is drawn in equal parts from `n_experts` Gaussian clusters with covariance (1/4)^|u - v|. The
    centres and the coefficients of gate and experts are integers in [-5, 5]; the variances are
    integers in 1..5. This is the paper's design ("hard": the gate is nearly a partition). With
    `softness` the gate approaches one with coefficients 0.45 N(0, 1) on standardised x. Truths in
    which an expert has less than a tenth of the rows are drawn again.

    Experts of the other families have random directions: their linear predictors vary over x with
    standard deviation 3 (log-odds) or 0.7 (log-means, around levels from 1 to 20). Dispersions are
    uniform on [0.1, 0.5].

    Parameters
    ----------
    n_samples : int
    n_experts : int
    n_features : int
    family : str
        A name in :data:`otmoe.model.experts.FAMILIES`. Coefficients and squared scales of
        "student_t" are those of "gaussian"; rows of "binomial" have ten trials.
    n_classes : int
        For the multinomial family.
    softness : float in [0, 1]
        0 is the paper's design, 1 the soft one.
    overlap : bool
        The overlapping design: a soft gate over Gaussian experts with coefficients 0.6 N(0, 1) and
        variances uniform on [0.5, 2].
    random_state : int or numpy Generator, optional

    Returns
    -------
    Simulation

    Examples
    --------
    >>> data = simulate(n_samples=100, n_experts=2, n_features=3, random_state=0)
    >>> data.X.shape, data.truth.experts.coef.shape
    ((100, 3), (2, 4))
    """
    for name, value, least in [
        ("n_samples", n_samples, 1),
        ("n_experts", n_experts, 1),
        ("n_features", n_features, 1),
        ("n_classes", n_classes, 2),
    ]:
        if value < least:
            raise InvalidInput(Error.TOO_SMALL, name=name, value=value, least=least)
    if not 0 <= softness <= 1:
        raise InvalidInput(Error.SOFTNESS, value=softness)
    if family not in FAMILIES:
        choices = [*FAMILIES, FAMILIES.more]
        raise InvalidInput(Error.NOT_ONE_OF, name="family", value=family, choices=choices)
    if overlap and family != "gaussian":
        raise InvalidInput(Error.OVERLAP_FAMILY)
    rng = np.random.default_rng(random_state)
    for _ in range(_TRIES):
        source = _source(n_experts, n_features, 1.0 if overlap else softness, rng)
        experts = _experts(source, family, n_classes, overlap, rng)
        source = replace(source, truth=replace(source.truth, experts=experts))
        share = source.truth.gate_prob(source.draw_x(_PILOT, rng)).mean(axis=0)
        if share.min() >= min(_LEAST_SHARE, 0.5 / n_experts):
            return source.draw(n_samples, rng)
    raise InvalidInput(Error.NO_TRUTH_FOUND, tries=_TRIES, experts=n_experts)


def _source(K: int, d: int, softness: float, rng: np.random.Generator) -> Simulation:
    """Draw centres and a gate, with blank experts."""
    centers = _integers((K, d), rng)
    shift = softness * centers.mean(axis=0)
    stretch = np.sqrt(1 + centers.var(axis=0)) ** softness
    hard, soft = _integers((K, d + 1), rng), 0.45 * rng.standard_normal((K, d + 1))
    gate = (1 - softness) * hard + softness * soft
    truth = MoE(SoftmaxGate(gate - gate[-1]), GaussianExperts.blank(K, d + 1))
    none = np.empty(0)
    return Simulation(none, none, none, truth, centers, shift, stretch)


def _experts(
    source: Simulation, family: str, n_classes: int, overlap: bool, rng: np.random.Generator
) -> Experts:
    K, d = source.centers.shape
    if overlap:
        coef = 0.6 * rng.standard_normal((K, d + 1))
        return GaussianExperts(coef, rng.uniform(0.5, 2.0, size=(K,)))
    kind = FAMILIES[family]
    if issubclass(kind, GaussianExperts | StudentExperts):
        coef, spread = _integers((K, d + 1), rng), rng.integers(1, 6, K).astype(float)
        return kind(coef, spread)

    # Random directions of given length on standardised x, around a random level.
    mean = (source.centers.mean(axis=0) - source.shift) / source.stretch
    sd = np.sqrt(1 + source.centers.var(axis=0)) / source.stretch
    blank = FAMILIES[family].blank(K, d + 1, n_classes)
    if isinstance(blank, BinomialExperts):
        blank = replace(blank, trials=np.full(K, _TRIALS))
    logs = not (blank.classifies or family == "binomial")  # of means
    size = 0.7 if logs else 3.0
    slope = size / np.sqrt(d) * rng.standard_normal((*blank.coef.shape[:-1], d)) / sd
    level = rng.uniform(0, 3, slope.shape[:-1]) if logs else 0.0
    coef = np.concatenate([(level - slope @ mean)[..., None], slope], axis=-1)
    if family == "multinomial":
        coef -= coef[:, -1:]
    if isinstance(blank, DispersedExperts):
        return replace(blank, coef=coef, phi=rng.uniform(0.1, 0.5, size=(K,)))
    return replace(blank, coef=coef)


def _integers(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    return rng.integers(-5, 6, shape).astype(float)


def _clusters(centers: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Draw n points, in equal parts around the centres, in random order; (n, d)."""
    K, d = centers.shape
    # Covariance (1/4)^|u - v| is that of a stationary first-order autoregression.
    X = rng.standard_normal((n, d))
    X[:, 1:] *= np.sqrt(1 - 1 / 16)
    for j in range(1, d):
        X[:, j] += X[:, j - 1] / 4
    X += centers[rng.permutation(np.arange(n) % K)]
    return X
