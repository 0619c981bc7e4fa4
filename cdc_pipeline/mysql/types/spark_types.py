"""Spark types of mirror columns, and conversion of message text to typed values (DESIGN §5).

`value` converts the text of a column to its typed value. It is NULL for a NULL text and for a zero or impossible date. It
is also NULL for text that cannot be parsed; `is_unparsed` is true then, so callers do not mistake a bad value for NULL. All
texts of the same value give the same result, also for types that a mirror stores as text.
"""

from __future__ import annotations

import json
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdc_pipeline.mysql.model.table import MySqlType
from cdc_pipeline.mysql.types.text_values import MOST_DIGITS, decimal_text, document, time_text

MAX_DECIMAL_DIGITS = 38
_DEFAULT_DIGITS = 10
"""DECIMAL(0) is DECIMAL(10)."""
_UINT64 = T.DecimalType(20, 0)

_SIGNED: dict[str, T.DataType] = {
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "mediumint": T.IntegerType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
}
_UNSIGNED: dict[str, T.DataType] = {
    "tinyint": T.ShortType(),
    "smallint": T.IntegerType(),
    "mediumint": T.IntegerType(),
    "int": T.LongType(),
    "bigint": _UINT64,
}
_OTHERS: dict[str, T.DataType] = {
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "datetime": T.TimestampNTZType(),
    "timestamp": T.TimestampType(),
    "year": T.IntegerType(),
    "vector": T.ArrayType(T.FloatType()),
}
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_YEARS = (1901, 2155)
"""The range of YEAR, besides 0."""
GEOMETRIES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    }
)
"""Types whose bytes are a 4-byte SRID followed by WKB."""
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}) | GEOMETRIES
# Matches every date that MySQL can store, including impossible ones: zero months and days, and, with
# ALLOW_INVALID_DATES, day 31 of any month. Spark's cast accepts more, for example a year alone or a time zone.
_DAY = r"\d{4}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_DATES = {"date": rf"^{_DAY}\z", "datetime": rf"^{_DAY} {_TIME}\z", "timestamp": rf"^{_DAY} {_TIME}\z"}

DATES = frozenset(_DATES)
"""Types whose zero dates are NULL in a mirror."""


def spark_type(kind: MySqlType) -> T.DataType:
    """The Spark type of a mirror column; STRING if no Delta type holds all values exactly."""
    base = kind.base
    if base in _SIGNED:
        return (_UNSIGNED if kind.unsigned else _SIGNED)[base]
    if base == "decimal":
        return _decimal(kind.params)
    if base == "bit":
        return _UINT64 if kind.params and kind.params[0] > 63 else T.LongType()
    if base in _BINARY:
        return T.BinaryType()
    return _OTHERS.get(base, T.StringType())


def _decimal(params: tuple[int, ...]) -> T.DataType:
    if not params:
        # without a definition, digits and scale are unknown: a guess could round, text is exact
        return T.StringType()
    precision, scale = params[0] or _DEFAULT_DIGITS, params[1] if len(params) > 1 else 0
    # a type from messages may have invalid numbers
    return T.DecimalType(precision, scale) if 0 <= scale <= precision <= MAX_DECIMAL_DIGITS else T.StringType()


def parse_value(text: Column, kind: MySqlType, time_zone: str) -> Column:
    """The typed value of a message's text; NULL if it cannot be parsed.

    `time_zone`: IANA zone in which the encoder prints TIMESTAMP.
    """
    base, target = kind.base, spark_type(kind)
    if base == "enum" and kind.members:
        return _enum_label(text, kind.members)
    if base == "set" and kind.members:
        return _set_labels(text, kind.members)
    if isinstance(target, T.StringType):
        return _kept_text(text, kind)
    if isinstance(target, T.BinaryType):
        return padded(latin1_bytes(text), kind)
    if isinstance(target, T.ArrayType):
        return _numbers(text, target)
    if base in _DATES:
        return _date(text, base, time_zone)
    return _in_range(_number(text, target), kind)


def _number(text: Column, target: T.DataType) -> Column:
    written = F.when(F.length(text) <= MOST_DIGITS, text)
    if isinstance(target, T.DecimalType):
        # NULL for digits beyond the scale, which a cast would round: the text was written under another definition
        return F.when(written.rlike(rf"^[+-]?\d*(?:\.\d{{0,{target.scale}}}0*)?\z"), written.try_cast(target))
    if isinstance(target, (T.FloatType, T.DoubleType)):
        # Spark also parses 1.5f, NaN and Infinity, and turns too large numbers into Infinity
        number = written.try_cast(target)
        return F.when(written.rlike(r"^[-+.0-9eE]+\z") & (F.abs(number) < float("inf")), number)
    return text.try_cast(target)


def _in_range(number: Column, kind: MySqlType) -> Column:
    """The number if it is in the range of the MySQL type (ticdc-canal-json "Integer types"), else NULL."""
    if kind.base == "year":
        return F.when((number == 0) | number.between(*_YEARS), number)
    limits = integer_range(kind)
    if limits is None:
        return F.when(number >= 0, number) if kind.unsigned else number
    if kind.base in _SIGNED and not kind.unsigned and kind.base != "mediumint":
        return number  # its Spark type has the same range
    return F.when(number.between(_exact(limits[0]), _exact(limits[1])), number)


