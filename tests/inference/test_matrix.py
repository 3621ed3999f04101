"""Coefficients with features down and experts across."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from otmoe import MoEClassifier, MoERegressor, simulate
from otmoe.inference.matrix import Matrix, with_error
from otmoe.inference.parameters import parameters

FAMILIES = [
    "gaussian",
    "poisson",
    "logistic",
    "multinomial",
    "negative_binomial",
    "gamma",
    "student_t",
]


def truth(family, K=3, d=4):
    return simulate(50, K, d, family=family, random_state=1).truth


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_is_there_once(family):
    model = truth(family)
    errors = np.arange(1.0, model.n_parameters + 1)
    matrix = Matrix.of(model, errors=errors)
    values = np.concatenate([block.estimates.ravel() for block in matrix.blocks])
    assert np.isfinite(values).sum() == model.n_parameters
    logs = [row.block == "variance" for row in parameters(model)]
    expected = np.where(logs, np.exp(np.where(logs, model.to_vector(), 0)), model.to_vector())
    assert_allclose(np.sort(values[np.isfinite(values)]), np.sort(expected))
    known = np.concatenate([block.errors.ravel() for block in matrix.blocks])
    assert_allclose(
        np.sort(known[np.isfinite(known)]), np.sort(np.where(logs, expected * errors, errors))
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_cells_are_those_of_the_summary(family):
    data = simulate(800, 2, 2, family=family, random_state=0)
    kind = MoEClassifier(2) if data.truth.experts.classifies else MoERegressor(2, family=family)
    found = kind.set_params(random_state=0).fit(data.X, data.y).inference()
    matrix = Matrix.of(found.model, found.mass, [row.se for row in found.table()])
    blocks = {(block.block, block.label): block for block in matrix.blocks}
    for row in found.table():
        if row.block != "variance":
            block = blocks[row.block, row.label]
            cell = block.terms.index(row.term), block.experts.index(row.expert)
            assert_array_equal((block.estimates[cell], block.errors[cell]), (row.estimate, row.se))
    assert_allclose(matrix.share.sum(), 1)


@pytest.mark.parametrize("K", [1, 2, 9, 30])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_number_is_cut_and_lines_are_not_longer_than_asked_for(K, width):
    model = truth("gaussian", min(K, 5))
    model = model.take(list(np.arange(K) % model.n_experts))
    matrix = Matrix.of(model, np.ones(K), np.full(model.n_parameters, 0.0123))
    text = matrix.text(width)
    assert max(map(len, text.splitlines())) <= width
    for block in matrix.blocks:
        for pair in zip(block.estimates.ravel(), block.errors.ravel(), strict=True):
            assert with_error(*pair) in text
    assert all(text.count(f"expert {k}\n") + text.count(f"expert {k} ") >= 1 for k in range(K))


def test_a_long_name_is_not_cut():
    model = truth("gaussian", 2, 2)
    name = "a" * 90
    text = Matrix.of(type(model)(model.gate, model.experts, (name, "b"))).text(80)
    assert name in text


def test_csv_and_html_hold_the_same():
    model = truth("multinomial")
    matrix = Matrix.of(model, np.ones(3), np.full(model.n_parameters, 0.5))
    head, *rows = matrix.csv_rows()
    assert len(head) == 3 + 2 * 3 and all(len(row) == len(head) for row in rows)
    numbers = [cell for row in rows for cell in row[3:6] if cell is not None]
    assert_allclose(np.sort(numbers), np.sort(model.to_vector()))
    for row in rows:
        assert row[2] in matrix.html()


def test_an_unknown_error_leaves_the_estimate():
    model = truth("gaussian", 2, 1)
    errors = [None] * model.n_parameters
    assert Matrix.of(model, errors=errors).text() == Matrix.of(model).text()
    text = Matrix.of(model, errors=[0.5, *errors[1:]]).text()
    assert text.count("(–)") == model.n_parameters  # with the note
