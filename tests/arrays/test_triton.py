"""The kernels for CUDA tensors, run by Triton's interpreter on tensors in memory."""

import os
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

os.environ["TRITON_INTERPRET"] = "1"  # before it is imported

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
kernels = pytest.importorskip("otmoe.arrays.triton")

from otmoe.arrays import numerics  # noqa: E402
from otmoe.arrays.pairs import unpacked  # noqa: E402
from otmoe.likelihood import fused, information, statistics  # noqa: E402
from otmoe.likelihood.rows import Block  # noqa: E402
from otmoe.model.experts import GaussianExperts  # noqa: E402
from otmoe.model.gate import SoftmaxGate  # noqa: E402
from otmoe.model.mixture import MoE  # noqa: E402

SHAPES = [(700, 20, 3), (31, 1, 1), (200, 15, 2), (300, 62, 5)]  # rows, features, experts


def columnwise(Z):
    return torch.asarray(np.ascontiguousarray(Z.T)).T


@pytest.fixture(params=SHAPES, ids=str)
def case(request):
    n, d, K = request.param
    rng = np.random.default_rng(0)
    Z = np.hstack([np.ones((n, 1)), rng.standard_normal((n, d))])
    return rng, Z, K


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, np.float32])
def test_design_is_standardised(case, layout):
    rng, Z, _ = case
    X = layout(3 * Z[:, 1:] + 5)
    center, scale = X.mean(axis=0, dtype=float), np.append(np.inf, X.std(axis=0)[1:])
    found = kernels.design(torch.asarray(X), torch.asarray(center), torch.asarray(1 / scale))
    np.testing.assert_allclose(found[:, 0], 1.0)
    np.testing.assert_allclose(found[:, 1:], (X - center) / scale, atol=1e-14)


def test_products_and_sums(case):
    rng, Z, K = case
    coef, weights = rng.standard_normal((K, Z.shape[1])), rng.random((len(Z), 2 * K + 1))
    X = columnwise(Z)
    np.testing.assert_allclose(kernels.times(X, torch.asarray(coef)), Z @ coef.T, atol=1e-12)
    grams = np.einsum("nk,ni,nj->kij", weights, Z, Z)
    for of_grams in (0, K, 2 * K + 1):
        found = kernels.weighted_sums(
            X, *torch.asarray(weights).split([of_grams, weights.shape[1] - of_grams], dim=1)
        )
        wanted = [grams[:of_grams].ravel(), (weights[:, of_grams:].T @ Z).ravel()]
        np.testing.assert_allclose(found, np.concatenate(wanted), atol=1e-11)


def test_pairs(case):
    rng, Z, K = case
    A, n = K + 2, len(Z)
    t, less, more = (rng.standard_normal((size, n)) for size in (A, K - 1, 3))
    where = rng.integers(-1, 3, size=(A + 1, A + 1))
    found = kernels.pair_gram(columnwise(Z), *map(torch.asarray, (t, less, more)), where)
    for gram, a, b in zip(unpacked(found, Z.shape[1]), *np.triu_indices(A), strict=True):
        weight = t[a] * t[b]
        weight = weight - less[a] * less[b] if b < len(less) else weight
        weight = weight + more[where[a, b]] if where[a, b] >= 0 else weight
        np.testing.assert_allclose(gram, Z.T @ (weight[:, None] * Z), atol=1e-10)


def test_softmax_far_apart(case):
    rng, Z, K = case
    a = 300 * rng.standard_normal((len(Z), K))
    prob, log_sum = kernels.softmax(torch.asarray(a))
    np.testing.assert_allclose(prob, special.softmax(a, axis=1), atol=1e-15)
    np.testing.assert_allclose(log_sum, special.logsumexp(a, axis=1), rtol=1e-14)


@pytest.fixture(params=[(2, False), (3, True), (5, True)], ids=str)
def mixture(request):
    """Return a Gaussian mixture, rows for it, and the same rows as tensors."""
    n_experts, weighted = request.param
    rng = np.random.default_rng(1)
    n, p = 300, 4
    gate = rng.standard_normal((n_experts, p))
    experts = GaussianExperts(rng.standard_normal((n_experts, p)), rng.uniform(0.2, 2, n_experts))
    model = MoE(SoftmaxGate(gate - gate[-1]), experts)
    X = np.hstack([np.ones((n, 1)), rng.standard_normal((n, p - 1))])
    y, weight = 2 * rng.standard_normal(n), rng.random(n) if weighted else None
    tensors = [None if a is None else torch.asarray(a) for a in (y, weight)]
    there = Block(columnwise(X), *tensors)
    return model, Block(X, y, weight), there


@pytest.fixture
def on_device(monkeypatch):
    """Let tensors in memory take the way of those on a CUDA device."""
    for module in (fused, numerics):
        monkeypatch.setattr(
            module, "cuda_kernels", lambda X: kernels if torch.is_tensor(X) else None
        )


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_an_em_iteration_in_one_read(mixture, columns):
    model, here, there = mixture
    used = [0, 1, 2, 3] if columns is None else list(columns)
    gate = np.where(np.isin(np.arange(4), used), model.gate.coef, 0.0)
    model = replace(model, gate=SoftmaxGate(gate, columns))
    wanted = statistics._summed(model, here.X, statistics._weights(model, here))
    found = fused.fit_sums(model, there)
    for name, value in wanted._asdict().items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.usefixtures("on_device")
def test_an_information_in_one_read(mixture, matrix):
    model, here, there = mixture
    # asked for the densities of rows, the sums in memory are not those of a kernel
    wanted = information._block_information(model, here, matrix, np.zeros(len(here.y)))
    found = information._block_information(model, there, matrix)
    for name, value in vars(wanted).items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-10, atol=1e-10)
