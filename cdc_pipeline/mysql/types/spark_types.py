"""MySQL types as the types of a mirror, and the texts of messages as values of them (DESIGN §5).

`value` takes the text that a message has for a column and gives the typed value. It is null for a null text and for a
zero or impossible date; for any other text that does not parse it is null too, and `unparsed` is true, so that no
caller takes a bad value for NULL. Texts of one value give one value, also where that is kept as text.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from cdc_pipeline.mysql.types.text_values import MOST_DIGITS, decimal_text, time_text

if TYPE_CHECKING:
    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import MySqlType, TableSchema

MAX_DECIMAL_DIGITS = 38
_DEFAULT_DIGITS = 10
"""DECIMAL(0) is DECIMAL(10)."""
_UINT64 = DecimalType(20, 0)

_SIGNED: dict[str, DataType] = {
    "tinyint": ByteType(),
    "smallint": ShortType(),
    "mediumint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
}
_UNSIGNED: dict[str, DataType] = {
    "tinyint": ShortType(),
    "smallint": IntegerType(),
    "mediumint": IntegerType(),
    "int": LongType(),
    "bigint": _UINT64,
}
_OTHERS: dict[str, DataType] = {
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "datetime": TimestampNTZType(),
    "timestamp": TimestampType(),
    "year": IntegerType(),
    "vector": ArrayType(FloatType()),
}
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_YEARS = (1901, 2155)
"""The years of YEAR, beside its zero."""
GEOMETRIES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    }
)
"""Types whose bytes are 4 of the SRID, then WKB."""
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}) | GEOMETRIES
# Texts of a date that MySQL can hold, among them those that no calendar has: zero months and days, and under
# ALLOW_INVALID_DATES a 31st of each month. Spark's own cast takes much more, such as a year alone or a time zone.
_DAY = r"\d{4}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_DATES = {"date": rf"^{_DAY}\z", "datetime": rf"^{_DAY} {_TIME}\z", "timestamp": rf"^{_DAY} {_TIME}\z"}

DATES = frozenset(_DATES)
"""Types whose zero dates are NULL in a mirror."""


def spark_type(kind: MySqlType) -> DataType:
    """The mirror's type of a column; text for every type that Delta has nothing exact for."""
    base = kind.base
    if base in _SIGNED:
        return (_UNSIGNED if kind.unsigned else _SIGNED)[base]
    if base == "decimal":
        return _decimal(kind.params)
    if base == "bit":
        return _UINT64 if kind.params and kind.params[0] > 63 else LongType()
    if base in _BINARY:
        return BinaryType()
    return _OTHERS.get(base, StringType())


def _decimal(params: tuple[int, ...]) -> DataType:
    if not params:
        # Without a definition neither digits nor scale are known; a guess would round. Text is exact.
        return StringType()
    precision, scale = params[0] or _DEFAULT_DIGITS, params[1] if len(params) > 1 else 0
    # words of messages may say anything
    return DecimalType(precision, scale) if 0 <= scale <= precision <= MAX_DECIMAL_DIGITS else StringType()


def row_type(schema: TableSchema) -> StructType:
    """The mirror's own columns, without the underscored ones. All are nullable: Delta's NOT NULL would stop a merge."""
    return StructType([StructField(column.name, spark_type(column.type)) for column in schema.columns])


def value(text: Column, kind: MySqlType, time_zone: str) -> Column:
    """The typed value of a message's text. `time_zone` is where the encoder prints TIMESTAMP."""
    base, target = kind.base, spark_type(kind)
    if base == "enum" and kind.members:
        return _enum_label(text, kind.members)
    if base == "set" and kind.members:
        return _set_labels(text, kind.members)
    if isinstance(target, StringType):
        return _kept_text(text, kind)
    if isinstance(target, BinaryType):
        return padded(latin1_bytes(text), kind)
    if isinstance(target, ArrayType):
        return _numbers(text, target)
    if base in _DATES:
        return _date(text, base, time_zone)
    return _in_range(_number(text, target), kind)


def _number(text: Column, target: DataType) -> Column:
    written = F.when(F.length(text) <= MOST_DIGITS, text)
    if isinstance(target, DecimalType):
        # a digit beyond the scale would be rounded away: then the definition is not the one that the text was made by
        return F.when(written.rlike(rf"^[+-]?\d*(?:\.\d{{0,{target.scale}}}0*)?\z"), written.try_cast(target))
    if isinstance(target, (FloatType, DoubleType)):
        # Spark also reads 1.5f, NaN and Infinity, and takes what is too large for infinite
        number = written.try_cast(target)
        return F.when(written.rlike(r"^[-+.0-9eE]+\z") & (F.abs(number) < float("inf")), number)
    return text.try_cast(target)


def _in_range(number: Column, kind: MySqlType) -> Column:
    """The number where MySQL's type has it (ticdc-canal-json "Integer types"), which the mirror's may do for more."""
    if kind.base == "year":
        return F.when((number == 0) | number.between(*_YEARS), number)
    if kind.base == "bit":
        # without its size it is of any: TiCDC's default mode does not tell it
        most = 2 ** kind.params[0] - 1 if kind.params else 2 ** _BITS["bigint"] - 1
        return F.when(number.between(_exact(0), _exact(most)), number)
    if kind.base in _BITS and kind.unsigned:
        return F.when(number.between(_exact(0), _exact(2 ** _BITS[kind.base] - 1)), number)
    if kind.base == "mediumint":
        half = 2 ** (_BITS[kind.base] - 1)
        return F.when(number.between(-half, half - 1), number)
    return F.when(number >= 0, number) if kind.unsigned else number


