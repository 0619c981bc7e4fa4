"""Conversions between the kinds of MySQL values, for CAST and for assignments to columns.

A value that cannot be converted with certainty becomes NULL, and doubtful (`doubtful_null`).
"""

from __future__ import annotations

import re
from dataclasses import replace

from sqlglot import exp

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.arithmetic import decimal, rounded_number
from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime, null_outside_years
from cdc_pipeline.mysql.expressions.texts import as_bytes, as_text
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind

_WHOLE_TEXT = "^[+-]?\\d{1,18}\\z"
_DECIMAL_TEXT = "^[+-]?\\d{1,18}(?:\\.\\d{1,18})?\\z"
_DATE_TEXT = "^(?!0000)\\d{4}-\\d\\d-\\d\\d\\z"
_DATETIME_TEXT = "^(?!0000)\\d{4}-\\d\\d-\\d\\d(?: \\d\\d:\\d\\d:\\d\\d(?:\\.\\d{1,6})?)?\\z"
_UTF8 = ("utf8mb4", "utf8mb3", "utf8")
_MAX_FRACTION = 6
_SIZE = re.compile(r"[0-9]{1,5}")
_PARSED = (ValueKind.TEXT, ValueKind.JSON)


def doubtful_null(source: Value, result: Value) -> Value:
    """The result of a conversion, doubtful where it turned a value into NULL."""
    is_lost = f"({result.sql} IS NULL AND {source.sql} IS NOT NULL)"
    return result if result.sql == source.sql else v.add_doubts(result, is_lost)


def _parse_text(value: Value, pattern: str, sql_type: str) -> str:
    """Text cast to another type if it matches the pattern, else NULL. JSON true and false become 1 and 0.

    Raises ExpressionError for the labels of an ENUM or SET, which MySQL converts to their numbers.
    """
    own = value.own_column
    if own is not None and own.type.base in ("enum", "set"):
        raise ExpressionError(f"labels of a column of type {own.type.base} converted to another type are not supported")
    text = v.bind_sql(
        value.sql, lambda x: f"CASE WHEN {x} RLIKE {v.sql_string(pattern)} THEN try_cast({x} AS {sql_type}) END"
    )
    if value.kind is ValueKind.TEXT:
        return text
    number = f"CAST({{}} AS {sql_type})"
    return f"CASE {value.sql} WHEN 'true' THEN {number.format(1)} WHEN 'false' THEN {number.format(0)} ELSE {text} END"


def as_integer(value: Value, unsigned: bool) -> Value:
    """The value rounded half away from zero; NULL and doubtful outside BIGINT (UNSIGNED)."""
    number = value
    if value.kind in _PARSED:
        number = v.integer(_parse_text(value, _WHOLE_TEXT, "BIGINT"), value)
    elif value.kind in (ValueKind.DECIMAL, ValueKind.QUOTIENT):
        number = rounded_number(value, 0)
    v.require_kind(number, [ValueKind.INTEGER, ValueKind.DECIMAL], "a conversion to an integer")
    if number.kind is not ValueKind.INTEGER or number.unsigned != unsigned:
        number = v.integer_in_range(v.exact_sql(number), unsigned, value)
    return doubtful_null(value, number)


def as_decimal(value: Value, digits: int, scale: int) -> Value:
    """The number as DECIMAL(digits, scale), rounded half away from zero; NULL and doubtful if it does not fit."""
    if value.kind in _PARSED:
        sql = f"round({_parse_text(value, _DECIMAL_TEXT, 'DECIMAL(36,18)')}, {min(scale, 18)})"
    elif value.kind is ValueKind.DOUBLE:
        # MySQL also converts through the shortest text that parses to the same DOUBLE
        sql = f"try_cast(CAST({value.sql} AS STRING) AS DECIMAL(38,{scale}))"
    else:
        kinds = [ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.QUOTIENT]
        v.require_kind(value, kinds, "a conversion to DECIMAL")
        if value.quotient is not None and scale > value.scale:
            raise ExpressionError("`/` converted to a DECIMAL with more fractional digits than the quotient has")
        sql = v.exact_sql(rounded_number(value, scale) if scale < value.scale else value)
    return doubtful_null(value, decimal(sql, digits, scale, value))


