"""Delta's logs where their retention is shorter than a pipeline lives: what they no longer have, no run asks for."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.story_lake import as_a_new_process
from cdc_pipeline_tests.support.messages import Topic, row, watermark, watermark_tso

_NINE_DAYS = 9 * 86_400


def _logs(paths: LakePaths) -> list[Path]:
    return sorted(Path(paths.home).rglob("_delta_log"))


def _expire_all_but_the_last(spark: SparkSession, paths: LakePaths) -> None:
    """Logs are kept a week, each commit has a checkpoint, at which Delta removes what is older, and all is older."""
    for log in _logs(paths):
        spark.sql(
            f"ALTER TABLE delta.`{log.parent}` SET TBLPROPERTIES "
            "('delta.logRetentionDuration' = 'interval 7 days', 'delta.checkpointInterval' = '1')"
        )
        for file in log.iterdir():
            if file.is_file():
                moment = file.stat().st_mtime - _NINE_DAYS
                os.utime(file, (moment, moment))
    as_a_new_process(spark)


def test_a_pipeline_goes_on_without_its_first_commits(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    topic = Topic()
    for number in range(1, 5):
        topic.send(row("INSERT", "t", 10 * number, {"id": str(number)}, types={"id": "int"}, key=["id"]))
        if number > 1:
            topic.send(row("DELETE", "t", 10 * number + 1, {"id": str(number - 1)}, types={"id": "int"}, key=["id"]))
        topic.send(watermark(10 * number + 2)).write(tmp_path / "captures", f"{number}.jsonl")
        ingest(spark, paths, tmp_path / "captures")
        if number == 2:
            _expire_all_but_the_last(spark, paths)
        as_a_new_process(spark)
    left = {log.parent.name for log in _logs(paths) if not (log / f"{0:020d}.json").exists()}
    assert {"batches", "change_log", "consistent_cuts", "raw_topic_snapshot", "watermarks", "t"} <= left
    assert published_cut(Lake(spark, paths)).resolved_tso == watermark_tso(42)
    assert [found["id"] for found in read_cut(spark, paths.root, "shop")["db.t"].collect()] == [4]
    assert lake_balance(Lake(spark, paths)).is_balanced
