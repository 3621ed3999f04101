"""``otmoe refine``: three sites, a server, and files between them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import call, fails, fine, leftovers, told, unguarded
from numpy.testing import assert_allclose
from oracles import distance
from scipy import stats

from otmoe import FeatureSpec, load_features, load_model, observed_inference, save_model, simulate
from otmoe.cli.words import SHELL
from otmoe.data.columns import Column
from otmoe.documents.reply import RefineReply
from otmoe.documents.state import RefineState
from otmoe.federation.policy.rules import Policy
from otmoe.federation.rounds import request_of
from otmoe.likelihood.fit import em
from otmoe.model.target import class_codes
from otmoe.text.sentences import Status, Warn

SITES = ["Brest", "Lyon", "Nantes"]
SPEC = FeatureSpec((Column("x0", center=0.5, scale=2.0), Column("x1")))
LABELS = np.array(["no", "yes"])


def table(family):
    kind = "logistic" if family == "classes" else family
    data = simulate(1500, 2, 2, family=kind, softness=1.0, random_state=3)
    y = LABELS[data.y.astype(int)] if family == "classes" else data.y
    weight = np.tile([1.0, 2.0, 1.0], 500)
    return pa.table({"y": y, "x0": data.X[:, 0], "x1": data.X[:, 1], "w": weight})


def fitted(folder, family):
    """Write rows and messages of three sites and the merged model; return all rows."""
    rows = table(family)
    SPEC.save(folder / "features.json")
    how = ["--target", "y", "--weight", "w", "--experts", 2, "--family", family]
    how += ["--features", folder / "features.json", "--sketch", "--n-init", 3]
    for i, name in enumerate(SITES):
        pq.write_table(rows.slice(500 * i, 500), folder / f"{name}.parquet")
        out = folder / f"{name}.moe.json"
        fine("fit", folder / f"{name}.parquet", *how, "--site", name, "-o", out)
    fine("aggregate", folder / "*.moe.json", "-o", folder / "model.json")
    return rows


@pytest.fixture(scope="module", params=["gaussian", "classes"])
def both(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, fitted(folder, request.param)


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """Return a folder with three sites, of whom all have answered the first round."""
    folder = tmp_path_factory.mktemp("sent")
    fitted(folder, "gaussian")
    begin(folder)
    for name in SITES:
        reply(folder, name, 1)
    return folder


@pytest.fixture
def inbox(sent, own_folder, tmp_path):
    """Work in a copy of it, to be spoilt."""
    copytree(sent, tmp_path, dirs_exist_ok=True)
    return tmp_path


def begin(folder, *more):
    where = ["--state", folder / "state.json", "-o", folder / "round1.request.json"]
    return fine("refine", "start", folder / "model.json", folder / "*.moe.json", *where, *more)


def reply(folder, name, number, *more):
    where = ["-o", folder / f"{name}.round{number}.reply.json"]
    return fine(
        *("refine", "answer", folder / f"round{number}.request.json", folder / f"{name}.parquet"),
        *("--target", "y", "--weight", "w", "--site", name, *where, *more),
    )


STEP = ["refine", "step", "state.json"]
NEXT = "Next: otmoe evaluate refined.json TEST-DATA --target "
OUT = ["-o", "refined.json"]


def one_round(folder, *more, names=tuple(SITES)):
    """Take the only step, have sites look at it, and return what is said at the end."""
    first = [f"{name}.round1.reply.json" for name in names]
    fine(*STEP, *first, *OUT, "--force", *more)
    for name in names:
        reply(folder, name, 2, "--force")
    return fine(*STEP, *(name.replace("1", "2") for name in first), *OUT, "--force", *more)


def test_the_next_command_names_the_target_where_the_fits_were_made_here(inbox):
    assert f"{NEXT}y\n" in one_round(inbox).stdout


def test_the_next_command_leaves_the_target_open_at_a_server_that_was_not_told(inbox):
    for beside in inbox.glob("*.moe.json.local"):
        beside.unlink()
    fine("aggregate", "*.moe.json", "-o", "model.json", "--force")
    begin(inbox, "--force")
    for name in SITES:
        reply(inbox, name, 1, "--force")
    assert f"{NEXT}COLUMN\n" in one_round(inbox).stdout


def merging(path):
    """Return what a model file says about its merging, and what the report on it shows of that."""
    page = path.with_suffix(".html")
    fine("report", path, "-o", page, "--force")
    text = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)[1]
    return json.loads(path.read_text()).get("aggregation"), json.loads(text)["aggregation"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def changes_nothing(folder, *args, **expected):
    """Return the line of a command that fails and leaves a folder as it was."""
    before = contents(folder)
    line = fails(*args, **expected)
    assert contents(folder) == before
    return line


@pytest.mark.parametrize(("rules", "near"), [("off.json", 1e-3), ("built-in.json", 3e-2)])
def test_the_whole_route_ends_at_the_fit_of_all_rows(both, rules, near):
    family, folder, rows = both
    policies = {"off.json": Policy.off(), "built-in.json": Policy()}
    folder.joinpath(rules).write_text(policies[rules].model_dump_json())
    for old in (*folder.glob("round*"), *folder.glob("*reply*"), *folder.glob("refined*")):
        old.unlink()
    begin(folder, "--force")
    number = 0
    while not (folder / "refined.json").exists():
        number += 1
        for name in SITES:
            reply(folder, name, number, "--policy", folder / rules)
        found = fine(
            *("refine", "step", folder / "state.json", folder / f"*.round{number}.reply.json"),
            *("-o", folder / "refined.json", "--json"),
        )
    report = json.loads(found.stdout)
    assert report["done"] and report["converged"] and report["round"] == number <= 15
    assert not (folder / f"round{number + 1}.request.json").exists()
    model = load_model(folder / "refined.json")
    assert load_features(folder / "refined.json") == SPEC

    X, y, w = SPEC.encode(rows), rows.column("y").to_numpy(), rows.column("w").to_numpy()
    if family == "classes":
        y = class_codes(y.astype(str), LABELS)
        assert model.classes.tolist() == LABELS.tolist()
    fit = em(X, y, 2, family=model.experts.family, sample_weight=w, init=model)
    order = fit.model.order_like(model, X)
    assert distance(model, fit.model.take(order), X, y, w) < near
    # and its standard errors are those of that fit
    expected = observed_inference(fit.model.take(order), X, y, sample_weight=w).table()
    errors = np.array([row["se"] for row in report["estimates"]], dtype=float)  # none where unknown
    assert_allclose(errors, [e.se for e in expected], rtol=max(near / 3, 1e-3))
    about = json.loads((folder / "refined.json").read_text())["about"]
    assert about["number of sites"] == 3 and about["rounds"] == number
    assert_allclose(about["rows"], w.sum())
    assert leftovers(folder) == []
    # and the file says of the sites what the merged one said
    before, (after, shown) = merging(folder / "model.json")[0], merging(folder / "refined.json")
    assert {site["site"] for site in shown["sites"]} == set(SITES)
    assert shown["refinement"]["rounds"] == number and shown["refinement"]["trace"]
    assert after["status"] == {"code": "refined", "text": shown["status"]}
    ends = {"merging": before["status"]["text"], "rounds": report["status"]["text"]}
    assert shown["status"] == str(Status.REFINED(**ends))
    assert report["status"]["code"] == "at_maximum"
    errors = np.array(after["inference"]["standard_errors"], dtype=float)
    assert_allclose(np.array(shown["inference"]["standard_errors"], dtype=float), errors)
    changed = {"refinement", "inference", "no_inference", "status", "warnings", "gate"}
    for key in before.keys() - changed:
        assert after[key] == before[key]
    assert after.keys() ^ before.keys() == {"refinement", "inference", "no_inference", "gate"}


def test_a_step_makes_the_next_request_and_says_how_far_it_is(inbox):
    found = fine(*STEP, "*.round1.reply.json", *OUT)
    assert "the next request is round2.request.json" in found.stdout
    assert not Path("refined.json").exists()
    after = RefineState.load("state.json").refinement
    assert after.rounds == 1 and after.status.code == "not_at_maximum"
    assert str(after.status) in found.stdout


def test_a_folder_of_replies_is_its_files(inbox):
    Path("replies").mkdir()
    for path in Path().glob("*.reply.json"):
        path.rename(Path("replies") / path.name)
    fine(*STEP, "replies", *OUT, "--request", "next.json")
    assert Path("next.json").exists() and not Path("round2.request.json").exists()


def test_the_last_of_so_many_rounds_writes_the_model(inbox):
    begin(inbox, "--rounds", "1", "--force")
    found = one_round(inbox)
    assert RefineState.load("state.json").refinement.kept
    assert f"warning: {Warn.SHELL_NOT_AT_MAXIMUM()}" in found.stderr
    assert str(Warn.SHELL_NO_INFERENCE(why="")) in found.stderr
    status = str(RefineState.load("state.json").refinement.status)
    over = {"code": "shell_rounds_over", "status": status}
    args = [*STEP, "*.round2.reply.json", "-o", "again.json"]
    assert "state.json: " in changes_nothing(inbox, *args, **over)


def test_a_start_that_does_not_know_its_sites_ends_in_a_model_alone(inbox):
    fine("aggregate", "*.moe.json", "--model-only", "-o", "model.json", "--force")
    begin(inbox, "--rounds", "1", "--force")
    assert RefineState.load("state.json").aggregation is None
    one_round(inbox)
    assert merging(Path("refined.json").resolve()) == (None, None)


def test_the_sites_can_be_left_out_of_the_last_file(inbox):
    begin(inbox, "--rounds", "1", "--force")
    state = Path("state.json").read_bytes()
    one_round(inbox, "--model-only")
    assert merging(Path("refined.json").resolve()) == (None, None)
    alone = load_model("refined.json").to_vector()
    Path("state.json").write_bytes(state)
    one_round(inbox)
    document, shown = merging(Path("refined.json").resolve())
    assert "no_inference" in document and shown["refinement"]["rounds"] == 1
    assert load_model("refined.json").to_vector().tolist() == alone.tolist()


def test_a_refined_model_can_be_refined_on(inbox):
    begin(inbox, "--rounds", "1", "--force")
    one_round(inbox)
    Path("refined.json").replace("model.json")
    before = json.loads(Path("model.json").read_text())["aggregation"]["status"]
    begin(inbox, "--rounds", "1", "--force", "--exclude", "Lyon")
    for name in ("Brest", "Nantes"):
        reply(inbox, name, 1, "--force")
    one_round(inbox, names=("Brest", "Nantes"))
    document, shown = merging(Path("refined.json").resolve())
    assert {site["site"] for site in shown["sites"]} == set(SITES)
    status, now = document["status"], RefineState.load("state.json").refinement.status
    assert (status["code"], status["sites"]) == ("refined_by_others", ["Lyon"])
    assert str(Status.REFINED(merging=before["text"], rounds=str(now))) in shown["status"]


def test_a_bad_last_step_is_taken_back_and_named(inbox):
    """What nobody has seen is not handed out: sites say once more whether it was a good step."""
    begin(inbox, "--rounds", "1", "--force")
    found = fine(*STEP, "*.round1.reply.json", *OUT)
    assert "asked once more, to check it" in found.stdout and not Path("refined.json").exists()
    state = RefineState.load("state.json")
    known = state.refinement
    spoilt = known.model.with_vector(known.model.to_vector() + 1.0)
    replace(state, refinement=replace(known, model=spoilt)).save("state.json")
    request_of(RefineState.load("state.json")).save("round2.request.json")
    for name in SITES:
        reply(inbox, name, 2)
    found = fine(*STEP, "*.round2.reply.json", *OUT, "--json")
    assert json.loads(found.stdout)["status"]["code"] == "step_taken_back"
    assert f"warning: {Warn.STEP_TAKEN_BACK(rounds=1).in_words(SHELL)}" in found.stderr
    assert RefineState.load("state.json").refinement.kept is False
    merged, refined = (load_model(name).to_vector() for name in ("model.json", "refined.json"))
    assert_allclose(refined, merged, rtol=1e-9)
    document = json.loads(Path("refined.json").read_text())["aggregation"]
    assert "step_taken_back" in [notice["code"] for notice in document["warnings"]]


def test_the_summary_comes_at_the_end(inbox):
    for number in range(1, 9):
        found = fine(*STEP, f"*.round{number}.reply.json", *OUT, "--summary")
        if Path("refined.json").exists():
            break
        assert "std err" not in found.stdout
        for name in SITES:
            reply(inbox, name, number + 1)
    assert "Mixture of 2 gaussian experts" in found.stdout and "std err" in found.stdout


# -- the sandwich ----------------------------------------------------------------------------------

GROUPS = ["--groups", "patient"]


@pytest.fixture
def grouped(inbox):
    """Give every site a column of patients, and ask for the sandwich at the maximum."""
    for i, name in enumerate(SITES):
        rows = pq.read_table(f"{name}.parquet")
        labels = [f"{name} {g}" for g in np.random.default_rng(i).integers(0, 40, 500)]
        pq.write_table(rows.append_column("patient", pa.array(labels)), f"{name}.parquet")
    rows = pa.concat_tables(pq.read_table(f"{name}.parquet") for name in SITES)
    X, y, w = SPEC.encode(rows), rows.column("y").to_numpy(), rows.column("w").to_numpy()
    fit = em(X, y, 2, sample_weight=w, init=load_model("model.json"))
    named = {"feature_names": SPEC.feature_names}
    save_model(replace(fit.model, **named), "model.json", features=SPEC)
    begin(inbox, "--force", "--sandwich")
    return fit.model, X, y, w, np.array(rows.column("patient"))


@pytest.mark.parametrize(("rules", "near"), [(Policy.off(), 1e-8), (Policy(), 1e-2)])
def test_groups_by_files_are_those_of_pooled_rows(grouped, inbox, rules, near):
    model, X, y, w, patient = grouped
    Path("policy.json").write_text(rules.model_dump_json())
    for name in SITES:
        found = reply(inbox, name, 1, *GROUPS, "--force")
        assert found.stderr == "" and "each a sum over 40 groups" in found.stdout
        assert f"{name} 7" not in Path(f"{name}.round1.reply.json").read_text()
    found = fine(*STEP, "*.round1.reply.json", *OUT, "--summary", "--json")
    report = json.loads(found.stdout)
    there = observed_inference(model, X, y, sample_weight=w, groups=patient)
    assert (report["kind"], report["groups"]) == ("clustered", there.n_groups)
    assert report["unscattered"] == [] and report["df"] == there.df == there.n_groups - 1
    errors = np.array([row["se"] for row in report["estimates"]], dtype=float)
    assert_allclose(errors, [e.se for e in there.table()], rtol=near)
    high = np.array([row["high"] for row in report["estimates"]], dtype=float)
    value = np.array([row["estimate"] for row in report["estimates"]], dtype=float)
    coefficients = slice(0, -2)  # the intervals of variances are those of their logarithms
    wide = stats.t.ppf(0.975, there.df) * errors
    assert_allclose((high - value)[coefficients], wide[coefficients], rtol=1e-6)
    state = RefineState.load("state.json").inference().summary()
    assert "cluster-robust" in state and "120" in state


def test_a_site_that_does_not_agree_is_named_at_every_step(grouped, inbox):
    for name in SITES:
        found = reply(inbox, name, 1, "--force", *([] if name == "Lyon" else GROUPS))
        why = "for sandwich standard errors"
        asked = f"warning: {Warn.SHELL_SANDWICH_ASKED(why=why)}"
        assert (asked in found.stderr) == (name == "Lyon")
    state = Path("state.json").read_text()
    Path("state.json").write_text(state.replace('"most_rounds": null', '"most_rounds": 2'))
    found = fine(*STEP, "*.round1.reply.json", *OUT, "--json")
    assert json.loads(found.stdout)["unscattered"] == ["Lyon"]
    assert f"warning: {Warn.SHELL_NO_SCATTER(names='Lyon')}" in found.stderr
    report = told("inspect", "state.json")
    assert report["sandwich"] and report["unscattered"] == ["Lyon"]
    for name in SITES:
        reply(inbox, name, 2, *([] if name == "Lyon" else GROUPS))
    found = fine(*STEP, "*.round2.reply.json", *OUT, "--json")
    assert json.loads(found.stdout)["kind"] == "information"
    assert f"warning: {Warn.SCATTER_MISSING(names='Lyon')}" in found.stderr


def test_without_being_asked_a_site_sends_no_scatter(inbox):
    before = json.loads(Path("Lyon.round1.reply.json").read_text())
    found = reply(inbox, "Lyon", 1, "--force", "--sandwich")
    assert f"warning: {Warn.SHELL_SANDWICH_UNASKED()}" in found.stderr
    assert json.loads(Path("Lyon.round1.reply.json").read_text()) == before


def test_groups_that_a_site_cannot_speak_of(grouped, inbox):
    out = ["--site", "Lyon", "--weight", "w", "-o", "reply.json"]
    fails(*ANSWER, *out, "--groups", "ward", code="no_column", column="ward")
    rows = pq.read_table("Lyon.parquet")
    ward = pa.array([None, *(f"{i % 9}" for i in range(499))])
    pq.write_table(rows.append_column("ward", ward), "Lyon.parquet")
    fails(*ANSWER, *out, "--groups", "ward", code="group_missing", row=0, count=1)
    pq.write_table(rows.append_column("ward", ward.fill_null("0")), "Lyon.parquet")
    line = fails(*ANSWER, *out, "--groups", "ward", code="few_groups_to_send", groups=9, least=10)
    assert line.startswith("error: Lyon: ") and not Path("reply.json").exists()


def test_inspect_explains_a_scatter(grouped, inbox):
    reply(inbox, "Lyon", 1, "--force", *GROUPS)
    report = told("inspect", "Lyon.round1.reply.json")
    assert report["groups"] == 40 and report["warnings"] == []
    assert "scatter" in {part["name"] for part in report["parts"]}
    assert report["bytes"] == sum(part["bytes"] for part in report["parts"])
    assert "Its scatter B has 66 numbers" in fine("inspect", "Lyon.round1.reply.json").stdout
    assert told("inspect", "round1.request.json")["sandwich"]
    assert "of sites that agree to send it" in " ".join(
        fine("inspect", "state.json").stdout.split()
    )
    # no more groups than parameters: it has no more dimensions than these
    rows = pq.read_table("Lyon.parquet")
    ward = pa.array([f"{i % 11}" for i in range(500)])
    pq.write_table(rows.append_column("ward", ward), "Lyon.parquet")
    few = Warn.SHELL_FEW_GROUPS(groups=11, what="groups", parameters=11)
    found = reply(inbox, "Lyon", 1, "--force", "--groups", "ward")
    assert "rule scatter" in found.stderr and "goes without the scatter" in found.stderr
    assert told("inspect", "Lyon.round1.reply.json")["groups"] is None
    found = reply(inbox, "Lyon", 1, "--force", "--groups", "ward", *unguarded())
    assert f"warning: {few}" in found.stderr
    assert str(few) in fine("inspect", "Lyon.round1.reply.json").stdout
    assert told("inspect", "Lyon.round1.reply.json")["warnings"][0]["code"] == few.code


# -- what is refused, and changes nothing ----------------------------------------------------------


def test_a_site_that_has_not_replied_is_named(inbox):
    Path("Lyon.round1.reply.json").unlink()
    missing = {"code": "replies_missing", "round": 1, "names": "Lyon"}
    assert "--allow-missing" in changes_nothing(inbox, *STEP, "*.reply.json", *OUT, **missing)
    found = fine(*STEP, "*.reply.json", *OUT, "--allow-missing", "--json")
    assert json.loads(found.stdout)["missing"] == ["Lyon"]
    assert f"warning: {Warn.SHELL_NO_REPLY(names='Lyon')}" in found.stderr
    assert RefineState.load("state.json").refinement.missing == ((1, "Lyon"),)


def test_a_model_without_a_site_says_so(inbox):
    begin(inbox, "--rounds", "1", "--force")
    found = one_round(inbox, "--allow-missing", names=("Brest", "Nantes"))
    assert f"warning: {Warn.SHELL_MISSED(names='Lyon')}" in found.stderr
    about = json.loads(Path("refined.json").read_text())["about"]
    assert about["sites"] == "Brest, Nantes" and about["missing"] == "Lyon (round 1)"


def test_a_step_taken_twice_is_refused(inbox):
    fine(*STEP, "*.round1.reply.json", *OUT)
    twice = [*STEP, "*.round1.reply.json", *OUT, "--force"]
    line = changes_nothing(inbox, *twice, code="reply_round", round=1, wanted=2)
    assert "Brest.round1.reply.json: " in line


@pytest.mark.parametrize(
    ("spoil", "code", "facts", "named"),
    [
        (lambda text: text[:300], "json_cut", {}, ": "),
        (lambda text: text.replace("Lyon", "Metz"), "reply_unasked", {"site": '"Metz"'}, ": "),
        (lambda text: text.replace("Lyon", "Brest"), "reply_twice", {"site": '"Brest"'}, ""),
        (
            lambda text: text.replace('"log_likelihood": ', '"log_likelihood": NaN, "x-": '),
            *("field_nan", {}, ": `log_likelihood` "),
        ),
    ],
)
def test_a_bad_reply_is_named_and_costs_one_file(inbox, spoil, code, facts, named):
    path = Path("Lyon.round1.reply.json")
    path.write_text(spoil(path.read_text()))
    refuse = [*STEP, "*.reply.json", *OUT, "--odd", "refuse"]
    line = changes_nothing(inbox, *refuse, code=code, **facts)
    assert f"{path}{named}" in line
    found = fine(*STEP, "*.reply.json", *OUT, "--json")
    said = json.loads(found.stdout)
    assert said["missing"] == ["Lyon"] and said["dropped"] == {}
    assert len(said["set_aside"]) == 1 and str(path) in said["set_aside"][0]
    assert str(Warn.SHELL_SET_ASIDE(why=said["set_aside"][0])) in found.stderr
    assert RefineState.load("state.json").refinement.missing == ((1, "Lyon"),)


def test_of_two_replies_that_differ_neither_is_used(inbox):
    """Nobody can say which of them is the site's own."""
    document = json.loads(Path("Lyon.round1.reply.json").read_text())
    document["log_likelihood"] -= 1.0
    Path("other.round1.reply.json").write_text(json.dumps(document))
    found = told(*STEP, "*.reply.json", *OUT)
    assert found["missing"] == ["Lyon"] and found["dropped"] == {}
    assert "are both from site" in found["set_aside"][0]


