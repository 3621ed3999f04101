"""Forest plots show the numbers of the sites, in their order."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import differing_sites, how_they_differ, random_model
from refusals import refused
from scipy import stats

from otmoe.plot import ForestDisplay, SpreadDisplay
from otmoe.plot.base import PALETTE
from otmoe.plot.effects import ForestRow, aligned, digits_of, limits_of

matplotlib = pytest.importorskip("matplotlib")
WIDE = stats.norm.ppf(0.975)


@pytest.fixture(autouse=True)
def off_screen():
    from matplotlib import pyplot

    before = matplotlib.get_backend()
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


def made(n_sites, family="gaussian", n=150):
    rng = np.random.default_rng(0)
    model = random_model(rng, 2, 2, family=family)
    found = how_they_differ(model, differing_sites(rng, model, n_sites, n))
    sizes = rng.integers(50, 500, n_sites)
    effects = zip(found.sites, sizes, strict=True)
    return replace(found, sites=tuple(replace(s, n_samples=float(n)) for s, n in effects))


@pytest.fixture(scope="module")
def between():
    return made(8)


def words(display):
    """Draw to the end; return the names beside the axis, and the other texts."""
    display.figure_.canvas.draw()
    ax = display.ax_
    return [t.get_text() for t in ax.get_yticklabels()], [t.get_text() for t in ax.texts]


def test_marks_and_lines_are_those_of_the_sites(between):
    display = ForestDisplay.from_between(between, "x0", expert=1)
    j = [str(p) for p in between.parameters].index("expert 1: x0")
    low, high = display.ax_.get_xlim()
    for site in between.sites:
        assert_allclose(display.shrunk_[site.site].get_xdata(), [site.shrunk[j]])
        half = WIDE * site.shrunk_error[j]
        ends = site.shrunk[j] - half, site.shrunk[j] + half
        assert_allclose(display.shrunk_lines_[site.site].get_xdata(), ends)
        if np.isfinite(site.error[j]) and low < site.estimate[j] < high:
            mark = display.alone_[site.site]
            assert_allclose(mark.get_xdata(), [site.estimate[j]])
            assert mark.get_markerfacecolor() == "white"
        assert display.shrunk_[site.site].get_color() == PALETTE[1]
    what = between.coefficients()[j]
    x = display.diamond_.get_xy()[:-1, 0]
    assert_allclose(sorted(x), np.sort(what.mean + np.array([-1, 0, 0, 1]) * WIDE * what.se))
    new = display.bar_.get_x(), display.bar_.get_x() + display.bar_.get_width()
    assert_allclose(new, (what.low, what.high))
    assert display.ax_.get_xlabel() == "coefficient of x0, expert 1, 95% interval"


def test_marks_are_as_large_as_sites_have_rows(between):
    display = ForestDisplay.from_between(between)
    sizes = [display.shrunk_[site.site].get_markersize() for site in between.sites]
    rows = [site.n_samples for site in between.sites]
    assert np.array_equal(np.argsort(sizes), np.argsort(rows))


@pytest.mark.parametrize("order", ["estimate", "rows", "name"])
def test_sites_stand_in_the_order_that_was_asked_for(between, order):
    display = ForestDisplay.from_between(between, "intercept", expert=0, order=order)
    names, texts = words(display)
    j = [str(p) for p in between.parameters].index("expert 0: intercept")
    key = {
        "estimate": lambda site: site.shrunk[j],
        "rows": lambda site: -site.n_samples,
        "name": lambda site: site.site,
    }
    expected = [site.site for site in sorted(between.sites, key=key[order])]
    assert names[:-1] == [*expected, "mean over sites"]
    assert names[-1].startswith("new site (τ = ")
    places = [display.shrunk_[site].get_ydata()[0] for site in expected]
    assert np.all(np.diff(places) > 0)
    for site in between.sites:
        assert f"{site.n_samples:,.0f}" in texts
    bare = ForestDisplay.from_between(between, order=order).plot(numbers=False)
    assert words(bare)[1] == []


def test_of_many_sites_the_furthest_are_shown_and_the_others_counted():
    many = made(60, n=60)
    display = ForestDisplay.from_between(many, "intercept", expert=0, n_sites=20)
    j = [str(p) for p in many.parameters].index("expert 0: intercept")
    far = sorted(many.sites, key=lambda site: -abs(site.shrunk[j] - many.mean[j]))[:20]
    assert set(display.shrunk_) == {site.site for site in far}
    assert "40 sites closer to the mean" in words(display)[1]
    # the line of the others lies where the mean does
    place = next(t for t in display.ax_.texts if "closer" in t.get_text()).get_position()[1]
    for site in far:
        assert (display.shrunk_[site.site].get_ydata()[0] < place) == (
            site.shrunk[j] < many.mean[j]
        )
    last = ForestDisplay.from_between(many, n_sites=20, order="rows")
    texts = [t for t in last.ax_.texts if "closer" in t.get_text()]
    assert texts[0].get_position()[1] == 20
    assert len(ForestDisplay.from_between(many).rows) == 40


def test_a_site_that_knows_nothing_has_no_open_mark(between):
    j = 0
    blind = replace(between.sites[0], error=np.full(len(between.mean), np.inf))
    found = replace(between, sites=(blind, *between.sites[1:]))
    display = ForestDisplay.from_between(found, j)
    words(display)
    assert blind.site in display.shrunk_ and blind.site not in display.alone_
    assert blind.site not in display.alone_lines_


def test_a_site_far_away_is_an_arrow_and_does_not_push_the_others_aside():
    near = [ForestRow(f"site {m}", 100.0, 0.1 * m, 0.2, 0.05 * m, 0.1) for m in range(4)]
    far = ForestRow("far", 10.0, 1e6, 1e5, 0.2, 0.3)
    plain, wide = limits_of(near, [-1.0, 1.0], 0.95), limits_of([*near, far], [-1.0, 1.0], 0.95)
    assert plain[0] <= -1 and plain[1] >= 1
    assert wide[1] - wide[0] < 3 * (plain[1] - plain[0])


def test_numbers_stand_below_each_other():
    cells = aligned([(-0.004, (-10.5, 1.0)), (None, (2.0, 3.0))], 2)
    assert cells == ["0.00 [-10.50, 1.00]", "     [  2.00, 3.00]"]
    assert digits_of((0.0, 5.0)) == 2 and digits_of((0.0, 0.05)) == 4 and digits_of((0, 9e4)) == 0


def test_every_family_can_be_drawn(family):
    found = made(6, family, n=80)
    for j in (0, len(found.mean) - 1):
        words(ForestDisplay.from_between(found, j))
    words(SpreadDisplay.from_between(found))


def test_mistakes_are_named(between):
    draw = ForestDisplay.from_between
    refused("not_one_of", name="term").by(draw, between, "x9")
    refused("not_one_of", name="order", value="size").by(draw, between, order="size")
    refused("parameter_position").by(draw, between, 1000)
    refused("not_one_of", name="block").by(SpreadDisplay.from_between, between, block="all")


def test_given_axes_are_used(between):
    from matplotlib import pyplot

    figure, (a, b) = pyplot.subplots(1, 2)
    assert ForestDisplay.from_between(between, ax=a).figure_ is figure
    assert SpreadDisplay.from_between(between, ax=b).ax_ is b


@pytest.mark.parametrize("block", ["expert", "gate", "variance"])
def test_the_spread_has_a_bar_and_a_dot_for_each_site(between, block):
    display = SpreadDisplay.from_between(between, block=block)
    rows = [row for row in between.coefficients() if row.block == block]
    where = [j for j, p in enumerate(between.parameters) if p.block == block]
    assert len(display.bars_) == len(rows)
    for row, j in zip(rows, where, strict=True):
        bar = display.bars_[row.term, row.expert]
        assert_allclose([bar.get_x(), bar.get_width()], [row.low - row.mean, row.high - row.low])
        dots = display.clouds_[row.term, row.expert].get_xdata()
        assert_allclose(dots, [site.shrunk[j] - row.mean for site in between.sites])
    words(display)


def test_the_spread_shows_the_terms_in_which_sites_differ_most(between):
    display = SpreadDisplay.from_between(between, intercept=False, n_terms=1)
    rows = [row for row in between.coefficients() if row.block == "expert"]
    rows = [row for row in rows if row.term != "intercept"]
    best = max(rows, key=lambda row: row.tau / row.se)
    assert display.terms == [best.term] and display.left_out == 1
    assert display.ax_.get_title(loc="left") == "1 of 2 terms"
