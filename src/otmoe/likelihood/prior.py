"""A prior for a site's model, learned from other sites, and the fit it draws to its centre.

The models of sites are spread about a mean, theta_m = theta + b_m with b_m normal (maths 18). There
is one standard deviation for each block of parameters; within a block, experts, classes and
features are treated alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import NewtonPoint, NewtonResult, newton
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.information import Information, observed_information
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.free import Free
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

BLOCKS = (
    "gate intercepts",
    "gate slopes",
    "expert intercepts",
    "expert slopes",
    "log-variances",
)
"""What may differ between sites, each with a standard deviation of its own."""

RESTRICTIONS: Mapping[str, tuple[str, ...]] = {
    "auto": BLOCKS,
    "gate": ("gate intercepts", "gate slopes"),
    "intercepts": ("gate intercepts", "expert intercepts"),
}
"""Which blocks may differ, by the name of the restriction."""

_TOL, _MAX_ITER = 1e-8, 100


def check_restriction(name: str, argument: str = "restrict") -> tuple[str, ...]:
    """Return the blocks that may differ under a restriction, or refuse its name."""
    if name not in RESTRICTIONS:
        choices = sorted(RESTRICTIONS)
        raise InvalidInput(Error.NOT_ONE_OF, name=argument, value=name, choices=choices)
    return RESTRICTIONS[name]


def blocks_of(model: MoE) -> Floats:
    """Return the place in `BLOCKS` of each free parameter, (P,)."""
    K, p = model.n_experts, model.experts.n_columns
    columns = np.arange(p) if model.gate.columns is None else np.array(model.gate.columns)
    slope = np.arange(p) > 0
    return np.concatenate(
        [
            np.tile(np.where(columns > 0, 1, 0), K - 1),
            np.tile(np.where(slope, 3, 2), K * model.experts.n_linear),
            np.full(K * model.experts.n_constant, 4),
        ]
    ).astype(int)


def spread_factor(model: MoE) -> Floats:
    """Return F, (P, P), for which F F' is the spread of sites where every deviation is 1.

    It does not change when experts or classes change places. Coefficients of an expert are counted
    in its standard deviations where y has a scale.

    Parameters
    ----------
    model : MoE
        On standardised features.
    """
    K, p, experts = model.n_experts, model.experts.n_columns, model.experts
    q = model.gate.n_free_columns
    gate = np.linalg.cholesky(np.eye(K - 1) + 1.0) if K > 1 else np.zeros((0, 0))
    linear = np.kron(np.diag(experts.coef_unit), np.linalg.cholesky(experts.contrast_spread))
    return linalg.block_diag(
        np.kron(gate, np.eye(q)), np.kron(linear, np.eye(p)), np.eye(K * experts.n_constant)
    )


@dataclass(frozen=True)
class Prior:
    """What other sites say about the model of one more site.

    Attributes
    ----------
    centre : MoE
        Mean of the sites' models, on the user's scale: the model of a site that was never seen.
    scaling : Scaling
        Standardisation of the features, over the rows of all sites.
    tau : dict of float
        Standard deviation between sites, by block; 0 where sites agree, as for blocks left out.
    design_effect : float
        Rows of a site that count as one: above 1 where rows are alike, such as those of a person,
        or where the family is not quite that of the rows.
    n_samples : float
        Rows of all sites together.
    n_sites : int
    """

    centre: MoE = field(repr=False)
    scaling: Scaling = field(repr=False)
    tau: Mapping[str, float]
    design_effect: float = 1.0
    n_samples: float = 0.0
    n_sites: int = 0

    def __post_init__(self) -> None:
        known = {name: float(self.tau.get(name, 0.0)) for name in BLOCKS}
        unknown = [name for name in self.tau if name not in known]
        wrong = [name for name, value in known.items() if not 0 <= value < np.inf]
        if unknown or wrong:
            raise InvalidInput(Error.PRIOR_WRONG, name=(unknown + wrong)[0], choices=list(BLOCKS))
        object.__setattr__(self, "tau", known)

    def restricted(self, to: str) -> Prior:
        """Return the prior with no spread but in the blocks of a restriction.

        Parameters
        ----------
        to : {"auto", "gate", "intercepts"}
        """
        blocks = check_restriction(to)
        return replace(self, tau={name: self.tau[name] for name in blocks})

    def strengthened(self, times: float) -> Prior:
        """Return the prior with deviations changed by a factor; below 1, sites are more alike."""
        return replace(self, tau={name: times * tau for name, tau in self.tau.items()})

    def at_strength(self, times: float, common: MoE) -> Prior:
        """Return the prior with all deviations changed by a factor (maths 18).

        The distance of the centre from the common model is a deviation too, that of the mean over
        sites: below 1 it changes with the others, so that 0 is the common model. Above 1 the centre
        stays.

        Parameters
        ----------
        times : float
        common : MoE
            On the user's scale.
        """
        there = self.strengthened(times)
        if times >= 1:
            return there
        near, far = self.scaling.from_user(common), self.here.to_vector()
        moved = near.with_vector(near.to_vector() + times * (far - near.to_vector()))
        centre = self.scaling.to_user(moved) if times > 0 else common
        return replace(there, centre=centre)

    @property
    def here(self) -> MoE:
        """The centre on standardised features."""
        return self.scaling.from_user(self.centre)

    @property
    def factor(self) -> Floats:
        """L, (P, r), for which L L' is the covariance of the parameters on standardised features.

        It has no column for directions without spread.
        """
        here = self.here
        tau = np.array(list(self.tau.values()))[blocks_of(here)]
        free, spread = Free.of(here), (spread_factor(here) * tau)[:, tau > 0]
        return free.theta(free.psi(spread))

    def moved(self, model: MoE) -> dict[str, float]:
        """Return how far a model lies from the centre, in deviations between sites.

        It is the root of the mean square over the parameters of a block, about 1 for a site like
        the others; blocks without spread are left out.

        Parameters
        ----------
        model : MoE
            On the user's scale.
        """
        here = self.here
        step = self.scaling.from_user(model).to_vector() - here.to_vector()
        square = np.linalg.solve(spread_factor(here), step) ** 2
        owner = blocks_of(here)
        return {
            name: float(np.sqrt(np.mean(square[owner == b])) / tau)
            for b, (name, tau) in enumerate(self.tau.items())
            if tau > 0 and np.any(owner == b)
        }


@dataclass(frozen=True)
class PersonalFit:
    """A site's own model, drawn to the centre of a prior.

    Attributes
    ----------
    model : MoE
        On the user's scale; its experts are those of the centre, in their order.
    log_likelihood : float
        Of the site's rows, without the prior.
    n_samples : float
        Sum of the weights.
    mass : ndarray of shape (K,)
        Summed responsibilities.
    covariance : ndarray of shape (P, P)
        Of the parameters given rows and prior, on features standardised by the prior; 0 where the
        prior has no spread.
    trace : ndarray
        Log-likelihood over the design effect, less the prior's penalty, after every step.
    converged : bool
    """

    model: MoE
    log_likelihood: float
    n_samples: float
    mass: Floats
    covariance: Floats = field(repr=False)
    trace: Floats = field(repr=False)
    converged: bool


def fit_with_prior(
    rows: Rows, prior: Prior, *, start: MoE | None = None, tol: float = _TOL
) -> PersonalFit:
    """Return the most probable model of a site, by Newton's method from the centre of the prior.

    It maximises ``l(theta) / design_effect - |u|^2 / 2`` over u, theta = centre + L u: where the
    prior has no spread the parameters stay at its centre, and rows that say nothing change nothing.

    Parameters
    ----------
    rows : Rows
        On the user's scale.
    prior : Prior
    start : MoE, optional
        Where to begin, on the user's scale; by default the centre.
    tol : float
        Squared distance from the maximum, in standard errors, that is near enough.
    """
    there, here, L = replace(rows, scaling=prior.scaling), prior.here, prior.factor
    centre, unit = here.to_vector(), np.eye(L.shape[1])
    share = 1 / prior.design_effect

    def evaluate(u: Floats, near: NewtonPoint | None = None) -> NewtonPoint:
        with np.errstate(over="ignore"):  # a variance that overflows is refused
            at = here.with_vector(centre + L @ u)
        if not (np.all(np.isfinite(at.to_vector())) and at.experts.smallest_dispersion > 0):
            return NewtonPoint(-np.inf, u, unit)
        found = observed_information(at, there, matrix=near is None)
        return NewtonPoint(
            share * found.log_likelihood - 0.5 * float(u @ u),
            share * (L.T @ found.score) - u,
            share * (L.T @ found.matrix @ L) + unit if near is None else near.information,
            found,
        )

    begin = np.zeros(len(unit))
    if start is not None:
        begin = np.linalg.lstsq(L, prior.scaling.from_user(start).to_vector() - centre)[0]
    if not len(begin):  # nothing may differ: the centre it is
        point = evaluate(begin)
        end = NewtonResult(begin, point, 0.0, (point.value,), 1, True)
    else:
        end = newton(evaluate, begin, tol=tol, max_iter=_MAX_ITER, glance=evaluate)
    found: Information = end.point.detail
    model = here.with_vector(centre + L @ end.theta)
    return PersonalFit(
        prior.scaling.to_user(model).tidied(),
        found.log_likelihood + there.log_base(model.experts),
        rows.total_weight,
        found.mass,
        L @ np.linalg.solve(end.point.information, L.T),
        np.array(end.trace),
        end.converged,
    )
