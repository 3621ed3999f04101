"""Published fits in which rows share their expert, or an expert is always 0; with their sources."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from published import small
from scipy import special
from statsmodels.discrete.count_model import ZeroInflatedPoisson

from otmoe import MoE, MoERegressor
from otmoe.likelihood.fit import em
from otmoe.model.experts import LogisticExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.structure import Structure

PLAIN = {"gate_features": "intercept", "alpha": 0.0, "expert_alpha": 0.0, "random_state": 0}


@pytest.mark.parametrize(
    ("intercepts", "common", "log_likelihood", "rank"),
    [
        ([-2.5, -1.5], (1,), -181.3308, 4),
        ([-3.0, -2.3, -1.5], (1,), -159.3605, 6),
        ([-3.0, -2.3, -1.8, -1.3], (1,), -155.7540, 8),
        ([-3.0, -2.3, -1.5], (), -158.3095, 8),
    ],
)
def test_deaths_by_centre(intercepts, common, log_likelihood, rank):
    # Gruen and Leisch, Applications of finite mixtures of regression models (flexmix), section 5,
    # after Aitkin (1999): deaths in 22 centres, `| Center`. One row for each patient here: the
    # binomial coefficients are what the likelihoods differ by.
    table = small("betablocker")
    died, total = table["Deaths"].to_numpy(), table["Total"].to_numpy()
    patient = np.repeat(np.arange(len(table)), total)
    y = np.concatenate([np.arange(n) < d for d, n in zip(died, total, strict=True)]).astype(float)
    X = (table["Treatment"] == "Treated").to_numpy(float)[patient, None]
    centre, K = table["Center"].to_numpy()[patient], len(intercepts)
    start = MoE(
        SoftmaxGate.blank(K, 2, (0,)),
        LogisticExperts(np.column_stack([intercepts, np.full(K, -0.2)])),
        structure=Structure(common=common) if common else None,
    )
    fit = em(X, y, K, init=start, alpha=0.0, expert_alpha=0.0, groups=centre)
    base = np.sum(special.gammaln(total + 1) - special.gammaln(died + 1))
    base -= np.sum(special.gammaln(total - died + 1))
    assert_allclose(fit.log_likelihood + base, log_likelihood, atol=1e-3)
    assert fit.rank == rank
    if K == 3 and common:  # as flexmix prints them
        coef = fit.model.experts.coef
        assert_allclose(np.sort(coef[:, 0]), [-2.833691, -2.250163, -1.609710], atol=1e-5)
        assert_allclose(coef[:, 1], -0.258176, atol=1e-5)
        shares = special.softmax(fit.model.gate.coef[:, 0])
        assert_allclose(np.sort(shares), [0.239212, 0.249043, 0.511745], atol=1e-5)


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")
@pytest.mark.parametrize(
    ("n_experts", "common", "log_likelihood", "rank"),
    [(2, ["treated"], -181.3308, 4), (3, ["treated"], -159.3605, 6), (3, None, -158.3095, 8)],
)
def test_deaths_by_centre_as_successes_of_trials(n_experts, common, log_likelihood, rank):
    # The same with a row for each arm of a centre, found by a search.
    table = small("betablocker")
    X = pd.DataFrame({"treated": (table["Treatment"] == "Treated") * 1.0})
    Y = np.column_stack([table["Deaths"], table["Total"] - table["Deaths"]]).astype(float)
    how = {"family": "binomial", "expert_per": "group", "common": common, **PLAIN}
    est = MoERegressor(n_experts, **how).fit(X, Y, groups=table["Center"].to_numpy())
    assert_allclose(est.log_likelihood_, log_likelihood, atol=1e-3)
    assert est.fit_.rank == rank


def test_pairs_of_rows_tell_the_classes_of_npreg_apart():
    # Leisch (2004), FlexMix: A General Framework for Finite Mixture Models, section 4.2: with the
    # groups of id2, no observation is misclassified; without, 5 + 5 of 200 are.
    table = small("NPreg")
    X = np.column_stack([table["x"], table["x"] ** 2])
    groups = table["id2"].to_numpy()
    est = MoERegressor(2, expert_per="group", **PLAIN).fit(X, table["yn"], groups=groups)
    found = pd.crosstab(est.predict_expert(X, table["yn"], groups=groups), table["class"])
    assert sorted(found.to_numpy().ravel()) == [0, 0, 100, 100]


def test_teeth_of_children_with_an_expert_that_is_always_0():
    # Gruen and Leisch (2008), FlexMix Version 2, section 4.3, after Boehning et al. (1999): decayed
    # teeth with zero inflation, against the same model by statsmodels.
    table = small("dmft")
    X = pd.get_dummies(table[["Gender", "Ethnic", "Treatment"]], drop_first=True).astype(float)
    X.insert(0, "begin", np.log(table["Begin"] + 0.5))
    est = MoERegressor(2, family="poisson", zero_expert=True, **PLAIN).fit(X, table["End"])
    other = ZeroInflatedPoisson(table["End"], sm.add_constant(X)).fit(
        method="newton", maxiter=200, disp=0
    )
    assert_allclose(est.log_likelihood_, other.llf, atol=1e-6)
    found = np.append(-est.model_.gate.coef[0, 0], est.model_.experts.coef[0])
    assert_allclose(found, other.params, atol=1e-4)
