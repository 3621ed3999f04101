"""Sites with splines and interactions exchange files, and reach the pooled fit."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from oracles import distance

from otmoe import FeatureSpec, LocalModel, aggregate, shards_from
from otmoe.aggregation.support import support_from
from otmoe.distributed.task import Task, fit_local
from otmoe.documents.reply import RefineReply
from otmoe.federation.rounds import begin, reply_from, request_of, step
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Scaling
from otmoe.model.structure import Structure
from otmoe.model.target import Target

SITES = {"Brest": ("JFK",), "Lyon": ("EWR", "JFK"), "Nantes": ("EWR", "JFK")}  # one has one level


def site_rows(rng, origins, n=1500):
    hour, origin, z = rng.uniform(0, 24, n), rng.choice(origins, n), rng.normal(size=n)
    first = rng.random(n) < 1 / (1 + np.exp(-2 * z))
    curve = 2 * np.sin(hour / 4) + (origin == "JFK") * 0.1 * hour
    y = np.where(first, 4 + curve, -0.2 * hour) + rng.normal(0, 0.5, n)
    w = np.where(first, 4 + z, -z) + 2 * np.sin(hour / 4) + rng.normal(0, 0.5, n)
    return {"y": y, "w": w, "hour": hour, "origin": origin, "z": z}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng, path = np.random.default_rng(5), tmp_path_factory.mktemp("sites")
    for name, origins in SITES.items():
        pq.write_table(pa.table(site_rows(rng, origins)), path / f"{name}.parquet")
    return path


@pytest.fixture(scope="module")
def spec(folder):
    sample = pq.read_table(folder / "Lyon.parquet")
    return FeatureSpec.from_sample(
        sample, ["hour", "origin", "z"], splines={"hour": 5}, interactions=[("hour", "origin")]
    )


@pytest.fixture(scope="module")
def messages(folder, spec):
    found = []
    for name in SITES:
        (shard,) = shards_from(folder / f"{name}.parquet", target="y", features=spec)
        task = Task(shard, 0, 2, Target("gaussian"), sketch=True)
        found.append(LocalModel.from_json(fit_local(task).message.to_json()))
    return found


def test_support_points_are_rows_that_could_be(messages, spec):
    points = support_from(messages, 500)
    again = points.rows.copy()
    spec.layout.derive(again)
    assert_array_equal(points.rows, again)


def refined(model, messages, shards, spec):
    """Return the state after refine rounds from a merged model; documents travel as text."""
    scaling = Scaling.of(support_from(messages, 500).rows)
    sizes = {message.site: message.n_samples for message in messages}
    state = begin(model, sizes, scaling, features=spec)
    while not state.done:
        request = type(request_of(state)).from_json(request_of(state).to_json())
        replies = [reply_from(request, shard)[0] for shard in shards]
        state = step(state, [RefineReply.from_json(reply.to_json()) for reply in replies])
    assert state.refinement.converged
    return state


def test_common_curves_are_merged_and_refined_to_the_pooled_fit(folder, spec):
    # Both experts have the same curve of the hour and the same variance; only z chooses.
    names = ["intercept", *spec.feature_names]
    curve = tuple(names.index(name) for name in spec.term_features["spline(hour)"])
    how = {
        "structure": Structure(common=curve, common_variance=True),
        "gate_columns": (0, names.index("z")),
    }
    shards = [
        shards_from(folder / f"{name}.parquet", target="w", features=spec)[0] for name in SITES
    ]
    tasks = [Task(shard, 0, 2, Target("gaussian"), sketch=True, options=how) for shard in shards]
    messages = [LocalModel.from_json(fit_local(task).message.to_json()) for task in tasks]
    merged = aggregate(messages, random_state=0)
    assert np.ptp(merged.model.experts.coef[:, curve], axis=0).max() < 1e-12
    rows = [shard.read() for shard in shards]
    X, w = np.concatenate([part.X for part in rows]), np.concatenate([part.y for part in rows])
    pooled = em(X, w, 2, random_state=0, **how)
    found = refined(merged.model, messages, shards, spec)
    assert distance(found.model, pooled.model, X, w) < 1e-3
    assert np.ptp(found.model.experts.coef[:, curve], axis=0).max() < 1e-12
    assert np.ptp(found.model.experts.var) < 1e-12


def test_merging_and_refining_reach_the_pooled_fit(folder, messages, spec):
    merged = aggregate(messages, random_state=0)
    shards = {
        message.site: shards_from(folder / message.site, target="y", features=spec)[0]
        for message in messages
    }
    rows = {name: shard.read() for name, shard in shards.items()}
    X = np.concatenate([part.X for part in rows.values()])
    y = np.concatenate([part.y for part in rows.values()])
    pooled = em(X, y, 2, random_state=0)
    state = refined(merged.model, messages, shards.values(), spec)
    assert distance(state.model, pooled.model, X, y) < 1e-3
    found = state.inference()
    tests = {(t.block, t.expert, t.term): t for t in found.terms(spec.term_features)}
    straight = 1 - int(
        np.argmax([tests["expert", k, "spline(hour), nonlinear"].statistic for k in (0, 1)])
    )
    assert tests["expert", straight, "spline(hour), nonlinear"].p > 1e-3
    assert tests["expert", 1 - straight, "spline(hour), nonlinear"].p < 1e-100
    assert tests["expert", 1 - straight, "hour:origin"].p < 1e-10


def test_knots_come_from_pooled_sketches_as_from_rows(folder, messages, spec):
    drawn = spec.numbers(support_from(messages, 4000).rows)
    rows = pq.read_table([folder / f"{name}.parquet" for name in SITES])
    knots = [spec.base.with_terms(sample, {"hour": 5}).terms[0].knots for sample in (drawn, rows)]
    assert np.abs(np.subtract(*knots)).max() < 2.0  # of 24 hours
