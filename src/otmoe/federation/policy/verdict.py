"""Figures checked by a policy: what passes, what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from otmoe.data.survey import SurveyedSite
from otmoe.documents.message import LocalModel
from otmoe.documents.reply import RefineReply
from otmoe.federation.policy.figures import Figures
from otmoe.federation.policy.ledger import ROWS
from otmoe.federation.policy.rules import Measure, Policy, Rule, Verdict
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Finding

_SAID = {
    Rule.ROWS: Finding.POLICY_ROWS,
    Rule.PARAMETERS: Finding.POLICY_PARAMETERS,
    Rule.EXPERT_ROWS: Finding.POLICY_EXPERT_ROWS,
    Rule.CELLS: Finding.POLICY_CELLS,
    Rule.LEVERAGE: Finding.POLICY_LEVERAGE,
    Rule.CERTAINTY: Finding.POLICY_CERTAINTY,
    Rule.SKETCH: Finding.POLICY_SKETCH,
    Rule.SHARE: Finding.POLICY_SHARE,
    Rule.NAMES: Finding.POLICY_NAMES,
    Rule.COLUMNS: Finding.POLICY_COLUMNS,
    Rule.QUESTION: Finding.POLICY_QUESTION,
    Rule.SCATTER: Finding.POLICY_SCATTER,
    Rule.LEDGER: Finding.POLICY_LEDGER,
}


class Refused(InvalidInput):
    """What a site's policy does not let leave; `facts["rules"]` names the rules."""


def judge(
    policy: Policy,
    figures: Figures,
    *,
    columns: Iterable[str] = (),
    own_names: bool = False,
    overrides: Mapping[Rule, str] | None = None,
) -> Verdict:
    """Check figures against a policy.

    Parameters
    ----------
    policy : Policy
    figures : Figures
    columns : iterable of str
        Columns that were used.
    own_names : bool
        Whether names of features and levels come from the site's rows, not from the coordinator.
    overrides : dict of str, optional
        Rules that the site overrides this once, and why.
    """
    measures = [*judged_columns(policy, columns), *_of_figures(policy, figures)]
    if own_names and not policy.names and figures.levels:
        some = {name: n for name, n in figures.levels.items() if n > 0}
        if some and policy.cell is not None:
            rarest = min(some, key=lambda name: some[name])
            measures.append(_least(Rule.NAMES, some[rarest], policy.cell, rarest))
    broken = {m.rule for m in measures if m.outcome == "refuse"}
    kept = {rule: why for rule, why in (overrides or {}).items() if rule in broken}
    return Verdict(tuple(measures), kept, figures.people)


def judge_message(policy: Policy, message: LocalModel) -> Verdict:
    """Check a message against a policy, without its rows: some figures are then unknown."""
    rows, weight = message.n_samples, message.sketch
    measures = [*judged_size(policy, message.model.n_free, rows)]
    if policy.component_rows is not None and weight is not None:
        least = float(weight.weight.min()) * rows
        measures.append(_least(Rule.SKETCH, least, policy.component_rows))
    if policy.share is not None and message.support is not None:
        measures.append(_most(Rule.SHARE, len(message.support), policy.share))
    limits = {
        Rule.EXPERT_ROWS: policy.expert_rows,
        Rule.CELLS: policy.cell,
        Rule.LEVERAGE: policy.leverage,
        Rule.CERTAINTY: policy.certainty,
    }
    return Verdict((*measures, *_unknown(limits)), _set_aside(message.overrides))


def judge_reply(policy: Policy, reply: RefineReply) -> Verdict:
    """Check a reply against a policy, without its rows: some figures are then unknown."""
    sums, rows = reply.content.information, reply.content.n_samples
    measures = [*judged_size(policy, len(sums.score), rows)]
    if policy.expert_rows is not None:
        k = int(np.argmin(sums.mass))
        measures.append(
            _least(Rule.EXPERT_ROWS, float(sums.mass[k]), policy.expert_rows, f"expert {k}")
        )
    limits = {
        Rule.CELLS: policy.cell,
        Rule.LEVERAGE: policy.leverage,
        Rule.CERTAINTY: policy.certainty,
        Rule.QUESTION: policy.leverage,
    }
    return Verdict((*measures, *_unknown(limits)), _set_aside(reply.overrides))


def _unknown(limits: Mapping[Rule, float | None]) -> Iterator[Measure]:
    for rule, limit in limits.items():
        if limit is not None:
            yield Measure(rule, np.nan, float(limit), "warn")


def _set_aside(overrides: Mapping[str, str]) -> dict[Rule, str]:
    return {Rule(r): why for r, why in overrides.items() if r in Rule._value2member_map_}


def unseen(verdict: Verdict, reply: bool = False) -> Iterator[Notice]:
    """Yield a notice on the rules whose figures a message, or a reply, does not show."""
    rules = [str(m.rule) for m in verdict.measures if np.isnan(m.figure)]
    sentence = Finding.POLICY_UNSEEN_REPLY if reply else Finding.POLICY_UNSEEN
    if rules:
        yield sentence(rules=", ".join(rules))


