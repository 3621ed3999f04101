import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from oracles import message, random_model

from otmoe import aggregate
from otmoe.support import N_POINTS, draw_support


@pytest.fixture
def samples(rng):
    """Three sites that can be told apart by their first column."""
    return [
        np.column_stack([np.full(n, m), rng.normal(size=n)]) for m, n in enumerate((300, 100, 600))
    ]


def sites_of(points):
    return np.bincount(points[:, 0].astype(int), minlength=3).tolist()


def test_points_are_rows_of_the_samples_each_at_most_once(samples):
    points = draw_support(samples, 200)
    rows = {tuple(row) for sample in samples for row in sample}
    assert points.shape == (200, 2) and points.dtype == np.float64
    assert len({tuple(row) for row in points}) == 200
    assert {tuple(row) for row in points} <= rows


def test_sites_have_shares_in_proportion_to_their_rows(samples):
    assert sites_of(draw_support(samples, 200)) == [60, 20, 120]
    assert sum(sites_of(draw_support(samples, 77))) == 77


def test_shares_may_be_given(samples):
    assert sites_of(draw_support(samples, 200, site_weight=[1, 1, 2])) == [50, 50, 100]
    assert sites_of(draw_support(samples, 200, site_weight=[1, 0, 0])) == [200, 0, 0]


def test_no_site_gives_more_than_it_has(samples):
    assert sites_of(draw_support(samples, 400, site_weight=[1, 2, 1])) == [100, 100, 100]
    assert sites_of(draw_support(samples)) == [300, 100, 600]
    assert N_POINTS > 1000


def test_the_same_seed_gives_the_same_points(samples):
    assert_array_equal(draw_support(samples, 50), draw_support(samples, 50))
    a, b = (draw_support(samples, 50, random_state=seed) for seed in (1, 2))
    assert not np.array_equal(a, b)
    assert_array_equal(a, draw_support(samples, 50, random_state=1))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_are_taken(samples, frame):
    frames = [frame({"a": s[:, 0], "b": s[:, 1]}) for s in samples]
    assert_array_equal(draw_support(frames, 50), draw_support(samples, 50))
    with pytest.raises(ValueError, match=r"different columns, \['b', 'a'\] and \['a', 'b'\]"):
        draw_support([frames[0], frames[1][["b", "a"]]], 50)


def test_tensors_are_taken(samples):
    torch = pytest.importorskip("torch")
    found = draw_support([torch.asarray(s) for s in samples], 50)
    assert_array_equal(found, draw_support(samples, 50))


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"samples": []}, "there is no sample to draw support points from"),
        ({"samples": [np.empty((0, 2))]}, "the samples have no rows"),
        ({"samples": [np.ones((5, 2)), np.ones((5, 3))]}, r"sample 1 has shape \(5, 3\)"),
        ({"samples": [np.ones(5)]}, r"sample 0 has shape \(5,\)"),
        ({"n_points": 0}, "n_points is 0; give a whole number of at least 1"),
        ({"n_points": 2.5}, "n_points is 2.5; give a whole number"),
        ({"site_weight": [1.0]}, "site_weight must be 2 numbers"),
        ({"site_weight": [1.0, -1.0]}, "none negative"),
        ({"site_weight": [0.0, 0.0]}, "not all zero"),
        ({"site_weight": [np.nan, 1.0]}, "site_weight must be 2 numbers"),
        ({"site_weight": [np.inf, 1.0]}, "site_weight must be 2 numbers"),
    ],
)
def test_a_mistake_is_named(kwargs, sentence):
    known = {"samples": [np.ones((5, 2)), np.zeros((4, 2))], "n_points": 3}
    with pytest.raises(ValueError, match=sentence):
        draw_support(**known | kwargs)


def test_a_missing_support_points_to_this_helper():
    sent = [message(random_model(np.random.default_rng(0)))]
    with pytest.raises(ValueError, match="for example from otmoe.draw_support"):
        aggregate(sent)
