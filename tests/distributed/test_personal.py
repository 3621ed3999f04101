"""A model for every shard, and for a site that comes later."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import DistributedMoEClassifier, DistributedMoERegressor, shards_from
from otmoe.data.shards import RowsShard
from otmoe.distributed.personal import personal_shards
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Scaling
from otmoe.workers.gather import Workers

pytestmark = pytest.mark.filterwarnings("ignore::otmoe.estimators.base.FitWarning")


@dataclass(frozen=True)
class InOrder(RowsShard):
    """A shard whose rows follow each other in time."""

    def read(self):
        found = super().read()
        return replace(found, groups=np.arange(len(found.y)))


SITES, SLOPES = 10, np.array([1.0, -0.5])


def drawn(seed, n=60, site=None, tau=0.7):
    """Return rows of sites whose intercepts differ."""
    rng = np.random.default_rng(seed)
    shift = tau * np.random.default_rng(1).normal(size=SITES + 1)
    site = np.repeat(np.arange(SITES), n) if site is None else np.full(n, site)
    X = rng.normal(size=(len(site), 2))
    return X, X @ SLOPES + shift[site] + 0.5 * rng.normal(size=len(site)), site


def squared_error(estimator, X, y, **options):
    return np.mean((y - estimator.predict(X, **options)) ** 2)


@pytest.fixture(scope="module")
def fitted():
    X, y, site = drawn(0)
    est = DistributedMoERegressor(1, personal="auto", random_state=0)
    with np.errstate(all="raise", under="ignore"):
        return est.fit(X, y, site=site)


def test_sites_get_models_of_their_own(fitted):
    assert list(fitted.personal_) == list(fitted.forecasts_) == [str(s) for s in range(SITES)]
    X, y, site = drawn(5, 200)
    personal = squared_error(fitted, X, y, site=site)
    assert personal < 0.6 * squared_error(fitted, X, y)
    assert personal < 0.28
    best = [found.best for found in fitted.forecasts_.values()]
    assert best.count("common") <= 2  # sites close to the mean
    assert fitted.timings_["personal"] > 0


def test_mixtures_of_a_sites_models_predict_its_new_rows(fitted):
    X, y, site = drawn(5, 200)
    assert list(fitted.stacked_) == list(fitted.personal_)
    found, rows = np.empty(len(y)), np.empty(len(y))
    for name, mixture in fitted.stacked_.items():
        some = site == int(name)
        found[some] = mixture.predict(X[some])
        rows[some] = mixture.log_density(X[some], y[some])
    assert np.mean((y - found) ** 2) < 1.02 * squared_error(fitted, X, y, site=site)
    assert rows.mean() > fitted.log_density(X, y).mean() + 0.1


def test_mixtures_read_data_frames_and_predict_classes():
    X, y, site = drawn(0)
    table = pd.DataFrame(X, columns=["age", "dose"])
    est = DistributedMoEClassifier(1, personal="auto", random_state=0)
    est.fit(table, np.where(y > 0, "ill", "well"), site=site)
    mixture = est.stacked_["3"]
    assert set(mixture.predict(table)) == {"ill", "well"}
    found = mixture.predict_proba(table[site == 3])
    known = est.forecasts_["3"].weights
    own = next(m.model for m in est.local_models_ if m.site == "3")
    parts = {
        "common": est.predict_proba(table[site == 3]),
        "personal": est.personal_["3"].predict_proba(table[site == 3]),
        "own": np.column_stack([1 - own.predict(X[site == 3]), own.predict(X[site == 3])]),
    }
    assert_allclose(found, sum(w * parts[name] for name, w in known.items()), rtol=1e-9)
    for table_of in (mixture.expert_table, mixture.gate_table):
        with refused("no_coefficients"):
            table_of()


def test_rows_are_predicted_by_the_model_of_their_site(fitted):
    X, _, site = drawn(6, 3)
    found = fitted.predict(X, site=site)
    for name in range(SITES):
        some = site == name
        alone = fitted.predict(X[some], site=str(name))
        assert_array_equal(found[some], alone)
        assert_array_equal(alone, fitted.personal_[str(name)].predict(X[some]))
    assert not np.allclose(found, fitted.predict(X))


def test_a_new_site_gets_the_mean_and_then_its_own(fitted):
    X, y, _ = drawn(7, 1000, site=SITES)
    X_test, y_test, _ = drawn(8, 1000, site=SITES)
    mean = fitted.personalise(X[:1], y[:1], sample_weight=[1e-9])
    centre = fitted.between_.personal_prior.centre
    assert_allclose(mean.model_.to_vector(), centre.to_vector(), atol=1e-4)
    few, many = (fitted.personalise(X[:n], y[:n]) for n in (20, 1000))
    errors = [squared_error(model, X_test, y_test) for model in (mean, few, many)]
    assert errors[0] > errors[1] > errors[2]
    assert_allclose(errors[2], 0.25, rtol=0.1)


def test_names_of_columns_stay(fitted):
    X, y, site = drawn(0)
    table = pd.DataFrame(X, columns=["age", "dose"])
    est = DistributedMoERegressor(1, personal="intercepts", random_state=0).fit(table, y, site=site)
    assert_array_equal(est.personal_["3"].feature_names_in_, ["age", "dose"])
    assert_allclose(
        est.predict(table, site=site)[site == 3], est.predict(table[site == 3], site="3")
    )
    tau = est.between_.personal_prior.tau
    assert tau["expert intercepts"] > 0 == tau["expert slopes"] == tau["log-variances"]
    new = est.personalise(table[:20], y[:20])
    assert_array_equal(new.feature_names_in_, ["age", "dose"])


def test_classes():
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(8), 150)
    X = rng.normal(size=(len(site), 2))
    eta = np.column_stack([X[:, 0], X[:, 1] + 1.5 * rng.normal(size=8)[site], np.zeros(len(site))])
    y = np.array(["a", "b", "c"])[(eta + rng.gumbel(size=eta.shape)).argmax(axis=1)]
    est = DistributedMoEClassifier(1, personal="auto", random_state=0).fit(X, y, site=site)
    proba = est.predict_proba(X, site=site)
    assert_allclose(proba.sum(axis=1), 1)
    right = np.mean(est.predict(X, site=site) == y)
    assert right > np.mean(est.predict(X) == y) + 0.02
    assert_array_equal(est.predict(X[:3], site="0"), est.personal_["0"].predict(X[:3]))
    assert est.personalise(X[:9], y[:9]).classes_.tolist() == ["a", "b", "c"]


def test_shards_of_a_table_and_their_groups():
    X, y, site = drawn(0)
    table = pd.DataFrame(X, columns=["u", "v"]).assign(y=y, site=site.astype(str))
    table["day"] = np.arange(len(table)) // 4
    shards = shards_from(table, target="y", site_column="site", groups="day", features=["u", "v"])
    est = DistributedMoERegressor(1, personal="auto", random_state=0)
    est.fit_shards(shards, groups="day")
    plain = DistributedMoERegressor(1, personal="auto", random_state=0).fit_shards(shards)
    assert sorted(est.personal_) == sorted(plain.personal_) == [str(s) for s in range(SITES)]
    assert est.between_.prior.design_effect != plain.between_.prior.design_effect
    there = DistributedMoERegressor(1, personal="auto", random_state=0)
    there.fit(X, y, site=site, groups=table["day"])
    assert_allclose(there.between_.prior.design_effect, est.between_.prior.design_effect)
    assert (
        set(there.forecasts_["0"].personal) == set(est.forecasts_["0"].personal) == {0.25, 0.5, 1}
    )
    with refused("groups_not_shared"):
        there.set_params(personal=None).fit(X, y, site=site, groups=table["day"])


def test_workers_give_the_same():
    X, y, site = drawn(0)
    shards = [RowsShard(str(s), X, y, index=np.flatnonzero(site == s)) for s in range(SITES)]
    model = em(X, y, 1).model
    here = personal_shards(shards, model, scaling=Scaling.of(X))
    with ThreadPoolExecutor(2) as pool:
        there = personal_shards(shards, model, scaling=Scaling.of(X), workers=Workers(pool))
    assert there.between.strength == here.between.strength
    assert there.between.prior.tau == here.between.prior.tau
    for name in here.fits:
        assert_array_equal(there.fits[name].model.to_vector(), here.fits[name].model.to_vector())


def test_the_mixture_has_the_densities_of_its_models():
    X, y, site = drawn(0)
    shards = [RowsShard(str(s), X, y, index=np.flatnonzero(site == s)) for s in range(SITES)]
    common = em(X, y, 1).model
    own = {str(s): em(X[site == s], y[site == s], 1).model for s in range(1, SITES)}
    found = personal_shards(shards, common, scaling=Scaling.of(X), own=own)
    for name in map(str, range(SITES)):
        weights = found.forecasts[name].weights
        assert ("own" in weights) <= (name in own)
        models = {"common": common, "personal": found.fits[name].model, "own": own.get(name)}
        there = found.stacked(name)
        assert_allclose(
            np.exp(there.log_density(X, y)),
            sum(w * np.exp(models[kind].log_density(X, y)) for kind, w in weights.items()),
        )
        assert_allclose(
            there.predict(X), sum(w * models[kind].predict(X) for kind, w in weights.items())
        )


@pytest.mark.parametrize(("drift", "tried"), [(False, {0.25, 0.5, 1.0}), (True, {0.25})])
def test_slow_changes_ask_for_the_least_spread(drift, tried):
    rng = np.random.default_rng(0)
    n, sites = 256, {}
    for m in range(SITES):
        X, noise = rng.normal(size=(n, 1)), rng.normal(size=n)
        slow = np.cumsum(rng.normal(size=n)) / np.sqrt(n) if drift else 0.7 * rng.normal()
        sites[str(m)] = X, X[:, 0] + slow + 0.5 * noise
    shards = [InOrder(name, X, y) for name, (X, y) in sites.items()]
    X, y = (np.concatenate(parts) for parts in zip(*sites.values(), strict=True))
    found = personal_shards(shards, em(X, y, 1).model, scaling=Scaling.of(X))
    for each in found.forecasts.values():
        assert set(each.personal) == tried
    assert found.between.strength in (0.0, *tried)


def test_what_is_not_there_is_refused(fitted):
    X, y, _ = drawn(0)
    refused("site_unknown", site="x").by(fitted.predict, X, site="x")
    refused("one_per_row").by(fitted.predict, X, site=["0"])
    plain = DistributedMoERegressor(1, random_state=0).fit(X, y)
    refused("not_personal").by(plain.predict, X, site="0")
    refused("not_personal").by(plain.personalise, X, y)
    wrong = DistributedMoERegressor(1, personal="slopes")
    refused("not_one_of", name="personal").by(wrong.fit, X, y)


def test_where_no_difference_predicts_the_common_model_stays():
    X, y, site = drawn(0, tau=0.0)
    est = DistributedMoERegressor(1, personal="auto", random_state=0).fit(X, y, site=site)
    if est.between_.strength == 0:
        assert_allclose(est.predict(X, site=site), est.predict(X))
    assert np.mean(np.abs(est.predict(X, site=site) - est.predict(X))) < 0.05
