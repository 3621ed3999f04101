import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from otmoe.arrays.newton import (
    NewtonPoint,
    damped_step,
    learned,
    newton,
    solve_psd,
)


def random_psd(rng, size, rank):
    A = rng.normal(size=(size, rank))
    return A @ A.T


# -- solve_psd ---------------------------------------------------------------------------------


def test_a_definite_system_is_solved(rng):
    H, g = random_psd(rng, 5, 8), rng.normal(size=5)
    assert_allclose(solve_psd(H, g), np.linalg.solve(H, g), rtol=1e-9)


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_a_singular_system_gets_the_shortest_solution(rng, rank):
    H = random_psd(rng, 6, rank)
    g = H @ rng.normal(size=6)
    assert_allclose(solve_psd(H, g), np.linalg.pinv(H, hermitian=True, rcond=1e-9) @ g, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-280, 1e-289, 1e-291, 1e-305, 1e-310, 5e-324])
def test_a_system_that_underflows_has_a_finite_solution(scale):
    for H in (np.diag([1.0, 0.5]), np.ones((2, 2)), np.diag([1.0, 0.0])):
        solution = solve_psd(scale * H, scale * np.ones(2))
        assert np.all(np.isfinite(solution))
        if scale < 1e-290:
            assert not solution.any()


def test_systems_in_a_batch_do_not_disturb_each_other(rng):
    H = np.array([random_psd(rng, 4, rank) for rank in (6, 2, 0, 7, 8)])
    H[3] *= 1e-300  # it underflows
    g = np.einsum("nij,nj->ni", H, rng.normal(size=(5, 4)))
    alone = [solve_psd(H[i], g[i]) for i in range(5)]
    assert not np.any(alone[3])
    assert_allclose(solve_psd(H, g), alone, rtol=1e-8, atol=1e-10)


# -- newton ------------------------------------------------------------------------------------


def quadratic(H, top):
    """Return a concave quadratic with its maximum at `top`."""

    def evaluate(theta):
        d = top - theta
        return NewtonPoint(-0.5 * d @ H @ d, H @ d, H)

    return evaluate


def test_a_quadratic_takes_one_step(rng):
    H, top = random_psd(rng, 4, 6), rng.normal(size=4)
    found = newton(quadratic(H, top), np.zeros(4))
    assert_allclose(found.theta, top, rtol=1e-8)
    assert found.converged and found.n_evaluations <= 2  # the second confirms


def test_the_decrement_is_the_squared_distance_to_the_maximum(rng):
    H, top = random_psd(rng, 4, 6), rng.normal(size=4)
    found = newton(quadratic(H, top), np.zeros(4), max_iter=0)
    assert_allclose(found.decrement, top @ H @ top, rtol=1e-8)
    assert not found.converged
    assert_array_equal(found.theta, np.zeros(4))


def test_nothing_to_maximise_over_is_a_maximum():
    found = newton(lambda theta: NewtonPoint(1.0, np.empty(0), np.empty((0, 0))), np.empty(0))
    assert found.converged and found.decrement == 0


def test_directions_without_curvature_are_left_alone(rng):
    H, top = random_psd(rng, 5, 2), rng.normal(size=5)
    found = newton(quadratic(H, top), np.zeros(5))
    assert found.converged
    assert_allclose(H @ found.theta, H @ top, atol=1e-8)
    assert np.linalg.norm(found.theta) < 10 * np.linalg.norm(top)


@pytest.mark.parametrize("start", [(-1.2, 1.0), (0.0, 3.0), (2.0, -2.0)])
def test_an_indefinite_objective_is_climbed_without_a_fall(start):
    def evaluate(x):
        return NewtonPoint(-optimize.rosen(x), -optimize.rosen_der(x), optimize.rosen_hess(x))

    found = newton(evaluate, np.array(start))
    assert found.converged
    assert_allclose(found.theta, [1, 1], atol=1e-4)
    assert len(found.trace) > 2 and np.diff(found.trace).min() >= 0
    assert found.point.value == found.trace[-1]


