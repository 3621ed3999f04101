import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from otmoe.arrays import pairs
from otmoe.arrays.pairs import Form, pair_gram


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("n", "p", "n_linear"), [(1, 1, 1), (7, 3, 2), (600, 2, 4), (300, 4, 3)])
def test_a_gram_of_pairs_is_the_sum_over_rows(rng, monkeypatch, compiled, n, p, n_linear):
    if not compiled:
        monkeypatch.setattr(pairs, "kernels", None)
    n_less, size = n_linear - 1, n_linear + 1  # the last predictor is a constant
    X = rng.normal(size=(n, p))
    t, less, more = (rng.normal(size=(m, n)) for m in (size, n_less, 2))
    where = np.full((size, size), -1)
    where[0, 0], where[0, n_linear - 1] = 0, 1
    form = Form(list(t), list(less), list(more), where)
    found, q = pair_gram(X, form, n_linear), 0
    for a in range(n_linear):
        for b in range(a, n_linear):
            expected = np.zeros((p, p))
            for i in range(n):
                weight = t[a, i] * t[b, i]
                weight -= less[a, i] * less[b, i] if b < n_less else 0
                weight += more[where[a, b], i] if where[a, b] >= 0 else 0
                expected += weight * np.outer(X[i], X[i])
            assert_allclose(found[q], expected, rtol=1e-9, atol=1e-9)
            assert_array_equal(found[q], found[q].T)
            q += 1
    assert len(found) == q
