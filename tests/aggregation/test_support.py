from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from oracles import message, part_of, random_model
from refusals import refused

from otmoe import Sketch, aggregate
from otmoe.aggregation.problem import prepare
from otmoe.aggregation.support import N_SUPPORT, draw_support, support_from
from otmoe.text.notices import OtmoeWarning
from otmoe.text.sentences import Warn


@pytest.fixture
def samples(rng):
    """Three sites that can be told apart by their first column."""
    sizes = enumerate((300, 100, 600))
    return [np.column_stack([np.full(n, m), rng.normal(size=n)]) for m, n in sizes]


def sites_of(points):
    return np.bincount(points[:, 0].astype(int), minlength=3).tolist()


def test_points_are_rows_of_the_samples_each_at_most_once(samples):
    points = draw_support(samples, 200)
    rows = {tuple(row) for sample in samples for row in sample}
    assert points.shape == (200, 2) and points.rows.dtype == np.float64
    assert len({tuple(row) for row in points}) == 200
    assert {tuple(row) for row in points} <= rows


def test_sites_have_shares_in_proportion_to_their_rows_or_as_given(samples):
    assert sites_of(draw_support(samples, 200)) == [60, 20, 120]
    assert sum(sites_of(draw_support(samples, 77))) == 77
    assert sites_of(draw_support(samples, 200, site_weight=[1, 1, 2])) == [50, 50, 100]
    assert sites_of(draw_support(samples, 200, site_weight=[1, 0, 0])) == [200, 0, 0]


def test_no_site_gives_more_than_it_has(samples):
    assert sites_of(draw_support(samples, 400, site_weight=[1, 2, 1])) == [100, 100, 100]
    assert sites_of(draw_support(samples)) == [300, 100, 600]
    assert N_SUPPORT > 1000


def test_the_same_seed_gives_the_same_points(samples):
    assert_array_equal(draw_support(samples, 50), draw_support(samples, 50))
    a, b = (draw_support(samples, 50, random_state=seed) for seed in (1, 2))
    assert not np.array_equal(a, b)
    assert_array_equal(a, draw_support(samples, 50, random_state=1))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_are_taken(samples, frame):
    frames = [frame({"a": s[:, 0], "b": s[:, 1]}) for s in samples]
    assert_array_equal(draw_support(frames, 50), draw_support(samples, 50))
    with refused("sample_columns", columns=["b", "a"], others=["a", "b"]):
        draw_support([frames[0], frames[1][["b", "a"]]], 50)


def test_tensors_are_taken(samples):
    torch = pytest.importorskip("torch")
    found = draw_support([torch.asarray(s) for s in samples], 50)
    assert_array_equal(found, draw_support(samples, 50))


UNLIKE = [np.ones((5, 2)), np.ones((5, 3))]


@pytest.mark.parametrize(
    ("kwargs", "code", "facts"),
    [
        ({"samples": []}, "no_samples", {}),
        ({"samples": [np.empty((0, 2))]}, "samples_empty", {}),
        ({"samples": UNLIKE}, "sample_shape", {"number": 1, "shape": (5, 3)}),
        ({"samples": [np.ones(5)]}, "sample_shape", {"number": 0, "shape": (5,)}),
        ({"n_support": 0}, "not_whole", {"name": "n_support", "value": 0}),
        ({"n_support": 2.5}, "not_whole", {"name": "n_support", "value": 2.5}),
        ({"site_weight": [1.0]}, "shares_wrong", {"sites": 2}),
        ({"site_weight": [1.0, -1.0]}, "shares_wrong", {"sites": 2}),
        ({"site_weight": [0.0, 0.0]}, "shares_wrong", {"sites": 2}),
        ({"site_weight": [np.nan, 1.0]}, "shares_wrong", {"sites": 2}),
        ({"site_weight": [np.inf, 1.0]}, "shares_wrong", {"sites": 2}),
    ],
)
def test_a_mistake_is_named(kwargs, code, facts):
    known = {"samples": [np.ones((5, 2)), np.zeros((4, 2))], "n_support": 3}
    refused(code, **facts).by(draw_support, **known | kwargs)


# -- from what sites have sent -----------------------------------------------------------------


def site(m, n=100.0, rows=0, sketch=True):
    """Return a message of a site whose first column is about ten times its number."""
    rng = np.random.default_rng(m)
    X = np.column_stack([rng.normal(10 * m, 0.5, 200), rng.normal(size=200)])
    brought = {"sketch": Sketch.fit(X) if sketch else None, "support": X[:rows] if rows else None}
    return message(random_model(rng), f"site {m}", float(n), **brought)


def numbers_of(points):
    return np.bincount(np.rint(points[:, 0] / 10).astype(int), minlength=3).tolist()


