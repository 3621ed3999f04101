"""Tables as people have them: folders that name columns, separators, Feather, frames with an index.

Whatever the format, the rows are those of the same table in Parquet.
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from refusals import refused

from otmoe import DistributedMoERegressor, shards_from
from otmoe.data.columns import MARKS, check_marks
from otmoe.data.shards import rows_dropped, write_batches
from otmoe.data.shards.dialect import sniffed
from otmoe.data.shards.partitions import partitions_of
from otmoe.data.shards.sources import open_source
from otmoe.text.notices import OtmoeWarning
from otmoe.text.sentences import Warn
from otmoe.workers.failures import TasksFailed

pytestmark = pytest.mark.usefixtures("own_folder")
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "y": RNG.standard_normal(60).round(4),
        "dose": RNG.standard_normal(60).round(3),
        "town": RNG.choice(["Lyon", "Saint, Lo", "a;b"], 60),
    }
)


def rows(data, **options):
    shards = shards_from(data, target="y", **options)
    return [shard.read() for shard in shards]


def same(found, frame=FRAME):
    wanted = shards_from(frame, target="y")[0].read()
    (one,) = found
    assert_array_equal(one.X, wanted.X)
    assert_array_equal(one.y, wanted.y)


# -- separators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_separators_are_recognised(sep):
    FRAME.to_csv("a.csv", sep=sep, index=False)
    same(rows("a.csv"))


@pytest.mark.parametrize("sep", [";", "\t"])
def test_decimal_commas_are_recognised(sep):
    FRAME.to_csv("a.csv", sep=sep, decimal=",", index=False)
    same(rows("a.csv"))


def test_tables_with_tabs_are_known_by_their_name_and_may_be_packed():
    FRAME.to_csv("a.tsv.gz", sep="\t", index=False)
    same(rows("a.tsv.gz"))


def test_another_separator_has_to_be_given():
    frame = FRAME.drop(columns="town")
    frame.to_csv("a.csv", sep=":", index=False)
    refused("one_column", column="y", only="y:dose").by(rows, "a.csv")
    same(rows("a.csv", sep=":"), frame)


@pytest.mark.parametrize(
    ("text", "sep", "decimal"),
    [
        ("a,b\n1,2", ",", "."),
        ("a;b,c;d\n1;2;3", ";", "."),
        ('"x,y,z";b\n1;2,5', ";", ","),
        ("a;b\n1.5;2,5", ";", "."),  # a thousand and a half, perhaps: nobody knows
        ("alone\n1", ",", "."),
        ("", ",", "."),
    ],
)
def test_the_header_says_what_separates_columns(text, sep, decimal):
    found = sniffed(text)
    assert (found.sep, found.decimal) == (sep, decimal)


# -- other files ---------------------------------------------------------------------------------


def test_feather_arrow_and_streams_hold_the_same_rows():
    FRAME.to_feather("a.feather")
    table = pa.Table.from_pandas(FRAME)
    assert write_batches("b.arrow", table.schema, table.to_batches(max_chunksize=7)) == 60
    with pa.ipc.new_stream("c.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    for name in ("a.feather", "b.arrow", "c.arrow"):
        same(rows(name))
        assert shards_from(name, target="y")[0].n_rows == 60


def test_an_arrow_file_is_cut_anywhere():
    table = pa.Table.from_pandas(FRAME)
    with pa.ipc.new_file("a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    source = open_source(os.path.abspath("a.arrow"))
    assert source.groups == [7] * 8 + [4]
    for start, stop in [(0, None), (0, 60), (5, 9), (13, 15), (20, 20), (59, 60)]:
        found = [
            batch.column("dose").to_numpy() for batch in source.batches(["dose"], (), start, stop)
        ]
        assert_array_equal(np.concatenate([np.empty(0), *found]), FRAME["dose"][start:stop])
    parts = rows("a.arrow", cut=7)
    assert_array_equal(np.concatenate([part.y for part in parts]), FRAME["y"])


# -- folders that name a column ------------------------------------------------------------------


def hive(frame=FRAME, ending="parquet"):
    for name, part in frame.groupby("town"):
        folder = Path("data", f"site={name}")
        folder.mkdir(parents=True)
        part = part.drop(columns="town")
        if ending == "parquet":
            part.to_parquet(folder / "part.parquet", index=False)
        else:
            part.to_csv(folder / "part.csv", index=False)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_folder_names_the_site(ending):
    hive(ending=ending)
    shards = shards_from("data", target="y", site_column="site")
    assert [shard.name for shard in shards] == sorted(FRAME["town"].unique())
    for shard in shards:
        found = shard.read()
        assert found.X.shape[1] == 1  # the folder is no feature unless it is named
        assert_array_equal(found.y, FRAME["y"][FRAME["town"] == shard.name])


def test_a_folder_is_a_feature_where_it_is_named():
    hive()
    from otmoe.data.features import Column, FeatureSpec

    towns = tuple(sorted(FRAME["town"].unique()))
    spec = FeatureSpec((Column("dose"), Column("site", "category", towns)))
    found = rows("data", features=spec)
    for part, town in zip(found, towns, strict=True):
        wanted = [float(town == level) for level in towns[1:]]
        assert_array_equal(part.X[:, 1:], np.tile(wanted, (len(part.y), 1)))


def test_a_column_of_the_file_counts_for_more_than_the_folder():
    folder = Path("town=nowhere")
    folder.mkdir()
    FRAME.to_parquet(folder / "a.parquet")
    names = [shard.name for shard in shards_from(folder, target="y", site_column="town")]
    assert names == sorted(FRAME["town"].unique())


def test_what_folders_name():
    assert partitions_of("/a/year=2024/b/site=x=y/part.csv") == {"year": "2024", "site": "x=y"}
    assert partitions_of("/a/=b/2=c/x/part=1.csv") == {}


# -- parts without rows --------------------------------------------------------------------------


def test_parts_without_rows_are_skipped_and_counted():
    for i in range(3):
        FRAME[i * 20 : i * 20 + 20].to_parquet(f"part-{i}.parquet")
    quick = {"n_init": 1, "random_state": 0, "refine": 1}
    without = DistributedMoERegressor(1, **quick).fit_shards(
        shards_from("part-*.parquet", target="y", features=["dose"])
    )
    FRAME[:0].to_parquet("part-1a.parquet")
    est = DistributedMoERegressor(1, **quick)
    with pytest.warns(UserWarning) as caught:
        est.fit_shards(shards_from("part-*.parquet", target="y", features=["dose"]))
    expected = Warn.EMPTY_SHARDS(
        sites=("part-1a.parquet",), count=1, total=4, name="part-1a.parquet"
    )
    assert est.warnings_ == (expected,) and len(caught) == 1
    assert est.n_shards_ == 3 and est.n_rows_ == 60
    assert est.model_.to_vector() == pytest.approx(without.model_.to_vector())


def test_if_no_part_has_rows_there_is_nothing_to_fit():
    for i in range(2):
        FRAME[:0].to_parquet(f"part-{i}.parquet")
    FRAME.to_parquet("all.parquet")
    spec = shards_from("all.parquet", target="y")[0].features
    shards = shards_from("part-*.parquet", target="y", features=spec)
    with pytest.raises(TasksFailed) as found:
        DistributedMoERegressor(1).fit_shards(shards)
    assert [failure.cause.code for failure in found.value.failures] == ["no_rows", "no_rows"]


# -- columns -------------------------------------------------------------------------------------


def test_the_index_of_a_frame_is_named_and_left_out():
    FRAME.to_csv("a.csv")
    with pytest.warns(OtmoeWarning) as caught:
        found = rows("a.csv")
    assert caught[0].message.codes == ("index_left_out",)
    same(found)
    odd = FRAME.set_index(pd.Index(np.arange(60)[::-1] ** 2)).drop(columns="town")
    odd.to_parquet("b.parquet")
    pd.read_csv("a.csv").to_csv("c.csv", index=False)
    for name, column in (("b.parquet", "__index_level_0__"), ("c.csv", "Unnamed: 0")):
        with pytest.warns(OtmoeWarning, match=column):
            shards_from(name, target="y")
    assert rows("b.parquet", features=["__index_level_0__"])[0].X[1, 0] == 58.0**2


@pytest.mark.parametrize("mark", ["-", "?", ".", " - "])
def test_a_mark_in_a_column_of_numbers_is_said(mark):
    text = FRAME["dose"].astype(str)
    text[3] = mark
    FRAME.assign(dose=text).to_csv("a.csv", index=False)
    refused("stray_mark", column="dose", mark=mark.strip()).by(rows, "a.csv")
    text = FRAME["y"].astype(str)
    text[3] = mark
    FRAME.assign(y=text).to_csv("a.csv", index=False)
    refused("stray_mark", column="y", mark=mark.strip()).by(rows, "a.csv")


def test_a_mark_after_the_first_rows_is_said():
    frame = pd.concat([FRAME.drop(columns="town")] * 5000, ignore_index=True)
    text = frame["dose"].astype(str)
    text.iloc[-1] = "-"
    frame.assign(dose=text).to_csv("a.csv", index=False)
    refused("stray_mark", column="dose", mark="-").by(rows, "a.csv")


def test_marks_among_words_and_codes_are_levels():
    for values in (["-", "yes"], ["-", "2A", "75"], ["1", "2"], list(MARKS)):
        check_marks(values, "column")


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [("does", "did you mean 'dose'? "), ("TOWN", "did you mean 'town'? "), ("zzz", "")],
)
def test_a_name_that_is_nearly_right_is_suggested(wanted, hint):
    refused("no_column", column=wanted, hint=hint).by(rows, FRAME, features=[wanted])


def test_a_category_may_have_more_levels_where_it_is_asked_for():
    frame = FRAME.assign(town=[f"t{i}" for i in range(60)])
    frame.to_parquet("a.parquet")
    for data in (frame, "a.parquet"):
        refused("many_levels", column="town", levels=60, most=50).by(rows, data)
        assert rows(data, max_levels=60)[0].X.shape == (60, 60)


# -- rows that are dropped -----------------------------------------------------------------------


def test_rows_that_are_dropped_are_counted_by_column():
    frame = FRAME.assign(
        dose=FRAME["dose"].where(np.arange(60) > 49), y=FRAME["y"].where(FRAME.index != 55)
    )
    frame.to_parquet("a.parquet")
    frame.to_csv("a.csv", index=False)
    for data in (frame, "a.parquet", "a.csv"):
        (found,) = rows(data, missing="drop")
        assert found.dropped == 51 and len(found.y) == 9
        assert {name: n for name, n in found.missing.items() if n} == {"dose": 50, "y": 1}
        notice = rows_dropped(found.dropped, len(found.y), found.missing)
        assert "51 of 60 rows" in str(notice) and "(dose in 50, y in 1)" in str(notice)


def test_too_few_rows_are_left_because_of_a_column():
    FRAME.assign(dose=FRAME["dose"].where(np.arange(60) > 58)).to_parquet("a.parquet")
    shards = shards_from("a.parquet", target="y", missing="drop")
    with pytest.raises(
        TasksFailed, match=r"59 of 60 rows .*dose in 59.* 1 are left for 2"
    ) as found:
        DistributedMoERegressor(2).fit_shards(shards)
    assert found.value.failures[0].cause.code == "rows_left"
