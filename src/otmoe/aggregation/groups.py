"""Merging of merges: groups of sites first, then the models of the groups (maths 11).

A merging costs a time per site and support point. Groups of sites need fewer support points than
all of them together, can be merged on any worker, and are read there: no process ever holds more
messages than those of one group.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from otmoe.aggregation.group import Group, Grouping, GroupTask, Message, Run, merge_group
from otmoe.aggregation.messages import check_weights
from otmoe.aggregation.result import Aggregation
from otmoe.aggregation.support import N_SUPPORT, Support
from otmoe.arrays.numerics import to_numpy
from otmoe.documents.message import LocalModel
from otmoe.text.arguments import check_whole
from otmoe.text.errors import InvalidInput
from otmoe.text.names import look_alikes
from otmoe.text.notices import NAMED, Notice
from otmoe.text.sentences import Error, Status, Warn

# `python -m benchmarks many` says what they lose and gain.
MANY = 2000
"""Sites beyond which they are merged in groups, unless asked otherwise."""

_POINTS = 500  # at which the models of a group are compared
_MERGED = (Warn.SITES_STAND_OUT.code, Warn.SITES_EXCLUDED.code)  # told for all groups at once
_TOLD = 5  # warnings of one kind that groups may add


def in_groups(
    messages: Sequence[Message],
    group_size: int | None,
    method: str,
    site_weight: Any,
    max_weight: float | None,
) -> bool:
    """Say whether to merge in groups; refuse if it was asked for and cannot be done."""
    if group_size is not None:
        check_whole("group_size", group_size)
    size = MANY if group_size is None else group_size
    if len(messages) <= size:
        return False
    lacking = {
        "method='ensemble'": method == "ensemble",
        "site_weight='covariate'": isinstance(site_weight, str),
        "max_weight": max_weight is not None,
    }
    for name, given in lacking.items():
        if given and group_size is not None:
            raise InvalidInput(Error.NOT_IN_GROUPS, name=name, sites=len(messages))
    return not any(lacking.values())


@dataclass(frozen=True)
class Groups:
    """All groups, merged.

    Attributes
    ----------
    groups : tuple of Group
    support : array or int
        Where the models of the groups are compared.
    weight : list of float, optional
        Of the groups; by default their rows.
    """

    groups: tuple[Group, ...]
    support: Any = field(repr=False)
    weight: list[float] | None = field(repr=False)

    @property
    def messages(self) -> list[LocalModel]:
        """What the groups say."""
        return [group.message for group in self.groups if group.message is not None]

    @property
    def n_sites(self) -> int:
        """Number of sites in all groups."""
        return sum(len(group.sites) for group in self.groups)

    def with_any(self, sites: Sequence[str]) -> list[str]:
        """Return the names of the groups that have any of these sites."""
        wanted = set(sites)
        pairs = zip(self.messages, self.groups, strict=False)
        return [message.site for message, group in pairs if wanted & set(group.sites)]

    def told(self, result: Aggregation, seconds: float) -> Aggregation:
        """Return the merging of the groups with what is to be said about their sites.

        A group that was left out is named by its sites.
        """
        whole = {group.message.site: group for group in self.groups if group.message is not None}
        left_out = {name: why for group in self.groups for name, why in group.left_out.items()}
        flagged = {name: why for group in self.groups for name, why in group.flagged.items()}
        for name, why in result.left_out.items():
            left_out |= dict.fromkeys(whole[name].sites, why) if name in whole else {name: why}
        flagged = {name: why for name, why in flagged.items() if name not in left_out}
        warnings: list[Notice] = []
        for code, names in ((Warn.SITES_EXCLUDED, left_out), (Warn.SITES_STAND_OUT, flagged)):
            if names:
                facts = {"count": len(names), "total": self.n_sites, "reasons": _few(names)}
                warnings.append(code(sites=tuple(names), **facts))
        counts: dict[str, int] = {}
        for notice in (w for group in self.groups for w in group.warnings):
            counts[notice.code] = counts.get(notice.code, 0) + 1
            if notice.code not in _MERGED and counts[notice.code] <= _TOLD:
                warnings.append(notice)
        of_groups = [w for w in result.warnings if w.code != Warn.SITES_EXCLUDED.code]
        status = Status.IN_GROUPS(count=self.n_sites, groups=len(self.groups), status=result.status)
        return replace(
            result,
            left_out=left_out,
            warnings=(*warnings, *of_groups),
            status=status,
            groups={name: group.sites for name, group in whole.items()},
            timings={**result.timings, "total": seconds},
        )


def groups_of(
    messages: Sequence[Message],
    support: Any,
    site_weight: Any,
    how: Grouping,
    rng: np.random.Generator,
    run: Run | None = None,
) -> Groups:
    """Cut sites into groups at random, and merge each.

    Groups depend on the names of the sites (or of their files) and the seed, not on the order in
    which they come.

    Parameters
    ----------
    messages : sequence of LocalModel or path
    support, site_weight
        Of :func:`otmoe.aggregate`.
    how : Grouping
    rng : Generator
    run : callable, optional
        By default groups are merged here, one after another.
    """
    names = [m.site if isinstance(m, LocalModel) else os.fspath(m) for m in messages]
    if site_weight is not None:
        site_weight = check_weights(site_weight, [SimpleNamespace(site=n) for n in names])
    order = np.argsort(np.array(names), kind="stable")
    cut = np.array_split(rng.permutation(order), -(-len(names) // how.group_size))
    digits = len(str(len(cut)))
    points, rows = _support_of(support, rng, len(cut))
    tasks = [
        GroupTask(
            f"group {g + 1:0{digits}d}",
            tuple(messages[int(i)] for i in members),
            _of_members(points, [messages[int(i)] for i in members]),
            None if site_weight is None else site_weight[members],
            how,
            rows,
            int(rng.integers(2**31)),
        )
        for g, members in enumerate(map(np.sort, cut))
    ]
    groups = tuple((run or _here)(tasks))
    _check_sites(groups, how.keep)
    merged = [group for group in groups if group.message is not None]
    weight = None if site_weight is None else [group.weight for group in merged]
    whole = support.rows if isinstance(support, Support) else support
    if rows:
        whole = N_SUPPORT if support is None or isinstance(support, Mapping) else support
    return Groups(tuple(merged), whole, weight)


def _here(tasks: Sequence[GroupTask]) -> Iterable[Group]:
    return map(merge_group, tasks)


def _support_of(support: Any, rng: np.random.Generator, n_groups: int) -> tuple[Any, int]:
    """Return points for groups, and how many rows of covariates each has to bring."""
    if isinstance(support, Support | Mapping):
        known = support.by_site() if isinstance(support, Support) else support
        if any(isinstance(name, int) for name in known):
            return _some(to_numpy(np.asarray(support)), rng), 0
        brought = 0 if isinstance(support, Support) else max(4 * N_SUPPORT // n_groups, 50)
        return dict(known), brought
    if support is None or isinstance(support, int | np.integer):
        wanted = N_SUPPORT if support is None else int(support)
        return min(_POINTS, wanted), max(4 * wanted // n_groups, 50)
    return _some(support, rng), 0


def _some(X: Any, rng: np.random.Generator) -> Any:
    """Return some of the support points, a table as it is."""
    if hasattr(X, "iloc") or len(X) <= _POINTS:
        return X
    return np.asarray(X)[np.sort(rng.choice(len(X), _POINTS, replace=False))]


def _of_members(points: Any, members: Sequence[Message]) -> Any:
    """Return what is known of the covariates of these sites."""
    if not isinstance(points, dict):
        return points
    names = {m.site for m in members if isinstance(m, LocalModel)}
    return {name: X for name, X in points.items() if name in names}


def _check_sites(groups: Sequence[Group], keep: Sequence[str]) -> None:
    """Refuse sites that occur twice or look alike in different groups, and unknown names."""
    names = [name for group in groups for name in group.sites]
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise InvalidInput(Error.SITE_TWICE, site=twice)
    if pair := look_alikes(names):
        raise InvalidInput(Error.LOOK_ALIKE, name=ascii(pair[1]), other=ascii(pair[0]))
    unknown = sorted(set(keep) - set(names))
    if unknown:
        raise InvalidInput(Error.KEEP_UNKNOWN, names=unknown, sites=names[:NAMED])


def _few(why: Mapping[str, Notice]) -> str:
    named = [f"{name!r}: {reason}" for name, reason in list(why.items())[:NAMED]]
    return "; ".join(named + ([f"and {len(why) - NAMED} more"] if len(why) > NAMED else []))