def test_a_step_out_of_the_domain_is_shortened():
    def evaluate(x):
        # log x - x: from 3, a full Newton step lands at -3
        if x[0] <= 0:
            return NewtonPoint(-np.inf, x, np.eye(1))
        return NewtonPoint(np.log(x[0]) - x[0], 1 / x - 1, np.diag(1 / x**2))

    found = newton(evaluate, np.array([3.0]))
    assert found.converged
    assert_allclose(found.theta, [1.0], atol=1e-5)


def test_an_objective_without_a_maximum_is_not_called_converged():
    def evaluate(x):
        return NewtonPoint(-np.exp(-x[0]), np.exp(-x), np.diag(np.exp(-x)))

    assert not newton(evaluate, np.zeros(1), tol=1e-12, max_iter=20).converged


def test_progress_counts_accepted_steps():
    seen = []

    def evaluate(x):
        return NewtonPoint(-np.sum(np.cosh(x)), -np.sinh(x), np.diag(np.cosh(x)))

    found = newton(evaluate, np.array([3.0, -2.0]), report=lambda *args: seen.append(args))
    assert seen == list(enumerate(found.trace))[1:]


def test_borrowed_information_saves_evaluations_but_no_accuracy(rng):
    curved, glanced = [], []
    weight, top = rng.uniform(1, 9, 3), rng.normal(size=3)

    def evaluate(x, near=None):
        (curved if near is None else glanced).append(x)
        e = np.exp(x - top)
        information = np.diag(weight * e) if near is None else near.information
        return NewtonPoint(np.sum(weight * (x - e)), weight * (1 - e), information)

    exact = newton(evaluate, np.zeros(3))
    n_curved = len(curved)
    found = newton(evaluate, np.zeros(3), glance=evaluate)
    assert glanced and len(curved) - n_curved < n_curved
    assert found.converged and found.decrement < 1e-16
    assert_allclose(found.theta, exact.theta, rtol=1e-9)


def test_borrowed_information_that_misleads_is_replaced():
    # Half the information makes steps twice too long.
    def evaluate(x, near=None):
        information = np.diag(np.cosh(x)) if near is None else near.information / 2
        return NewtonPoint(-np.sum(np.cosh(x)), -np.sinh(x), information)

    found = newton(evaluate, np.array([0.3, -0.2]), tol=1e-4, glance=evaluate)
    assert found.converged and np.diff(found.trace).min() >= 0
    assert_allclose(found.theta, 0, atol=1e-3)


@pytest.mark.parametrize("curvature", [1.0, 1e-6, 1e6])
def test_a_saddle_is_left_as_fast_as_a_maximum_is_approached(curvature):
    def evaluate(x):
        # (x^2 - 1)^2 downwards, and a bowl in y: a saddle at 0, maxima at x = -1 and 1
        value = -(((x[0] ** 2 - 1) ** 2) / 4) - x[1] ** 2 / 2
        score = np.array([x[0] - x[0] ** 3, -x[1]])
        information = np.diag([3 * x[0] ** 2 - 1, 1.0])
        return NewtonPoint(curvature * value, curvature * score, curvature * information)

    for first in (1e-3, -0.1):
        start = np.array([first, 2.0])
        step, decrement, damping = damped_step(evaluate(start), 0.0)
        assert decrement == np.inf and damping == 0
        assert_allclose(step, [first, -2.0], rtol=3e-2)  # away from one, towards the other
        found = newton(evaluate, start, tol=1e-10 * curvature, max_iter=20)
        assert found.converged and np.diff(found.trace).min() >= 0
        assert_allclose(found.theta, [np.sign(first), 0.0], atol=1e-4)


def damped_by_the_spectrum(point, damping):
    """Do what `damped_step` does by the whole spectrum of the information."""
    unit = np.sqrt(np.abs(np.diagonal(point.information)))
    values, vectors = np.linalg.eigh(point.information / np.outer(unit, unit))
    live = np.abs(values) > 1e-11 * np.abs(values).max()
    values, vectors = values[live], vectors[:, live]
    b, concave = vectors.T @ (point.score / unit), np.any(values < 0)
    decrement = np.inf if concave else np.sum(b**2 / values)
    sizes = np.maximum(np.abs(values), 1e-4) if concave else values
    return vectors @ (b / (sizes + damping)) / unit, decrement


