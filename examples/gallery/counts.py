"""Counts with an exposure

Claims of insurance policies that ran for different times. The log of the time is an offset: it
enters every expert with coefficient one, and has to be given again to predict.
"""

import matplotlib.pyplot as plt
import numpy as np

from otmoe import MoERegressor

rng = np.random.default_rng(2)
n = 5000
power, town = rng.normal(size=n), rng.integers(0, 2, n)
years = rng.uniform(0.1, 2.0, n)
careful = rng.random(n) < 1 / (1 + np.exp(-2 * (0.5 - town)))
rate = np.where(careful, np.exp(0.2 + 0.1 * power), np.exp(1.6 + 0.6 * power))
claims = rng.poisson(years * rate)
X = np.column_stack([power, town])

est = MoERegressor(2, family="poisson", gate_features=[1], random_state=0)
est.fit(X, claims, offset=np.log(years))
print("log rates (intercept, power, town) of the experts:")
print(est.model_.experts.coef.round(2))

# Drivers in town are careful less often, as the gate, which uses only the town, shows.
print("share of the first expert, country and town:")
print(est.predict_expert_proba([[0.0, 0.0], [0.0, 1.0]])[:, 0].round(2))

halves = est.predict([[1.0, 1.0]] * 2, offset=np.log([0.5, 1.0]))
print(f"claims in half a year and in a year: {halves[0]:.2f}, {halves[1]:.2f}")

fig, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
at = np.linspace(-2, 2, 60)
for place, name in enumerate(["country", "town"]):
    here = town == place
    group = np.digitize(power[here], np.linspace(-2, 2, 9))
    seen = [np.bincount(group, value[here]) for value in (power, claims, years)]
    axes.plot(seen[0] / np.bincount(group), seen[1] / seen[2], f"C{place}o")
    drivers = np.column_stack([at, np.full(60, place)])
    axes.plot(at, est.predict(drivers, offset=np.zeros(60)), f"C{place}", label=name)
axes.set(xlabel="power", ylabel="claims per year, fitted and observed")
axes.legend()
