"""A Kafka record as every source hands it on, and as `raw_topic_snapshot` keeps it.

One row is one record, byte for byte, with the column names and types of Spark's own Kafka source, so that a reader
who knows the one knows the other.
"""

from __future__ import annotations

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

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

RECORD = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        # when the producer or the broker says that the record came; ms precision
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)
POSITION = ("topic", "partition", "offset")