def test_a_reply_to_a_round_that_is_over_is_no_reply(inbox):
    fine(*STEP, "*.round1.reply.json", *OUT)
    for name in SITES[1:]:
        reply(inbox, name, 2)
    late = [*STEP, "*.reply.json", *OUT]
    changes_nothing(inbox, *late, code="replies_missing", round=2, names="Brest")
    found = told(*late, "--allow-missing")
    assert found["missing"] == ["Brest"] and found["set_aside"] == []


def test_a_copy_of_a_reply_counts_once(inbox):
    Path("copy.round1.reply.json").write_bytes(Path("Lyon.round1.reply.json").read_bytes())
    found = told(*STEP, "*.round1.reply.json", *OUT)
    assert found["missing"] == found["set_aside"] == []


def test_a_file_that_is_not_there_is_a_mistake_of_the_command(inbox):
    names = ["Brest.round1.reply.json", "Lyon.json", "Nantes.round1.reply.json"]
    assert "Lyon.json" in changes_nothing(inbox, *STEP, *names, *OUT)


def test_a_state_with_a_spoilt_merging_is_refused(inbox):
    document = json.loads(Path("state.json").read_text())
    document["aggregation"]["sites"][0]["mass"] = [[0.25, 0.25]]
    Path("state.json").write_text(json.dumps(document))
    line = changes_nothing(inbox, *STEP, "*.reply.json", *OUT, code="sum_not_one", total=0.5)
    assert "state.json: `aggregation.sites[0].mass` " in line


