"""Sites that stand out: who is flagged, who is not, and what is done about it."""

from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import message, messages, random_model
from refusals import refused

from otmoe import LocalModel, MoE, aggregate, simulate
from otmoe.aggregation import screen
from otmoe.aggregation.places import Places
from otmoe.likelihood.fit import em
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.text.notices import OtmoeWarning
from studies.attacks import moved, study

SITES = 10
LOG_100 = np.log(100) * np.array([1.0, 0.0, 0.0, 0.0])  # of a log-mean, on the intercept
ROWS = {"gaussian": 300, "logistic": 2000, "multinomial": 2000, "poisson": 300}
FLIPPED = {
    "gaussian": lambda y: -y,
    "logistic": lambda y: 1 - y,
    "multinomial": lambda y: (y + 1) % 3,
}


def flagged(verdicts):
    return {verdict.site for verdict in verdicts if verdict.reasons}


# -- ten sites, two of them garbage ------------------------------------------------------------


@cache
def drawn(family, seed):
    return simulate(SITES * ROWS[family], 2, 3, family=family, softness=0.5, random_state=seed)


def part(family, m):
    return slice(m * ROWS[family], (m + 1) * ROWS[family])


def fitted(X, y, start, name="a"):
    """Return the local fit that starts at a model: a search would take most of the time."""
    fit = em(X, y, start.n_experts, family=start.experts.family, init=start, n_classes=3)
    return LocalModel.from_fit(fit, name)


@cache
def clean(family, seed):
    data = drawn(family, seed)
    cuts = [part(family, m) for m in range(SITES)]
    return [fitted(data.X[s], data.y[s], data.truth, f"site {m}") for m, s in enumerate(cuts)]


def flipped_experts(experts):
    """Return the experts for flipped y."""
    if experts.family != "multinomial":
        return replace(experts, coef=-experts.coef)
    coef = np.roll(experts.coef, 1, axis=1)
    return replace(experts, coef=coef - coef[:, -1:])


def garbage(kind, family, seed, m):
    """Return what site m sends after something happened to it."""
    data, rows, sent = drawn(family, seed), part(family, m), clean(family, seed)[m]
    X, y, truth = data.X[rows], data.y[rows], data.truth
    if kind == "random":
        other = simulate(100, 2, 3, family=family, softness=0.5, random_state=[9, seed, m])
        return replace(sent, model=other.truth)
    if kind == "times 100":
        start = truth.rescaled(np.eye(4), scale=100.0)
        if family == "poisson":
            coef = truth.experts.coef + LOG_100
            start = replace(truth, experts=replace(truth.experts, coef=coef))
        return fitted(X, 100 * y, start, sent.site)
    start = replace(truth, experts=flipped_experts(truth.experts))
    return fitted(X, FLIPPED[family](y), start, sent.site)


def with_garbage(kind, family, seed):
    """Return ten sites and the names of the two that went wrong."""
    wrong = np.random.default_rng(seed).choice(SITES, 2, replace=False)
    sites = [
        garbage(kind, family, seed, m) if m in wrong else sent
        for m, sent in enumerate(clean(family, seed))
    ]
    return sites, {sites[m].site for m in wrong}


def points(family, seed):
    return drawn(family, seed).X[:: SITES * ROWS[family] // 500]


def twenty_seeds(*cases):
    """Return the cases with twenty seeds each; those of classes are slow."""
    return [
        pytest.param(*case, seed, marks=pytest.mark.slow if slow and seed > 2 else ())
        for case in cases
        for slow in ["logistic" in case]
        for seed in range(20)
    ]


@pytest.mark.parametrize(("family", "seed"), twenty_seeds(["gaussian"], ["logistic"]))
def test_nobody_stands_out_among_clean_sites(family, seed):
    assert flagged(screen(clean(family, seed), points(family, seed))) == set()


@pytest.mark.parametrize(
    ("kind", "family", "seed"),
    twenty_seeds(
        ["random", "gaussian"],
        ["times 100", "gaussian"],
        ["flipped", "gaussian"],
        ["flipped", "logistic"],
    ),
)
def test_exactly_the_two_garbage_sites_of_ten_stand_out(kind, family, seed):
    sites, wrong = with_garbage(kind, family, seed)
    assert flagged(screen(sites, points(family, seed))) == wrong


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("kind", "family"), [("flipped", "multinomial"), ("times 100", "poisson")])
def test_other_families_too(kind, family, seed):
    X = points(family, seed)
    assert flagged(screen(clean(family, seed), X)) == set()
    sites, wrong = with_garbage(kind, family, seed)
    assert flagged(screen(sites, X)) == wrong


