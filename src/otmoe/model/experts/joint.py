# Long because it has every method of a family, each of them part by part.
"""Several responses at once: given its expert, the responses of a row are independent.

An expert is one regression for each response, of any family with one linear predictor, and
log phi_k(y) = sum_r log phi_kr(y_r) (maths 22). So gate and responsibilities are shared, and score,
curvature and fits are those of the parts side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from otmoe.arrays.numerics import Array, Floats, namespace, times_each, to_numpy
from otmoe.model.experts.base import Experts
from otmoe.model.experts.values import Derivatives, FitStatistics, Response
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.names import visible
from otmoe.text.sentences import Error

_POINTS = 800  # of a grid, above which values are drawn instead
_DRAWN = 100  # values of each expert then


@dataclass(frozen=True)
class JointExperts(Experts):
    """K experts for R responses each; :func:`joined` makes the class for given families.

    Attributes
    ----------
    coef : ndarray of shape (K, R, p)
        Coefficients, intercept in column 0.
    scales : ndarray of shape (K, S)
        What else the parts have, part by part: variances, dispersions, mean numbers of trials.

    Examples
    --------
    >>> from otmoe.model.experts import FAMILIES
    >>> experts = FAMILIES["gaussian+poisson"].blank(2, 3)
    >>> experts.coef.shape, experts.dispersions
    ((2, 2, 3), ('y0 variance',))
    >>> experts.log_prob(np.ones((1, 3)), np.array([[0.0, 2.0]])).round(4)
    array([[-2.6121, -2.6121]])
    """

    scales: Floats

    kinds: ClassVar[tuple[type[Experts], ...]] = ()
    labels: ClassVar[tuple[str, ...]] = ()
    by_moments: ClassVar[bool] = False

    @classmethod
    def of(cls, parts: Sequence[Experts]) -> Self:
        """Return the experts that are made of these parts, one for each response."""
        rest = [getattr(part, name) for part in parts for name in _others(type(part))]
        K = parts[0].n_experts
        return cls(
            np.stack([part.coef for part in parts], axis=1),
            np.stack(rest, axis=1) if rest else np.zeros((K, 0)),
        )

    @cached_property
    def parts(self) -> tuple[Experts, ...]:
        """The experts of each response."""
        found, end = [], 0
        for r, kind in enumerate(self.kinds):
            names = _others(kind)
            rest = dict(zip(names, self.scales[:, end:].T, strict=False))
            found.append(kind(coef=self.coef[:, r], **rest))
            end += len(names)
        return tuple(found)

    def __reduce__(self) -> tuple[Any, ...]:  # the class is made where it is needed
        return _restored, (self.kinds, self.labels, self.coef, self.scales)

    @classmethod
    def called(cls, labels: Sequence[str]) -> type[Experts]:
        return joined(cls.kinds, tuple(labels))

    @classmethod
    def blank(cls, n_experts: int, n_columns: int, n_classes: int = 2) -> Self:
        return cls.of([kind.blank(n_experts, n_columns) for kind in cls.kinds])

    @property
    def n_linear(self) -> int:
        return len(self.kinds)

    @property
    def responses(self) -> list[str]:
        return list(_names(self.kinds, self.labels))

    def named_parameters(self, terms: Sequence[str]) -> dict[str, Floats]:
        return {
            f"{response}: {name}": values
            for response, part in zip(self.responses, self.parts, strict=True)
            for name, values in part.named_parameters(terms).items()
        }

    # -- y ------------------------------------------------------------------------------------

    @classmethod
    def scaled_columns(cls) -> tuple[bool, ...]:
        return tuple(kind.has_scale for kind in cls.kinds for _ in range(kind.n_responses))

    @classmethod
    def split(cls, y: Array) -> list[Array]:
        """Return the columns of each response, (n,) or (n, 2)."""
        found, end = [], 0
        for kind in cls.kinds:
            start, end = end, end + kind.n_responses
            found.append(y[:, start] if end == start + 1 else y[:, start:end])
        return found

    @classmethod
    def check_response(cls, y: Floats) -> None:
        if y.ndim != 2 or y.shape[1] != cls.n_responses:
            wanted, parts = cls.n_responses, cls.family
            raise InvalidInput(Error.JOINT_COLUMNS, shape=y.shape, wanted=wanted, family=parts)
        for kind, column in zip(cls.kinds, cls.split(y), strict=True):
            kind.check_response(column)

    def _each(self, y: Array) -> list[tuple[Experts, Array]]:
        return list(zip(self.parts, self.split(y), strict=True))

    def observe(self, y: Array) -> Response:
        return _together([part.observe(column) for part, column in self._each(y)])

    def informed(self, y: Array, weight: Array | None = None) -> Self:
        return self.of([part.informed(column, weight) for part, column in self._each(y)])

    def working(self, y: Array) -> Array:
        values = [part.working(column) for part, column in self._each(y)]
        return namespace(y).stack(values, axis=1)

    @classmethod
    def log_base(cls, y: Array) -> Array | float:
        columns = zip(cls.kinds, cls.split(y), strict=True)
        return sum((kind.log_base(column) for kind, column in columns), 0.0)

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        return {}

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        columns = []
        for r, part in enumerate(self.parts):
            drawn = np.asarray(part.sample(eta[..., r], rng), np.float64)
            if drawn.ndim == 2 and part.n_responses == 2:  # outcomes of one trial
                drawn = np.stack([drawn, 1 - drawn], axis=-1)
            columns.append(drawn[..., None] if drawn.ndim == 2 else drawn)
        return np.concatenate(columns, axis=-1)

    def cdf(self, eta: Array, y: Array) -> Array:
        raise InvalidType(Error.JOINT_NO_QUANTILES)

    def quantile(self, eta: Array, level: float) -> Array:
        raise InvalidType(Error.JOINT_NO_QUANTILES)

    def mean_bounds(self, mean: Floats, half: Floats) -> tuple[Floats, Floats]:
        each = [p.mean_bounds(mean[..., r], half[..., r]) for r, p in enumerate(self.parts)]
        low, high = (np.stack(ends, axis=-1) for ends in zip(*each, strict=True))
        return low, high

    # -- density ------------------------------------------------------------------------------

    def predictor(self, X: Array, offset: Array | None = None) -> Array:
        if offset is not None:
            raise InvalidType(Error.JOINT_NO_OFFSET)
        return times_each(X, self.coef)

    def response(self, eta: Array) -> Response:
        return _together([part.response(eta[..., r]) for r, part in enumerate(self.parts)])

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        total = 0.0
        for r, part in enumerate(self.parts):
            total = total + part.expected_log_prob(eta[..., r], _of(response, r))
        return total

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        each = [p.derivatives(eta[..., r], _of(response, r)) for r, p in enumerate(self.parts)]
        linear = [(r, 0) for r in range(len(each))]
        constant = [(r, d) for r, part in enumerate(each) for d in range(1, len(part.score))]
        places = linear + constant
        score = tuple(each[r].score[d] for r, d in places)
        none = namespace(eta).zeros_like(score[0])
        curvature = {
            (a, b): each[r].curvature[min(d, e), max(d, e)] if r == s else none
            for a, (r, d) in enumerate(places)
            for b, (s, e) in enumerate(places)
            if a <= b
        }
        return Derivatives(score, curvature)

    def mean_slope(self, eta: Array) -> Floats:
        n, K, R = eta.shape
        slope = np.zeros((n, K, R, R))
        for r, part in enumerate(self.parts):
            slope[:, :, r, r] = part.mean_slope(eta[..., r])[:, :, 0, 0]
        return slope

    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        pairs = zip(self.parts, other.parts, strict=True)
        found = [
            part.log_affinity(eta[..., r], theirs, other_eta[..., r])
            for r, (part, theirs) in enumerate(pairs)
        ]
        return sum(found[1:], found[0])

    def grid(self, eta: Floats) -> tuple[Floats, Floats]:
        # every combination of the parts' values, or draws of all experts where those are too many
        grids = [part.grid(eta[..., r]) for r, part in enumerate(self.parts)]
        sizes = [width.shape[1] for _, width in grids]
        if np.prod(sizes) > _POINTS:
            return self._draws(eta)
        index = np.indices(sizes).reshape(len(sizes), -1)
        columns = [y[:, at].reshape(len(eta), len(at), -1) for (y, _), at in _zip(grids, index)]
        width = np.prod([width[:, at] for (_, width), at in _zip(grids, index)], axis=0)
        return np.concatenate(columns, axis=2), width

    def _draws(self, eta: Floats) -> tuple[Floats, Floats]:
        """Return values drawn from every expert, and one over their density."""
        n, K, _ = eta.shape
        rng = np.random.default_rng(0)
        y = self.sample(np.repeat(eta, _DRAWN, axis=0), rng)
        y = y.reshape(n, _DRAWN * K, -1)
        flat = y.reshape(n * _DRAWN * K, -1)
        at = np.repeat(eta, _DRAWN * K, axis=0)
        log_prob = self.expected_log_prob(at, self.observe(flat))
        density = special.logsumexp(to_numpy(log_prob), axis=1) + self.log_base(flat)
        return y, np.exp(np.clip(-density, -600, 600)).reshape(n, -1)

    # -- fits ---------------------------------------------------------------------------------

    def _sums(self, statistics: FitStatistics) -> list[FitStatistics]:
        """Return the statistics of each part."""
        found, end = [], 0
        for r, kind in enumerate(self.kinds):
            start, end = end, end + len(kind.dispersions)
            bend = statistics.bend[:, start:end] if kind.bends else statistics.bend[:, :0]
            own = statistics.score[:, [r]], statistics.information[:, [r]][:, :, [r]]
            found.append(
                FitStatistics(statistics.weight, *own, statistics.dispersion[:, start:end], bend)
            )
        return found

    def step(self, statistics: FitStatistics, *, floor: float = 0.0, ridge: float = 0.0) -> Self:
        each = zip(self.parts, self._sums(statistics), strict=True)
        return self.of([part.step(sums, floor=floor, ridge=ridge) for part, sums in each])

    def moved(
        self,
        statistics: FitStatistics,
        increment: Floats,
        *,
        floor: float = 0.0,
        ridge: float = 0.0,
        common: bool = False,
    ) -> Self:
        how: dict[str, Any] = {"floor": floor, "ridge": ridge, "common": common}
        each = enumerate(zip(self.parts, self._sums(statistics), strict=True))
        return self.of([part.moved(sums, increment[:, [r]], **how) for r, (part, sums) in each])

    def fit(
        self,
        X: Array,
        response: Response,
        weight: Array,
        *,
        offset: Array | None = None,
        ridge: float = 0.0,
        tol: float = 1e-12,
    ) -> Self:
        how: dict[str, Any] = {"ridge": ridge, "tol": tol}
        parts = enumerate(self.parts)
        return self.of([part.fit(X, _of(response, r), weight, **how) for r, part in parts])

    def floored(self, floor: float) -> Self:
        return self.of([part.floored(floor) for part in self.parts])

    def neutral(self) -> Self:
        return self.of([part.neutral() for part in self.parts])

    @property
    def smallest_dispersion(self) -> float:
        numbers = [part.smallest_dispersion for part in self.parts if not part.discrete]
        return min(numbers, default=np.inf)

    # -- parameters ---------------------------------------------------------------------------

    def _places(self) -> list[Floats]:
        """Return where the parameters of each part stand in the vector of all."""
        K, R, p = self.coef.shape
        coef, found, end = np.arange(K * R * p).reshape(K, R, p), [], K * R * p
        for r, kind in enumerate(self.kinds):
            start, end = end, end + K * len(kind.dispersions)
            found.append(np.append(coef[:, r].ravel(), np.arange(start, end)))
        return found

    def to_vector(self) -> Floats:
        vector = np.empty(self.coef.size + self.n_experts * self.n_constant)
        for part, place in zip(self.parts, self._places(), strict=True):
            vector[place] = part.to_vector()
        return vector

    def with_vector(self, vector: Floats) -> Self:
        places = zip(self.parts, self._places(), strict=True)
        return self.of([part.with_vector(vector[place]) for part, place in places])

    def penalty_matrix(self, ridge: float) -> Floats:
        size = self.coef.size + self.n_experts * self.n_constant
        matrix = np.zeros((size, size))
        for part, place in zip(self.parts, self._places(), strict=True):
            matrix[np.ix_(place, place)] = part.penalty_matrix(ridge)
        return matrix

    def rescaled(self, T: Floats, center: Any = 0.0, scale: Any = 1.0) -> Self:
        first = np.cumsum([0, *(kind.n_responses for kind in self.kinds)])[:-1]
        center, scale = (np.broadcast_to(a, self.n_responses)[first] for a in (center, scale))
        each = zip(self.parts, center.tolist(), scale.tolist(), strict=True)
        return self.of([part.rescaled(T, at, unit) for part, at, unit in each])


@lru_cache(maxsize=1024)  # files may name any combination
def joined(kinds: tuple[type[Experts], ...], labels: tuple[str, ...]) -> type[JointExperts]:
    """Return the family of several responses, each of its own family.

    Parameters
    ----------
    kinds : tuple of R types of Experts
    labels : tuple of R str, or empty
        Names of the responses; without them y0, y1 and so on.
    """
    called = zip(_names(kinds, labels), kinds, strict=True)
    names = tuple(f"{response} {name}" for response, kind in called for name in kind.dispersions)
    attributes = {
        "__doc__": JointExperts.__doc__,
        "__module__": __name__,
        "kinds": kinds,
        "labels": labels,
        "family": "+".join(kind.family for kind in kinds),
        "discrete": all(kind.discrete for kind in kinds),
        "dispersions": names,
        "bends": any(kind.bends for kind in kinds),
        "n_responses": sum(kind.n_responses for kind in kinds),
        "alpha": max(kind.alpha for kind in kinds),
        "expert_alpha": max(kind.expert_alpha for kind in kinds),
    }
    return type("JointExperts", (JointExperts,), attributes)


def _restored(
    kinds: tuple[type[Experts], ...], labels: tuple[str, ...], coef: Floats, scales: Floats
) -> JointExperts:
    return joined(kinds, labels)(coef, scales)


def _names(kinds: tuple[type[Experts], ...], labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the responses, on one line each."""
    return tuple(map(visible, labels)) or tuple(f"y{r}" for r in range(len(kinds)))


def _others(kind: type[Experts]) -> list[str]:
    """Return the fields of a family beside its coefficients."""
    return [field.name for field in fields(kind) if field.name != "coef"]


def _zip(grids: list[tuple[Floats, Floats]], index: Floats) -> Any:
    return zip(grids, index, strict=True)


def _of(response: Response, r: int) -> Response:
    """Return the part of a response that is about one of several."""
    var, trials = (
        a if isinstance(a, float) else a[..., r] for a in (response.var, response.trials)
    )
    return Response(response.mean[..., r], var, trials)


def _together(parts: list[Response]) -> Response:
    """Return responses side by side, (n, L, R)."""
    xp = namespace(parts[0].mean)

    def stacked(values: list[Any]) -> Array | float:
        if all(isinstance(value, float) for value in values):
            return values[0] if len(set(values)) == 1 else np.array(values)
        like = [value + xp.zeros_like(part.mean) for value, part in zip(values, parts, strict=True)]
        return xp.stack(like, axis=-1)

    mean = xp.stack([part.mean for part in parts], axis=-1)
    return Response(mean, stacked([p.var for p in parts]), stacked([p.trials for p in parts]))
