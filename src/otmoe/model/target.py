"""What the response is: a family, and the classes where it is one of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from otmoe.arrays.numerics import Array, Floats, like, to_numpy
from otmoe.model.experts import FAMILIES, Experts, family_of_classes
from otmoe.model.mixture import ExpertPer, MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

CLASSES = "classes"
"""What files and the shell call a target of classes, however many there are."""


def regression_families() -> list[str]:
    """Return what files and the shell may ask for: families of numbers, and classes.

    Student-t families may also end in their degrees of freedom.
    """
    return [name for name, family in FAMILIES.items() if not family.classifies] + [CLASSES]


@dataclass(frozen=True, eq=False)
class Target:
    """What y is.

    Attributes
    ----------
    family : str
        A name in :data:`otmoe.model.experts.FAMILIES`.
    classes : ndarray of shape (C,), optional
        Class labels, in the order of the experts' classes.
    coded : bool
        Whether y holds class numbers already, rather than labels.
    expert_per : {"row", "group"}
        Whether every row has an expert of its own, or rows of a group share one (maths 23).
    responses : tuple of str
        Names of several responses; empty for y0, y1 and so on, and for a single one.

    Examples
    --------
    >>> target = Target.of_classes(np.array(["no", "yes"]))
    >>> target.family, target.numbers(np.array(["yes", "no"]))
    ('logistic', array([1., 0.]))
    """

    family: str = "gaussian"
    classes: Floats | None = None
    coded: bool = False
    expert_per: ExpertPer = "row"
    responses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        families = self.family.split("+")
        if self.responses and len(self.responses) != len(families):
            named = list(self.responses)
            raise InvalidInput(Error.FAMILIES_COUNT, families=families, responses=named)

    @classmethod
    def of_classes(cls, classes: Floats, *, coded: bool = False) -> Self:
        """Return the target with these classes."""
        return cls(family_of_classes(len(classes)).family, classes, coded)

    @classmethod
    def of(cls, model: MoE) -> Self:
        """Return what a model's response is."""
        coded = model.classes is None
        labels = getattr(model.experts, "labels", ())
        return cls(model.experts.family, model.classes, coded, model.expert_per, labels)

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse responses of other names, or in another order, than those of a model."""
        if self.responses and names and tuple(names) != self.responses:
            raise InvalidInput(
                Error.RESPONSES_OTHER, responses=list(names), wanted=list(self.responses)
            )

    @property
    def kind(self) -> type[Experts]:
        """The family itself."""
        return FAMILIES[self.family].called(self.responses)

    @property
    def n_classes(self) -> int:
        """Number of classes; 2 where there are none, which no family minds."""
        return 2 if self.classes is None else len(self.classes)

    def blank(self, n_experts: int, n_columns: int) -> Experts:
        """Return experts that know nothing yet."""
        return self.kind.blank(n_experts, n_columns, self.n_classes)

    def numbers(self, y: Array) -> Array:
        """Return y as the numbers that the family takes, (n,); refuse what it cannot be.

        Parameters
        ----------
        y : array of shape (n,)
            Numbers, or class labels.
        """
        if self.classes is not None and not self.coded:
            return class_codes(to_numpy(y), self.classes)
        if isinstance(y, np.ndarray) and y.dtype.kind in "USO":
            raise InvalidInput(Error.TARGET_IS_TEXT)
        self.kind.check_response(to_numpy(y))
        return y

    def numbers_like(self, y: Any, X: Array) -> Array:
        """Return :meth:`numbers` in the namespace and on the device of X."""
        return like(self.numbers(to_numpy(y)), X)


def as_whole(labels: Floats) -> Floats:
    """Return labels that are whole numbers as such: files of numbers give 1.0 for class 1.

    Examples
    --------
    >>> as_whole(np.array([0.0, 1.0])).tolist(), as_whole(np.array([0.5, 1.0])).tolist()
    ([0, 1], [0.5, 1.0])
    """
    if labels.dtype.kind != "f" or not np.all(np.abs(labels) < 2**53):
        return labels
    return labels.astype(np.int64) if np.all(labels == np.trunc(labels)) else labels


def class_codes(y: Floats, classes: Floats) -> Floats:
    """Return the place of each label among the classes, (n,); refuse labels that are not there."""
    order = np.argsort(classes)  # a model from elsewhere may have its own
    places = np.searchsorted(classes, y, sorter=order)
    codes = order[np.minimum(places, len(order) - 1)]
    unknown = classes[codes] != y
    if np.any(unknown):
        label = y[unknown].tolist()[0]
        raise InvalidInput(Error.CLASS_UNKNOWN, label=label, classes=classes.tolist())
    return codes.astype(np.float64)