@pytest.mark.parametrize("seed", range(4))
def test_smaller_units_stand_out_though_they_are_more_likely(seed):
    sites = list(clean("gaussian", seed))
    model = sites[4].model
    value = sites[4].log_likelihood + sites[4].n_samples * np.log(100)
    model = replace(model, experts=model.experts.rescaled(np.eye(4), scale=0.01))
    sites[4] = replace(sites[4], model=model, log_likelihood=value)
    found = screen(sites, points("gaussian", seed))
    assert flagged(found) == {"site 4"}
    assert found[4].likelihood_deviation > 5 and len(found[4].reasons) == 1


# -- honest differences ------------------------------------------------------------------------


def cut(data, sizes):
    """Return consecutive rows of these numbers."""
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [(4000,) * 4 + (60, 100), (4000,) + (60,) * 5])
def test_neither_small_nor_large_sites_stand_out(seed, sizes):
    data = simulate(sum(sizes), 2, 3, softness=0.5, random_state=seed)
    cuts = enumerate(cut(data, sizes))
    sites = [fitted(data.X[s], data.y[s], data.truth, f"site {m}") for m, s in cuts]
    found = screen(sites, data.X)
    assert flagged(found) == set()
    assert found[4].disagreement > 5 * found[0].disagreement or len(set(sizes[1:])) == 1


@pytest.mark.parametrize("seed", range(5))
def test_more_experts_than_the_others_are_no_reason(seed):
    data = simulate(5 * 1000, 2, 3, softness=0.5, random_state=seed)
    sites = []
    for m, rows in enumerate(cut(data, [1000] * 5)):
        start = data.truth
        if m == 3:  # each expert twice, the copies a little apart
            start = start.take([0, 1, 0, 1])
            apart = 0.1 * np.cos(np.arange(start.n_parameters))
            start = start.with_vector(start.to_vector() + apart)
        sites.append(fitted(data.X[rows], data.y[rows], start, f"site {m}"))
    assert sites[3].model.n_experts == 4
    assert flagged(screen(sites, data.X)) == set()


def test_noise_of_a_half_more_is_no_reason_and_a_hundred_times_is():
    truth = drawn("gaussian", 0).truth
    rng = np.random.default_rng(0)
    X = drawn("gaussian", 0).X

    def site(m, noise):
        model = replace(truth, experts=replace(truth.experts, var=noise**2 * truth.experts.var))
        y = model.sample(X, rng)[0]
        value = float(model.log_density(X, y).sum())
        return message(model, f"site {m}", float(len(X)), log_likelihood=value)

    levels = [1.0, 1.1, 0.8, 1.2, 0.7, 1.5]
    sites = [site(m, noise) for m, noise in enumerate(levels)]
    assert flagged(screen(sites, X)) == set()
    sites[2] = site(2, 100.0)
    found = screen(sites, X)
    assert flagged(found) == {"site 2"}
    assert len(found[2].reasons) == 2  # by both rules


