"""EM for a mixture of linear regressions with a softmax gate, as textbooks give it.

Whole-matrix NumPy: the E-step on all rows at once, weighted least squares for every expert, and in
every M-step the gate fitted to convergence by Newton's method (IRLS) from where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from scipy.special import log_softmax, logsumexp
from sklearn.cluster import KMeans

RIDGE = 1e-3  # on the gate, so that separated classes do not send it to infinity


@dataclass
class Parameters:
    """Of standardised features with a leading 1: gate (K, p), coef (K, p), var (K,)."""

    gate: np.ndarray
    coef: np.ndarray
    var: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """Where EM stopped, and whether it got to its target."""

    log_likelihood: float
    n_iter: int
    seconds: float
    reached: bool


def standardised(X: np.ndarray) -> np.ndarray:
    """Return features of mean 0 and variance 1 behind a column of ones."""
    return np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])


def e_step(Z: np.ndarray, y: np.ndarray, theta: Parameters) -> tuple[np.ndarray, float]:
    """Return the responsibilities (n, K) and the log-likelihood."""
    residual = y[:, None] - Z @ theta.coef.T
    joint = log_softmax(Z @ theta.gate.T, axis=1)
    joint -= 0.5 * (np.log(2 * np.pi * theta.var) + residual**2 / theta.var)
    log_density = logsumexp(joint, axis=1)
    return np.exp(joint - log_density[:, None]), log_density.sum()


def m_step(Z: np.ndarray, y: np.ndarray, r: np.ndarray, gate: np.ndarray) -> Parameters:
    """Return the parameters that maximise the expected complete log-likelihood."""
    coef, var = [], []
    for w in r.T:
        weighted = Z * w[:, None]
        beta = np.linalg.solve(weighted.T @ Z, weighted.T @ y)
        coef.append(beta)
        var.append(w @ (y - Z @ beta) ** 2 / w.sum())
    return Parameters(fit_gate(Z, r, gate), np.array(coef), np.array(var))


def fit_gate(Z: np.ndarray, r: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """Softmax regression of the responsibilities on the features, last class the reference."""
    K, p = gate.shape

    def objective(gate: np.ndarray) -> tuple[float, np.ndarray]:
        log_prob = log_softmax(Z @ gate.T, axis=1)
        return np.vdot(r, log_prob) - RIDGE / 2 * np.sum(gate**2), log_prob

    value, log_prob = objective(gate)
    for _ in range(50):
        prob = np.exp(log_prob)
        score = ((r - prob).T @ Z - RIDGE * gate)[:-1].ravel()
        hessian = np.empty((K - 1, p, K - 1, p))
        for j in range(K - 1):
            for k in range(j, K - 1):
                w = prob[:, j] * ((j == k) - prob[:, k])
                hessian[j, :, k] = hessian[k, :, j] = Z.T @ (Z * w[:, None])
        hessian = hessian.reshape(score.size, score.size) + RIDGE * np.eye(score.size)
        step = np.linalg.solve(hessian, score)
        decrement = score @ step
        if decrement < 1e-6:
            break
        step = np.vstack([step.reshape(K - 1, p), np.zeros(p)])
        for _ in range(20):
            new_value, new_log_prob = objective(gate + step)
            if new_value >= value:
                break
            step /= 2
        else:
            break
        gate, value, log_prob = gate + step, new_value, new_log_prob
    return gate


def k_means_start(Z: np.ndarray, y: np.ndarray, K: int, seed: int) -> Parameters:
    """Return the M-step of softened k-means labels."""
    labels = KMeans(K, n_init=10, random_state=seed).fit_predict(Z[:, 1:])
    r = np.where(labels[:, None] == np.arange(K), 0.9, 0.1 / (K - 1))
    return m_step(Z, y, r, np.zeros((K, Z.shape[1])))


def fit(
    X: np.ndarray,
    y: np.ndarray,
    n_experts: int,
    *,
    target: float,
    start: Parameters | None = None,
    seed: int = 0,
    max_iter: int = 2000,
    max_seconds: float = 600.0,
    least_gain: float = 1e-4,
) -> Outcome:
    """Run EM from k-means, or from a given start, until its log-likelihood is at least `target`.

    It gives up when an iteration gains less than `least_gain`, or at a bound on iterations or time.
    """
    begin = perf_counter()
    Z = standardised(X)
    theta = k_means_start(Z, y, n_experts, seed) if start is None else start
    previous = -np.inf
    for iteration in range(max_iter + 1):
        r, log_likelihood = e_step(Z, y, theta)
        seconds = perf_counter() - begin
        if log_likelihood >= target:
            return Outcome(log_likelihood, iteration, seconds, True)
        if seconds > max_seconds or log_likelihood - previous < least_gain:
            break
        previous = log_likelihood
        theta = m_step(Z, y, r, theta.gate)
    return Outcome(log_likelihood, iteration, seconds, False)
