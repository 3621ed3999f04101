"""Several y of one x: the same sums as of a row for each."""

import numpy as np
import pytest
from families import FAMILIES
from numpy.testing import assert_allclose
from oracles import random_model

from otmoe.likelihood import fused
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Block
from otmoe.likelihood.statistics import e_step


class Fixed:
    """Rows that are one block."""

    pool = None

    def __init__(self, block):
        self.only = block

    def slices(self):
        yield slice(0, len(self.only.X))

    def block(self, rows):
        return self.only


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_copies_are_rows(rng, family, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr("otmoe.arrays.pairs.kernels", None)
        monkeypatch.setattr("otmoe.likelihood.fused.gaussian", None)
    model = random_model(rng, 3, 2, family=family)
    copies = rng.integers(1, 5, 400)
    X = np.column_stack([np.ones(400), rng.normal(size=(400, 2))])
    repeated = np.repeat(X, copies, axis=0)
    y = model.sample(repeated[:, 1:], rng)[0].astype(float)
    weight = rng.uniform(0.1, 2.0, len(y))
    one = Fixed(Block(X, y, weight, copies=copies))
    other = Fixed(Block(repeated, y, weight))
    found, expected = (observed_information(model, rows) for rows in (one, other))
    assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-12)
    assert_allclose(found.score, expected.score, rtol=1e-9, atol=1e-9)
    assert_allclose(found.matrix, expected.matrix, rtol=1e-9, atol=1e-9)
    assert_allclose(found.mass, expected.mass, rtol=1e-12)
    found, expected = (e_step(model, rows) for rows in (one, other))
    assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-12)
    for part in ("score", "information"):
        assert_allclose(
            getattr(found.gate, part), getattr(expected.gate, part), rtol=1e-9, atol=1e-9
        )
        assert_allclose(
            getattr(found.experts, part), getattr(expected.experts, part), rtol=1e-9, atol=1e-9
        )


def test_the_kernels_take_any_number_of_copies(rng, monkeypatch):
    model = random_model(rng, 5, 4, family="gaussian")
    copies = rng.integers(1, 40, 700)
    copies[[3, 300]] = 1, 900  # more than a tile has places
    X = np.column_stack([np.ones(700), rng.normal(size=(700, 4))])
    y = model.sample(np.repeat(X, copies, axis=0)[:, 1:], rng)[0].astype(float)
    block = Block(X, y, rng.uniform(0.1, 2.0, len(y)), copies=copies)
    found = observed_information(model, Fixed(block)), fused.log_densities(model, block)
    score = observed_information(model, Fixed(block), matrix=False)
    monkeypatch.setattr("otmoe.likelihood.fused.gaussian", None)
    expected = observed_information(model, Fixed(block)), fused.log_densities(model, block)
    assert_allclose(found[0].matrix, expected[0].matrix, rtol=1e-9, atol=1e-8)
    assert_allclose(found[0].score, expected[0].score, rtol=1e-9, atol=1e-8)
    assert_allclose(score.score, expected[0].score, rtol=1e-9, atol=1e-8)
    assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-12)
