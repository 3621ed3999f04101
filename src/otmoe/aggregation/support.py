"""Support points: covariates at which local models are compared; y is never needed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as brief
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from otmoe.aggregation.covariates import Sampler
from otmoe.arrays.numerics import Array, Floats, namespace, to_numpy
from otmoe.documents.message import LocalModel
from otmoe.likelihood.rows import take_rows
from otmoe.model.mixture import MoE
from otmoe.text.arguments import check_whole, generator, renamed
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice, OtmoeWarning
from otmoe.text.sentences import Error, Warn

N_SUPPORT = 4000
"""Support points drawn by default; halved and doubled by `python -m benchmarks constants`."""


@dataclass(frozen=True)
class Support:
    """Covariates at which models are compared, and the site that each came from.

    It can be used as the array `rows`.

    Attributes
    ----------
    rows : ndarray of shape (S, d)
    site : tuple of S str or int
        Its name, or its place among the messages.
    samples : dict of array of shape (n_m, d), optional
        All covariates that each site offered, of which `rows` are some.
    """

    rows: Floats = field(repr=False)
    site: tuple[str | int, ...] = field(repr=False)
    samples: Mapping[str | int, Array] | None = field(default=None, repr=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.rows, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Floats:
        return self.rows[index]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of points and of features, (S, d)."""
        return self.rows.shape[0], self.rows.shape[1]

    def by_site(self) -> Mapping[str | int, Array]:
        """Return the covariates of every site."""
        if self.samples is not None:
            return self.samples
        of_site: dict[str | int, list[int]] = {}
        for row, site in enumerate(self.site):
            of_site.setdefault(site, []).append(row)
        return {site: self.rows[index] for site, index in of_site.items()}


@renamed(n_points="n_support")
def draw_support(
    samples: Sequence[Any] | Mapping[str, Any],
    n_support: int = N_SUPPORT,
    *,
    site_weight: Any = None,
    random_state: Any = 0,
) -> Support:
    """Draw support points from samples of the sites' covariates.

    Parameters
    ----------
    samples : dict of array-likes of shape (n_m, d) by site, or a sequence of M of them
        Rows of x that the sites agreed to share; a sequence has them in the order of the messages.
        Frames must have the same columns in the same order.
    n_support : int
        Points to draw, without replacement; fewer if there are fewer rows.
    site_weight : array-like of shape (M,), optional
        Shares of the sites; by default proportional to their rows.
    random_state : int, Generator or None

    Returns
    -------
    Support
        Methods that merge densities use all samples, not only the points drawn.

    Examples
    --------
    >>> lyon, nantes = np.zeros((300, 2)), np.ones((100, 2))
    >>> support = draw_support({"lyon": lyon, "nantes": nantes}, 100)
    >>> support.rows.mean(axis=0), support.site.count("lyon")
    (array([0.25, 0.25]), 75)
    """
    if not len(samples):
        raise InvalidInput(Error.NO_SAMPLES)
    sites: list[str | int] = list(range(len(samples)))
    if isinstance(samples, Mapping):
        sites, samples = list(samples), list(samples.values())
    check_whole("n_support", n_support)
    columns = [list(map(str, s.columns)) for s in samples if hasattr(s, "columns")]
    for names in columns:
        if names != columns[0]:
            raise InvalidInput(Error.SAMPLE_COLUMNS, columns=names, others=columns[0])
    arrays = [s if hasattr(s, "detach") else np.asarray(s) for s in samples]
    for m, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[1] != arrays[0].shape[1]:
            raise InvalidInput(
                Error.SAMPLE_SHAPE, number=m, shape=tuple(array.shape), columns=arrays[0].shape[-1]
            )
    rows = np.array([array.shape[0] for array in arrays])
    if not rows.sum():
        raise InvalidInput(Error.SAMPLES_EMPTY)
    weight = rows if site_weight is None else np.asarray(site_weight, dtype=np.float64)
    total = weight.sum()
    if weight.shape != rows.shape or not np.all(weight >= 0) or not 0 < total < np.inf:
        raise InvalidInput(Error.SHARES_WRONG, sites=len(rows))
    rng = generator(random_state)
    counts = _shares(n_support, weight / total, rows)
    parts = [
        _draw(array, int(count), rng) for array, count in zip(arrays, counts, strict=True) if count
    ]
    site = [name for name, count in zip(sites, counts.tolist(), strict=True) for _ in range(count)]
    return Support(np.concatenate(parts), tuple(site), dict(zip(sites, arrays, strict=True)))


@renamed(n_points="n_support")
def support_from(
    messages: Sequence[LocalModel], n_support: int = N_SUPPORT, *, random_state: Any = 0
) -> Support:
    """Draw support points from what sites have sent about their covariates.

    Each site has a share proportional to its rows. Rows that it volunteered are used first and the
    rest is drawn from its sketch; without a sketch, it contributes no more points than it has sent
    rows.

    Parameters
    ----------
    messages : sequence of LocalModel
        Of the same features. A warning names sites that sent neither rows nor a sketch.
    n_support : int
    random_state : int, Generator or None
        Together with the messages it determines the points; the order of the sites does not matter.

    Returns
    -------
    Support

    Examples
    --------
    >>> from otmoe import MoERegressor, simulate
    >>> data = simulate(500, 2, 3, random_state=0)
    >>> est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    >>> support_from([est.to_message("Lyon", data.X, sketch=True)], 1000).shape
    (1000, 3)
    """
    check_whole("n_support", n_support)
    for message in messages:
        if message.model.terms != messages[0].model.terms:
            raise InvalidInput(Error.FEATURES_DIFFER, site=message.site, other=messages[0].site)
    weight = np.array([message.n_samples for message in messages])
    points, trouble = points_from(messages, weight, n_support, generator(random_state))
    if trouble:
        warnings.warn(OtmoeWarning("support_from", trouble), stacklevel=2)
    return points