def as_double(value: Value) -> Value:
    """The number as DOUBLE; NULL and doubtful for text that is not a plain number."""
    if value.kind in _PARSED:
        number = v.value_from(_parse_text(value, _DECIMAL_TEXT, "DOUBLE"), ValueKind.DOUBLE, value)
        return doubtful_null(value, number)
    v.require_kind(value, v.NUMBERS, "a conversion to DOUBLE")
    return v.value_from(v.double_sql(value), ValueKind.DOUBLE, value)


def as_char(value: Value, size: int | None, context: Context) -> Value:
    """CAST AS CHAR(size): the text, truncated to `size` characters."""
    text = as_text(value, context)
    return text if size is None else replace(text, sql=f"substring({text.sql}, 1, {size})", constant=None)


def as_binary(value: Value, size: int | None, context: Context) -> Value:
    """CAST AS BINARY(size): the bytes, truncated or padded with zero bytes to `size`."""
    content = as_bytes(value, context)
    return content if size is None else replace(content, sql=f"rpad({content.sql}, {size}, X'00')", constant=None)


def to_date(value: Value, context: Context) -> Value:
    """CAST AS DATE. Text that is not a plain date is NULL and doubtful.

    Raises ExpressionError for fractions of a second, which round to the next day.
    """
    if value.kind is ValueKind.TEXT and value.constant is None:
        day = v.value_from(_parse_text(value, _DATE_TEXT, "DATE"), ValueKind.DATE, value)
        return doubtful_null(value, day)
    if value.kind in v.MOMENTS and value.scale:
        raise ExpressionError("a date and time with a fraction converted to a date is not supported")
    return as_date(value, context)


def to_datetime(value: Value, digits: int, context: Context) -> Value:
    """CAST AS DATETIME(digits), rounded to `digits` fractional digits of the second."""
    if value.kind is ValueKind.TEXT and value.constant is None:
        sql = _parse_text(value, _DATETIME_TEXT, "TIMESTAMP_NTZ")
        local = doubtful_null(value, Value(sql, ValueKind.DATETIME, value.doubt, scale=_MAX_FRACTION))
    else:
        local = as_datetime(value, context)
    if local.scale <= digits:
        return replace(local, scale=digits)
    sql = f"CAST({rounded_instant(local.sql, digits)} AS TIMESTAMP_NTZ)"
    return replace(local, sql=null_outside_years(sql), scale=digits)


def rounded_instant(sql: str, digits: int) -> str:
    """A TIMESTAMP or TIMESTAMP_NTZ as TIMESTAMP, rounded half up to `digits` fractional digits of the second."""
    step = 10 ** (6 - digits)
    micros = f"(unix_micros(CAST({sql} AS TIMESTAMP)) + {step // 2})"
    return f"timestamp_micros({v.bind_sql(micros, lambda x: f'({x} - pmod({x}, {step}L))')})"


def cast(value: Value, target: exp.Expr, context: Context) -> Value | None:
    """CAST of a value to the type of a sqlglot node; None if the type is not supported."""
    params = [item.name for item in target.expressions if isinstance(item, exp.DataTypeParam)]
    sizes = [int(text) for text in params if _SIZE.fullmatch(text)]
    size = sizes[0] if sizes else None
    if len(sizes) < len(target.expressions):
        return None
    if value.kind is ValueKind.NULL:
        return value
    types = exp.DType
    match target.this:
        case types.BIGINT | types.UBIGINT:
            return replace(as_integer(value, target.this is types.UBIGINT), no_text_reason=None)
        case types.DECIMAL:
            digits, scale = sizes[0] if sizes else 10, sizes[1] if len(sizes) > 1 else 0
            fits = 0 <= scale <= digits <= v.MAX_DIGITS and digits > 0
            return as_decimal(value, digits, scale) if fits else None
        case types.DOUBLE if not sizes:
            return as_double(value)
        case types.CHAR:
            return as_char(value, size, context)
        case types.CHARACTER_SET if str(target.args["kind"]).lower() in _UTF8:
            return as_char(value, size, context)
        case types.BINARY:
            return as_binary(value, size, context)
        case types.DATE:
            return to_date(value, context)
        case types.DATETIME if (size or 0) <= _MAX_FRACTION:
            return to_datetime(value, size or 0, context)
        case types.TIMESTAMPTZ if value.kind is ValueKind.TEXT and value.constant is not None:
            return as_datetime(value, context)
    return None