def test_nothing_is_changed_where_an_output_is_there_already(inbox):
    path = Path("round2.request.json")
    path.write_text("dear to me")
    changes_nothing(inbox, *STEP, "*.reply.json", *OUT, code="output_exists", path=path)
    assert call(*STEP, "*.reply.json", "-o", "state.json", "--force").exit_code == 2


def test_a_disk_that_fills_up_leaves_the_state_as_it_was(inbox, monkeypatch):
    """The state is written last: a step that could not be written has not been taken."""

    def full(self, path):
        raise OSError(28, "No space left on device", str(path))

    state = Path("state.json").read_bytes()
    monkeypatch.setattr(RefineState, "save", full)
    assert "No space left" in fails(*STEP, "*.reply.json", *OUT)
    assert Path("state.json").read_bytes() == state
    monkeypatch.undo()
    monkeypatch.chdir(inbox)
    first = Path("round2.request.json").read_bytes()
    fine(*STEP, "*.reply.json", *OUT, "--force")
    assert Path("round2.request.json").read_bytes() == first


ANSWER = ["refine", "answer", "round1.request.json", "Lyon.parquet", "--target", "y"]


def test_a_site_that_forgets_its_weights_is_told_by_the_server(inbox):
    fine(*ANSWER, "--site", "Lyon", "-o", "Lyon.round1.reply.json", "--force")
    facts = {"rows": 500, "site": '"Lyon"', "fitted": RefineState.load("state.json").sites["Lyon"]}
    line = fails(*STEP, "*.reply.json", *OUT, "--odd", "refuse", code="reply_rows", **facts)
    assert "Lyon.round1.reply.json: " in line
    assert told(*STEP, "*.reply.json", *OUT)["missing"] == ["Lyon"]


