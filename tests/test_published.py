"""Fits of public tables against values that others have printed.

Tables that are not part of any package of the tests are looked for in the folder `small` of
OTMOE_DATA; without it, tests of them are skipped.
"""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from otmoe import MoERegressor
from otmoe.evaluation.scores import score_rows
from otmoe.likelihood.fit import em
from otmoe.model.experts import GaussianExperts


def table(name):
    """Return the columns of a table by name, numbers where they are numbers."""
    path = Path(os.environ.get("OTMOE_DATA", "")) / "small" / f"{name}.csv"
    if "OTMOE_DATA" not in os.environ or not path.exists():
        pytest.skip(f"{name}.csv is not there: set OTMOE_DATA to a folder with small/{name}.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    return {key: _numbers(column) for key, column in columns.items()}


def _numbers(column):
    try:
        return column.astype(float)
    except ValueError:
        return column


def mixture(n_experts, family="gaussian"):
    """Return mixtures of regressions with constant weights and no ridge."""
    return MoERegressor(
        n_experts,
        family=family,
        gate_features="intercept",
        alpha=0,
        expert_alpha=0,
        tol=1e-9,
        n_init=10,
        random_state=0,
    )


def by(coef, column):
    """Return coefficients of experts in the order of one of them."""
    return coef[np.argsort(coef[:, column])]


def shares(est):
    """Return the constant weights of the experts, smallest first."""
    return np.sort(special.softmax(est.model_.gate.coef[:, 0]))


# -- Leisch (2004), FlexMix: A General Framework for Finite Mixture Models, J. Stat. Software 11(8);
# -- Gruen and Leisch, the vignettes "flexmix-intro" and "regression-examples" of flexmix


def test_counts_of_npreg():
    data = table("NPreg")
    est = mixture(2, "poisson").fit(data["x"][:, None], data["yp"])
    # printed: 'log Lik.' -440.6424 (df=5), where EM stopped; the maximum is 0.0021 above
    found = est.log_density(data["x"][:, None], data["yp"]).sum()
    assert_allclose(found, -440.6403, atol=1e-3)
    assert found >= -440.6424
    expected = [[1.8643, -0.1619], [1.2473, 0.0647]]
    assert_allclose(by(est.model_.experts.coef, 1), expected, atol=2e-3)


def test_seizures_of_one_patient():
    data = table("seizure")
    treated = (data["Treatment"] == "Yes").astype(float)
    day = np.log(data["Day"])
    X = np.column_stack([treated, day, treated * day])
    offset = np.log(data["Hours"])
    est = mixture(2, "poisson").fit(X, data["Seizures"], offset=offset)
    found = est.log_density(X, data["Seizures"], offset=offset).sum()
    assert_allclose(found, -376.1762, atol=1e-3)
    assert_allclose(shares(est), [0.276, 0.724], atol=5e-4)
    expected = [[2.070226, 7.432200, -0.270550, -2.276359], [2.84422, 1.30319, -0.40593, -0.43139]]
    assert_allclose(by(est.model_.experts.coef, 0), expected, atol=1.5e-3)  # where EM stopped
    order = np.argsort(est.model_.experts.coef[:, 0])
    found = est.inference(X, data["Seizures"], offset=offset).standard_errors.coef[order]
    expected = [[0.092252, 0.548865, 0.042320, 0.147857], [0.25898, 0.54448, 0.10014, 0.15265]]
    assert_allclose(found, expected, rtol=0.01)


def test_deaths_of_betablocker_with_one_expert():
    data = table("betablocker")
    X = (data["Treatment"] == "Treated").astype(float)[:, None]
    Y = np.column_stack([data["Deaths"], data["Total"] - data["Deaths"]])
    est = mixture(1, "binomial").fit(X, Y)
    assert_allclose(est.model_.experts.coef, [[-2.1971, -0.2574]], atol=5e-5)
    assert_allclose(est.aic(X, Y), 527.2, atol=0.05)
    found = score_rows(est.model_, X, Y)
    assert_allclose(44 * found.measures["deviance"], 305.8, atol=0.05)
    assert_allclose(44 * found.null["deviance"], 333.0, atol=0.05)


# -- Benaglia et al. (2009), mixtools: An R Package for Analyzing Finite Mixture Models, J. Stat.
# -- Software 32(6): maximum likelihood, where flexmix divides variances by n - p


@pytest.mark.parametrize(
    ("name", "x", "y", "log_likelihood", "coef", "sd"),
    [
        (
            "tonedata",
            "stretchratio",
            "tuned",
            141.1984,
            [[-0.01927, 0.99230], [1.91638, 0.04255]],
            [0.13283, 0.04619],
        ),
        (
            "CO2data",
            "GNP",
            "CO2",
            -66.93977,
            [[1.41514, 0.67660], [8.67897, -0.02334]],
            [0.80939, 2.04932],
        ),
    ],
)
def test_two_lines(name, x, y, log_likelihood, coef, sd):
    data = table(name)
    X = data[x][:, None]
    est = mixture(2).fit(X, data[y])
    model = est.model_
    higher = est.log_density(X, data[y]).sum() - log_likelihood
    if name == "tonedata":  # 56 of the 150 tones were tuned within .005 of what was heard
        assert_allclose(higher, 4.2184, atol=1e-3)
        start = replace(est.model_, experts=GaussianExperts(np.array(coef), np.array(sd) ** 2))
        fit = em(X, data[y], init=start, alpha=0.0)
        model, higher = fit.model, fit.log_likelihood - log_likelihood
    assert_allclose(higher, 0.0, atol=1e-3)
    order = np.argsort(model.experts.coef[:, 0])
    assert_allclose(model.experts.coef[order], coef, atol=2e-5)
    assert_allclose(np.sqrt(model.experts.var[order]), sd, atol=2e-5)
