"""A report for decision makers

What each site contributed, where its experts went, and whether to trust the result: `report`
writes one HTML page that needs no network. {download}`Open this one <report.html>`.
"""

from pathlib import Path

from otmoe import MoERegressor, aggregate, report, simulate
from otmoe.plot import FlowDisplay

data = simulate(6000, n_experts=3, n_features=4, softness=0.5, random_state=0)
messages = []
for m, site in enumerate(["Lyon", "Nantes", "Brest", "Nice"]):
    part = slice(1500 * m, 1500 * (m + 1))
    fit = MoERegressor(3, random_state=0).fit(data.X[part], data.y[part])
    messages.append(fit.to_message(site))
result = aggregate(messages, support=data.X[:2000], random_state=0)

report(result, "report.html", title="Four sites, one model")
print(f"report.html: {Path('report.html').stat().st_size / 1000:.0f} kB")

# One of its plots, with matplotlib.
FlowDisplay.from_aggregation(result)
