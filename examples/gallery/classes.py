"""Classes: an effect with opposite signs in two groups

A high price lowers the probability of buying in one half of the rows and raises it in the other,
and the age of the customer indicates softly which half a row is in. One logistic regression finds
no effect of the price; two experts and a gate do.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from otmoe import MoEClassifier

rng = np.random.default_rng(1)
age, price = rng.normal(size=(2, 6000))
sign = np.where(rng.random(6000) < 1 / (1 + np.exp(-4 * age)), 1, -1)
buys = np.where(rng.random(6000) < 1 / (1 + np.exp(-3 * sign * price)), "yes", "no")
X = np.column_stack([age, price])
train, test = slice(0, 4000), slice(4000, None)

one = LogisticRegression().fit(X[train], buys[train])
two = MoEClassifier(2, random_state=0).fit(X[train], buys[train])
for name, model in {"one regression": one, "two experts": two}.items():
    loss = log_loss(buys[test], model.predict_proba(X[test]))
    print(f"{name:15} log loss {loss:.3f}, accuracy {model.score(X[test], buys[test]):.3f}")

# Intercept, age and price, for the log-odds of "yes": the price has opposite signs.
print(two.model_.experts.coef.round(2))

fig, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
prices = np.linspace(-2, 2, 80)
for years, name in {-1.5: "young", 0.0: "middle-aged", 1.5: "old"}.items():
    at = np.column_stack([np.full(80, years), prices])
    axes.plot(prices, two.predict_proba(at)[:, 1], label=f"two experts, {name}")
at = np.column_stack([np.zeros(80), prices])
axes.plot(prices, one.predict_proba(at)[:, 1], "k:", label="one regression")
axes.set(xlabel="price", ylabel="probability of buying", ylim=(0, 1))
fig.legend(loc="outside right upper")
