"""What merging by votes would give, told beside the model that was merged."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

from otmoe import aggregate
from otmoe.aggregation.merge import merged
from otmoe.aggregation.robust import ROBUST
from studies.attacks import ATTACKS, quietly, study

LIARS = 3


@cache
def sent(attack=None):
    honest = study(11, 300)
    if attack is None:
        return list(honest.messages)
    return honest.attacked(ATTACKS[attack], LIARS, 11)


@cache
def result(attack=None):
    return quietly(sent(attack))


def of(found, method):
    return next(a for a in found.alternatives if a.method == method)


def test_the_merged_model_comes_first_with_what_its_sites_lose():
    found = result("flipped")
    first = found.alternatives[0]
    assert first.method == found.method
    assert_allclose(first.lost, found.lost)
    assert_allclose(first.typical, np.median([site.lost for site in found.sites]))
    assert [a.method for a in found.alternatives[1:]] == list(ROBUST)


@pytest.mark.parametrize("method", ["median", "trimmed", "krum", "geometric_median"])
def test_each_is_expected_to_lose_what_it_does_when_it_is_asked_for(method):
    asked, told = quietly(sent(), method=method), of(result(), method)
    lost = [site.lost for site in asked.sites]
    loose = 0.25 if method == "geometric_median" else 1e-9  # on a tenth of the covariates
    assert_allclose([told.lost, told.typical], [asked.lost, np.median(lost)], rtol=loose)
    assert asked.alternatives[0].method == method and len(asked.alternatives) == len(ROBUST)


@pytest.mark.parametrize("attack", ["flipped", "shift by 1 sd"])
def test_at_the_median_site_votes_lose_less_where_some_lie(attack):
    taken = result(attack).alternatives[0].typical
    for method in ("median", "geometric_median"):
        assert of(result(attack), method).typical < 0.6 * taken


def test_copies_count_once():
    found = quietly([*study(11, 300).attacked(ATTACKS["copies to the 9th digit"], 6, 11)])
    honest = [site.lost for site in found.sites[6:]]
    median = of(found, "median").typical
    assert median < np.median(honest)  # five votes, of which one lies


def test_few_sites_and_sites_that_nobody_screened_have_none():
    assert quietly(sent()[:2]).alternatives == ()
    assert merged(sent(), 200, None, "auto").alternatives == ()


def test_the_file_keeps_them(tmp_path):
    found = result("flipped")
    document = found.document()
    assert [a["method"] for a in document["alternatives"]] == [a.method for a in found.alternatives]
    found.save(tmp_path / "model.json")  # checks what it writes
    huge = quietly(sent("coefficients x 1e25"))
    assert huge.document()["alternatives"][1]["lost"] == 1e30  # no file holds more
    assert "alternatives" not in aggregate(sent()[:2]).document()
