"""Conversions of values for assignment to a column of another kind: to numbers, text, TIME and JSON.

If MySQL and TiDB, or servers with different settings, convert a value differently, the row is doubtful or the conversion
raises ExpressionError.
"""

from __future__ import annotations

from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.casts import became_null, rounded_instant
from cdc_pipeline.mysql.expressions.enum_labels import label_number
from cdc_pipeline.mysql.expressions.json_functions import is_not_canonical
from cdc_pipeline.mysql.expressions.moments import as_datetime
from cdc_pipeline.mysql.expressions.texts import (
    NOT_ASCII,
    as_text,
    decimal_text_sql,
    rounded_micros_sql,
    time_micros_sql,
    time_text_sql,
)
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind
from cdc_pipeline.mysql.model.table import MySqlType
from cdc_pipeline.mysql.types.charsets import charset_of_column

_DATES = frozenset({"date", "datetime", "timestamp"})
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "year"})
_DAY_MICROS = 86_400_000_000
_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4"})
_SHORTEST_DIGITS, _FLOAT_DIGITS = 15, 6
"""Significant digits that distinguish every DOUBLE and FLOAT; MySQL prints at most this many of a FLOAT."""


def number_for_column(value: Value, kind: MySqlType, context: Context) -> Value:
    """Converts the value for a numeric or date column; returns it unchanged for other columns.

    For a numeric column, a label, TIME or moment becomes a number. For a date column, a number becomes a moment.
    """
    if kind.base in _DATES:
        return _moment_of_number(value) if value.kind is ValueKind.INTEGER else value
    if kind.base not in _NUMBERS:
        return value
    own = value.own_column
    if own is not None and own.type.base in ("enum", "set"):
        return label_number(value, own.type.members, own.type.base)
    if value.kind is ValueKind.LONG_DECIMAL:
        return _to_spark_decimal(value, kind)
    if value.kind is ValueKind.TIME:
        return _number_of_time(value, kind)
    return _number_of_moment(value, kind, context) if value.kind in v.MOMENTS else value


def ascii_text(value: Value) -> Value:
    """ASCII bytes as text; NULL and doubtful for other bytes."""
    text = v.bind_sql(
        f"CAST({value.sql} AS STRING)", lambda x: f"CASE WHEN {x} NOT RLIKE {v.sql_string(NOT_ASCII)} THEN {x} END"
    )
    return v.add_doubts(v.value_from(text, ValueKind.TEXT, value), became_null(value.sql, text))


def _to_spark_decimal(value: Value, kind: MySqlType) -> Value:
    """A LONG_DECIMAL as DECIMAL or DOUBLE, rounded to the scale of the column."""
    if kind.base in ("float", "double"):
        return Value(f"try_cast({value.sql} AS DOUBLE)", ValueKind.DOUBLE, value.doubt)
    scale = kind.params[1] if kind.base == "decimal" and len(kind.params) > 1 else 0
    sql = f"try_cast({decimal_text_sql(value.sql, 65, scale)} AS DECIMAL(38,{scale}))"
    decimal = Value(sql, ValueKind.DECIMAL, value.doubt, digits=38, scale=scale)
    return v.add_doubts(decimal, became_null(value.sql, sql))


def _moment_of_number(value: Value) -> Value:
    """The DATETIME that a number of 8 or 14 digits encodes (YYYYMMDD[hhmmss]); NULL and doubtful for other numbers."""

    def moment(x: str) -> str:
        digits = (
            f"CASE WHEN {x} BETWEEN 10000101 AND 99991231 THEN concat(CAST({x} AS STRING), '000000') "
            f"WHEN {x} BETWEEN 10000101000000 AND 99991231235959 THEN CAST({x} AS STRING) END"
        )
        parts = "'$1-$2-$3 $4:$5:$6'".replace("$", "\\u0024")
        pattern = v.sql_string("^(\\d{4})(\\d\\d)(\\d\\d)(\\d\\d)(\\d\\d)(\\d\\d)$")
        return f"try_cast(regexp_replace({digits}, {pattern}, {parts}) AS TIMESTAMP_NTZ)"

    sql = v.bind_sql(value.sql, moment)
    return v.add_doubts(Value(sql, ValueKind.DATETIME, value.doubt), became_null(value.sql, sql))