@pytest.mark.parametrize("damping", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize(
    "values", [[1, 2, 3, 4, 5], [1, 2, -3, 4, 1e-7], [1, -2, -1e-7, 4, 0], [1, 2, 3, 0, 0]]
)
def test_a_step_is_that_of_the_whole_spectrum(rng, values, damping):
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    unit = np.array([1.0, 10.0, 1e-2, 3.0, 1.0])
    H = (rotation * np.array(values, dtype=float)) @ rotation.T
    H = (H + H.T) / 2 * np.outer(unit, unit)
    score = H @ rng.normal(size=5) if 0 in values else unit * rng.normal(size=5)
    point = NewtonPoint(0.0, score, H)
    step, decrement, _ = damped_step(point, damping)
    expected, of_spectrum = damped_by_the_spectrum(point, damping)
    # the root of a unit: a singular matrix is known to that
    assert_allclose(unit * step, unit * expected, rtol=1e-5, atol=1e-7)
    assert_allclose(decrement, of_spectrum, rtol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1.1, 0.1, 30.0, -1.0])
def test_about_what_is_known_of_the_information_ends_in_the_same_maximum(rng, factor):
    """A logistic regression, from the information elsewhere: good, poor, useless or wrong."""
    X = np.column_stack([np.ones(400), rng.standard_normal((400, 3))])
    y = rng.random(400) < 0.4
    counts = {"whole": 0, "score": 0}

    def evaluate(theta, near=None):
        mean = 1 / (1 + np.exp(-X @ theta))
        value = float(np.sum(y * (X @ theta) - np.logaddexp(0, X @ theta)))
        counts["whole" if near is None else "score"] += 1
        own = X.T @ (X * (mean * (1 - mean))[:, None])
        return NewtonPoint(value, X.T @ (y - mean), own if near is None else near.information)

    plain = newton(evaluate, np.zeros(4))
    whole, counts["whole"] = counts["whole"], 0
    there = factor * evaluate(plain.theta + 0.05).information
    found = newton(evaluate, np.zeros(4), glance=evaluate, known=there)
    assert found.converged
    assert np.diff(found.trace).min() >= -1e-9
    assert_allclose(found.theta, plain.theta, atol=1e-7)
    exact = evaluate(found.theta).information
    assert_allclose(found.point.information, exact, rtol=0.05, atol=0.05 * exact.max())
    if factor == 1.0:
        assert counts["whole"] - 2 < whole


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_what_a_step_tells_of_the_information_is_learned(rng, size):
    """Then it maps the step to the change of the score, is definite, and stays where it did."""
    H, known = random_psd(rng, size, 2 * size), random_psd(rng, size, 2 * size)
    step = rng.normal(size=size)
    before, after = (NewtonPoint(0.0, -H @ at, known) for at in (np.zeros(size), step))
    new = learned(after, step, before).information
    assert_allclose(new @ step, H @ step, rtol=1e-9)
    assert_allclose(new, new.T, rtol=1e-12)
    assert np.linalg.eigvalsh(new)[0] > 0
    same = learned(NewtonPoint(0.0, -known @ step, known), step, before).information
    assert_allclose(same, known, rtol=1e-9, atol=1e-12)
    falling = NewtonPoint(0.0, H @ step, known)
    assert learned(falling, step, before) is falling  # the objective is not concave there


@pytest.mark.parametrize("wrong", [0.05, 0.2])
def test_where_the_information_is_about_known_it_is_made_once(rng, wrong):
    H = random_psd(rng, 8, 20)
    root, top, whole = np.linalg.cholesky(H), rng.normal(size=8), []
    known = root @ np.diag(1 + wrong * rng.uniform(-1, 1, 8)) @ root.T

    def evaluate(theta, near=None):
        whole.append(near is None)
        d = theta - top
        return NewtonPoint(-0.5 * d @ H @ d, -H @ d, H if near is None else near.information)

    found = newton(evaluate, top + 10.0, glance=evaluate, known=known)
    assert_allclose(found.theta, top, atol=1e-6)
    assert found.converged and sum(whole) == 1 and len(whole) <= 8
