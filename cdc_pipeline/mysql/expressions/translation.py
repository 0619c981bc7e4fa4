"""MySQL and TiDB scalar expressions (generated columns, expression defaults, partition functions) as Spark SQL text
that gives MySQL's value over the columns of a mirror.

An expression is translated as a whole or refused (ExpressionError): only what is named in `expression_walk` and the
tables of functions is translated. The text never fails a job, whatever a row holds; what MySQL refuses (overflow) is
NULL. It is meant for sessions in UTC with ANSI mode on, as this project's are.

Some values depend on what a mirror does not know. For those rows `SparkExpression.doubtful` is true, and `sql` gives the
likely value, or NULL. Doubtful are:

- text compared under a collation that is not known or not binary, unless equal byte by byte or clearly different (ASCII
  that differs by more than case and trailing spaces); `<` of such text is refused
- bytes (LENGTH, MD5, HEX …) of text that is not ASCII, in a character set other than UTF-8 or not known
- UPPER and LOWER of text that is not ASCII
- JSON text in another form than MySQL prints, or deeper than 32 levels; text and JSON as numbers or dates unless they
  are nothing but such a value
- local times that a clock shows twice or never, where an instant is needed
- NULL in a NOT NULL date column: upstream's zero date. A zero date in a nullable column is NULL as a real NULL is
- values that do not fit a column (`assigned`): a server that is not strict stores another one

Taken for granted are the server's defaults of `div_precision_increment` (4), `default_week_format` (0), and an SQL mode
without ANSI_QUOTES, PIPES_AS_CONCAT, NO_BACKSLASH_ESCAPES and NO_UNSIGNED_SUBTRACTION.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.stored_values import stored
from cdc_pipeline.mysql.expressions.time_zones import checked_zone
from cdc_pipeline.mysql.expressions.values import (
    Context,
    ExpressionError,
    Value,
    ValueKind,
    condition_of,
)
from cdc_pipeline.mysql.expressions.walk import value_of
from cdc_pipeline.mysql.model.limits import MOST_TRANSLATED_CHARACTERS, beyond

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.table import Column, TableSchema

__all__ = ["ExpressionError", "SparkExpression", "ValueKind", "assigned", "boolean", "translated"]


_PARTS = 32
"""A condition may be put together of those of thousands of partitions."""


@dataclass(frozen=True, slots=True)
class SparkExpression:
    """Spark SQL text over a mirror's columns.

    `sql` has the Spark type of `kind`: INTEGER is BIGINT or DECIMAL(20,0), DECIMAL is exact, DATETIME is TIMESTAMP_NTZ,
    TIMESTAMP an instant, TIME and JSON are text. `doubtful` is a Spark boolean, never NULL, that is true for rows whose
    value is not sure; None where every row's is.
    """

    sql: str
    kind: ValueKind
    doubtful: str | None = None


def translated(expression: str, schema: TableSchema, time_zone: str, now_ms: int | None = None) -> SparkExpression:
    """The value of an expression.

    `time_zone` is the IANA zone of the upstream session, in which TIMESTAMP columns and NOW() are local times. `now_ms`
    is the time now (UTC, ms since 1970); without it NOW() and its like are refused. Raises ExpressionError.
    """
    return _expression(value_of(expression, _context(schema, time_zone, now_ms)))


def assigned(
    expression: str, column: Column, schema: TableSchema, time_zone: str, now_ms: int | None = None
) -> SparkExpression:
    """What a column holds whose value is the expression: text of the column's own Spark type, rounded and padded as
    MySQL stores it. The other arguments are those of `translated`. Raises ExpressionError."""
    context = _context(schema, time_zone, now_ms)
    return _expression(stored(value_of(expression, context), column.type, context))


def boolean(expression: str, schema: TableSchema, time_zone: str) -> SparkExpression:
    """Whether the expression's value is other than zero: text of a Spark boolean, which may be NULL.

    Raises ExpressionError.
    """
    value = value_of(expression, _context(schema, time_zone, None), parts=_PARTS)
    return SparkExpression(condition_of(value), ValueKind.INTEGER, value.doubt)


def _context(schema: TableSchema, time_zone: str, now_ms: int | None) -> Context:
    return Context(schema, checked_zone(time_zone), now_ms)


def _expression(value: Value) -> SparkExpression:
    if (size := max(len(value.sql), len(value.doubt or ""))) > MOST_TRANSLATED_CHARACTERS:
        raise ExpressionError(beyond("characters of its translation", size, MOST_TRANSLATED_CHARACTERS))
    return SparkExpression(value.sql, value.kind, value.doubt)
