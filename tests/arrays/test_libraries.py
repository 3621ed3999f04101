"""The core on other arrays than NumPy's: array-api-strict always, torch where it is installed."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
from families import FAMILIES
from oracles import random_model, random_rows

from otmoe.arrays.numerics import to_numpy
from otmoe.inference import observed_inference
from otmoe.likelihood.fit import em
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import e_step


@pytest.fixture(params=["array_api_strict", "torch"])
def xp(request):
    return pytest.importorskip(request.param)


@pytest.fixture(params=sorted(FAMILIES))
def problem(request, rng):
    model = random_model(rng, n_experts=2, n_features=3, family=request.param)
    X, y = random_rows(rng, model, n=400)
    return model, X, y, rng.uniform(0.5, 2.0, 400)


def relative_gap(a, b):
    return np.max(np.abs(a - b)) / (1 + np.max(np.abs(b)))


@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_a_fit_agrees_with_numpys(xp, problem, columns):
    model, X, y, weight = problem
    family = model.experts.family
    options = dict(family=family, n_classes=3, n_init=2, gate_columns=columns, random_state=0)
    ours = em(X, y, 2, sample_weight=weight, **options)
    theirs = em(xp.asarray(X), xp.asarray(y), 2, sample_weight=xp.asarray(weight), **options)
    assert relative_gap(theirs.model.to_vector(), ours.model.to_vector()) < 1e-8
    assert theirs.log_likelihood == pytest.approx(ours.log_likelihood, rel=1e-12)


def test_sums_over_rows_agree_with_numpys(xp, problem):
    model, X, y, weight = problem
    here, there = Rows(X, y, weight), Rows(*map(xp.asarray, (X, y, weight)))
    a, b = observed_information(model, there), observed_information(model, here)
    assert relative_gap(a.matrix, b.matrix) < 1e-12
    assert relative_gap(a.score, b.score) < 1e-12
    c, d = e_step(model, there).experts, e_step(model, here).experts
    assert relative_gap(c.information, d.information) < 1e-12


def test_predictions_stay_in_the_namespace(xp, problem):
    model, X, y, _ = problem
    alone = dict.fromkeys(("predict", "gate_prob", "expert_mean"), (X,))
    both = dict.fromkeys(("log_density", "responsibilities"), (X, y))
    for name, arguments in (alone | both).items():
        result = getattr(model, name)(*map(xp.asarray, arguments))
        assert type(result) is type(xp.asarray(X)), name
        assert relative_gap(to_numpy(result), getattr(model, name)(*arguments)) < 1e-12


def test_inference_takes_other_arrays(xp, problem):
    model, X, y, _ = problem
    family = model.experts.family
    model = em(X, y, 2, family=family, n_classes=3, alpha=1.0, init=model).model
    kinds = {"alpha": 1.0, "kind": "sandwich"}
    ours = observed_inference(model, X, y, **kinds)
    theirs = observed_inference(model, xp.asarray(X), xp.asarray(y), **kinds)
    a, b = theirs.covariance, ours.covariance
    assert relative_gap(a.basis @ a.core @ a.basis.T, b.basis @ b.core @ b.basis.T) < 1e-6
    a, b = theirs.mean_interval(xp.asarray(X)), ours.mean_interval(X)
    assert relative_gap(a.mean, b.mean) < 1e-12
    np.testing.assert_allclose(a.se, b.se, rtol=1e-6)


_DISPATCH = """
import numpy as np, sklearn, torch
from otmoe import MoEClassifier, MoERegressor, simulate

for family, est in [
    ("gaussian", MoERegressor(2, n_init=2, random_state=0)),
    ("poisson", MoERegressor(2, family="poisson", n_init=2, random_state=0)),
    ("logistic", MoEClassifier(2, n_init=2, random_state=0)),
    ("multinomial", MoEClassifier(2, n_init=2, random_state=0)),
]:
    data = simulate(600, 2, 3, family=family, random_state=0)
    weight = np.arange(600) % 3 + 1.0
    ours = sklearn.clone(est).fit(data.X, data.y, sample_weight=weight)
    with sklearn.config_context(array_api_dispatch=True):
        X, y = torch.asarray(data.X), torch.asarray(data.y)
        theirs = sklearn.clone(est).fit(X, y, sample_weight=torch.asarray(weight))
        predicted = theirs.predict(X)
        assert isinstance(predicted, torch.Tensor)
        assert isinstance(theirs.log_density(X, y), torch.Tensor)
        assert isinstance(theirs.predict_expert(X, y), torch.Tensor)
        np.testing.assert_allclose(predicted, ours.predict(data.X), atol=1e-8)
        # scikit-learn computes the accuracy of tensors in single precision
        assert abs(theirs.score(X, y) - ours.score(data.X, data.y)) < 1e-6
    # Newton's method ends within 1e-8 standard errors of the maximum, on either side of it.
    known = ours.inference(data.X, data.y, sample_weight=weight).covariance
    se = np.sqrt(np.diag(known.basis @ known.core @ known.basis.T))
    gap = np.abs((theirs.model_.to_vector() - ours.model_.to_vector()) / se).max()
    assert gap < 2e-8, (family, gap)
print("same")
"""


def test_estimators_take_tensors_under_scikit_learns_dispatch():
    """In a process of its own: SciPy reads SCIPY_ARRAY_API when it is imported."""
    pytest.importorskip("torch")
    how = {"env": {**os.environ, "SCIPY_ARRAY_API": "1"}, "capture_output": True, "text": True}
    run = subprocess.run([sys.executable, "-c", _DISPATCH], **how)
    assert run.stdout.strip() == "same", run.stderr


def test_without_numba_the_plain_version_serves(problem, monkeypatch):
    model, X, y, weight = problem
    numerics = importlib.import_module("otmoe.arrays.numerics")
    rows = Rows(X, y, weight)
    compiled = observed_information(model, rows)
    monkeypatch.setattr(numerics, "kernels", None)
    plain = observed_information(model, rows)
    assert relative_gap(plain.matrix, compiled.matrix) < 1e-12
    assert relative_gap(plain.score, compiled.score) < 1e-12
