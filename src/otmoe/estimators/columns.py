"""What the arguments about features ask for: columns of the design, and a structure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otmoe.data.features import FeatureSpec
from otmoe.model.experts import Experts
from otmoe.model.structure import Structure, takes_zeros
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

WITHOUT = "-intercept"
"""What stands among the features of an expert whose intercept is fixed at 0."""

_EXPERTS = "expert_features"


@dataclass(frozen=True)
class Columns:
    """The features that arguments may name.

    Attributes
    ----------
    n_features : int
    names : sequence of str
        Empty if X has no column names.
    spec : FeatureSpec, optional
        How columns became features: the name of a column or a term stands for all of its features.
    """

    n_features: int
    names: Sequence[str] = ()
    spec: FeatureSpec | None = None

    def of(self, features: Any, argument: str) -> tuple[int, ...] | None:
        """Return columns of the design, the intercept first; None for all.

        Parameters
        ----------
        features : None, "intercept" or list of str or int
            "-intercept" among those of experts leaves the intercept out.
        argument : str
            What errors call it.
        """
        if features is None:
            return None
        if isinstance(features, str):
            if features == "intercept":
                return (0,)
            raise InvalidInput(Error.GATE_FEATURES_TEXT, argument=argument, value=features)
        columns = {0}
        for feature in features:
            if not self._is_without(feature, argument):
                columns.update(self._places(feature, argument))
        if any(self._is_without(feature, argument) for feature in features):
            columns.remove(0)
        if not columns:
            raise InvalidInput(Error.EXPERT_WITHOUT_COLUMNS, argument=argument)
        return tuple(sorted(columns))

    def _is_without(self, feature: Any, argument: str) -> bool:
        """Say whether this is no feature but the word that an expert has no intercept."""
        word = isinstance(feature, str) and feature == WITHOUT
        return word and argument == _EXPERTS and WITHOUT not in self.names

    def _places(self, feature: Any, argument: str) -> list[int]:
        """Return the columns of one feature, or of the column or term it was made of."""
        if isinstance(feature, str):
            if feature in self.names:
                return [list(self.names).index(feature) + 1]
            if feature == "intercept":
                return [0]
            if not self.names:
                raise InvalidInput(Error.GATE_FEATURE_UNNAMED, argument=argument, name=feature)
            layout = None if self.spec is None else self.spec.layout
            known = {} if layout is None else {**layout.of_terms, **layout.of_columns}
            if feature not in known:
                facts: dict[str, Any] = {
                    "argument": argument,
                    "name": feature,
                    "columns": list(self.names),
                }
                raise InvalidInput(Error.GATE_FEATURE_NAME, **facts)
            return [j + 1 for j in known[feature]]
        if isinstance(feature, int | np.integer) and 0 <= feature < self.n_features:
            return [int(feature) + 1]
        facts = {"argument": argument, "value": feature, "last": self.n_features - 1}
        raise InvalidInput(Error.GATE_FEATURE_INDEX, **facts)

    def structure(
        self,
        kind: type[Experts],
        n_experts: int,
        expert_features: Any = None,
        common: Any = None,
        common_variance: bool = False,
        zero_expert: bool = False,
    ) -> Structure | None:
        """Return what experts see and what they share; None where every coefficient is free.

        Parameters
        ----------
        kind : type of Experts
            The family.
        n_experts : int
        expert_features : None, "intercept", list of str or int; or one of these for each expert
            A mapping has the names of the experts, a list of lists has none. For several responses,
            a mapping by response has any of these forms for each.
        common : list of str or int, optional
            "intercept" among them is the intercept.
        common_variance : bool
        zero_expert : bool
            Whether the last expert is always 0; the features are then those of the others.
        """
        if zero_expert and not takes_zeros(kind):
            raise InvalidInput(Error.ZERO_OF_COUNTS, family=kind.family)
        if zero_expert and n_experts < 2:
            raise InvalidInput(Error.ZERO_ALONE)
        n_seeing = n_experts - bool(zero_expert)
        if common_variance and not kind.dispersions:
            raise InvalidInput(Error.NO_COMMON_VARIANCE, family=kind.family)
        columns, names = self._seen(kind, n_seeing, expert_features)
        if zero_expert:
            columns = columns or (tuple(range(self.n_features + 1)),)
            columns = (*(columns * n_seeing if len(columns) < n_seeing else columns), ())
            names = None if names is None else (*names, "zero")
        shared: set[int] = set()
        if isinstance(common, str):
            raise InvalidInput(Error.COMMON_TEXT, value=common)
        for feature in common or ():
            shared.update(self._places(feature, "common"))
        found = Structure(columns, tuple(shared), bool(common_variance), names)
        unseen = shared - {j for k in range(n_experts) for j in found.seen(k, self.n_features + 1)}
        if unseen:
            raise InvalidInput(Error.COMMON_UNSEEN, name=self._name(min(unseen)))
        return found if found.restricts(self.n_features + 1) else None

    def _seen(
        self, kind: type[Experts], n_experts: int, features: Any
    ) -> tuple[Any, tuple[str, ...] | None]:
        """Return columns by expert, and by response where these differ; and names of experts."""
        each = self._by_response(kind, features)
        if each is None:
            return self._by_expert(n_experts, features)
        found = [self._by_expert(n_experts, own) for own in each]
        called = {names for _, names in found if names is not None}
        if len(called) > 1:
            raise InvalidInput(Error.EXPERT_NAMES_DIFFER, names=sorted(map(list, called)))
        everything = (tuple(range(self.n_features + 1)),)
        sets = [everything if columns is None else columns for columns, _ in found]
        most = max(map(len, sets))
        sets = [columns * most if len(columns) == 1 else columns for columns in sets]
        return tuple(zip(*sets, strict=True)), min(called, default=None)

    def _by_response(self, kind: type[Experts], features: Any) -> list[Any] | None:
        """Return the features of each response, if that is how they are given."""
        names = kind.blank(1, 1).responses
        places = {f"y{r}": r for r in range(len(names))} | {n: r for r, n in enumerate(names)}
        if not isinstance(features, Mapping) or not set(features) & set(places):
            return None
        unknown = sorted(set(map(str, features)) - set(places))
        if unknown:
            raise InvalidInput(Error.RESPONSE_UNKNOWN, name=unknown[0], responses=names)
        given = {places[name]: own for name, own in features.items()}
        return [given.get(r) for r in range(len(names))]

    def _by_expert(self, n_experts: int, features: Any) -> tuple[Any, tuple[str, ...] | None]:
        """Return columns of each expert, or one entry for all; and the names of experts, if any."""
        names = None
        if isinstance(features, Mapping):
            names, features = tuple(map(str, features)), list(features.values())
        if names is None and not _one_for_each(features):
            one = self.of(features, _EXPERTS)
            return (None if one is None else (one,)), None
        if len(features) != n_experts:
            facts: dict[str, Any] = {"sets": len(features), "experts": n_experts}
            raise InvalidInput(Error.EXPERT_FEATURES_COUNT, **facts)
        everything = tuple(range(self.n_features + 1))
        return tuple(self.of(own, _EXPERTS) or everything for own in features), names

    def _name(self, column: int) -> str | int:
        if column == 0:
            return "intercept"
        return self.names[column - 1] if self.names else column - 1


def _one_for_each(features: Any) -> bool:
    """Say whether some features are a list of lists: one for each expert."""
    if features is None or isinstance(features, str):
        return False
    return any(isinstance(own, Collection) and not isinstance(own, str) for own in features)
