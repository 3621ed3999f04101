"""Formulas: ``y ~ spline(hour, 5) + month + dep:origin | weekday``, read into features."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, Self

from otmoe.data.features import FeatureSpec
from otmoe.data.responses import columns_of, responses_of
from otmoe.data.tables import names_of
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

DF = 4
"""Degrees of freedom of a spline whose formula gives none."""

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`[^`]+`)|(?P<number>\d+)(?![\w.])|(?P<word>[^\W\d][\w.]*)|(?P<sign>[-~|+:*(),./]))"
)


class Factor(NamedTuple):
    """A column, or the curve of one.

    Attributes
    ----------
    column : str
    curved : bool
    """

    column: str
    curved: bool = False

    def parts(self) -> list[str]:
        """Return the names of the column and of the spline, as interactions have them."""
        return [self.column, f"spline({self.column})"] if self.curved else [self.column]


@dataclass(frozen=True)
class Side:
    """What experts or the gate see.

    Attributes
    ----------
    factors : tuple of Factor
        Those of products are among them: a product comes with its parts.
    products : tuple of pairs of Factor
    rest : bool
        Whether all other columns belong to it too.
    intercept : bool
        Whether it has one.
    """

    factors: tuple[Factor, ...] = ()
    products: tuple[tuple[Factor, Factor], ...] = ()
    rest: bool = False
    intercept: bool = True

    def interactions(self) -> list[tuple[str, str]]:
        """Return the products as pairs of columns and splines."""
        pairs = [(a, b) for x, z in self.products for a in x.parts() for b in z.parts()]
        return list(dict.fromkeys(pairs))


@dataclass(frozen=True)
class Formula:
    """A response, the features of the experts, and those of the gate.

    ``y ~ a + b | c``: experts have `a` and `b`, the gate has `c`; without a bar, the gate has the
    same features as the experts, and ``| 1`` is a gate without features. ``spline(a, 5)`` is a
    natural cubic spline with 5 degrees of freedom, slope included; ``a:b`` is the product of two
    columns, or of a column and a spline, and includes both columns; ``a * b`` means the same. ``.``
    stands for all columns that are not named on its side of the bar. ``0 + a``, or ``a - 1``, fixes
    the intercept of the experts at 0. Names that are not identifiers are written in backticks.
    ``y/n ~ a`` is y successes in n trials, and ``y, z ~ a`` are several responses.

    Attributes
    ----------
    target : str or None
    experts : Side
    gate : Side or None
        None if there is no bar.
    df : dict
        Degrees of freedom of the splines, by column.

    Examples
    --------
    >>> formula = Formula.parse("late ~ spline(hour, 3) + dep:origin | hour")
    >>> sample = {"late": [0, 1] * 3, "hour": [5, 7, 9, 12, 18, 23], "dep": [1, 2, 3, 4, 5, 6],
    ...           "origin": ["JFK", "LGA"] * 3}
    >>> formula.features(sample).feature_names
    ('hour', 'dep', 'origin=LGA', 'spline(hour).1', 'spline(hour).2', 'dep:origin=LGA')
    >>> formula.gate_features(formula.features(sample))
    ['hour']
    """

    target: str | None
    experts: Side
    gate: Side | None
    df: dict[str, int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a formula, or raise an error that shows where it cannot be read."""
        return cls(*_Parser(text).formula())

    def sides(self) -> list[Side]:
        """Return that of the experts, and of the gate if it has its own."""
        return [self.experts] if self.gate is None else [self.experts, self.gate]

    def columns(self, table: Any, roles: Sequence[str] = ()) -> list[str]:
        """Return the columns that are read, in the order of the formula.

        Parameters
        ----------
        table : table with named columns
            For ``.``, which is all of them but the target and `roles`.
        roles : sequence of str
            Columns that are not features, such as a weight.
        """
        named = [factor.column for side in self.sides() for factor in side.factors]
        if any(side.rest for side in self.sides()):
            taken = {*self._response(table), *roles}
            named += [name for name in names_of(table) if name not in taken]
        for column in self._response(table):
            if column in named:
                raise InvalidInput(Error.FORMULA_TARGET_TWICE, column=column)
        return list(dict.fromkeys(named))

    def _response(self, table: Any) -> list[str]:
        """Return the columns of the response."""
        if self.target is None:
            return []
        return columns_of(responses_of(self.target, names_of(table)))

    def features(
        self,
        sample: Any,
        *,
        roles: Sequence[str] = (),
        center: bool = False,
        max_levels: int = 50,
        missing: Literal["error", "indicator"] = "error",
    ) -> FeatureSpec:
        """Return the features that the formula asks for.

        Parameters
        ----------
        sample : table with named columns
            Levels and knots come from it.
        roles : sequence of str
            As in :meth:`columns`.
        center, max_levels, missing
            As in :meth:`FeatureSpec.from_sample`.
        """
        columns = self.columns(sample, roles)
        if not columns:
            raise InvalidInput(Error.FORMULA_NO_COLUMNS)
        pairs = [pair for side in self.sides() for pair in side.interactions()]
        return FeatureSpec.from_sample(
            sample,
            columns,
            center=center,
            max_levels=max_levels,
            splines=self.df,
            interactions=list(dict.fromkeys(pairs)),
            missing=missing,
        )

    def check(self, features: FeatureSpec, table: Any, roles: Sequence[str] = ()) -> None:
        """Refuse features from elsewhere that are not those of the formula; knots do not count."""
        wanted = {*self.columns(table, roles), *(f"spline({name})" for name in self.df)}
        wanted |= {":".join(pair) for side in self.sides() for pair in side.interactions()}
        there = {*features.names, *(term.name for term in features.terms)}
        if wanted != there:
            name = min(wanted ^ there)
            who = "formula" if name in wanted else "file of features"
            raise InvalidInput(Error.FORMULA_OTHER_FEATURES, name=name, who=who)

    def gate_features(self, features: FeatureSpec) -> list[str] | Literal["intercept"] | None:
        """Return what the gate sees of the features; None for what experts see."""
        if self.gate is None:
            return None
        return self._seen(self.gate, features) or "intercept"

    def expert_features(self, features: FeatureSpec) -> list[str] | Literal["intercept"] | None:
        """Return what experts see of the features; None for all."""
        seen = self._seen(self.experts, features)
        if not self.experts.intercept:
            return ["-intercept", *seen]
        return None if len(seen) == len(features.feature_names) else seen or "intercept"

    def _seen(self, side: Side, features: FeatureSpec) -> list[str]:
        """Return the names of the features of a side, in their order."""
        layout, named = features.layout, {factor.column for factor in side.factors}
        seen: set[int] = set()
        for name, place in layout.of_columns.items():
            if side.rest or name in named:
                seen.update(place)
        terms = [part for factor in side.factors if factor.curved for part in factor.parts()[1:]]
        for term in [*terms, *(":".join(pair) for pair in side.interactions())]:
            seen.update(layout.of_terms[term])
        return [features.feature_names[j] for j in sorted(seen)]


