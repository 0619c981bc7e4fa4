"""How much text an expression makes, bounded before any of it exists: 90 characters of DDL can ask for 4 GB a row."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, StringType
from sqlglot import exp

from cdc_pipeline.mysql.expressions.syntax import Syntax
from cdc_pipeline.mysql.expressions.values import ExpressionError
from cdc_pipeline.mysql.model.limits import MAX_NESTING, limit_message
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

MAX_MADE_BYTES = 4 * 2**20
"""Of the text that the growing expressions of a table make for a row, in equal shares. Beyond it, the value is NULL.

MySQL has NULL for text beyond `max_allowed_packet`: 4 MiB in 5.7, 64 MiB in 8.0. Spark and Parquet hold a hundred rows and
more at once, so 64 MiB a row would end a JVM of 2 GB."""
_GROWING = ("CONCAT", "REPLACE", "LPAD", "RPAD", "HEX", "JSON_ARRAY", "JSON_OBJECT")
"""In the names of all functions whose text can be longer than their longest argument, and than `_SHORT`."""
_SHORT = 128
"""Bytes of the longest number, date or digest."""
_MOST_DECLARED = 1000
"""Columns of this length or less count with it, longer ones with the length of their value."""


def size_condition(text: str, schema: TableSchema) -> str | None:
    """A Spark boolean, never NULL: whether the row is so short that the expression keeps to its share of `MAX_MADE_BYTES`.

    None: each row is. Raises ExpressionError if no row is, or if a function has too many long arguments.
    """
    if not _grows(text):
        return None
    defaults = (column.default for column in schema.columns if not column.has_constant_default)
    texts = [*(column.expression for column in schema.columns), *(default and default.value for default in defaults)]
    limit = MAX_MADE_BYTES // max(1, sum(_grows(made or "") for made in texts))
    syntax = Syntax(text)
    size = _bytes(syntax.tree, syntax, schema)
    return None if size.isdecimal() and int(size) <= limit else f"{_sql(size)} <= {limit}"


def _grows(text: str) -> bool:
    return any(name in text.upper() for name in _GROWING)


def _bytes(node: exp.Expr, syntax: Syntax, schema: TableSchema) -> str:
    """At least the bytes of the value and of each value that it is made from: digits, or SQL of a DOUBLE."""
    if (literal := syntax.literal(node)) is not None:
        return str(len(str(literal.constant).encode()))
    if isinstance(node, exp.DataTypeParam):
        return node.name
    if isinstance(node, exp.Column):
        column = schema.find(node.name)
        if column is None or not isinstance(spark_type(column.type), (StringType, BinaryType)):
            return str(_SHORT)
        if 0 < (declared := sum(column.type.params)) <= _MOST_DECLARED:
            return str(_SHORT + 4 * declared)
        return f"coalesce(octet_length({quoted(column.name)}), 0D)"
    parts = [_bytes(part, syntax, schema) for part in node.iter_expressions()]
    match str(node.this).upper() if isinstance(node, exp.Anonymous) else "":
        case "REPLACE":
            return _sum([_product(parts[0], _sum([parts[2], "1"])), parts[1]])
        case "LPAD" | "RPAD":
            size = node.expressions[1].name
            return _sum([*parts, str(4 * int(size if size.isdecimal() else 65_535))])
        case "CONCAT_WS":
            return _sum([*parts, _product(parts[0], str(len(parts)))])
        case "HEX" | "JSON_ARRAY" | "JSON_OBJECT":
            return _product(_sum([*parts, str(_SHORT + 8 * len(parts))]), "2")
    return _sum([*parts, str(_SHORT)])


def _sum(sizes: list[str]) -> str:
    terms = [size for size in sizes if not size.isdecimal()]
    if len(terms) > MAX_NESTING:
        raise ExpressionError(limit_message("long arguments of a function", len(terms), MAX_NESTING))
    rest = sum(int(size) for size in sizes if size.isdecimal())
    if rest > MAX_MADE_BYTES:  # without its columns: the optimizer would make this text, in spite of a condition
        raise ExpressionError(limit_message("bytes of text in each row", rest, MAX_MADE_BYTES))
    return f"({' + '.join([*terms, _sql(str(rest))])})" if terms else str(rest)


def _product(size: str, factor: str) -> str:
    both = size.isdecimal() and factor.isdecimal()
    return str(int(size) * int(factor)) if both else f"({_sql(size)} * {_sql(factor)})"


def _sql(size: str) -> str:
    return f"{size}D" if size.isdecimal() else size  # a DOUBLE overflows to infinity, not to an error
