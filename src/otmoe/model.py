"""MoE = gate + experts: densities, responsibilities, prediction, sampling, comparison.

Gate and experts work on designs (n, p) with the intercept in column 0; an :class:`MoE` takes the
user's X (n, d) and goes over it block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.optimize import elementwise, linear_sum_assignment

from otmoe.experts import Experts, Response
from otmoe.gate import SoftmaxGate
from otmoe.numerics import Array, Floats, design, namespace, row_blocks, softmax, to_numpy


@dataclass(frozen=True)
class Posterior:
    """The E-step at some rows.

    Attributes
    ----------
    log_density : array of shape (n,)
        log f(y | x), up to the base measure of the family.
    responsibilities : array of shape (n, K)
        Probability that expert k produced y.
    gate_prob : array of shape (n, K)
    eta : array of shape (n, K)
        Linear predictors of the experts.
    """

    log_density: Array
    responsibilities: Array
    gate_prob: Array
    eta: Array


@dataclass(frozen=True)
class MoE:
    """A mixture of experts, f(y | x) = sum_k pi_k(x) phi_k(y | x) (maths 1).

    Attributes
    ----------
    gate : SoftmaxGate
    experts : Experts
    feature_names : tuple of str, optional
        Names of the d columns of X.

    Examples
    --------
    >>> from otmoe.experts import GaussianExperts
    >>> model = MoE(
    ...     SoftmaxGate(np.array([[0.0, 1.0], [0.0, 0.0]])),
    ...     GaussianExperts(np.array([[0.0, 2.0], [1.0, 0.0]]), np.array([1.0, 1.0])),
    ... )
    >>> model.predict(np.array([[0.0], [100.0]]))
    array([  0.5, 200. ])
    """

    gate: SoftmaxGate
    experts: Experts
    feature_names: tuple[str, ...] | None = None

    @property
    def n_experts(self) -> int:
        """Number of experts, K."""
        return self.experts.n_experts

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.experts.n_columns - 1

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        return self.gate.n_parameters + self.experts.n_parameters

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the p columns of the design: the intercept, then the features."""
        names = self.feature_names or tuple(f"x{j}" for j in range(self.n_features))
        return ("intercept", *names)

    def named(self, feature_names: tuple[str, ...] | None) -> Self:
        """Return the model with names for its features."""
        return replace(self, feature_names=feature_names)

    # -- densities ----------------------------------------------------------------------------

    def posterior(self, X: Array, response: Response) -> Posterior:
        """Return the E-step at the rows of a design (n, p)."""
        eta = self.experts.predictor(X)
        logits = self.gate.logits(X)
        gate_prob, gate_sum = softmax(logits)
        joint = self.experts.expected_log_prob(eta, response)
        joint += logits
        responsibilities, joint_sum = softmax(joint)
        return Posterior(joint_sum - gate_sum, responsibilities, gate_prob, eta)

    def _rowwise(self, function: Callable[..., Array], X: Array, *columns: Array) -> Array:
        """Apply a function of (design, *columns) block by block and concatenate."""
        xp = namespace(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(
                f"X has shape {tuple(X.shape)}; this model was fitted to {self.n_features} "
                f"features, so give it an array of shape (n, {self.n_features})."
            )
        on_device = not isinstance(X, np.ndarray)
        blocks = list(row_blocks(X.shape[0], X.shape[1] + 1, on_device=on_device)) or [slice(0, 0)]
        parts = [function(design(X[s]), *(c[s] for c in columns)) for s in blocks]
        return parts[0] if len(parts) == 1 else xp.concat(parts)

    def log_density(self, X: Array, y: Array) -> Array:
        """Return log f(y | x), (n,).

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,)
        """

        def block(X: Array, y: Array) -> Array:
            log_density = self.posterior(X, Response(y[:, None])).log_density
            return log_density + self.experts.log_base(y)

        return self._rowwise(block, X, y)

    def responsibilities(self, X: Array, y: Array) -> Array:
        """Return the probability that expert k produced y at x, (n, K)."""
        return self._rowwise(
            lambda X, y: self.posterior(X, Response(y[:, None])).responsibilities, X, y
        )

    def gate_prob(self, X: Array) -> Array:
        """Return the gate's probabilities pi_k(x), (n, K)."""
        return self._rowwise(self.gate.prob, X)

    # -- prediction ---------------------------------------------------------------------------

    def expert_mean(self, X: Array) -> Array:
        """Return the mean of y under each expert, (n, K)."""
        return self._rowwise(lambda X: self.experts.response(self.experts.predictor(X)).mean, X)

    def predict(self, X: Array) -> Array:
        """Return the mean of y, sum_k pi_k(x) mu_k(x), (n,)."""

        def block(X: Array) -> Array:
            xp = namespace(X)
            mean = self.experts.response(self.experts.predictor(X)).mean
            return xp.sum(self.gate.prob(X) * mean, axis=1)

        return self._rowwise(block, X)

    def quantile(self, X: Array, level: float) -> Floats:
        """Return the quantile of the mixture itself, (n,): the root of its distribution function.

        It lies between the smallest and the largest quantile of the experts.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; give a number strictly between 0 and 1.")

        def block(X: Array) -> Floats:
            eta = self.experts.predictor(X)
            gate = to_numpy(self.gate.prob(X))
            ends = to_numpy(self.experts.quantile(eta, level))

            def excess(y: Floats, row: Floats) -> Floats:
                index = row.astype(int)
                cdf = self.experts.cdf(to_numpy(eta)[index], y[..., None])
                return np.sum(gate[index] * cdf, axis=-1) - level

            low, high = ends.min(axis=1), ends.max(axis=1)
            margin = 1e-12 * (1 + np.abs(high) + np.abs(low))  # both ends may be the root
            bracket = (low - margin, high + margin)
            rows = np.arange(len(low), dtype=float)
            return np.asarray(elementwise.find_root(excess, bracket, args=(rows,)).x)

        return self._rowwise(block, X)

    def sample(self, X: Array, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw an expert z and a response y at every row.

        Returns
        -------
        y : ndarray of shape (n,)
        z : ndarray of int of shape (n,)
        """
        gate = to_numpy(self.gate_prob(X))
        z = np.minimum(
            (np.cumsum(gate, axis=1) < rng.random(len(gate))[:, None]).sum(axis=1),
            self.n_experts - 1,
        )
        draws = self._rowwise(lambda X: self.experts.sample(self.experts.predictor(X), rng), X)
        return draws[np.arange(len(z)), z], z

    # -- parameters ---------------------------------------------------------------------------

    def to_vector(self) -> Floats:
        """Return the free parameters: gate, expert coefficients, log dispersions (maths 5)."""
        return np.concatenate([self.gate.to_vector(), self.experts.to_vector()])

    def with_vector(self, vector: Floats) -> Self:
        """Return a model of the same shape with these free parameters."""
        split = self.gate.n_parameters
        return replace(
            self,
            gate=self.gate.with_vector(vector[:split]),
            experts=self.experts.with_vector(vector[split:]),
        )

    def take(self, order: Any) -> Self:
        """Return the model with its experts in another order."""
        return replace(self, gate=self.gate.take(order), experts=self.experts.take(order))

    def rescaled(self, T: Floats, center: float = 0.0, scale: float = 1.0) -> Self:
        """Return the model for x and ``center + scale * y``, given this one for ``T @ x`` and y."""
        return replace(
            self, gate=self.gate.rescaled(T), experts=self.experts.rescaled(T, center, scale)
        )

    def aligned_to(self, reference: MoE, X: Array) -> Self:
        """Return the model with its experts in the order of those of `reference` (maths 6).

        Experts are matched one to one by the symmetric KL divergence averaged over the rows of X.
        """
        if self.n_experts != reference.n_experts:
            raise ValueError(
                f"cannot align {self.n_experts} experts to {reference.n_experts}: "
                "both models need the same number."
            )

        def block(X: Array) -> Array:
            there = reference.experts.kl_cost(X, self.experts)  # (n, reference, self)
            back = self.experts.kl_cost(X, reference.experts)  # (n, self, reference)
            xp = namespace(X)
            return xp.sum(there, axis=0)[None] + xp.sum(back, axis=0).T[None]

        cost = to_numpy(self._rowwise(block, X)).sum(axis=0) / X.shape[0]
        return self.take(linear_sum_assignment(np.log1p(cost))[1])
