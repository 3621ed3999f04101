"""Cluster-robust standard errors: groups of rows that depend on each other."""

import warnings
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import jacobian, log_density, random_model, random_rows, with_ones
from pyarrow import parquet
from refusals import codes, refused

from otmoe import (
    DistributedMoERegressor,
    FeatureSpec,
    MoEClassifier,
    MoERegressor,
    shards_from,
    simulate,
)
from otmoe.data.columns import Column
from otmoe.data.identifiers import ids_among, is_identifier, shared_ids
from otmoe.data.shards import ArrayShard, FileShard, Piece, RowsShard
from otmoe.distributed.passes import inference_shards
from otmoe.estimators.base import FitWarning
from otmoe.inference import inference, observed_inference
from otmoe.likelihood.fit import em
from otmoe.likelihood.grouped import group_scores
from otmoe.likelihood.information import observed_information, score_outer
from otmoe.likelihood.rows import Rows
from otmoe.text.errors import InferenceError, InvalidInput, ShardError
from otmoe.workers.failures import TasksFailed

FAMILIES = [
    "gaussian",
    "logistic",
    "multinomial",
    "poisson",
    "negative_binomial",
    "gamma",
    "student_t",
]
N = 600


@dataclass(frozen=True)
class Case:
    """Rows in groups, and the model fitted to them."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray
    model: object

    def inference(self, **options):
        return observed_inference(self.model, self.X, self.y, sample_weight=self.weight, **options)

    def covariance(self, **options):
        return self.inference(**options).covariance.matrix

    def frame(self, **columns):
        names = [f"x{j}" for j in range(self.X.shape[1])]
        frame = pd.DataFrame(self.X, columns=names)
        return frame.assign(y=self.y, weight=self.weight, person=self.groups, **columns)


@pytest.fixture(scope="module")
def case():
    data = simulate(N, 2, 2, softness=1.0, random_state=2)
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2, N)
    fit = em(data.X, data.y, 2, init=data.truth, sample_weight=weight)
    return Case(data.X, data.y, weight, rng.integers(0, 60, N), fit.model)


# -- sums of scores --------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("columns", [None, (0, 2)])
def test_summed_scores_are_the_derivatives_of_summed_log_densities(rng, family, columns):
    model = random_model(rng, 3, 2, columns, family)
    X, y = random_rows(rng, model, 80)
    weight, groups = rng.uniform(0, 2, 80), rng.integers(0, 9, 80)
    scores = jacobian(
        lambda theta: weight * log_density(model.with_vector(theta), X, y),
        model.to_vector(),
    )
    there = pd.DataFrame(scores).groupby(groups).sum()
    for block_bytes in (None, 8 * 300 * 3):
        found = group_scores(model, Rows(X, y, weight, block_bytes=block_bytes), groups)
        assert found.labels == tuple(there.index) and found.n_groups == len(there)
        assert_allclose(found.sums, there.to_numpy(), rtol=1e-5, atol=1e-6)
        scatter = there.to_numpy().T @ there.to_numpy()
        assert_allclose(found.scatter.matrix, scatter, rtol=1e-5, atol=1e-5)


def test_blocks_do_not_matter(rng):
    model = random_model(rng, 2, 3)
    X, y = random_rows(rng, model, 2000)
    groups = rng.integers(0, 40, 2000)
    whole, cut = (
        group_scores(model, Rows(X, y, block_bytes=size), groups) for size in (1 << 22, 1)
    )
    assert len(list(Rows(X, y, block_bytes=1).slices())) > 5
    assert_allclose(cut.sums, whole.sums, rtol=1e-10, atol=1e-10)


def test_they_add_up_to_the_score_and_over_parts(rng):
    model = random_model(rng)
    X, y = random_rows(rng, model, 300)
    groups = rng.integers(0, 30, 300)
    whole = group_scores(model, Rows(X, y), groups)
    assert_allclose(whole.sums.sum(axis=0), observed_information(model, Rows(X, y)).score)
    parts = [
        group_scores(model, Rows(X[s], y[s]), groups[s]) for s in np.array_split(np.arange(300), 4)
    ]
    added = parts[0] + parts[1] + parts[2] + parts[3]
    assert sorted(added.labels) == sorted(whole.labels)
    order = np.argsort(added.labels)
    assert_allclose(added.sums[order], whole.sums, rtol=1e-9, atol=1e-9)


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_of_one_row_are_the_sandwich(rng, family):
    n = N if family in ("gaussian", "poisson") else 5 * N
    data = simulate(n, 2, 2, family=family, softness=1.0, random_state=4)
    weight = rng.uniform(0.5, 2, n)
    given = {"sample_weight": weight, "alpha": 1e-3, "expert_alpha": 0.0}
    model = em(data.X, data.y, 2, family=family, init=data.truth, **given).model
    single = observed_inference(model, data.X, data.y, groups=np.arange(n), **given)
    robust = observed_inference(model, data.X, data.y, kind="sandwich", **given)
    there = robust.covariance.matrix * n / (n - 1)
    assert np.all(np.isfinite(there))
    assert_allclose(single.covariance.matrix, there, rtol=1e-7, atol=1e-12)
    assert (single.kind, single.n_groups) == ("clustered", n)
    assert (robust.kind, robust.n_groups) == ("sandwich", None)


def test_the_rows_determine_what_is_compared(case):
    assert np.all(np.isfinite(case.covariance(groups=case.groups)))


def test_it_is_the_formula_on_the_users_scale(case):
    rows = Rows(case.X, case.y, case.weight)
    sums = group_scores(case.model, rows, case.groups)
    information = observed_information(case.model, rows)
    bread = np.linalg.inv(information.matrix)
    G = len(set(case.groups.tolist()))
    there = bread @ sums.scatter.matrix @ bread * G / (G - 1)
    assert_allclose(case.covariance(groups=case.groups), there, rtol=1e-3, atol=1e-6)
    found = inference(case.model, information, N, scatter=sums.scatter)
    assert_allclose(found.covariance.matrix, there, rtol=1e-6, atol=1e-10)


def test_the_order_of_the_rows_and_the_names_of_the_groups_do_not_matter(case, rng):
    there = case.covariance(groups=case.groups)
    order = rng.permutation(N)
    mixed = replace(case, X=case.X[order], y=case.y[order], weight=case.weight[order], groups=None)
    assert_allclose(mixed.covariance(groups=case.groups[order]), there, rtol=1e-6, atol=1e-12)
    for other in (
        rng.permutation(60)[case.groups],
        -7.5 * case.groups,
        np.array([f"person {g}" for g in case.groups]),
        [("ward", int(g)) for g in case.groups],
        [Decimal(int(g)) for g in case.groups],
        pd.Series(case.groups, index=np.arange(N) + 5),
        pd.Series([f"p{g}" for g in case.groups]).astype("category"),
        pd.array(case.groups, dtype="Int64"),
        pa.array(case.groups),
        np.datetime64("2020-01-01") + case.groups,
    ):
        assert_allclose(case.covariance(groups=other), there, rtol=1e-6, atol=1e-12)


def test_labels_of_a_list_are_not_made_alike(case):
    groups = [int(g) if g % 2 else str(g - 1) for g in case.groups]  # 1 is not "1"
    assert case.inference(groups=groups).n_groups == 60


def test_the_unit_of_the_weights_does_not_matter(case):
    def errors(c):
        return replace(case, weight=c * case.weight).covariance(groups=case.groups, alpha=0.0)

    fit = em(case.X, case.y, 2, init=case.model, sample_weight=case.weight, alpha=0.0)
    case = replace(case, model=fit.model)
    assert_allclose(errors(7.0), errors(1.0), rtol=1e-5, atol=1e-10)


def test_a_weight_in_a_group_is_the_row_as_often(case, rng):
    times = rng.integers(1, 4, N)
    model = em(case.X, case.y, 2, init=case.model, sample_weight=times).model
    once = observed_inference(
        model, case.X, case.y, sample_weight=times.astype(float), groups=case.groups
    )
    often = observed_inference(
        model,
        *(np.repeat(a, times, axis=0) for a in (case.X, case.y)),
        groups=np.repeat(case.groups, times),
    )
    assert_allclose(often.covariance.matrix, once.covariance.matrix, rtol=1e-6, atol=1e-12)


def test_a_row_of_weight_zero_is_no_row_and_makes_no_group(case):
    X, y = np.vstack([case.X, case.X[:9]]), np.append(case.y, case.y[:9])
    weight, groups = np.append(case.weight, np.zeros(9)), np.append(case.groups, [100] * 9)
    more = Case(X, y, weight, groups, case.model)
    there = case.inference(groups=case.groups)
    found = more.inference(groups=groups)
    assert found.n_groups == there.n_groups == 60
    assert_allclose(found.covariance.matrix, there.covariance.matrix, rtol=1e-7, atol=1e-12)


def test_rows_that_are_there_many_times_know_no_more_than_once(case):
    """Six copies of every row, as groups of six: the standard errors are those of single rows."""
    X, y, weight = (np.repeat(a, 6, axis=0) for a in (case.X, case.y, case.weight))
    model = em(X, y, 2, init=case.model, sample_weight=weight, alpha=0.0).model
    copies = Case(X, y, weight, np.repeat(np.arange(N), 6), model)
    once = replace(case, model=model)
    found = copies.covariance(groups=copies.groups, alpha=0.0)
    there = once.covariance(groups=np.arange(N), alpha=0.0)
    assert_allclose(found, there, rtol=1e-6, atol=1e-12)
    plain = copies.inference(alpha=0.0).standard_errors.coef
    assert np.all(plain < 0.6 * np.sqrt(np.diagonal(found)[3:9]).reshape(2, 3))


# -- least squares ---------------------------------------------------------------------------------


def least_squares_case(rng):
    """Return rows of one expert with an intercept for each of 40 groups, and the estimator."""
    groups = np.repeat(np.arange(40), 10)
    X = rng.normal(size=(400, 2)) + rng.normal(size=(40, 2))[groups]
    y = X @ [1.0, -2.0] + rng.normal(size=40)[groups] + rng.normal(size=400)
    return X, y, groups, MoERegressor(1, random_state=0).fit(X, y)


def test_one_gaussian_expert_has_the_cluster_robust_covariance_of_least_squares(rng):
    X, y, groups, est = least_squares_case(rng)
    Z = with_ones(X)
    coef = np.linalg.lstsq(Z, y)[0]
    sums = pd.DataFrame(Z * (y - Z @ coef)[:, None]).groupby(groups).sum().to_numpy()
    bread = np.linalg.inv(Z.T @ Z)
    there = np.sqrt(np.diagonal(bread @ sums.T @ sums @ bread) * 40 / 39)
    found = est.inference(X, y, groups=groups)
    assert_allclose(found.standard_errors.coef[0], there, rtol=1e-5)
    assert np.all(found.standard_errors.coef[0] > 1.3 * est.inference().standard_errors.coef[0])


def test_it_is_that_of_statsmodels(rng):
    import statsmodels.api as api

    X, y, groups, est = least_squares_case(rng)
    options = {"groups": groups, "use_correction": False}
    there = api.OLS(y, with_ones(X)).fit(cov_type="cluster", cov_kwds=options).bse
    found = est.inference(X, y, groups=groups).standard_errors.coef[0]
    assert_allclose(found, there * np.sqrt(40 / 39), rtol=1e-5)


# -- what is said ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "sandwich", "clustered"])
def test_groups_make_the_sandwich_that_of_groups(case, kind):
    found = case.inference(groups=case.groups, kind=kind)
    assert found.kind == "clustered" and found.n_groups == 60
    assert found.n_samples == pytest.approx(case.weight.sum())
    text = found.summary()
    assert "cluster-robust" in text and "groups:" in text and " 60" in text
    assert "groups:" not in case.inference(kind="sandwich").summary()


def test_what_does_not_go_together_is_refused(case):
    refused("groups_and_information").by(case.inference, groups=case.groups, kind="information")
    refused("groups_missing").by(case.inference, kind="clustered")
    refused("one_group", InferenceError, groups=1).by(case.inference, groups=np.zeros(N))
    wrong = refused("one_per_row", InvalidInput, name="groups")
    wrong.by(case.inference, groups=case.groups[:-1])
    wrong.by(case.inference, groups=case.groups[:, None])
    wrong.by(case.inference, groups="person")
    wrong.by(case.inference, groups=7)
    refused("group_kind").by(case.inference, groups=[[int(g)] for g in case.groups])


@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA, pd.NaT])
def test_a_row_without_a_group_is_refused(case, nothing):
    groups = case.groups.tolist()
    groups[3] = groups[7] = nothing
    refused("group_missing", row=3, count=2).by(case.inference, groups=groups)
    series = pd.Series(case.groups).astype("Int64")
    series[[3, 7]] = pd.NA
    refused("group_missing", row=3, count=2).by(case.inference, groups=series)


@pytest.mark.parametrize("n_groups, said", [(11, ["few_groups"]), (12, [])])
def test_as_few_groups_as_parameters_are_told(case, n_groups, said):
    assert case.model.n_parameters == 11
    found = case.inference(groups=np.arange(N) % n_groups)
    assert codes(found.warnings) == said
    assert ("[1]" in found.summary()) == bool(said)


# -- estimators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MoERegressor, DistributedMoERegressor])
def test_estimators_take_groups(case, kind):
    options = {} if kind is MoERegressor else {"n_shards": 3, "refine": "auto"}
    est = kind(2, random_state=0, **options).fit(case.X, case.y, case.weight)
    there = observed_inference(
        est.model_, case.X, case.y, sample_weight=case.weight, groups=case.groups
    )
    found = est.inference(case.X, case.y, case.weight, groups=case.groups)
    assert_array_equal(found.covariance.matrix, there.covariance.matrix)
    text = est.summary(case.X, case.y, case.weight, groups=case.groups)
    assert text == found.summary()
    refused("rows_for_sandwich", InferenceError).by(est.inference, groups=case.groups)
    refused("groups_missing").by(est.inference, case.X, case.y, kind="clustered")


def test_a_classifier_takes_groups():
    data = simulate(2000, 2, 2, family="logistic", softness=1.0, random_state=4)
    labels = np.array(["no", "yes"])[data.y.astype(int)]
    est = MoEClassifier(2, random_state=0).fit(data.X, labels)
    found = est.inference(data.X, labels, groups=np.arange(2000) // 4)
    assert (found.kind, found.n_groups) == ("clustered", 500)


# -- shards ----------------------------------------------------------------------------------------


FEATURES = FeatureSpec.of_names(["x0", "x1"])


def described(case, form, folder):
    """Return the rows as shards of one form; groups lie across all of them."""
    frame = case.frame(site=np.array(["Lyon", "Nantes", "Brest"])[np.arange(N) % 3])
    columns = {"target": "y", "weight": "weight", "groups": "person"}
    if form == "memory":
        return shards_from(frame[["x0", "x1", "y", "weight", "person"]], **columns, cut=4)
    if form == "sites":
        return shards_from(frame, **columns, site_column="site", features=["x0", "x1"])
    if form == "frames":
        parts = np.array_split(np.arange(N), 3)
        return [
            ArrayShard(str(m), frame.iloc[s], case.y[s], case.weight[s], FEATURES)
            for m, s in enumerate(parts)
        ]
    for m, part in enumerate(np.array_split(np.arange(N), 3)):
        if form == "csv":
            frame.iloc[part].to_csv(folder / f"{m}.csv", index=False)
        else:
            table = pa.Table.from_pandas(frame.iloc[part], preserve_index=False)
            parquet.write_table(table, folder / f"{m}.parquet", row_group_size=50)
    if form == "files by site":
        return shards_from(folder, **columns, site_column="site")
    return shards_from(folder, **columns, features=["x0", "x1"])


@pytest.mark.parametrize("form", ["memory", "sites", "frames", "parquet", "csv", "files by site"])
def test_splitting_the_rows_changes_nothing(case, form, tmp_path):
    shards = described(case, form, tmp_path)
    there = case.inference(groups=case.groups)
    assert len(shards) > 2 and shards[0].read().groups is None
    assert shards[0].features.names == ("x0", "x1")
    found = inference_shards(shards, case.model, groups="person")
    assert (found.kind, found.n_groups) == ("clustered", 60)
    assert_allclose(found.covariance.matrix, there.covariance.matrix, rtol=1e-6, atol=1e-12)


def test_an_estimator_takes_the_groups_of_shards(case, tmp_path):
    shards = described(case, "parquet", tmp_path)
    est = DistributedMoERegressor(2, refine="auto", random_state=0).fit_shards(shards)
    found = est.inference_shards(shards, groups="person")
    there = est.inference(case.frame()[["x0", "x1"]], case.y, case.weight, groups=case.groups)
    assert_allclose(found.covariance.matrix, there.covariance.matrix, rtol=1e-6, atol=1e-12)
    with refused("groups_and_information"):
        est.inference_shards(shards, groups="person", kind="information")
    refused("groups_missing").by(est.inference_shards, shards, kind="clustered")


@pytest.mark.parametrize("form", ["memory", "csv"])
def test_rows_that_are_dropped_take_their_label_along(case, form, tmp_path):
    frame = case.frame()
    frame.loc[[5, 40], "x1"] = np.nan
    frame["person"] = frame["person"].astype("Int64")
    frame.loc[40, "person"] = pd.NA  # of a row that is dropped anyway
    columns = {"target": "y", "weight": "weight", "groups": "person", "missing": "drop"}
    keep = np.setdiff1d(np.arange(N), [5, 40])
    data = frame
    if form == "csv":
        data = tmp_path / "rows.csv"
        frame.to_csv(data, index=False)
    (shard,) = shards_from(data, **columns)
    rows = replace(shard, groups="person").read()
    assert rows.dropped == 2
    assert_array_equal(rows.groups, [str(g) for g in case.groups[keep]])


def test_labels_with_leading_zeros_stay_apart(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("y,x0,person\n1,2,007\n2,3,7\n3,4,07\n")
    shard = FileShard("a", (Piece(str(path)),), "y", FeatureSpec.of_names(["x0"]))
    assert replace(shard, groups="person").read().groups.tolist() == ["007", "7", "07"]


@pytest.mark.parametrize("kind", ["number", "category"])
def test_a_feature_may_be_the_column_of_groups(kind, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("y,x0,ward\n1,2,7\n2,3,7\n3,4,9\n")
    ward = Column("ward", kind, levels=("7", "9") if kind == "category" else ())
    (shard,) = shards_from(path, target="y", features=FeatureSpec((Column("x0"), ward)))
    rows = replace(shard, groups="ward").read()
    assert rows.groups.tolist() == ["7", "7", "9"] and rows.X.shape == (3, 2)


def test_shards_without_the_column_are_refused(case, tmp_path):
    def by(shards, column, code):
        with pytest.raises((TasksFailed, ShardError)) as caught:
            inference_shards(shards, case.model, groups=column)
        error = caught.value
        if isinstance(error, TasksFailed):
            error = error.failures[0].cause
        assert error.code == code and column in str(caught.value)

    by(described(case, "memory", tmp_path), "ward", "no_groups_known")
    by(described(case, "parquet", tmp_path), "ward", "no_column")
    by([RowsShard("a", case.X, case.y)], "person", "no_groups_known")
    frame = case.frame().astype({"person": "Int64"})
    frame.loc[3, "person"] = pd.NA
    by(shards_from(frame, target="y", weight="weight", groups="person"), "person", "group_missing")


def test_the_column_of_groups_has_no_other_role_than_that_of_sites(case):
    frame = case.frame()
    refused("roles_shared").by(shards_from, frame, target="y", groups="y")
    refused("roles_shared").by(shards_from, frame, target="y", weight="weight", groups="weight")
    refused("arrays_have_no_columns").by(shards_from, (case.X, case.y), groups="person")
    by_site = shards_from(frame, target="y", site_column="person", groups="person")
    assert len(by_site) == 60 and "person" not in by_site[0].features.names
    refused("role_as_feature", ShardError).by(
        shards_from, frame, target="y", groups="person", features=["x0", "person"]
    )


# -- identifiers among the features ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["id", "ID", "Id", "patient_id", "patientId", "PatientID", "PATIENTID", "subject.id", "id_no"]
    + ["person", "Patient", "subject", "participant", "user id", "respondent_no", "uuid"],
)
def test_names_of_identifiers(name):
    assert is_identifier(name)


@pytest.mark.parametrize(
    "name",
    ["width", "paid", "grid", "humid", "valid", "covid", "liquid", "midday", "ideal", "idle"]
    + ["persons", "personality", "inpatient", "subjective", "x0", "age", "", 3, ("id", 1)],
)
def test_names_of_other_columns(name):
    assert not is_identifier(name)


@pytest.mark.parametrize(
    "values, shared",
    [
        (np.arange(N) % 60, True),
        (np.arange(N) % (N // 2), True),
        (np.arange(N) % 2 + 1, True),
        (100.0 * (np.arange(N) % 60), True),
        (np.array([f"p{i % 60}" for i in range(N)]), True),
        (pd.Categorical(np.arange(N) % 60), True),
        (np.arange(N), False),  # every row its own
        (np.arange(N) % (N // 2 + 1), False),
        (np.zeros(N, int), False),
        (np.arange(N) % 2, False),  # a flag
        (np.arange(N) % 2 == 0, False),
        (np.arange(N) % 60 + 0.5, False),  # a measurement
    ],
)
def test_an_identifier_has_values_that_are_shared(values, shared):
    frame = pd.DataFrame({"x0": np.zeros(N), "patient_id": values, "paid": np.arange(N) % 60})
    found = shared_ids(frame)
    assert codes(found) == ["rows_share_an_id"] * shared
    assert all(notice.facts["column"] == "patient_id" for notice in found)
    assert shared_ids(frame.to_numpy()) == ()
    assert codes(shared_ids(pa.Table.from_pandas(frame))) == codes(found)


def test_an_identifier_among_the_features_is_told_by_fit_and_inference(case):
    frame = case.frame()[["x0", "x1", "person"]]
    plain = frame.rename(columns={"person": "paid"})
    for est in (
        MoERegressor(2, random_state=0),
        DistributedMoERegressor(2, n_shards=2, refine="auto", random_state=0),
    ):
        with pytest.warns(FitWarning) as caught:
            est.fit(frame, case.y)
        assert [w.message.codes for w in caught] == [("rows_share_an_id",)]
        assert "'person'" in str(caught[0].message)
        assert "rows_share_an_id" in codes(est.inference(frame, case.y).warnings)
        assert "rows_share_an_id" in codes(est.inference(frame, case.y, kind="sandwich").warnings)
        known = est.inference(frame, case.y, groups=case.groups)
        assert "rows_share_an_id" not in codes(known.warnings)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            est.fit(plain, case.y)  # and nothing is left of the fit before
        assert codes(est.inference(plain, case.y).warnings) == []


def test_an_identifier_among_the_features_of_shards_is_told(case):
    frame = case.frame()
    shards = shards_from(frame, target="y", weight="weight", cut=2)
    assert codes(ids_among(shards[0].features)) == ["rows_share_an_id"]
    est = DistributedMoERegressor(2, refine="auto", random_state=0)
    with pytest.warns(FitWarning, match="'person'"):
        est.fit_shards(shards)
    assert codes(est.warnings_) == ["rows_share_an_id"]
    assert "rows_share_an_id" in codes(est.inference_shards(shards).warnings)
    kept = shards_from(frame, target="y", weight="weight", groups="person", cut=2)
    assert ids_among(kept[0].features) == ids_among(None) == ()


def test_the_plain_sandwich_is_as_it_was(case):
    rows = Rows(case.X, case.y, case.weight)
    one = group_scores(case.model, rows, np.arange(N))
    there = score_outer(case.model, rows)
    assert_allclose(one.scatter.matrix, there, rtol=1e-9, atol=1e-9)
