"""Where records are in the raw snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

PLACE = ("batch_id", "topic", "partition", "offset")
Place = tuple[int, str, int, int]
"""A record: batch, topic, partition, offset."""


def records_at(records: DataFrame, places: Iterable[Place]) -> DataFrame:
    """Those of the records, which have the columns of `PLACE`, that are at one of the places."""
    asked = sorted(set(places))
    wanted = small_frame(records.sparkSession, asked, "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT")
    of_batches = records.where(F.col("batch_id").isin(sorted({place[0] for place in asked})))
    return of_batches.join(F.broadcast(wanted), list(PLACE), "left_semi")
