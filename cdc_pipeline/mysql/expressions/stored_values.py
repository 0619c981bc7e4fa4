"""Converts the value of an expression to the value that MySQL stores in a column.

A value that does not fit the column is NULL, and counted in a gap: a server in strict mode rejects the row, one without
stores a different value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import types as T

from cdc_pipeline.mysql.expressions import casts
from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.enum_labels import stored_labels
from cdc_pipeline.mysql.expressions.moments import instant
from cdc_pipeline.mysql.expressions.spellings import (
    ascii_text,
    long_decimal,
    number_for_column,
    stored_json,
    stored_time,
    text_for_column,
)
from cdc_pipeline.mysql.expressions.texts import as_bytes
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind
from cdc_pipeline.mysql.model.table import TEXT_TYPES, MySqlType
from cdc_pipeline.mysql.types.spark_types import GEOMETRIES, integer_range, spark_type, text_decimal

_MOST_EXACT = "9223372036854775807D"
"""2^63: below it, Spark converts a DOUBLE to BIGINT exactly."""


_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TIMESTAMP_RANGE = "TIMESTAMP'1970-01-01 00:00:01Z' AND TIMESTAMP'2038-01-19 03:14:07.999999Z'"


def stored_value(value: Value, kind: MySqlType, context: Context) -> Value:
    """The value as SQL of the column's Spark type. Raises ExpressionError if the conversion is not supported."""
    target = spark_type(kind)
    if value.kind is ValueKind.NULL:
        return replace(value, sql=f"CAST(NULL AS {target.simpleString()})")
    base = kind.base
    if (
        value.kind is ValueKind.BYTES
        and not isinstance(target, T.BinaryType)
        and base not in (*TEXT_TYPES, "bit", "json")
    ):
        value = ascii_text(value)
    if (long := text_decimal(kind)) is not None:
        value = number_for_column(value, kind, context) if value.kind in (*v.MOMENTS, ValueKind.TIME) else value
        decimal = long_decimal(value, *long)
        return _not_negative_text(decimal) if kind.unsigned else decimal
    if base in ("enum", "set") and kind.members:
        return stored_labels(value, kind, context)
    if base == "time":
        return stored_time(value, _digits(kind), context)
    value = number_for_column(value, kind, context)
    if base == "year" or integer_range(kind) is not None:
        return _stored_integer(value, kind, context)
    if base == "decimal" and isinstance(target, T.DecimalType):
        decimal = casts.as_decimal(value, target.precision, target.scale)
        return _not_negative(decimal) if kind.unsigned else decimal
    if isinstance(target, (T.FloatType, T.DoubleType)):
        return _stored_float(value, kind, target.simpleString())
    if isinstance(target, T.DateType):
        return casts.to_date(value, context)
    if isinstance(target, T.TimestampNTZType):
        return casts.to_datetime(value, _digits(kind), context)
    if isinstance(target, T.TimestampType):
        return _stored_timestamp(value, _digits(kind), context)
    if isinstance(target, T.BinaryType) and base not in GEOMETRIES:
        return _stored_bytes(value, kind, context)
    if isinstance(target, T.StringType):
        return _stored_text(value, kind, context)
    raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type {kind or 'unknown'}")


def _digits(kind: MySqlType) -> int:
    return kind.params[0] if kind.params else 0


def _stored_integer(value: Value, kind: MySqlType, context: Context) -> Value:
    target = spark_type(kind).simpleString()
    if value.kind is ValueKind.DOUBLE:
        # MySQL rounds a DOUBLE half to even. Spark's cast to DECIMAL rounds to 17 digits, the one to BIGINT is exact.
        exact = v.bind_sql(
            f"rint({value.sql})",
            lambda x: (
                f"CASE WHEN abs({x}) < {_MOST_EXACT} THEN CAST(try_cast({x} AS BIGINT) AS DECIMAL(20,0)) "
                f"ELSE try_cast({x} AS DECIMAL(20,0)) END"
            ),
        )
        # servers differ beyond BIGINT
        is_large = f"abs({value.sql}) >= {_MOST_EXACT}"
        number = Value(exact, ValueKind.INTEGER, value.doubt, digits=20)
        number = v.add_doubts(number, casts.became_null(value.sql, exact), is_large)
    elif kind.base in ("bit", "year") and value.kind not in (ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.TEXT):
        raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type {kind.base}")
    else:
        # the range check below only needs DECIMAL(20,0) for unsigned columns and BIT
        wide = kind.unsigned or kind.base == "bit"
        number = value if value.kind is ValueKind.INTEGER else casts.as_integer(value, wide, context)
    if kind.base == "bit" and value.kind is ValueKind.TEXT:
        raise ExpressionError("text assigned to a column of type bit is not supported")
    limits = integer_range(kind)
    if limits is None:
        return _stored_year(number, value)
    low, high = limits
    return _computed_from(
        number, lambda x: f"CASE WHEN {x} BETWEEN {low} AND {high} THEN try_cast({x} AS {target}) END"
    )


