"""The check `balance` of a batch: counts rows in the tables' logs, and by a query where the logs do not show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.assets.decoded import decode_results
from cdc_pipeline.checks.records import balance_result
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decoded_tables import DecodedBatch, decode_batches
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline_tests.support.lakes.stories import create, put
from cdc_pipeline_tests.support.messages import Topic, watermark

_KEY = dg.AssetKey(["shop", "change_log"])


def _decoded(lake: Lake, folder: Path) -> list[DecodedBatch]:
    """A batch with two row changes, a statement, a dead letter and two watermarks."""
    topic = Topic()
    for payload, partition in (create("t", 1), put("t", 2, "1", "a"), put("t", 3, "2", "b"), ("no JSON", 0)):
        topic.send(payload, partition)
    for partition in (0, 1):
        topic.send(watermark(9), partition)
    topic.write(folder / "captures", "1.jsonl")
    CaptureFiles(str(folder / "captures")).ingest(lake, RunContext("run", lambda line: None))
    return decode_batches(lake)


def test_rows_of_a_batch(
    spark: SparkSession, paths: LakePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, paths)
    (batch,) = _decoded(lake, tmp_path)
    assert balance_result(lake, [batch], _KEY).passed
    counts = batch.counts
    for table, wrong in {
        "change_log has 2 rows, but the decoder counted 3": replace(counts, row_changes=3),
        "watermarks has 2 rows, but the decoder counted 5": replace(
            counts, records=counts.records + 3, by_kind={**counts.by_kind, unified.WATERMARK: 5}
        ),
        "dead_letters has 1 rows, but the decoder counted 2": replace(
            counts, records=counts.records + 1, by_kind={**counts.by_kind, unified.DEAD: 2}
        ),
        "ddl_history has 1 rows, but the decoder counted 2": replace(
            counts, records=counts.records + 1, by_kind={**counts.by_kind, unified.DDL: 2}
        ),
    }.items():
        found = balance_result(lake, [replace(batch, counts=wrong)], _KEY)
        assert not found.passed
        assert table in (found.description or "")
    # logs that show all rows need no query
    monkeypatch.setattr(DataFrame, "collect", None)
    assert balance_result(lake, [batch], _KEY).passed


def test_a_batch_that_fails_is_looked_at_until_a_cut_has_passed_it(
    spark: SparkSession, paths: LakePaths, tmp_path: Path
) -> None:
    """It stays decoded, so the next run would otherwise write it to the mirrors."""
    lake = Lake(spark, paths)
    _decoded(lake, tmp_path)
    pipeline = Pipeline(paths.pipeline, CaptureFiles(str(tmp_path / "captures")), paths.root)

    def failed(recent: RecentAnswers) -> list[str]:
        results = decode_results(pipeline, lake, lambda _: None, recent)
        checks = [result for result in results if isinstance(result, dg.AssetCheckResult)]
        return [
            f"{check.check_name} {check.asset_key.path[-1]}" for check in checks if check.asset_key if not check.passed
        ]

    good = RecentAnswers()
    # the record that is no JSON
    assert failed(good) == ["no_dead_letters dead_letters"]
    for table, column, wrong in (("batches", "records", F.col("records") + 1), ("dead_letters", "reason", F.lit(""))):
        rows = lake.read(table).withColumn(column, wrong)
        rows.write.format("delta").mode("overwrite").save(paths.table(table))
    everything = ["balance change_log", "no_dead_letters dead_letters", "contract dead_letters"]
    for _ in range(2):
        assert failed(RecentAnswers()) == everything
    # this process has looked at the batch
    assert failed(good) == ["no_dead_letters dead_letters"]
    CutMaker(lake, "run", "UTC", 2, lambda _: None).advance()
    assert failed(RecentAnswers()) == ["no_dead_letters dead_letters"]
