"""Converts message text whose encoding does not follow from the column type: MariaDB's JSON and DataWorks' six types.

`wire_value` extends `spark_types.parse_value`, which converts the standard Canal-JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DecimalType, StringType

from cdc_pipeline.mysql.model.table import MySqlType
from cdc_pipeline.mysql.types.spark_types import latin1_bytes, padded, parse_value, spark_type, text_decimal
from cdc_pipeline.mysql.types.text_values import MOST_DIGITS, decimal_text_of_double, is_document, time_text

Encodings: TypeAlias = "tuple[tuple[str, Mapping[str, str]], ...]"
"""(dialect, encoding per column) for each dialect of the rows; the encodings are those of `wire_value`."""
CellEncodings: TypeAlias = "tuple[tuple[str, str | None], ...]"
"""`Encodings` of one column: (dialect, encoding)."""

JSON_BYTES = "JSON_BYTES"
"""MariaDB's JSON from Canal: UTF-8 bytes, encoded as ISO-8859-1 text (canal-facts 29)."""
TEXT_BYTES = "TEXT_BYTES"
"""`TEXT(n)` from Canal: UTF-8 bytes, encoded as ISO-8859-1 text (Canal's `LogEventConvert.isText`)."""
HEX = "HEX"
"""Bytes of a baseline, as hexadecimal digits."""
_LABELS = ("enum", "set")
_BIT_BYTES = 8
# the range of DATE and DATETIME, in ms since 1970
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def encodings_of(column: str, wires: Encodings) -> CellEncodings:
    """The encodings of one column."""
    return tuple((dialect, encodings.get(column)) for dialect, encodings in wires)


def typed_cell(text: Column, kind: MySqlType, time_zone: str, encodings: CellEncodings) -> Column:
    """The typed value of a text, which depends on the column `dialect`; NULL if it cannot be parsed."""
    by_dialect = dict(encodings)
    if len(set(by_dialect.values())) <= 1:
        return wire_value(text, kind, time_zone, next(iter(by_dialect.values()), None))
    cells = {dialect: wire_value(text, kind, time_zone, encoding) for dialect, encoding in by_dialect.items()}
    return F.coalesce(*(F.when(F.col("dialect") == dialect, cell) for dialect, cell in cells.items()))


def wire_value(text: Column, kind: MySqlType, time_zone: str, encoding: str | None) -> Column:
    """The typed value of a text in an encoding; NULL if it cannot be parsed.

    `encoding`: JSON_BYTES, TEXT_BYTES, HEX, a type of DataWorks (BYTES, DATE, BOOLEAN, DOUBLE, STRING, LONG), or None for
    Canal-JSON's own text. DATE is ms since 1970 UTC: an instant for TIMESTAMP, a local time in `time_zone` for other types.
    """
    if encoding is None or (encoding == JSON_BYTES and kind.base != "json"):
        return parse_value(text, kind, time_zone)
    if encoding == JSON_BYTES:
        # no encoder prints this text: it is as MariaDB stores it, so there is nothing to repair
        chars = _of_latin1(text)
        return F.when(is_document(chars), chars)
    if encoding == TEXT_BYTES:
        return parse_value(_of_latin1(text), kind, time_zone)
    if encoding in ("BYTES", HEX):
        return _of_bytes(F.try_to_binary(text, F.lit("hex" if encoding == HEX else "base64")), kind, time_zone)
    if encoding == "DATE":
        return _of_date(text, kind, time_zone)
    if encoding == "BOOLEAN":
        number = F.when(text == "true", F.lit("1")).when(text == "false", F.lit("0"))
        return parse_value(F.coalesce(number, text), kind, time_zone)
    target = spark_type(kind)
    if encoding == "DOUBLE" and (digits := text_decimal(kind)) is not None:
        return decimal_text_of_double(text, *digits)
    if encoding == "DOUBLE" and isinstance(target, DecimalType):
        # the nearest decimal: a double may have digits beyond the scale of the column
        return F.when(F.length(text) <= MOST_DIGITS, text).try_cast(target)
    if encoding == "STRING" and kind.base in _LABELS:
        return text
    if encoding == "STRING" and isinstance(target, BinaryType):
        return padded(F.encode(text, "UTF-8"), kind)
    return parse_value(text, kind, time_zone)


def _of_latin1(text: Column) -> Column:
    """The characters of UTF-8 bytes that are encoded as ISO-8859-1 text; NULL if they are not UTF-8."""
    return F.when(F.is_valid_utf8(latin1_bytes(text).cast("string")), F.decode(latin1_bytes(text), "UTF-8"))


def _of_bytes(content: Column, kind: MySqlType, time_zone: str) -> Column:
    """The typed value of bytes."""
    target = spark_type(kind)
    if isinstance(target, BinaryType):
        return padded(content, kind)
    if kind.base == "bit":
        fits = F.octet_length(content).between(1, _BIT_BYTES)
        return parse_value(F.when(fits, F.conv(F.hex(F.when(fits, content)), 16, 10)), kind, time_zone)
    is_text = F.is_valid_utf8(content.cast("string"))
    chars = F.when(is_text, F.decode(F.when(is_text, content), "UTF-8"))
    if kind.base in _LABELS:
        return chars
    return F.lit(None).cast(target) if isinstance(target, ArrayType) else parse_value(chars, kind, time_zone)


def _of_date(text: Column, kind: MySqlType, time_zone: str) -> Column:
    target = spark_type(kind)
    if isinstance(target, (BinaryType, ArrayType)) or kind.base == "json":
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
