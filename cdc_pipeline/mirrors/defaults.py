"""The value that ADD COLUMN gives to rows that are there already.

A default is written in the DDL as its author wrote it, and MySQL makes a value of the column's type of it: rounds,
pads, completes. The same is done here, in Python, once per added column.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, ByteType, DataType, DecimalType, IntegerType, LongType, ShortType

from cdc_pipeline.schemas.spark_types import GEOMETRIES, spark_type, value
from cdc_pipeline.schemas.table import TEXT_TYPES

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

    from cdc_pipeline.schemas.table import Column, MySqlType

_NOW = re.compile(r"(current_timestamp|now|localtime|localtimestamp)\s*(\(\s*(\d?)\s*\))?", re.IGNORECASE)
_DATES = frozenset({"date", "datetime", "timestamp"})
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year"})
_BYTES_OF_INTEGERS: dict[type[DataType], int] = {ByteType: 1, ShortType: 2, IntegerType: 4, LongType: 8}
_EXACT = Context(prec=400)
# Python's names of the character sets whose literals can be given as bytes
_CODECS = {None: "utf-8", "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "ascii": "ascii", "latin1": "cp1252"}
_MOST_SECONDS = 838 * 3600 + 59 * 60 + 59

_DATE = re.compile(
    r"(\d{4}|\d\d)\D(\d\d?)\D(\d\d?)(?:[T\s]\s*(\d\d?)(?:\D(\d\d?)(?:\D(\d\d?)(?:\.(\d*))?)?)?)?|"
    r"(\d{4}|\d\d)(\d\d)(\d\d)(?:T?(\d\d)(\d\d)(\d\d)(?:\.(\d*))?)?"
)
_TIME = re.compile(r"(?:(\d+) )?(\d+):(\d\d?)(?::(\d\d?)(?:\.(\d*))?)?|(?:(\d+) )(\d+)|(\d{1,7})(?:\.(\d*))?")


def default_value(column: Column, commit_ms: int, time_zone: str) -> SparkColumn | None:
    """The typed value, None where it is NULL. `commit_ms` is the DDL's own time, `time_zone` the encoder's.

    A column that is NOT NULL without a default gets its type's zero (ticdc-facts §10). Raises ValueError where the
    default has no value known here.
    """
    default, kind = column.default, column.type
    if default is None:
        return None if column.nullable else _implicit_zero(kind)
    if default.value is None:
        return None
    if default.kind == "bits":
        size = (len(default.value) + 7) // 8
        return _of_bytes(kind, int(default.value or "0", 2).to_bytes(size, "big"))
    if default.kind == "hex":
        return _of_bytes(kind, bytes.fromhex(default.value))
    if default.kind == "expression":
        return _current_time(column, default.value, commit_ms, time_zone)
    return _literal(kind, default.value, time_zone)


def _literal(kind: MySqlType, text: str, time_zone: str) -> SparkColumn | None:
    if isinstance(spark_type(kind), BinaryType):
        return _padded(kind, text.encode())
    if kind.base in TEXT_TYPES:
        # CHAR is shown without the spaces at its end
        return F.lit(text.rstrip(" ") if kind.base == "char" else text)
    if kind.base == "enum":
        return F.lit(_label(kind, text))
    if kind.base == "set":
        return F.lit(_labels(kind, text))
    if kind.base == "time":
        return F.lit(_time(text, kind.params[0] if kind.params else 0))
    if kind.base in _DATES:
        date = _date(text, kind)
        return None if date is None else value(F.lit(date), kind, time_zone)
    if kind.base not in _NUMBERS:
        raise _unknown(kind, text)
    try:
        return _number(kind, Decimal(text), text)
    except InvalidOperation:
        raise _unknown(kind, text) from None


def _of_bytes(kind: MySqlType, data: bytes) -> SparkColumn:
    """The value of a literal such as x'0aff': bytes where the column has text or bytes, else a number."""
    if isinstance(spark_type(kind), BinaryType):
        return _padded(kind, data)
    if kind.base in TEXT_TYPES:
        try:
            return F.lit(data.decode(_CODECS[kind.charset]))
        except (KeyError, UnicodeDecodeError):
            raise _unknown(kind, f"x'{data.hex()}'") from None
    if kind.base not in _NUMBERS:
        raise _unknown(kind, f"x'{data.hex()}'")
    return _number(kind, Decimal(int.from_bytes(data, "big")), f"x'{data.hex()}'")


def _padded(kind: MySqlType, data: bytes) -> SparkColumn:
    size = (kind.params[0] if kind.params else 1) if kind.base == "binary" else len(data)
    return F.lit(data.ljust(size, b"\0"))


def _number(kind: MySqlType, number: Decimal, text: str) -> SparkColumn:
    """The number rounded to the column's digits, half away from zero as MySQL does."""
    target = spark_type(kind)
    if kind.base == "year" and number and number < 100:
        number += 2000 if number < 70 else 1900
    places = _places(kind)
    if places is not None:
        number = number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT)
    size = _BYTES_OF_INTEGERS.get(type(target))
    digits = target.precision - target.scale if isinstance(target, DecimalType) else None
    if size is not None and not -(2 ** (8 * size - 1)) <= number < 2 ** (8 * size - 1):
        raise _unknown(kind, text)
    if digits is not None and abs(number) >= 10**digits:
        raise _unknown(kind, text)
    return F.lit(f"{number:f}").cast(target)