def judged_columns(policy: Policy, columns: Iterable[str]) -> Iterator[Measure]:
    """Check columns against a policy."""
    if not (policy.allow or policy.deny):
        return
    used = list(dict.fromkeys(columns))
    bad = [column for column in used if not policy.allows(column)]
    yield _most(Rule.COLUMNS, len(bad), 0, ", ".join(bad))


def judged_survey(
    policy: Policy, exact: Iterable[SurveyedSite], told: Iterable[SurveyedSite]
) -> Iterator[Measure]:
    """Check the counts of a survey against a policy.

    Parameters
    ----------
    policy : Policy
    exact, told : iterable of SurveyedSite
        Before and after rounding. A count that passes is reported as rounded.
    """
    rows = {site.site: site.n_rows for site in exact if site.n_rows}
    if policy.rows is not None and rows:
        fewest = min(rows, key=lambda name: rows[name])
        yield _least(Rule.ROWS, rows[fewest], policy.rows, fewest if len(rows) > 1 else "")
    cells, shown = dict(_counts(exact)), dict(_counts(told))
    if cells and policy.smallest_count > 1:
        fewest = min(cells, key=lambda name: cells[name])
        found = _least(Rule.CELLS, cells[fewest], policy.smallest_count, fewest)
        yield found if found.outcome == "refuse" else replace(found, figure=float(shown[fewest]))


def _counts(sites: Iterable[SurveyedSite]) -> Iterator[tuple[str, int]]:
    """Yield what each count of a survey that is not 0 is about, and the count."""
    for site in sites:
        for column in site.columns:
            if column.missing:
                yield f"{column.name} missing", column.missing
            yield from ((f"{column.name}={level}", n) for level, n in (column.levels or {}).items())


def judged_size(
    policy: Policy, parameters: int, rows: float, people: bool = False
) -> Iterator[Measure]:
    """Check the number of rows, or of people, and that of parameters against a policy."""
    if policy.rows is not None:
        yield _least(Rule.ROWS, rows, policy.rows)
    if policy.parameters is not None:
        yield _of_parameters(policy, parameters, rows, _what(people))


def _of_figures(policy: Policy, found: Figures) -> Iterator[Measure]:
    yield from judged_size(policy, found.parameters, found.rows, found.people)
    each = policy.expert_rows_per_coefficient
    if policy.expert_rows is not None or each is not None:
        k = int(np.argmin(found.expert_rows))
        limit = max(policy.expert_rows or 0, (each or 0) * found.coefficients)
        yield _least(Rule.EXPERT_ROWS, float(found.expert_rows[k]), limit, f"expert {k}")
    if policy.cell is not None and found.cell is not None:
        yield _least(Rule.CELLS, found.cell.rows, policy.cell, str(found.cell))
    if policy.leverage is not None:
        where = f"expert {found.leverage_expert}"
        yield _most(Rule.LEVERAGE, found.leverage, policy.leverage, where)
    if policy.certainty is not None:
        yield _most(Rule.CERTAINTY, found.certainty, policy.certainty)
    if policy.component_rows is not None and found.component_rows is not None:
        yield _least(Rule.SKETCH, found.component_rows, policy.component_rows)
    if policy.share is not None and found.shared:
        yield _most(Rule.SHARE, found.shared, policy.share)


def _of_parameters(policy: Policy, parameters: int, rows: float, what: str) -> Measure:
    limit = np.inf if policy.parameters is None else policy.parameters
    warn = np.inf if policy.parameters_warn is None else policy.parameters_warn
    where, ratio = f"{parameters:,} parameters for {rows:,.10g} {what}", parameters / rows
    if warn < ratio <= limit:
        return Measure(Rule.PARAMETERS, ratio, warn, "warn", where)
    return _most(Rule.PARAMETERS, ratio, limit, where)


_ROUNDING = 1e-9  # relative: a sum of 60 responsibilities of 1 is 60


def _least(rule: Rule, figure: float, limit: float, where: str = "") -> Measure:
    return _measure(rule, figure, limit, figure < limit * (1 - _ROUNDING), where)


def _most(rule: Rule, figure: float, limit: float, where: str = "") -> Measure:
    return _measure(rule, figure, limit, figure > limit, where)


def _measure(rule: Rule, figure: float, limit: float, broken: bool, where: str) -> Measure:
    outcome: Literal["pass", "refuse"] = "refuse" if broken else "pass"
    return Measure(rule, float(figure), float(limit), outcome, where)


def _what(people: bool) -> str:
    return "people" if people else "rows"


def said(measure: Measure, people: bool = False) -> Notice:
    """Return what a measure that does not pass says: the rule, the figure, the remedy."""
    sentence = _SAID[measure.rule]
    if measure.outcome == "warn":
        sentence = Finding.POLICY_PARAMETERS_WARN
    if measure.rule == Rule.LEDGER and measure.where == ROWS:
        sentence = Finding.POLICY_LEDGER_ROWS
    return sentence(
        figure=measure.figure, limit=measure.limit, where=measure.where, what=_what(people)
    )


def check(verdict: Verdict) -> None:
    """Raise :class:`Refused` if a rule is broken, with a sentence for each that is."""
    broken = verdict.refused
    if broken:
        raise Refused(
            Error.POLICY_REFUSES,
            reasons=" ".join(str(said(m, verdict.people)) for m in broken),
            rules=list(dict.fromkeys(str(m.rule) for m in broken)),
        )
