"""How watermarks, or their absence, decide what mirrors show."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import KEYED, TYPES, create, put, update
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark, watermark_tso


def rows(spark: SparkSession, paths: LakePaths, table: str) -> list[tuple[object, ...]]:
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", table)))
    return sorted(tuple(found) for found in mirror.select("id", "v").collect())


def test_mirrors_stop_at_the_slowest_partition(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    topic, folder = Topic(), tmp_path / "captures"
    topic.send(*create("t", 1)).send(*put("t", 2, "1", "a")).send(*put("t", 3, "2", "b", 2))
    topic.send(watermark(10), 0).send(watermark(12), 1).write(folder, "1.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.published, report.streams.without_watermark) == (False, ("t/2",))

    topic.send(watermark(11), 2).write(folder, "2.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.cut_id, report.resolved_tso, report.streams.held_by) == (1, watermark_tso(10), "t/0")
    assert rows(spark, paths, "t") == [(1, "a"), (2, "b")]

    # the changefeed restarts from an earlier checkpoint: rows are redelivered, watermarks regress
    topic.send(*put("t", 2, "1", "a")).send(*update("t", 20, ("1", "a"), ("1", "c")))
    topic.send(watermark(5), 0).send(watermark(5), 1).send(watermark(5), 2).write(folder, "3.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.published, report.cut_id) == (False, 1)

    for partition in (0, 1, 2):
        topic.send(watermark(30), partition)
    topic.send(*put("t", 3, "2", "b", 2)).write(folder, "4.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.cut_id, report.resolved_tso, report.totals.late, report.breaches) == (2, watermark_tso(30), 2, ())
    assert rows(spark, paths, "t") == [(1, "c"), (2, "b")]

    # a partition is added: its records wait until it has a watermark, and the report shows it
    topic.send(*put("t", 35, "3", "d", 3)).send(watermark(40), 0).write(folder, "5.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.published, report.streams.without_watermark, report.totals.pending) == (False, ("t/3",), 1)
    topic.send(watermark(33), 3).send(watermark(36), 1).write(folder, "6.jsonl")
    report = ingest(spark, paths, folder)
    # partition 2 is idle at 30
    assert (report.published, report.streams.held_by, report.streams.held_back_ms) == (False, "t/2", 10_000)
    assert report.totals.pending == 1


def test_without_watermarks_order_is_by_time_and_position(
    spark: SparkSession, paths: LakePaths, tmp_path: Path
) -> None:
    def change(kind: str, step: int, key: str, value: str, old: str | None = None) -> str:
        before = None if old is None else {"id": key, "v": old}
        return row(kind, "t", step, {"id": key, "v": value}, old=before, types=TYPES, key=["id"], extension=False)

    topic, folder = Topic(), tmp_path / "captures"
    topic.send(ddl(KEYED.format("t"), 1, table="t", kind="CREATE", extension=False))
    topic.send(change("INSERT", 1, "1", "a"), 1)  # in the same ms as the CREATE, in another partition
    topic.send(change("UPDATE", 3, "1", "c", "b"), 1).send(change("UPDATE", 2, "1", "b", "a"), 1)
    topic.send(change("INSERT", 4, "2", "x"), 2).write(folder, "1.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.published, report.resolved_tso) == (True, None)
    assert rows(spark, paths, "t") == [(1, "c"), (2, "x")]

    # redelivered older changes do not undo newer ones; a redelivered statement is a duplicate
    topic.send(ddl(KEYED.format("t"), 1, table="t", kind="CREATE", extension=False))
    topic.send(change("UPDATE", 2, "1", "b", "a"), 1).send(change("UPDATE", 5, "2", "y", "x"), 2)
    topic.write(folder, "2.jsonl")
    assert ingest(spark, paths, folder).cut_id == 2
    assert rows(spark, paths, "t") == [(1, "c"), (2, "y")]
    history = spark.read.format("delta").load(paths.table("ddl_history")).orderBy("offset").collect()
    assert [event["status"] for event in history] == ["applied", "duplicate"]
