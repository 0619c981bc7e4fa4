"""Records of `raw_topic_snapshot` by their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.positions import BATCH_POSITION, BatchPosition
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame


def records_at(records: DataFrame, positions: Iterable[BatchPosition]) -> DataFrame:
    """The records at these positions. `records` has the columns of `BATCH_POSITION`."""
    distinct = sorted(set(positions))
    schema = "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT"
    wanted = small_frame(records.sparkSession, distinct, schema)
    in_batches = records.where(F.col("batch_id").isin(sorted({batch_id for batch_id, *_ in distinct})))
    return in_batches.join(F.broadcast(wanted), list(BATCH_POSITION), "left_semi")
