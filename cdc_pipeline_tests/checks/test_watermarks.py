"""The check `watermarks_advance`: watermarks that regress or are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest

from cdc_pipeline.checks import watermarks
from cdc_pipeline.checks.watermarks import watermarks_result
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline_tests.support.messages import tso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

_BATCH = (
    "batch_id LONG, records LONG, exact_ts BOOLEAN, ended ARRAY<STRING>, row_changes LONG, "
    "offsets ARRAY<STRUCT<topic: STRING, `partition`: INT>>, heartbeats MAP<STRING, BIGINT>"
)
_WATERMARK = "batch_id LONG, topic STRING, `partition` INT, `offset` LONG, watermark_ts LONG"


def _checked(spark: SparkSession, paths: LakePaths, batch: int, *marks: tuple[int, int, int]) -> dg.AssetCheckResult:
    """Writes a batch with these watermarks (partition, offset, step) to the tables of the decoder."""
    rows = [(batch, "t", partition, offset, tso(step)) for partition, offset, step in marks]
    batches = [(batch, len(marks), True, None, 0, [("t", 0), ("t", 1)], {})]
    for table, found, schema in (("watermarks", rows, _WATERMARK), ("batches", batches, _BATCH)):
        spark.createDataFrame(found, schema).write.format("delta").mode("append").save(paths.table(table))
    return watermarks_result(Lake(spark, paths), [batch], len(marks), dg.AssetKey("watermarks"))


@pytest.mark.parametrize("few", [20_000, 0], ids=["in Python", "with Spark"])
def test_regressions_and_silent_partitions(
    spark: SparkSession, paths: LakePaths, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(watermarks, "_FEW", few)
    found = _checked(spark, paths, 1, (0, 0, 3), (0, 1, 5))
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert set(found.metadata) == {"t/1", "watermark_lag_seconds"}
    assert "no watermark received" in str(found.metadata["t/1"].value)

    # first below the last watermark of the previous batch, then ten minutes ahead of the other partition
    found = _checked(spark, paths, 2, (0, 2, 4), (0, 3, 700), (1, 0, 99))
    assert set(found.metadata) == {"t/0@2", "t/1", "watermark_lag_seconds"}
    assert f"regressed by 1.0 s to {tso(4)}" in str(found.metadata["t/0@2"].value)
    assert "lags by 601 s" in str(found.metadata["t/1"].value)
    assert found.metadata["watermark_lag_seconds"].value == 601.0
    assert found.description is not None
    assert found.description.startswith("`t/0@2: the watermark regressed")

    found = _checked(spark, paths, 3, (1, 1, 700))
    assert (found.passed, found.description) == (True, None)
