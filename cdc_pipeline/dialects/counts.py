"""Counts the records of a batch by kind, in the pass that writes its row changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import LAST_MS, SENT_MS
from cdc_pipeline.contracts.limits import MAX_CLOCK_SKEW_MS
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.envelope import JSON_RULES
from cdc_pipeline.positions import POSITION
from cdc_pipeline.spark.jvm import finished_metrics
from cdc_pipeline.spark.small_frames import small_frame

_POSITION_SCHEMA = "`topic` STRING, `partition` INT, `offset` BIGINT"
_TIMES = ("watermark_ts", "es", "ts")
_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class BatchCounts:
    """The counts of one batch."""

    records: int
    """Counted in `raw_topic_snapshot`, independent of `by_kind`."""
    by_kind: dict[str, int]
    """Kind (`unified.KINDS`) → records."""
    row_changes: int
    exact_ts: bool
    """Whether any record that is not a dead letter has a TSO."""
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    """Topic → `es` of its newest heartbeat, in ms."""
    oldest_at: int | None = None
    """The lowest `at` of the row changes; None without any."""
    newest_at: int | None = None
    dialects: tuple[str, ...] = ()
    """The dialects of the records that are JSON objects, sorted."""
    keyless: int = 0
    """The row changes whose messages name no key."""

    @property
    def is_balanced(self) -> bool:
        """Whether every record has exactly one kind."""
        return self.records == sum(self.by_kind.values())


def _is_ahead() -> Column:
    """Whether `es` is later than the record's timestamp by more than `MAX_CLOCK_SKEW_MS`.

    A heartbeat from the future would make its topic look up to date forever.
    """
    return F.coalesce(F.col("es") - F.expr(SENT_MS) > MAX_CLOCK_SKEW_MS, F.lit(False))


class ObservedFrame:
    """Counts a decoded frame while it is written.

    Write `frame` once, call `wait`, then read `counts`, `watermarks` and `other_records`. The observed metrics also keep
    Spark from moving later filters below the parse, which would parse each message again for them.
    """

    def __init__(self, decoded: DataFrame) -> None:
        self._observation = Observation()
        kind, exact = F.col("kind"), F.col("exact_ts") | F.col("watermark_ts").isNotNull()
        is_other = ~kind.isin(unified.ROW, unified.WATERMARK, *unified.COUNTED_ONLY)
        heartbeat = F.when((kind == unified.HEARTBEAT) & ~_is_ahead(), F.struct("topic", "es"))
        at = F.when(kind == unified.ROW, F.col("at"))
        watermark = F.struct(*POSITION, F.unix_micros("timestamp").alias("timestamp"), *_TIMES)
        is_message = (kind != unified.EMPTY) & ~F.coalesce(F.col("rule").isin(*JSON_RULES), F.lit(False))
        self.frame = decoded.observe(
            self._observation,
            *(F.count(F.when(kind == name, 1)).alias(name) for name in unified.KINDS),
            F.sum(F.when(kind == unified.ROW, F.size("rows")).cast("bigint")).alias("changes"),
            F.sum(F.when((kind == unified.ROW) & unified.is_keyless(), F.size("rows")).cast("bigint")).alias("keyless"),
            F.max((kind != unified.DEAD) & exact).alias("exact"),
            F.min(at).alias("oldest_at"),
            F.max(at).alias("newest_at"),
            F.to_json(F.collect_list(F.when(is_other, F.struct(*POSITION)))).alias("positions"),
            F.to_json(F.collect_list(F.when(kind == unified.WATERMARK, watermark))).alias("watermarks"),
            F.to_json(F.collect_set(heartbeat)).alias("heartbeats"),
            F.count(F.when(kind.isNull(), 1)).alias("without_kind"),
            F.to_json(F.collect_set(F.when(is_message, F.col("dialect")))).alias("dialects"),
        )

    def is_complete(self) -> bool:
        """Whether each record has a kind: a frame that expects some dialects only gives none to those of others."""
        metrics = finished_metrics(self._observation)
        return metrics is not None and metrics["without_kind"] == 0

    def wait(self) -> None:
        """Waits for the metrics, after the write of `frame` has returned.

        If another run has committed the same batch meanwhile, Delta skips the write and the query never runs. Then runs it
        without a write.
        """
        if finished_metrics(self._observation) is None:
            self.frame.write.format("noop").mode("overwrite").save()

    def counts(self, records: int, latest_ms: int = LAST_MS) -> BatchCounts:
        """Blocks until the query of `frame` has finished. `records`: records of the batch in `raw_topic_snapshot`.

        `latest_ms`: later heartbeats are ignored.
        """
        metrics: dict[str, Any] = self._observation.get
        by_kind = {name: metrics[name] for name in unified.KINDS}
        newest: dict[str, int] = {}
        for heartbeat in json.loads(metrics["heartbeats"]):
            topic, es = heartbeat["topic"], heartbeat["es"]
            if es <= latest_ms:
                newest[topic] = max(es, newest.get(topic, es))
        return BatchCounts(
            records,
            by_kind,
            metrics["changes"] or 0,
            bool(metrics["exact"]),
            newest,
            metrics["oldest_at"],
            metrics["newest_at"],
            tuple(sorted(json.loads(metrics["dialects"]))),
            metrics["keyless"] or 0,
        )

    def watermarks(self, batch_id: int) -> pa.Table:
        """The batch's rows of `watermarks`, from the metrics of the frame: one per watermark.

        All changes with `commit_ts` < `watermark_ts` were sent before it.
        """
        found = json.loads(self._observation.get["watermarks"])  # without the fields that are null

        def column(name: str, type_: pa.DataType) -> pa.Array:
            return pa.array([row.get(name) for row in found], type_)

        tsos = column("watermark_ts", pa.int64())
        milliseconds = pc.shift_right(tsos, pa.scalar(unified.TSO_SHIFT, pa.int64()))
        return pa.table(
            {
                "batch_id": pa.array([batch_id] * len(found), pa.int64()),
                "topic": column("topic", pa.string()),
                "partition": column("partition", pa.int32()),
                "offset": column("offset", pa.int64()),
                "timestamp": column("timestamp", pa.int64()).cast(_TIMESTAMP),
                "watermark_ts": tsos,
                "es": column("es", pa.int64()),
                "ts": column("ts", pa.int64()),
                "watermark_time": milliseconds.cast(pa.timestamp("ms", "UTC")).cast(_TIMESTAMP),
            }
        )

    def other_records(self, raw: DataFrame) -> DataFrame:
        """The records of `raw` for `ddl_history` and `dead_letters`. They are few."""
        positions = [
            (position["topic"], position["partition"], position["offset"])
            for position in json.loads(self._observation.get["positions"])
        ]
        rows = small_frame(raw.sparkSession, positions, _POSITION_SCHEMA)
        return raw.join(F.broadcast(rows), list(POSITION), "left_semi")