def _number_of_time(value: Value, kind: MySqlType) -> Value:
    """A TIME as a number: `-12:34:56` is -123456. Integer columns store it rounded to the second."""

    def number(x: str) -> str:
        seconds = f"(abs({x}) DIV 1000000)"
        clock = f"({seconds} DIV 3600 * 10000 + {seconds} DIV 60 % 60 * 100 + {seconds} % 60)"
        return f"{clock} * CAST(sign({x}) AS BIGINT)"

    micros = time_micros_sql(value.sql)
    if kind.base == "decimal" and value.scale:

        def exact(x: str) -> str:
            fraction = f"CAST({x} % 1000000 AS DECIMAL(7,0)) * CAST('0.000001' AS DECIMAL(6,6))"
            return f"CAST(CAST({number(x)} AS DECIMAL(9,0)) + {fraction} AS DECIMAL(15,6))"

        return Value(v.bind_sql(micros, exact), ValueKind.DECIMAL, value.doubt, digits=15, scale=6)
    if kind.base in ("float", "double") and value.scale:
        raise ExpressionError(f"a time with a fraction assigned to a column of type {kind} is not supported")
    return v.integer(v.bind_sql(rounded_micros_sql(micros, 0), number), value, digits=7)


def _number_of_moment(value: Value, kind: MySqlType, context: Context) -> Value:
    """A moment as a number: `2024-01-02 03:04:05` is 20240102030405. Integer columns store it rounded to the second."""
    if kind.base in ("bit", "year"):
        if kind.base == "year":
            local = value if value.kind is ValueKind.DATE else as_datetime(value, context)
            return v.integer(f"CAST(year({local.sql}) AS BIGINT)", local, digits=4)
        raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type bit")
    if value.kind is ValueKind.DATE:
        return v.integer(f"CAST(date_format({value.sql}, 'yyyyMMdd') AS BIGINT)", value, digits=8)
    local = as_datetime(value, context)
    if kind.base == "decimal" and local.scale:
        text = f"date_format({local.sql}, 'yyyyMMddHHmmss.SSSSSS')"
        return Value(f"try_cast({text} AS DECIMAL(20,6))", ValueKind.DECIMAL, local.doubt, digits=20, scale=6)
    if kind.base in ("float", "double") and local.scale:
        raise ExpressionError(f"a date and time with a fraction assigned to a column of type {kind} is not supported")
    whole = local.sql if not local.scale else f"CAST({rounded_instant(local.sql, 0)} AS TIMESTAMP_NTZ)"
    return v.integer(f"CAST(date_format({whole}, 'yyyyMMddHHmmss') AS BIGINT)", local, digits=14)


def long_decimal(value: Value, digits: int, scale: int) -> Value:
    """A number as the text of a DECIMAL(digits, scale) with more than 38 digits, rounded half away from zero."""
    own = value.own_column
    if own is not None and own.type.base in ("enum", "set"):
        value = label_number(value, own.type.members, own.type.base)
    match value.kind:
        case ValueKind.LONG_DECIMAL | ValueKind.TEXT:
            text = value.sql
        case ValueKind.INTEGER | ValueKind.DECIMAL if value.quotient is None:
            text = f"CAST({value.sql} AS STRING)"
        case ValueKind.DOUBLE:
            # MySQL also converts through the shortest text that parses to the same DOUBLE
            text = f"CAST(try_cast(CAST({value.sql} AS STRING) AS DECIMAL(38,{scale})) AS STRING)"
        case _:
            raise ExpressionError(
                f"{value.kind.value} values cannot be assigned to a column of type decimal({digits},{scale})"
            )
    sql = decimal_text_sql(text, digits, scale)
    result = Value(sql, ValueKind.LONG_DECIMAL, value.doubt, digits=digits, scale=scale)
    return v.add_doubts(result, became_null(value.sql, sql))


def stored_time(value: Value, digits: int, context: Context) -> Value:
    """The value as a TIME(digits), rounded half away from zero."""
    own = value.own_column
    if value.kind is ValueKind.TIME and own is not None and own.type.params == (digits,):
        return value
    match value.kind:
        case ValueKind.TIME | ValueKind.TEXT:
            micros = time_micros_sql(value.sql)
        case ValueKind.INTEGER:
            micros = v.bind_sql(value.sql, _micros_of_number)
        case ValueKind.DATE:
            micros = f"CASE WHEN {value.sql} IS NOT NULL THEN 0L END"
        case ValueKind.DATETIME | ValueKind.TIMESTAMP:
            value = as_datetime(value, context)
            micros = rounded_micros_sql(f"pmod(unix_micros(CAST({value.sql} AS TIMESTAMP)), {_DAY_MICROS}L)", digits)
            # NULL if the time was rounded to midnight
            micros = v.bind_sql(micros, lambda x: f"CASE WHEN {x} < {_DAY_MICROS} THEN {x} END")
        case _:
            raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type time")
    sql = time_text_sql(micros, digits)
    return v.add_doubts(Value(sql, ValueKind.TIME, value.doubt, scale=digits), became_null(value.sql, sql))