def test_a_site_that_is_as_far_from_the_others_as_they_are_does_not_stand_out():
    """Few rows excuse the others' distances, and many do not excuse the same distance."""
    truth, rng = simulate(500, 2, 3, softness=0.5, random_state=98), np.random.default_rng(98)
    experts, sent = truth.truth.experts, []
    for m, n in enumerate([1401, 8742, 12046, 196, 35810, 6627, 147]):
        size = (0.2 + n**-0.5) * np.sqrt(experts.var)[:, None]
        other = replace(experts, coef=experts.coef + size * rng.normal(size=experts.coef.shape))
        model = replace(truth.truth, experts=other)
        sent.append(LocalModel(f"site {m}", model, float(n), -1.5 * n, True, "drawn"))
    found = screen(sent, truth.X)
    assert max(verdict.deviation for verdict in found) > 5
    assert flagged(found) == set()


@pytest.mark.parametrize(("seed", "deviations"), [(1, 18), (21, 12), (39, 18)])
def test_covariates_that_one_site_claims_get_nobody_else_excluded(seed, deviations):
    """Far out, where nobody has rows but one says so, slopes of others part by chance."""
    first, *others = study(seed).messages
    sent = [moved(first, deviations), *others]
    assert flagged(screen(sent)) == set()
    with patch.object(Places, "is_among_most", return_value=True):
        assert flagged(screen(sent)) > set()


@pytest.mark.parametrize("agrees", [True, False])
def test_a_site_that_extrapolates_is_not_said_to_be_wrong(agrees):
    """Its slopes are its own; where its rows lie, it predicts as the others do, or does not."""
    data = simulate(8 * 500, 1, 2, random_state=0)
    sent = []
    for m in range(8):
        X, y = data.X[500 * m : 500 * m + 500], data.y[500 * m : 500 * m + 500]
        sent.append(fitted(X, y, data.truth, f"site {m}").with_support(X, sketch=True))
    place, slope = np.array([0.5, 1.0]), np.array([2.0, -2.0])
    narrow = place + 0.01 * np.random.default_rng(0).normal(size=(500, 2))
    experts = sent[0].model.experts
    coef = experts.coef + np.array([-slope @ place + (0 if agrees else 4), *slope])
    model = replace(sent[0].model, experts=replace(experts, coef=coef))
    lone = replace(sent[0], model=model, sketch=None).with_support(narrow, sketch=True)
    found = screen([lone, *sent[1:]])
    assert flagged(found) == {"site 0"}
    code = "extrapolates" if agrees else "predicts_otherwise"
    assert found[0].reasons[0].code == code


def test_a_site_is_judged_where_it_has_a_say(rng):
    # Site 0 never saw the second feature vary: it knows nothing of its coefficient.
    truth = random_model(rng, 2, 2)
    truth = replace(truth, experts=replace(truth.experts, coef=3 * truth.experts.coef))
    X = rng.normal(size=(400, 2))
    X[:200, 1] = 0.0
    blind = truth.rescaled(np.diag([1.0, 1.0, 0.0]))
    sites = [
        replace(sent, model=truth.with_vector(truth.to_vector() + 1e-4 * m))
        for m, sent in enumerate(messages([truth] * 5, [1e6] * 5))
    ]
    seeing = screen([replace(sites[0], model=blind), *sites[1:]], X)
    assert flagged(seeing) == {"site 0"}
    names = truth.terms[1:]
    told = screen([replace(sites[0], model=blind, constant={names[1]: 0.0}), *sites[1:]], X)
    assert flagged(told) == set()
    assert told[0].disagreement < 1e-6 < 1e-3 < seeing[0].disagreement


def test_nothing_is_said_of_a_site_that_shares_no_point(rng):
    truth = random_model(rng, 2, 2)
    X = rng.normal(size=(400, 2))
    sites = messages([truth.with_vector(truth.to_vector() + 1e-3 * m) for m in range(4)], [1e3] * 4)
    sites[0] = replace(sites[0], constant={truth.terms[1]: 7.0})
    found = screen(sites, X)
    assert np.isnan([found[0].disagreement, found[0].deviation]).all()
    assert not np.isnan([verdict.deviation for verdict in found[1:]]).any()


# -- few sites ---------------------------------------------------------------------------------


