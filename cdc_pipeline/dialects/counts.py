"""How many records of a batch became what, taken in the very pass that writes them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import SENT_MS
from cdc_pipeline.contracts.limits import SKEW_MS
from cdc_pipeline.dialects import unified
from cdc_pipeline.sources.records import POSITION
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

_PATIENCE = 5.0
"""Seconds for the metrics of a query that has ended to arrive: they come by Spark's listener bus."""
_PLACES = "`topic` STRING, `partition` INT, `offset` BIGINT"
_TIMES = ("watermark_ts", "es", "ts")
_TIME_TYPES = "`timestamp` BIGINT, watermark_ts BIGINT, es BIGINT, ts BIGINT"


@dataclass(frozen=True)
class BatchCounts:
    """How many records of a batch are of each kind (`unified.KINDS`), how many row changes they have, and whether any
    has an exact TSO. `records` is counted apart from the kinds. `heartbeats` are the times of the newest one of each topic,
    in ms."""

    records: int
    by_kind: dict[str, int]
    row_changes: int
    exact_ts: bool
    heartbeats: Mapping[str, int] = field(default_factory=dict)

    @property
    def balanced(self) -> bool:
        """Promise 1: every record became exactly one thing."""
        return self.records == sum(self.by_kind.values())


def _is_ahead() -> Column:
    """Whether what a record says of the source's time is later than the record itself, as no clocks are apart: a heartbeat
    from the future would say for ever that its topic is up to date."""
    return F.coalesce(F.col("es") - F.expr(SENT_MS) > SKEW_MS, F.lit(False))


class Observed:
    """Counts a decoded frame while it is written: `frame` is to be written, once; then `counts` and `places` are there.

    The frame's metrics also stop Spark from parsing each message twice: a filter behind them stays behind them.
    """

    def __init__(self, decoded: DataFrame) -> None:
        self._observation = Observation()
        kind, exact = F.col("kind"), F.col("exact_ts") | F.col("watermark_ts").isNotNull()
        in_tables = ~kind.isin(unified.ROW, unified.WATERMARK, *unified.COUNTED_ONLY)
        heartbeat = F.when((kind == unified.HEARTBEAT) & ~_is_ahead(), F.struct("topic", "es"))
        watermark = F.struct(*POSITION, F.unix_micros("timestamp").alias("timestamp"), *_TIMES)
        self.frame = decoded.observe(
            self._observation,
            *(F.count(F.when(kind == name, 1)).alias(name) for name in unified.KINDS),
            F.sum(F.when(kind == unified.ROW, F.size("rows")).cast("bigint")).alias("changes"),
            F.max((kind != unified.DEAD) & exact).alias("exact"),
            F.to_json(F.collect_list(F.when(in_tables, F.struct(*POSITION)))).alias("places"),
            F.to_json(F.collect_list(F.when(kind == unified.WATERMARK, watermark))).alias("watermarks"),
            F.to_json(F.collect_set(heartbeat)).alias("heartbeats"),
        )

    def settle(self) -> None:
        """Returns when the counts are there. Call it when the frame's write has returned.

        Where another run has written the same batch meanwhile, Delta passes over the write without running the query, and
        nobody would ever count: then the frame is counted by itself.
        """
        observation: Any = self._observation
        end = time.monotonic() + _PATIENCE
        while not observation._jo.future().isCompleted():
            if time.monotonic() > end:
                self.frame.write.format("noop").mode("overwrite").save()
                return
            time.sleep(0.005)

    def counts(self, records: int) -> BatchCounts:
        """Waits for the frame to be written. `records` is what the raw snapshot says of the batch."""
        found: dict[str, Any] = self._observation.get
        by_kind = {name: found[name] for name in unified.KINDS}
        newest: dict[str, int] = {}
        for told in json.loads(found["heartbeats"]):
            newest[told["topic"]] = max(told["es"], newest.get(told["topic"], told["es"]))
        return BatchCounts(records, by_kind, found["changes"] or 0, bool(found["exact"]), newest)

    def watermarks(self, spark: SparkSession, batch_id: int) -> DataFrame:
        """`unified.watermarks` of the frame, without looking at its records again: a watermark is all in its metrics."""
        told = small_frame(spark, [(self._observation.get["watermarks"],)], "told STRING")
        rows = told.select(F.inline(F.from_json("told", f"ARRAY<STRUCT<{_PLACES}, {_TIME_TYPES}>>")))
        whole = rows.withColumns(
            {
                "batch_id": F.lit(batch_id).cast("bigint"),
                "timestamp": F.timestamp_micros("timestamp"),
                "kind": F.lit(unified.WATERMARK),
            }
        )
        return unified.watermarks(whole)

    def other_records(self, raw: DataFrame) -> DataFrame:
        """The records of `raw` that are neither row changes nor watermarks and go into a table: few, and looked at a second
        time."""
        places = [
            (place["topic"], place["partition"], place["offset"])
            for place in json.loads(self._observation.get["places"])
        ]
        small = small_frame(raw.sparkSession, places, _PLACES)
        return raw.join(F.broadcast(small), ["topic", "partition", "offset"], "left_semi")
