"""Secure sums by files: four sites, a server that reads none of their replies, and a dropout."""

import json
from shutil import copytree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import fails, fine, leftovers, told
from numpy.testing import assert_allclose
from oracles import distance

from otmoe import FeatureSpec, LocalModel, MoERegressor, load_model, simulate
from otmoe.documents.masked_reply import MaskedReply
from otmoe.documents.state import RefineState

pytest.importorskip("cryptography")

SITES = ["Brest", "Lyon", "Nantes", "Nice"]
DATA = simulate(2000, 2, 2, softness=1.0, random_state=3)
START = ["refine", "start", "model.json", "*.moe.json", "--state", "state.json"]


def fit(folder, name, *more):
    how = ["--target", "y", "--experts", 2, "--features", folder / "features.json", "--sketch"]
    how += ["--n-init", 3, "--site", name, "-o", folder / f"{name}.moe.json", *more]
    return told("fit", folder / f"{name}.parquet", *how)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secure")
    rows = pa.table({"y": DATA.y, "x0": DATA.X[:, 0], "x1": DATA.X[:, 1]})
    FeatureSpec.of_names(["x0", "x1"]).save(folder / "features.json")
    for i, name in enumerate(SITES):
        pq.write_table(rows.slice(500 * i, 500), folder / f"{name}.parquet")
        assert fit(folder, name, "--secure")["key"] == str(folder / f"{name}.key")
    fine("aggregate", folder / "*.moe.json", "-o", folder / "model.json")
    return folder


@pytest.fixture
def folder(made, own_folder, tmp_path):
    copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def answering(number, name, *more):
    how = ["--target", "y", "--site", name, "-o", f"{name}.round{number}.reply.json", *more]
    return ["refine", "answer", f"round{number}.request.json", f"{name}.parquet", *how]


def answer(number, name, *more):
    return told(*answering(number, name, "--key", f"{name}.key", *more))


def step(number, *more):
    return told("refine", "step", "state.json", f"*.round{number}.reply.json", *OUT, *more)


OUT = ["-o", "refined.json"]


def rounds(names, number=1):
    """Answer and step until it is done; return what is said at the end."""
    while True:
        for name in names:
            answer(number, name)
        report = step(number)
        if report["done"]:
            return report
        number += 1


def test_the_whole_route_and_that_by_plain_replies(folder):
    begun = told(*START, "--secure", "-o", "round1.request.json")
    report = rounds(SITES)
    assert told("inspect", "round1.request.json")["roster"] == begun["roster"] is not None
    assert report["converged"] and report["missing"] == []
    secure = load_model("refined.json")
    state = RefineState.load("state.json")
    assert list(state.refinement.best.log_likelihood) == ["all 4 sites"]
    fine(*START[:-1], "plain.json", "-o", "plain1.request.json")
    number = 1
    while True:
        for name in SITES:
            request, out = f"plain{number}.request.json", f"{name}.plain{number}.reply.json"
            how = ["--target", "y", "--site", name, "-o", out]
            fine("refine", "answer", request, f"{name}.parquet", *how)
        taken = ["refine", "step", "plain.json", f"*.plain{number}.reply.json"]
        number += 1
        more = ["--request", f"plain{number}.request.json", "-o", "plainly.json"]
        plain = told(*taken, *more)
        if plain["done"]:
            break
    assert distance(secure, load_model("plainly.json"), DATA.X, DATA.y) < 1e-6
    for one, other in zip(report["estimates"], plain["estimates"], strict=True):
        assert one["parameter"] == other["parameter"]
        assert_allclose(one["se"], other["se"], rtol=1e-6)
    assert not leftovers(folder)


