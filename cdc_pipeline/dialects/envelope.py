"""The one parse of a record's JSON, and what can be said of it before any dialect looks at it.

The schema names every field that a dialect needs and no other, because each costs time on every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import DEAD, EMPTY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# `commitTs` and `watermarkTs` are unsigned 64-bit in TiDB and below 2^59 until the year 2039; BIGINT holds them exactly.
_ENVELOPE = (
    "`database` STRING, `table` STRING, pkNames ARRAY<STRING>, isDdl BOOLEAN, type STRING, es BIGINT, ts BIGINT, "
    "`sql` STRING, mysqlType MAP<STRING, STRING>, data ARRAY<MAP<STRING, STRING>>, old ARRAY<MAP<STRING, STRING>>, "
    "_tidb STRUCT<commitTs: BIGINT, watermarkTs: BIGINT, onlyHandleKey: BOOLEAN, claimCheckLocation: STRING>, "
    "_unreadable STRING"
)
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_unreadable",
    # the parser's own limits are below what a 64 MB LONGTEXT or a deep JSON value needs
    "maxStringLen": str(2**31 - 1),
}


def parsed(raw: DataFrame) -> DataFrame:
    """`raw` with `message`: the envelope's fields, null where a field is absent or has another type."""
    return raw.withColumn("message", F.from_json(F.col("value").cast("string"), _ENVELOPE, _OPTIONS))


def is_empty() -> Column:
    """A tombstone (no value) or an empty value: counted, never an error."""
    return F.coalesce(F.length("value"), F.lit(0)) == 0


def unreadable_rule() -> Column:
    """The rule that a record breaks as JSON, null where it is an object whose fields have the expected types."""
    return F.when(~F.expr("is_valid_utf8(value)"), F.lit("value_is_utf8")).when(
        F.col("message").isNull() | F.col("message._unreadable").isNotNull(), F.lit("value_is_json_object")
    )


def base_kind(otherwise: Column) -> Column:
    """`EMPTY` and `DEAD` where JSON alone decides, else `otherwise`."""
    return F.when(is_empty(), F.lit(EMPTY)).when(unreadable_rule().isNotNull(), F.lit(DEAD)).otherwise(otherwise)
