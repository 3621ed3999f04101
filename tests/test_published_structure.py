"""Published fits that need a structure, with their sources; small tables from OTMOE_DATA."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from published import small

from otmoe import MoERegressor
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.starts import structured
from otmoe.model.structure import Structure

VIGNETTE = "Gruen and Leisch, Applications of finite mixtures of regression models (flexmix)"
PLAIN = {"family": "poisson", "alpha": 0.0, "expert_alpha": 0.0, "random_state": 0}


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")
def test_patents_by_spending_where_sales_choose_the_expert():
    # VIGNETTE, section 8, after Wang, Cockburn and Puterman (1998): -197.6753 with 10 parameters.
    table = small("patent")
    X, y = table[["lgRD", "RDS"]], table["Patents"]
    est = MoERegressor(3, expert_features=["lgRD"], gate_features=["RDS"], **PLAIN).fit(X, y)
    assert_allclose(est.log_likelihood_, -197.6753, atol=1e-3)
    assert est.fit_.rank == 10
    assert_allclose(est.bic(X, y), 437.8355, atol=2e-3)

    # The same page with the slope in common, begun at the assignment above: -216.824.
    design, counts = X.to_numpy(float), y.to_numpy(float)
    share = est.model_.responsibilities(design, counts)
    block = Rows(design, counts).block(slice(None))
    start = structured(est.model_, block, share, Structure(columns=((0, 1),), common=(1,)))
    there = em(design, counts, 3, init=start, alpha=0.0, expert_alpha=0.0)
    assert_allclose(there.log_likelihood, -216.824, atol=1e-3)
    # A search finds a higher maximum of that model.
    free = MoERegressor(
        3, expert_features=["lgRD"], gate_features=["RDS"], common=["lgRD"], **PLAIN
    ).fit(X, y)
    assert free.log_likelihood_ > -211.82 and np.ptp(free.model_.experts.coef[:, 1]) == 0


@pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")
def test_seizures_without_a_jump_at_the_start_of_treatment():
    # VIGNETTE, section 9, after Wang et al. (1996): -376.1762 and, without the jump, -376.6495.
    table = small("seizure")
    treated, day = (table["Treatment"] == "Yes") * 1.0, np.log(table["Day"] / 27)
    X = pd.DataFrame({"treated": treated, "day": day, "both": treated * day})
    how = {**PLAIN, "gate_features": "intercept"}
    y, hours = table["Seizures"], np.log(table["Hours"])
    jump = MoERegressor(2, **how).fit(X, y, offset=hours)
    assert_allclose(jump.log_likelihood_, -376.1762, atol=1e-3)
    est = MoERegressor(2, expert_features=["day", "both"], **how).fit(X, y, offset=hours)
    assert_allclose(est.log_likelihood_, -376.6495, atol=1e-3)
    assert est.fit_.rank == 7
    coef = est.model_.experts.coef[:, [0, 2, 3]]
    printed = [[1.150003, -0.283878, -2.311510], [1.458918, -0.447634, -0.458721]]
    assert_allclose(coef, printed, atol=5e-3)


def test_a_number_and_a_count_with_features_of_their_own():
    # flexmix 2.3-18 (benchmarks/flexmix.R): -1044.7677 with 13 parameters, and with one line
    # through the origin -1045.8370 with 11. Its variances divide by rows less coefficients.
    table = small("NPreg").astype(float, errors="ignore")
    X = pd.DataFrame({"x": table["x"], "x2": table["x"] ** 2})
    Y = table[["yn", "yp"]].to_numpy(float)
    how = {**PLAIN, "family": ["gaussian", "poisson"], "gate_features": "intercept"}
    est = MoERegressor(2, expert_features={"y0": ["x", "x2"], "y1": ["x"]}, **how).fit(X, Y)
    assert 0 < est.log_likelihood_ + 1044.7677 < 0.02 and est.fit_.rank == 13
    features = {"y0": [["x", "x2"], ["-intercept", "x"]], "y1": ["x"]}
    nested = MoERegressor(2, expert_features=features, **how).fit(X, Y)
    assert 0 < nested.log_likelihood_ + 1045.8370 < 0.02 and nested.fit_.rank == 11
    assert_allclose(nested.model_.experts.coef[1, 0, 1], 5, atol=0.2)  # the truth is 5 x