def test_a_dropout_in_the_middle(folder):
    fine(*START, "--secure", "-o", "round1.request.json")
    for name in SITES:
        answer(1, name)
    step(1)
    for name in SITES[:3]:
        answer(2, name)
    missing = ["refine", "step", "state.json", "*.round2.reply.json", *OUT]
    fails(*missing, code="secure_missing", names="Nice")
    fails(*missing, "--allow-missing", code="secure_missing")
    again = ["refine", "again", "state.json"]
    fails(*again, "--exclude", "Paris", "-o", "round2b.request.json", code="roster_not_in")
    begun = told(*again, "--exclude", "Nice", "-o", "round2b.request.json")
    assert list(begun["sites"]) == SITES[:3] and begun["round"] == 2
    how = ["--key", "Lyon.key"]
    fails(*answering("2b", "Lyon", *how), code="roster_changed")
    for name in SITES[:3]:
        assert answer("2b", name, "--new-roster")["roster"] == begun["roster"]
    fails("refine", "step", "state.json", "*.round2.reply.json", *OUT, code="reply_context")
    report = step("2b")
    if not report["done"]:
        report = rounds(SITES[:3], 3)
    assert report["converged"]
    three = MoERegressor(2, random_state=0).fit(DATA.X[:1500], DATA.y[:1500])
    found = load_model("refined.json")
    assert distance(found, three.model_, DATA.X[:1500], DATA.y[:1500]) < 1e-2
    both = fine("inspect", "state.json").stdout
    assert begun["roster"] in both.replace("\n", " ")


def test_what_is_not_masked_does_not_leave(folder):
    fine(*START, "--secure", "-o", "round1.request.json")
    fails(*answering(1, "Lyon"), code="secure_request")
    fails(*answering(1, "Lyon", "--key", "Nice.key"), code="roster_without_me")
    fine(*START[:-1], "plain.json", "-o", "round9.request.json")
    fails(*answering(9, "Lyon", "--key", "Lyon.key"), code="roster_missing")
    fine(*answering(9, "Lyon"))
    wrong = ["refine", "step", "state.json", "Lyon.round9.reply.json", *OUT]
    fails(*wrong, code="reply_not_masked")
    assert not (folder / "Lyon.round1.reply.json").exists()


def test_rounds_that_cannot_be_secure(folder):
    out = ["-o", "round1.request.json"]
    fails(*START, "--secure", "--between", "auto", *out, code="secure_between")
    exclude = ["--exclude", "Lyon", "--exclude", "Nice"]
    fails(*START, "--secure", *exclude, *out, code="roster_small", sites=2)
    document = json.loads((folder / "Nice.moe.json").read_text())
    del document["key"]
    (folder / "Nice.moe.json").write_text(json.dumps(document))
    fails(*START, "--secure", *out, code="roster_no_key", names="Nice")
    assert not (folder / "state.json").exists()


def test_a_fit_keeps_the_key_that_is_there(folder):
    before = (folder / "Lyon.key").read_bytes()
    key = LocalModel.load("Lyon.moe.json").key
    fit(folder, "Lyon", "--secure", "--force")
    assert LocalModel.load("Lyon.moe.json").key == key
    assert (folder / "Lyon.key").read_bytes() == before
    assert told("inspect", "Lyon.moe.json")["key"] == key
    assert before.decode().strip() not in (folder / "Lyon.moe.json").read_text()


def test_what_a_masked_reply_says_when_inspected(folder):
    fine(*START, "--secure", "-o", "round1.request.json")
    answer(1, "Lyon")
    report = told("inspect", "Lyon.round1.reply.json")
    assert report["kind"] == "masked reply" and "log_likelihood" not in report
    assert [part["name"] for part in report["parts"]] == ["about", "masked numbers"]
    assert sum(part["bytes"] for part in report["parts"]) == report["bytes"]
    assert "It is masked" in fine("inspect", "Lyon.round1.reply.json").stdout
    P, K, d = 11, 2, 2
    size = 3 + 2 + K + P + P * (P + 1) // 2 + 2 * d
    assert len(MaskedReply.load("Lyon.round1.reply.json").numbers) == size


def test_an_estimator_writes_the_key_too(tmp_path):
    est = MoERegressor(1).fit(DATA.X, DATA.y)
    one, two = (est.to_message("Lyon", secure=tmp_path / "lyon.key") for _ in range(2))
    assert one.key == two.key is not None and est.to_message("Lyon").key is None
    assert (tmp_path / "lyon.key").stat().st_mode & 0o777 == 0o600
    assert np.all(one.model.to_vector() == est.model_.to_vector())
