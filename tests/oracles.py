"""Slow versions of what otmoe computes, each short enough to be checked by reading."""

from dataclasses import replace

import numpy as np
from families import FAMILIES
from scipy import optimize, special

from otmoe.documents.message import LocalModel
from otmoe.inference.between import between_sites
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE

# -- small random problems ---------------------------------------------------------------------


def random_model(rng, n_experts=2, n_features=2, columns=None, family="gaussian"):
    """Draw a model whose experts overlap."""
    gate = SoftmaxGate.blank(n_experts, n_features + 1, columns)
    return MoE(
        gate.with_vector(rng.normal(size=gate.n_parameters)),
        FAMILIES[family].make(rng, n_experts, n_features + 1),
    )


def nearby(rng, model, noise=0.1):
    """Draw a model around another."""
    return model.with_vector(model.to_vector() + noise * rng.normal(size=model.n_parameters))


def gap(a, b):
    """Return the largest difference of parameters, of gates on centred columns."""
    parts = [(a.gate.centred, b.gate.centred), (a.experts.to_vector(), b.experts.to_vector())]
    return max(np.abs(x - y).max(initial=0) for x, y in parts)


def distance(found, fit, X, y, weight=None):
    """Return the distance of two models in standard errors of the second."""
    scaling = Scaling.of(X)
    there = site_information("", fit, scaling, Rows(X, y, weight)).information.matrix
    step = scaling.from_user(found).to_vector() - scaling.from_user(fit).to_vector()
    return float(np.sqrt(step @ there @ step))


def random_rows(rng, model, n=200):
    """Draw rows from a model, with features on unequal scales."""
    d = model.n_features
    X = rng.normal(size=(n, d)) * np.linspace(0.7, 1.4, d) + 0.3
    return X, model.sample(X, rng)[0].astype(float)


def differing_sites(rng, model, n_sites=6, n=80, spread=0.3):
    """Return rows of sites, by name, each drawn from a model around the given one."""
    return {
        f"site {m}": Rows(*random_rows(rng, nearby(rng, model, spread), n)) for m in range(n_sites)
    }


def how_they_differ(model, sites, **options):
    """Return how sites differ, from what they say about a model."""
    pooled = Scaling.of(np.concatenate([rows.X for rows in sites.values()]))
    scaling = Scaling.of(next(iter(sites.values())).X)
    replies = [
        site_information(name, model, scaling, rows, scatter=True) for name, rows in sites.items()
    ]
    return between_sites(model, scaling, pooled, replies, **options)


# -- the model ---------------------------------------------------------------------------------


def with_ones(X):
    return np.column_stack([np.ones(len(X)), X])


def joint_log_density(model, X, y):
    """Return log pi_k(x) + log phi_k(y | x), (n, K)."""
    D = with_ones(X)
    log_gate = special.log_softmax(D @ model.gate.coef.T, axis=1)
    return log_gate + FAMILIES[model.experts.family].log_prob(model.experts, D, y[:, None])


def log_density(model, X, y):
    return special.logsumexp(joint_log_density(model, X, y), axis=1)


def responsibilities(model, X, y):
    """Bayes' rule."""
    return np.exp(joint_log_density(model, X, y) - log_density(model, X, y)[:, None])


def log_likelihood(model, X, y, weight=None):
    return np.sum(log_density(model, X, y) * (1.0 if weight is None else weight))


def penalty(model, X, alpha, weight=None, expert_alpha=None):
    """Return the centred ridge of the gate, and that of experts without a variance.

    Both act on the coefficients of standardised features z, where x = mean + sd z; the experts'
    intercepts there bear a hundredth. By default `expert_alpha` is that of the family.
    """
    mean = np.average(X, axis=0, weights=weight)
    sd = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    T = np.diag(np.append(1.0, sd))
    T[1:, 0] = mean
    gate = model.gate.coef @ T
    value = alpha / 2 * np.sum((gate - gate.mean(axis=0)) ** 2)
    if not model.experts.has_scale:
        coef = model.experts.coef @ T
        if coef.ndim == 3:
            C = coef.shape[1]
            coef = np.sqrt(C / (C - 1)) * (coef - coef.mean(axis=1, keepdims=True))
        ridge = max(model.experts.expert_alpha if expert_alpha is None else expert_alpha, 1e-5)
        value += ridge / 2 * (np.sum(coef[..., 1:] ** 2) + np.sum(coef[..., 0] ** 2) / 100)
        if model.experts.dispersion is not None:
            value += ridge / 2 * model.experts.held * np.sum(np.log(model.experts.dispersion) ** 2)
    return value


