"""How sites differ, in words and tables: the numbers are those of the value, in familiar places."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import differing_sites, how_they_differ, random_model
from refusals import refused
from scipy import optimize, stats

from otmoe.inference.between import Between
from otmoe.inference.effects import SiteEffect, Spread, positions
from otmoe.inference.parameters import parameters
from otmoe.inference.readout import number
from otmoe.inference.spread import evidence
from otmoe.likelihood.answers import site_information
from otmoe.likelihood.predictors import change_of_scale
from otmoe.likelihood.prior import BLOCKS, Prior, blocks_of, spread_factor
from otmoe.likelihood.rows import Scaling
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice


def tiny(**changes):
    """Return three sites that differ in the intercept, by hand."""
    model = MoE(
        SoftmaxGate(np.zeros((1, 2))),
        GaussianExperts(np.array([[1.0, -2.0]]), np.array([1.0])),
        ("age",),
    )
    prior = Prior(model, Scaling.of(np.array([[-1.0], [1.0]])), {BLOCKS[2]: 0.5}, 1.25, 1250.0, 3)
    spreads = (
        Spread(BLOCKS[2], 0.5, 0.2, np.inf, 20.0, 2.0, 4.5e-5, 1, 3),
        Spread(BLOCKS[3], 0.0, 0.0, 0.1, 1.0, 2.0, 0.6065, 1, 3),
        Spread(BLOCKS[4], 0.0, 0.0, 0.0, np.nan, 0.0, np.nan, 1, 3),
    )
    sites = tuple(
        SiteEffect(
            name,
            n,
            np.array([shift, -2.0, 0.0]),
            np.array([0.1, 0.2, np.inf]),
            np.array([0.9 * shift, -2.0, 0.0]),
            np.array([0.09, 0.1, 0.1]),
            q,
            p,
        )
        for name, n, shift, q, p in (
            ("Brest", 250.0, 1.1, 2.5, 0.4753),
            ("Lyon <b>", 900.0, 0.4, 5.0, 0.0312),
            ("Metz", 100.0, 1.6, 12.5, 0.0001),
        )
    )
    found = Between(
        prior,
        model,
        spreads,
        Spread("all", np.nan, np.nan, np.nan, 20.0, 6.0, 0.0028, 3, 3),
        sites,
        np.array([1.0, -2.0, 12345.678]),
        np.array([0.3, 0.1, 0.0004]),
        np.array([0.4, 0.0, 0.0]),
        (Notice("few", "few sites."),),
    )
    return replace(found, **changes)


def line(text, start, after=""):
    """Return the cells of the line that begins with a name, below a heading."""
    rest = str(text).partition(after)[2] if after else str(text)
    return next(row for row in rest.splitlines() if row.startswith(start))[len(start) :].split()


def mixture_quantile(scales):
    """Return the 97.5 % quantile of Student variables with two degrees of freedom."""
    weights = 0.185, 0.63, 0.185

    def above(q):
        parts = zip(weights, scales, strict=True)
        return sum(w * stats.t.cdf(q / s, 2) for w, s in parts) - 0.975

    return optimize.brentq(above, 0, 100)


# -- text ------------------------------------------------------------------------------------------


def notes(found):
    return " ".join(str(found.summary()).partition("[1]")[2].split())


def test_a_mean_that_is_the_common_model_is_called_so():
    found = tiny()
    assert "mean: the common model" in notes(found)
    vector = found.common.to_vector() + np.array([0.01, 0, 0])
    moved = replace(found.prior, centre=found.common.with_vector(vector))
    assert "mean: the common model" not in notes(tiny(prior=moved))


def test_a_rejected_block_without_spread_is_explained():
    found = tiny()
    assert "Q rejects" not in notes(found)
    slopes = replace(found.spreads[1], q=30.0, p_value=3e-7)
    odd = tiny(spreads=(found.spreads[0], slopes, found.spreads[2]))
    assert "In expert slopes, Q rejects agreement although tau is 0" in notes(odd)


def test_the_short_form_has_the_deviations():
    short = "Between(3 sites; tau: expert intercepts 0.5, expert slopes 0, log-variances 0;"
    assert repr(tiny()) == f"{short} strength 1)"


def test_the_summary_has_the_numbers_in_their_places():
    text = tiny().summary()
    assert text.splitlines()[0].strip() == "How 3 sites differ: 1 gaussian expert"
    assert text.splitlines()[2] == "sites: 3   rows: 1,250   parameters: 3   design effect: 1.25"
    assert line(text, "expert intercepts") == "0.5000 0.2000 ∞ 20.0 2 <0.001 90% 1".split()
    assert line(text, "expert slopes") == "0.0000 0.0000 0.1000 1.0 2 0.607 0% 1".split()
    assert line(text, "log-variances") == "0.0000 0.0000 0.0000 1".split()  # no test
    assert line(text, "all together") == "20.0 6 0.003 70% 3".split()
    # the deviation is 0.4, and from 0.2 to the largest that is sought, 10
    wide = mixture_quantile(np.hypot([0.2, 0.4, 10.0], 0.3))
    low, high = f"{1 - wide:.4f}", f"{1 + wide:.4f}"
    assert line(text, "intercept", "Expert 0") == ["1.0000", "0.3000", "0.4000", low, high]
    assert line(text, "age", "Expert 0")[:3] == ["-2.0000", "0.1000", "0.0000"]
    assert line(text, "expert 0", "Logarithm")[:3] == ["12345.7", "0.0004", "0.0000"]
    assert "[4] few sites." in text
    assert repr(text) == str(text)


def test_the_sites_with_the_largest_parts_of_q_come_first():
    text = tiny().summary(n_sites=2)
    below = text.partition("Sites that differ most, 2 of 3")[2]
    assert line(below, "Metz") == ["100", "12.5", "62%", "<0.001"]
    assert line(below, "Lyon <b>") == ["900", "5.0", "25%", "0.031"]
    assert below.index("Metz") < below.index("Lyon") and "Brest" not in below
    assert "Brest" in tiny().summary()


def test_lines_of_a_summary_are_as_wide_as_its_rules(family):
    rng = np.random.default_rng(1)
    model = random_model(rng, 2, 2, family=family)
    text = how_they_differ(model, differing_sites(rng, model)).summary(0.8)
    width = text.splitlines()[1].count("=")
    assert max(map(len, text.splitlines())) == width
    assert "new [0.1" in text and "80% prediction interval" in text


def test_a_file_may_leave_the_sites_out():
    text = tiny(sites=()).summary()
    assert "How 3 sites differ" in text and "Sites that differ most" not in text


def test_a_notebook_shows_tables_and_names_stay_text():
    found = tiny()
    html = found._repr_html_()
    assert html == found.summary()._repr_html_()
    assert html.count("<table>") == 4 and "Lyon &lt;b&gt;" in html and "<b>Lyon" not in html
    for cell in ("&lt;0.001", "62%", "∞", "0.5000"):
        assert f"<td>{cell}</td>" in html


@pytest.mark.parametrize("level", [0.0, 1.0, 2.0])
def test_a_level_is_a_share(level):
    refused("not_a_level", value=level).by(tiny().summary, level)
    refused("not_a_level", value=level).by(tiny().site_table, level=level)


# -- tables ----------------------------------------------------------------------------------------


def test_tables_have_the_same_numbers():
    pytest.importorskip("pandas")
    found = tiny()
    table = found.table(0.9)
    low, high = found.prediction_interval(0.9)
    assert_allclose(
        table[["mean", "se", "tau"]], np.transpose([found.mean, found.mean_error, found.deviation])
    )
    assert_allclose(table[["low", "high"]], np.transpose([low, high]))
    assert list(table["term"]) == ["intercept", "age", "variance"]
    blocks = found.block_table()
    assert list(blocks["block"]) == [*BLOCKS[2:], "all"]
    assert_allclose(blocks["i2"], [0.9, 0.0, 0.0, 0.7])
    sites = found.site_table()
    assert len(sites) == 3 * 3
    one = found.site_table("intercept")
    assert list(one["site"]) == ["Brest", "Lyon <b>", "Metz"] and list(one["q"]) == [2.5, 5.0, 12.5]
    assert_allclose(one["high"] - one["estimate"], 1.959964 * 0.1, rtol=1e-6)
    assert_allclose(one["shrunk"] - one["shrunk_low"], 1.959964 * 0.09, rtol=1e-6)
    nothing = found.site_table("variance")
    assert nothing["estimate"].isna().all() and np.all(np.isinf(nothing["se"]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (-0.5, "-0.5000"),
        (4e-5, "4e-05"),
        (12345.678, "12345.7"),
        (1.5e7, "1.5e+07"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_what_is_asked_for_is_found_or_refused():
    about = parameters(random_model(np.random.default_rng(0), 2, 2))
    assert [about[j].block for j in positions(about, "x0")] == ["gate", "expert", "expert"]
    assert positions(about, "x0", expert=1) == [7]
    assert positions(about, -1) == [len(about) - 1] and positions(about, 3) == [3]
    refused("not_one_of", name="term").by(positions, about, "x9")
    refused("not_one_of", name="expert", choices=[0]).by(positions, about, block="gate", expert=1)
    refused("parameter_position", position=99).by(positions, about, 99)


def test_no_pandas_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for table in ("table", "block_table", "site_table"):
        refused("no_frame", ImportError).by(getattr(tiny(), table))


# -- errors after shrinkage ------------------------------------------------------------------------


@pytest.mark.parametrize("restrict", ["auto", "intercepts"])
def test_errors_after_shrinkage_are_those_of_the_mixed_model(restrict):
    rng = np.random.default_rng(3)
    model = random_model(rng, 2, 2)
    sites = differing_sites(rng, model, n_sites=7, n=300)
    found = how_they_differ(model, sites, restrict=restrict)
    pooled, scaling = found.prior.scaling, Scaling.of(next(iter(sites.values())).X)
    replies = [site_information(s, model, scaling, rows, scatter=True) for s, rows in sites.items()]
    here = pooled.from_user(model)
    V = evidence(here, replies, change_of_scale(here, scaling, pooled)).V
    L = (
        spread_factor(pooled.from_user(found.prior.centre))
        * np.array(list(found.prior.tau.values()))[blocks_of(here)]
    )
    M, P = len(V), here.n_parameters
    # Henderson's equations of the mean and of every site's place about it
    A = np.zeros((P * (M + 1), P * (M + 1)))
    A[:P, :P] = V.sum(axis=0)
    for m in range(M):
        at = slice(P * (m + 1), P * (m + 2))
        A[:P, at], A[at, :P], A[at, at] = V[m] @ L, L.T @ V[m], L.T @ V[m] @ L + np.eye(P)
    C = np.linalg.inv(A)
    scale = np.append(1.0, pooled.x_scale)  # of a slope; one expert of two is the gate's reference
    unit = np.concatenate([np.tile(scale, 3), np.ones(2)])
    for m, site in enumerate(found.sites):
        pick = np.zeros((P, P * (M + 1)))
        pick[:, :P], pick[:, P * (m + 1) : P * (m + 2)] = np.eye(P), L
        error = np.sqrt(np.diag(pick @ C @ pick.T))
        # the spread is that at the mean of the sites, and not at the common model
        assert_allclose(site.shrunk_error * unit, error, rtol=2e-2)
        assert np.all(site.shrunk_error <= site.error * (1 + 1e-6))
