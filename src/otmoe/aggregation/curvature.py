"""Merged densities corrected by what the sites' Grams know of their rows (maths 17)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otmoe.aggregation.covariates import SiteCovariates
from otmoe.aggregation.expected import PseudoRows
from otmoe.aggregation.gram import coefficients, matched
from otmoe.aggregation.problem import Problem
from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Floats, design
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.statistics import RowPasses
from otmoe.model.free import Free
from otmoe.model.mixture import MoE

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_AGREE = 4.0  # times what chance explains, or an expansion says, beyond which neither holds
# Squared lengths of a step in standard errors, for every parameter:
_SHORT = 0.1  # up to which an information that is nearly right will do
_LONGEST = 0.5  # to which a longer one is shortened


def sites_agree(problem: Problem, lost: float) -> bool:
    """Say whether sites could share a model, which is expected to lose so many nats per row.

    If all rows follow one model, chance explains P / 2N nats for every site but one (maths 17), and
    more if sites have few rows for every parameter.
    """
    chance = (len(problem.models) - 1) * problem.n_parameters / (2 * problem.n_rows)
    return lost <= _AGREE * chance


def corrected(problem: Problem, rows: PseudoRows, model: MoE, matrix: Floats) -> tuple[MoE, float]:
    """Return the model after one step by the curvature that the sites observed.

    A site's model expects the Gram E G of an expert where its rows gave G, and pseudo-rows have the
    former. To second order the site's log-likelihood has the latter: what it lacks is the quadratic
    form of G - E G in the distance of the merged expert from the site's own (maths 17). A long step
    is shortened, since the expansion does not hold that far away, and none is taken where it is
    far longer than chance explains, or costs far more likelihood than the expansion says.

    Parameters
    ----------
    problem : Problem
        All sites sent Grams, and agree.
    rows : PseudoRows
    model : MoE
        The most likely one of the pseudo-rows, standardised as they are.
    matrix : ndarray of shape (P, P)
        Their information there, or nearly.

    Returns
    -------
    model : MoE
    nats : float
        Per row that the step costs by what the sites' models expect; 0 where it is not taken.
    """
    differences = Differences.of(problem, rows, model)
    step, squared = differences.step(model, matrix)
    if squared <= _SHORT * len(matrix):
        return model.with_vector(model.to_vector() + step), 0.5 * squared / problem.n_rows
    if not squared <= _AGREE * len(matrix):
        return model, 0.0
    here = RowPasses(rows).information(model)
    step, squared = differences.step(model, here.matrix)
    longest = _LONGEST * len(matrix)
    if squared > longest:
        step, squared = step * np.sqrt(longest / squared), longest
    there = model.with_vector(model.to_vector() + step)
    cost = here.log_likelihood - RowPasses(rows).information(there, matrix=False).log_likelihood
    if not cost <= _AGREE * 0.5 * squared:  # the likelihood is no parabola that far
        return model, 0.0
    return there, 0.5 * squared / problem.n_rows


@dataclass(frozen=True)
class Differences:
    """How the rows of all sites differ from what the sites' models expect, expert by expert.

    Attributes
    ----------
    slope : ndarray of shape (K, Q p)
        Sum of (G - E G) (own - merged) over the local experts of a merged one, in units of its
        dispersion.
    spread : ndarray of shape (K,)
        Sum of the quadratic forms (own - merged)' (G - E G) (own - merged), in the same units.
    complete : ndarray of shape (K, Q p, Q p)
        Sum of G: the information on an expert's coefficients if it were known which rows are its
        own.
    """

    slope: Floats
    spread: Floats
    complete: Floats

    @classmethod
    def of(cls, problem: Problem, rows: PseudoRows, model: MoE) -> Differences:
        """Collect them; `model` is standardised as the rows are."""
        scaling = rows.scaling
        targets, _ = matched(problem, scaling.to_user(model), np.random.default_rng(problem.seed))
        there = coefficients(model.experts)
        T = np.kron(np.eye(model.experts.n_linear), scaling.transform)
        slope, spread = np.zeros_like(there), np.zeros(len(there))
        complete = np.zeros((*there.shape, there.shape[1]))
        for k, own, observed, (_, at) in zip(
            targets, problem.models, _observed(problem), problem.fitted_places, strict=True
        ):
            away = there[k] - coefficients(scaling.from_user(own).experts)
            pull = np.einsum("lij,lj->li", T @ (observed - _expected(own, at)) @ T.T, away)
            np.add.at(slope, k, -pull)
            np.add.at(spread, k, np.sum(away * pull, axis=1))
            np.add.at(complete, k, T @ observed @ T.T)
        unit = model.experts.coef_unit**2
        return cls(slope / unit[:, None], spread / unit, complete / unit[:, None, None])

    def step(self, model: MoE, matrix: Floats) -> tuple[Floats, float]:
        """Return the step (P,) by an information (P, P), and its squared length in it."""
        experts = model.experts
        slope = self.slope * self.known(matrix, len(matrix) - experts.n_parameters)[:, None]
        logs = np.tile(0.5 * self.spread * experts.has_scale, experts.n_constant)
        score = np.zeros(len(matrix))
        score[len(matrix) - experts.n_parameters :] = np.concatenate([slope.ravel(), logs])
        free = Free.of(model)
        step = free.theta(solve_psd(free.matrix(matrix), free.score(score)))
        return step, float(score @ step)

    def known(self, matrix: Floats, first: int) -> Floats:
        """Return the share of the information on each expert's coefficients that rows have, (K,).

        The rest is missing since it is not known which expert a row comes from.

        Parameters
        ----------
        matrix : ndarray of shape (P, P)
            The information.
        first : int
            Where the coefficients of the experts begin.
        """
        K, size = self.slope.shape
        shares = np.ones(K)
        for k, complete in enumerate(self.complete):
            mine = slice(first + k * size, first + (k + 1) * size)
            inverse = np.linalg.pinv(complete, hermitian=True)
            rank = np.sum(inverse * complete)
            if rank > 0:
                shares[k] = np.clip(np.sum(inverse * matrix[mine, mine]) / rank, 0.0, 1.0)
        return shares


def _observed(problem: Problem) -> list[Floats]:
    """Return the Grams G that sites sent with every distinct model, each (K_u, Q p, Q p)."""
    found: list[Floats] = [np.zeros(())] * len(problem.models)
    for m, message in enumerate(problem.messages):
        u = int(problem.which[m])
        if u >= 0 and message.grams is not None:
            # 1 unless weights are given
            factor = problem.site_weight[m] * problem.n_rows / message.n_samples
            found[u] = found[u] + factor * message.grams.matrices
    return found


def _expected(model: MoE, at: SiteCovariates) -> Floats:
    """Return what the model of a site expects them to be, (K_u, Q p, Q p)."""
    X = design(at.X)
    weight = np.asarray(model.gate.prob(X)) * at.weight[:, None]
    return Grams.expected(model.experts, X, weight).matrices