def test_what_a_site_cannot_answer(inbox):
    out = ["--site", "Lyon", "-o", "reply.json"]
    args = ["refine", "answer", "Lyon.moe.json", *ANSWER[3:], *out]
    assert "Lyon.moe.json: `otmoe` " in fails(*args, code="other_document")
    fails(*ANSWER[:-1], "z", *out, code="no_column", column="z")
    pq.write_table(table("classes"), "Lyon.parquet")
    fails(*ANSWER, *out, code="target_is_text")
    assert not Path("reply.json").exists()


def test_a_model_that_was_not_merged_of_the_messages_is_refused(inbox):
    model = load_model("model.json")
    where = ["*.moe.json", "--state", "s.json", "-o", "r.json"]
    save_model(replace(model, feature_names=("x0", "x2")), "other.json")
    wrong = {"who": 'the message of site "Brest"', "other": "other.json"}
    fails("refine", "start", "other.json", *where, code="names_differ", **wrong)
    save_model(simulate(9, 2, 2, family="poisson").truth, "other.json", features=None)
    fails("refine", "start", "other.json", *where, code="family_differs", **wrong)
    assert call("refine", "start", "model.json", *where[:-1], "s.json").exit_code == 2
    assert call("refine", "start", "model.json", *where, "--rounds", "0").exit_code == 2
    assert not Path("s.json").exists() and not Path("r.json").exists()


