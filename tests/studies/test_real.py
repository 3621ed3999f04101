"""The studies on real data, on tiny data of the same form, and the page that shows them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from otmoe import simulate
from otmoe.arrays.numerics import design
from otmoe.datasets import SiteData
from otmoe.model.divergence import relaxed_divergence
from otmoe.model.ensemble import pool
from otmoe.model.experts import GaussianExperts, LogisticExperts, Response
from paper import beijing, mmash, nycflights, pages, real, variants
from studies.rows import read
from studies.tables import console

STUDIES = {"mmash": mmash, "beijing": beijing, "nycflights": nycflights, "variants": variants}


def results(study, tmp_path):
    return real.Results(tmp_path / "results.csv", study.KEYS, console())


def check_resume(run, path):
    """Run a study, and again after some of its rows are lost: the same rows come back."""
    run()
    lines = path.read_text().splitlines(keepends=True)
    kept = 3 * len(lines) // 4
    path.write_text("".join(lines[:kept]))
    run()
    after = path.read_text().splitlines(keepends=True)
    assert len(after) == len(lines) and after[:kept] == lines[:kept]
    path.write_text("".join(lines))
    run()
    assert path.read_text().splitlines(keepends=True) == lines


def rows_by_method(path):
    return {(row["sites"], row["method"], row["refine"]): row for row in read(path)}


@pytest.fixture
def people():
    """Four people whose heart rate follows 60/IBI in two ways."""
    n, rng = 1000, np.random.default_rng(0)
    data = simulate(n, 2, 2, random_state=0)
    ibi = rng.uniform(0.5, 1.2, n)
    X = np.column_stack([data.X, ibi, 60 / ibi])
    y = 60 / ibi + np.where(data.z == 0, 8.0, -8.0) + rng.normal(size=n)
    return SiteData(X, y, np.arange(n) % 4 + 1, ("a", "b", "ibi", "beats_per_minute"))


@pytest.mark.slow
def test_heart_rates(people, tmp_path):
    path, sizes = tmp_path / "results.csv", {"experts": 2, "shards": (3,), "folds": 2}
    check_resume(lambda: mmash.study(people, results(mmash, tmp_path), False, **sizes), path)
    rows = read(path)
    splits = mmash.splits(people, 2)
    test = [~train for name, train in splits.items() if name != mmash.RANDOM]
    assert_allclose(sum(test), 1)  # every person is held out once
    for here in test:
        assert not set(people.site[here]) & set(people.site[~here])
    (G,) = [r for r in rows if r["split"] == mmash.RANDOM and r["method"] == "centralised"]
    for row in rows:
        if row["split"] == mmash.RANDOM and row["method"] in ("alone", "reduction", "gram"):
            assert float(row["rmse"]) < 1.5 * float(G["rmse"]), row
    random, person = mmash.tables(rows)
    assert len(random[2]) + 2 * len(person[2]) == len(rows)
    (itself,) = [cells for cells in person[2] if cells[1] == "60/IBI itself"]
    error = people.y - people.X[:, -1]
    mean, square = np.mean(people.y), np.mean(error**2)
    whole = 100 * square / np.mean(people.y**2), np.sqrt(square), 100 * np.sqrt(square) / mean
    assert_allclose([float(cell) for cell in itself[2:5]], whole, atol=0.006)


@pytest.mark.slow
def test_stations(tmp_path):
    data = simulate(1500, 2, 2, random_state=1)
    names = ("PM2.5_lag1", "TEMP")
    site = np.array(["Dongsi", "Dingling", "Gucheng"])[np.arange(1500) % 3]
    stations = SiteData(data.X, data.y, site, names, np.arange(1500) < 1000)
    path = tmp_path / "results.csv"
    check_resume(
        lambda: beijing.study(stations, results(beijing, tmp_path), False, experts=2), path
    )
    rows = rows_by_method(path)
    error = data.y[1000:] - data.X[1000:, 0]
    persistence = float(rows["1", "persistence", "0"]["rmse"])
    assert_allclose(persistence, np.sqrt(np.mean(error**2)), rtol=1e-4)
    G, auto = rows["1", "centralised", "0"], rows["3", "gram", "auto"]
    assert auto["converged"] == "True"
    assert_allclose(float(auto["log_likelihood"]), float(G["log_likelihood"]), rtol=1e-4)
    assert len(beijing.tables(read(path))[0][2]) == len(rows)


@pytest.mark.slow
def test_flights(tmp_path):
    n, rng = 1600, np.random.default_rng(2)
    data = simulate(n, 2, 2, family="logistic", softness=1.0, random_state=2)
    airline = np.searchsorted([700, 1530, 1560], np.arange(n))
    names = np.array(["UA", "AA", "HA", "OO"])[airline]
    table = pa.table(
        {
            "late15": data.y.astype(np.int8),
            "carrier": names,
            "origin": np.array(["EWR", "JFK"])[rng.integers(2, size=n)],
            "distance": data.X[:, 0],
            "temp": data.X[:, 1],
            "day": rng.integers(1, 31, n),
        }
    )
    path = tmp_path / "results.csv"

    def run():
        folder = tmp_path / f"run {len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        few = {"small": 50, "methods": ("reduction", "gram"), "n_init": 2}
        nycflights.study(table, results(nycflights, tmp_path), folder, **few)

    check_resume(run, path)
    rows = rows_by_method(path)
    day = table["day"].to_numpy()
    nothing = float(rows["1", "share of late flights", "0"]["log_loss"])
    share, late = data.y[day % 5 != 0].mean(), data.y[day % 5 == 0]
    assert_allclose(nothing, -np.mean(late * np.log(share) + (1 - late) * np.log(1 - share)), 1e-4)
    assert float(rows["1", "centralised", "0"]["log_loss"]) < nothing
    assert ("4 airlines", "alone", "0") in rows
    assert float(rows["small airlines joined", "gram", "auto"]["log_loss"]) < nothing
    assert len(nycflights.tables(read(path))[0][2]) == len(rows)


# -- the published variants ----------------------------------------------------------------------


@pytest.fixture(params=["gaussian", "logistic"])
def sites(request):
    """Return three models that differ a little, pooled, and rows to compare them at."""
    data = simulate(300, 2, 3, family=request.param, softness=1.0, random_state=3)
    rng = np.random.default_rng(3)
    models = [
        replace(
            data.truth,
            experts=replace(
                data.truth.experts, coef=data.truth.experts.coef + 0.2 * rng.normal(size=(2, 4))
            ),
        )
        for _ in range(3)
    ]
    return data, pool(models, np.ones(3))


def test_the_exact_updates_never_raise_the_objective(sites):
    data, pooled = sites
    experts, mass, trace = variants.descend(pooled, data.X, data.truth.experts, variants.exact)
    assert len(trace) > 2
    assert np.all(np.diff(trace) <= 1e-12)
    assert_allclose(mass.sum(axis=(1, 2)), 1)
    model = replace(data.truth, experts=experts)
    assert_allclose(trace[-1], relaxed_divergence(pooled, model, data.X), rtol=1e-10)


def test_the_published_variance_forgets_how_far_the_means_lie_apart(sites):
    data, pooled = sites
    if not isinstance(pooled.experts, GaussianExperts):
        pytest.skip("logistic experts have no variance")
    start = data.truth.experts
    experts, mass, _ = variants.descend(pooled, data.X, start, variants.published_variance)
    weight = mass.sum(axis=0)  # (L, K)
    assert_allclose(experts.var, pooled.experts.var @ weight / weight.sum(axis=0), rtol=1e-8)
    exact, _, trace = variants.descend(pooled, data.X, start, variants.exact)
    assert np.all(exact.var > experts.var)
    published = relaxed_divergence(pooled, replace(data.truth, experts=experts), data.X)
    assert published > trace[-1]


def test_the_closed_form_is_right_for_one_source_alone():
    data = simulate(200, 2, 3, family="logistic", softness=1.0, random_state=4)
    source = LogisticExperts(data.truth.experts.coef / 4)  # so that no probability is clipped
    Z = design(data.X)
    sources = source.response(source.predictor(Z))
    sources = Response(sources.mean, np.broadcast_to(sources.var, sources.mean.shape))
    mass = np.broadcast_to(np.eye(2), (200, 2, 2))
    for update in (variants.closed_form, variants.exact):
        start = LogisticExperts(np.zeros((2, 4)))
        assert_allclose(update(Z, mass, sources, start).coef, source.coef, atol=1e-6)


def test_the_posterior_of_a_support_row_uses_its_y(sites):
    data, pooled = sites
    _, mass, _ = variants.descend(pooled, data.X, data.truth.experts, variants.exact)
    target = variants.posterior(pooled, data.X, data.y, mass)
    density = np.exp(pooled.experts.log_prob(design(data.X), data.y))
    joint = np.einsum("slk,sl->sk", mass, density)
    assert_allclose(target, joint / joint.sum(axis=1, keepdims=True), rtol=1e-8)


# -- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_shows_the_tracked_results(name, tmp_path):
    page = tmp_path / "real_data.md"
    page.write_text(pages.PAGE.read_text())
    rows = read(real.RESULTS / f"{name}.csv")
    pages.write_page(name, STUDIES[name].tables(rows), rows, page)
    assert page.read_text() == pages.PAGE.read_text()


def test_a_page_without_its_mark_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")
    row = {"other_cores_busy": "0.5", "machine": "one", "python": "3"}
    with pytest.raises(ValueError, match="has no mark <!-- mmash -->"):
        pages.write_page("mmash", [("", ["a"], [["1"]])], [row], page)
    assert page.read_text() == "nothing"


def test_without_data_a_sentence_says_so(tmp_path, monkeypatch):
    out = Path(tmp_path / "results.csv")
    monkeypatch.setattr("sys.argv", ["beijing", "--data", str(tmp_path), "--out", str(out)])
    with pytest.raises(SystemExit, match="put the data set there"):
        beijing.main()
    assert not out.exists()
