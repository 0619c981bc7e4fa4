"""MySQL types as the types of a mirror, and the texts of messages as values of them (DESIGN §5).

`value` takes the text that a message has for a column and gives the typed value. It is null for a null text and for a
zero or impossible date; for any other text that does not parse it is null too, and `unparsed` is true, so that no
caller takes a bad value for NULL.
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from pyspark.sql import Column

    from cdc_pipeline.schemas.table import MySqlType, TableSchema

MAX_DECIMAL_DIGITS = 38
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
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_DATES = frozenset({"date", "datetime", "timestamp"})
# The text of a date that MySQL accepts and no calendar has: a zero year, month or day.
_ZERO_DATE = r"^(0000-\d\d-\d\d|\d{4}-00-\d\d|\d{4}-\d\d-00)"


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
    precision, scale = params[0], params[1] if len(params) > 1 else 0
    return DecimalType(precision, scale) if precision <= MAX_DECIMAL_DIGITS else StringType()


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
        return text
    if isinstance(target, BinaryType):
        return _latin1_bytes(text)
    if isinstance(target, ArrayType):
        return F.from_json(text, target)
    if isinstance(target, DecimalType) and base == "decimal":
        # a digit beyond the scale would be rounded away: then the definition is not the one that the text was made by
        return F.when(~text.rlike(rf"\.\d{{{target.scale}}}\d*[1-9]"), text.try_cast(target))
    if base == "timestamp":
        # read as a local time of the encoder's zone, then placed on the time line
        return F.to_utc_timestamp(text.try_cast("timestamp_ntz").cast("timestamp"), time_zone)
    return text.try_cast(target)


def unparsed(text: Column, typed: Column, kind: MySqlType) -> Column:
    """Whether `text` is a value that its column's type cannot hold. Zero dates are none: they are NULL by definition."""
    failed = text.isNotNull() & typed.isNull()
    return failed & ~text.rlike(_ZERO_DATE) if kind.base in _DATES else failed


def zero_date(text: Column, kind: MySqlType) -> Column:
    """Whether `text` is a zero or impossible date, which the mirror has as NULL and the change log as text."""
    return text.rlike(_ZERO_DATE) if kind.base in _DATES else F.lit(False)


def _latin1_bytes(text: Column) -> Column:
    """Binary values travel with each byte as the character of its number (ISO-8859-1); null for other characters."""
    return F.when(~text.rlike("[^\\x00-\\xff]"), F.encode(text, "ISO-8859-1"))


def _enum_label(text: Column, members: tuple[str, ...]) -> Column:
    """The label of a 1-based index; index 0 is MySQL's empty error value."""
    labels = F.array(F.lit(""), *(F.lit(member) for member in members))
    return F.get(labels, text.try_cast("int"))


_SET_SIZE = 64
"""The most members that a SET can have: a mask is an unsigned 64-bit number."""


def _set_labels(text: Column, members: tuple[str, ...]) -> Column:
    """The labels of a bit mask, joined by commas as MySQL prints them; null for bits that no label has."""
    bits = F.lpad(F.conv(text, 10, 2), _SET_SIZE, "0")
    labels = [
        F.when(F.substring(bits, _SET_SIZE - place, 1) == "1", F.lit(member)) for place, member in enumerate(members)
    ]
    unknown = (
        F.lit(False) if len(members) == _SET_SIZE else F.substring(bits, 1, _SET_SIZE - len(members)).contains("1")
    )
    return F.when(text.rlike(r"^\d{1,20}$") & ~unknown, F.concat_ws(",", *labels))
