"""The one parse of a record's JSON, and what can be said of it before any dialect looks at it.

The schema names every field that a dialect needs and no other, because each costs time on every message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import DEAD, EMPTY
from cdc_pipeline.json_text import END_MARK, OPTIONS, has_half_a_character, with_end_mark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# `commitTs` and `watermarkTs` are unsigned 64-bit in TiDB and below 2^59 until the year 2039; BIGINT holds them exactly.
_ENVELOPE = (
    "`database` STRING, `table` STRING, pkNames ARRAY<STRING>, isDdl BOOLEAN, type STRING, es BIGINT, ts BIGINT, "
    "`sql` STRING, mysqlType MAP<STRING, STRING>, data ARRAY<MAP<STRING, STRING>>, old ARRAY<MAP<STRING, STRING>>, "
    "_tidb STRUCT<commitTs: BIGINT, watermarkTs: BIGINT, onlyHandleKey: BOOLEAN, claimCheckLocation: STRING>, "
    f"{END_MARK} BOOLEAN, _unreadable STRING"
)
_OPTIONS = {**OPTIONS, "columnNameOfCorruptRecord": "_unreadable"}


def parsed(raw: DataFrame) -> DataFrame:
    """`raw` with `message`: the envelope's fields, null where a field is absent or has another type."""
    return raw.withColumn("message", F.from_json(with_end_mark(F.col("value")), _ENVELOPE, _OPTIONS))


def is_empty() -> Column:
    """A tombstone (no value) or an empty value: counted, never an error."""
    return F.coalesce(F.length("value"), F.lit(0)) == 0


def unreadable_rule() -> Column:
    """The rule that a record breaks as JSON, null where it is an object whose fields have the expected types."""
    text, message = F.col("value").cast("string"), F.col("message")
    return (
        F.when(~F.is_valid_utf8(text), F.lit("value_is_utf8"))
        .when(
            message.isNull() | message["_unreadable"].isNotNull() | message[END_MARK].isNull(),
            F.lit("value_is_json_object"),
        )
        .when(has_half_a_character(text), F.lit("escapes_are_characters"))
    )


def base_kind(otherwise: Column) -> Column:
    """`EMPTY` for a record without a value, `DEAD` where `rule` names a broken rule, else `otherwise`."""
    return F.when(is_empty(), F.lit(EMPTY)).when(F.col("rule").isNotNull(), F.lit(DEAD)).otherwise(otherwise)