def penalised_log_likelihood(model, X, y, alpha=0.0, weight=None, expert_alpha=None):
    return log_likelihood(model, X, y, weight) - penalty(model, X, alpha, weight, expert_alpha)


def never_falls(trace):
    """Return whether a trace never falls by more than the rounding of its values."""
    return np.diff(trace).min(initial=0) >= -1e-11 * abs(trace[-1])


# -- calculus ----------------------------------------------------------------------------------


def jacobian(function, x, step=1e-5):
    """Central differences: the gradient of a scalar function, the Jacobian of a vector one."""
    shifts = step * np.eye(len(x))
    return np.stack([(function(x + s) - function(x - s)) / (2 * step) for s in shifts], axis=-1)


def minimum(loss, x, gtol, most=1e-4):
    """Return where a general-purpose optimiser ends; the gradient there is `most` at most."""
    slope = {"jac": lambda vector: jacobian(loss, vector), "options": {"gtol": gtol}}
    found = optimize.minimize(loss, x, method="BFGS", **slope)
    assert np.abs(found.jac).max() < most, found.message
    return found.x


# -- fits --------------------------------------------------------------------------------------


def least_squares(X, y, weight):
    """Return the weighted least-squares coefficients of a design, and the mean squared residual."""
    root = np.sqrt(weight)
    coef = np.linalg.lstsq(X * root[:, None], y * root)[0]
    return coef, np.average((y - X @ coef) ** 2, weights=weight)


def gate_objective(free, X, target, alpha):
    """Return minus the gate's objective and its gradient; X has the columns that the gate uses."""
    K = target.shape[1]
    coef = np.vstack([free.reshape(K - 1, -1), np.zeros(X.shape[1])])
    log_prob = special.log_softmax(X @ coef.T, axis=1)
    centred = coef - coef.mean(axis=0)
    value = np.sum(target * log_prob) - alpha / 2 * np.sum(centred**2)
    residual = target - target.sum(axis=1, keepdims=True) * np.exp(log_prob)
    return -value, -(residual.T @ X - alpha * centred)[:-1].ravel()


def maximum_likelihood(start, X, y, alpha=0.0, weight=None):
    """Return the (penalised) maximum that a general-purpose optimiser finds from `start`."""

    def loss(vector):
        return -penalised_log_likelihood(start.with_vector(vector), X, y, alpha, weight)

    return start.with_vector(minimum(loss, start.to_vector(), 1e-5))


# -- relaxed transport -------------------------------------------------------------------------


def nearest_targets(value):
    """Return the first target of the largest value, and that value, for values (n, L, K)."""
    n, L, K = value.shape
    index, best = np.zeros((n, L), dtype=int), np.empty((n, L))
    for i in range(n):
        for s in range(L):
            best[i, s] = value[i, s, 0]
            for k in range(1, K):
                if value[i, s, k] > best[i, s]:
                    index[i, s], best[i, s] = k, value[i, s, k]
    return index, best


def square_values(mean, var, center, precision, constant):
    """Return constant - precision / 2 * ((mean - center)^2 + var), (n, L, K)."""
    (n, L), K = mean.shape, len(precision)
    var = np.broadcast_to(var, (n, L))
    value = np.empty((n, L, K))
    for i, s, k in np.ndindex(n, L, K):
        square = (mean[i, s] - center[i, k]) ** 2 + var[i, s]
        value[i, s, k] = constant[k] - precision[k] / 2 * square
    return value


def linear_values(mean, eta, cumulant):
    """Return mean' eta - cumulant, (n, L, K)."""
    n, L, K = *mean.shape[:2], eta.shape[1]
    value = np.empty((n, L, K))
    for i, s, k in np.ndindex(n, L, K):
        value[i, s, k] = np.dot(mean[i, s], eta[i, k]) - cumulant[i, k]
    return value


def collected(index, weight, mean, var, n_targets):
    """Return mass, mean and variance of what every target receives, (n, K) each."""
    n, L = index.shape
    var = np.broadcast_to(var, (n, L))
    mass, spread = np.zeros((n, n_targets)), np.zeros((n, n_targets))
    center = np.zeros((n, n_targets, *mean.shape[2:]))
    for i, k in np.ndindex(n, n_targets):
        mine = [s for s in range(L) if index[i, s] == k and weight[i, s] > 0]
        if mine:
            w = weight[i, mine]
            mass[i, k] = w.sum()
            center[i, k] = np.average(mean[i, mine], axis=0, weights=w)
            if mean.ndim == 2:
                square = var[i, mine] + (mean[i, mine] - center[i, k]) ** 2
                spread[i, k] = np.average(square, weights=w)
    return mass, center, spread


