"""One expert: sites that exchange files have the generalised linear model of all their rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, special

from otmoe import MoEClassifier, MoERegressor, Policy, aggregate
from otmoe.datasets import load_visits
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.inference import refined_inference
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge

DATA = load_visits()
MOST_ROUNDS = 3


def responses():
    """Return by family a response of the table, and the estimator of a site."""
    visits = DATA.y
    return {
        "gaussian": (np.log1p(visits), MoERegressor(1)),
        "poisson": (visits, MoERegressor(1, family="poisson")),
        "negative_binomial": (visits, MoERegressor(1, family="negative_binomial")),
        "gamma": (visits + 0.5, MoERegressor(1, family="gamma")),
        "logistic": ((visits > 0).astype(float), MoEClassifier(1)),
        "multinomial": (np.digitize(visits, [1, 5]).astype(float), MoEClassifier(1)),
    }


def federated(y, est):
    """Return the inference of sites that have sent a message and answered rounds."""
    sites = {str(name): DATA.site == name for name in np.unique(DATA.site)}
    messages = [
        est.fit(DATA.X[here], y[here]).to_message(
            name, DATA.X[here], sketch=True, policy=Policy.off()
        )
        for name, here in sites.items()
    ]
    merged = aggregate(messages, 2000, random_state=0)
    rows = {name: Rows(DATA.X[here], y[here]) for name, here in sites.items()}
    weights = {name: len(found) for name, found in rows.items()}
    ridge = Ridge.of(merged.model.experts, expert_alpha=0.0)  # nor has statsmodels one
    state = begin(merged.model, weights, Scaling.of(merged.support), ridge=ridge)
    while not state.done:
        request = request_of(state)
        state = step(state, [reply_to(request, found, name) for name, found in rows.items()])
    return state.refinement.rounds, refined_inference(state.refinement)


def pooled(family, y):
    """Return coefficients and standard errors of statsmodels, on all rows: (Q, p) each."""
    import statsmodels.api as api

    X = api.add_constant(DATA.X)
    if family == "multinomial":
        fit = api.MNLogit(y, X).fit(method="newton", tol=1e-12, disp=0)
        return fit.params.T, fit.bse.T  # against the first class
    if family == "gaussian":
        fit = api.OLS(y, X).fit()
        ours = np.sqrt(fit.df_resid / len(y))  # the variance here is the maximum-likelihood one
        return fit.params[None], ours * fit.bse[None]
    if family == "negative_binomial":
        fit = api.NegativeBinomial(y, X).fit(method="newton", maxiter=100, tol=1e-12, disp=0)
        return fit.params[None, :-1], fit.bse[None, :-1]
    if family == "gamma":  # observed information, the shape being that of maximum likelihood
        fit = api.GLM(y, X, family=api.families.Gamma(api.families.links.Log())).fit(tol=1e-12)
        gap = np.mean(np.log(fit.fittedvalues / y))  # the mean of y / mu is 1
        shape = optimize.brentq(lambda a: np.log(a) - special.digamma(a) - gap, 1e-3, 1e3)
        information = (X.T * (y / fit.fittedvalues)) @ X
        return fit.params[None], np.sqrt(np.diag(np.linalg.inv(information)) / shape)[None]
    kind = {"poisson": api.families.Poisson, "logistic": api.families.Binomial}[family]
    fit = api.GLM(y, X, family=kind()).fit(tol=1e-12)
    return fit.params[None], fit.bse[None]


@pytest.mark.parametrize("family", list(responses()))
@pytest.mark.filterwarnings("ignore::UserWarning")  # sites differ: that is no matter here
def test_one_expert_is_the_pooled_glm(family):
    y, est = responses()[family]
    coef, se = pooled(family, y)
    rounds, found = federated(y, est)
    assert rounds <= MOST_ROUNDS
    if family == "multinomial":  # ours is against the last class, theirs against the first
        p = DATA.X.shape[1] + 1
        table = np.eye(2 * p)
        first, second = table[:p], table[p:]
        rows = found.linear(np.vstack([second - first, -first]))
        values = np.array([[row.estimate, row.se] for row in rows]).T.reshape(2, 2, p)
    else:
        rows = [row for row in found.table() if row.block == "expert"]
        values = np.array([[row.estimate, row.se] for row in rows]).T[:, None, :]
    assert_allclose((values[0] - coef) / se, 0, atol=1e-3)  # where rounds stop
    assert_allclose(values[1], se, rtol=1e-4)