def _stored_year(number: Value, source: Value) -> Value:
    """Two-digit years mean 1970 to 2069. The text `0` is the year 2000; the number 0 and the text `0000` are the year 0."""
    if source.kind is ValueKind.TEXT:
        zero = f"CASE WHEN {source.sql} IN ('0', '00', '000') THEN 2000 ELSE {number.sql} END"
        number = replace(number, sql=f"CAST({zero} AS BIGINT)")

    def year(x: str) -> str:
        return (
            f"CAST(CASE WHEN {x} = 0 OR {x} BETWEEN 1901 AND 2155 THEN {x} WHEN {x} BETWEEN 1 AND 69 THEN {x} + 2000 "
            f"WHEN {x} BETWEEN 70 AND 99 THEN {x} + 1900 END AS INT)"
        )

    return _computed_from(number, year)


def _computed_from(value: Value, body: Callable[[str], str]) -> Value:
    """The value with the SQL of `body`, which is given the value's own. Doubtful where only that becomes NULL."""
    sql = v.bind_sql(value.sql, body)
    return v.add_doubts(replace(value, sql=sql), casts.became_null(value.sql, sql))


def _not_negative(value: Value) -> Value:
    return _computed_from(value, lambda x: f"CASE WHEN {x} >= 0 THEN {x} END")


def _stored_float(value: Value, kind: MySqlType, target: str) -> Value:
    if value.quotient is not None:
        raise ExpressionError(
            f"`/` assigned to a column of type {kind.base} is not supported, because MySQL keeps hidden digits"
        )
    number = casts.as_double(value)
    if len(kind.params) > 1:
        number = _round_to_scale(number, kind)
    least = 0 if kind.unsigned else "double('-Infinity')"
    sql = v.bind_sql(
        f"CAST({number.sql} AS {target})",
        lambda x: f"CASE WHEN abs({x}) < double('Infinity') AND {x} >= {least} THEN {x} END",
    )
    return v.add_doubts(replace(number, sql=sql), casts.became_null(value.sql, sql))


def _round_to_scale(number: Value, kind: MySqlType) -> Value:
    """A number rounded for FLOAT(M,D) or DOUBLE(M,D); NULL and doubtful if MySQL and TiDB round to different numbers."""
    digits, scale = kind.params
    power, most = f"1e{scale}D", f"1e{digits - scale}D"

    def rounded(x: str) -> str:
        whole = f"CAST(floor({x}) AS DOUBLE)"
        mysql, tidb = f"({whole} + rint(({x} - {whole}) * {power}) / {power})", f"(rint({x} * {power}) / {power})"
        return f"CASE WHEN abs({x}) < least({most}, 9e15D) AND {mysql} = {tidb} THEN {mysql} END"

    return _computed_from(number, rounded)


def _not_negative_text(value: Value) -> Value:
    return _computed_from(value, lambda x: f"CASE WHEN {x} NOT LIKE '-%' THEN {x} END")


def _stored_timestamp(value: Value, digits: int, context: Context) -> Value:
    if value.kind is ValueKind.TIMESTAMP:
        result = value
        if value.scale > digits:
            result = replace(value, sql=casts.rounded_instant(value.sql, digits))
    else:
        result = instant(casts.to_datetime(value, digits, context), context.time_zone)
    sql = v.bind_sql(result.sql, lambda x: f"CASE WHEN {x} BETWEEN {_TIMESTAMP_RANGE} THEN {x} END")
    return v.add_doubts(replace(result, sql=sql), casts.became_null(result.sql, sql))


def _stored_bytes(value: Value, kind: MySqlType, context: Context) -> Value:
    characters = replace(kind, base="text", params=(), charset="utf8mb4")
    content = value if value.kind is ValueKind.BYTES else as_bytes(text_for_column(value, characters, context))
    size = kind.params[0] if kind.params else None
    if size is None:
        return content
    whole = f"rpad({{0}}, {size}, X'00')" if kind.base == "binary" else "{0}"
    # MySQL truncates a value that is too long only if it drops trailing spaces
    cut = f"WHEN octet_length(rtrim({{0}})) <= {size} THEN substring({{0}}, 1, {size})"
    sql = v.bind_sql(
        content.sql, lambda x: f"CASE WHEN octet_length({x}) <= {size} THEN {whole.format(x)} {cut.format(x)} END"
    )
    return v.add_doubts(replace(content, sql=sql), casts.became_null(content.sql, sql))


def _stored_text(value: Value, kind: MySqlType, context: Context) -> Value:
    base = kind.base
    if base == "json":
        return stored_json(value, context)
    if base not in TEXT_TYPES:
        raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type {kind or 'unknown'}")
    text = text_for_column(value, kind, context)
    if base == "char":
        # MySQL returns a CHAR without trailing spaces
        text = replace(text, sql=f"rtrim({text.sql})")
    if base not in ("char", "varchar") or not kind.params:
        return text
    size = kind.params[0]
    # MySQL truncates a value that is too long only if it drops trailing spaces
    cut = f"WHEN char_length(rtrim({{0}})) <= {size} THEN substring({{0}}, 1, {size})"
    sql = v.bind_sql(text.sql, lambda x: f"CASE WHEN char_length({x}) <= {size} THEN {x} {cut.format(x)} END")
    return v.add_doubts(replace(text, sql=sql), casts.became_null(text.sql, sql))
