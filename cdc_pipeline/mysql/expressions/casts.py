"""Conversions between the kinds of MySQL values, for CAST and for assignments to columns."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlglot import exp

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.arithmetic import decimal, rounded_number
from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime, null_outside_years, rounds_to_next_day
from cdc_pipeline.mysql.expressions.string_functions import text_prefix
from cdc_pipeline.mysql.expressions.texts import as_bytes, as_text
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind

_WHOLE_TEXT = "^[+-]?\\d{1,18}\\z"
_DECIMAL_TEXT = "^[+-]?\\d{1,18}(?:\\.\\d{1,18})?\\z"
_DATE_TEXT = "^(?!0000)\\d{4}-\\d\\d-\\d\\d\\z"
_DATETIME_TEXT = "^(?!0000)\\d{4}-\\d\\d-\\d\\d(?: \\d\\d:\\d\\d:\\d\\d(?:\\.\\d{1,6})?)?\\z"
_TWO_TO_64 = 2**64
_UTF8 = ("utf8mb4", "utf8mb3", "utf8")
_MAX_FRACTION = 6
_SIZE = re.compile(r"[0-9]{1,5}")
_PARSED = (ValueKind.TEXT, ValueKind.JSON)


def _parse_text(value: Value, pattern: str, sql_type: str) -> str:
    """Text cast to another type if it matches the pattern, else NULL. JSON true and false become 1 and 0."""
    text = v.bind_sql(
        value.sql, lambda x: f"CASE WHEN {x} RLIKE {v.sql_string(pattern)} THEN try_cast({x} AS {sql_type}) END"
    )
    if value.kind is ValueKind.TEXT:
        return text
    number = f"CAST({{}} AS {sql_type})"
    return f"CASE {value.sql} WHEN 'true' THEN {number.format(1)} WHEN 'false' THEN {number.format(0)} ELSE {text} END"


def became_null(source: str, result: str) -> str:
    """A Spark boolean: whether a conversion of `source` has turned a non-NULL value into NULL."""
    return f"({result} IS NULL AND {source} IS NOT NULL)"


def as_integer(value: Value, unsigned: bool, context: Context) -> Value:
    """The value rounded half away from zero; NULL and doubtful outside BIGINT (UNSIGNED)."""
    if value.kind in _PARSED:
        sql = _parse_text(value, _WHOLE_TEXT, "BIGINT")
        return v.add_doubts(v.integer(sql, value), became_null(value.sql, sql), f"{sql} < 0" if unsigned else None)
    if value.kind is ValueKind.DECIMAL:
        whole = rounded_number(value, 0)
        result = v.integer_in_range(v.exact_sql(whole), unsigned, value)
        return v.add_doubts(result, became_null(value.sql, result.sql))
    if value.kind is ValueKind.DATE:
        return v.integer(f"CAST(date_format({value.sql}, 'yyyyMMdd') AS BIGINT)", value, digits=8)
    if value.kind in v.MOMENTS and not value.scale:
        local = as_datetime(value, context)
        return v.integer(f"CAST(date_format({local.sql}, 'yyyyMMddHHmmss') AS BIGINT)", local, digits=14)
    v.require_kind(value, [ValueKind.INTEGER], "a conversion to an integer")
    return value


def cast_integer(value: Value, unsigned: bool, context: Context) -> Value:
    """CAST AS SIGNED or UNSIGNED. It keeps the 64 bits of an integer, so -1 becomes the maximum BIGINT UNSIGNED."""
    number = as_integer(value, unsigned, context)
    if unsigned and not number.unsigned:
        wrapped = f"CAST(CASE WHEN {{0}} < 0 THEN CAST({{0}} AS DECIMAL(20,0)) + {_TWO_TO_64} ELSE {{0}} END"
        sql = v.bind_sql(number.sql, lambda x: f"{wrapped.format(x)} AS DECIMAL(20,0))")
        return replace(number, sql=sql, unsigned=True, digits=v.UNSIGNED_DIGITS, constant=None, condition=None)
    if not unsigned and number.is_wide:
        sql = v.bind_sql(
            number.sql, lambda x: f"CASE WHEN {x} >= {_TWO_TO_64 // 2} THEN {x} - {_TWO_TO_64} ELSE {x} END"
        )
        return replace(number, sql=f"try_cast({sql} AS BIGINT)", unsigned=False, digits=v.SIGNED_DIGITS, constant=None)
    return replace(number, unsigned=unsigned, no_text_reason=None)


def as_decimal(value: Value, digits: int, scale: int) -> Value:
    """The number as DECIMAL(digits, scale), rounded half away from zero; NULL and doubtful if it does not fit."""
    if value.kind in _PARSED:
        whole = _parse_text(value, _DECIMAL_TEXT, "DECIMAL(36,18)")
        sql = f"try_cast(round({whole}, {min(scale, 18)}) AS DECIMAL({digits},{scale}))"
        return v.add_doubts(decimal(sql, digits, scale, value), became_null(value.sql, sql))
    if value.kind is ValueKind.DOUBLE:
        # MySQL also converts through the shortest text that parses to the same DOUBLE
        sql = f"try_cast(try_cast(CAST({value.sql} AS STRING) AS DECIMAL(38,{scale})) AS DECIMAL({digits},{scale}))"
        return v.add_doubts(decimal(sql, digits, scale, value), became_null(value.sql, sql))
    v.require_kind(replace(value, quotient=None), [ValueKind.INTEGER, ValueKind.DECIMAL], "a conversion to DECIMAL")
    if value.quotient is not None and scale > value.scale:
        raise ExpressionError("`/` converted to a DECIMAL with more fractional digits than the quotient has")
    source = rounded_number(value, scale) if scale < value.scale else value
    sql = f"try_cast({v.exact_sql(source)} AS DECIMAL({digits},{scale}))"
    return v.add_doubts(decimal(sql, digits, scale, value), became_null(value.sql, sql))


def as_double(value: Value) -> Value:
    """The number as DOUBLE; NULL and doubtful for text that is not a plain number."""
    if value.kind in _PARSED:
        sql = _parse_text(value, _DECIMAL_TEXT, "DOUBLE")
        return v.add_doubts(Value(sql, ValueKind.DOUBLE, value.doubt), became_null(value.sql, sql))
    v.require_kind(value, [ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.DOUBLE], "a conversion to DOUBLE")
    return Value(v.double_sql(value), ValueKind.DOUBLE, value.doubt)


def as_char(value: Value, size: int | None, context: Context) -> Value:
    """CAST AS CHAR(size): the text, truncated to `size` characters."""
    local = as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value
    text = as_text(local)
    return text if size is None else text_prefix(text, size)


def as_binary(value: Value, size: int | None, context: Context) -> Value:
    """CAST AS BINARY(size): the bytes, truncated or padded with zero bytes to `size`."""
    local = as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value
    content = as_bytes(local)
    return content if size is None else replace(content, sql=f"rpad({content.sql}, {size}, X'00')", constant=None)


def to_date(value: Value, context: Context) -> Value:
    """CAST AS DATE. Text that is not a plain date is NULL, and counted in a gap."""
    if value.kind is ValueKind.TEXT and value.constant is None:
        sql = _parse_text(value, _DATE_TEXT, "DATE")
        return v.add_doubts(Value(sql, ValueKind.DATE, value.doubt), became_null(value.sql, sql))
    day = as_date(value, context)
    if value.kind in v.MOMENTS and value.scale:
        return v.add_doubts(day, rounds_to_next_day(as_datetime(value, context)))
    return day


def to_datetime(value: Value, digits: int, context: Context) -> Value:
    """CAST AS DATETIME(digits), rounded to `digits` fractional digits of the second."""
    if value.kind is ValueKind.TEXT and value.constant is None:
        sql = _parse_text(value, _DATETIME_TEXT, "TIMESTAMP_NTZ")
        local = v.add_doubts(Value(sql, ValueKind.DATETIME, value.doubt, scale=6), became_null(value.sql, sql))
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
            return cast_integer(value, target.this is types.UBIGINT, context)
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
