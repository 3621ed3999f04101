"""Maximum likelihood on one machine: starts, EM, Newton finish (maths 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Array, Floats
from otmoe.arrays.threads import threads
from otmoe.likelihood.agreement import Agreement
from otmoe.likelihood.ascent import FEW, WARM_UP, Ascent, Clock
from otmoe.likelihood.checks import LOOKED_AT, degeneracies
from otmoe.likelihood.information import Information
from otmoe.likelihood.iterations import Report, Run
from otmoe.likelihood.rank import check_constants, determined, minimum_norm
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.likelihood.search import searched
from otmoe.likelihood.sharing import sharing
from otmoe.likelihood.stage import Stage
from otmoe.likelihood.statistics import RowPasses, on_floor
from otmoe.model.experts import FAMILIES, Experts
from otmoe.model.mixture import ExpertPer, MoE, reordering
from otmoe.model.ridge import Ridge
from otmoe.model.structure import Structure
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Status

Progress = Callable[[str, int, float], None]
"""Called as progress(stage, iteration, penalised log-likelihood)."""

# Measured defaults; docs/benchmarks.md has the tables behind them.
MAX_ITER = 300
TOL = 1e-10


@dataclass(frozen=True)
class Evidence:
    """What the rows say about the parameters at the end of a fit.

    Attributes
    ----------
    information : Information
        On the standardised scale, experts ordered as in the model.
    penalty : ndarray of shape (P, P)
        Matrix of the ridge there.
    scaling : Scaling
        That scale.
    """

    information: Information
    penalty: Floats
    scaling: Scaling


@dataclass(frozen=True)
class Fit:
    """A fitted mixture of experts.

    Attributes
    ----------
    model : MoE
        On the user's scale, experts ordered by mass, largest first.
    log_likelihood : float
        Weighted sum of log f(y | x), without the penalty.
    trace : ndarray
        Penalised log-likelihood at the start that won and after every iteration on all rows.
    n_samples : float
        Sum of the weights.
    mass : ndarray of shape (K,)
        Rows assigned to each expert: its summed responsibilities.
    decrement : float
        Squared distance to the maximum in standard errors, as the last Newton step sees it.
    converged : bool
    status : Notice
        What happened.
    warnings : tuple of Notice
        What the user should know.
    timings : dict
        Seconds spent on starts, EM, Newton steps.
    constant : dict
        Columns of X, from 0, that are constant in the rows of positive weight, and their value.
    rank : int
        Number of parameters, less those that no row can determine (constant or collinear columns).
    agreement : Agreement, optional
        How sure the search is of this maximum; None where there was no search.
    evidence : Evidence, optional
        What the last Newton step knew, for standard errors; None where there was none.
    """

    model: MoE
    log_likelihood: float
    trace: Floats = field(repr=False)
    n_samples: float
    mass: Floats
    decrement: float
    converged: bool
    status: Notice
    warnings: tuple[Notice, ...] = ()
    timings: dict[str, float] = field(default_factory=dict, repr=False)
    constant: dict[int, float] = field(default_factory=dict, repr=False)
    rank: int = 0
    agreement: Agreement | None = None
    evidence: Evidence | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        end = "converged" if self.converged else "not converged"
        return f"Fit({self.model.called}, log-likelihood {self.log_likelihood:.10g}, {end})"

    @property
    def n_iter(self) -> int:
        """Number of accepted iterations on all rows."""
        return len(self.trace) - 1


def em(
    X: Array,
    y: Array,
    n_experts: int = 2,
    *,
    family: str | type[Experts] = "gaussian",
    init: MoE | None = None,
    gate_columns: tuple[int, ...] | None = None,
    structure: Structure | None = None,
    alpha: float | None = None,
    expert_alpha: float | None = None,
    n_init: int | None = None,
    max_iter: int = MAX_ITER,
    tol: float = TOL,
    sample_weight: Array | None = None,
    offset: Array | None = None,
    n_classes: int = 2,
    random_state: np.random.Generator | int | None = None,
    n_jobs: int | None = None,
    feature_names: tuple[str, ...] | None = None,
    smaller: MoE | None = None,
    progress: Progress | None = None,
    groups: Any = None,
) -> Fit:
    """Fit a mixture of experts by (penalised) maximum likelihood.

    Independent searches and moves between maxima look for the highest one on some of the rows;
    Newton's method on the observed likelihood finishes on all. Inside, X and y are standardised.

    Parameters
    ----------
    X : array of shape (n, d)
        Without a column of ones.
    y : array of shape (n,), or (n, R) where the family takes R columns
    n_experts : int
    family : str or type of Experts
        A name in :data:`otmoe.model.experts.FAMILIES`.
        y is a number, 0 or 1, a class number from 0, a count, or successes and failures.
    init : MoE, optional
        Start here, on the user's scale, instead of searching; its experts and gate columns are
        those of the fit.
    gate_columns : tuple of int, optional
        Columns of the design that the gate uses; 0 is the intercept, j is feature j - 1. None: all.
    structure : Structure, optional
        What experts see and what they share, in columns of the design; by default, every
        coefficient is free. A start has its own.
    alpha, expert_alpha : float, optional
        Ridges of the gate and of the experts' slopes, on standardised features (maths 3 and 8); by
        default those of the family.
    n_init : int, optional
        Number of independent searches; by default 3, and 6 where rows are few.
    max_iter : int
        Bound on the passes over all rows.
    tol : float
        The fit has converged when its squared distance to the maximum, in standard errors, is
        below this.
    sample_weight : array of shape (n,), optional
    offset : array of shape (n,), optional
        Known part of the experts' linear predictors, such as the log of an exposure.
    n_classes : int
        Number of classes, for the multinomial family.
    random_state : numpy Generator or int, optional
    n_jobs : int, optional
        Threads; None means 1, -1 all cores.
    feature_names : tuple of str, optional
        For warnings.
    smaller : MoE, optional
        A model with fewer experts, on the user's scale, from which one more search grows.
    progress : callable, optional
        Called as progress(stage, iteration, penalised log-likelihood).
    groups : array-like of shape (n,), optional
        Labels of groups whose rows share their expert (maths 23); X and y are NumPy arrays then.

    Returns
    -------
    Fit
    """
    rng = np.random.default_rng(random_state)
    if init is None:
        kind = FAMILIES[family] if isinstance(family, str) else family
        blank: Experts = kind.blank(n_experts, X.shape[1] + 1, n_classes)
    else:  # it says what the family is
        blank = init.experts
        if init.expert_per == "group" and groups is None:
            raise InvalidInput(Error.SHARING_NEEDS_GROUPS)
    blank = blank.informed(y, sample_weight)
    if offset is not None:
        blank.predictor(np.ones((1, blank.n_columns)), np.zeros(1))  # some families take none
    ridge = Ridge.of(blank, alpha, expert_alpha)
    clock = Clock()
    with threads(n_jobs) as pool:
        rows = Rows(X, y, sample_weight, offset, pool=pool)
        if groups is not None:
            columns = gate_columns if init is None else init.gate.columns
            rows = sharing(rows, groups, columns, feature_names)
        structure = structure if init is None else init.structure
        rows, correlation = rows.standardised(blank, structure)
        scaling = rows.scaling
        check_constants(structure, scaling.constant, feature_names)
        constant = rows.log_base(blank)  # what the iterations leave out of the log-likelihood

        def report(stage: str) -> Report | None:
            return progress and (lambda i, value: progress(stage, i, value + constant))

        # 1) where the highest maximum is, found on some of the rows
        agreement, known, warm_up = None, None, WARM_UP
        if init is not None:
            start = scaling.from_user(replace(init, experts=blank))
        else:
            fewer = None if smaller is None else scaling.from_user(smaller)
            within = None
            if structure is not None and structure.restricts(X.shape[1] + 1):
                within = structure.at(scaling.transform[:, 0])
            start, agreement, known = searched(
                rows, blank, gate_columns, ridge, n_init, rng, report("starts"), fewer, within
            )
            warm_up = FEW
        clock.lap("starts")

        # 2) to it, on all rows
        # (rows that share their expert tell less than their number says)
        direct = init is not None and rows.groups is None
        search = Ascent(RowPasses(rows), ridge, max_iter, tol, rows.total_weight, warm_up, direct)
        run = search.run(start, report, clock, known)

        # 3) what it says; small matrices on one thread, since threads of BLAS wait for each other
        fit = finished(
            run,
            search,
            scaling,
            correlation,
            constant,
            len(rows),
            clock,
            stage=Stage.of_some(
                replace(rows, pool=None), LOOKED_AT, ridge, np.random.default_rng(0)
            ),
            agreement=agreement,
            feature_names=feature_names,
        )
    expert_per: ExpertPer = "row" if groups is None else "group"
    return replace(fit, model=replace(fit.model, expert_per=expert_per))


def finished(
    run: Run,
    search: Ascent,
    scaling: Scaling,
    correlation: Floats,
    base: float,
    n_rows: int,
    clock: Clock,
    *,
    stage: Stage | None = None,
    agreement: Agreement | None = None,
    feature_names: tuple[str, ...] | None = None,
) -> Fit:
    """Return a run as a fit: experts by mass, parameters on the user's scale.

    Parameters
    ----------
    run : Run
    search : Ascent
    scaling : Scaling
    correlation : ndarray of shape (p, p)
        Of the standardised design, intercept first.
    base : float
        What the iterations leave out of the log-likelihood.
    n_rows : int
    clock : Clock
    stage : Stage, optional
        Some of the rows, on which experts are compared.
    agreement : Agreement, optional
        What the search says.
    feature_names : tuple of str, optional
        For warnings.
    """
    structure = run.model.structure or Structure()
    order = structure.order(run.mass)
    model = minimum_norm(run.model.take(order), correlation)
    total = search.total_weight
    ordered = replace(run, model=run.model.take(order), mass=run.mass[order])
    return Fit(
        model=scaling.to_user(model).tidied(),
        log_likelihood=run.log_likelihood + base,
        trace=np.array(run.trace) + base,
        n_samples=total,
        mass=run.mass[order],
        decrement=run.decrement,
        converged=run.converged,
        status=_status(run, search.max_iter, agreement),
        warnings=degeneracies(ordered, stage, n_rows, total, correlation, agreement, feature_names),
        timings=clock.laps,
        constant=scaling.constant,
        rank=determined(model, correlation),
        agreement=agreement,
        evidence=_evidence(run, search.ridge, order, scaling),
    )


def _evidence(run: Run, ridge: Ridge, order: Floats, scaling: Scaling) -> Evidence | None:
    """Return what the last Newton step knew, in the order of the finished model."""
    found = run.information
    if found is None or on_floor(run.model):
        return None
    information = found
    if not np.array_equal(order, np.arange(len(order))):
        T = reordering(run.model, order)
        information = Information(
            found.log_likelihood,
            np.linalg.solve(T.T, found.score),
            np.linalg.solve(T.T, np.linalg.solve(T.T, found.matrix).T),
            found.mass[order],
        )
    return Evidence(information, ridge.matrix(run.model.take(order)), scaling)


def _status(run: Run, max_iter: int, agreement: Agreement | None) -> Notice:
    if not run.converged and run.n_iter >= max_iter:
        return Status.OUT_OF_PASSES(passes=max_iter)
    if not run.converged:
        return Status.STUCK(iterations=run.n_iter)
    if np.isnan(run.decrement):
        return Status.CONVERGED(iterations=run.n_iter)
    where = {"iterations": run.n_iter, "distance": np.sqrt(run.decrement)}
    if agreement is None or agreement.searches == 1:
        return Status.CONVERGED_NEAR(**where)
    return Status.CONVERGED_FOUND(
        **where, agreed=agreement.agreed, searches=agreement.searches, gap=agreement.gap
    )
