"""Six sites that do not pool their rows: one message each, then rounds to the pooled fit.

Prints the line that README.md quotes; a test compares them.
"""

import numpy as np

from otmoe import MoERegressor, aggregate
from otmoe.datasets import load_visits
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.likelihood.rows import Rows, Scaling


def main(n_experts: int = 2) -> str:
    data = load_visits()
    sites = {str(name): data.site == name for name in np.unique(data.site)}
    messages = []
    for name, here in sites.items():
        est = MoERegressor(n_experts, family="poisson", random_state=0)
        est.fit(data.X[here], data.y[here])
        messages.append(est.to_message(name, data.X[here], sketch=True))
    merged = aggregate(messages, 4000, random_state=0)

    rows = {name: Rows(data.X[here], data.y[here]) for name, here in sites.items()}
    scaling = Scaling.of(merged.support)  # drawn from the sketches
    state = begin(merged.model, {name: len(r) for name, r in rows.items()}, scaling)
    sent = []
    while not state.done:
        request = request_of(state)
        replies = [reply_to(request, here, name) for name, here in rows.items()]
        sent += [len(reply.to_json()) for reply in replies]
        state = step(state, replies)

    pooled = MoERegressor(n_experts, family="poisson", random_state=0).fit(data.X, data.y)
    best = float(pooled.log_density(data.X, data.y).sum())
    below = best - float(merged.model.log_density(data.X, data.y).sum())
    errors = pooled.inference().standard_errors.coef
    refined = state.refinement.model.aligned_to(pooled.model_, data.X)
    apart = np.abs(refined.experts.coef - pooled.model_.experts.coef) / errors
    assert apart.max() < 1e-6
    sizes = [len(message.to_json()) for message in messages]
    return (
        f"{len(sites)} sites, {len(data.y):,} rows: one message of {np.mean(sizes) / 1000:.1f} kB "
        f"per site gives a model {below:.1f} nats below the pooled fit ({below / len(data.y):.3f} "
        f"per row); {state.refinement.rounds} rounds of {np.mean(sent) / 1000:.0f} kB per site "
        "make it the pooled fit, every coefficient to a millionth of its standard error."
    )


if __name__ == "__main__":
    print(main())
