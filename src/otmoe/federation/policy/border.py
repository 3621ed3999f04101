"""What leaves a site, and what is refused: figures, questions and ledger held against a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from otmoe.data.shards import FileShard, ShardRows
from otmoe.distributed.task import read, rows_in
from otmoe.documents.message import LocalModel
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.federation.policy.figures import figures_of
from otmoe.federation.policy.ledger import (
    Answer,
    Ledger,
    RowSet,
    answer_of,
    judged_by_ledger,
    keep,
    opened,
    place_of,
    study_of,
)
from otmoe.federation.policy.questions import judged_question
from otmoe.federation.policy.replies import noise_of, rounded_reply, steps_of
from otmoe.federation.policy.rules import Measure, Policy, Rule, Verdict
from otmoe.federation.policy.verdict import check, judge
from otmoe.federation.rounds import reply_from
from otmoe.likelihood.rows import Rows
from otmoe.model.target import Target


@dataclass(frozen=True)
class Border:
    """What a site lets pass.

    Attributes
    ----------
    policy : Policy
    ledger : Path, optional
        Where the ledger is; by default beside the data.
    overrides : dict of str
        Rules that are set aside for this once, and why.
    """

    policy: Policy = field(default_factory=Policy)
    ledger: Path | None = None
    overrides: Mapping[Rule, str] = field(default_factory=dict)

    def place(self, shard: FileShard) -> Path | None:
        """Return where the ledger of some rows is; None if the policy needs none."""
        policy = self.policy
        if {policy.messages, policy.replies, policy.queries, policy.rows} == {None}:
            return None
        return self.ledger or place_of([piece.path for piece in shard.pieces])

    def check_columns(self, columns: Iterable[str | None]) -> None:
        """Refuse columns that are not to be used, before anything is read."""
        used = {c for c in columns if c is not None}
        bad = [
            c
            for c in used
            if c in self.policy.deny or self.policy.allow and c not in self.policy.allow
        ]
        outcome = "refuse" if bad else "pass"
        self._check([Measure(Rule.COLUMNS, len(bad), 0, outcome, ", ".join(sorted(bad)))])

    def _check(self, measures: Iterable[Measure], people: bool = False) -> Verdict:
        found = tuple(measures)
        broken = {m.rule for m in found if m.outcome == "refuse"}
        set_aside = {rule: why for rule, why in self.overrides.items() if rule in broken}
        verdict = Verdict(found, set_aside, people)
        check(verdict)
        return verdict


def release_reply(
    asked: RefineRequest, shard: FileShard, border: Border, *, sandwich: bool = False
) -> tuple[RefineReply, ShardRows]:
    """Answer a refine request, or refuse to.

    Parameters
    ----------
    asked : RefineRequest
    shard : FileShard
        The site's rows, under its name. If it reads groups, the scatter of their scores may leave.
    border : Border
    sandwich : bool
        Whether that of the rows' scores may.

    Returns
    -------
    RefineReply
    ShardRows
        The rows that were read for it.
    """
    policy, model = border.policy, asked.model
    border.check_columns([shard.target, shard.weight, *shard.features.names])
    with _counted(border, shard) as book:
        reply, found = reply_from(asked, shard, sandwich=sandwich)
        rows = rows_in(found, Target.of(model), shard.name)
        figures = figures_of(model, rows, features=asked.features, ids=_ids(policy, shard))
        study = study_of(shard.target, asked.features, model)
        answer = answer_of("reply", model, asked.features, asked.scaling)
        steps = None
        if policy.digits:
            steps = steps_of(reply.content.information, len(rows), policy.digits)
        verdict = border._check(
            [
                *judge(policy, figures).measures,
                *judged_question(
                    policy,
                    model,
                    asked.features,
                    rows,
                    book.before(study),
                    0.0 if steps is None else noise_of(steps),
                ),
                *book.measures(policy, study, answer, rows),
            ],
            figures.people,
        )
        if steps is not None:
            reply = replace(reply, content=rounded_reply(reply.content, model, rows, steps))
        if verdict.overrides:
            reply = replace(reply, overrides={str(r): why for r, why in verdict.overrides.items()})
        book.keep(study, answer, rows)
    return reply, found


def release_message(
    message: LocalModel, shard: FileShard, target: Target, border: Border
) -> LocalModel:
    """Let a message leave, or refuse to.

    Parameters
    ----------
    message : LocalModel
    shard : FileShard
        The rows it was made of.
    target : Target
    border : Border
    """
    policy, model = border.policy, message.model
    border.check_columns([shard.target, shard.weight, *shard.features.names])
    with _counted(border, shard) as book:
        rows = rows_in(read(shard), target, shard.name)
        figures = figures_of(model, rows, features=message.features, ids=_ids(policy, shard))
        study = study_of(shard.target, message.features, model)
        answer = answer_of("message", model, message.features, sums=message.grams is not None)
        border._check(
            [*judge(policy, figures).measures, *book.measures(policy, study, answer, rows)],
            figures.people,
        )
        book.keep(study, answer, rows)
    return message


@dataclass
class _Book:
    """A ledger that is open, or none."""

    ledger: Ledger | None
    path: Path | None

    def before(self, study: str) -> tuple[Answer, ...]:
        return () if self.ledger is None else self.ledger.answers(study)

    def measures(self, policy: Policy, study: str, answer: Answer, rows: Rows) -> list[Measure]:
        if self.ledger is None:
            return []
        return judged_by_ledger(
            self.ledger, policy, study, answer, RowSet.of(rows, self.ledger.key)
        )

    def keep(self, study: str, answer: Answer, rows: Rows) -> None:
        if self.ledger is not None and self.path is not None:
            known = RowSet.of(rows, self.ledger.key)
            keep(self.ledger.with_answer(study, answer, known), self.path)


@contextmanager
def _counted(border: Border, shard: FileShard) -> Iterator[_Book]:
    """Open the ledger and count a question, whatever becomes of it."""
    path = border.place(shard)
    if path is None:
        yield _Book(None, None)
        return
    with opened(path) as ledger:
        ledger = ledger.asked()
        keep(ledger, path)
        yield _Book(ledger, path)


def _ids(policy: Policy, shard: FileShard) -> object:
    """Return whose each row is, if the policy counts people."""
    return None if policy.id is None else read(replace(shard, groups=policy.id)).groups
