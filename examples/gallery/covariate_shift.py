"""Sites with different covariates

A children's hospital has little information about the old. With sketches of their covariates,
sites can be weighted where their rows are: on the same messages, covariate-dependent weights lose
less than constant ones.
"""

import matplotlib.pyplot as plt
import numpy as np

from otmoe import MoERegressor, aggregate, simulate

data = simulate(12000, n_experts=2, n_features=2, softness=1.0, random_state=3)
young = data.X[:, 0] < np.median(data.X[:, 0])
own = np.random.default_rng(0).random(12000) < 0.97  # 3 % of the rows lie at the other hospital
messages = []
for site, here in {"children": young == own, "old": young != own}.items():
    X, y = data.X[here], data.y[here]
    messages.append(MoERegressor(2, random_state=0).fit(X, y).to_message(site, X, sketch=True))

test = data.draw(20000, 1)
best = data.truth.log_density(test.X, test.y).mean()
for weight in (None, "covariate"):
    result = aggregate(messages, site_weight=weight, random_state=0)
    loss = best - result.model.log_density(test.X, test.y).mean()
    print(f"site_weight={weight!r:11}: {1000 * loss:.2f} thousandths of a nat lost per row")

# Constant weights are the same at every age; this is where the rows of the sites are.
fig, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, here in {"children": young == own, "old": young != own}.items():
    axes.hist(data.X[here, 0], bins=60, alpha=0.6, label=f"rows of the site {name!r}")
axes.set(xlabel="age (first feature)", ylabel="rows")
axes.legend()
