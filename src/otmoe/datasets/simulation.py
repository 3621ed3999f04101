"""The paper's generator, and softer and more overlapping kinds of it (maths 7)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from otmoe.experts import GaussianExperts
from otmoe.gate import SoftmaxGate
from otmoe.model import MoE
from otmoe.numerics import Floats

_LEAST_SHARE = 0.10  # of the rows, for every expert of a truth
_PILOT = 4000  # rows on which the shares are judged
_TRIES = 1000


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
        """Draw other rows from the same truth, for testing."""
        rng = np.random.default_rng(random_state)
        X = (_clusters(self.centers, n_samples, rng) - self.shift) / self.stretch
        y, z = self.truth.sample(X, rng)
        return replace(self, X=X, y=y, z=z)


def simulate(
    n_samples: int = 1000,
    n_experts: int = 4,
    n_features: int = 20,
    *,
    softness: float = 0.0,
    overlap: bool = False,
    random_state: int | np.random.Generator | None = None,
) -> Simulation:
    """Draw rows from a random mixture of Gaussian experts.

    x comes in equal parts from `n_experts` Gaussian clusters with covariance (1/4)^|u - v|; their
    centres, the coefficients of gate and experts are integers in [-5, 5] and the variances integers
    in 1..5. This is the paper's kind ("hard": the gate is nearly a partition). `softness` leads
    from there to a gate with coefficients 0.45 N(0, 1) on standardised x. Truths in which an expert
    has less than a tenth of the rows are drawn again.

    Parameters
    ----------
    n_samples : int
    n_experts : int
    n_features : int
    softness : float in [0, 1]
        0 is the paper's kind, 1 the soft kind.
    overlap : bool
        The overlapping kind: a soft gate over expert coefficients 0.6 N(0, 1) and variances uniform
        on [0.5, 2].
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
    for name, value in [
        ("n_samples", n_samples),
        ("n_experts", n_experts),
        ("n_features", n_features),
    ]:
        if value < 1:
            raise ValueError(f"{name} is {value}; give at least 1.")
    if not 0 <= softness <= 1:
        raise ValueError(f"softness is {softness}; give a number between 0 (hard) and 1 (soft).")
    rng = np.random.default_rng(random_state)
    if overlap:
        softness = 1.0
    for _ in range(_TRIES):
        centers, shift, stretch, truth = _truth(n_experts, n_features, softness, overlap, rng)
        pilot = (_clusters(centers, _PILOT, rng) - shift) / stretch
        if truth.gate_prob(pilot).mean(axis=0).min() >= min(_LEAST_SHARE, 0.5 / n_experts):
            break
    else:
        raise ValueError(
            f"none of {_TRIES} random truths gave each of {n_experts} experts its share of rows: "
            "use fewer experts, more features or a larger softness."
        )
    empty = np.empty(0)
    source = Simulation(empty, empty, empty, truth, centers, shift, stretch)
    return source.draw(n_samples, rng)


def _truth(
    K: int, d: int, softness: float, overlap: bool, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats, MoE]:
    def integers(*shape: int) -> Floats:
        return rng.integers(-5, 6, shape).astype(float)

    centers = integers(K, d)
    shift = softness * centers.mean(axis=0)
    stretch = np.sqrt(1 + centers.var(axis=0)) ** softness
    hard, soft = integers(K, d + 1), 0.45 * rng.standard_normal((K, d + 1))
    gate = (1 - softness) * hard + softness * soft
    if overlap:
        coef, var = 0.6 * rng.standard_normal((K, d + 1)), rng.uniform(0.5, 2.0, K)
    else:
        coef, var = integers(K, d + 1), rng.integers(1, 6, K).astype(float)
    return centers, shift, stretch, MoE(SoftmaxGate(gate - gate[-1]), GaussianExperts(coef, var))


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