def test_without_a_scale_nothing_begins(inbox):
    for path in Path().glob("*.moe.json"):
        document = json.loads(path.read_text())
        del document["sketch"]
        path.write_text(json.dumps(document))
    start = ["refine", "start", "model.json", "*.moe.json", "--state", "s.json", "-o", "r.json"]
    fails(*start, code="shell_no_support")
    fine(*start, "--support", "Brest.parquet", "--exclude", "Lyon")
    state = RefineState.load("s.json")
    assert list(state.sites) == ["Brest", "Nantes"]
    X = SPEC.encode(pq.read_table("Brest.parquet"))
    assert_allclose(state.refinement.scaling.x_center, X.mean(axis=0))


# -- what a data officer sees ----------------------------------------------------------------------


def test_inspect_shows_what_leaves_a_site(inbox):
    found = fine("inspect", "Lyon.round1.reply.json").stdout
    assert "a site's reply to a request: sums over its" in found
    assert "Its numbers are sums over " in found and "no value of y" not in found
    report = told("inspect", "Lyon.round1.reply.json")
    known = {m["rule"]: m["figure"] for m in report["measures"]}
    assert report["verdict"] == "consider" and known["rows"] == report["rows"]
    assert 10 < known["expert_rows"] < report["rows"] / 2
    size = Path("Lyon.round1.reply.json").stat().st_size
    assert report["bytes"] == size == sum(part["bytes"] for part in report["parts"])
    assert {"score", "information", "means"} <= {part["name"] for part in report["parts"]}
    for name in ("round1.request.json", "state.json"):
        report = told("inspect", name)
        assert report["features"] == ["x0", "x1"] and report["experts"] == 2
        assert report["bytes"] == sum(part["bytes"] for part in report["parts"])
    assert "how it was merged" in [part["name"] for part in report["parts"]]
    path = Path("Lyon.round1.reply.json")
    path.write_text(path.read_text()[:-40])
    fails("inspect", "Lyon.round1.reply.json", code="json_cut")