def points_from(
    messages: Sequence[LocalModel], weight: Floats, n_support: int, rng: np.random.Generator
) -> tuple[Support, list[Notice]]:
    """Return what :func:`support_from` does with these shares of the sites, and its warnings."""
    silent = [message.site for message in messages if not message.support_document()]
    # Those who sent the same count as one, and all come in an order of their own.
    sent: dict[str, tuple[LocalModel, list[float]]] = {}
    for message, share in zip(messages, weight, strict=True):
        if share > 0 and message.site not in silent:
            key = json.dumps(message.support_document())
            sent.setdefault(key, (message, []))[1].append(float(share))
    if not sent:
        raise InvalidInput(Error.SUPPORT_MISSING)
    distinct = [sent[key] for key in sorted(sent)]
    total = np.array([sum(sorted(shares)) for _, shares in distinct])
    rows = [0 if message.support is None else len(message.support) for message, _ in distinct]
    most = [
        n if message.sketch is None else n_support
        for (message, _), n in zip(distinct, rows, strict=True)
    ]
    counts = _shares(n_support, total / total.sum(), np.array(most))
    parts = []
    site: list[str | int] = []
    for (message, _), count, n in zip(distinct, counts.tolist(), rows, strict=True):
        if message.support is not None:
            parts.append(_draw(message.support, min(count, n), rng))
        if message.sketch is not None:
            parts.append(message.sketch.draw(max(count - n, 0), rng))
        site += [message.site] * count
    trouble = []
    if silent:
        trouble.append(Warn.SITES_SILENT(sites=tuple(silent), names=silent))
    return Support(np.concatenate(parts), tuple(site)), trouble


def drawn_from(
    samples: Mapping[Any, Any],
    messages: Sequence[LocalModel],
    weight: Floats,
    rng: np.random.Generator,
) -> Support:
    """Return support points from covariates by site."""
    names = [message.site for message in messages]
    unknown = sorted(set(map(str, samples)) - set(names))
    if unknown:
        raise InvalidInput(Error.SUPPORT_UNKNOWN_SITES, names=unknown, sites=names)
    if not samples:
        raise InvalidInput(Error.SUPPORT_MISSING)
    first = messages[0]
    known = {
        message.site: check_support(samples[message.site], first.model, message.site, few=True)
        for message in messages
        if message.site in samples
    }
    share = [w for w, name in zip(weight, names, strict=True) if name in known]
    return draw_support(known, site_weight=share, random_state=rng)


def samplers_of(support: Support, messages: Sequence[LocalModel]) -> dict[str | int, Sampler]:
    """Return what a support says about the covariates of each site, by name.

    Sites known by their places are those of the messages only if there are as many.
    """
    found = support.by_site()
    names: Sequence[str | int] = [message.site for message in messages]
    if any(isinstance(at, int) for at in found):
        if len(found) != len(names):
            return {}
        return {names[int(at)]: Sampler(rows) for at, rows in found.items()}
    return {at: Sampler(rows) for at, rows in found.items()}


def check_support(support: Any, model: MoE, site: str, *, few: bool = False) -> Array:
    """Return the support as an array (S, d) in the order of the model's features.

    With `few` there may be fewer rows than columns.
    """
    names = getattr(support, "columns", None)
    if names is not None and not callable(names) and model.feature_names is not None:
        given = [str(name) for name in names]
        missing = [name for name in model.feature_names if name not in given]
        if missing:
            raise InvalidInput(
                Error.SUPPORT_COLUMNS,
                missing=brief(missing),
                features=brief(list(model.feature_names)),
            )
        support = support[list(model.feature_names)]
    X = support if is_array_api_obj(support) else np.asarray(support)
    if isinstance(X, np.ndarray):
        try:
            X = X.astype(np.float64, copy=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(Error.SUPPORT_NOT_NUMBERS, error=error) from error
    if X.ndim != 2 or X.shape[1] != model.n_features:
        raise InvalidInput(
            Error.SUPPORT_SHAPE, shape=tuple(X.shape), features=model.n_features, site=site
        )
    if X.shape[0] == 0 or (X.shape[0] < X.shape[1] and not few):
        raise InvalidInput(Error.SUPPORT_SHORT, rows=X.shape[0], columns=X.shape[1])
    xp = namespace(X)
    if not bool(xp.all(xp.isfinite(X))):
        row = int(np.flatnonzero(~np.isfinite(to_numpy(X)).all(axis=1))[0])
        raise InvalidInput(Error.SUPPORT_NOT_FINITE, row=row)
    return X


def _shares(n_support: int, weight: Floats, rows: Floats) -> Floats:
    """Divide `n_support` in proportion to weight, by largest remainders, at most rows each."""
    exact = min(n_support, int(rows.sum())) * weight
    counts = np.floor(exact).astype(int)
    most = np.argsort(-(exact - counts), kind="stable")
    counts[most[: round(float(exact.sum() - counts.sum()))]] += 1
    return np.minimum(counts, rows)


def _draw(array: Array, count: int, rng: np.random.Generator) -> Floats:
    index = np.sort(rng.choice(array.shape[0], count, replace=False))
    return np.asarray(take_rows(array, index), dtype=np.float64)
