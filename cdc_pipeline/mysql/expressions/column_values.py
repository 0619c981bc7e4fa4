"""The columns of a mirror as values of MySQL expressions."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import DecimalType

from cdc_pipeline.mysql.expressions.json_functions import is_not_canonical
from cdc_pipeline.mysql.expressions.values import ExpressionError, Value, ValueKind
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, TableSchema
from cdc_pipeline.mysql.types.charsets import charset_of_column, collation_of_column
from cdc_pipeline.mysql.types.spark_types import spark_type, text_decimal

INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 19}
_BLOBS = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_MOMENT_KINDS = {
    "date": ValueKind.DATE,
    "datetime": ValueKind.DATETIME,
    "timestamp": ValueKind.TIMESTAMP,
    "time": ValueKind.TIME,
}


def column_value(column: Column, schema: TableSchema) -> Value:
    """The value of a column in the mirror of `schema`. Raises ExpressionError for unsupported column types."""
    value = _value_by_type(column, schema)
    return replace(value, column=(value.sql, column))


def _value_by_type(column: Column, schema: TableSchema) -> Value:
    kind, name, base = column.type, quoted(column.name), column.type.base
    target = spark_type(kind)
    if base in INTEGER_DIGITS:
        digits = INTEGER_DIGITS[base] + (base == "bigint" and kind.unsigned)
        sql = name if digits > 19 else f"CAST({name} AS BIGINT)"
        no_text_reason = "zerofill" if kind.zerofill else None
        return Value(sql, ValueKind.INTEGER, digits=digits, unsigned=kind.unsigned, no_text_reason=no_text_reason)
    if base == "bit":
        wide = isinstance(target, DecimalType)
        return Value(name, ValueKind.INTEGER, digits=20 if wide else 19, unsigned=True, no_text_reason="bit")
    if base == "year":
        return Value(f"CAST({name} AS BIGINT)", ValueKind.INTEGER, digits=4, unsigned=True, no_text_reason="year")
    if isinstance(target, DecimalType):
        no_text_reason = "zerofill" if kind.zerofill else None
        return Value(
            name, ValueKind.DECIMAL, digits=target.precision, scale=target.scale, no_text_reason=no_text_reason
        )
    if base == "decimal":
        # a type from messages may have no digits: assume the maximum
        digits, scale = text_decimal(kind) or (65, 30)
        return Value(name, ValueKind.LONG_DECIMAL, digits=digits, scale=scale)
    if base in ("float", "double"):
        return Value(f"CAST({name} AS DOUBLE)", ValueKind.DOUBLE)
    if base in TEXT_TYPES or (base in ("enum", "set") and kind.members):
        charset, collation = charset_of_column(kind, schema.charset), collation_of_column(kind, schema)
        return Value(name, ValueKind.TEXT, charset=charset, collation=collation)
    if base in _BLOBS:
        return Value(name, ValueKind.BYTES)
    if base == "json":
        return Value(name, ValueKind.JSON, f"coalesce({is_not_canonical(name)}, false)")
    if base in _MOMENT_KINDS:
        # a NULL in a NOT NULL date column stands for a zero date upstream
        doubt = f"({name} IS NULL)" if not column.nullable and base != "time" else None
        return Value(name, _MOMENT_KINDS[base], doubt, scale=kind.params[0] if kind.params else 0)
    raise ExpressionError(f"column {column.name}: type {kind or 'unknown'} is not supported")
