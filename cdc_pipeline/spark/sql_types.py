"""Parses the Spark SQL type names of a pipeline's YAML file, without a JVM."""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from cdc_pipeline.mysql.types.spark_types import MAX_DECIMAL_DIGITS

_KINDS: tuple[type[DataType], ...] = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(StringType, BinaryType, DateType, TimestampType, TimestampNTZType),
)
_TYPES = {name: kind() for kind in _KINDS for name in (kind.typeName(), kind().simpleString())}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_ARRAY = re.compile(r"array\s*<\s*(.+)\s*>", re.DOTALL)
_EXPECTED = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp, timestamp_ntz, "
    "or array<…> of one"
)


def parse_spark_type(text: str) -> DataType:
    """The type of a case-insensitive name. Raises ValueError if it is unknown or not allowed for a column."""
    name = text.strip().lower()
    if array := _ARRAY.fullmatch(name):
        return ArrayType(parse_spark_type(array[1]))
    if digits := _DECIMAL.fullmatch(name):
        precision, scale = int(digits[1]), int(digits[2] or 0)
        if scale <= precision and 0 < precision <= MAX_DECIMAL_DIGITS:
            return DecimalType(precision, scale)
    elif name in _TYPES:
        return _TYPES[name]
    raise ValueError(f"{text!r} is not a Spark SQL type for a column; expected {_EXPECTED}")
