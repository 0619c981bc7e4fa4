"""The value that ADD COLUMN gives to existing rows.

MySQL converts the default, as written in the DDL, to the column's type: it rounds, pads and completes it. This module does
the same in Python, once per added column. Expressions are translated (`mysql.expressions`).
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation, Overflow
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, ByteType, DataType, DecimalType, IntegerType, LongType, ShortType

from cdc_pipeline.mysql.expressions.translation import translate_assignment
from cdc_pipeline.mysql.model.limits import MAX_EXPRESSION_CHARACTERS, limit_message, shortened
from cdc_pipeline.mysql.model.table import TEXT_TYPES
from cdc_pipeline.mysql.types.charsets import charset_of_column, collation_of_column
from cdc_pipeline.mysql.types.labels import LabelError, matching_label, matching_labels
from cdc_pipeline.mysql.types.local_times import times_shown
from cdc_pipeline.mysql.types.spark_types import GEOMETRIES, parse_value, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from cdc_pipeline.mysql.expressions.translation import Now
    from cdc_pipeline.mysql.model.table import Column, MySqlType, TableSchema

_DATES = frozenset({"date", "datetime", "timestamp"})
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year"})
_BYTES_OF_INTEGERS: dict[type[DataType], int] = {ByteType: 1, ShortType: 2, IntegerType: 4, LongType: 8}
_EXACT = Context(prec=400)
# Python's codecs of the character sets whose literals may be written as bytes
_CODECS = {None: "utf-8", "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "ascii": "ascii", "latin1": "cp1252"}
_LABELLED = frozenset({"enum", "set"})
_DIGITS_OF_MASK = 20
_BYTES_OF_NUMBER = 8
_MOST_EXPONENT = 400
"""Larger than the exponent of any number that a type can hold."""
_DIGITS_OF_DATE = 14
_DIGITS_PRINTED = 4
"""Floating-point numbers between 1e-4 and 1e4 have the same text in all servers."""
# dates written as numbers: (greatest number, century to add, factor that appends the time)
_SHORT_DATES = (
    (0, 0, 1),
    (691_231, 20_000_000, 10**6),
    (991_231, 19_000_000, 10**6),
    (99_991_231, 0, 10**6),
    (691_231_235_959, 20_000_000_000_000, 1),
    (991_231_235_959, 19_000_000_000_000, 1),
)
_MOST_SECONDS = 838 * 3600 + 59 * 60 + 59

_DATE = re.compile(
    r"(\d{4}|\d\d)\D(\d\d?)\D(\d\d?)(?:[T\s]\s*(\d\d?)(?:\D(\d\d?)(?:\D(\d\d?)(?:\.(\d*))?)?)?)?|"
    r"(\d{4}|\d\d)(\d\d)(\d\d)(?:T?(\d\d)(\d\d)(\d\d)(?:\.(\d*))?)?"
)
_TIME = re.compile(r"(?:(\d+) )?(\d+):(\d\d?)(?::(\d\d?)(?:\.(\d*))?)?|(?:(\d+) )(\d+)|(\d{1,7})(?:\.(\d*))?")


def default_value(
    column: Column, schema: TableSchema, time_zone: str, now: Now | None = None, shown: TableSchema | None = None
) -> tuple[SparkColumn | None, SparkColumn | None]:
    """The default as a typed value (None for NULL), and a boolean that is true where upstream's may differ (None: nowhere).

    A NOT NULL column without a default gets its type's zero (ticdc-facts §10).

    `schema`: the table. `shown`: its columns that an expression may read; None: all.
    `time_zone`: zone of the encoder. `now`: time of the statement that adds the column; None: the default is constant.

    Raises ValueError if the value is unknown.
    """
    default = column.default
    if default is not None and default.kind == "expression" and default.value is not None:
        found = translate_assignment(default.value, column, shown or schema, time_zone, now)
        return F.expr(found.sql), None if found.doubtful is None else F.expr(found.doubtful)
    if now is not None and now.is_start and _may_be_current_time(column, schema):
        return F.lit(None).cast("timestamp"), F.lit(True)
    return _constant(column, schema, time_zone), None


def _may_be_current_time(column: Column, schema: TableSchema) -> bool:
    """Whether the column has the current time as default if `explicit_defaults_for_timestamp` is off.

    It is off by default before MySQL 8.0 and MariaDB 10.10. The column is the table's first TIMESTAMP, without a default.
    """
    first = next((other for other in schema.columns if other.type.base == "timestamp"), column)
    return column.default is None and column.type.base == "timestamp" and first.name == column.name


def _constant(column: Column, schema: TableSchema, time_zone: str) -> SparkColumn | None:
    default, kind = column.default, column.type
    if column.auto_increment:
        raise ValueError("upstream numbers existing rows in an order that no message contains")
    if kind.base in _LABELLED or kind.base in TEXT_TYPES:
        charset, collation = charset_of_column(kind, schema.charset), collation_of_column(kind, schema)
        kind = replace(kind, charset=charset, collation=collation)
    if default is None:
        return None if column.nullable else _implicit_zero(kind)
    if default.value is None:
        return None
    if default.kind == "bits":
        size = (len(default.value) + 7) // 8
        return _bytes_value(kind, int(default.value or "0", 2).to_bytes(size, "big"))
    if default.kind == "hex":
        return _bytes_value(kind, bytes.fromhex(default.value))
    return _literal(kind, default.value, time_zone, is_number=default.kind == "number")


def _literal(kind: MySqlType, text: str, time_zone: str, *, is_number: bool) -> SparkColumn | None:
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(limit_message("characters of its default", len(text), MAX_EXPRESSION_CHARACTERS))
    if isinstance(spark_type(kind), BinaryType):
        return _padded(kind, (_number_text(kind, text) if is_number else text).encode())
    if kind.base in TEXT_TYPES:
        shown = _number_text(kind, text) if is_number else text
        # MySQL returns CHAR without trailing spaces
        return F.lit(shown.rstrip(" ") if kind.base == "char" else shown)
    if kind.base == "json" and not is_number:
        return F.lit(text)  # MariaDB's JSON is a LONGTEXT; MySQL and TiDB take no literal
    if kind.base in _LABELLED:
        return F.lit(_labelled(kind, text, is_number=is_number))
    if kind.base == "time":
        return F.lit(_time_text(text, kind.params[0] if kind.params else 0))
    if kind.base in _DATES:
        date = _date_text(_fourteen_digits(kind, text) if is_number else text, kind)
        return None if date is None else _moment(date, kind, time_zone)
    if kind.base not in _NUMBERS:
        raise _invalid(kind, text)
    if kind.base == "bit" and not is_number:
        return _bytes_value(kind, text.encode())
    if kind.base == "year" and not is_number and text.strip() in ("0", "00", "000"):
        text = "2000"  # a number 0 is the year 0000
    try:
        return _number(kind, Decimal(text), text, is_float=is_number and "e" in text.lower())
    except (InvalidOperation, Overflow):
        raise _invalid(kind, text) from None


def _number_text(kind: MySqlType, text: str) -> str:
    """The text of a numeric default of a character column."""
    number = Decimal(text)
    if "e" not in text.lower():
        return f"{number:f}" if number else f"{abs(number):f}"
    # outside this range servers print floating-point numbers differently
    if not number.is_zero() and not -_DIGITS_PRINTED < number.adjusted() < _DIGITS_PRINTED:
        raise _invalid(kind, text)
    return f"{float(number):.0f}" if number == number.to_integral_value() else repr(float(number))


def _moment(text: str, kind: MySqlType, time_zone: str) -> SparkColumn:
    if kind.base == "timestamp" and (doubt := times_shown(text, time_zone)) is not None:
        raise ValueError(f"its default {text!r} is a local time that {time_zone} shows {doubt}")
    return parse_value(F.lit(text), kind, time_zone)


def _labelled(kind: MySqlType, text: str, *, is_number: bool) -> str:
    """The label of an ENUM, or the labels of a SET.

    Only TiDB accepts a label's number instead. If a number is also a label, MySQL uses the label and TiDB the number.
    """
    find = matching_label if kind.base == "enum" else matching_labels
    by_number = _label_by_number(kind, text)
    try:
        by_text = find(text, kind.members, kind.collation)
    except LabelError as error:
        if by_number is None:
            raise ValueError(f"its default {error}") from None
        return by_number
    if is_number and by_number not in (None, by_text):
        raise ValueError(f"its default {text} is the label {by_text!r} in MySQL and {by_number!r} in TiDB")
    return by_text


def _label_by_number(kind: MySqlType, text: str) -> str | None:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_OF_MASK):
        return None
    number = int(text)
    if kind.base == "enum":
        return kind.members[number - 1] if 0 < number <= len(kind.members) else None
    if number >= 1 << len(kind.members):
        return None
    return ",".join(member for index, member in enumerate(kind.members) if number >> index & 1)


def _bytes_value(kind: MySqlType, data: bytes) -> SparkColumn:
    """The value of a literal such as x'0aff': bytes for a binary or text column, else a number."""
    if isinstance(spark_type(kind), BinaryType):
        return _padded(kind, data)
    shown = f"x'{shortened(data.hex())}'"
    if kind.base in TEXT_TYPES or kind.base in _LABELLED:
        try:
            text = data.decode(_CODECS[kind.charset])
        except (KeyError, UnicodeDecodeError):
            raise _invalid(kind, shown) from None
        return F.lit(_labelled(kind, text, is_number=False) if kind.base in _LABELLED else text)
    if kind.base not in _NUMBERS or len(data.lstrip(b"\0")) > _BYTES_OF_NUMBER:
        raise _invalid(kind, shown)
    return _number(kind, Decimal(int.from_bytes(data, "big")), shown)


def _padded(kind: MySqlType, data: bytes) -> SparkColumn:
    size = (kind.params[0] if kind.params else 1) if kind.base == "binary" else len(data)
    return F.lit(data.ljust(size, b"\0"))


def _number(kind: MySqlType, number: Decimal, text: str, *, is_float: bool = False) -> SparkColumn:
    """The number rounded to the column's scale as in MySQL: half away from zero, but half to even for a float (1e-1)."""
    target = spark_type(kind)
    if not number.is_finite() or (number and not -_MOST_EXPONENT < number.adjusted() < _MOST_EXPONENT):
        raise _invalid(kind, text)
    if kind.base in ("float", "double"):
        return _floating(kind, float(number), text).cast(target)
    if kind.base == "year" and number and number < 100:
        number += 2000 if number < 70 else 1900
    rounding = ROUND_HALF_EVEN if is_float and kind.base != "decimal" else ROUND_HALF_UP
    number = number.quantize(Decimal(1).scaleb(-_scale(kind)), rounding, _EXACT)
    size = _BYTES_OF_INTEGERS.get(type(target))
    digits = target.precision - target.scale if isinstance(target, DecimalType) else None
    if size is not None and not -(2 ** (8 * size - 1)) <= number < 2 ** (8 * size - 1):
        raise _invalid(kind, text)
    if digits is not None and abs(number) >= 10**digits:
        raise _invalid(kind, text)
    return F.lit(f"{number:f}").cast(target)