def test_a_reply_about_too_few_rows_is_called_that(inbox):
    pq.write_table(pq.read_table("Lyon.parquet").slice(0, 20), "Lyon.parquet")
    rules = ["parameters", "expert_rows", "question"]
    where = ["--site", "Lyon", "-o", "few.json"]
    fails(*ANSWER, *where, code="policy_refuses", rules=rules)
    assert not Path("few.json").exists()
    aside = [word for rule in rules for word in ("--override", rule)]
    found = fine(*ANSWER, *where, *aside, "--reason", "they agreed")
    assert RefineReply.load("few.json").overrides == dict.fromkeys(rules, "they agreed")
    assert "20 rows for 11 parameters, 1.8 each" in found.stdout and "overridden" in found.stdout
    report = told("inspect", "few.json")
    assert report["overrides"] == dict.fromkeys(rules, "they agreed")
    outcomes = {m["rule"]: m["outcome"] for m in report["measures"]}
    assert outcomes["parameters"] == "refuse" and outcomes["leverage"] == "warn"
    assert RefineReply.load("few.json").content.n_samples == 20


@pytest.mark.parametrize("command", ["start", "answer", "step"])
def test_help_teaches(command):
    text = fine("refine", command, "--help").stdout
    assert "Example" in text and f"otmoe refine {command} " in text
    assert max(map(len, text.splitlines())) <= 150
