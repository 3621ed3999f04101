import csv
import io
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import call, fine, told
from numpy.testing import assert_allclose
from sklearn import metrics

from otmoe import load_model, simulate
from otmoe.documents.files import load_model_file
from otmoe.text.sentences import Error

HERE = ["--n-jobs", "1"]
RUN = ["run", "data", "--target", "y", "--experts", 2, "--starts", 3, *HERE]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with data in three files, and models that were merged, refined, sent."""
    folder = tmp_path_factory.mktemp("summary")
    (folder / "data").mkdir()
    data = simulate(1200, 2, 3, softness=1.0, random_state=2)
    for i in range(3):
        rows = slice(400 * i, 400 * (i + 1))
        columns = {f"x{j}": data.X[rows, j] for j in range(3)}
        pq.write_table(pa.table({"y": data.y[rows], **columns}), folder / f"data/{i}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        once = fine(*RUN, "-o", "once.json").stdout
        auto = fine(*RUN, "--refine", "auto", "-o", "auto.json").stdout
        how = ["--target", "y", "--experts", 2, "--starts", 3, "--max-iter", 200]
        for i in range(3):
            site = ["--site", f"s{i}", "--sketch", "-o", f"s{i}.moe.json"]
            fine("fit", f"data/{i}.parquet", *how, *site)
        merged = fine("aggregate", "s*.moe.json", "-o", "merged.json").stdout
    return folder, data, {"once": once, "auto": auto, "merged": merged}


@pytest.fixture(autouse=True)
def there(made, monkeypatch):
    monkeypatch.chdir(made[0])
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", ["once", "auto", "merged"])
def test_commands_end_with_the_words_of_the_summary(made, name):
    shown = fine("summary", f"{name}.json").stdout
    assert shown.strip() in made[2][name]
    assert max(map(len, shown.splitlines())) <= 90


def test_it_says_whether_the_maximum_was_reached():
    file = load_model_file("auto.json")
    shown = fine("summary", "auto.json").stdout
    rounds = file.aggregation.refinement.rounds
    assert f"reached in {rounds} rounds" in shown and "NOT reached" not in shown
    for error in file.aggregation.inference.standard_errors[:4]:
        digits = 1 - int(np.floor(np.log10(error)))
        assert f"({error:.{digits}f})" in shown
    for name in ("once", "merged"):
        shown = fine("summary", f"{name}.json").stdout
        assert "merged in one round" in shown and "for the fit of all rows" in shown
        assert not re.search(r"\d \(0\.", shown.partition("Experts")[2])  # no standard errors


def test_it_knows_how_good_the_model_is(made):
    _, data, _ = made
    model, about = load_model("once.json"), load_model_file("once.json").about
    assert_allclose(about["log-likelihood"], model.log_density(data.X, data.y).sum())
    r2 = metrics.r2_score(data.y, model.predict(data.X))
    assert_allclose(about["share explained"], r2)
    assert f"{r2:.1%}" in fine("summary", "once.json").stdout


def test_a_message_has_a_summary_too():
    shown = fine("summary", "s1.moe.json").stdout
    assert "s1, 400 rows" in shown and "otmoe inspect" in shown and "variance" in shown


def test_csv_has_every_coefficient():
    rows = list(csv.DictReader(io.StringIO(fine("summary", "auto.json", "--csv").stdout)))
    model = load_model("auto.json")
    experts = [row for row in rows if row["block"] == "expert" and row["term"] != "variance"]
    for k in range(2):
        assert_allclose([float(row[f"expert {k}"]) for row in experts], model.experts.coef[k])
    assert all(float(row["se expert 0"]) > 0 for row in rows)
    for form in (["--csv"], []):  # the name says it as well
        fine("summary", "auto.json", *form, "-o", "table.csv", "--force")
        with open("table.csv", newline="") as file:
            assert list(csv.DictReader(file)) == rows
    records = told("summary", "auto.json")["coefficients"]
    assert [row["term"] for row in records] == [row["term"] for row in rows]


def test_html_is_a_page_of_its_own():
    page = fine("summary", "auto.json", "--html").stdout
    assert page.startswith("<!doctype html>") and "src=" not in page and "http" not in page
    assert "x2" in page and "log-likelihood" in page
    assert fine("summary", "auto.json", "-o", "page.html").stdout == "written to page.html\n"
    with open("page.html", encoding="utf-8") as file:
        assert file.read() == page


def test_the_next_command_names_the_columns_of_the_fit():
    assert "otmoe evaluate auto.json TEST-DATA --target y\n" in fine("summary", "auto.json").stdout
    assert "TEST-DATA --target y\n" in fine("summary", "merged.json").stdout


def test_after_merging_too_where_the_fits_were_made_here(made, tmp_path):
    folder, _, said = made
    assert "otmoe evaluate merged.json TEST-DATA --target y" in said["merged"]
    for i in range(3):
        (tmp_path / f"s{i}.moe.json").write_bytes((folder / f"s{i}.moe.json").read_bytes())
    asked = ["aggregate", tmp_path / "s*.moe.json", "-o", tmp_path / "merged.json"]
    assert "TEST-DATA --target COLUMN" in " ".join(fine(*asked).stdout.split())
    for i, target in enumerate("yyz"):
        text = (folder / f"s{i}.moe.json.local").read_text().replace('"y"', f'"{target}"')
        (tmp_path / f"s{i}.moe.json.local").write_text(text)
    assert "TEST-DATA --target COLUMN" in " ".join(fine(*asked, "--force").stdout.split())


def test_evaluate_takes_the_target_from_the_file_or_from_beside_it(tmp_path):
    for file in ("auto.json", "merged.json", "s0.moe.json"):
        asked = ["evaluate", file, "data/0.parquet"]
        assert told(*asked) == told(*asked, "--target", "y")
    alone = tmp_path / "s0.moe.json"
    alone.write_bytes(Path("s0.moe.json").read_bytes())
    result = call("evaluate", alone, "data/0.parquet")
    words = Error["shell_evaluate_target".upper()].value.format(model="")
    assert result.exit_code == 2 and words.strip() in " ".join(result.stderr.split())


def test_why_there_are_no_standard_errors_is_said_in_a_few_words(made):
    assert "standard errors none: refine rounds provide them" in " ".join(made[2]["once"].split())
    assert made[2]["merged"].count("chose ") == 1  # how it was merged is not told twice


@pytest.mark.parametrize(
    ("args", "code"),
    [(["--csv", "--html"], "shell_one_form"), (["-o", "x.txt"], "shell_form_of_file")],
)
def test_forms_that_do_not_go_together(args, code):
    result = call("summary", "auto.json", *args)
    assert result.exit_code == 2 and Error[code.upper()].value in " ".join(result.stderr.split())


def test_a_fit_that_was_stopped_is_told_in_options_of_the_shell():
    how = ["--target", "y", "--experts", 2, "--site", "s", "--max-iter", 1, "-o", "short.moe.json"]
    said = fine("fit", "data/0.parquet", *how).stderr
    assert "max_iter" not in said