def _places(kind: MySqlType) -> int | None:
    """The digits after the point that the column keeps; None where it keeps what a binary number can."""
    if kind.base in ("decimal", "float", "double"):
        return kind.params[1] if len(kind.params) > 1 else 0 if kind.base == "decimal" else None
    return 0


def _label(kind: MySqlType, text: str) -> str:
    """The enum's own spelling of the label: labels compare without case and without spaces at the end."""
    for member in kind.members:
        if member.casefold() == text.rstrip(" ").casefold():
            return member
    if text.isascii() and text.isdigit() and 0 < int(text) <= len(kind.members):
        return kind.members[int(text) - 1]
    raise _unknown(kind, text)


def _labels(kind: MySqlType, text: str) -> str:
    """The set's labels in its own order, each once; a number is a mask."""
    if text.isascii() and text.isdigit() and text not in kind.members:
        if int(text) >= 1 << len(kind.members):
            raise _unknown(kind, text)
        return ",".join(member for place, member in enumerate(kind.members) if int(text) >> place & 1)
    chosen = {_label(kind, part) for part in text.split(",")} if text else set()
    return ",".join(member for member in kind.members if member in chosen)


def _date(text: str, kind: MySqlType) -> str | None:
    """The text that a message would have for this default; None for a zero date, which a mirror has as NULL."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise _unknown(kind, text)
    year, month, day, *clock = found.groups()[:7] if found.group(1) else found.groups()[7:]
    if year == "0000" or int(month) == 0 or int(day) == 0:
        return None
    century = 0 if len(year) == 4 else 2000 if int(year) < 70 else 1900
    hour, minute, second = (int(part or 0) for part in clock[:3])
    try:
        moment = datetime(century + int(year), int(month), int(day), hour, minute, second)
    except ValueError:
        raise _unknown(kind, text) from None
    if kind.base == "date":
        return f"{moment:%Y-%m-%d}".rjust(10, "0")
    moment += timedelta(microseconds=_microseconds(clock[3], kind.params[0] if kind.params else 0))
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0")


def _time(text: str, places: int) -> str:
    """The text that a message would have for this default of a TIME column."""
    found = _TIME.fullmatch(text.strip().removeprefix("-"))
    if found is None:
        raise ValueError(f"its default {text!r} is no time")
    days, hours, minutes, seconds, fraction, days_alone, hours_alone, digits, digits_fraction = found.groups()
    if digits is not None:
        hours, minutes, seconds, fraction = digits[:-4], digits[-4:-2], digits[-2:], digits_fraction
    of_days = int(days or days_alone or 0) * 24
    total = ((of_days + int(hours or hours_alone or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    if int(minutes or 0) > 59 or int(seconds or 0) > 59 or total > _MOST_SECONDS:
        raise ValueError(f"its default {text!r} is no time")
    total, micros = divmod(total * 1_000_000 + _microseconds(fraction, places), 1_000_000)
    sign = "-" if text.strip().startswith("-") and (total or micros) else ""
    tail = f".{micros:06d}"[: places + 1] if places else ""
    return f"{sign}{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}{tail}"


def _microseconds(fraction: str | None, places: int) -> int:
    """The fraction's digits rounded to `places`, in microseconds; a million where it rounds up to a second."""
    rounded = Decimal(f"0.{fraction or 0}").quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT)
    return int(rounded * 1_000_000)


def _implicit_zero(kind: MySqlType) -> SparkColumn | None:
    if kind.base in _DATES:
        return None  # the zero date, which a mirror has as NULL
    if kind.base == "enum" and kind.members:
        return F.lit(kind.members[0])
    if kind.base == "set" or kind.base in TEXT_TYPES:
        return F.lit("")
    if kind.base == "json":
        return F.lit("null")  # JSON's null, as a text: not NULL
    if kind.base == "time":
        return F.lit(_time("0", kind.params[0] if kind.params else 0))
    if isinstance(spark_type(kind), BinaryType) and kind.base not in GEOMETRIES:
        return _padded(kind, b"")
    if kind.base in _NUMBERS:
        return _number(kind, Decimal(0), "0")
    raise ValueError(f"{kind} has no zero that is known here")


def is_current_time(column: Column) -> bool:
    """Whether the column's default is the moment of the statement."""
    expression = column.default.value if column.default is not None else None
    return (
        column.type.base in ("datetime", "timestamp")
        and _NOW.fullmatch(_without_brackets(expression or "")) is not None
    )


def _without_brackets(expression: str) -> str:
    plain = expression.strip()
    while plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1].strip()
    return plain


def _current_time(column: Column, expression: str, commit_ms: int, time_zone: str) -> SparkColumn:
    found = _NOW.fullmatch(_without_brackets(expression))
    if found is None or column.type.base not in ("datetime", "timestamp"):
        raise ValueError(f"its default {expression} cannot be computed")
    moment = datetime.fromtimestamp(commit_ms / 1000, timezone.utc)
    fraction = int(found.group(3) or 0)
    text = moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{moment.microsecond:06d}"[: fraction + 1] if fraction else "")
    instant = F.lit(text).cast("timestamp_ntz")
    if column.type.base == "datetime":
        return F.from_utc_timestamp(instant.cast("timestamp"), time_zone).cast("timestamp_ntz")
    return instant.cast("timestamp")


def _unknown(kind: MySqlType, text: str) -> ValueError:
    return ValueError(f"its default {text!r} is no {kind}")
