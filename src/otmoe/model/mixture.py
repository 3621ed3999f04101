# Long because MoE is the one type that everyone asks: densities, predictions, parameters.
"""MoE = gate + experts: densities, responsibilities, prediction, sampling, comparison.

Gate and experts work on designs (n, p) with the intercept in column 0; an :class:`MoE` takes the
user's X (n, d) and goes over it block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from scipy import linalg
from scipy.optimize import elementwise, linear_sum_assignment

from otmoe.arrays.numerics import (
    Array,
    Floats,
    design,
    like,
    namespace,
    row_blocks,
    sample_rows,
    softmax,
    to_numpy,
)
from otmoe.arrays.stretches import spread_out, summed
from otmoe.model.experts import Experts, Response
from otmoe.model.gate import SoftmaxGate
from otmoe.model.structure import Structure
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.html import html_lines, html_table
from otmoe.text.names import visible
from otmoe.text.sentences import Error

ExpertPer = Literal["row", "group"]
"""What has an expert of its own: every row, or every group of rows."""

_SHOWN = 50  # coefficients of an expert in the table of a notebook


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
    classes : ndarray of shape (C,), optional
        Class labels of a classifier; class c of the experts is ``classes[c]``.
    structure : Structure, optional
        What the experts see and what they share; None where every coefficient is free.
    expert_per : {"row", "group"}
        Whether every row has an expert of its own, or the rows of a group share one (maths 23).

    Examples
    --------
    >>> from otmoe.model.experts import GaussianExperts
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
    classes: Floats | None = None
    structure: Structure | None = None
    expert_per: ExpertPer = "row"

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
        """Length of the parameter vector; without a structure, that many are free."""
        return self.gate.n_parameters + self.experts.n_parameters

    @property
    def n_free(self) -> int:
        """Number of free parameters: those of a structure are fewer than the vector is long."""
        basis = self.basis
        return self.n_parameters if basis is None else int(basis.shape[1])

    @property
    def basis(self) -> Floats | None:
        """The matrix C of theta = C psi, (P, q); None where every parameter is free (maths 21)."""
        if self.structure is None:
            return None
        gate = np.eye(self.gate.n_parameters)
        return np.asarray(linalg.block_diag(gate, self.structure.basis(self.experts)))

    @property
    def expert_columns(self) -> list[list[int]]:
        """Columns of the design that each expert sees, for any of its responses."""
        p = self.experts.n_columns
        if self.structure is None:
            return [list(range(p))] * self.n_experts
        return [list(self.structure.seen(k, p)) for k in range(self.n_experts)]

    @property
    def _sets(self) -> list[Any]:
        """Columns of the design that each expert sees, response by response."""
        sets = () if self.structure is None else self.structure.sets
        return list(sets) if len(sets) == self.n_experts else [sets] * self.n_experts

    @property
    def margins(self) -> dict[str, Self]:
        """The model of each of several responses by itself, whatever the others are (maths 22)."""
        each = zip(self.experts.responses, self.experts.parts, strict=False)
        return {name: replace(self, experts=part, structure=None) for name, part in each}

    @property
    def zeros(self) -> list[int]:
        """The experts whose count is always 0."""
        return [] if self.structure is None else self.structure.zeros

    @property
    def held(self) -> Floats:
        """Say which entries of the vector are nobody's to choose, (P,): those of zero experts."""
        found = np.zeros(self.n_parameters, dtype=bool)
        if self.structure is not None and self.zeros:
            found[self.gate.n_parameters :] = self.structure.held(self.experts)
        return found

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the p columns of the design, on one line each: the intercept, then features."""
        names = tuple(map(visible, self.feature_names or ())) or tuple(
            f"x{j}" for j in range(self.n_features)
        )
        return ("intercept", *names)

    @property
    def called(self) -> str:
        """Number and family of the experts, in words."""
        return f"{self.n_experts} {self.experts.family} expert{'' if self.n_experts == 1 else 's'}"

    def __repr__(self) -> str:
        return f"MoE({self.called}, {self.n_features} feature{'' if self.n_features == 1 else 's'})"

    def _repr_html_(self) -> str:
        heads = [f"expert {k}" for k in range(self.n_experts)]
        tables = []
        for name, part in self.coefficients.items():
            rows = [
                [term, *("" if np.isnan(v) else f"{v:.4g}" for v in row)]
                for term, row in part.items()
            ]
            left = len(rows) - _SHOWN
            more = f"and {left:,} more" if left > 0 else ""
            tables.append(html_table([name, *heads], rows[:_SHOWN], more))
        return html_lines(f"Mixture of {self.called}") + "".join(tables)

    # -- densities ----------------------------------------------------------------------------

    def posterior(
        self,
        X: Array,
        response: Response,
        offset: Array | None = None,
        copies: Floats | None = None,
        groups: Floats | None = None,
    ) -> Posterior:
        """Return the E-step at the rows of a design (n, p), or at so many copies of each.

        Rows of a group share their expert (maths 23): each has the group's log density and
        responsibilities. `groups` says where groups begin, and the end, (G + 1,).
        """
        eta = self.experts.predictor(X, offset)
        logits = self.gate.logits(X)
        gate_prob, gate_sum = softmax(logits)
        if copies is not None:
            eta, logits, gate_prob, gate_sum = (
                np.repeat(a.T, copies, axis=-1).T for a in (eta, logits, gate_prob, gate_sum)
            )
        joint = self.experts.expected_log_prob(eta, response)
        if groups is not None:
            joint = spread_out(summed(joint, groups), groups)
        joint += logits
        responsibilities, joint_sum = softmax(joint)
        return Posterior(joint_sum - gate_sum, responsibilities, gate_prob, eta)

    def _rowwise(self, function: Callable[..., Array], X: Array, *columns: Array | None) -> Array:
        """Apply a function of (design, *columns) block by block and concatenate."""
        if hasattr(X, "columns"):
            raise InvalidType(Error.X_IS_A_TABLE, kind=type(X).__name__)
        xp = namespace(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise InvalidInput(Error.X_SHAPE, shape=tuple(X.shape), features=self.n_features)
        on_device = not isinstance(X, np.ndarray)
        blocks = list(row_blocks(X.shape[0], X.shape[1] + 1, on_device=on_device)) or [slice(0, 0)]
        parts = [
            function(design(X[s, :]), *(None if c is None else c[s] for c in columns))
            for s in blocks
        ]
        return parts[0] if len(parts) == 1 else xp.concat(parts)

    def log_density(self, X: Array, y: Array, offset: Array | None = None) -> Array:
        """Return log f(y | x), (n,).

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,)
            Class numbers 0..C-1 for a classifier.
        offset : array of shape (n,), optional
            Known part of the experts' linear predictors, such as the log of an exposure.
        """

        def block(X: Array, y: Array, offset: Array | None) -> Array:
            posterior = self.posterior(X, self.experts.observe(y), offset)
            return posterior.log_density + self.experts.log_base(y)

        return self._rowwise(block, X, like(y, X), offset)

    def responsibilities(self, X: Array, y: Array, offset: Array | None = None) -> Array:
        """Return the probability that expert k produced y at x, (n, K)."""

        def block(X: Array, y: Array, offset: Array | None) -> Array:
            return self.posterior(X, self.experts.observe(y), offset).responsibilities

        return self._rowwise(block, X, like(y, X), offset)

    def gate_prob(self, X: Array) -> Array:
        """Return the gate's probabilities pi_k(x), (n, K)."""
        return self._rowwise(self.gate.prob, X)

    # -- prediction ---------------------------------------------------------------------------

    def expert_mean(self, X: Array, offset: Array | None = None) -> Array:
        """Return the mean of y under each expert, (n, K), or class probabilities, (n, K, C)."""

        def block(X: Array, offset: Array | None) -> Array:
            return self.experts.response(self.experts.predictor(X, offset)).mean

        return self._rowwise(block, X, offset)

    def predict(self, X: Array, offset: Array | None = None) -> Array:
        """Return the mean of y, sum_k pi_k(x) mu_k(x), (n,), or class probabilities, (n, C)."""

        def block(X: Array, offset: Array | None) -> Array:
            mean = self.experts.response(self.experts.predictor(X, offset)).mean
            gate = self.gate.prob(X)
            return namespace(X).sum((gate if mean.ndim == 2 else gate[:, :, None]) * mean, axis=1)

        return self._rowwise(block, X, offset)

    def quantile(self, X: Array, level: float, offset: Array | None = None) -> Floats:
        """Return the quantile of the mixture itself, (n,).

        It lies between the smallest and the largest quantile of the experts. Of counts, it is the
        smallest number at which the distribution function reaches the level.
        """
        if not 0 < level < 1:
            raise InvalidInput(Error.NOT_A_LEVEL, name="level", value=level)

        def block(X: Array, offset: Array | None) -> Floats:
            eta = to_numpy(self.experts.predictor(X, offset))
            gate = to_numpy(self.gate.prob(X))
            ends = to_numpy(self.experts.quantile(eta, level))
            low, high = ends.min(axis=1), ends.max(axis=1)

            def excess(y: Floats, row: Floats) -> Floats:
                index = row.astype(int)
                return (
                    np.sum(gate[index] * self.experts.cdf(eta[index], y[..., None]), axis=-1)
                    - level
                )

            rows = np.arange(len(low), dtype=float)
            if self.experts.discrete:
                return _first_nonnegative(lambda y: excess(y, rows), low, high)
            margin = 1e-12 * (1 + np.abs(high) + np.abs(low))  # both ends may be the root
            bracket = (low - margin, high + margin)
            return np.asarray(elementwise.find_root(excess, bracket, args=(rows,)).x)

        return self._rowwise(block, X, offset)

    def sample(
        self, X: Array, rng: np.random.Generator, offset: Array | None = None
    ) -> tuple[Floats, Floats]:
        """Draw an expert z and a response y at every row.

        Returns
        -------
        y : ndarray of shape (n,)
        z : ndarray of int of shape (n,)
        """
        z = sample_rows(to_numpy(self.gate_prob(X)), rng)

        def block(X: Array, offset: Array | None) -> Floats:
            return self.experts.sample(self.experts.predictor(X, offset), rng)

        return self._rowwise(block, X, offset)[np.arange(len(z)), z], z

    # -- parameters ---------------------------------------------------------------------------

    @property
    def coefficients(self) -> dict[str, dict[str, Floats]]:
        """Coefficients of `gate` and `experts` by name, (K,) each; variances are there as well.

        A zero expert has none: NaN.
        """
        gate = dict(zip(self.terms, np.asarray(self.gate.coef).T, strict=True))
        experts = self.experts.named_parameters(self.terms)
        if self.zeros:
            none = np.isin(np.arange(self.n_experts), self.zeros)
            experts = {name: np.where(none, np.nan, values) for name, values in experts.items()}
        return {"gate": gate, "experts": experts}

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

    def frozen(self) -> Self:
        """Return the model with copies of its arrays that nobody can change."""
        experts = {f.name: _frozen(getattr(self.experts, f.name)) for f in fields(self.experts)}
        return replace(
            self,
            gate=replace(self.gate, coef=_frozen(self.gate.coef)),
            experts=replace(self.experts, **experts),
        )

    def take(self, order: Any) -> Self:
        """Return the model with its experts in another order."""
        structure = None if self.structure is None else self.structure.take(order)
        return replace(
            self,
            gate=self.gate.take(order),
            experts=self.experts.take(order),
            structure=structure,
        )

    def rescaled(self, T: Floats, center: float = 0.0, scale: float = 1.0) -> Self:
        """Return the model for x and ``center + scale * y``, given this one for ``T @ x`` and y."""
        return replace(
            self, gate=self.gate.rescaled(T), experts=self.experts.rescaled(T, center, scale)
        )

    def tidied(self) -> Self:
        """Return the model without what rounding, or an average, has added to its structure."""
        if self.structure is None:
            return self
        return replace(self, experts=self.structure.projected(self.experts))

    def aligned_to(self, reference: MoE, X: Array) -> Self:
        """Return the model with its experts in the order of those of `reference` (maths 6)."""
        return self.take(self.order_like(reference, X))

    def order_like(self, reference: MoE, X: Array) -> Floats:
        """Return the expert that matches each of those of `reference`, (K,) (maths 6).

        Experts are matched one to one by the symmetric KL divergence averaged over the rows of X.
        """
        if self.n_experts != reference.n_experts:
            raise InvalidInput(
                Error.ALIGN_UNEQUAL, experts=self.n_experts, others=reference.n_experts
            )

        def block(X: Array) -> Array:
            there = reference.experts.kl_cost(X, self.experts)  # (n, reference, self)
            back = self.experts.kl_cost(X, reference.experts)  # (n, self, reference)
            xp = namespace(X)
            return (xp.sum(there, axis=0) + xp.sum(back, axis=0).T)[None, :, :]

        cost = np.log1p(to_numpy(self._rowwise(block, X)).sum(axis=0) / X.shape[0])
        mine, theirs = self._sets, reference._sets
        if sorted(mine) == sorted(theirs):  # experts that see the same columns, where these differ
            other = [[one != own for own in mine] for one in theirs]
            cost = cost + np.where(other, 1e3 + len(cost) * cost.max(), 0.0)
        return np.asarray(linear_sum_assignment(cost)[1])


def reordering(model: MoE, order: Any) -> Floats:
    """Return the matrix that takes the free parameters of a model to those of `take(order)`.

    The map is linear: experts change places, and the gate's reference with them (maths 6).
    """
    gate, size = model.gate, model.gate.n_parameters
    rows = np.eye(model.n_experts)[list(order), :-1]  # of the gate; that of the reference is 0
    places = np.arange(model.n_parameters) / max(model.n_parameters, 1)
    moved = model.with_vector(places).take(order).to_vector()[size:]  # experts but change places
    matrix = np.zeros((model.n_parameters, model.n_parameters))
    matrix[:size, :size] = np.kron(rows[:-1] - rows[-1], np.eye(gate.n_free_columns))
    matrix[np.arange(size, len(matrix)), np.rint(moved * len(matrix)).astype(int)] = 1.0
    return matrix


def _frozen(array: Floats) -> Floats:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def _first_nonnegative(function: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Return the smallest whole numbers in [low, high] at which an increasing function is >= 0."""
    while np.any(low < high):
        middle = np.floor((low + high) / 2)
        enough = function(middle) >= 0
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return high