# -- aggregation -------------------------------------------------------------------------------


def made_up_grams(model, n_samples):
    """Return Grams that experts with equal numbers of rows could have; the model decides which."""
    K, Q, p = model.n_experts, model.experts.n_linear, model.experts.n_columns
    rng = np.random.default_rng(abs(int(1e6 * model.to_vector()[0])))
    Z = rng.normal(size=(K, 50, Q * p))
    Z[..., ::p] = 1.0  # the intercept
    dispersion = 1.0 if model.experts.dispersion is None else model.experts.dispersion
    most = np.minimum(model.experts.curvature_bound * dispersion, 1.0)  # that a row counts
    matrices = np.einsum("k,kni,knj->kij", most, Z, Z) / 50 * n_samples / K
    return Grams(np.full(K, n_samples / K), matrices)


def message(model, site="a", n_samples=100.0, **changes):
    """Return a message about a model that was never fitted."""
    known = {"log_likelihood": -150.0, "converged": True, "status": "made by hand"}
    known["grams"] = made_up_grams(model, n_samples)
    return LocalModel(site=site, model=model, n_samples=n_samples, **known | changes)


def part_of(message, share, site):
    """Return what a site with a share of another's rows would have sent, had it fitted the same."""
    grams = Grams(share * message.grams.counts, share * message.grams.matrices)
    return replace(message, site=site, n_samples=share * message.n_samples, grams=grams)


def messages(models, weight=None):
    """Return a message for each model; its number of rows is in proportion to its weight."""
    weight = np.ones(len(models)) if weight is None else np.asarray(weight)
    weight = weight / min(1.0, *weight[weight > 0])  # a site has one row at least
    return [
        message(model, f"site {m}", float(w))
        for m, (model, w) in enumerate(zip(models, weight, strict=True))
    ]


def source_mass(models, weight, X):
    """Return lambda_m pi_ml(x) for the experts of all models, (n, L)."""
    share = np.asarray(weight) / np.sum(weight)
    gates = [special.softmax(with_ones(X) @ model.gate.coef.T, axis=1) for model in models]
    return np.hstack([w * gate for w, gate in zip(share, gates, strict=True)])


def source_costs(models, experts, X):
    """Return KL from the experts of all models to these, (n, L, K)."""
    return np.hstack([model.experts.kl_cost(with_ones(X), experts) for model in models])


def relaxed_cost(models, weight, experts, X):
    """Return R_c(f^W, g): every source goes to the nearest expert of g."""
    nearest = source_costs(models, experts, X).min(axis=2)
    return np.mean(np.sum(source_mass(models, weight, X) * nearest, axis=1))


def nearest_plan(models, experts, X):
    """Return the nearest expert of each source at each row, (n, L)."""
    return source_costs(models, experts, X).argmin(axis=2)


def plan_cost(models, weight, experts, X, plan):
    """Return what a given plan costs: with the nearest plan of g_t, the majoriser S(., g_t)."""
    costs = np.take_along_axis(source_costs(models, experts, X), plan[:, :, None], axis=2)
    return np.mean(np.sum(source_mass(models, weight, X) * costs[:, :, 0], axis=1))


def best_experts(models, weight, start, X, plan):
    """Return the experts that minimise the cost of a plan, by a general-purpose optimiser."""

    def loss(vector):
        return plan_cost(models, weight, start.with_vector(vector), X, plan)

    return start.with_vector(minimum(loss, start.to_vector(), 1e-8, 1e-6))


def transport_cost(f, g, X):
    """Return T_c(f, g): at every row, the linear program with both gates as marginals."""
    D = with_ones(X)
    supply, demand = (special.softmax(D @ model.gate.coef.T, axis=1) for model in (f, g))
    cost = f.experts.kl_cost(D, g.experts)
    L, K = cost.shape[1:]
    sums = np.vstack([np.kron(np.eye(L), np.ones(K)), np.kron(np.ones(L), np.eye(K))])
    total = 0.0
    for c, a, b in zip(cost, supply, demand, strict=True):
        total += optimize.linprog(c.ravel(), A_eq=sums[:-1], b_eq=np.append(a, b)[:-1]).fun
    return total / len(X)
