"""Hostile identifiers: each gets its own mirror or a dead letter, and nothing is written outside the lake."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark, watermark_tso

NAMES = (
    *("../../etc", "..", ".", "a/b", "/etc/passwd", "\\", "a\\b", "`", "``", "a`b", "'", '"', "'; DROP TABLE x; --"),
    *("_commit_ts", "_delta_log", "_source_table", "select", "table", "order", "CON", "NUL", "nul.txt", "😀" * 64),
    *("中" * 64, "x" * 64, "orders", "Orders", "ORDERS", "é", "e\u0301", "É", "a.b", "a.b.c", ".a", "a.", "a\nb"),
    *("a\tb", " ", " a", "a ", "%2F", "%", "%s", "{0}", "${x}", "$1", "*", "?", "[a]", "a,b", "a:b", "a=b", "a;b"),
    *("--", "/*", "*/", "#", "@", "a@b", "\u202eabc", "\u200b", "\ufeff", "null", "true", "1", "-1", "1e5", "~"),
    *("part-00000.parquet", "_change_data", "t", "s", "mirror", "staged", "dropped", "\x7f", "\x01"),
)
DATABASES = NAMES[:24]
COLUMNS = (
    *NAMES,
    *(
        "_topic",
        "_partition",
        "_offset",
        "_deleted",
        "_metadata",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
    ),
    *(
        "key",
        "after",
        "deleted",
        "delta",
        "counts",
        "step",
        "replaces_row",
        "moved",
        "key_only_since",
        "has_full_image",
        "bad",
    ),
    *(
        "value_0",
        "has_0",
        "kept_0",
        "col",
        "row",
        "__index__",
        "_rescued_data",
        "_file",
        "_row_id",
        "zero_dates",
        "damaged",
    ),
)
# MySQL ignores case and some accents in column names, so these are one column to it
_SAME_COLUMN = {"Orders", "ORDERS", "É"}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _insert(database: str, table: str, data: dict[str, str | None]) -> str:
    types = {name: "int" if name == "id" else "varchar(64)" for name in data}
    return row("INSERT", table, 3, data, types=types, key=["id"], database=database)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    """A table of each name, one table in a database of each name, and one table with a column of each name."""
    folder = tmp_path_factory.mktemp("hostile") / "inner"
    topic = Topic()
    for name in NAMES:
        topic.send(
            ddl(f"CREATE TABLE {_quoted(name)} (id INT PRIMARY KEY, v VARCHAR(64))", 1, table=name, kind="CREATE")
        )
        topic.send(_insert("db", name, {"id": "1", "v": f"of {name}"}))
    for name in DATABASES:
        topic.send(_insert(name, "t", {"id": "1", "v": f"in {name}"}))
    columns = [name for name in COLUMNS if name not in _SAME_COLUMN]
    listed = ", ".join(f"{_quoted(name)} VARCHAR(64)" for name in columns)
    topic.send(ddl(f"CREATE TABLE wide (id INT PRIMARY KEY, {listed})", 1, table="wide", kind="CREATE"))
    topic.send(_insert("db", "wide", {"id": "1", **{name: f"of {name}" for name in columns}}))
    for database, table in (("", "t"), ("db", ""), ("", "")):
        topic.send(_insert(database, table, {"id": "1", "v": "nowhere"}))
    topic.send(watermark(10)).write(folder / "captures", "all.jsonl")
    paths = LakePaths(str(folder / "lake"), "shop")
    ingest(spark, paths, folder / "captures")
    return paths


def test_each_name_has_its_own_mirror(
    spark: SparkSession, lake: LakePaths, counted: Callable[[str, int], None]
) -> None:
    tables = {TableName("db", name): f"of {name}" for name in NAMES}
    tables |= {TableName(name, "t"): f"in {name}" for name in DATABASES}
    counted("hostile names mirrored", len(tables))
    assert len({lake.mirror(name) for name in tables}) == len(tables)
    cut = read_cut(spark, lake.root, "shop")
    assert set(cut) == {*tables, TableName("db", "wide")}
    parts = [cut[name].select(F.lit(str(name)).alias("name"), F.col("id").cast("int"), "v") for name in tables]
    found = functools.reduce(DataFrame.unionAll, parts).collect()
    assert {row["name"]: (row["id"], row["v"]) for row in found} == {str(name): (1, v) for name, v in tables.items()}
    assert len(found) == len(tables)


def test_each_column_has_its_value(spark: SparkSession, lake: LakePaths) -> None:
    frame = spark.read.format("delta").load(lake.mirror(TableName("db", "wide")))
    (found,) = frame.collect()
    by_name = dict(zip(frame.columns, found, strict=True))
    wrong = {name for name in COLUMNS if name not in _SAME_COLUMN and by_name.get(name) != f"of {name}"}
    assert wrong == set()  # metadata columns of the same names are left out


def test_upstream_adds_a_column_with_the_name_of_a_metadata_column(
    spark: SparkSession, paths: LakePaths, tmp_path: Path
) -> None:
    """The new column replaces the metadata column, and is NULL in existing rows."""
    topic, table = Topic(), TableName("db", "t")
    topic.send(ddl("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(64))", 1, table="t", kind="CREATE"))
    topic.send(_insert("db", "t", {"id": "1", "v": "a"})).send(_insert("db", "t", {"id": "2", "v": "b"}))
    topic.send(watermark(5)).write(tmp_path / "captures", "1.jsonl")
    ingest(spark, paths, tmp_path / "captures")
    topic.send(ddl("ALTER TABLE t ADD COLUMN _topic VARCHAR(64), ADD COLUMN _Commit_Ts VARCHAR(64)", 6, table="t"))
    data = {"id": "1", "v": "c", "_topic": "theirs", "_Commit_Ts": "theirs too"}
    types = {"id": "int", "v": "varchar", "_topic": "varchar", "_Commit_Ts": "varchar"}
    topic.send(row("UPDATE", "t", 7, data, old={**data, "v": "a"}, types=types, key=["id"]))
    topic.send(watermark(10)).write(tmp_path / "captures", "2.jsonl")
    ingest(spark, paths, tmp_path / "captures")
    frame = spark.read.format("delta").load(paths.mirror(table))
    assert frame.columns == ["id", "v", "_topic", "_Commit_Ts", "_partition", "_offset"]
    rows = sorted(tuple(found)[:4] for found in frame.collect())
    assert rows == [(1, "c", "theirs", "theirs too"), (2, "b", None, None)]
    (entry,) = published_entries(published_cut(Lake(spark, paths)), paths)
    assert [gap.split(",")[0] for gap in entry.gaps] == ["the table has a column _commit_ts of its own"]


def test_nothing_is_written_outside_the_lake(lake: LakePaths) -> None:
    outer = Path(lake.root).parent
    assert sorted(path.name for path in outer.iterdir()) == ["captures", "lake"]
    assert [path.name for path in outer.parent.iterdir()] == ["inner"]
    assert sorted(path.name for path in Path(lake.root).iterdir()) == ["shop"]
    mirrors = Path(lake.home) / "mirror"
    assert {len(log.relative_to(mirrors).parts) for log in mirrors.rglob("_delta_log")} == {3}


def test_rows_without_a_table_are_dead_letters(spark: SparkSession, lake: LakePaths) -> None:
    dead = spark.read.format("delta").load(lake.table("dead_letters"))
    assert dead.count() == 3
    assert dead.where("reason LIKE '%database%' OR reason LIKE '%table%'").count() == 3


def test_a_table_of_a_thousand_columns(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, counted: Callable[[str, int], None]
) -> None:
    names = [f"column_{number}" for number in range(1000)]
    listed = ", ".join(f"`{name}` VARCHAR(20)" for name in names)
    topic = Topic()
    topic.send(ddl(f"CREATE TABLE wide (id INT PRIMARY KEY, {listed})", 1, table="wide", kind="CREATE"))
    for key in range(3):
        topic.send(_insert("db", "wide", {"id": str(key), **{name: f"{name} of {key}" for name in names}}))
    topic.send(watermark(10)).write(tmp_path / "captures", "1.jsonl")
    topic.send(ddl("ALTER TABLE wide RENAME COLUMN column_999 TO last", 11, table="wide"))
    changed = {"id": "1", **dict.fromkeys([*names[:-1], "last"], "new")}
    topic.send(
        row("UPDATE", "wide", 12, changed, old={"last": "x"}, types=dict.fromkeys(changed, "varchar(20)"), key=["id"])
    )
    started = time.monotonic()
    ingest(spark, paths, tmp_path / "captures")
    topic.send(watermark(20)).write(tmp_path / "captures", "2.jsonl")
    ingest(spark, paths, tmp_path / "captures")
    counted("seconds for two cuts of a table of a thousand columns", round(time.monotonic() - started))
    rows = {
        found["id"]: found for found in spark.read.format("delta").load(paths.mirror(TableName("db", "wide"))).collect()
    }
    assert {len(found) for found in rows.values()} == {1005}
    assert (rows[0]["column_7"], rows[1]["last"], rows[2]["last"]) == ("column_7 of 0", "new", "column_999 of 2")
    (entry,) = published_entries(published_cut(Lake(spark, paths)), paths)
    assert published_cut(Lake(spark, paths)).resolved_tso == watermark_tso(20)
    assert entry.rows == 3
