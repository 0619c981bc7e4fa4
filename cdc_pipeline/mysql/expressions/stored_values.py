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
from cdc_pipeline.mysql.expressions.json_functions import is_not_canonical
from cdc_pipeline.mysql.expressions.moments import instant
from cdc_pipeline.mysql.expressions.texts import (
    NOT_ASCII,
    as_bytes,
    as_text,
    decimal_text_sql,
    time_micros_sql,
    time_text_sql,
)
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind
from cdc_pipeline.mysql.model.table import TEXT_TYPES, MySqlType
from cdc_pipeline.mysql.types.charsets import charset_of_column
from cdc_pipeline.mysql.types.spark_types import GEOMETRIES, integer_range, spark_type, text_decimal
from cdc_pipeline.mysql.types.wider_types import most_bytes_of

_MOST_EXACT = "9007199254740992D"
"""Up to which a DOUBLE has every integer."""
_TIMESTAMP_RANGE = "TIMESTAMP'1970-01-01 00:00:01Z' AND TIMESTAMP'2038-01-19 03:14:07.999999Z'"


def stored_value(value: Value, kind: MySqlType, context: Context) -> Value:
    """The value as SQL of the column's Spark type. Raises ExpressionError if the conversion is not supported."""
    target, base = spark_type(kind), kind.base
    if value.kind is ValueKind.NULL:
        return replace(value, sql=f"CAST(NULL AS {target.simpleString()})")
    if base == "year" or integer_range(kind) is not None:
        return _stored_integer(value, kind)
    if (long := text_decimal(kind)) is not None:
        decimal = _long_decimal(value, *long)
        return _where(decimal, "{} NOT LIKE '-%'") if kind.unsigned else decimal
    if isinstance(target, T.DecimalType):
        decimal = casts.as_decimal(value, target.precision, target.scale)
        return _where(decimal, "{} >= 0") if kind.unsigned else decimal
    if base in ("float", "double") and len(kind.params) < 2:
        return _stored_float(value, kind)
    if base == "date":
        return casts.to_date(value, context)
    if base == "datetime":
        return casts.to_datetime(value, _digits(kind), context)
    if base == "timestamp":
        return _stored_timestamp(value, _digits(kind), context)
    if base == "time" and (value.kind is ValueKind.TIME or _is_plain_text(value)):
        return _stored_time(value, _digits(kind))
    if base in ("enum", "set") and kind.members and value.kind is ValueKind.TEXT:
        return _stored_labels(value, kind)
    if isinstance(target, T.BinaryType) and base not in GEOMETRIES:
        return _stored_bytes(value, kind, context)
    if base == "json":
        return _stored_json(value, context)
    if base in TEXT_TYPES:
        return _stored_text(value, kind, context)
    raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type {kind or 'unknown'}")


def _digits(kind: MySqlType) -> int:
    return kind.params[0] if kind.params else 0


def _computed_from(value: Value, body: Callable[[str], str]) -> Value:
    """The value with the SQL of `body`, which is given the value's own. Doubtful where only that becomes NULL."""
    return casts.doubtful_null(value, replace(value, sql=v.bind_sql(value.sql, body), constant=None))


def _where(value: Value, condition: str) -> Value:
    """The value where the condition is true, else NULL and doubtful."""
    return _computed_from(value, lambda x: f"CASE WHEN {condition.format(x)} THEN {x} END")


def _stored_integer(value: Value, kind: MySqlType) -> Value:
    if kind.base in ("bit", "year") and value.kind is not ValueKind.INTEGER:
        raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type {kind.base}")
    if value.kind is ValueKind.DOUBLE:
        # MySQL rounds half to even; servers differ beyond BIGINT
        whole = f"CASE WHEN abs({value.sql}) < {_MOST_EXACT} THEN CAST(rint({value.sql}) AS BIGINT) END"
        number = casts.doubtful_null(value, v.integer(whole, value))
    else:
        number = value if value.kind is ValueKind.INTEGER else casts.as_integer(value, kind.unsigned)
    limits = integer_range(kind)
    # numbers of two digits mean other years
    fits = "({} = 0 OR {} BETWEEN 1901 AND 2155)" if limits is None else f"{{}} BETWEEN {limits[0]} AND {limits[1]}"
    target = spark_type(kind).simpleString()
    return _computed_from(number, lambda x: f"CASE WHEN {fits.replace('{}', x)} THEN try_cast({x} AS {target}) END")


def _long_decimal(value: Value, digits: int, scale: int) -> Value:
    """The value as the text of a DECIMAL(digits, scale), rounded half away from zero."""
    own = value.own_column
    if value.kind is ValueKind.LONG_DECIMAL and own is not None and text_decimal(own.type) == (digits, scale):
        return value
    v.require_kind(value, [ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.LONG_DECIMAL], "a long decimal")
    sql = decimal_text_sql(v.string_sql(value), digits, scale)
    return casts.doubtful_null(value, Value(sql, ValueKind.LONG_DECIMAL, value.doubt, digits=digits, scale=scale))


