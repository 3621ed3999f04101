"""Shards of few rows are asked together, and say what they say one by one."""

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose

from otmoe import simulate
from otmoe.data.shards import ArrayShard, RowsShard
from otmoe.distributed import rounds
from otmoe.distributed.rounds import Question, ask, batched, information_local, refine_shards
from otmoe.likelihood.predictors import change_of_scale
from otmoe.likelihood.rounds import Refinement, advance
from otmoe.likelihood.rows import Scaling
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.workers.failures import TasksFailed


@pytest.fixture(params=["gaussian", "poisson", "multinomial"])
def questions(request, monkeypatch):
    """Shards of 40 to 500 rows, of which those of 40, 60 and 30 have company."""
    monkeypatch.setattr(rounds, "_BATCH", 120)
    data = simulate(680, 2, 3, family=request.param, softness=0.5, random_state=0)
    ends = np.cumsum([40, 60, 50, 500, 30])
    weight = np.linspace(0.5, 2, 680)
    shards = [
        RowsShard(f"s{m}", data.X[a:b], data.y[a:b], weight[a:b] if m == 1 else None)
        for m, (a, b) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    ]
    model, scaling = data.truth, Scaling.of(data.X)
    return [Question(s, model, scaling, Target.of(model), moments=True) for s in shards]


def test_neighbours_of_few_rows_are_asked_together(questions):
    found = [[q.shard.name for q in batch] for batch in batched(questions)]
    assert found == [["s0", "s1"], ["s2"], ["s3"], ["s4"]]
    files = [Question(None, None, None, None, seen=(n,)) for n in (50, 60, 20)]
    assert list(map(len, batched([*files, Question(None, None, None, None)]))) == [2, 1, 1]


@pytest.mark.parametrize("matrix", [True, False])
def test_together_they_say_what_they_say_alone(questions, matrix):
    questions = [Question(**{**vars(q), "matrix": matrix}) for q in questions]
    alone, joint = [information_local(q) for q in questions], ask(questions)
    assert len(joint) == 4
    one = {name: v for a in alone for name, v in a.log_likelihoods.items()}
    two = {name: v for a in joint for name, v in a.log_likelihoods.items()}
    assert set(one) == set(two)
    assert_allclose([one[name] for name in sorted(one)], [two[name] for name in sorted(one)])
    sums = [
        sum((a.information for a in found[1:]), found[0].information) for found in (alone, joint)
    ]
    for part in ("log_likelihood", "score", "mass", "matrix"):
        assert_allclose(getattr(sums[0], part), getattr(sums[1], part), rtol=1e-10, atol=1e-9)
    if matrix:
        state = Refinement(questions[0].model, questions[0].scaling, Ridge(0.01, 0.01))
        steps = [advance(state, found, ["s0", "s9"]) for found in (alone, joint)]
        assert_allclose(*(step.model.to_vector() for step in steps), rtol=1e-8, atol=1e-8)
        assert_allclose(steps[0].pooled.x_scale, steps[1].pooled.x_scale)
        assert steps[0].missing == steps[1].missing == ((1, "s9"),)


def test_one_that_fails_fails_by_itself(questions):
    broken = ArrayShard("s1", np.full((5, 3), np.nan), np.zeros(5))
    shards = [broken if q.shard.name == "s1" else q.shard for q in questions]
    first = questions[0]
    with pytest.raises(TasksFailed) as caught:
        refine_shards(shards, first.model, 1, scaling=first.scaling)
    assert [failure.name for failure in caught.value.failures] == ["s1"]
    state = refine_shards(shards, first.model, 2, scaling=first.scaling, on_error="skip")
    assert state.missing == ((1, "s1"), (2, "s1"))
    assert set(state.best.log_likelihood) == {"s0", "s2", "s3", "s4"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_change_of_scale_is_found_predictor_by_predictor(family):
    rng = np.random.default_rng(0)
    model = simulate(50, 3, 4, family=family, random_state=0).truth
    one, other = (Scaling(rng.normal(size=4), rng.uniform(0.5, 2, 4)) for _ in range(2))
    zero = model.with_vector(np.zeros(model.n_parameters))
    columns = [
        other.from_user(one.to_user(zero.with_vector(e))).to_vector()
        for e in np.eye(model.n_parameters)
    ]
    assert_allclose(change_of_scale(model, one, other), np.transpose(columns), atol=1e-15)