def _scale(kind: MySqlType) -> int:
    return kind.params[1] if kind.base == "decimal" and len(kind.params) > 1 else 0


def _floating(kind: MySqlType, number: float, text: str) -> SparkColumn:
    """A FLOAT or DOUBLE value. With a scale it is rounded in binary; MySQL and TiDB must agree on the result."""
    if len(kind.params) > 1:
        power = 10.0 ** kind.params[1]
        whole = math.floor(number)
        mysql, tidb = whole + round((number - whole) * power) / power, round(number * power) / power
        if mysql != tidb:
            raise _invalid(kind, text)
        number = mysql
    return F.lit(repr(number))


def _fourteen_digits(kind: MySqlType, text: str) -> str:
    """A date written as a number, completed to 14 digits: 240102 becomes 20240102000000."""
    whole, _, fraction = text.partition(".")
    if not (whole.isascii() and whole.isdigit()) or len(whole) > _DIGITS_OF_DATE:
        raise _invalid(kind, text)
    number = int(whole)
    for most, century, factor in _SHORT_DATES:
        if number <= most:
            number = (number + century) * factor
            break
    return f"{number:014d}" + (f".{fraction}" if fraction else "")


def _date_text(text: str, kind: MySqlType) -> str | None:
    """The date as text of a message; None for a zero date, which a mirror stores as NULL."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise _invalid(kind, text)
    year, month, day, *clock = found.groups()[:7] if found.group(1) else found.groups()[7:]
    if year == "0000" or int(month) == 0 or int(day) == 0:
        return None
    century = 0 if len(year) == 4 else 2000 if int(year) < 70 else 1900
    hour, minute, second = (int(part or 0) for part in clock[:3])
    try:
        moment = datetime(century + int(year), int(month), int(day), hour, minute, second)
    except ValueError:
        raise _invalid(kind, text) from None
    if kind.base == "date":
        return f"{moment:%Y-%m-%d}".rjust(10, "0")
    moment += timedelta(microseconds=_microseconds(clock[3], kind.params[0] if kind.params else 0))
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0")


def _time_text(text: str, scale: int) -> str:
    """The TIME value as text of a message."""
    found = _TIME.fullmatch(text.strip().removeprefix("-"))
    if found is None:
        raise ValueError(f"its default {text!r} is not a valid time")
    days, hours, minutes, seconds, fraction, days_alone, hours_alone, digits, digits_fraction = found.groups()
    if digits is not None:
        hours, minutes, seconds, fraction = digits[:-4], digits[-4:-2], digits[-2:], digits_fraction
    of_days = int(days or days_alone or 0) * 24
    total = ((of_days + int(hours or hours_alone or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    if int(minutes or 0) > 59 or int(seconds or 0) > 59 or total > _MOST_SECONDS:
        raise ValueError(f"its default {text!r} is not a valid time")
    total, micros = divmod(total * 1_000_000 + _microseconds(fraction, scale), 1_000_000)
    sign = "-" if text.strip().startswith("-") and (total or micros) else ""
    tail = f".{micros:06d}"[: scale + 1] if scale else ""
    return f"{sign}{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}{tail}"


def _microseconds(fraction: str | None, scale: int) -> int:
    """The fraction rounded to `scale` digits, in microseconds; 1,000,000 if it rounds up to a full second."""
    rounded = Decimal(f"0.{fraction or 0}").quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    return int(rounded * 1_000_000)


def _implicit_zero(kind: MySqlType) -> SparkColumn | None:
    if kind.base in _DATES:
        return None  # the zero date, which a mirror stores as NULL
    if kind.base == "enum" and kind.members:
        return F.lit(kind.members[0])
    if kind.base == "set" or kind.base in TEXT_TYPES:
        return F.lit("")
    if kind.base == "json":
        return F.lit("null")  # the JSON value null, not SQL NULL
    if kind.base == "time":
        return F.lit(_time_text("0", kind.params[0] if kind.params else 0))
    if isinstance(spark_type(kind), BinaryType) and kind.base not in GEOMETRIES:
        return _padded(kind, b"")
    if kind.base in _NUMBERS:
        return _number(kind, Decimal(0), "0")
    raise ValueError(f"{kind} has no known zero value")


def _invalid(kind: MySqlType, text: str) -> ValueError:
    return ValueError(f"its default {shortened(text)!r} is not a valid {shortened(str(kind))}")