def _stored_float(value: Value, kind: MySqlType) -> Value:
    number = casts.as_double(value)
    least = 0 if kind.unsigned else "double('-Infinity')"
    stored = replace(number, sql=f"CAST({number.sql} AS {spark_type(kind).simpleString()})")
    return _where(stored, f"abs({{0}}) < double('Infinity') AND {{0}} >= {least}")


def _stored_timestamp(value: Value, digits: int, context: Context) -> Value:
    if value.kind is not ValueKind.TIMESTAMP:
        value = instant(casts.to_datetime(value, digits, context), context.time_zone)
    elif value.scale > digits:
        value = replace(value, sql=casts.rounded_instant(value.sql, digits))
    return _where(value, f"{{}} BETWEEN {_TIMESTAMP_RANGE}")


def _stored_time(value: Value, digits: int) -> Value:
    """The value as a TIME(digits), rounded half away from zero."""
    own = value.own_column
    if value.kind is ValueKind.TIME and own is not None and own.type.params == (digits,):
        return value
    text = time_text_sql(time_micros_sql(value.sql), digits)
    return casts.doubtful_null(value, Value(text, ValueKind.TIME, value.doubt, scale=digits))


def _stored_labels(value: Value, kind: MySqlType) -> Value:
    """The text if it is a label of an ENUM or labels of a SET. Another spelling, which a collation may take for a label, and
    numbers of labels are NULL and doubtful."""
    members, own = ", ".join(map(v.sql_string, kind.members)), value.own_column
    if kind.base == "enum":
        # the error value '' of another ENUM stays
        errors = ", ''" if own is not None and own.type.base == "enum" else ""
        return _computed_from(value, lambda x: f"CASE WHEN {x} IN ({members}{errors}) THEN {x} END")

    def ordered(chosen: str) -> str:
        known = f"filter(array({members}), label -> array_contains({chosen}, label))"
        return f"CASE WHEN size({known}) = size(array_distinct({chosen})) THEN array_join({known}, ',') END"

    def labels(x: str) -> str:
        return f"CASE WHEN {x} = '' THEN '' WHEN {x} IS NOT NULL THEN {v.bind_sql(f'''split({x}, ',')''', ordered)} END"

    return _computed_from(value, labels)


def _stored_bytes(value: Value, kind: MySqlType, context: Context) -> Value:
    content, size = as_bytes(value, context), kind.params[0] if kind.params else None
    if (most := most_bytes_of(kind)) is not None:
        return _where(content, f"octet_length({{}}) <= {most}")
    if size is None:
        return content
    padded = f"rpad({{0}}, {size}, X'00')" if kind.base == "binary" else "{0}"
    return _cut_to(content, size, "octet_length", padded)


def _is_plain_text(value: Value) -> bool:
    """Text, but no labels, which MySQL may convert by their numbers."""
    own = value.own_column
    return value.kind is ValueKind.TEXT and (own is None or own.type.base not in ("enum", "set"))


def _stored_json(value: Value, context: Context) -> Value:
    """JSON, or text as a document. A row of a keyless table is found by its values, so there text that MySQL prints in
    another form is doubtful."""
    if value.kind is ValueKind.JSON:
        return value
    if not _is_plain_text(value):
        raise ExpressionError(f"{value.kind.value} values cannot be assigned to a column of type json")
    document = v.value_from(value.sql, ValueKind.JSON, value)
    return document if context.schema.row_key else v.add_doubts(document, is_not_canonical(value.sql))


def _decoded(value: Value, kind: MySqlType, context: Context) -> Value:
    """Bytes as text. Only in a column of UTF-8 are those outside of ASCII known."""
    text = f"CASE WHEN is_valid_utf8(CAST({value.sql} AS STRING)) THEN decode({value.sql}, 'UTF-8') END"
    is_utf8 = (charset_of_column(kind, context.schema.charset) or "").startswith("utf8")
    odd = None if is_utf8 else f"{text} RLIKE {v.sql_string(NOT_ASCII)}"
    return v.add_doubts(casts.doubtful_null(value, v.value_from(text, ValueKind.TEXT, value)), odd)


def _stored_text(value: Value, kind: MySqlType, context: Context) -> Value:
    text = _decoded(value, kind, context) if value.kind is ValueKind.BYTES else as_text(value, context)
    if kind.base == "char":
        # MySQL returns a CHAR without trailing spaces
        text = replace(text, sql=f"rtrim({text.sql})")
    if (most := most_bytes_of(kind)) is not None:
        return _where(text, f"octet_length({{}}) <= {most}")
    return _cut_to(text, kind.params[0], "char_length", "{0}") if kind.params else text


def _cut_to(value: Value, size: int, length: str, whole: str) -> Value:
    """The value if it has at most `size` characters or bytes. MySQL truncates a longer one if it drops only spaces."""
    cut = f"WHEN {length}(rtrim({{0}})) <= {size} THEN substring({{0}}, 1, {size})"
    return _computed_from(
        value, lambda x: f"CASE WHEN {length}({x}) <= {size} THEN {whole.format(x)} {cut.format(x)} END"
    )
