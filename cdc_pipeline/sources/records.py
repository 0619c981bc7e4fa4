"""The schema of a Kafka record, which every source returns and `raw_topic_snapshot` stores.

One row is one record, byte for byte. Column names and types are those of Spark's Kafka source, except for
`timestamp_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

RECORD = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        # create time (of the producer) or append time (of the broker), in ms; null outside of TIMESTAMP_RANGE_MS
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
        # the integer of a timestamp outside of that range, else null
        StructField("timestamp_ms", LongType()),
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
