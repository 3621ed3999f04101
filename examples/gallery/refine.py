"""The pooled fit, without pooling

Sixteen small shards are merged in one round and then refined: in each further round every shard
passes over its rows once and sends sums of derivatives. The result is the maximum-likelihood
estimate from all rows, with its standard errors.
"""

import matplotlib.pyplot as plt
import numpy as np

from otmoe import DistributedMoERegressor, MoERegressor, simulate

data = simulate(8000, n_experts=2, n_features=3, softness=1.0, random_state=4)
pooled = MoERegressor(2, random_state=0).fit(data.X, data.y)
scale = pooled.inference().standard_errors.coef

far = {}
for refine in (0, 1, 2, "auto"):
    est = DistributedMoERegressor(2, n_shards=16, refine=refine, random_state=0)
    est.fit(data.X, data.y)
    model = est.model_.aligned_to(pooled.model_, data.X)
    far[str(refine)] = (np.abs(model.experts.coef - pooled.model_.experts.coef) / scale).max()
    print(f"refine={refine!s:5} at most {far[str(refine)]:.1e} standard errors from the pooled fit")

print(est.summary())

fig, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(list(far), list(far.values()), "o-")
axes.axhline(1, color="k", lw=0.8, ls=":")
axes.set(yscale="log", xlabel="refine rounds", ylabel="standard errors from the pooled fit")
