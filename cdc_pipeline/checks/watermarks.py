"""The check `watermarks_advance`: watermarks that regress, are missing, or lag in one partition."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc_pipeline.checks.markdown import check_result
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.mirrors.changes.progress import published_cut, read_progress
from cdc_pipeline.positions import Position
from cdc_pipeline.spark.small_frames import small_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import dagster as dg
    from pyspark.sql import DataFrame

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
_TABLE = "watermarks"
_COLUMNS = ("batch_id", "topic", "partition", "offset", "watermark_ts")
_FEW = 20_000
"""Records up to which the watermarks of a run are compared without a Spark query."""


def watermarks_result(lake: Lake, batches: Sequence[int], count: int, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Warns if a watermark of these batches regresses in its partition, is missing, or lags others by ten minutes.

    `count`: the number of watermarks in these batches. The metadata lists positions with advice.
    """
    with small_query(lake.spark, 0):
        streams = read_progress(lake, published_cut(lake))
    regressions = _regressions(lake, batches, count) if count else []
    problems = {
        **dict(regressions[:_SHOWN]),
        **_lagging_partitions(streams),
    }
    if len(regressions) > _SHOWN:
        problems["more"] = f"{len(regressions)} regressions in total"
    shown = [f"{at}: {problem}" for at, problem in [*problems.items()][:3]]
    metadata = {**problems, "watermark_lag_seconds": round(streams.held_back_ms / 1000, 1)}
    return check_result(WATERMARKS_ADVANCE, key, shown, "", metadata)


def _regressions(lake: Lake, batches: Sequence[int], count: int) -> list[tuple[str, str]]:
    """Position and description of each watermark that is lower than the one before it in its partition."""
    # includes the previous batch, to compare the first watermark of each partition
    first, last = min(batches), max(batches)
    before = read_rows(lake, "batches", ("batch_id", "=", first - 1), columns=["records"])
    if count + sum(batch["records"] for batch in before) <= _FEW:
        rows = read_rows(lake, _TABLE, ("batch_id", ">=", first - 1), ("batch_id", "<=", last), columns=_COLUMNS)
        found = _find_locally(rows)
    else:
        found = _find_with_spark(lake.read(_TABLE).where(F.col("batch_id").between(first - 1, last)))
    return [
        (str(Position(row["topic"], row["partition"], row["offset"])), _regression_text(row["watermark_ts"], previous))
        for row, previous in found
        if row["batch_id"] >= first
    ]


def _find_locally(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """The rows with a lower watermark than the one before, and the one before."""
    in_order = sorted(rows, key=itemgetter("topic", "partition", "offset"))
    return [
        (row, before["watermark_ts"])
        for before, row in pairwise(in_order)
        if (row["topic"], row["partition"]) == (before["topic"], before["partition"])
        and row["watermark_ts"] < before["watermark_ts"]
    ]


def _find_with_spark(recent: DataFrame) -> list[tuple[Mapping[str, Any], int]]:
    """As `_find_locally`, for the many watermarks of a backlog."""
    previous = F.lag("watermark_ts").over(Window.partitionBy("topic", "partition").orderBy("offset"))
    regressed = recent.withColumn("previous", previous).where(F.col("watermark_ts") < F.col("previous"))
    rows = regressed.orderBy("topic", "partition", "offset").collect()
    return [(row.asDict(), row["previous"]) for row in rows]


def _regression_text(watermark: int, previous: int) -> str:
    seconds = ((previous >> TSO_SHIFT) - (watermark >> TSO_SHIFT)) / 1000
    return (
        f"the watermark regressed by {seconds:.1f} s to {watermark}. A restart of the changefeed does this and "
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
