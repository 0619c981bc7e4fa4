"""Translates scalar MySQL and TiDB expressions to Spark SQL over the columns of a mirror.

Such expressions are generated columns, expression defaults and partition functions.

An expression is translated as a whole or raises ExpressionError. `walk` and the `FUNCTIONS` tables list all supported
operators and functions. The SQL never fails a job, whatever a row holds: where MySQL raises an error (overflow), the
value is NULL. The SQL requires a session in UTC with ANSI mode on.

Some values depend on facts that a mirror does not have. For these rows `SparkExpression.doubtful` is true, and `sql`
gives the likely value or NULL. These values are doubtful:

- a comparison of text under a non-binary or unknown collation, unless the texts are equal byte by byte or are ASCII and
  differ by more than case and trailing spaces; `<` of such text raises ExpressionError
- the bytes (LENGTH, MD5, HEX …) of non-ASCII text in an unknown or non-UTF-8 character set
- UPPER and LOWER of non-ASCII text
- JSON text in a form that MySQL does not print, or with more than 32 levels; text and JSON converted to a number or date,
  unless the whole text is such a value
- local times that the clock of the zone shows twice or never, where an instant is needed
- NULL in a NOT NULL date column, which stands for a zero date upstream. In a nullable column NULL is not doubtful
- values that do not fit a column (`translate_assignment`): a server without strict mode stores a different value
- more text than `MAX_MADE_BYTES`: NULL, and none of it is made

The translation assumes the server's defaults `div_precision_increment` = 4 and `default_week_format` = 0, and an SQL
mode without ANSI_QUOTES, PIPES_AS_CONCAT, NO_BACKSLASH_ESCAPES and NO_UNSIGNED_SUBTRACTION.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql.types import BinaryType, StringType
from sqlglot import exp

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.moments import checked_zone
from cdc_pipeline.mysql.expressions.stored_values import stored_value
from cdc_pipeline.mysql.expressions.syntax import Syntax
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Now, Value, ValueKind
from cdc_pipeline.mysql.expressions.walk import value_of
from cdc_pipeline.mysql.model.limits import MAX_NESTING, MAX_TRANSLATED_CHARACTERS, limit_message
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import Column, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

__all__ = [
    "ExpressionError",
    "Now",
    "SparkExpression",
    "ValueKind",
    "translate",
    "translate_assignment",
    "translate_condition",
]


_CONDITION_SIZE_FACTOR = 32
"""Multiplies the size limits for a condition, which may combine the conditions of thousands of partitions."""


@dataclass(frozen=True, slots=True)
class SparkExpression:
    """Spark SQL text over the columns of a mirror."""

    sql: str
    """Has the Spark type of `kind` (see `values`)."""
    kind: ValueKind
    doubtful: str | None = None
    """A Spark boolean, never NULL: true for rows whose value is uncertain. None if no row's value is uncertain."""


def translate(expression: str, schema: TableSchema, time_zone: str, now: Now | None = None) -> SparkExpression:
    """The value of a MySQL expression.

    `time_zone`: IANA zone of the upstream session, which gives TIMESTAMP columns and NOW() their local time.
    `now`: time of the statement; without it, NOW() and its synonyms raise ExpressionError.

    Raises ExpressionError if the expression has no exact equivalent in Spark SQL.
    """
    return _bounded(value_of(expression, _context(schema, time_zone, now)), expression, schema)


def translate_assignment(
    expression: str, column: Column, schema: TableSchema, time_zone: str, now: Now | None = None
) -> SparkExpression:
    """The value that a column stores when it is assigned the expression: of the column's Spark type, rounded and padded.

    The other arguments and errors are those of `translate`. Raises ExpressionError, too, if the column's own expression
    reads the column.
    """
    own = column.expression if column.default is None else column.default.value
    is_own = not column.has_constant_default and expression == own
    context = replace(_context(schema, time_zone, now), computed=column.name if is_own else None)
    return _bounded(stored_value(value_of(expression, context), column.type, context), expression, schema)


def translate_condition(expression: str, schema: TableSchema, time_zone: str) -> SparkExpression:
    """Whether the value of the expression is not zero: SQL of a Spark boolean, which may be NULL.

    Raises ExpressionError as `translate` does.
    """
    value = value_of(expression, _context(schema, time_zone, None), size_factor=_CONDITION_SIZE_FACTOR)
    return _bounded(replace(value, sql=v.to_condition(value)), expression, schema, size_factor=_CONDITION_SIZE_FACTOR)


def _context(schema: TableSchema, time_zone: str, now: Now | None) -> Context:
    return Context(schema, checked_zone(time_zone), now)


def _bounded(value: Value, text: str, schema: TableSchema, *, size_factor: int = 1) -> SparkExpression:
    """The value where its expression does not make too much text, else NULL and doubtful."""
    sql, doubt, limit = value.sql, value.doubt, MAX_TRANSLATED_CHARACTERS * size_factor
    if (condition := size_condition(text, schema)) is not None:
        # a CASE evaluates nothing behind a condition that is not met
        sql = f"CASE WHEN {condition} THEN {sql} END"
        doubt = f"CASE WHEN {condition} THEN {doubt or 'false'} ELSE true END"
    if (size := max(len(sql), len(doubt or ""))) > limit:
        raise ExpressionError(limit_message("characters of the translation", size, limit))
    return SparkExpression(sql, ValueKind.DECIMAL if value.kind is ValueKind.QUOTIENT else value.kind, doubt)


MAX_MADE_BYTES = 4 * 2**20
"""Of the text that the growing expressions of a table make for a row, in equal shares. Beyond it, the value is NULL.

MySQL has NULL for text beyond `max_allowed_packet`: 4 MiB in 5.7, 64 MiB in 8.0. Spark and Parquet hold a hundred rows and
more at once, so 64 MiB a row would end a JVM of 2 GB."""
_GROWING = ("CONCAT", "REPLACE", "LPAD", "RPAD", "HEX")
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
        case "HEX":
            return _product(parts[0], "2")
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


def can_translate_generated(column: Column, schema: TableSchema, time_zone: str) -> bool:
    if column.expression is None:
        return False
    try:
        translate_assignment(column.expression, column, schema, time_zone)
    except ExpressionError:
        return False
    return True
