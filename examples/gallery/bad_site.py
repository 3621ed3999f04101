"""A site with the wrong units

One of five sites recorded its response in grams instead of kilograms. Its message does not say
so, but its predictions are far from those of the others: it is named, and left out on request.
"""

import warnings

import matplotlib.pyplot as plt

from otmoe import MoERegressor, aggregate, simulate

data = simulate(10000, n_experts=2, n_features=3, random_state=0)
messages = []
for m, site in enumerate(["Lyon", "Nantes", "Brest", "Nice", "Metz"]):
    part = slice(2000 * m, 2000 * (m + 1))
    y = data.y[part] * (1000 if site == "Brest" else 1)
    messages.append(MoERegressor(2, random_state=0).fit(data.X[part], y).to_message(site))

with warnings.catch_warnings(record=True, action="always") as caught:
    everyone = aggregate(messages, support=data.X[:2000], random_state=0)
    result = aggregate(messages, support=data.X[:2000], outliers="exclude", random_state=0)
print(*(warning.message for warning in caught), sep="\n\n")

print("\nleft out:", ", ".join(result.left_out))
for record in result.sites:
    print(f"{record.site:7} disagreement {record.disagreement:.4f} nats per row")

fig, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
for record in everyone.sites:
    colour = "tab:red" if record.flagged else "tab:blue"
    axes.plot(record.disagreement, record.site, "o", color=colour)
axes.set(xscale="log", xlabel="disagreement with the other sites, nats per row")
