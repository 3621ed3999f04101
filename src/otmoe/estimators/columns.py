"""What the arguments about features ask for: columns of the design, and a structure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otmoe.data.features import FeatureSpec
from otmoe.model.experts import Experts
from otmoe.model.structure import Structure
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class Columns:
    """The features that arguments may name.

    Attributes
    ----------
    n_features : int
    names : sequence of str
        Empty where X came without names.
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
            columns.update(self._places(feature, argument))
        return tuple(sorted(columns))

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
    ) -> Structure | None:
        """Return what experts see and what they share; None where every coefficient is free.

        Parameters
        ----------
        kind : type of Experts
            The family.
        n_experts : int
        expert_features : None, "intercept", list of str or int; or one of these for each expert
            A mapping has the names of the experts, a list of lists has none.
        common : list of str or int, optional
            "intercept" among them is the intercept.
        common_variance : bool
        """
        if common_variance and not kind.dispersions:
            raise InvalidInput(Error.NO_COMMON_VARIANCE, family=kind.family)
        names, argument = None, "expert_features"
        if isinstance(expert_features, Mapping):
            names = tuple(map(str, expert_features))
            expert_features = list(expert_features.values())
        if names is not None or _one_for_each(expert_features):
            if len(expert_features) != n_experts:
                facts: dict[str, Any] = {"sets": len(expert_features), "experts": n_experts}
                raise InvalidInput(Error.EXPERT_FEATURES_COUNT, **facts)
            everything = tuple(range(self.n_features + 1))
            columns: Any = tuple(self.of(own, argument) or everything for own in expert_features)
        else:
            one = self.of(expert_features, argument)
            columns = None if one is None else (one,)
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

    def _name(self, column: int) -> str | int:
        return self.names[column - 1] if self.names else column - 1


def _one_for_each(features: Any) -> bool:
    """Say whether some features are a list of lists: one for each expert."""
    if features is None or isinstance(features, str):
        return False
    return any(isinstance(own, Collection) and not isinstance(own, str) for own in features)
