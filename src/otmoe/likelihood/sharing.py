"""Groups of rows that share their expert: who they are, and what that asks of rows (maths 23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy import special

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.grouped import as_labels, coded
from otmoe.likelihood.rows import Block, Rows
from otmoe.model.mixture import MoE, Posterior
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.sentences import Error


def sharing(
    rows: Rows,
    labels: Any,
    columns: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> Rows:
    """Return rows whose groups share their expert, the rows of a group next to each other.

    Parameters
    ----------
    rows : Rows
        NumPy arrays.
    labels : array-like of shape (n,)
        Of any hashable kind; rows of one label are a group.
    columns : sequence of int, optional
        Columns of the design that the gate uses; 0 is the intercept. None: all. They must not vary
        within a group, nor must weights.
    names : sequence of str, optional
        Of the features, for errors.
    """
    if not isinstance(rows.X, np.ndarray) or not isinstance(rows.y, np.ndarray):
        raise InvalidType(Error.SHARING_ON_DEVICE)
    values = as_labels(labels, len(rows))
    codes = group_codes(values)
    if (order := group_order(codes)) is not None:
        rows, codes, values = rows.take(order), codes[order], values[order]
    rows = replace(rows, groups=codes)
    within = np.flatnonzero(np.diff(codes) == 0)  # rows that the next one has to agree with
    features = range(rows.X.shape[1]) if columns is None else [j - 1 for j in columns if j > 0]
    for j in features:
        x = rows.X[:, j]
        differ = within[x[within] != x[within + 1]]
        if len(differ):
            name = f"x{j}" if names is None else names[j]
            raise InvalidInput(Error.GATE_VARIES, name=str(name), group=_shown(values[differ[0]]))
    if rows.weight is not None:
        differ = within[rows.weight[within] != rows.weight[within + 1]]
        if len(differ):
            raise InvalidInput(Error.WEIGHT_VARIES, group=_shown(values[differ[0]]))
    return rows


def group_codes(values: Floats) -> Floats:
    """Return the group of each label (n,), numbered from 0 in the order of their first rows."""
    _, first, codes = np.unique(coded(values)[0], return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[codes]


def group_order(codes: Floats) -> Floats | None:
    """Return the order in which rows of a group are next to each other; None if they are."""
    return np.argsort(codes, kind="stable") if np.any(np.diff(codes) < 0) else None


def rows_for(
    model: MoE, rows: Rows, labels: Any = None, names: Sequence[str] | None = None
) -> Rows:
    """Return rows as a model needs them: by group, where those of a group share their expert.

    Parameters
    ----------
    model : MoE
    rows : Rows
    labels : array-like of shape (n,), optional
        Of groups.
    names : sequence of str, optional
        Of the features, for errors.
    """
    if model.expert_per == "row" or rows.groups is not None:
        return rows
    if labels is None:
        raise InvalidInput(Error.SHARING_NEEDS_GROUPS)
    return sharing(rows, labels, model.gate.columns, names or model.feature_names)


@dataclass(frozen=True)
class GroupSums:
    """What groups of rows add to a log-likelihood, by label; sums of parts of a group add up.

    So that rows of a group may come in several batches (maths 23).

    Attributes
    ----------
    labels : ndarray of shape (G,)
        Distinct.
    log_phi : ndarray of shape (G, K)
        Log densities of each expert, summed over the rows of a group, base measure included.
    log_pi : ndarray of shape (G, K)
        The gate's log-probabilities.
    x : ndarray of shape (G, q)
        The features of the gate.
    weight : ndarray of shape (G,)
    """

    labels: Floats
    log_phi: Floats
    log_pi: Floats
    x: Floats
    weight: Floats

    @classmethod
    def of(cls, model: MoE, rows: Rows, labels: Any) -> GroupSums:
        """Return the sums of some rows.

        Parameters
        ----------
        model : MoE
            On the scale of the rows.
        rows : Rows
            In any order.
        labels : array-like of shape (n,)
        """
        there, values = rows_for(model, rows, labels), as_labels(labels, len(rows))
        _, first = np.unique(group_codes(values), return_index=True)
        parts = [_sums(model, there.block(some)) for some in there.slices()]
        return cls(values[first], *(np.concatenate(part) for part in zip(*parts, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[GroupSums], model: MoE) -> GroupSums:
        """Return the sums of several parts, in which a group may occur more than once.

        Parameters
        ----------
        parts : sequence of GroupSums
        model : MoE
            Whose sums they are; an error names the feature of its gate that varies in a group.
        """
        labels, log_phi, log_pi, x, weight = (
            np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)
        )
        codes = group_codes(labels)
        _, first = np.unique(codes, return_index=True)
        lead = first[codes]
        for column, j in zip(x.T, _gate_features(model), strict=True):
            _same(column == column[lead], labels, Error.GATE_VARIES, name=model.terms[j])
        _same(weight == weight[lead], labels, Error.WEIGHT_VARIES)
        total = np.stack([np.bincount(codes, column, len(first)) for column in log_phi.T], axis=1)
        return cls(labels[first], total, log_pi[first], x[first], weight[first])

    @property
    def log_density(self) -> Floats:
        """Log density of the rows of every group together, (G,)."""
        return np.asarray(special.logsumexp(self.log_phi + self.log_pi, axis=1))

    @property
    def log_likelihood(self) -> float:
        """The weighted sum of the log densities of all groups."""
        return float(self.weight @ self.log_density)


def group_density(model: MoE, rows: Rows) -> Floats:
    """Return log f of the rows of every group together, (G,), in the order of their first rows.

    Parameters
    ----------
    model : MoE
        On the scale of the rows.
    rows : Rows
        From :func:`sharing`.
    """
    return GroupSums.of(model, rows, rows.groups).log_density


def group_responsibilities(model: MoE, rows: Rows, labels: Any) -> Floats:
    """Return the probability of each expert given all rows of a group, at each of them, (n, K).

    Parameters
    ----------
    model : MoE
        On the scale of the rows.
    rows : Rows
        In any order.
    labels : array-like of shape (n,)
    """
    there = rows_for(model, rows, labels)
    found = np.concatenate(
        [_posterior(model, there.block(some)).responsibilities for some in there.slices()]
    )
    order = group_order(group_codes(as_labels(labels, len(rows))))
    return found if order is None else found[np.argsort(order)]


def _sums(model: MoE, block: Block) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the sums of the groups in a block: all of GroupSums, but for the labels."""
    experts, at = model.experts, block.leads
    log_phi = experts.expected_log_prob(
        experts.predictor(block.X, block.offset), experts.observe(block.y)
    )
    base = np.zeros(len(block.y)) + experts.log_base(block.y)
    weight = np.ones(len(block.y)) if block.weight is None else block.weight
    return (
        block.by_group(log_phi + base[:, None])[at],
        np.asarray(model.gate.log_prob(block.X[at])),
        block.X[at][:, _gate_features(model)],
        weight[at],
    )


def _gate_features(model: MoE) -> list[int]:
    """Return the columns of the design that the gate uses, but for the intercept."""
    columns = range(model.n_features + 1) if model.gate.columns is None else model.gate.columns
    return [j for j in columns if j > 0]


def _same(alike: Floats, labels: Floats, code: Error, **facts: Any) -> None:
    """Refuse a group whose parts differ in what they have to share."""
    if not np.all(alike):
        raise InvalidInput(code, **facts, group=_shown(labels[np.argmin(alike)]))


def _posterior(model: MoE, block: Block) -> Posterior:
    response = model.experts.observe(block.y)
    return model.posterior(block.X, response, block.offset, groups=block.groups)


def _shown(label: Any) -> str:
    return repr(label.item() if isinstance(label, np.generic) else label)
