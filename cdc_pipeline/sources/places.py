"""Positions of records in `raw_topic_snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

PLACE = ("batch_id", "topic", "partition", "offset")
Place = tuple[int, str, int, int]
"""Batch id, topic, partition, offset."""


def records_at(records: DataFrame, places: Iterable[Place]) -> DataFrame:
    """The records at these positions. `records` has the columns of `PLACE`."""
    positions = sorted(set(places))
    schema = "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT"
    wanted = small_frame(records.sparkSession, positions, schema)
    in_batches = records.where(F.col("batch_id").isin(sorted({batch_id for batch_id, *_ in positions})))
    return in_batches.join(F.broadcast(wanted), list(PLACE), "left_semi")