def integer_range(kind: MySqlType) -> tuple[int, int] | None:
    """The least and the greatest value of an integer type or BIT; None for other types."""
    if kind.base == "bit":
        # TiCDC's default mode does not send the size of a BIT: allow the maximum
        return 0, 2 ** (kind.params[0] if kind.params else 64) - 1
    if kind.base not in _BITS:
        return None
    bits = _BITS[kind.base]
    return (0, 2**bits - 1) if kind.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _exact(number: int) -> Column:
    """An integer literal that Spark compares exactly with integers of any size."""
    return F.lit(number) if number < 2**63 else F.lit(Decimal(number))


def _kept_text(text: Column, kind: MySqlType) -> Column:
    """The normalized text of a value that a mirror stores as text. Unknown types are not changed."""
    if kind.base == "json":
        return document(text)
    if kind.base == "time":
        return time_text(text, kind.params[0] if kind.params else None)
    if kind.base == "decimal" and kind.params and (digits_and_scale := text_decimal(kind)) is not None:
        number = decimal_text(text, *digits_and_scale)
        return F.when(~number.startswith("-"), number) if kind.unsigned else number
    # MySQL returns a CHAR without trailing spaces
    return F.rtrim(text) if kind.base == "char" else text


def text_decimal(kind: MySqlType) -> tuple[int, int] | None:
    """Digits and scale of a DECIMAL that a mirror stores as text; None for other types, or if they are unknown."""
    if kind.base != "decimal" or not kind.params:
        return None
    digits, scale = kind.params[0] or _DEFAULT_DIGITS, kind.params[1] if len(kind.params) > 1 else 0
    return (digits, scale) if digits > MAX_DECIMAL_DIGITS and 0 <= scale <= digits else None


def is_unparsed(text: Column, typed: Column, kind: MySqlType) -> Column:
    """A boolean column: whether `text` is not a valid value of the type. False for zero dates, which are NULL by design."""
    failed = text.isNotNull() & typed.isNull()
    return failed & ~text.rlike(_DATES[kind.base]) if kind.base in _DATES else failed


def is_zero_date(text: Column, kind: MySqlType) -> Column:
    """A boolean column: whether `text` is a zero or impossible date (NULL in the mirror, text in the change log)."""
    if kind.base not in _DATES:
        return F.lit(False)
    return F.coalesce(text.rlike(_DATES[kind.base]) & _calendar_date(text, kind.base).isNull(), F.lit(False))


def _date(text: Column, base: str, time_zone: str) -> Column:
    local = F.when(text.rlike(_DATES[base]), _calendar_date(text, base))
    # a TIMESTAMP is parsed as a local time in the encoder's zone, then converted to an instant
    return F.to_utc_timestamp(local.cast("timestamp"), time_zone) if base == "timestamp" else local


def _calendar_date(text: Column, base: str) -> Column:
    """The date or local time; NULL for impossible dates and for the year 0."""
    local = text.try_cast("date" if base == "date" else "timestamp_ntz")
    return F.when(F.substring(text, 1, 4) != "0000", local)


def _numbers(text: Column, target: T.ArrayType) -> Column:
    """A VECTOR. The pattern rejects what `from_json` accepts: text after the closing bracket, null and NaN."""
    numbers = F.from_json(text, target)
    finite = F.forall(numbers, lambda number: F.abs(number) < float("inf"))
    return F.when(text.rlike(r"^\[[-+.0-9eE, ]*\]\z") & finite, numbers)


def latin1_bytes(text: Column) -> Column:
    """The bytes of a binary value, which messages encode as ISO-8859-1 text; NULL for characters beyond U+00FF."""
    return F.when(~text.rlike("[^\\x00-\\xff]"), F.encode(text, "ISO-8859-1"))


def padded(content: Column, kind: MySqlType) -> Column:
    """The bytes, padded with zero bytes to n for BINARY(n): Canal drops trailing zero bytes (canal-facts 21)."""
    if kind.base != "binary" or not kind.params:
        return content
    size = kind.params[0]
    return F.when(F.octet_length(content) < size, F.rpad(content, size, F.lit(b"\0"))).otherwise(content)


def _enum_label(text: Column, members: tuple[str, ...]) -> Column:
    """The label of a 1-based index; index 0 is MySQL's error value, the empty string."""
    return F.get(_texts(["", *members]), text.try_cast("int"))


_MAX_LITERALS = 100
"""Larger arrays are one JSON literal: Spark needs seconds to plan thousands of literals."""


def _texts(texts: list[str]) -> Column:
    """A constant array of strings."""
    if len(texts) <= _MAX_LITERALS:
        return F.array(*map(F.lit, texts))
    return F.from_json(F.lit(json.dumps(texts)), T.ArrayType(T.StringType()))


_SET_SIZE = 64
"""Maximum number of labels of a SET, whose value is an unsigned 64-bit mask."""


def _set_labels(text: Column, members: tuple[str, ...]) -> Column:
    """The labels of a bit mask, joined by commas as MySQL prints them; NULL if a bit has no label."""
    if len(members) < _SET_SIZE:
        mask = text.try_cast("bigint")
        known = (mask >= 0) & (F.shiftright(mask, len(members)) == 0)
    else:
        # a mask with the highest bit set becomes a negative BIGINT
        number = F.when(text.rlike(r"^\d{1,20}\z"), text.try_cast(_UINT64))
        known = number < F.lit(Decimal(2**64))
        mask = F.when(number < F.lit(Decimal(2**63)), number).otherwise(number - F.lit(Decimal(2**64)))
        mask = mask.try_cast("bigint")
    labels = [F.when(F.getbit(mask, F.lit(bit)) == 1, F.lit(member)) for bit, member in enumerate(members[:_SET_SIZE])]
    return F.when(known, F.concat_ws(",", *labels))
