"""Kafka records: their schema, which every source returns and `raw_topic_snapshot` stores, and records at positions.

One row is one record, byte for byte. Column names and types are those of Spark's Kafka source, except for
`timestamp_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdc_pipeline.positions import BATCH_POSITION, BatchPosition
from cdc_pipeline.spark.small_frames import small_frame

HEADERS = T.ArrayType(T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]))

RECORD = T.StructType(
    [
        T.StructField("topic", T.StringType(), nullable=False),
        T.StructField("partition", T.IntegerType(), nullable=False),
        T.StructField("offset", T.LongType(), nullable=False),
        # create time (of the producer) or append time (of the broker), in ms; null outside of TIMESTAMP_RANGE_MS
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("headers", HEADERS),
        # the integer of a timestamp outside of that range, else null
        T.StructField("timestamp_ms", T.LongType()),
    ]
)
NEW_COLUMNS = {"mergeSchema": "true"}
"""Options of appends to `raw_topic_snapshot`: that of a lake of 0.1.0 lacks `timestamp_ms`."""
TIMESTAMP_RANGE_MS = (-62_135_510_400_000, 253_402_214_400_000)
"""0001-01-02 to 9999-12-31, in ms. Python has no other years, Spark none after 294247, and a producer may send any integer:
microseconds, for example."""


def timestamp_columns(ms: Column) -> dict[str, Column]:
    """The columns `timestamp` and `timestamp_ms` of a record with Kafka's timestamp `ms`."""
    is_time = ms.between(*TIMESTAMP_RANGE_MS)
    return {"timestamp": F.timestamp_millis(F.when(is_time, ms)), "timestamp_ms": F.when(~is_time, ms)}


def records_at(records: DataFrame, positions: Iterable[BatchPosition]) -> DataFrame:
    """The records at these positions. `records` has the columns of `BATCH_POSITION`."""
    distinct = sorted(set(positions))
    schema = "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT"
    wanted = small_frame(records.sparkSession, distinct, schema)
    in_batches = records.where(F.col("batch_id").isin(sorted({batch_id for batch_id, *_ in distinct})))
    return in_batches.join(F.broadcast(wanted), list(BATCH_POSITION), "left_semi")


def may_have_zero_id(value: Column) -> Column:
    """Whether a binary value contains `"id":0`, with or without a space, and not `"_tidb"`. Never null.

    TiCDC without the TiDB extension writes such messages, and so do other services (`dialects.senders`).
    """
    has_zero = F.contains(value, F.lit(b'"id":0')) | F.contains(value, F.lit(b'"id": 0'))
    return F.coalesce(has_zero & ~F.contains(value, F.lit(b'"_tidb"')), F.lit(False))
