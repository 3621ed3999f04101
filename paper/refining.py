"""Refine rounds of the studies: sites one after another, timed as if side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter

from otmoe import MoE
from otmoe.arrays.numerics import Floats
from otmoe.data.shards import Shard
from otmoe.distributed.rounds import Question, information_local
from otmoe.likelihood.rounds import Refinement, advance, judged
from otmoe.likelihood.rows import Scaling
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target


def refined(
    model: MoE,
    support: Floats,
    shards: Sequence[Shard],
    rounds: Sequence[int],
    target: Target | None = None,
) -> Iterator[tuple[str, Refinement, float]]:
    """Refine a model: what it is after some numbers of rounds, and when it is done.

    The last of a number of rounds is judged by the sites, and taken back if it was none, as
    `fit_shards` does it.

    Yields
    ------
    str
        The number of rounds, or "auto".
    Refinement
    float
        Seconds of the slowest site and of the server, over all rounds.
    """
    target = Target.of(model) if target is None else target
    state = Refinement(model, Scaling.of(support), Ridge.of(model.experts))
    seconds, left = 0.0, sorted(rounds)
    while not state.is_done("auto"):
        answers, slowest = [], 0.0
        for shard in shards:
            begin = perf_counter()
            first = state.pooled is None
            question = Question(shard, state.model, state.scaling, target, first)
            answers.append(information_local(question))
            slowest = max(slowest, perf_counter() - begin)
        begin = perf_counter()
        state = advance(state, answers, [shard.name for shard in shards])
        seconds += slowest + perf_counter() - begin
        if left and (state.rounds == left[0] or state.is_done("auto")):
            asked = [Question(s, state.model, state.scaling, target, matrix=False) for s in shards]
            looks = [information_local(question).log_likelihoods for question in asked]
            seen = judged(state, {name: v for look in looks for name, v in look.items()})
            while left and (state.rounds == left[0] or state.is_done("auto")):
                yield str(left.pop(0)), seen, seconds
    yield "auto", state, seconds
