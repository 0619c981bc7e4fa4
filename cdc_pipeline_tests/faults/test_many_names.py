"""Tens of thousands of tables, a few of them mirrored: neither cuts nor Dagster's start become slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.definitions import defs
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.runs import environment
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark


def _seconds_to_load(captures: Path, lake: Path) -> float:
    """The minimum of three, because garbage collection of the messages disturbs single measurements."""
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        with environment(captures, lake):
            defs().resolve_asset_graph()
        seconds.append(time.monotonic() - started)
    return min(seconds)


@pytest.mark.parametrize("tables", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_tables_that_are_not_mirrored(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, tables: int, counted: Callable[[str, int], None]
) -> None:
    captures, lake = tmp_path / "captures", tmp_path / "lake"
    topic = Topic()
    topic.send(ddl("CREATE TABLE wanted (id INT PRIMARY KEY)", 1, table="wanted", kind="CREATE"))
    topic.send(row("INSERT", "wanted", 2, {"id": "1"}, types={"id": "int"}, key=["id"]))
    topic.send(watermark(3)).write(captures, "1.jsonl")
    selection = TableSelection(include=("db.wanted",))
    ingest(spark, paths, captures, selection=selection)
    before = _seconds_to_load(captures, lake)
    for number in range(tables):
        name = f"table number {number}"
        topic.send(ddl(f"CREATE TABLE `{name}` (`id` INT PRIMARY KEY, `v` TEXT)", 4, table=name, kind="CREATE"))
    topic.send(row("INSERT", "wanted", 5, {"id": "2"}, types={"id": "int"}, key=["id"]))
    topic.send(watermark(6)).write(captures, "2.jsonl")
    started = time.monotonic()
    ingest(spark, paths, captures, selection=selection)
    counted("names of tables in a cut that mirrors one", tables)
    counted("seconds for those cuts", round(time.monotonic() - started))
    (entry,) = published_entries(published_cut(Lake(spark, paths)), paths)
    assert (entry.name, entry.rows, entry.gaps) == (TableName("db", "wanted"), 2, ())
    assert (
        spark.read.format("delta").load(paths.table("ddl_history")).where("status = 'not included'").count() == tables
    )
    assert _seconds_to_load(captures, lake) < before + 0.5
