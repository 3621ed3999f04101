"""Twelve hospitals that differ

Every hospital has its own intercept and its own slope of age. One reply of each about the common
model gives the standard deviation between hospitals, a test that they agree, and prediction
intervals for the coefficients of a thirteenth hospital. Small hospitals are shrunk towards the
mean more than large ones.
"""

from dataclasses import replace

import numpy as np

from otmoe import MoERegressor, simulate
from otmoe.inference import between_sites
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.plot import ForestDisplay, SpreadDisplay

NAMES = "Lyon Nantes Brest Nice Metz Dijon Lille Rennes Tours Nancy Caen Reims".split()
rng = np.random.default_rng(1)
sizes = rng.integers(80, 800, len(NAMES))
data = simulate(int(sizes.sum()), n_experts=2, n_features=3, softness=1.0, random_state=0)
place = np.repeat(np.arange(len(NAMES)), sizes)
shift, slope = rng.normal(size=(2, len(NAMES)))
y = data.y + 0.6 * shift[place] + 0.3 * slope[place] * data.X[:, 0]

model = MoERegressor(2, random_state=0).fit(data.X, y).model_
model = replace(model, feature_names=("age", "body mass index", "blood pressure"))
scaling = Scaling.of(data.X)
replies = [
    site_information(name, model, scaling, Rows(data.X[place == m], y[place == m]), scatter=True)
    for m, name in enumerate(NAMES)
]
between = between_sites(model, scaling, scaling, replies)
print(between.summary())

ForestDisplay.from_between(between, "age", expert=0)
SpreadDisplay.from_between(between)
