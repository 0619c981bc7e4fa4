"""The check `balance` of a batch: counts rows in the tables' logs, and by a query where the logs do not show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import DataFrame

from cdc_pipeline.checks.balance import balance_result
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline_tests.support.lakes.stories import create, put
from cdc_pipeline_tests.support.messages import Topic, watermark

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from cdc_pipeline.dialects.decoded_tables import DecodedBatch
    from cdc_pipeline.lake.paths import LakePaths

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