def _micros_of_number(x: str) -> str:
    """Microseconds of a number hhmmss; NULL if it is not a valid TIME."""

    def micros(n: str) -> str:
        seconds = f"(abs({n}) DIV 10000 * 3600 + abs({n}) DIV 100 % 100 * 60 + abs({n}) % 100)"
        fits = f"abs({n}) % 100 < 60 AND abs({n}) DIV 100 % 100 < 60"
        return f"CASE WHEN {fits} THEN {seconds} * 1000000 * CAST(sign({n}) AS BIGINT) END"

    return v.bind_sql(f"CASE WHEN {x} BETWEEN -8385959 AND 8385959 THEN CAST({x} AS BIGINT) END", micros)


def stored_json(value: Value, context: Context) -> Value:
    """The value as JSON; text is parsed as a document.

    Rows of a keyless table are identified by their values, so text in a form that MySQL does not print is doubtful there.
    """
    if value.kind is ValueKind.JSON:
        return value
    if value.kind is ValueKind.INTEGER and value.no_text_reason is None and value.condition is None:
        return v.value_from(f"CAST({value.sql} AS STRING)", ValueKind.JSON, value)
    if value.kind is not ValueKind.TEXT or (
        value.own_column is not None and value.own_column.type.base in ("enum", "set")
    ):
        raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type json")
    document = v.value_from(value.sql, ValueKind.JSON, value)
    return document if context.schema.row_key else v.add_doubts(document, is_not_canonical(value.sql))


def text_for_column(value: Value, kind: MySqlType, context: Context) -> Value:
    """The value converted to the text that a character column stores."""
    if value.kind is ValueKind.TIMESTAMP:
        return as_text(as_datetime(value, context))
    if value.kind is ValueKind.DOUBLE:
        return _text_of_double(value)
    return _text_of_bytes(value, kind, context) if value.kind is ValueKind.BYTES else as_text(value)


def _text_of_bytes(value: Value, kind: MySqlType, context: Context) -> Value:
    charset = charset_of_column(kind, context.schema.charset)
    text = f"CASE WHEN is_valid_utf8(CAST({value.sql} AS STRING)) THEN decode({value.sql}, 'UTF-8') END"
    # character sets other than UTF-8 agree with it on ASCII only
    is_odd = None if charset in _UTF8 else f"{text} RLIKE {v.sql_string(NOT_ASCII)}"
    return v.add_doubts(v.value_from(text, ValueKind.TEXT, value), became_null(value.sql, text), is_odd)


def _text_of_double(value: Value) -> Value:
    """The shortest decimal text of a DOUBLE or FLOAT; NULL and doubtful if servers may print it differently.

    All servers agree on numbers that print without an exponent and with at most 15 (FLOAT: 6) significant digits.
    """
    own = value.own_column
    is_float = own is not None and own.type.base == "float"
    if own is not None and len(own.type.params) > 1:
        raise ExpressionError(f"the text of a value of type {own.type} is not supported")
    single = value.sql.removeprefix("CAST(").removesuffix(" AS DOUBLE)") if is_float else value.sql
    most = _FLOAT_DIGITS if is_float else _SHORTEST_DIGITS

    def plain(x: str) -> str:
        text = f"CAST(try_cast(CAST({x} AS STRING) AS DECIMAL(38,20)) AS STRING)"
        return f"regexp_replace({text}, '\\\\.?0+$', '')"

    def printed(x: str) -> str:
        near = f"abs({x}) >= 1e-4D AND abs({x}) < 1e{_FLOAT_DIGITS if is_float else 15}D"
        is_short = f"length(regexp_replace(regexp_replace({plain(x)}, '[-.]', ''), '^0+', '')) <= {most}"
        return f"CASE WHEN {x} = 0 THEN '0' WHEN {near} AND {is_short} THEN {plain(x)} END"

    sql = v.bind_sql(single, printed)
    text = replace(v.value_from(sql, ValueKind.TEXT, value), charset="ascii")
    return v.add_doubts(text, became_null(value.sql, sql))