class _Parser:
    """Reads a formula from left to right."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise InvalidInput(Error.FORMULA_NO_TEXT, kind=type(text).__name__)
        self.text, self.at = text, 0
        self.tokens: list[tuple[str, str, int]] = []
        while text[self.at :].strip():
            found = _TOKEN.match(text, self.at)
            if found is None or found.lastgroup is None:
                self._fail("a name, a number or one of ~ | + : * ( ) , .", self._start(self.at))
            kind = found.lastgroup
            self.tokens.append((kind, found[kind], found.start(kind)))
            self.at = found.end()
        self.next = 0
        self.df: dict[str, int] = {}
        self.splines: dict[str, int | None] = {}

    def formula(self) -> tuple[str | None, Side, Side | None, dict[str, int]]:
        """Return target, experts, gate and degrees of freedom."""
        target = None
        if any(token[1] == "~" for token in self.tokens):
            target = self._response()
            while self._sees(","):
                target += "," + self._response()
            self._take("~", "~ after the response")
        experts, gate = self._side(), None
        if self._sees("|"):
            gate = self._side()
            if not gate.intercept:
                raise InvalidInput(Error.FORMULA_GATE_INTERCEPT, formula=self.text)
        if self.next < len(self.tokens):
            self._fail("+ or |" if gate is None else "+")
        return target, experts, gate, {name: df or DF for name, df in self.splines.items()}

    def _response(self) -> str:
        """Return a column, or successes and trials."""
        found = self._name("the name of the response")
        return found + "/" + self._name("the column of the trials") if self._sees("/") else found

    def _side(self) -> Side:
        factors: list[Factor] = []
        products: list[tuple[Factor, Factor]] = []
        rest, intercept = False, True
        while True:
            if self._sees("."):
                rest = True
            elif self._peek() in (("number", "0"), ("number", "1")):
                intercept = self._peek() == ("number", "1")
                self.next += 1
            else:
                first = self._factor()
                factors.append(first)
                if self._sees(":") or self._sees("*"):
                    second = self._factor()
                    factors.append(second)
                    products.append((first, second))
                    if first.column == second.column:
                        raise InvalidInput(Error.FORMULA_SQUARE, column=first.column)
                    if self._peek()[1] in (":", "*"):
                        raise InvalidInput(Error.FORMULA_THREE, formula=self.text)
            if [word for _, word, _ in self.tokens[self.next : self.next + 2]] == ["-", "1"]:
                intercept, self.next = False, self.next + 2
            if not self._sees("+"):
                return Side(_distinct(factors), tuple(dict.fromkeys(products)), rest, intercept)

    def _factor(self) -> Factor:
        kind, word = self._peek()
        name = self._name("a column, spline(column, df), 1 or .")
        if kind != "word" or not self._sees("("):
            return Factor(name)
        if word != "spline":
            raise InvalidInput(Error.FORMULA_FUNCTION, name=word)
        column, df = self._name("the column of the spline"), None
        if self._sees(","):
            kind, word = self._peek()
            if kind != "number":
                self._fail("a whole number of degrees of freedom")
            df, self.next = int(word), self.next + 1
        self._take(")", ") after the spline")
        before = self.splines.get(column)
        if None not in (df, before) and df != before:
            raise InvalidInput(Error.FORMULA_TWO_DF, column=column, df=df, other=before)
        self.splines[column] = df if before is None else before
        return Factor(column, True)

    def _name(self, wanted: str) -> str:
        kind, word = self._peek()
        if kind not in ("word", "quoted"):
            self._fail(wanted)
        self.next += 1
        return word.strip("`") if kind == "quoted" else word

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.next][:2] if self.next < len(self.tokens) else ("", "")

    def _sees(self, sign: str) -> bool:
        """Say whether this sign is next, and step over it."""
        found = self._peek() == ("sign", sign)
        self.next += found
        return found

    def _take(self, sign: str, wanted: str) -> None:
        if not self._sees(sign):
            self._fail(wanted)

    def _start(self, at: int) -> int:
        return at + len(self.text[at:]) - len(self.text[at:].lstrip())

    def _fail(self, wanted: str, at: int | None = None) -> NoReturn:
        if at is None:
            end = self.next >= len(self.tokens)
            at = len(self.text) if end else self.tokens[self.next][2]
        found = "its end" if at >= len(self.text) else repr(self.text[at:][:20])
        raise InvalidInput(Error.FORMULA_UNREADABLE, formula=self.text, wanted=wanted, found=found)


def _distinct(factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """Return each column once, as a curve if it is one anywhere."""
    curved: dict[str, bool] = {}
    for factor in factors:
        curved[factor.column] = curved.get(factor.column, False) or factor.curved
    return tuple(Factor(*item) for item in curved.items())
