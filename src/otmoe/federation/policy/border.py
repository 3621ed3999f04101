"""The border of a site: policy and ledger check what leaves, and what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from otmoe.data.responses import columns_of
from otmoe.data.shards import FileShard, ShardRows
from otmoe.distributed.task import RowsFit, rows_in
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.federation.policy.figures import figures_of
from otmoe.federation.policy.ledger import (
    ROWS,
    Answer,
    Ledger,
    answer_of,
    keep,
    opened,
    place_of,
    study_of,
)
from otmoe.federation.policy.questions import alike, judged_question
from otmoe.federation.policy.release import Release, released
from otmoe.federation.policy.replies import matrix_step, rounded_reply
from otmoe.federation.policy.rowsets import RowSet
from otmoe.federation.policy.rules import Measure, Policy, Rule, Verdict
from otmoe.federation.policy.scatters import judged_scatter
from otmoe.federation.policy.verdict import check, judge, judged_columns, judged_size
from otmoe.federation.rounds import reply_from
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE
from otmoe.model.target import Target
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


def judged_queries(ledger: Ledger, policy: Policy) -> list[Measure]:
    """Hold the number of questions against a policy."""
    if policy.queries is None:
        return []
    return [_most(ledger.queries, policy.queries, "questions about these data")]


def judged_by_ledger(
    ledger: Ledger, policy: Policy, study: str, answer: Answer, rows: RowSet
) -> list[Measure]:
    """Check an answer against what was sent before.

    Parameters
    ----------
    ledger : Ledger
    policy : Policy
    study : str
    answer : Answer
        What is about to leave.
    rows : RowSet
        What it is about.
    """
    found: list[Measure] = []
    if ledger.repeats(study, answer, rows):
        return found
    limits = {"message": policy.messages, "reply": policy.replies}
    limit = limits[answer.kind]
    if limit is not None:
        sent = ledger.sent(study, answer.kind) + 1
        names = {"message": "messages of this study", "reply": "replies of this study"}
        found.append(_most(sent, limit, names[answer.kind]))
    differ = [d for d in (rows.difference(other) for other in ledger.rows if other.n_rows) if d]
    if policy.rows is not None and differ:
        outcome: Literal["refuse", "pass"] = "refuse" if min(differ) < policy.rows else "pass"
        found.append(Measure(Rule.LEDGER, min(differ), policy.rows, outcome, ROWS))
    return found


def _most(figure: int, limit: int, where: str) -> Measure:
    return Measure(Rule.LEDGER, figure, limit, "refuse" if figure > limit else "pass", where)


@dataclass(frozen=True)
class Border:
    """What a site lets pass.

    Attributes
    ----------
    policy : Policy
    ledger : Path, optional
        Where the ledger is; by default beside the data.
    overrides : dict of str
        Rules that are overridden this once, and why.
    """

    policy: Policy = field(default_factory=Policy)
    ledger: Path | None = None
    overrides: Mapping[Rule, str] = field(default_factory=dict)

    def place(self, files: Sequence[str]) -> Path | None:
        """Return where the ledger of some data files is; None if the policy has no use for one."""
        policy = self.policy
        if {policy.messages, policy.replies, policy.queries, policy.rows} == {None}:
            return None
        return self.ledger or place_of(files)

    def count(self, files: Sequence[str]) -> Path | None:
        """Count a question about some data files, whatever becomes of it; refuse one too many.

        Returns
        -------
        Path or None
            Where the ledger is.
        """
        path = self.place(files)
        if path is not None:
            with opened(path) as ledger:
                keep(ledger := ledger.asked(), path)
            self.check(judged_queries(ledger, self.policy))
        return path

    def check_columns(self, shard: FileShard) -> None:
        """Refuse columns that are not to be used, before they are read."""
        self.check(judged_columns(self.policy, _columns(shard)))

    def check_size(self, rows: int, parameters: int) -> None:
        """Refuse a model with too many parameters for these rows, before it is fitted."""
        self.check(judged_size(self.policy, parameters, rows))

    def check(self, measures: Iterable[Measure]) -> None:
        """Refuse what breaks a rule that is not overridden."""
        check(self.verdict(measures))

    def verdict(self, measures: Iterable[Measure], people: bool = False) -> Verdict:
        """Return the verdict of some measures, with overrides."""
        found = tuple(measures)
        broken = {m.rule for m in found if m.outcome == "refuse"}
        aside = {rule: why for rule, why in self.overrides.items() if rule in broken}
        return Verdict(found, aside, people)


def release_message(
    found: RowsFit, shard: FileShard, border: Border, *, own_names: bool = False, file: str = ""
) -> Release:
    """Hold a message against policy and ledger; the ledger keeps it if it may leave.

    Parameters
    ----------
    found : RowsFit
        The message, and the rows it was made of.
    shard : FileShard
        Where they are from.
    border : Border
    own_names : bool
        Whether names of features and levels come from the site's rows, not from the coordinator.
    file : str
        Where the message will be: a message that was written there before has not been sent.

    Returns
    -------
    Release
        For the caller to :func:`verdict.check`.
    """
    _check_parts(found.local.message.model)
    made = released(
        found.local.message,
        found.rows,
        border.policy,
        ids=found.ids,
        columns=_columns(shard),
        own_names=own_names,
        overrides=border.overrides,
    )
    model, features = made.message.model, made.message.features
    answer = answer_of("message", model, features, sums=made.message.grams is not None, file=file)
    with _open(border, shard, file) as book:
        study = study_of(shard.name, _asked_about(shard), features, model)
        known = book.row_set(found.rows)
        more = book.measures(border.policy, study, answer, known)
        verdict = border.verdict([*made.verdict.measures, *more], made.verdict.people)
        if not verdict.refused:
            book.keep(study, answer, known)
    kept = {str(rule): why for rule, why in verdict.overrides.items()}
    return replace(made, message=replace(made.message, overrides=kept), verdict=verdict)


@dataclass(frozen=True)
class Replied:
    """A reply that may leave.

    Attributes
    ----------
    reply : RefineReply
    verdict : Verdict
    found : ShardRows
        The rows that were read for it.
    withheld : tuple of Measure
        Why the scatter that was asked for is not in it, if it had to be left out.
    """

    reply: RefineReply
    verdict: Verdict
    found: ShardRows
    withheld: tuple[Measure, ...] = ()


def release_reply(
    asked: RefineRequest,
    shard: FileShard,
    border: Border,
    *,
    sandwich: bool = False,
    exact: bool = False,
) -> Replied:
    """Answer a refine request, or refuse to.

    Parameters
    ----------
    asked : RefineRequest
    shard : FileShard
        The site's rows, under its name. If it reads groups, the scatter of their scores may leave.
    border : Border
    sandwich : bool
        Whether that of the rows' scores may.
    exact : bool
        Whether to keep all digits: a reply that will be masked needs no rounding.
    """
    policy, model, features = border.policy, asked.model, asked.features
    shard = replace(shard, ids=policy.id)
    _check_parts(model)
    border.check_columns(shard)
    with _open(border, shard) as book:
        reply, found = reply_from(asked, shard, sandwich=sandwich)
        rows = rows_in(found, Target.of(model), shard.name)
        figures = figures_of(model, rows, features=features, ids=found.ids)
        study = study_of(shard.name, _asked_about(shard), features, model)
        answer = answer_of("reply", model, features, asked.scaling)
        earlier = [] if book.ledger is None else book.ledger.answers(study)
        question, digits = judged_question(policy, model, features, rows, earlier)
        near = alike(earlier, model, features)
        scatter = judged_scatter(policy, asked, reply.content, rows, found.groups, near, digits)
        withheld = border.verdict(scatter).refused
        if withheld:
            reply, scatter = replace(reply, content=replace(reply.content, scatter=None)), []
        elif reply.content.scatter is not None:
            step = matrix_step(reply.content.information, len(rows), digits)
            answer = replace(answer, scatter=step)
        known = book.row_set(rows)
        measures = [
            *judge(policy, figures, columns=_columns(shard)).measures,
            *question,
            *scatter,
            *book.measures(policy, study, answer, known),
        ]
        verdict = border.verdict(measures, figures.people)
        check(verdict)
        if not exact:
            reply = replace(reply, content=rounded_reply(reply.content, model, rows, digits))
        kept = {str(rule): why for rule, why in verdict.overrides.items()}
        book.keep(study, replace(answer, digits=digits), known)
    return Replied(replace(reply, overrides=kept), verdict, found, tuple(withheld))


def _columns(shard: FileShard) -> list[str]:
    """Return the columns that an answer is made of; whose rows are is for the policy alone."""
    groups = None if shard.groups == shard.ids else shard.groups
    others = (shard.weight, shard.offset, groups)
    beside = [name for name in others if name is not None]
    return [*columns_of(shard.asked), *shard.features.names, *beside]


def _check_parts(model: MoE) -> None:
    """Refuse classes among several responses: the policy counts those of a single one."""
    parts = model.experts.parts
    if len(parts) > 1 and any(part.classifies for part in parts):
        raise InvalidInput(Error.CLASSES_AMONG_RESPONSES, family=model.experts.family)


def _asked_about(shard: FileShard) -> str:
    """Return the responses as studies know them, in whatever order they were named."""
    return ",".join(sorted(name for name, _ in shard.asked))


@dataclass(frozen=True)
class _Book:
    """A ledger that is open, or none."""

    ledger: Ledger | None = None
    path: Path | None = None

    def row_set(self, rows: Rows) -> RowSet | None:
        """Return what the ledger knows rows by, in one pass over them; None without a ledger."""
        return None if self.ledger is None else RowSet.of(rows, self.ledger.key)

    def measures(
        self, policy: Policy, study: str, answer: Answer, rows: RowSet | None
    ) -> list[Measure]:
        """Check an answer against what was sent before."""
        if self.ledger is None or rows is None:
            return []
        return judged_by_ledger(self.ledger, policy, study, answer, rows)

    def keep(self, study: str, answer: Answer, rows: RowSet | None) -> None:
        """Write down what is about to leave."""
        if self.ledger is not None and self.path is not None and rows is not None:
            keep(self.ledger.with_answer(study, answer, rows), self.path)


@contextmanager
def _open(border: Border, shard: FileShard, file: str = "") -> Iterator[_Book]:
    """Open the ledger of some rows, if there is one."""
    path = border.place([piece.path for piece in shard.pieces])
    if path is None:
        yield _Book()
        return
    with opened(path) as ledger:
        yield _Book(ledger.without(file), path)
