"""One regression or two?

Musicians tune to a stretched scale, as in a classic experiment on the perception of tones. The
note that they choose either follows the stretch or stays an octave above the first, and which of
the two a trial shows is not recorded. The rows are simulated.
"""

import matplotlib.pyplot as plt
import numpy as np

from otmoe import MoERegressor

rng = np.random.default_rng(0)
stretch = rng.uniform(1.35, 3.0, 300)
octave = rng.random(300) < 0.6
tuned = np.where(octave, 2 + 0.1 * (stretch - 2), stretch) + rng.normal(0, 0.05, 300)
X = stretch[:, None]

fits = {k: MoERegressor(k, random_state=0).fit(X, tuned) for k in (1, 2, 3)}
for k, est in fits.items():
    print(f"{k} experts: BIC {est.bic(X, tuned):8.1f}")

# BIC chooses two. Intercept and slope of each expert, largest first: octave, then stretch.
two = fits[2]
print(two.model_.experts.coef.round(2))

fig, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.scatter(stretch, tuned, 8, c=two.predict_expert(X, tuned), cmap="tab10", vmax=9)
line = np.array([1.35, 3.0])
for intercept, slope in two.model_.experts.coef:
    axes.plot(line, intercept + slope * line, "k", lw=0.8)
axes.set(xlabel="stretch of the scale", ylabel="note chosen, over the first")