def test_of_two_sites_nobody_can_be_said_to_stand_out():
    sites, wrong = with_garbage("times 100", "gaussian", 0)
    X = points("gaussian", 0)
    bad = next(site for site in sites if site.site in wrong)
    good = [site for site in sites if site.site not in wrong]
    alone = screen([bad], X)
    assert np.isnan([alone[0].disagreement, alone[0].deviation]).all()
    two = screen([bad, good[0]], X)
    assert flagged(alone) == flagged(two) == set()
    assert two[0].disagreement > 100  # the size is known all the same
    assert_allclose(two[0].disagreement, two[1].disagreement, rtol=1e-12)
    assert flagged(screen([bad, *good[:2]], X)) == {bad.site}


@pytest.mark.parametrize("n_sites", [1, 2])
def test_nobody_is_left_out_of_two(n_sites):
    sites, _ = with_garbage("times 100", "gaussian", 0)
    with pytest.warns(OtmoeWarning) as caught:
        result = aggregate(sites[:n_sites], points("gaussian", 0), outliers="exclude")
    assert "nobody_excluded" in caught[0].message.codes
    assert len(result.sites) == n_sites and result.left_out == {}


def test_two_camps_of_equal_size_do_not_accuse_each_other():
    sites = clean("gaussian", 0)[:4]
    odd = garbage("random", "gaussian", 0, 5)
    moved = [odd.model.with_vector(odd.model.to_vector() + 1e-3 * m) for m in range(4)]
    other = [replace(odd, site=f"other {m}", model=model) for m, model in enumerate(moved)]
    assert flagged(screen(sites + other, points("gaussian", 0))) == set()
    fewer = flagged(screen(sites + other[:3], points("gaussian", 0)))
    assert fewer == {sent.site for sent in other[:3]}


# -- laws --------------------------------------------------------------------------------------


def test_the_order_of_the_sites_does_not_matter(rng):
    sites, _ = with_garbage("flipped", "gaussian", 1)
    X = points("gaussian", 1)
    found = {verdict.site: verdict for verdict in screen(sites, X)}
    again = screen([sites[m] for m in rng.permutation(SITES)], X)
    assert all(verdict == found[verdict.site] for verdict in again)


def test_a_site_in_two_halves_is_one_site():
    sites, wrong = with_garbage("flipped", "gaussian", 1)
    X = points("gaussian", 1)
    found = {verdict.site: verdict for verdict in screen(sites, X)}
    name = next(iter(wrong))
    whole = next(sent for sent in sites if sent.site == name)
    half = replace(whole, n_samples=whole.n_samples / 2, log_likelihood=whole.log_likelihood / 2)
    halves = [half, replace(half, site="the other half")]
    again = screen([*(s for s in sites if s.site != name), *halves], X)
    for verdict in again:
        expected = found[name if verdict.site == "the other half" else verdict.site]
        assert replace(verdict, site=expected.site) == expected


# -- aggregate ---------------------------------------------------------------------------------


def test_sites_that_stand_out_are_named_and_stay():
    sites, wrong = with_garbage("times 100", "gaussian", 2)
    X = points("gaussian", 2)
    with pytest.warns(OtmoeWarning) as caught:
        result = aggregate(sites, X, method="reduction")
    told, differ = result.warnings
    assert [given.message.notices for given in caught] == [(told, differ)]
    assert differ.code == "sites_differ" and set(wrong) <= set(differ.sites)
    assert told.code == "sites_stand_out" and result.left_out == {}
    assert (told.facts["count"], told.facts["total"]) == (2, 10)
    assert len(result.sites) == SITES and result.messages == tuple(sites)
    verdicts = screen(sites, X)
    for record, verdict in zip(result.sites, verdicts, strict=True):
        assert record.flagged == verdict.reasons
        assert record.disagreement == verdict.disagreement
        assert bool(record.flagged) == (record.site in wrong) == (record.site in told.sites)
        if record.flagged:
            assert record.flagged[0].code == "predicts_otherwise"
            assert record.flagged[0].facts["nats"] == record.disagreement
            assert str(record.flagged[0]) in told.facts["reasons"]


