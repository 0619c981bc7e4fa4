"""The check `watermarks_advance`: watermarks that regress, are missing, or lag in one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.changes.progress import published_cut, read_progress
from cdc_pipeline.positions import Position
from cdc_pipeline.spark.few_rows import small_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.mirrors.changes.progress import StreamProgress

WATERMARKS_ADVANCE = "watermarks_advance"
STALLED_MS = 600_000
"""Lag at which a partition is reported. TiCDC sends watermarks to all partitions within seconds of each other."""
_NO_WATERMARK = (
    "no watermark received, so no cut can be published. Check that the changefeed writes this topic and that "
    "enable-tidb-extension is on"
)
_SHOWN = 20


def watermarks_result(lake: Lake, batches: Sequence[int], key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if a watermark of these batches regresses in its partition, is missing, or lags others by ten minutes.

    The metadata lists positions with advice.
    """
    with small_query(lake.spark, 0):
        streams = read_progress(lake, published_cut(lake))
    regressions = _regressions(lake, batches) if batches else []
    problems = {
        **{
            str(Position(row["topic"], row["partition"], row["offset"])): _regression_text(row)
            for row in regressions[:_SHOWN]
        },
        **_lagging_partitions(streams),
    }
    if len(regressions) > _SHOWN:
        problems["more"] = f"{len(regressions)} regressions in total"
    return dg.AssetCheckResult(
        check_name=WATERMARKS_ADVANCE,
        asset_key=key,
        passed=not problems,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(f"{place}: {problem}" for place, problem in list(problems.items())[:3]) or None,
        metadata={**problems, "watermark_lag_seconds": round(streams.held_back_ms / 1000, 1)},
    )


def _regressions(lake: Lake, batches: Sequence[int]) -> list[Row]:
    watermarks = lake.read("watermarks")
    # includes the previous batch, to compare the first watermark of each partition
    recent = watermarks.where(F.col("batch_id").between(min(batches) - 1, max(batches)))
    previous = F.lag("watermark_ts").over(Window.partitionBy("topic", "partition").orderBy("offset"))
    regressed = recent.withColumn("previous", previous).where(F.col("watermark_ts") < F.col("previous"))
    return regressed.where(F.col("batch_id") >= min(batches)).orderBy("topic", "partition", "offset").collect()


def _regression_text(row: Row) -> str:
    seconds = ((row["previous"] >> TSO_SHIFT) - (row["watermark_ts"] >> TSO_SHIFT)) / 1000
    return (
        f"the watermark regressed by {seconds:.1f} s to {row['watermark_ts']}. A restart of the changefeed does this and "
        "sends changes again; they are counted as duplicates or late, and the check no_breach fails if any is new"
    )


def _lagging_partitions(streams: StreamProgress) -> dict[str, str]:
    problems = dict.fromkeys(streams.without_watermark, _NO_WATERMARK)
    if streams.held_by is not None and streams.held_back_ms >= STALLED_MS:
        problems[streams.held_by] = (
            f"its newest watermark lags by {streams.held_back_ms / 1000:.0f} s and delays all mirrors. Check that the "
            "changefeed still writes this partition, or list its topic in source.ended"
        )
    return problems
