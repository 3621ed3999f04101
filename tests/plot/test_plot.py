"""Displays show the numbers they are given."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy import stats

from otmoe import DistributedMoERegressor, MoEClassifier, MoERegressor, aggregate, simulate
from otmoe.estimators.base import FitWarning
from otmoe.plot import (
    CoefficientDisplay,
    ConvergenceDisplay,
    CurveDisplay,
    DensityDisplay,
    FlowDisplay,
    GateEffectDisplay,
    GateRegionDisplay,
    ResidualDisplay,
    SelectionDisplay,
)
from otmoe.plot.base import PALETTE, short
from otmoe.selection import Candidate, Expectation, Score, Selection

matplotlib = pytest.importorskip("matplotlib")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def off_screen():
    from matplotlib import pyplot

    before = matplotlib.get_backend()
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


@pytest.fixture(scope="module")
def data():
    return simulate(1500, 2, 3, softness=1.0, random_state=0)


@pytest.fixture(scope="module")
def est(data):
    return MoERegressor(2, n_init=3, random_state=0).fit(data.X, data.y)


@pytest.fixture(scope="module")
def found(data, est):
    return est.inference(data.X, data.y)


@pytest.fixture(scope="module")
def spread(data):
    options = {"n_init": 3, "refine": 3, "random_state": 0}
    return DistributedMoERegressor(2, n_shards=4, **options).fit(data.X, data.y)


def drawn(display):
    """Draw to the end, as saving would; return the texts on the axes."""
    display.figure_.canvas.draw()
    axes = display.figure_.axes
    ticks = [t.get_text() for ax in axes for t in ax.get_yticklabels() + ax.get_xticklabels()]
    texts = [t.get_text() for ax in axes for t in ax.texts]
    legends = [t.get_text() for ax in axes if ax.get_legend() for t in ax.get_legend().get_texts()]
    labels = [text for ax in axes for text in (ax.get_xlabel(), ax.get_ylabel())]
    return [*ticks, *texts, *legends, *labels]


# -- flow ----------------------------------------------------------------------------------------


def heights(patch):
    """Return the height of a ribbon at its left and at its right end."""
    at = patch.get_path().vertices
    left, right = at[at[:, 0] == at[:, 0].min(), 1], at[at[:, 0] == at[:, 0].max(), 1]
    return np.ptp(left), np.ptp(right)


def test_ribbons_are_as_wide_as_the_mass_they_carry(spread):
    display = FlowDisplay.from_aggregation(spread.aggregation_)
    total = sum(record.weight for record in spread.aggregation_.sites)
    for record in spread.aggregation_.sites:
        for level, row in enumerate(record.mass):
            for k, mass in enumerate(row):
                share = record.weight * mass / total
                if share > 1e-3:
                    patch = display.ribbons_[record.site, level, k]
                    assert_allclose(heights(patch), share)
    assert_allclose(display.mass, spread.aggregation_.mass)
    words = drawn(display)
    assert "shard 1" in words and f"expert 0  {display.mass[0]:.0%}" in words


def test_ribbons_neither_overlap_nor_leave_gaps_where_they_arrive(spread):
    display = FlowDisplay.from_aggregation(spread.aggregation_)
    for k in range(2):
        ends = []
        for (_, _, target), patch in display.ribbons_.items():
            if target == k:
                at = patch.get_path().vertices
                side = at[at[:, 0] == at[:, 0].max(), 1]
                ends.append((side.max(), side.min()))
        ends.sort(reverse=True)
        for (_, low), (high, _) in zip(ends, ends[1:], strict=False):
            assert_allclose(low, high, atol=2e-3)


def test_many_sites_are_drawn_as_one(spread, data):
    local = spread.local_models_
    bare = [replace(message, grams=None) for message in local]
    messages = [replace(bare[m % 4], site=f"site {m}", n_samples=1.0 + m) for m in range(30)]
    merged = aggregate(messages, data.X[:300])
    display = FlowDisplay.from_aggregation(merged, n_sites=5)
    assert display.sites == ["site 29", "site 28", "site 27", "site 26", "26 other sites"]
    assert_allclose(display.mass, merged.mass)
    assert display.flow[-1].shape == (1, 2)
    assert "26 other sites" in drawn(display)


def test_sites_that_stand_out_are_marked_and_never_hidden(spread):
    merged = spread.aggregation_
    weights = [0.4, 0.3, 0.2, 0.1]
    sites = tuple(
        replace(r, weight=w, flagged=("it lies",) if w == 0.1 else ())
        for r, w in zip(merged.sites, weights, strict=True)
    )
    display = FlowDisplay.from_aggregation(replace(merged, sites=sites), n_sites=3)
    assert display.sites == ["shard 1", "shard 4", "2 other sites"]
    assert "shard 4 ⚑" in drawn(display) and "shard 1" in drawn(display)
    assert_allclose([part.sum() for part in display.flow], [0.4, 0.1, 0.5])


# -- coefficients --------------------------------------------------------------------------------


@pytest.mark.parametrize("block", ["expert", "gate"])
def test_forest_plots_show_estimates_and_intervals(found, block):
    display = CoefficientDisplay.from_inference(found, block=block, level=0.9, intercept=True)
    rows = [e for e in found.table(0.9) if e.block == block]
    assert len(rows) == len(display.points_) == (8 if block == "expert" else 4)
    for e in rows:
        point, line = display.points_[e.term, e.expert], display.lines_[e.term, e.expert]
        assert_allclose(point.get_xdata(), [e.estimate])
        assert_allclose(line.get_xdata(), [e.low, e.high])
        place = display.ax_.get_yticks()[display.terms.index(e.term)]
        assert abs(point.get_ydata()[0] - place) < 0.5
    assert "90% interval" in display.ax_.get_xlabel()
    assert ("expert 0 against 1" in drawn(display)) == (block == "gate")


def test_marks_do_not_cover_each_other_and_of_many_terms_the_clearest_are_shown(found):
    display = CoefficientDisplay.from_inference(found)
    places = [point.get_ydata()[0] for point in display.points_.values()]
    assert len(set(places)) == len(places) == 6
    display = CoefficientDisplay.from_inference(found, n_terms=2)
    rows = [e for e in found.table() if e.block == "expert" and e.term != "intercept"]
    clearest = {t: max(abs(e.z) for e in rows if e.term == t) for t in ("x0", "x1", "x2")}
    assert set(display.terms) == set(sorted(clearest, key=clearest.get)[1:])
    assert display.ax_.get_title(loc="left") == "2 of 3 terms"


def test_what_is_not_identified_has_a_hollow_mark_and_no_line(data):
    X = np.column_stack([data.X, data.X[:, 0]])  # a column twice
    with pytest.warns(FitWarning) as caught:
        est = MoERegressor(2, n_init=3, random_state=0).fit(X, data.y)
    assert [w.message.codes for w in caught] == [("rank_deficient",)]
    display = CoefficientDisplay.from_estimator(est, X, data.y)
    assert ("x0", 0) not in display.lines_ and ("x1", 0) in display.lines_
    assert display.points_["x0", 0].get_markerfacecolor() == "white"


def test_coefficients_of_classes_name_the_class():
    data = simulate(600, 2, 2, family="multinomial", random_state=0)
    y = np.array(["red", "green", "blue"])[data.y.astype(int)]
    est = MoEClassifier(2, n_init=2, alpha=1.0, random_state=0).fit(data.X, y)
    display = CoefficientDisplay.from_estimator(est, data.X, y)
    assert display.terms == ["x0, blue", "x1, blue", "x0, green", "x1, green"]


# -- the gate ------------------------------------------------------------------------------------


def test_effects_are_means_over_rows(est, data):
    display = GateEffectDisplay.from_estimator(est, data.X[:50], ["x1", 0], n_grid=7)
    assert display.features == ["x1", "x0"]
    for lines, column in zip(display.lines_, (1, 0), strict=True):
        for g in range(7):
            X = data.X[:50].copy()
            X[:, column] = lines[0].get_xdata()[g]
            expected = est.predict_expert_proba(X).mean(axis=0)
            assert_allclose([line.get_ydata()[g] for line in lines], expected)
    assert [ax.get_xlabel() for ax in display.axes_] == ["x1", "x0"]
    assert "expert 1" in drawn(display)


def test_effects_at_the_mean_of_the_others(est, data):
    display = GateEffectDisplay.from_estimator(est, data.X, ["x2"], others="mean", n_grid=3)
    at = np.tile(data.X.mean(axis=0), (3, 1))
    at[:, 2] = np.linspace(*np.percentile(data.X[:, 2], [1, 99]), 3)
    assert_allclose(display.prob[0], est.predict_expert_proba(at))


def test_features_that_move_the_gate_come_first(est, data):
    display = GateEffectDisplay.from_estimator(est, data.X, n_features=2)
    moved = [np.ptp(prob, axis=0).max() for prob in display.prob]
    everything = GateEffectDisplay.from_estimator(est, data.X, [0, 1, 2])
    all_moved = sorted((np.ptp(prob, axis=0).max() for prob in everything.prob), reverse=True)
    assert_allclose(moved, all_moved[:2])


def test_regions_have_the_colour_of_the_most_probable_expert(est, data):
    from matplotlib.colors import to_rgb

    display = GateRegionDisplay.from_estimator(est, data.X, ("x0", "x2"), n_grid=15)
    image = np.asarray(display.image_.get_array())
    rgb = np.array([to_rgb(c) for c in PALETTE[:2]])
    X = data.X.mean(axis=0)
    for i, j in [(0, 0), (3, 11), (14, 14), (14, 0)]:
        at = X.copy()
        at[0], at[2] = display.grids[0][j], display.grids[1][i]
        prob = est.predict_expert_proba(at[None, :])[0]
        assert_allclose(display.prob[i, j], prob)
        ink = 1 - image[i, j]  # in proportion to the ink of the colour
        expected = 1 - rgb[np.argmax(prob)]
        assert_allclose(ink / ink.max(), expected / expected.max(), atol=1e-6)
    assert display.ax_.get_xlabel() == "x0" and display.ax_.get_ylabel() == "x2"


# -- predictions ---------------------------------------------------------------------------------


def test_densities_are_those_of_the_model(est, data):
    display = DensityDisplay.from_estimator(est, data.X[:2], labels=["a", "b"])
    for i in range(2):
        X = np.tile(data.X[i], (len(display.grid), 1))
        expected = np.exp(est.log_density(X, display.grid))
        assert_allclose(display.density[i], expected, rtol=1e-10)
        line = display.outlines_[i].get_ydata()
        assert_allclose((line - (1 - i)) / 0.86, expected / expected.max(), atol=1e-12)
        assert_allclose(np.trapezoid(expected, display.grid), 1, atol=0.01)
    model = est.model_
    k, y = 1, display.grid[123]
    mean = model.experts.coef[k] @ np.append(1.0, data.X[0])
    part = model.gate_prob(data.X[:1])[0, k] * stats.norm.pdf(y, mean, model.experts.var[k] ** 0.5)
    assert_allclose(display.parts[0, 123, k], part)
    assert {"a", "b"} <= set(drawn(display))


def test_counts_and_classes_are_drawn_as_steps():
    data = simulate(300, 2, 2, family="poisson", random_state=0)
    display = DensityDisplay.from_estimator(data.truth, data.X[:2])
    assert_array_equal(display.grid, np.arange(display.grid[0], display.grid[-1] + 1))
    assert_allclose(display.density.sum(axis=1), 1, atol=0.01)
    steps = display.outlines_[0].get_data()
    assert_allclose((steps.values - 1) / 0.86, display.density[0] / display.density[0].max())
    data = simulate(300, 2, 2, family="logistic", random_state=0)
    y = np.array(["no", "yes"])[data.y.astype(int)]
    est = MoEClassifier(2, n_init=2, random_state=0).fit(data.X, y)
    display = DensityDisplay.from_estimator(est, data.X[:3])
    assert_allclose(display.density, est.predict_proba(data.X[:3]))
    assert "yes" in drawn(display)


def test_residuals_of_the_truth_are_standard_normal_where_experts_overlap():
    data = simulate(3000, 3, 2, overlap=True, random_state=0)
    display = ResidualDisplay.from_estimator(data.truth, data.X, data.y)
    assert stats.kstest(display.residual, "norm").pvalue > 0.01
    for k, cloud in enumerate(display.clouds_):
        mine = display.expert == k
        points = np.column_stack([display.fitted[mine], display.residual[mine]])
        assert_allclose(cloud.get_offsets(), points)
        var = data.truth.experts.var[k]
        y = display.fitted[mine] + np.sqrt(var) * display.residual[mine]
        assert_allclose(y, data.y[mine])


def test_residuals_of_counts_have_unit_variance_and_those_of_classes_are_refused():
    data = simulate(2000, 2, 2, family="poisson", random_state=0)
    display = ResidualDisplay.from_estimator(data.truth, data.X, data.y)
    assert_allclose(display.residual.var(), 1, atol=0.1)
    truth = simulate(10, 2, 2, family="logistic", random_state=0).truth
    refused("no_residuals").by(ResidualDisplay.from_estimator, truth, np.zeros((2, 2)), [0, 1])


def test_residuals_of_trials_are_those_of_shares_and_several_responses_have_none():
    data = simulate(400, 2, 3, family="binomial", softness=1.0, random_state=0)
    display = ResidualDisplay.from_estimator(data.truth, data.X, data.y)
    share = data.y[:, 0] / 10
    expected = (share - display.fitted) / np.sqrt(display.fitted * (1 - display.fitted) / 10)
    assert_allclose(display.residual, expected, rtol=1e-9)
    both = np.column_stack([data.y[:, 0], data.y[:, 1]])
    several = MoERegressor(1, family=["poisson", "poisson"]).fit(data.X, both)
    for display in (ResidualDisplay, DensityDisplay):
        name, given = display.__name__, (data.X, both)[: 2 if display is ResidualDisplay else 1]
        refused("joint_not_here", what=name).by(display.from_estimator, several, *given)


# -- traces --------------------------------------------------------------------------------------


def test_convergence_shows_the_distance_to_the_last(data):
    est = MoERegressor(2, warm_start=True, random_state=0).fit(data.X[::2], data.y[::2])
    display = ConvergenceDisplay.from_fit(est.fit(data.X, data.y))  # some way to go
    trace = est.fit_.trace
    x, y = display.line_.get_data()
    assert_allclose(y, (trace[-1] - trace)[x.astype(int)])
    assert len(y) >= 2 and np.all(y > 0) and display.ax_.get_yscale() == "log"


def test_convergence_of_merging_and_refining(spread):
    display = ConvergenceDisplay.from_aggregation(spread)
    assert_allclose(display.line_.get_ydata(), spread.aggregation_.trace)
    for method, words in (("kl", "expected nats lost per row"), ("reduction", "$R_c$, nats")):
        merged = aggregate(spread.local_models_, spread.aggregation_.support, method=method)
        display = ConvergenceDisplay.from_aggregation(merged)
        assert display.ax_.get_ylabel() == words
    display = ConvergenceDisplay.from_aggregation(spread.aggregation_, refine=True)
    trace = np.array(spread.aggregation_.refinement.trace)
    assert_allclose(display.line_.get_ydata()[0], trace[-1] - trace[0])
    assert display.ax_.get_xlabel() == "refine round"


def test_nothing_to_show_is_said(spread, est, data):
    kept = aggregate(spread.local_models_, data.X[:300], method="ensemble")
    refused("no_flow").by(FlowDisplay.from_aggregation, kept)
    refused("no_fit_to_plot", TypeError).by(ConvergenceDisplay.from_fit, spread)
    merged = aggregate(spread.local_models_, data.X[:300], method="weighted_average")
    with refused("no_iterations", method="weighted_average"):
        ConvergenceDisplay.from_aggregation(merged)
    refused("no_rounds").by(ConvergenceDisplay.from_aggregation, merged, refine=True)


@pytest.mark.parametrize(("scored", "merged"), [(True, True), (True, False), (False, True)])
def test_the_choice_of_k_is_marked(data, scored, merged):
    values = zip([-90.0, -10.0, -9.0, -8.5], [1.0, 0.2, 0.02, 0.015], strict=True)
    candidates = []
    for K, (value, cost) in enumerate(values, 1):
        score = Score(value, 1.0 * K, 50.0) if scored else None
        truth = simulate(10, K, 1, random_state=0).truth
        about = Expectation(cost, cost / 2, 50.0) if merged else None
        cost = cost if merged else np.nan
        candidates.append(Candidate(K, truth, score, cost, expectation=about))
    chosen = Selection(tuple(candidates), "bic" if scored else "elbow")
    display = SelectionDisplay.from_selection(chosen)
    expected = (["bic", "icl"] if scored else []) + (["expected_bic", "cost"] if merged else [])
    assert list(display.lines_) == expected
    assert len(display.axes_) == scored + 2 * merged
    for key, line in display.lines_.items():
        assert_allclose(line.get_xdata(), [1, 2, 3, 4])
        assert_allclose(line.get_ydata(), [getattr(c, key) for c in chosen.candidates])
        best = chosen.best("elbow" if key == "cost" else key)
        assert_allclose(display.best_[key].get_xdata(), [best.n_experts])
    drawn(display)


# -- all of them ---------------------------------------------------------------------------------


def test_long_names_are_cut_unless_they_would_look_alike():
    cut, kept = short(["systolic blood pressure at admission", "age"])
    assert len(cut) == 22 and kept == "age"
    assert cut.startswith("systolic blood") and cut.endswith("mission")
    alike = [f"hospital number {m} of the region" for m in range(2)]
    assert short(alike) == alike


def test_legends_of_narrow_figures_stand_above(est):
    from matplotlib import pyplot

    for width, above in [(3.0, True), (6.0, False)]:
        figure, ax = pyplot.subplots(figsize=(width, 3), layout="constrained")
        DensityDisplay.from_estimator(est, np.zeros((1, 3)), ax=ax)
        figure.canvas.draw()
        box = ax.get_legend().get_window_extent()
        assert (box.y0 >= ax.bbox.y1 - 1) == above
        assert (box.x0 >= ax.bbox.x1 - 1) != above


def test_given_axes_are_used(est, found, data, spread):
    from matplotlib import pyplot

    figure, (a, b) = pyplot.subplots(1, 2)
    one = ConvergenceDisplay.from_fit(est, ax=a)
    two = GateEffectDisplay.from_estimator(est, data.X, ["x0"], ax=b)
    assert one.ax_ is a and one.figure_ is figure and list(two.axes_) == [b]
    assert a.lines and b.lines
    with refused("axes", axes=1, wanted=2):
        GateEffectDisplay.from_estimator(est, data.X, ["x0", "x1"], ax=b)
    assert len(pyplot.get_fignums()) == 1


def test_frames_are_read_by_name(data):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(data.X, columns=["age", "weight", "height"])
    est = MoERegressor(2, n_init=3, random_state=0).fit(X, data.y)
    display = GateEffectDisplay.from_estimator(est, X[["height", "age", "weight"]], ["weight"])
    straight = GateEffectDisplay.from_estimator(est, X, ["weight"])
    assert_array_equal(display.prob[0], straight.prob[0])
    assert straight.axes_[0].get_xlabel() == "weight"


@pytest.mark.parametrize(
    ("display", "args", "code", "facts"),
    [
        (GateEffectDisplay, {"features": ["z"]}, "feature_name", {"feature": "z"}),
        (GateEffectDisplay, {"features": [7]}, "feature_index", {"feature": 7}),
        (GateEffectDisplay, {"others": "max"}, "not_one_of", {"name": "others", "value": "max"}),
        (GateRegionDisplay, {"features": ["x0"]}, "two_features", {"value": ["x0"]}),
        (DensityDisplay, {"labels": ["a"]}, "lengths_differ", {"rows": 1, "others": 1500}),
    ],
)
def test_mistakes_are_named(est, data, display, args, code, facts):
    refused(code, ValueError, **facts).by(display.from_estimator, est, data.X, **args)


def test_no_model_no_rows_of_it_and_no_matplotlib_are_named(est, data, monkeypatch):
    draw = GateEffectDisplay.from_estimator
    refused("no_model_to_plot", TypeError, kind="str").by(draw, "x", data.X)
    refused("x_shape", ValueError, features=3).by(draw, est, data.X[:, :2])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused("no_matplotlib", ImportError).by(ConvergenceDisplay.from_fit, est)


# -- curves ----------------------------------------------------------------------------------------


def test_curves_are_drawn_with_their_bands_by_expert(rng):
    x, z = rng.uniform(0, 6, 400), rng.normal(size=400)
    rows = {"x": x, "z": z, "y": np.where(z > 0, np.sin(x), 3 - x) + rng.normal(0, 0.2, 400)}
    est = MoERegressor.from_formula("y ~ spline(x, 3) + spline(z, 3) | z", rows, 2, random_state=0)
    shown = CurveDisplay.from_inference(est.inference(), est.features_, names=["low", "high"])
    assert [ax.get_xlabel() for ax in shown.axes_] == ["x", "z"]
    for curves in shown.curves:
        for curve in curves:
            line = shown.lines_[curve.column, curve.expert, None]
            assert_array_equal(line.get_xydata(), np.column_stack([curve.x, curve.effect]))
            ends = shown.bands_[curve.column, curve.expert, None].get_paths()[0].get_extents()
            assert_allclose([ends.ymin, ends.ymax], [curve.low.min(), curve.high.max()])
    assert {text.get_text() for text in shown.axes_[-1].get_legend().get_texts()} == {"low", "high"}
    one = CurveDisplay.from_inference(est.inference(), est.features_, ["z"])
    assert len(one.axes_) == 1
    lines = CoefficientDisplay.from_inference(est.inference(), block="gate")
    assert lines.terms == ["z"]  # a slope there; in the experts all are curves


def test_curves_of_several_responses_differ_in_colour_or_dashes(rng):
    rows = {"x": rng.uniform(0, 6, 300), "z": rng.normal(size=300)}
    rows |= {"y": np.sin(rows["x"]) + 3 * (rows["z"] > 0) + rng.normal(0, 0.2, 300)}
    rows |= {"w": rng.normal(rows["x"], 0.3)}
    how = {"family": ["gaussian", "gaussian"], "random_state": 0}
    est = MoERegressor.from_formula("y, w ~ spline(x, 3) | z", rows, 2, **how)
    shown = CurveDisplay.from_inference(est.inference(), est.features_)
    drawn = {(line.get_color(), line.get_linestyle()) for line in shown.lines_.values()}
    assert len(shown.lines_) == len(drawn) == 4