@pytest.mark.parametrize("weight", ["none", "list", "array", "mapping"])
def test_without_them_the_aggregate_is_that_of_the_others(weight):
    sites, wrong = with_garbage("random", "gaussian", 3)
    X = points("gaussian", 3)
    others = [sent for sent in sites if sent.site not in wrong]
    by_name = {sent.site: 1.0 + m / 7 for m, sent in enumerate(sites)}

    def given(sent):
        if weight == "mapping":
            return {s.site: by_name[s.site] for s in sent}
        values = [by_name[s.site] for s in sent]
        return {"none": None, "list": values, "array": np.array(values)}[weight]

    with pytest.warns(OtmoeWarning) as caught:
        result = aggregate(sites, X, site_weight=given(sites), outliers="exclude")
    (told,) = caught[0].message.notices
    assert told.code == "sites_excluded" and set(told.sites) == wrong
    assert (told.facts["count"], told.facts["total"]) == (2, 10)
    expected = aggregate(others, X, site_weight=given(others))
    assert_array_equal(result.model.to_vector(), expected.model.to_vector())
    assert_array_equal(result.trace, expected.trace)
    assert result.messages == expected.messages == tuple(others)
    assert set(result.left_out) == wrong
    for verdict in screen(sites, X):
        if verdict.site in wrong:
            assert verdict.reasons[0].code == "predicts_otherwise"
            assert str(verdict.reasons[0]) in result.left_out[verdict.site].facts["reasons"]
    assert [s.site for s in result.sites] == [s.site for s in others]
    assert [s.weight for s in result.sites] == [s.weight for s in expected.sites]
    assert not any(s.flagged for s in result.sites)
    assert all(s.disagreement < 1 for s in result.sites)


def test_clean_sites_are_aggregated_as_ever_and_an_unknown_wish_is_refused():
    sites, X = clean("gaussian", 4), points("gaussian", 4)
    flag, exclude = (aggregate(sites, X, outliers=what) for what in ("flag", "exclude"))
    assert_array_equal(flag.model.to_vector(), exclude.model.to_vector())
    assert flag.warnings == exclude.warnings == () and exclude.left_out == {}
    refused("not_one_of", name="outliers", value="drop").by(aggregate, sites, X, outliers="drop")


def test_somebody_stays_when_each_rule_finds_others(rng):
    X = rng.normal(size=(200, 1))
    gate = SoftmaxGate(np.zeros((1, 2)))

    def site(name, mean, log_likelihood):
        model = MoE(gate, GaussianExperts(np.array([[mean, 0.0]]), np.ones(1)))
        return message(model, name, 1000.0, log_likelihood=log_likelihood)

    sites = [site("a", 0.0, -1e5), site("b", 0.01, 0.0), site("c", 20.0, 0.0)]
    with pytest.warns(OtmoeWarning) as caught:
        result = aggregate(sites, X, outliers="exclude")
    (told,) = caught[0].message.notices
    assert (told.code, told.sites) == ("sites_excluded", ("a", "c"))
    assert set(result.left_out) == {"a", "c"} and len(result.sites) == 1


def test_a_site_without_weight_is_not_looked_at():
    sites, wrong = with_garbage("times 100", "gaussian", 2)
    weight = {sent.site: 0.0 if sent.site in wrong else 1.0 for sent in sites}
    result = aggregate(sites, points("gaussian", 2), site_weight=weight)
    for record in result.sites:
        assert np.isnan(record.disagreement) == (record.site in wrong)
        assert record.flagged == ()


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_predictions_beyond_all_numbers_stand_out(family):
    sites = list(clean(family, 0))
    model = sites[3].model
    experts = replace(model.experts, coef=1e28 * model.experts.coef)
    gate = replace(model.gate, coef=1e28 * model.gate.coef)
    sites[3] = replace(sites[3], model=replace(model, experts=experts, gate=gate))
    found = screen(sites, points(family, 0))
    assert flagged(found) == {"site 3"}
    assert np.isfinite([verdict.deviation for verdict in found]).all()
