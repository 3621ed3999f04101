"""Counts that may leave a site: right, and none of few rows."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from otmoe.data.survey import (
    SurveyedColumn,
    SurveyedSite,
    _hidden,
    guarded,
    survey,
)

pytestmark = pytest.mark.usefixtures("own_folder")
LEAST = 10
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame(
    {
        "y": RNG.standard_normal(300),
        "age": np.where(RNG.random(300) < 0.2, np.nan, 50.0),
        "town": RNG.choice(["Lyon", "Brest", "Metz", "Nice"], 300, p=[0.6, 0.3, 0.08, 0.02]),
        "id": [f"p{i}" for i in range(300)],
        "day": pd.date_range("2024-01-01", periods=300),
        "sick": RNG.random(300) < 0.5,
        "site": RNG.choice(["a", "b"], 300),
    }
)


def by_name(site):
    return {column.name: column for column in site.columns}


@pytest.mark.parametrize("kind", ["parquet", "csv", "feather"])
def test_counts_are_those_of_the_frame(kind):
    getattr(FRAME, f"to_{kind}")(f"a.{kind}", **({"index": False} if kind == "csv" else {}))
    found = survey(f"a.{kind}", site_column="site")
    assert [site.site for site in found] == ["a", "b"]
    for site in found:
        rows = FRAME[FRAME["site"] == site.site]
        columns = by_name(site)
        assert site.n_rows == len(rows) and "site" not in columns
        assert {n: c.kind for n, c in columns.items()} == {
            "y": "number",
            "age": "number",
            "town": "text",
            "id": "text",
            "day": "time",
            "sick": "number",
        }
        assert {n: c.missing for n, c in columns.items()} == rows.isna().sum()[:-1].to_dict()
        assert columns["town"].levels == rows["town"].value_counts().to_dict()
        assert columns["id"].levels is None and columns["id"].distinct == len(rows)
        assert columns["y"].levels is None and columns["y"].distinct is None


def test_a_column_that_a_file_lacks_is_missing_there_and_kinds_have_to_agree():
    FRAME.to_parquet("a.parquet")
    FRAME.drop(columns="age").to_parquet("b.parquet")
    (found,) = survey(["a.parquet", "b.parquet"])
    assert found.n_rows == 600
    assert by_name(found)["age"].missing == FRAME["age"].isna().sum() + 300
    FRAME.assign(age="old").to_parquet("b.parquet")
    refused("kinds_differ", column="age").by(survey, ["a.parquet", "b.parquet"])


def test_rows_without_a_site_are_refused():
    FRAME.assign(site=FRAME["site"].where(FRAME.index > 2)).to_parquet("a.parquet")
    refused("site_missing", column="site", count=3).by(survey, "a.parquet", site_column="site")


@pytest.mark.parametrize("seed", range(30))
def test_nothing_small_can_be_told_from_what_is_shown(seed):
    rng = np.random.default_rng(seed)
    cells = dict(enumerate(rng.choice([0, 1, 4, 9, 10, 30, 200], 6).tolist()))
    hidden = _hidden(cells, LEAST)
    shown = {name: n for name, n in cells.items() if name not in hidden}
    assert all(n == 0 or n >= LEAST for n in shown.values())
    # the total is known, and with it what the hidden cells have together
    rest = sum(cells.values()) - sum(shown.values())
    assert rest == 0 or rest >= LEAST or len(hidden) == sum(n > 0 for n in cells.values())
    # and no more is hidden than it takes: every smaller choice that hides the small ones tells
    small = {name for name, n in cells.items() if 0 < n < LEAST}
    for size in range(len(small), len(hidden)):
        for choice in combinations(hidden, size):
            if small <= set(choice):
                assert sum(cells[name] for name in choice) < LEAST


def test_levels_and_gaps_of_few_rows_are_hidden():
    levels = Counter({"Lyon": 80, "Brest": 12, "Metz": 4, "Nice": 2})
    column = SurveyedColumn("town", "text", 2, levels, distinct=4)
    (found,) = guarded(SurveyedSite("a", 100, (column,)), LEAST).columns
    # 4 + 2 + 2 would be 8 rows together, so that Brest has to hide them
    assert found.levels == {"Lyon": 80} and found.hidden == 3 and found.missing is None
    (found,) = guarded(SurveyedSite("a", 100, (column,)), least=1).columns
    assert found == column


@pytest.mark.parametrize("missing", [3, 97])
def test_few_gaps_or_few_values_of_a_number_are_hidden(missing):
    column = SurveyedColumn("age", "number", missing)
    assert guarded(SurveyedSite("a", 100, (column,)), LEAST).columns[0].missing is None


def test_a_site_of_few_rows_tells_names_and_kinds_alone():
    column = SurveyedColumn("town", "text", 0, {"Lyon": 9}, distinct=1)
    found = guarded(SurveyedSite("a", 9, (column,)), LEAST)
    assert found == SurveyedSite("a", None, (SurveyedColumn("town", "text", None),))


def test_counts_are_rounded_so_that_one_more_row_seldom_shows():
    levels = {"Lyon": 83, "Brest": 12, "Metz": 13}
    column = SurveyedColumn("town", "text", 14, levels, distinct=3)
    found = guarded(SurveyedSite("a", 122, (column,)), LEAST, step=5)
    assert found.n_rows == 122
    assert found.columns[0].levels == {"Lyon": 85, "Brest": 10, "Metz": 15}
    assert found.columns[0].missing == 15
    (small,) = guarded(SurveyedSite("a", 100, (replace(column, missing=1),)), 1, step=5).columns
    assert small.missing == 5  # not none


def test_people_are_counted_where_a_column_says_whose_rows_are():
    """As many as a loop over sets finds; of several files, too."""
    frame = FRAME.assign(id=[f"p{i % 40}" for i in range(300)])
    frame.to_parquet("a.parquet")
    frame.drop(columns="town")[:7].to_parquet("b.parquet")
    (found,) = survey(["a.parquet", "b.parquet"], id="id")
    columns = by_name(found)
    assert found.n_rows == 40 and "id" not in columns
    towns = {town: len(set(rows["id"])) for town, rows in frame.groupby("town")}
    assert columns["town"].levels == towns and columns["town"].missing == 7
    assert columns["age"].missing == frame["id"][frame["age"].isna()].nunique()
    frame.assign(id=frame["id"].where(frame.index > 2)).to_parquet("a.parquet")
    refused("group_missing", count=3).by(survey, "a.parquet", id="id")


def test_columns_that_are_not_allowed_are_not_read():
    FRAME.to_parquet("a.parquet")
    (found,) = survey("a.parquet", allowed=lambda name: name in ("age", "town"))
    assert [column.name for column in found.columns] == ["age", "town"]
