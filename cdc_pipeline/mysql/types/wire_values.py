"""Values as they travel, where the column's type alone does not say how: MariaDB's JSON, and DataWorks' six types.

`wire_value` is to these what `spark_types.value` is to Canal-JSON's own texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DecimalType, StringType

from cdc_pipeline.mysql.types.spark_types import latin1_bytes, padded, spark_type, text_decimal, value
from cdc_pipeline.mysql.types.text_values import MOST_DIGITS, decimal_text_of_double, time_text

if TYPE_CHECKING:
    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import MySqlType

JSON_BYTES = "JSON_BYTES"
"""MariaDB's JSON through Canal: UTF-8, each byte as the character of its number (canal-facts 29)."""
_LABELS = ("enum", "set")
_BIT_BYTES = 8
# the first and the last ms of the years that DATE and DATETIME have
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def wire_value(text: Column, kind: MySqlType, time_zone: str, wire: str | None) -> Column:
    """The typed value of a text of `wire`; null for a text that has none of the column's values.

    DATE is ms since 1970 UTC: an instant for TIMESTAMP, the local time of `time_zone` for DATE, DATETIME and TIME.
    """
    if wire is None or (wire == JSON_BYTES and kind.base != "json"):
        return value(text, kind, time_zone)
    if wire == JSON_BYTES:
        document = F.decode(latin1_bytes(text), "UTF-8")
        return F.when(F.is_valid_utf8(latin1_bytes(text).cast("string")), document)
    if wire == "BYTES":
        return _of_bytes(text, kind, time_zone)
    if wire == "DATE":
        return _of_date(text, kind, time_zone)
    if wire == "BOOLEAN":
        number = F.when(text == "true", F.lit("1")).when(text == "false", F.lit("0"))
        return value(F.coalesce(number, text), kind, time_zone)
    target = spark_type(kind)
    if wire == "DOUBLE" and (digits := text_decimal(kind)) is not None:
        return decimal_text_of_double(text, *digits)
    if wire == "DOUBLE" and isinstance(target, DecimalType):
        # the nearest decimal: a double may have noise beyond the column's scale
        return F.when(F.length(text) <= MOST_DIGITS, text).try_cast(target)
    if wire == "STRING" and kind.base in _LABELS:
        return text
    if wire == "STRING" and isinstance(target, BinaryType):
        return padded(F.encode(text, "UTF-8"), kind)
    return value(text, kind, time_zone)


def _of_bytes(text: Column, kind: MySqlType, time_zone: str) -> Column:
    """Base64 with padding, as Java writes it."""
    found = F.try_to_binary(text, F.lit("base64"))
    target = spark_type(kind)
    if isinstance(target, BinaryType):
        return padded(found, kind)
    if kind.base == "bit":
        fits = F.octet_length(found).between(1, _BIT_BYTES)
        return value(F.when(fits, F.conv(F.hex(F.when(fits, found)), 16, 10)), kind, time_zone)
    readable = F.is_valid_utf8(found.cast("string"))
    chars = F.when(readable, F.decode(F.when(readable, found), "UTF-8"))
    if isinstance(target, StringType):
        return chars
    return F.lit(None).cast(target) if isinstance(target, ArrayType) else value(chars, kind, time_zone)


def _of_date(text: Column, kind: MySqlType, time_zone: str) -> Column:
    target = spark_type(kind)
    if isinstance(target, (BinaryType, ArrayType)):
        return F.lit(None).cast(target)
    number = F.when(text.rlike(r"^-?\d+\z"), text.try_cast("bigint"))
    instant = F.timestamp_millis(F.when(number.between(_FIRST_MS, _LAST_MS), number))
    local = F.from_utc_timestamp(instant, time_zone).cast("timestamp_ntz")
    if kind.base == "timestamp":
        return instant
    if kind.base in ("date", "datetime"):
        return local.cast(target)
    if kind.base == "time":
        return time_text(F.date_format(local, "HH:mm:ss.SSS"), kind.params[0] if kind.params else None)
    if kind.base == "year":
        return F.year(local)
    return local.cast("string") if isinstance(target, StringType) else number.try_cast(target)
