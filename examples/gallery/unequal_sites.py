"""Sites with different numbers of experts

Two sites have three kinds of rows; the third has none of the third kind and fits two experts.
Messages may have different numbers of experts. Each includes a sketch of the covariates, so that
the third site counts where it has rows (`site_weight="covariate"`); with constant weights it
would be compared where it has no rows, and stand out. What it lacks depends on the kind of a row
and not on x alone, so no common model serves it as well as its own: a warning says so.
"""

import warnings

import numpy as np

from otmoe import MoERegressor, aggregate, simulate
from otmoe.plot import FlowDisplay

data = simulate(9000, n_experts=3, n_features=4, random_state=5)
rare = np.bincount(data.z).argmin()
small = np.flatnonzero(data.z[6000:] != rare) + 6000
rows = {"Lyon": np.arange(3000), "Nantes": np.arange(3000, 6000), "Brest": small}
messages = []
for site, n_experts in {"Lyon": 3, "Nantes": 3, "Brest": 2}.items():
    X, y = data.X[rows[site]], data.y[rows[site]]
    messages.append(
        MoERegressor(n_experts, random_state=0).fit(X, y).to_message(site, X, sketch=True)
    )
    print(f"{site:7} {len(y)} rows, {n_experts} experts, {len(messages[-1].to_json())} bytes")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # the result has them
    result = aggregate(messages, n_experts=3, site_weight="covariate", random_state=0)
print(result.status)
print(*result.warnings, sep="\n")

# Rows: the experts of the site; columns: the merged experts that they went to, in shares of mass.
for record in result.sites:
    print(record.site)
    print(record.mass.round(2))
test = data.draw(5000, 1)
gap = data.truth.log_density(test.X, test.y) - result.model.log_density(test.X, test.y)
print(f"nats per row below the truth on new rows: {gap.mean():.3f}")

FlowDisplay.from_aggregation(result)
