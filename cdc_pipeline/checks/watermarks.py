"""Watermarks that step back, or that one partition does not send any more: both hold up, or warn of, a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.changes.progress import published_cut, stream_progress
from cdc_pipeline.spark.few_rows import for_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.progress import StreamProgress

WATERMARKS_ADVANCE = "watermarks_advance"
STALLED_MS = 600_000
"""TiCDC sends watermarks to all partitions within seconds of each other."""
_NONE_YET = (
    "no watermark has come yet, and no cut can be made without it: is it a topic of the changefeed, and is "
    "enable-tidb-extension on?"
)
_SHOWN = 20


def watermarks_result(
    spark: SparkSession, paths: LakePaths, batches: Sequence[int], key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Warns where a watermark of these batches is below one before it in its partition, where a partition is ten minutes
    behind the newest watermark, and where one has none while others have. The metadata says where, and what to do."""
    with for_rows(spark, 0):
        streams = stream_progress(spark, paths, published_cut(spark, paths))
    back = _steps_back(spark, paths, batches) if batches else []
    said = {
        **{f"{row['topic']}/{row['partition']}@{row['offset']}": _went_back(row) for row in back[:_SHOWN]},
        **_stalled(streams),
    }
    if len(back) > _SHOWN:
        said["and more"] = f"{len(back)} steps back in all"
    return dg.AssetCheckResult(
        check_name=WATERMARKS_ADVANCE,
        asset_key=key,
        passed=not said,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(f"{place}: {words}" for place, words in list(said.items())[:3]) or None,
        metadata={**said, "held_back_seconds": round(streams.held_back_ms / 1000, 1)},
    )


def _steps_back(spark: SparkSession, paths: LakePaths, batches: Sequence[int]) -> list[Row]:
    watermarks = spark.read.format("delta").load(paths.table("watermarks"))
    # with those of the batch before, so that the first of a partition has one to be held against
    near = watermarks.where(F.col("batch_id").between(min(batches) - 1, max(batches)))
    before = F.lag("watermark_ts").over(Window.partitionBy("topic", "partition").orderBy("offset"))
    stepped = near.withColumn("before", before).where(F.col("watermark_ts") < F.col("before"))
    return stepped.where(F.col("batch_id") >= min(batches)).orderBy("topic", "partition", "offset").collect()


def _went_back(row: Row) -> str:
    seconds = ((row["before"] >> TSO_SHIFT) - (row["watermark_ts"] >> TSO_SHIFT)) / 1000
    return (
        f"the watermark went back by {seconds:.1f} s, to {row['watermark_ts']}: as after a restart of the changefeed, "
        "which sends changes again (they count as duplicates or late; no_breach tells whether any was new)"
    )


def _stalled(streams: StreamProgress) -> dict[str, str]:
    found = dict.fromkeys(streams.waiting_for, _NONE_YET)
    if streams.held_by is not None and streams.held_back_ms >= STALLED_MS:
        found[streams.held_by] = (
            f"its newest watermark is {streams.held_back_ms / 1000:.0f} s behind the newest of all, and holds every mirror "
            "back: look whether the changefeed still writes this partition, or end its topic (`source.ended`)"
        )
    return found
