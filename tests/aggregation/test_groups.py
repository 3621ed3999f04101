"""Groups of sites merged first, and then the groups."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from refusals import refused

from otmoe import LocalModel, MoE, aggregate, simulate
from otmoe.aggregation import groups
from otmoe.aggregation.merge import merged
from otmoe.aggregation.support import Support
from otmoe.model.gate import SoftmaxGate
from otmoe.text.errors import MessageError

ROWS = 400.0
DATA = simulate(900, 2, 3, softness=0.6, random_state=0)
X = DATA.X


def site(m, coef=None, rows=ROWS, truth=DATA.truth):
    """Return a message whose model is as far from the truth as chance has it."""
    rng = np.random.default_rng(m)
    experts, gate = truth.experts, truth.gate.coef
    sd = np.sqrt(experts.var * 2 / rows)[:, None]
    moved = experts.coef + sd * rng.normal(size=experts.coef.shape) if coef is None else coef
    gate = gate + rng.normal(0, np.sqrt(8 / rows), gate.shape)
    model = MoE(SoftmaxGate(gate - gate[-1]), replace(experts, coef=moved))
    entropy = 0.5 * np.log(2 * np.pi * np.e * float(experts.var.mean()))
    return LocalModel(f"site {m}", model, rows, -entropy * rows, True, "drawn, not fitted")


@pytest.fixture(scope="module")
def sites():
    return [site(m) for m in range(60)]


def quietly(messages, support=X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return aggregate(messages, support, **options)


def distance(one, other):
    return np.abs(one.model.to_vector() - other.model.to_vector()).max()


@pytest.mark.parametrize("method", ["reduction", "kl", "auto", "median"])
def test_groups_end_where_all_sites_at_once_do(sites, method):
    flat = quietly(sites, method=method)
    found = quietly(sites, method=method, group_size=12)
    own = np.mean([np.abs(m.model.to_vector() - flat.model.to_vector()).max() for m in sites])
    assert distance(found, flat) < 0.2 * own
    assert [record.site for record in found.sites] == [f"group {g}" for g in range(1, 6)]
    members = [name for group in found.groups.values() for name in group]
    assert sorted(members) == sorted(m.site for m in sites)
    assert sum(record.n_samples for record in found.sites) == 60 * ROWS
    assert found.status.code == "in_groups" and found.status.facts["count"] == 60


def test_the_order_of_sites_does_not_matter_and_the_seed_does(sites):
    one, other = (quietly(s, method="reduction", group_size=20) for s in (sites, sites[::-1]))
    assert distance(one, other) == 0
    assert distance(one, quietly(sites, method="reduction", group_size=20, random_state=1)) > 0


def test_an_executor_and_files_change_nothing(sites, tmp_path):
    flat = quietly(sites, method="reduction", group_size=20)
    with ThreadPoolExecutor(2) as executor:
        there = quietly(sites, method="reduction", group_size=20, executor=executor)
    assert distance(flat, there) == 0
    paths = [tmp_path / f"{m.site}.json" for m in sites]
    for path, message in zip(paths, sites, strict=True):
        message.save(path)
    assert (
        distance(
            quietly(paths, method="reduction", group_size=99), quietly(sites, method="reduction")
        )
        == 0
    )
    read = quietly(paths, method="reduction", group_size=20)
    assert distance(read, flat) < 0.05
    paths[7].write_text("{")
    with pytest.raises(MessageError, match="site 7"):
        quietly(paths, group_size=20)


def test_at_most_one_group_is_in_memory(sites, tmp_path, monkeypatch):
    paths = [tmp_path / f"{m.site}.json" for m in sites]
    for path, message in zip(paths, sites, strict=True):
        message.save(path)
    loads, most, held = LocalModel.load.__func__, [], []

    def run(tasks):
        for task in tasks:
            held.clear()
            yield groups.merge_group(task)
            most.append(len(held))

    def load(cls, *args):
        held.append(1)
        return loads(cls, *args)

    monkeypatch.setattr(LocalModel, "load", classmethod(load))
    merged(paths, X, None, "reduction", group_size=15, run=run)
    assert most == [15] * 4


@pytest.mark.parametrize("given", ["rows", "sequence", "mapping"])
def test_rows_and_weights_count_as_they_do_at_once(sites, given):
    """A third of the sites differ from the others, and count ten times as much."""
    weight = np.where(np.arange(60) < 20, 10.0, 1.0)
    moved = DATA.truth.experts.coef + 0.3
    apart = [site(m, coef=moved) if m < 20 else s for m, s in enumerate(sites)]
    if given == "rows":
        how = {}
        apart = [
            replace(m, n_samples=w * ROWS, log_likelihood=w * m.log_likelihood)
            for m, w in zip(apart, weight, strict=True)
        ]
    else:
        how = {"site_weight": weight}
        if given == "mapping":
            how = {"site_weight": {m.site: w for m, w in zip(apart, weight, strict=True)}}
    flat = quietly(apart, method="reduction", **how)
    found = quietly(apart, method="reduction", group_size=15, **how)
    equal = quietly(apart, method="reduction", site_weight=np.ones(60))
    assert distance(found, flat) < 0.3 * distance(flat, equal)
    share = {m.site: w for m, w in zip(apart, weight / weight.sum(), strict=True)}
    for record in found.sites:
        assert_allclose(record.weight, sum(share[name] for name in found.groups[record.site]))


@pytest.mark.parametrize("outliers", ["flag", "exclude"])
def test_a_site_that_stands_out_is_found_inside_its_group(sites, outliers):
    bad = [
        site(m, coef=-DATA.truth.experts.coef) if m in (3, 40) else s for m, s in enumerate(sites)
    ]
    found = quietly(bad, method="reduction", group_size=15, outliers=outliers)
    code = "sites_stand_out" if outliers == "flag" else "sites_excluded"
    (warning,) = (w for w in found.warnings if w.code == code)
    assert set(warning.sites) == {"site 3", "site 40"} and warning.facts["total"] == 60
    assert set(found.left_out) == (set(warning.sites) if outliers == "exclude" else set())
    kept = quietly(bad, method="reduction", group_size=15, outliers=outliers, keep=["site 3"])
    assert "site 3" not in kept.left_out


def test_a_group_that_stands_out_is_named_by_its_sites(sites, monkeypatch):
    """Were all liars in one group, they would agree there; the groups show them."""

    class Sorted:
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def permutation(self, order):
            return order

        def __getattr__(self, name):
            return getattr(self.rng, name)

    liars = {f"site {m}" for m in (0, 1, 10, 11, 12, 13, 14, 15, 16, 17)}  # first by name
    bad = [
        site(int(s.site[5:]), coef=-DATA.truth.experts.coef) if s.site in liars else s
        for s in sites
    ]
    monkeypatch.setattr("otmoe.aggregation.merge.generator", lambda seed: Sorted())
    found = quietly(bad, method="reduction", group_size=10, outliers="exclude")
    assert set(found.left_out) == liars
    honest = quietly([s for s in sites if s.site not in liars], method="reduction")
    assert distance(found, honest) < 0.1


def test_covariates_come_from_the_messages_or_by_site(sites):
    shared = [replace(m, support=X[15 * i : 15 * i + 15]) for i, m in enumerate(sites)]
    flat = quietly(sites, method="reduction")
    own = {m.site: X[15 * i : 15 * i + 15] for i, m in enumerate(sites)}
    names = tuple(m.site for m in sites for _ in range(15))
    for support in (None, 300, own, Support(X, names)):
        found = quietly(shared, support, method="reduction", group_size=15)
        assert distance(found, flat) < 0.1


def test_many_sites_go_in_groups_on_their_own(sites, monkeypatch):
    monkeypatch.setattr(groups, "MANY", 50)
    assert quietly(sites, method="reduction").status.code == "in_groups"
    for options in ({"method": "ensemble"}, {"max_weight": 0.5}):
        assert quietly(sites, **options).status.code != "in_groups"


def test_what_groups_cannot_do_is_refused(sites):
    for name, value in [("method", "ensemble"), ("max_weight", 0.5), ("site_weight", "covariate")]:
        refused("not_in_groups").by(quietly, sites, group_size=15, **{name: value})
    refused("not_whole", name="group_size").by(quietly, sites, group_size=0)
    refused("site_twice").by(quietly, [*sites, sites[0]], group_size=15)
    refused("keep_unknown", names=["nobody"]).by(quietly, sites, group_size=15, keep=["nobody"])
    other = replace(sites[0], site="Sіte 1")  # a Cyrillic letter
    refused("look_alike").by(
        quietly, [*sites, other, replace(sites[0], site="Site 1")], group_size=15
    )