def _exact(number: int) -> Column:
    """A literal that Spark compares with whole numbers of any size exactly."""
    return F.lit(number) if number < 2**63 else F.lit(Decimal(number))


def _kept_text(text: Column, kind: MySqlType) -> Column:
    """The one spelling that a value has in a column whose values are kept as text. JSON, and what is of no type that is
    known, stay as they were sent."""
    if kind.base == "time":
        return time_text(text, kind.params[0] if kind.params else None)
    if kind.base == "decimal" and kind.params and (digits_and_scale := text_decimal(kind)) is not None:
        number = decimal_text(text, *digits_and_scale)
        return F.when(~number.startswith("-"), number) if kind.unsigned else number
    # a CHAR is shown without the spaces at its end
    return F.rtrim(text) if kind.base == "char" else text


def text_decimal(kind: MySqlType) -> tuple[int, int] | None:
    """Digits and scale of a DECIMAL that is kept as text; None for all other types, and where they are not known."""
    if kind.base != "decimal" or not kind.params:
        return None
    digits, scale = kind.params[0] or _DEFAULT_DIGITS, kind.params[1] if len(kind.params) > 1 else 0
    return (digits, scale) if digits > MAX_DECIMAL_DIGITS and 0 <= scale <= digits else None


def unparsed(text: Column, typed: Column, kind: MySqlType) -> Column:
    """Whether `text` is a value that its column's type cannot hold. Zero dates are none: they are NULL by definition."""
    failed = text.isNotNull() & typed.isNull()
    return failed & ~text.rlike(_DATES[kind.base]) if kind.base in _DATES else failed


def zero_date(text: Column, kind: MySqlType) -> Column:
    """Whether `text` is a zero or impossible date, which the mirror has as NULL and the change log as text."""
    if kind.base not in _DATES:
        return F.lit(False)
    return F.coalesce(text.rlike(_DATES[kind.base]) & _calendar_date(text, kind.base).isNull(), F.lit(False))


def _date(text: Column, base: str, time_zone: str) -> Column:
    local = F.when(text.rlike(_DATES[base]), _calendar_date(text, base))
    # a timestamp is read as a local time of the encoder's zone, then placed on the time line
    return F.to_utc_timestamp(local.cast("timestamp"), time_zone) if base == "timestamp" else local


def _calendar_date(text: Column, base: str) -> Column:
    """The day or the local time; null where no calendar has it, which includes the year 0."""
    local = text.try_cast("date" if base == "date" else "timestamp_ntz")
    return F.when(F.substring(text, 1, 4) != "0000", local)


def _numbers(text: Column, target: ArrayType) -> Column:
    """A vector. The parser itself would stop at the closing bracket, and read null and NaN."""
    numbers = F.from_json(text, target)
    finite = F.forall(numbers, lambda number: F.abs(number) < float("inf"))
    return F.when(text.rlike(r"^\[[-+.0-9eE, ]*\]\z") & finite, numbers)


def latin1_bytes(text: Column) -> Column:
    """Binary values travel with each byte as the character of its number (ISO-8859-1); null for other characters."""
    return F.when(~text.rlike("[^\\x00-\\xff]"), F.encode(text, "ISO-8859-1"))


def padded(found: Column, kind: MySqlType) -> Column:
    """BINARY(n) has n bytes; Canal cuts the zero bytes at the end (canal-facts 21)."""
    if kind.base != "binary" or not kind.params:
        return found
    return F.when(F.octet_length(found) < kind.params[0], F.rpad(found, kind.params[0], F.lit(b"\0"))).otherwise(found)


def _enum_label(text: Column, members: tuple[str, ...]) -> Column:
    """The label of a 1-based index; index 0 is MySQL's empty error value."""
    return F.get(_texts(["", *members]), text.try_cast("int"))


_FEW = 100


def _texts(texts: list[str]) -> Column:
    """An array of texts. Of many each as a literal would take seconds to plan."""
    if len(texts) <= _FEW:
        return F.array(*map(F.lit, texts))
    return F.from_json(F.lit(json.dumps(texts)), ArrayType(StringType()))


_SET_SIZE = 64
"""The most members that a SET can have: a mask is an unsigned 64-bit number."""


def _set_labels(text: Column, members: tuple[str, ...]) -> Column:
    """The labels of a bit mask, joined by commas as MySQL prints them; null for bits that no label has."""
    if len(members) < _SET_SIZE:
        mask = text.try_cast("bigint")
        known = (mask >= 0) & (F.shiftright(mask, len(members)) == 0)
    else:
        # masks with the highest bit are the negative numbers of BIGINT
        number = F.when(text.rlike(r"^\d{1,20}\z"), text.try_cast(_UINT64))
        known = number < F.lit(Decimal(2**64))
        mask = F.when(number < F.lit(Decimal(2**63)), number).otherwise(number - F.lit(Decimal(2**64)))
        mask = mask.try_cast("bigint")
    labels = [
        F.when(F.getbit(mask, F.lit(place)) == 1, F.lit(member)) for place, member in enumerate(members[:_SET_SIZE])
    ]
    return F.when(known, F.concat_ws(",", *labels))
