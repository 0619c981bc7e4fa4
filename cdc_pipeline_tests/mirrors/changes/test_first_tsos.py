"""A stream that gets TSOs after cuts without them: TiCDC's `enable-tidb-extension`, switched on later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths


def _insert(table: str, step: int, key: str, *, extension: bool) -> str:
    return row("INSERT", table, step, {"id": key}, key=["id"] if table == "t" else [], extension=extension)


def _rows(spark: SparkSession, paths: LakePaths, table: str) -> list[str]:
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", table)))
    return sorted(found["id"] for found in mirror.collect())


def test_earlier_rows_and_statements_are_not_applied_again(
    spark: SparkSession, paths: LakePaths, tmp_path: Path
) -> None:
    topic, captures = Topic(), tmp_path / "captures"

    def gaps_after(number: int, *messages: str) -> dict[str, tuple[str, ...]]:
        for message in messages:
            topic.send(message)
        topic.write(captures, f"{number}.jsonl")
        report = ingest(spark, paths, captures)
        assert lake_balance(Lake(spark, paths)).is_balanced
        return {entry.name.table: entry.gaps for entry in report.mirrors}

    tables = [
        ddl(f"CREATE TABLE {name} (id VARCHAR(9){key})", 1, kind="CREATE", extension=False)
        for name, key in (("t", " PRIMARY KEY"), ("bag", ""), ("quiet", ""))
    ]
    first = [_insert("t", 2, "1", extension=False), ddl("TRUNCATE TABLE t", 3, extension=False)]
    rows = [_insert(table, 4, "2", extension=False) for table in ("t", "bag", "quiet")]
    assert set(gaps_after(1, *tables, *first, *rows).values()) == {()}
    # no cut: the first watermark is before changes that are applied
    gaps_after(2, _insert("t", 6, "3", extension=True), watermark(3))
    assert _rows(spark, paths, "t") == ["2"]
    gaps = gaps_after(3, ddl("ALTER TABLE quiet COMMENT 'x'", 7), _insert("bag", 7, "4", extension=True), watermark(8))
    assert (gaps["t"], gaps["quiet"]) == ((), ())
    assert [gap.split(":")[0] for gap in gaps["bag"]] == [
        "the table has no key, and the stream's first TSOs are in this cut"
    ]
    gaps_after(4, _insert("t", 9, "5", extension=True), watermark(10))
    assert [_rows(spark, paths, table) for table in ("t", "bag", "quiet")] == [["2", "3", "5"], ["2", "4"], ["2"]]
