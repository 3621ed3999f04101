"""Published fits that need a structure, with their sources; small tables from OTMOE_DATA."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from otmoe import MoERegressor
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.starts import structured
from otmoe.model.structure import Structure

VIGNETTE = "Gruen and Leisch, Applications of finite mixtures of regression models (flexmix)"
PLAIN = {"family": "poisson", "alpha": 0.0, "expert_alpha": 0.0, "random_state": 0}


def small(name):
    folder = os.environ.get("OTMOE_DATA")
    path = Path(folder or "", "small", f"{name}.csv")
    if folder is None or not path.exists():
        pytest.skip("OTMOE_DATA does not say where the small tables are")
    return pd.read_csv(path)


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