def test_sites_have_shares_in_proportion_to_what_they_counted():
    sent = [site(0, 300), site(1, 100), site(2, 600)]
    points = support_from(sent, 1000)
    assert points.shape == (1000, 2) and numbers_of(points) == [300, 100, 600]
    assert len(support_from(sent)) == N_SUPPORT


def test_rows_come_before_draws():
    sent = [site(0, rows=30), site(1)]
    points = support_from(sent, 100)
    rows = {tuple(row) for row in sent[0].support}
    assert numbers_of(points)[:2] == [50, 50]
    assert sum(tuple(row) in rows for row in points) == 30
    few = support_from(sent, 40)
    assert sum(tuple(row) in rows for row in few) == 20


def test_rows_alone_are_given_once():
    sent = [site(0, rows=30, sketch=False), site(1, rows=10, sketch=False)]
    points = support_from(sent, 1000)
    assert {tuple(p) for p in points} <= {tuple(row) for s in sent for row in s.support}
    assert len({tuple(p) for p in points}) == len(points) == 30
    assert numbers_of(points)[:2] == [20, 10]


def test_the_order_of_the_sites_and_their_halves_do_not_matter():
    sent = [site(0, 300, rows=5), site(1, 100), site(2, 600)]
    expected = support_from(sent, 500)
    assert_array_equal(support_from(sent[::-1], 500), expected)
    halves = [*sent[:2], part_of(sent[2], 0.25, "site 2"), part_of(sent[2], 0.75, "site 2")]
    assert_array_equal(support_from(halves, 500), expected)
    assert not np.array_equal(support_from(sent, 500, random_state=1), expected)


def test_sites_that_sent_nothing_are_named():
    sent = [site(0), site(1, sketch=False), site(2)]
    with pytest.warns(OtmoeWarning) as caught:
        points = support_from(sent, 100)
        result = aggregate(sent)
    told = Warn.SITES_SILENT(sites=("site 1",), names=["site 1"])
    assert all(told in given.message.notices for given in caught) and len(caught) == 2
    assert numbers_of(points) == [50, 0, 50]
    assert told in result.warnings and result.n_support == N_SUPPORT


@pytest.mark.filterwarnings("ignore:aggregate:UserWarning")
def test_an_aggregate_needs_no_rows():
    sent = [site(0), site(1)]
    first = aggregate(sent)
    assert_array_equal(first.model.to_vector(), aggregate(sent[::-1]).model.to_vector())
    given = aggregate(sent, support_from(sent, random_state=np.random.default_rng(0)))
    assert given.n_support == first.n_support == N_SUPPORT
    floats = sum(m.model.n_parameters + 2 + m.sketch.n_floats + m.grams.n_floats for m in sent)
    assert first.communication.floats == floats


@pytest.mark.filterwarnings("ignore:aggregate:UserWarning")
def test_the_callers_points_win(rng):
    X = rng.normal(size=(100, 2))
    result = aggregate([site(0), site(1)], X)
    assert result.n_support == 100
    bare = [replace(site(m), sketch=None) for m in (0, 1)]
    assert_array_equal(result.model.to_vector(), aggregate(bare, X).model.to_vector())


def test_every_point_knows_its_site(samples):
    by_place = draw_support(samples, 200)
    assert by_place.site == tuple(by_place[:, 0].astype(int))
    named = draw_support(dict(zip("abc", samples, strict=True)), 200)
    assert_array_equal(named, by_place)
    assert named.site == tuple("abc"[m] for m in by_place.site)
    assert [len(rows) for rows in named.by_site().values()] == [300, 100, 600]
    alone = replace(named, samples=None)
    sizes = {name: len(rows) for name, rows in alone.by_site().items()}
    assert sizes == {"a": 60, "b": 20, "c": 120}


def test_what_sites_have_sent_is_known_by_site():
    sent = [site(0, 300, rows=5), site(1, 100)]
    points = support_from(sent, 100)
    assert [points.site.count(f"site {m}") for m in (0, 1)] == numbers_of(points)[:2] == [75, 25]
    for name, rows in points.by_site().items():
        assert np.all(np.rint(rows[:, 0] / 10) == int(name[-1]))


def test_a_site_without_weight_has_no_points():
    sent = [site(0), site(1)]
    known = prepare(sent, None, site_weight=[1.0, 0.0])
    assert numbers_of(known.sources.X)[:2] == [N_SUPPORT, 0]


def test_messages_about_other_features_are_refused(rng):
    other = message(random_model(rng, n_features=3), "Nice")
    refused("features_differ", site="Nice", other="site 0").by(support_from, [site(0), other])
    refused("not_whole", name="n_support", value=0).by(support_from, [site(0)], 0)
    refused("support_missing").by(support_from, [])
    refused("support_missing").by(aggregate, [message(random_model(rng))])
