"""The value that ADD COLUMN gives to rows that are there already."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DecimalType

from cdc_pipeline.schemas.spark_types import spark_type, value

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from cdc_pipeline.schemas.table import Column, MySqlType

_NOW = re.compile(r"(current_timestamp|now|localtime|localtimestamp)\s*(\(\s*(\d?)\s*\))?", re.IGNORECASE)
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_ZERO_TEXT = {"date": "0000-00-00", "time": "00:00:00", "year": "0"}


def default_value(column: Column, commit_ms: int, time_zone: str) -> SparkColumn | None:
    """The typed value, None where it is NULL. `commit_ms` is the DDL's own time, `time_zone` the encoder's.

    A column that is NOT NULL without a default gets its type's zero (ticdc-facts §10). Raises ValueError where the
    default is an expression that has no value known here.
    """
    default = column.default
    if default is None:
        return None if column.nullable else _implicit_zero(column.type)
    if default.value is None:
        return None
    if default.kind == "bits":
        return _number_or_bytes(column.type, int(default.value or "0", 2))
    if default.kind == "hex":
        return _number_or_bytes(column.type, int(default.value or "0", 16))
    if default.kind == "expression":
        return _current_time(column, default.value, commit_ms, time_zone)
    return _literal(column.type, default.value, time_zone)


def _literal(kind: MySqlType, text: str, time_zone: str) -> SparkColumn:
    target = spark_type(kind)
    if isinstance(target, BinaryType):
        data = text.encode()
        size = kind.params[0] if kind.base == "binary" and kind.params else len(data)
        return F.lit(data.ljust(size, b"\0"))
    if kind.base in ("enum", "set"):
        return F.lit(text)
    if kind.base in _TEXTS:
        return F.lit(text)
    if isinstance(target, DecimalType):
        return F.lit(text).cast(target)  # MySQL rounds a default to the column's scale, half away from zero
    return value(F.lit(text), kind, time_zone)


def _number_or_bytes(kind: MySqlType, number: int) -> SparkColumn:
    target = spark_type(kind)
    if isinstance(target, BinaryType):
        data = number.to_bytes((number.bit_length() + 7) // 8, "big")
        size = kind.params[0] if kind.base == "binary" and kind.params else len(data)
        return F.lit(data.ljust(size, b"\0"))
    if kind.base in _TEXTS:
        return F.lit(number.to_bytes((number.bit_length() + 7) // 8, "big").decode("utf-8", "replace"))
    return F.lit(str(number)).cast(target)


def _implicit_zero(kind: MySqlType) -> SparkColumn | None:
    target = spark_type(kind)
    if kind.base == "enum":
        return F.lit(kind.members[0]) if kind.members else None
    if kind.base in ("datetime", "timestamp", "date"):
        return None  # the zero date, which a mirror has as NULL
    if kind.base in ("json", "vector"):
        return None
    if isinstance(target, BinaryType):
        return F.lit(b"\0" * (kind.params[0] if kind.base == "binary" and kind.params else 0))
    if kind.base == "set" or kind.base in _TEXTS:
        return F.lit("")
    return F.lit(_ZERO_TEXT.get(kind.base, "0")).cast(target)


def _current_time(column: Column, expression: str, commit_ms: int, time_zone: str) -> SparkColumn:
    found = _NOW.fullmatch(expression.strip().strip("()") if expression.startswith("((") else expression.strip())
    if found is None or column.type.base not in ("datetime", "timestamp"):
        raise ValueError(f"its default {expression} cannot be computed")
    moment = datetime.fromtimestamp(commit_ms / 1000, timezone.utc)
    fraction = int(found.group(3) or 0)
    text = moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{moment.microsecond:06d}"[: fraction + 1] if fraction else "")
    instant = F.lit(text).cast("timestamp_ntz")
    if column.type.base == "datetime":
        return F.from_utc_timestamp(instant.cast("timestamp"), time_zone).cast("timestamp_ntz")
    return instant.cast("timestamp")
