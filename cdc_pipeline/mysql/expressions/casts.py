"""Conversions between the kinds of MySQL values, as CAST and as assignments to columns make them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from cdc_pipeline.mysql.expressions.arithmetic import decimal, rounded
from cdc_pipeline.mysql.expressions.moments import as_date, as_datetime, in_years, midnight_after
from cdc_pipeline.mysql.expressions.string_functions import cut
from cdc_pipeline.mysql.expressions.texts import as_bytes, as_text
from cdc_pipeline.mysql.expressions.values import (
    MAX_DIGITS,
    MOMENTS,
    SIGNED_DIGITS,
    UNSIGNED_DIGITS,
    ExpressionError,
    Value,
    ValueKind,
    bound,
    double_sql,
    doubted,
    exact_sql,
    integer,
    quoted,
    ranged_integer,
    require,
)

if TYPE_CHECKING:
    from cdc_pipeline.mysql.expressions.values import Context

_WHOLE_TEXT = "^[+-]?\\d{1,18}\\z"
_DECIMAL_TEXT = "^[+-]?\\d{1,18}(?:\\.\\d{1,18})?\\z"
_DATE_TEXT = "^(?!0000)\\d{4}-\\d\\d-\\d\\d\\z"
_DATETIME_TEXT = "^(?!0000)\\d{4}-\\d\\d-\\d\\d(?: \\d\\d:\\d\\d:\\d\\d(?:\\.\\d{1,6})?)?\\z"
_TWO_TO_64 = 2**64
_UTF8 = ("utf8mb4", "utf8mb3", "utf8")
_MAX_FRACTION = 6
_PARSED = (ValueKind.TEXT, ValueKind.JSON)


def _parsed(value: Value, pattern: str, sql_type: str) -> str:
    """Text as another type where it is nothing but such a value; JSON true and false are numbers."""
    text = bound(value.sql, lambda x: f"CASE WHEN {x} RLIKE {quoted(pattern)} THEN try_cast({x} AS {sql_type}) END")
    if value.kind is ValueKind.TEXT:
        return text
    number = f"CAST({{}} AS {sql_type})"
    return f"CASE {value.sql} WHEN 'true' THEN {number.format(1)} WHEN 'false' THEN {number.format(0)} ELSE {text} END"


def lost(source: str, made: str) -> str:
    """Whether a value has become NULL."""
    return f"({made} IS NULL AND {source} IS NOT NULL)"


def as_integer(value: Value, unsigned: bool, context: Context) -> Value:
    """The value rounded half away from zero, in the range of BIGINT."""
    if value.kind in _PARSED:
        sql = _parsed(value, _WHOLE_TEXT, "BIGINT")
        return doubted(integer(sql, value), lost(value.sql, sql), f"{sql} < 0" if unsigned else None)
    if value.kind is ValueKind.DECIMAL:
        whole = rounded(value, 0)
        made = ranged_integer(exact_sql(whole), unsigned, value)
        return doubted(made, lost(value.sql, made.sql))
    if value.kind is ValueKind.DATE:
        return integer(f"CAST(date_format({value.sql}, 'yyyyMMdd') AS BIGINT)", value, digits=8)
    if value.kind in MOMENTS and not value.scale:
        local = as_datetime(value, context)
        return integer(f"CAST(date_format({local.sql}, 'yyyyMMddHHmmss') AS BIGINT)", local, digits=14)
    require(value, [ValueKind.INTEGER], "a conversion to an integer")
    return value


def cast_integer(value: Value, unsigned: bool, context: Context) -> Value:
    """CAST AS SIGNED or UNSIGNED: the bits of an integer are kept, so that -1 is the greatest unsigned one."""
    found = as_integer(value, unsigned, context)
    if unsigned and not found.unsigned:
        wrapped = f"CAST(CASE WHEN {{0}} < 0 THEN CAST({{0}} AS DECIMAL(20,0)) + {_TWO_TO_64} ELSE {{0}} END"
        sql = bound(found.sql, lambda x: f"{wrapped.format(x)} AS DECIMAL(20,0))")
        return replace(found, sql=sql, unsigned=True, digits=UNSIGNED_DIGITS, constant=None, condition=None)
    if not unsigned and found.wide:
        sql = bound(found.sql, lambda x: f"CASE WHEN {x} >= {_TWO_TO_64 // 2} THEN {x} - {_TWO_TO_64} ELSE {x} END")
        return replace(found, sql=f"try_cast({sql} AS BIGINT)", unsigned=False, digits=SIGNED_DIGITS, constant=None)
    return replace(found, unsigned=unsigned, textless=None)


def as_decimal(value: Value, digits: int, scale: int) -> Value:
    """The number as DECIMAL(digits, scale), rounded half away from zero; NULL where it does not fit."""
    if value.kind in _PARSED:
        whole = _parsed(value, _DECIMAL_TEXT, "DECIMAL(36,18)")
        sql = f"try_cast(round({whole}, {min(scale, 18)}) AS DECIMAL({digits},{scale}))"
        return doubted(decimal(sql, digits, scale, value), lost(value.sql, sql))
    if value.kind is ValueKind.DOUBLE:
        # MySQL too goes by way of the shortest text that reads back as the same number
        sql = f"try_cast(try_cast(CAST({value.sql} AS STRING) AS DECIMAL(38,{scale})) AS DECIMAL({digits},{scale}))"
        return doubted(decimal(sql, digits, scale, value), lost(value.sql, sql))
    require(replace(value, quotient=None), [ValueKind.INTEGER, ValueKind.DECIMAL], "a conversion to DECIMAL")
    if value.quotient is not None and scale > value.scale:
        raise ExpressionError("`/` as a DECIMAL of more digits than it shows")
    source = rounded(value, scale) if scale < value.scale else value
    sql = f"try_cast({exact_sql(source)} AS DECIMAL({digits},{scale}))"
    return doubted(decimal(sql, digits, scale, value), lost(value.sql, sql))


def as_double(value: Value) -> Value:
    """The number as DOUBLE."""
    if value.kind in _PARSED:
        sql = _parsed(value, _DECIMAL_TEXT, "DOUBLE")
        return doubted(Value(sql, ValueKind.DOUBLE, value.doubt), lost(value.sql, sql))
    require(value, [ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.DOUBLE], "a conversion to DOUBLE")
    return Value(double_sql(value), ValueKind.DOUBLE, value.doubt)


def as_char(value: Value, size: int | None, context: Context) -> Value:
    """CAST AS CHAR(size): the text, cut to so many characters."""
    local = as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value
    text = as_text(local)
    return text if size is None else cut(text, size)


def as_binary(value: Value, size: int | None, context: Context) -> Value:
    """CAST AS BINARY(size): the bytes, cut or padded with zero bytes to so many."""
    local = as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value
    found = as_bytes(local)
    return found if size is None else replace(found, sql=f"rpad({found.sql}, {size}, X'00')", constant=None)


def to_date(value: Value, context: Context) -> Value:
    """CAST AS DATE."""
    if value.kind is ValueKind.TEXT and value.constant is None:
        sql = _parsed(value, _DATE_TEXT, "DATE")
        return doubted(Value(sql, ValueKind.DATE, value.doubt), lost(value.sql, sql))
    day = as_date(value, context)
    if value.kind in MOMENTS and value.scale:
        return doubted(day, midnight_after(as_datetime(value, context)))
    return day


def to_datetime(value: Value, digits: int, context: Context) -> Value:
    """CAST AS DATETIME(digits): rounded to so many digits of a second."""
    if value.kind is ValueKind.TEXT and value.constant is None:
        sql = _parsed(value, _DATETIME_TEXT, "TIMESTAMP_NTZ")
        found = doubted(Value(sql, ValueKind.DATETIME, value.doubt, scale=6), lost(value.sql, sql))
    else:
        found = as_datetime(value, context)
    if found.scale <= digits:
        return replace(found, scale=digits)
    sql = f"CAST({rounded_instant(found.sql, digits)} AS TIMESTAMP_NTZ)"
    return replace(found, sql=in_years(sql), scale=digits)


def rounded_instant(sql: str, digits: int) -> str:
    """A TIMESTAMP rounded half up to so many digits of a second, of a TIMESTAMP or TIMESTAMP_NTZ."""
    step = 10 ** (6 - digits)
    micros = f"(unix_micros(CAST({sql} AS TIMESTAMP)) + {step // 2})"
    return f"timestamp_micros({bound(micros, lambda x: f'({x} - pmod({x}, {step}L))')})"


def cast(value: Value, target: exp.Expr, context: Context) -> Value | None:
    """CAST of a value to sqlglot's node of a type; None for types that are not translated."""
    sizes = [int(item.name) for item in target.expressions if isinstance(item, exp.DataTypeParam)]
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
            fits = 0 <= scale <= digits <= MAX_DIGITS and digits > 0
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
