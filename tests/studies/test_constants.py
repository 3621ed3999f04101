"""Constants that steer the algorithms: the table names what there is, and the rule judges it."""

import re
from pathlib import Path

import pytest

import otmoe
from benchmarks import constants
from benchmarks.constants import (
    CONSTANTS,
    JOBS,
    cases,
    measure,
    patched,
    place,
    text,
    times,
    value_of,
)
from benchmarks.harness import RESULTS, Settings
from otmoe.aggregation import disagreement, screening
from studies.rows import read

QUICK, WHOLE = Settings(quick=True, threads=(1,)), Settings(quick=False, threads=(1,))
ROWS = read(RESULTS / "constants.csv")
PACKAGE = Path(otmoe.__file__).parent


@pytest.mark.parametrize("constant", CONSTANTS)
def test_every_constant_of_the_table_is_there_and_says_where_it_was_measured(constant):
    module, name = place(constant)
    assert isinstance(getattr(module, name), int | float | tuple)
    assert set(CONSTANTS[constant]) <= set(JOBS)
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert re.search(rf"^(?:\w+, )?{name}\b.*=", source, re.MULTILINE), "defined there"
    assert re.search(r"python -m benchmarks constants|\(maths 1[35]\)|docs/support.md", source)


def test_every_job_is_for_a_constant():
    assert {job for jobs in CONSTANTS.values() for job in jobs} == set(JOBS)


def test_the_file_has_the_constants_at_their_present_values():
    measured = {(row["constant"], row["value"]) for row in ROWS}
    assert measured == {(constant, text(value_of(constant))) for constant in CONSTANTS}
    asked = {tuple(case.values()) for case in cases(WHOLE)}
    assert {tuple(row[key] for key in cases(WHOLE)[0]) for row in ROWS} == asked


def test_the_verdicts_of_the_file_are_those_of_the_rule():
    for row in ROWS:
        before, after = float(row["at_value"]), float(row["at_tried"])
        rounding = 1e-4 * max(abs(before), abs(after))  # the file has five digits
        found = {
            constants.verdict(row["metric"], before, after + shift * rounding)
            for shift in (-1, -0.1, 0, 0.1, 1)
        }
        assert row["verdict"] in found


@pytest.mark.parametrize(
    ("metric", "before", "after", "verdict"),
    [
        ("nats", 0.02, 0.02, "same"),
        ("nats", 0.02, 0.0209, "flat"),
        ("nats", 0.02, 0.0189, "matters"),
        ("R_c", 2.0, 2.01, "flat"),
        ("R_c", 2.0, 1.97, "matters"),
        ("rounds", 7, 8, "matters"),
        ("seconds", 1.0, 1.4, "flat"),
        ("seconds", 1.0, 0.4, "matters"),
    ],
)
def test_a_change_matters_beyond_the_tolerance_of_its_metric(metric, before, after, verdict):
    assert constants.verdict(metric, before, after) == verdict


def test_a_patch_reaches_every_module_and_is_taken_back():
    with patched("aggregation.disagreement.THRESHOLD", 1.25):
        assert disagreement.THRESHOLD == screening.THRESHOLD == 1.25
    assert disagreement.THRESHOLD == screening.THRESHOLD == 5.0


def test_whole_numbers_stay_whole_and_pairs_pairs():
    assert [times(v, 0.5) for v in (3, 1, 0.3, (100, 400))] == [2, 1, 0.15, (50, 200)]
    assert text((50, 200)) == "50 to 200" and text(1e-6) == "1e-06"


def test_the_quick_version_measures():
    some = {row["constant"]: row for row in cases(QUICK)}
    assert len({constant.split(".")[0] for constant in some}) == len(some)
    found = measure(some["reporting.checks._MOST"], QUICK)
    assert found["verdict"] == "matters"  # no site has all of the weight
    assert found["at_tried"] < found["at_value"]


def test_the_table_has_a_line_for_each_constant():
    heads, body = constants.BENCHMARK.table(ROWS)
    assert [cells[0] for cells in body] == [f"`{constant}`" for constant in CONSTANTS]
    assert {len(cells) for cells in body} == {len(heads)}
