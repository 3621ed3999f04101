"""The file route: sites fit at home, a coordinator merges what they send."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commandline import call, fails, fine, leftovers, told, unguarded
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn import metrics as sk

import otmoe
from otmoe import FeatureSpec, LocalModel, load_features, load_model, save_model
from otmoe.data.columns import Column
from otmoe.evaluation.metrics import evaluate
from otmoe.likelihood.fit import em
from otmoe.model.experts import PoissonExperts
from otmoe.model.target import class_codes
from otmoe.text.notices import Notice
from otmoe.text.sentences import Warn

pytestmark = pytest.mark.usefixtures("own_folder")

SITES = ["Brest", "Lyon", "Nantes"]
FIT = ["--target", "y", "--experts", 2]
LYON = ["--columns", "x0,x1", "--site", "Lyon"]
NUMBERS = FeatureSpec.of_names(["x0", "x1"])


def table(family="gaussian", rows=900, seed=0):
    """Return rows of three hospitals, with a category and a weight."""
    labelled = family == "classes"
    data = otmoe.simulate(
        rows, 2, 2, family="multinomial" if labelled else family, softness=0.5, random_state=seed
    )
    return pa.table(
        {
            "y": np.array(["a", "b", "c"])[data.y.astype(int)] if labelled else data.y,
            "x0": data.X[:, 0],
            "x1": data.X[:, 1],
            "wind": np.where(np.arange(rows) // 2 % 3 == 0, "N", "S"),
            "hospital": np.array(SITES)[np.arange(rows) % 3],
            "w": np.tile([1.0, 2.0], rows // 2),
        }
    )


def changed(rows, name, values):
    return rows.set_column(rows.column_names.index(name), name, pa.array(values))


def part(rows, name):
    return rows.filter(pa.compute.equal(rows.column("hospital"), name))


@pytest.fixture(scope="module")
def whole():
    return table()


@pytest.fixture(scope="module")
def sent(whole, tmp_path_factory):
    """Return a folder with the messages of three sites."""
    folder = tmp_path_factory.mktemp("sent")
    NUMBERS.save(folder / "features.json")
    for name in SITES:
        pq.write_table(part(whole, name), folder / f"{name}.parquet")
        where = ["--features", folder / "features.json", "-o", folder / f"{name}.moe.json"]
        fine("fit", folder / f"{name}.parquet", *FIT, "--site", name, *where)
    pq.write_table(whole.select(["x1", "x0"]), folder / "support.parquet")
    return folder


@pytest.fixture
def inbox(sent, tmp_path):
    """Return a folder of its own with the three messages and the support, to be spoilt."""
    return copytree(sent, tmp_path, dirs_exist_ok=True)


MERGE = ["--support", "support.parquet", "-o", "model.json"]


# -- fits that begin at the merged model -----------------------------------------------------------


def test_sites_that_fit_again_from_the_merged_model_describe_one_maximum(inbox, whole):
    """No search: the site climbs from the model it was given, and its message says so."""
    fine("aggregate", "*.moe.json", *MERGE)
    merged = load_model("model.json")
    for name in SITES:
        out = ["--site", name, "-o", f"{name}.2.json", *unguarded()]
        found = fine("fit", f"{name}.parquet", "--target", "y", "--start", "model.json", *out)
        assert "started from a given model" in found.stdout
        message, site = LocalModel.load(f"{name}.2.json"), part(whole, name)
        assert message.status.code == "started" and "searches" not in str(message.status)
        assert message.features == NUMBERS and message.model.n_experts == 2
        X, y = NUMBERS.encode(site), site.column("y").to_numpy()
        fit = em(X, y, 2, init=merged)
        assert fit.trace[-1] >= fit.trace[0]  # penalised, at the merged model
        assert_allclose(message.log_likelihood, fit.log_likelihood, rtol=1e-9)
        assert_allclose(message.model.to_vector(), fit.model.to_vector(), rtol=1e-6)
    fine("aggregate", "*.2.json", "--support", "support.parquet", "-o", "again.json")
    assert load_model("again.json").n_experts == 2


def test_one_site_alone_is_compared_with_none(inbox):
    shown = fine("aggregate", f"{next(iter(SITES))}.moe.json", *MERGE).stdout
    assert "–" in shown and "nan" not in shown


def test_a_start_of_other_features_is_refused(inbox):
    fine("aggregate", "*.moe.json", *MERGE)
    FeatureSpec.of_names(["x0", "w"]).save("other.json")
    how = ["fit", "Lyon.parquet", "--target", "y", "--site", "Lyon", "-o", "two.json"]
    start = [*how, "--start", "model.json"]
    fails(*start, "--features", "other.json", code="names_differ")
    fine(*start, "--features", "features.json")
    for option, value in (("--experts", 2), ("--columns", "x0"), ("--family", "poisson")):
        found = call(*start, option, value, "--force")
        assert found.exit_code == 2 and f"{option} does not go with --start" in found.output
    found = call(*how, "--force")
    assert found.exit_code == 2 and "give --experts" in found.output


# -- the whole route -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "poisson", "classes"])
def test_the_whole_route_equals_the_python_interface(family):
    rows, test = table(family), table(family, 600, seed=0)
    spec = FeatureSpec(
        (Column("x0", center=0.5, scale=2.0), Column("x1"), Column("wind", "category", ("N", "S")))
    )
    spec.save("features.json")
    pq.write_table(test, "test.parquet")
    pa.csv.write_csv(rows.select(["wind", "x1", "x0"]), "support.csv")
    how = [*FIT, "--family", family, "--features", "features.json", "--weight", "w", "--seed", 4]
    how += unguarded()
    classes, messages = None, []
    if family == "classes":
        how += ["--classes", "c,b,a"]
        classes = np.array(["a", "b", "c"])
    for name in SITES:
        site = part(rows, name)
        pq.write_table(site, "site.parquet")
        fine("fit", "site.parquet", *how, "--site", name, "-o", f"{name}.moe.json")
        y, kind = site.column("y").to_numpy(), family
        if classes is not None:
            y, kind = class_codes(y.astype(str), classes), "multinomial"
        options = {"family": kind, "n_classes": 3, "random_state": 4}
        options["sample_weight"] = site.column("w").to_numpy()
        fitted = em(spec.encode(site), y, 2, **options)
        messages.append(LocalModel.from_fit(fitted, name, classes=classes, features=spec))
        received = LocalModel.load(f"{name}.moe.json")
        assert received.to_json() == messages[-1].to_json()
    fine("aggregate", "*.moe.json", "--support", "support.csv", "--seed", 1, "-o", "model.json")
    result = otmoe.aggregate(messages, spec.encode(rows), random_state=1)
    merged = load_model("model.json")
    assert_allclose(merged.to_vector(), result.model.to_vector(), rtol=1e-9)
    assert load_features("model.json") == spec

    found = told("evaluate", "model.json", "test.parquet", "--target", "y")
    X, y = spec.encode(test), test.column("y").to_numpy()
    expected = evaluate(merged, X, y if classes is None else y.astype(str))
    for name in {"log_likelihood", "rmse", "mae", "accuracy"} & set(expected):
        assert_allclose(found[name], expected[name], rtol=1e-10)
    assert ("accuracy" in found) == (family == "classes") != ("rmse" in found)


def test_the_files_of_a_site_are_its_rows(whole):
    pq.write_table(whole, "whole.parquet")
    for name, rows in {"a": whole.slice(0, 500), "b": whole.slice(500)}.items():
        pq.write_table(rows, f"{name}.parquet")
        pa.csv.write_csv(rows, f"{name}.csv")
    texts = []
    for i, data in enumerate([["whole.parquet"], ["?.parquet"], ["a.csv", "b.csv"]]):
        fine("fit", *data, *FIT, *LYON, "-o", f"{i}.json")
        texts.append(Path(f"{i}.json").read_text())
    assert texts[0] == texts[1] == texts[2]


# -- fit -------------------------------------------------------------------------------------------


def test_a_fit_says_what_leaves_the_site(sent):
    result = fine("fit", sent / "Lyon.parquet", *FIT, *LYON, "-o", "m.json")
    for words in ("Lyon", "300 rows", "parameters", "features", "Verdict: SEND"):
        assert words in result.stdout
    assert f"{Path('m.json').stat().st_size:,} bytes in all" in result.stdout
    again = ["fit", sent / "Lyon.parquet", *FIT, *LYON, "--force", "-o", "m.json"]
    assert fine(*again, "-q").output == ""
    found = told(*again)
    assert (found["rows"], found["n_samples"], found["rows_of_x"]) == (300, 300.0, 0)
    size = Path("m.json").stat().st_size
    assert found["bytes"] == sum(p["bytes"] for p in found["parts"]) == size


def test_no_value_of_the_data_is_in_a_message(sent):
    text = (sent / "Lyon.moe.json").read_text()
    rows = pq.read_table(sent / "Lyon.parquet")
    for name in ("y", "x0", "x1"):
        for value in rows.column(name).to_pylist():
            assert repr(value) not in text


def test_a_fit_that_did_not_converge_is_a_warning(sent, monkeypatch):
    from otmoe.distributed import task as fit

    real = fit.fit_rows

    def stopped(task):
        return real(replace(task, options={**task.options, "max_iter": 1, "tol": 0.0}))

    monkeypatch.setattr(fit, "fit_rows", stopped)
    result = fine("fit", sent / "Lyon.parquet", *FIT, *LYON, "--json", "-o", "m.json")
    found = json.loads(result.stdout)
    assert found["converged"] is False and found["status"]["code"] == "out_of_passes"
    assert f"warning: {Warn.SHELL_STOPPED(status=found['status']['text'])}" in result.stderr
    assert not LocalModel.load("m.json").converged
    assert "NOT CONVERGED" in fine("inspect", "m.json").stdout


def test_dropped_rows_are_counted(whole):
    pq.write_table(changed(whole, "x1", [None, *range(899)]), "m.parquet")
    args = ["m.parquet", *FIT, *LYON, "-o", "m.json", "--json"]
    fails("fit", *args, code="column_missing", columns="1 of column 'x1'", rows=900)
    result = fine("fit", *args, "--missing", "drop")
    assert json.loads(result.stdout)["dropped"] == 1
    said = Warn.ROWS_DROPPED(rows=1, total=900, columns=" (x1 in 1)")
    assert f"warning: {said}" in result.stderr


def test_more_starts_are_passed_on(sent, monkeypatch):
    from otmoe.distributed import task as fit

    seen = []
    monkeypatch.setattr(fit, "fit_rows", lambda task: seen.append(task) or 1 / 0)
    for words in ([], ["--n-init", 25]):
        call("fit", sent / "Lyon.parquet", *FIT, *LYON, "-o", "m.json", *words)
    assert [task.options["n_init"] for task in seen] == [None, 25]


CLASSES = ["--family", "classes", *LYON, "-o", "m.json"]


@pytest.mark.parametrize(
    ("values", "declared", "classes"),
    [
        (["no", "yes"], None, ["no", "yes"]),
        (["no", "yes"], "yes,no,perhaps", ["no", "perhaps", "yes"]),
        (["no", "no"], "yes,no", ["no", "yes"]),
        ([0, 1], None, [0, 1]),
        ([1, 1], "1,0,2", [0, 1, 2]),
        ([0.5, 1], None, [0.5, 1.0]),
    ],
)
def test_classes_that_occur_or_are_declared(whole, values, declared, classes):
    pq.write_table(changed(whole, "y", values * 450), "m.parquet")
    args = [] if declared is None else ["--classes", declared]
    fine("fit", "m.parquet", *FIT, *CLASSES, *args, *unguarded())
    found = load_model("m.json").classes.tolist()
    assert found == classes and list(map(type, found)) == list(map(type, classes))
    fine("evaluate", "m.json", "m.parquet", "--target", "y")


@pytest.mark.parametrize(
    ("values", "args", "expected"),
    [
        (["no", "no"], [], {"code": "shell_few_classes", "classes": 1}),
        (["no", "yes"], ["--classes", "no,perhaps"], {"code": "class_unknown", "label": "yes"}),
        (["no", "yes"], ["--classes", "no"], {"code": "shell_one_class"}),
        ([0, 1], ["--classes", "a,b"], {"code": "shell_classes_numbers", "classes": "a, b"}),
    ],
)
def test_classes_that_cannot_be(whole, values, args, expected):
    pq.write_table(changed(whole, "y", values * 450), "m.parquet")
    fails("fit", "m.parquet", *FIT, *CLASSES, *args, **expected)
    assert not Path("m.json").exists()


def test_a_class_that_was_dropped_with_its_rows_is_explained(whole):
    table = changed(whole, "y", ["no", "yes"] * 450)
    pq.write_table(changed(table, "x1", [1.0, None] * 450), "m.parquet")
    dropped = ", after 450 of 900 rows were dropped because a value is missing (x1 in 450)"
    wrong = {"code": "shell_few_classes", "classes": 1, "dropped": dropped}
    fails("fit", "m.parquet", *FIT, *CLASSES, "--missing", "drop", **wrong)


def test_dropped_rows_are_named_where_the_policy_refuses_the_rest(whole):
    pq.write_table(changed(whole, "x1", [*range(5), *[None] * 895]), "m.parquet")
    result = call("fit", "m.parquet", *FIT, *LYON, "--missing", "drop", "-o", "m.moe.json")
    assert result.exit_code == 1 and "rule rows" in result.stderr
    assert "895 of 900 rows were dropped because a value is missing (x1 in 895)" in result.stderr


# -- faults of the data: the same in every command that reads rows ---------------------------------


@pytest.fixture
def data(whole, tmp_path):
    """Return how to write two files, the second with a fault, and a model and features for them."""
    spec = FeatureSpec((*NUMBERS.columns, Column("wind", "category", ("N", "S"))))
    spec.save("f.json")
    truth = otmoe.simulate(10, 2, 3, random_state=0).truth
    save_model(replace(truth, feature_names=spec.feature_names), "model.json", features=spec)
    (tmp_path / "data").mkdir()
    pq.write_table(whole.slice(0, 450), "data/a.parquet")

    def write(change):
        pq.write_table(change(whole.slice(450)), "data/b.parquet")

    return write


READING = {
    "run": ["run", "data", *FIT, "--features", "f.json", "--n-jobs", 1, "-o", "out.json"],
    "fit": ["fit", "data", *FIT, "--features", "f.json", "--site", "Lyon", "-o", "out.json"],
    "evaluate": ["evaluate", "model.json", "data", "--target", "y"],
}
FAULTS = {
    "column_levels": (
        lambda t: changed(t, "wind", ["E", *t.column("wind").to_pylist()[1:]]),
        {"column": "wind", "values": '"E" (1 rows)'},
    ),
    "column_negative": (
        lambda t: changed(t, "w", [-1.0, -2.0, *t.column("w").to_pylist()[2:]]),
        {"column": "w", "count": 2},
    ),
    "no_column": (lambda t: t.drop_columns(["x1"]), {"column": "x1"}),
    "not_numbers": (lambda t: changed(t, "x1", ["warm"] * len(t)), {"column": "x1"}),
    "target_text": (lambda t: changed(t, "y", ["warm"] * len(t)), {"column": "y"}),
    "column_infinite": (
        lambda t: changed(t, "y", [np.inf] * len(t)),
        {"column": "y", "count": 450},
    ),
}


@pytest.mark.parametrize("command", list(READING))
@pytest.mark.parametrize("code", list(FAULTS))
def test_a_fault_of_the_data_names_the_file(data, command, code):
    change, facts = FAULTS[code]
    data(change)
    line = fails(*READING[command], "--weight", "w", code=code, **facts)
    # All rows of a site count together: there a fault of values is the site's.
    assert "b.parquet" in line or (command == "fit" and "Lyon" in line)
    assert not Path("out.json").exists() and leftovers(Path()) == []


@pytest.mark.parametrize("command", list(READING))
def test_a_broken_file_is_named(data, command):
    Path("data/b.parquet").write_bytes(b"no parquet")
    assert "b.parquet" in fails(*READING[command], code="unreadable")


@pytest.mark.parametrize("command", ["run", "evaluate"])
def test_rows_without_a_site(data, command):
    data(lambda t: changed(t, "hospital", [None, None, *t.column("hospital").to_pylist()[2:]]))
    wrong = {
        "run": {"code": "site_missing", "column": "hospital", "count": 2},
        "evaluate": {"code": "column_missing", "columns": "2 of column 'hospital'"},
    }[command]
    args = [*READING[command], "--site-column", "hospital"]
    assert "b.parquet" in fails(*args, **wrong)
    if command == "evaluate":
        found = fine(*args, "--missing", "drop", "--json")
        assert json.loads(found.stdout)["dropped"] == 2


@pytest.mark.parametrize("command", ["run", "fit"])
def test_text_is_no_number_to_fit(whole, command):
    pq.write_table(changed(whole, "y", ["a", "b"] * 450), "a.parquet")
    args = {"run": ["--n-jobs", 1], "fit": ["--site", "Lyon"]}[command]
    args += ["--columns", "x0,x1", "-o", "m.json"]
    assert "--family classes" in fails(command, "a.parquet", *FIT, *args, code="target_is_text")


def test_no_rows(inbox, whole):
    pq.write_table(whole.slice(0, 0), "none.parquet")
    args = [*FIT, "--site", "Lyon", "--features", "features.json", "-o", "m.json"]
    assert "Lyon: " in fails("fit", "none.parquet", *args, code="no_rows")
    args = ["evaluate", "Lyon.moe.json", "none.parquet", "--target", "y"]
    fails(*args, code="no_rows_to_evaluate")


@pytest.mark.parametrize(
    "args",
    [
        ["fit", "a.parquet", "--target", "y", "--site", "Lyon", "-o", "m.json"],
        ["fit", "a.parquet", *FIT, "-o", "m.json"],
        ["fit", "a.parquet", *FIT, "--site", "Lyon", "--classes", "a,b", "-o", "m.json"],
        ["fit", "a.parquet", *FIT, "--site", "Lyon", "--n-init", "0", "-o", "m.json"],
        ["fit", "a.parquet", *FIT, "--site", "L", "--features", "f", "--columns", "a", "-o", "m"],
        ["aggregate", "-o", "m.json"],
        ["aggregate", "a.json", "--method", "ensemble", "-o", "m.json"],
        ["inspect"],
        ["evaluate", "m.json"],
    ],
)
def test_wrong_usage_is_2(args):
    Path("a.parquet").touch()  # is there, so that only the usage is wrong
    result = call(*args)
    assert result.exit_code == 2 and "Usage:" in result.stderr and result.stdout == ""


def test_a_site_needs_a_name_that_a_message_can_carry(sent):
    args = ["fit", sent / "Lyon.parquet", *FIT, "-o", "m.json", "--site"]
    fails(*args, " ", code="site_unnamed")
    fails(*args, "a\x1b[31m", code="control_character", character="001B")
    fails(*args, "x" * 201, code="name_too_long", length=201)


# -- inspect ---------------------------------------------------------------------------------------


def test_inspect_a_message(sent):
    path = sent / "Lyon.moe.json"
    result = fine("inspect", path)
    for words in ("Lyon", "300", "2 gaussian", "x0, x1", "converged", "Verdict: CONSIDER", "bytes"):
        assert words in result.stdout
    assert "expert 0" not in result.stdout
    found = told("inspect", path, "--coefficients")
    assert (found["kind"], found["site"], found["rows"]) == ("local model", "Lyon", 300.0)
    assert (found["verdict"], found["rows_of_x"]) == ("consider", 0)
    assert found["bytes"] == path.stat().st_size == sum(p["bytes"] for p in found["parts"])
    assert [p["name"] for p in found["parts"]] == ["about", "parameters", "features"]
    model = LocalModel.load(path).model
    assert_array_equal(list(found["coefficients"]["gate"].values()), model.gate.coef.T)
    assert_array_equal(found["coefficients"]["experts"]["x1"], model.experts.coef[:, 2])
    assert_array_equal(found["coefficients"]["experts"]["variance"], model.experts.var)
    shown = fine("inspect", path, "--coefficients").stdout
    assert f"{model.experts.coef[1, 2]:.5g}" in shown and "expert 1" in shown


def test_inspect_tells_constant_features_and_warnings(whole):
    pq.write_table(changed(whole, "x1", [7.5] * 900), "m.parquet")
    NUMBERS.save("features.json")
    own = ["--features", "features.json", "--site", "Lyon"]
    fine("fit", "m.parquet", *FIT, *own, "-o", "m.json")
    result = fine("inspect", "m.json")
    assert "x1 is 7.5 in every row" in result.stdout and "constant features" in result.stdout
    found = told("inspect", "m.json")
    assert found["constant_features"] == {"x1": 7.5}
    assert [warning["code"] for warning in found["warnings"]] == ["rank_deficient"]


def test_a_warning_from_a_file_is_told_as_it_stands(inbox):
    """Also where the shell has words of its own for the code: they lack the facts."""
    told = replace(LocalModel.load("Lyon.moe.json"), warnings=(Notice("no_grams", "as it is"),))
    told.save("Lyon.moe.json")
    assert "as it is" in fine("inspect", "Lyon.moe.json").stdout


def test_inspect_a_model_and_features(sent, inbox):
    fine("aggregate", *[f"{name}.moe.json" for name in SITES], *MERGE)
    model, features = told("inspect", "model.json"), told("inspect", "features.json")
    assert model["kind"] == "model" and model["about"]["sites"] == "Brest, Lyon, Nantes"
    assert features["kind"] == "features" and features["features"] == ["x0", "x1"]
    for found in (model, features):
        assert found["bytes"] == sum(p["bytes"] for p in found["parts"])
    assert "otmoe aggregate" in fine("inspect", "model.json").stdout
    assert "x0, x1" in fine("inspect", "features.json", "--coefficients").stdout


def test_classes_are_named(whole):
    pq.write_table(changed(whole, "y", ["well", "sick"] * 450), "m.parquet")
    fine("fit", "m.parquet", *FIT, *CLASSES)
    assert "sick, well" in fine("inspect", "m.json").stdout


def test_a_file_written_otherwise_has_its_own_size(sent):
    document = json.loads((sent / "Lyon.moe.json").read_text())
    Path("m.json").write_text(json.dumps(document))
    result = fine("inspect", "m.json")
    assert "as otmoe would write them" in result.stdout
    assert f"{Path('m.json').stat().st_size:,} bytes in all" in result.stdout


HOSTILE = {
    "json_empty": lambda text: b"",
    "json_cut": lambda text: text[: len(text) // 2],
    "not_utf8": lambda text: bytes(range(256)),
    "limit": lambda text: b"[" * 100_000,
    "key_twice": lambda text: text.replace(b'"site"', b'"site": "Paris", "site"'),
    "field_infinite": lambda text: text.replace(b'"n_samples": 300.0', b'"n_samples": 1e999'),
    "schema_version": lambda text: text.replace(b'"schema_version": 1', b'"schema_version": 2'),
    "control_character": lambda text: text.replace(b'"Lyon"', b'"\\u001b[31mLyon"'),
    "other_document": lambda text: text.replace(b'"local model"', b'"pickle"'),
    "kind_missing": lambda text: text.replace(b'"otmoe": "local model",', b""),
    "field_unknown": lambda text: text.replace(b'"site"', b'"rows": [[1.0, 2.0]], "site"'),
}


@pytest.mark.parametrize("code", list(HOSTILE))
@pytest.mark.parametrize("command", ["inspect", "aggregate"])
def test_a_hostile_file_is_one_sentence(inbox, code, command):
    path = Path("Lyon.moe.json")
    path.write_bytes(HOSTILE[code](path.read_bytes()))
    if command == "inspect":
        line = fails("inspect", path, code=code)
    else:
        line = fails("aggregate", "Brest.moe.json", path, *MERGE, code="unreadable_messages", bad=1)
        assert not Path("model.json").exists()
    assert "Lyon.moe.json: " in line and "\x1b" not in line and len(line) < 400


# -- aggregate -------------------------------------------------------------------------------------


def test_the_shell_says_what_was_chosen_from_and_what_sites_lose(inbox):
    messages = [LocalModel.load(f"{name}.moe.json") for name in SITES]
    result = otmoe.aggregate(messages, NUMBERS.encode(pq.read_table("support.parquet")))
    found = told("aggregate", "*.moe.json", *MERGE)
    assert_allclose(found["lost"], result.lost, rtol=1e-9)
    assert_allclose([s["lost"] for s in found["sites"]], [s.lost for s in result.sites], rtol=1e-9)
    names = [candidate["method"] for candidate in found["candidates"]]
    assert names == [candidate.method for candidate in result.candidates]
    chosen = [c["method"] for c in found["candidates"] if c["chosen"]]
    assert chosen == [found["method"]] == [result.method]
    document = json.loads(Path("model.json").read_text())
    assert document["about"]["method"] == "auto" and document["about"]["chosen"] == result.method
    assert document["aggregation"]["candidates"][0].keys() == {"method", "n_experts", "lost"}
    alternatives = [vars(alternative) for alternative in result.alternatives]
    assert [a["method"] for a in found["alternatives"]] == [a["method"] for a in alternatives]
    for key in ("lost", "typical"):
        values = [a[key] for a in alternatives]
        assert_allclose([a[key] for a in found["alternatives"]], values, rtol=1e-9)
    assert document["aggregation"]["alternatives"] == found["alternatives"]
    shown = fine("aggregate", "*.moe.json", *MERGE, "--force").stdout
    assert "at the median site" in shown and "geometric_median" in shown and "influence" in shown
    lines = [line.split() for line in shown.splitlines()]
    rows = [line for line in lines if line[:1] and line[0] in names]
    assert [line[0] for line in rows] == names
    assert [line[0] for line in rows if line[-1] == "chosen"] == chosen
    assert any("lost" in line for line in lines)

    given = told("aggregate", "*.moe.json", *MERGE, "--method", "reduction", "--force")
    assert given["candidates"] == [] and given["lost"] > 0
    about = json.loads(Path("model.json").read_text())["about"]
    assert about["method"] == "reduction" and "chosen" not in about
    shown = fine("aggregate", "*.moe.json", *MERGE, "--method", "reduction", "--force").stdout
    assert "candidate" not in shown


def test_the_part_of_every_site(inbox):
    found = told("aggregate", "*.moe.json", *MERGE)
    assert [site["site"] for site in found["sites"]] == SITES
    assert_allclose([site["weight"] for site in found["sites"]], 1 / 3)
    sizes = [Path(f"{name}.moe.json").stat().st_size for name in SITES]
    assert [site["bytes"] for site in found["sites"]] == sizes and found["bytes"] == sum(sizes)
    assert found["support_points"] == 900 and found["support"] == "support.parquet"
    about = json.loads(Path("model.json").read_text())["about"]
    assert about["sites"] == "Brest, Lyon, Nantes" and about["rows"] == 900.0
    shown = fine("aggregate", "*.moe.json", *MERGE, "--force").stdout
    assert all(word in shown for word in (*SITES, "weight", "cost", "900 points", "share of rows"))
    assert f"{sum(sizes):,} bytes" in shown


def test_the_order_of_the_messages_does_not_matter(inbox):
    fine("aggregate", "Brest.moe.json", "Lyon.moe.json", "Nantes.moe.json", *MERGE)
    one = load_model("model.json").to_vector()
    fine("aggregate", "Nantes.moe.json", "[BL]*.moe.json", *MERGE, "--force")
    assert_array_equal(load_model("model.json").to_vector(), one)


@pytest.mark.filterwarnings("ignore:aggregate:UserWarning")
def test_options_are_passed_on(inbox):
    def merge(*args):
        found = told("aggregate", "*.moe.json", *MERGE, "--force", *args)
        return found, load_model("model.json")

    messages = [LocalModel.load(f"{name}.moe.json") for name in SITES]
    X = pq.read_table("support.parquet").select(["x0", "x1"]).to_pandas().to_numpy()
    found, model = merge("--method", "middle")
    assert found["method"] == "middle"
    assert any(np.array_equal(model.to_vector(), m.model.to_vector()) for m in messages)
    assert merge("--experts", 1)[1].n_experts == 1
    found, model = merge("--exclude", "Lyon", "--exclude", "Brest")
    assert [site["site"] for site in found["sites"]] == ["Nantes"]
    assert found["rows"] == 300
    assert found["excluded"] == ["Lyon", "Brest"]
    found, _ = merge("--n-support", 100)
    assert found["support_points"] == 100
    heavy = replace(messages[0], n_samples=10_000.0)
    heavy.save("Brest.moe.json")
    found, model = merge("--site-weight", "equal")
    expected = otmoe.aggregate([heavy, *messages[1:]], X, site_weight=[1, 1, 1])
    assert_allclose(model.to_vector(), expected.model.to_vector(), rtol=1e-9)
    assert_allclose([site["weight"] for site in found["sites"]], 1 / 3)
    assert merge()[0]["sites"][0]["weight"] > 0.9


def test_many_sites_are_cut_short_in_words_alone(inbox):
    message = LocalModel.load("Lyon.moe.json")
    for i in range(30):
        replace(message, site=f"site {i:02d}", n_samples=100.0 + i).save(f"s{i:02d}.moe.json")
    result = fine("aggregate", "s*.moe.json", *MERGE)
    assert "10 sites with less weight" in " ".join(result.stdout.split())
    assert "site 29" in result.stdout and "site 05" not in result.stdout
    found = told("aggregate", "s*.moe.json", *MERGE, "--force")
    assert len(found["sites"]) == 30


def test_a_draw_of_the_support_is_fair_and_repeats(whole):
    from otmoe.data.shards import draw_features

    pq.write_table(whole, "a.parquet", row_group_size=70)
    pa.csv.write_csv(whole, "b.csv")
    spec = FeatureSpec((*NUMBERS.columns, Column("wind", "category", ("N", "S"))))
    X, total = draw_features("a.parquet", spec, 10_000)
    assert total == 900
    assert_array_equal(X, spec.encode(whole))
    few, total = draw_features("a.parquet", spec, 100, random_state=3)
    assert_array_equal(few, draw_features("b.csv", spec, 100, random_state=3)[0])
    assert few.shape == (100, 3) and total == 900
    rows = {row.tobytes(): i for i, row in enumerate(X)}
    places = [rows[row.tobytes()] for row in few]
    assert places == sorted(set(places))  # without replacement, in their order
    hits = np.zeros(900)
    for seed in range(200):
        drawn, _ = draw_features("a.parquet", spec, 100, random_state=seed)
        hits[[rows[row.tobytes()] for row in drawn]] += 1
    # 200 draws of 1 in 9: binomial, its dispersion chi-squared with 899 degrees of freedom
    assert abs(hits.var() / (200 * (1 / 9) * (8 / 9)) - 1) < 0.2
    gaps = changed(whole, "x0", [None, *whole.column("x0").to_pylist()[1:]])
    pq.write_table(gaps, "gaps.parquet")
    refused("column_missing", rows=900).by(draw_features, "gaps.parquet", spec, 100)
    assert draw_features("gaps.parquet", spec, 10_000, missing="drop")[1] == 899


def test_every_unreadable_message_is_named(inbox):
    Path("Lyon.moe.json").write_text("{")
    Path("Brest.moe.json").write_text("no")
    words = ["Lyon.moe.json", "Nantes.moe.json", "Brest.moe.json", "Paris.moe.json"]
    line = fails("aggregate", *words, *MERGE, code="unreadable_messages", bad=3, messages=4)
    assert "--skip-bad" in line
    assert "Nantes" not in line and all(w in line for w in ("Lyon.moe", "Brest.moe", "Paris.moe"))
    result = fine("aggregate", *words, *MERGE, "--skip-bad", "--json")
    found = json.loads(result.stdout)
    assert list(found["unreadable"]) == ["Lyon.moe.json", "Brest.moe.json", "Paris.moe.json"]
    assert [site["site"] for site in found["sites"]] == ["Nantes"]
    for why in found["unreadable"].values():
        assert f"warning: {Warn.SHELL_LEFT_OUT(why=why)}\n" in result.stderr
    args = ["Lyon.moe.json", *MERGE, "--skip-bad", "--force"]
    fails("aggregate", *args, code="unreadable_messages", bad=1, messages=1)


CENTRED = FeatureSpec((Column("x0"), Column("x1", center=1.0)))


@pytest.mark.parametrize(
    ("model", "message", "names_x1", "expected"),
    [
        # what is other in the model and in the message; whether the sentence names a feature
        (lambda m: {"experts": PoissonExperts(m.experts.coef)}, {}, False,
         {"code": "family_differs", "family": "poisson", "wanted": "gaussian"}),
        (lambda m: {"feature_names": ("x0", "x7")}, {"features": None}, True,
         {"code": "names_differ", "extra": "['x7']", "missing": "['x1']"}),
        (lambda m: {}, {"features": CENTRED}, True, {"code": "encoding_differs"}),
        (lambda m: {}, {"features": replace(NUMBERS, unknown="reference")}, False,
         {"code": "encoding_differs"}),
    ],
)  # fmt: skip
def test_messages_that_do_not_match(inbox, model, message, names_x1, expected):
    lyon = LocalModel.load("Lyon.moe.json")
    replace(lyon, model=replace(lyon.model, **model(lyon.model)), **message).save("Lyon.moe.json")
    expected = {"who": "site 'Lyon'", "other": "site 'Brest'", **expected}
    line = fails("aggregate", "*.moe.json", *MERGE, **expected)
    assert ("'x1'" in line) == names_x1
    fine("aggregate", "*.moe.json", *MERGE, "--exclude", "Lyon")


def test_a_site_may_send_one_message_and_say_nothing_of_plain_features(inbox):
    replace(LocalModel.load("Lyon.moe.json"), features=None).save("Lyon.moe.json")
    fine("aggregate", "*.moe.json", *MERGE)
    Path("copy.moe.json").write_bytes(Path("Lyon.moe.json").read_bytes())
    files = {"file": Path("Lyon.moe.json"), "other": Path("copy.moe.json")}
    again = ["aggregate", "*.moe.json", *MERGE, "--force"]
    fails(*again, code="files_of_one_site", site="Lyon", **files)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["*.nothing", *MERGE], "no_match"),
        (["*.moe.json", "--exclude", "Paris", *MERGE], "shell_exclude_unknown"),
        (["L*.moe.json", "--exclude", "Lyon", *MERGE], "shell_excludes_all"),
        (["*.moe.json", "-o", "model.json"], "shell_no_support"),
        (["*.moe.json", "--support", "no.parquet", "-o", "m.json"], "not_there"),
        (["features.json", *MERGE], "unreadable_messages"),
    ],
)
def test_what_cannot_be_merged_is_one_line(inbox, args, code):
    line = fails("aggregate", *args, code=code)
    assert code not in ("no_match", "unreadable_messages") or args[0] in line
    assert not Path("model.json").exists()


def test_a_support_that_lacks_a_column(inbox, whole):
    pq.write_table(whole.select(["x0", "wind"]), "support.parquet")
    line = fails("aggregate", "*.moe.json", *MERGE, code="no_column", column="x1")
    assert "support.parquet" in line


# -- evaluate --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "poisson", "classes"])
def test_measures_equal_those_of_scikit_learn(family):
    rows = table(family, 3000)
    pq.write_table(rows, "rows.parquet", row_group_size=700)
    pa.csv.write_csv(rows, "rows.csv")
    how = [*FIT, "--family", family, *LYON, "-o", "m.json"]
    fine("fit", "rows.parquet", *how)
    args = ["--target", "y", "--weight", "w", "--site-column", "hospital"]
    found, from_csv = (told("evaluate", "m.json", f"rows.{s}", *args) for s in ("parquet", "csv"))
    model = load_model("m.json")
    X = np.column_stack([rows.column(name) for name in ("x0", "x1")])
    y, w = rows.column("y").to_numpy(), rows.column("w").to_numpy()
    prediction = model.predict(X)
    site = rows.column("hospital").to_numpy().astype(str)
    assert list(found["sites"]) == SITES and found["weight"] == w.sum()
    for name, here in [(None, np.full(3000, True)), *((s, site == s) for s in SITES)]:
        got = found if name is None else found["sites"][name]
        a, b, c = y[here], prediction[here], w[here]
        if family == "classes":
            likeliest = model.classes[b.argmax(axis=1)]
            expected = {
                "accuracy": sk.accuracy_score(a.astype(str), likeliest, sample_weight=c),
                "log_loss": sk.log_loss(a.astype(str), b, sample_weight=c),
                "log_likelihood": -sk.log_loss(a.astype(str), b, sample_weight=c),
                "brier": np.average(
                    np.square(b - (a.astype(str)[:, None] == model.classes)).sum(axis=1), weights=c
                ),
            }
        else:
            expected = {
                "rmse": sk.root_mean_squared_error(a, b, sample_weight=c),
                "mae": sk.mean_absolute_error(a, b, sample_weight=c),
                "r2": sk.r2_score(a, b, sample_weight=c),
                "log_likelihood": np.average(model.log_density(X[here], a), weights=c),
            }
        if family == "poisson":
            expected["deviance"] = sk.mean_poisson_deviance(a, b, sample_weight=c)
        assert got["rows"] == here.sum()
        about = {"command", "model", "sites", "dropped", "null", "explained"}
        assert set(got) - about == {*expected, "rows", "weight"}
        for key, value in expected.items():
            assert_allclose(got[key], value, rtol=1e-9, err_msg=f"{name} {key}")
            other = from_csv if name is None else from_csv["sites"][name]
            assert_allclose(other[key], value, rtol=1e-9)


def test_what_evaluate_prints(sent, inbox):
    args = ["evaluate", "Lyon.moe.json", "Lyon.parquet", "Brest.parquet", "--target", "y"]
    result = fine(*args, "--site-column", "hospital")
    for words in (
        "600",
        "RMSE",
        "MAE",
        "R²",
        "null model",
        "explains",
        "Lyon",
        "Brest",
        "hospital",
    ):
        assert words in result.stdout
    assert "hospital" not in fine(*args).stdout and fine(*args, "-q").output == ""


def test_a_number_that_is_none_is_null(inbox, whole):
    pq.write_table(changed(whole, "y", [1.0] * 900), "rows.parquet")
    pq.write_table(changed(whole, "w", [0.0] * 900), "none.parquet")
    args = ["--target", "y", "--weight", "w"]
    found = told("evaluate", "Lyon.moe.json", "rows.parquet", *args)
    assert found["r2"] is None and found["rmse"] > 0
    found = told("evaluate", "Lyon.moe.json", "none.parquet", *args)
    assert found["rmse"] is None and found["log_likelihood"] is None and found["rows"] == 900


@pytest.mark.parametrize(
    ("family", "values", "expected"),
    [
        ("classes", ["a", "d", "b"], {"code": "class_unknown", "label": "d"}),
        ("poisson", [1.0, 2.5, 0.0], {"code": "not_counts", "value": 2.5}),
    ],
)
def test_a_response_that_the_model_does_not_know(family, values, expected):
    rows = table(family)
    pq.write_table(rows, "rows.parquet")
    how = [*FIT, "--family", family, *LYON, "-o", "m.json"]
    fine("fit", "rows.parquet", *how)
    pq.write_table(changed(rows, "y", values * 300), "other.parquet")
    line = fails("evaluate", "m.json", "other.parquet", "--target", "y", **expected)
    assert "other.parquet" in line


# -- what a site sends besides ---------------------------------------------------------------------


ALL = ["--sketch", "--grams", "--share", 20]


@pytest.fixture(scope="module")
def generous(whole, tmp_path_factory):
    """Return a folder with messages of sites that send all they can."""
    folder = tmp_path_factory.mktemp("generous")
    for name in SITES:
        pq.write_table(part(whole, name), folder / "rows.parquet")
        how = [*FIT, "--columns", "x0,x1", "--site", name, "-o", folder / f"{name}.moe.json"]
        fine("fit", folder / "rows.parquet", *how, *ALL, *unguarded(folder))
    return folder


@pytest.fixture
def brought(generous):
    """Return their files, and a check that the model of a command is that of the function."""
    names = [generous / f"{name}.moe.json" for name in SITES]

    def check(*words, support=None, **options):
        found = told("aggregate", *names, *words, "-o", "m.json")
        expected = otmoe.aggregate(list(map(LocalModel.load, names)), support, **options)
        assert_allclose(load_model("m.json").to_vector(), expected.model.to_vector(), rtol=1e-9)
        return found, expected

    return names, check


def test_what_is_not_asked_for_is_not_sent(sent, generous):
    plain, full = (LocalModel.load(f / "Lyon.moe.json") for f in (sent, generous))
    assert plain.sketch is None and plain.support is None and plain.grams is None
    assert full.sketch is not None and full.support.shape == (20, 2) and full.grams is not None
    # but for rounding, which the generous sites leave out
    assert_allclose(full.model.to_vector(), plain.model.to_vector(), rtol=0.05, atol=0.05)


def test_inspect_tells_what_each_part_reveals(generous, whole):
    path = generous / "Lyon.moe.json"
    found = told("inspect", path)
    names = ["about", "parameters", "features", "sketch", "Grams", "support rows"]
    assert [part["name"] for part in found["parts"]] == names
    assert found["rows_of_x"] == 20 and found["verdict"] == "do not send"
    assert found["bytes"] == sum(p["bytes"] for p in found["parts"]) == path.stat().st_size
    document = json.loads(path.read_text())
    for field, name in [("sketch", "sketch"), ("grams", "Grams"), ("support", "support rows")]:
        size = len(json.dumps(document[field]).encode())
        (said,) = [p["bytes"] for p in found["parts"] if p["name"] == name]
        assert size < said < 2 * size + 200
    shown = fine("inspect", path).stdout
    assert "It contains 20 rows of x unchanged" in shown and "rule share" in shown
    rows = np.column_stack([part(whole, "Lyon").column(name) for name in ("x0", "x1")]).tolist()
    assert all(row in rows for row in document["support"])


def test_points_are_drawn_from_what_the_messages_bring(brought):
    names, check = brought
    found, expected = check("--n-support", 500, support=500)
    assert found["support_points"] == 500 and found["support"] == "drawn from the messages"
    assert expected.n_support == 500
    messages = list(map(LocalModel.load, names))
    refused("not_whole", name="support", value=0).by(otmoe.aggregate, messages, 0)


def test_one_generous_site_is_enough_and_the_others_are_named(sent, generous):
    args = [generous / "Lyon.moe.json", sent / "Brest.moe.json", sent / "Nantes.moe.json"]
    result = fine("aggregate", *args, "--json", "-o", "m.json")
    (warning,) = json.loads(result.stdout)["warnings"]
    assert warning["code"] == "sites_silent" and warning["sites"] == ["Brest", "Nantes"]
    assert result.stderr == f"warning: {warning['text']}\n"
    fails("aggregate", *args[1:], "--force", "-o", "m.json", code="shell_no_support")


@pytest.mark.parametrize(
    ("option", "value", "code", "facts"),
    [
        ("site_weight", "covariate", "no_sketches", {"sites": ["Brest"]}),
        ("method", "gram", "no_grams", {"site": "Brest"}),
    ],
)
def test_what_needs_sketches_or_grams_names_who_lacks_them(
    sent, brought, option, value, code, facts
):
    names, check = brought
    words = [f"--{option.replace('_', '-')}", value]
    check(*words, **{option: value})
    others = [sent / "Brest.moe.json", *names[1:]]
    fails("aggregate", *others, *words, "--force", "-o", "m.json", code=code, **facts)


def test_a_site_shares_at_most_what_it_has(whole):
    pq.write_table(whole.slice(0, 100), "few.parquet")
    fine("fit", "few.parquet", *FIT, *LYON, "--share", 5000, "-o", "m.json", *unguarded())
    assert LocalModel.load("m.json").support.shape == (100, 2)
    result = call("fit", "few.parquet", *FIT, *LYON, "--share", 10**6, "-o", "n.json")
    assert result.exit_code == 2 and "10000" in result.stderr


def test_a_site_that_stands_out_is_named_and_can_be_left_out(generous, tmp_path):
    copytree(generous, tmp_path, dirs_exist_ok=True)
    odd = LocalModel.load("Lyon.moe.json")
    experts = replace(odd.model.experts, coef=odd.model.experts.coef + 50)
    replace(odd, site="Paris", model=replace(odd.model, experts=experts)).save("Paris.moe.json")
    result = fine("aggregate", "*.moe.json", "--json", "-o", "m.json")
    found = json.loads(result.stdout)
    flagged = {site["site"]: bool(site["flagged"]) for site in found["sites"]}
    assert flagged == {"Brest": False, "Lyon": False, "Nantes": False, "Paris": True}
    assert found["sites"][3]["disagreement"] > found["sites"][0]["disagreement"]
    warning, other = found["warnings"]
    assert other["code"] == "sites_differ" and "Paris" in other["sites"]
    assert warning["code"] == "sites_stand_out" and warning["sites"] == ["Paris"]
    assert "--exclude-flagged" in warning["text"] and warning["text"] in result.stderr
    assert "stands out" in fine("aggregate", "*.moe.json", "--force", "-o", "m.json").stdout
    args = ["aggregate", "*.moe.json", "--exclude-flagged", "--force", "-o", "m.json"]
    found = told(*args)
    assert list(found["left_out"]) == ["Paris"]
    assert [site["site"] for site in found["sites"]] == SITES
    assert "Paris" in fine(*args).stdout
    assert "Paris" not in json.loads(Path("m.json").read_text())["about"]["sites"]


# -- very many messages ----------------------------------------------------------------------------


@pytest.fixture
def crowd(inbox):
    """Return a folder with the messages of twelve sites, near those of three."""
    folder, rng = inbox / "crowd", np.random.default_rng(0)
    folder.mkdir()
    for m in range(12):
        base = LocalModel.load(inbox / f"{SITES[m % 3]}.moe.json")
        vector = base.model.to_vector()
        model = base.model.with_vector(vector + rng.normal(0, 0.01, len(vector)))
        replace(base, site=f"site {m}", model=model).save(folder / f"{m:02d}.moe.json")
    return folder


GROUPED = ["--group-size", 4, "--method", "reduction", *MERGE]


@pytest.fixture
def one_core(monkeypatch):
    monkeypatch.setattr("loky.cpu_count", lambda: 1)


def test_many_messages_are_merged_in_groups(crowd, one_core):
    told_in_groups = told("aggregate", "crowd", *GROUPED)
    assert told_in_groups["n_sites"] == 12 and len(told_in_groups["sites"]) == 3
    members = [name for group in told_in_groups["groups"].values() for name in group]
    assert sorted(members) == sorted(f"site {m}" for m in range(12))
    sizes = sum(path.stat().st_size for path in crowd.iterdir())
    assert told_in_groups["bytes"] == sizes
    at_once = told("aggregate", "crowd", "--method", "reduction", *MERGE, "--force")
    assert_allclose(told_in_groups["rows"], at_once["rows"])
    shown = fine("aggregate", "crowd", *GROUPED, "--force").stdout
    assert "12 in 3 groups" in shown


def test_bad_and_excluded_messages_of_many(crowd, one_core):
    (crowd / "05.moe.json").write_text("{")
    fails("aggregate", "crowd", *GROUPED, code="unreadable_messages", bad=1, messages=12)
    done = told("aggregate", "crowd", *GROUPED, "--skip-bad", "--exclude", "site 3")
    assert done["n_sites"] == 10 and list(done["unreadable"]) == ["crowd/05.moe.json"]
    how = [*GROUPED, "--skip-bad", "--force"]
    fails("aggregate", "crowd", *how, "--exclude", "nobody", code="shell_exclude_unknown")
    other = otmoe.simulate(10, 2, 5, random_state=0).truth
    strange = LocalModel("strange", other, 300.0, -300.0, True, "drawn, not fitted")
    strange.save(crowd / "99.moe.json")
    fails("aggregate", "crowd", *how, code="group_failed")


def test_equal_weights_of_many(crowd, one_core):
    first = LocalModel.load(crowd / "00.moe.json")
    heavy = replace(first, n_samples=3e4, log_likelihood=first.log_likelihood * 3e4 / 300)
    heavy.save(crowd / "00.moe.json")
    done = told("aggregate", "crowd", *GROUPED, "--site-weight", "equal")
    assert_allclose([site["weight"] for site in done["sites"]], 1 / 3)
    for path in crowd.iterdir():
        path.write_text("{")
    fails("aggregate", "crowd", *GROUPED, "--force", code="unreadable_messages")
