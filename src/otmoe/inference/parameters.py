"""The free parameters of a model by name, and the mean's derivatives in them (maths 15)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Array, Floats, to_numpy
from otmoe.model.mixture import MoE


@dataclass(frozen=True)
class Parameter:
    """What a number is about.

    Attributes
    ----------
    block : {"gate", "expert", "variance", "linear"}
        The free parameter of a variance, or another dispersion, is its logarithm. A linear
        combination is of no expert.
    expert : int or None
    against : int or None
        The gate's reference expert, for its coefficients.
    label : object
        The class that the coefficient is about, in classifiers; else None.
    term : str
        Name of a column of the design, "variance" or "dispersion", or what else it is called.
    """

    block: str
    expert: int | None
    against: int | None
    label: Any
    term: str

    def __str__(self) -> str:
        who = self.block if self.expert is None else f"{self.block} {self.expert}"
        who += "" if self.against is None else f" against {self.against}"
        who += "" if self.label is None else f", class {self.label}"
        return (
            f"log {self.term} {self.expert}" if self.block == "variance" else f"{who}: {self.term}"
        )


def parameters(model: MoE) -> tuple[Parameter, ...]:
    """Return the free parameters in the order of :meth:`MoE.to_vector`.

    Examples
    --------
    >>> from otmoe import simulate
    >>> truth = simulate(10, 2, 1, random_state=0).truth
    >>> [str(parameter) for parameter in parameters(truth)]  # doctest: +NORMALIZE_WHITESPACE
    ['gate 0 against 1: intercept', 'gate 0 against 1: x0',
     'expert 0: intercept', 'expert 0: x0', 'expert 1: intercept', 'expert 1: x0',
     'log variance 0', 'log variance 1']
    """
    K, terms = model.n_experts, model.terms
    columns = range(len(terms)) if model.gate.columns is None else model.gate.columns
    return (
        *(Parameter("gate", k, K - 1, None, terms[j]) for k in range(K - 1) for j in columns),
        *(
            Parameter("expert", k, None, label, before + term)
            for k in range(K)
            for before in [f"{name}: " for name in model.experts.responses] or [""]
            for label in _labels(model)
            for term in terms
        ),
        *(
            Parameter("variance", k, None, None, name)
            for name in model.experts.dispersions
            for k in range(K)
        ),
    )


def unseen(model: MoE) -> Floats:
    """Say which parameters are zero because an expert does not see their column, (P,)."""
    basis = model.basis
    if basis is None:
        return np.zeros(model.n_parameters, dtype=bool)
    return np.asarray(~np.any(basis != 0, axis=1))


def _labels(model: MoE) -> list[Any]:
    """Return the classes that an expert's coefficients are about; [None] if there are none."""
    Q = model.experts.n_linear
    if model.classes is None:
        return [None] if Q == 1 or model.experts.responses else list(range(Q))
    classes = np.asarray(model.classes).tolist()
    return classes[1:] if len(classes) == 2 and Q == 1 else classes[:Q]


def mean_gradient(model: MoE, X: Array, offset: Array | None = None) -> tuple[Floats, Floats]:
    """Return the mean of y and its derivatives in the free parameters.

    Parameters
    ----------
    model : MoE
    X : array of shape (n, p)
        Design.
    offset : array of shape (n,), optional

    Returns
    -------
    mean : ndarray of shape (n, M)
        M is the number of classes of multinomial experts, or 1.
    gradient : ndarray of shape (n, M, P)
    """
    experts = model.experts
    eta = experts.predictor(X, offset)
    response = experts.response(eta)
    mu, pi = to_numpy(response.mean), to_numpy(model.gate.prob(X))
    mu = mu[:, :, None] if mu.ndim == 2 else mu
    n, K, M = mu.shape
    mean = np.sum(pi[:, :, None] * mu, axis=1)
    slope, Q = experts.mean_slope(eta), experts.n_linear
    X, seen = to_numpy(X), to_numpy(model.gate.design(X))
    gate = pi[:, :-1, None] * (mu[:, :-1] - mean[:, None, :])
    gradient = np.zeros((n, M, model.n_parameters))
    split = model.gate.n_parameters
    gradient[:, :, :split] = np.einsum("nkm,nq->nmkq", gate, seen).reshape(n, M, split)
    weight = pi[:, :, None, None] * slope
    size = K * Q * X.shape[1]
    gradient[:, :, split : split + size] = np.einsum("nkmq,np->nmkqp", weight, X).reshape(
        n, M, size
    )
    return mean, gradient
