"""`metadata_columns`: mirrors with some of the trace, or none, are merged as those with all of it are."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, canal, ddl, row, watermark

NONE, OFFSETS = ColumnRules(()), ColumnRules(("_offset",))


def _row(kind: str, table: str, step: int, *cells: str, old: dict[str, str | None] | None = None) -> str:
    names = ("id", "v", "_offset") if table == "own" else ("id", "v")
    return row(kind, table, step, dict(zip(names, cells, strict=True)), old=old, key=[] if table == "bag" else ["id"])


def _create(table: str, step: int) -> str:
    columns = "id INT PRIMARY KEY, v VARCHAR(9), _offset INT" if table == "own" else "id INT PRIMARY KEY, v VARCHAR(9)"
    return ddl(
        f"CREATE TABLE {table} ({columns.replace(' PRIMARY KEY', '' if table == 'bag' else ' PRIMARY KEY')})", step
    )


FIRST = (
    *(_create(table, 1) for table in ("keyed", "bag", "own")),
    *(_row("INSERT", table, 2, *cells) for table in ("keyed", "bag") for cells in (("1", "a"), ("2", "b"))),
    _row("INSERT", "bag", 2, "1", "a"),
    _row("INSERT", "own", 2, "1", "a", "77"),
)
SECOND = (
    _row("UPDATE", "keyed", 11, "1", "c", old={"v": "a"}),
    _row("DELETE", "keyed", 11, "2", "b"),
    _row("INSERT", "keyed", 12, "3", "z"),
    _row("DELETE", "bag", 11, "1", "a"),
    _row("INSERT", "bag", 12, "2", "b"),
    _row("UPDATE", "own", 12, "1", "b", "78", old={"v": "a", "_offset": "77"}),
    # a rewrite of all rows, then metadata alone
    ddl("ALTER TABLE keyed MODIFY id VARCHAR(5)", 13),
    ddl("ALTER TABLE keyed RENAME COLUMN v TO w", 14),
    _create("later", 14),
    _row("INSERT", "later", 15, "1", "a"),
)
ROWS = {
    "keyed": [("1", "c"), ("3", "z")],
    "bag": [(1, "a"), (2, "b"), (2, "b")],
    "own": [(1, "b", 78)],
    "later": [(1, "a")],
}


def _mirrors(spark: SparkSession, paths: LakePaths) -> dict[str, tuple[list[str], list[tuple[object, ...]]]]:
    """Each mirror's columns beside upstream's, and its rows without them."""
    found = {}
    for name, rows in ROWS.items():
        mirror = spark.read.format("delta").load(paths.mirror(TableName("db", name)))
        width = len(rows[0])
        found[name] = (mirror.columns[width:], sorted(tuple(cells)[:width] for cells in mirror.collect()))
    return found


def test_mirrors_keep_what_they_were_made_with_until_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    paths, topic = LakePaths(str(tmp_path / "lake"), "shop"), Topic()
    for number, (messages, rules) in enumerate(((FIRST, NONE), (SECOND, OFFSETS))):
        for message in (*messages, watermark(10 + 10 * number)):
            topic.send(message)
        topic.write(tmp_path / "captures", f"{number}.jsonl")
        ingest(spark, paths, tmp_path / "captures", columns=rules)
    found = _mirrors(spark, paths)
    assert {name: rows for name, (_, rows) in found.items()} == ROWS
    made_with: dict[str, list[str]] = {"keyed": [], "bag": [], "own": [], "later": ["_offset"]}
    assert {name: beside for name, (beside, _) in found.items()} == made_with
    # as the declaration would be after the setting was taken out; `own` cannot have two columns of one name
    rules = ColumnRules(METADATA_COLUMNS[:3])
    rebuilder = Rebuilder(CutMaker(Lake(spark, paths), "r", "UTC", 2, lambda _: None, columns=rules))
    differing = {table.table for table in rebuilder.rebuild().tables if not table.equal}
    assert differing == {f"mirror/db.{name}" for name in ROWS}
    assert _mirrors(spark, paths) == {name: (list(METADATA_COLUMNS[:3]), rows) for name, rows in ROWS.items()}


def test_without_watermarks_the_commit_time_is_not_needed(spark: SparkSession, tmp_path: Path) -> None:
    paths, topic = LakePaths(str(tmp_path / "lake"), "shop"), Topic()
    for number, values in enumerate(("a", "b")):
        topic.send(canal("INSERT", "t", 1 + number, [{"id": "1", "v": values}], key=["id"]))
        topic.write(tmp_path / "captures", f"{number}.jsonl")
        ingest(spark, paths, tmp_path / "captures", columns=OFFSETS)
    rows = spark.read.format("delta").load(paths.mirror(TableName("db", "t"))).collect()
    assert [row["v"] for row in rows] == ["b"]
