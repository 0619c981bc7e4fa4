"""`Value`: a MySQL value as Spark SQL text, with the constructors and checks that all translations share.

Spark types by kind: INTEGER is BIGINT, or DECIMAL(20,0) if it may have more than 19 digits (`Value.is_wide`). DATETIME is
TIMESTAMP_NTZ, TIMESTAMP is TIMESTAMP. TIME, JSON and LONG_DECIMAL (more than 38 digits) are STRING, as MySQL prints them.
A LONG_DECIMAL can be assigned to columns, but not used in arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2s
from typing import TypeAlias

from cdc_pipeline.mysql.model.table import Column, TableSchema

MAX_DIGITS = 38
SIGNED_DIGITS, UNSIGNED_DIGITS = 19, 20
_MAX_UNSIGNED = 2**64 - 1
_MAX_SIGNED = 2**63 - 1


class ExpressionError(ValueError):
    """An expression without an exact equivalent in Spark SQL. The message names the part of the expression."""


class ValueKind(Enum):
    """The MySQL type of a value. Booleans are INTEGER 0 and 1; NULL is the literal NULL, which has no type."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    LONG_DECIMAL = "long decimal"
    DOUBLE = "double"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    JSON = "json"
    NULL = "null"
    QUOTIENT = "quotient (`/`)"
    """A DECIMAL that can only be rounded or stored: MySQL continues to compute with more digits than it shows."""


NUMBERS = frozenset({ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.DOUBLE})
MOMENTS = frozenset({ValueKind.DATE, ValueKind.DATETIME, ValueKind.TIMESTAMP})
"""The kinds of a moment: a DATE, DATETIME or TIMESTAMP, but not a TIME."""
LITERAL = "literal"
"""The `collation` of text that takes the collation of the text it is compared with."""


@dataclass(frozen=True, slots=True)
class Value:
    """A MySQL value as Spark SQL text."""

    sql: str
    kind: ValueKind
    doubt: str | None = None
    """A Spark boolean, never NULL: true for rows whose value is uncertain."""
    digits: int = 0
    """Maximum number of digits of an INTEGER or DECIMAL."""
    scale: int = 0
    """Fractional digits of a DECIMAL, or of the seconds of a DATETIME, TIMESTAMP or TIME."""
    unsigned: bool = False
    condition: str | None = None
    """The value as a Spark boolean, if MySQL's value is a boolean."""
    constant: str | int | bytes | None = None
    charset: str | None = None
    """Character set of TEXT; None if unknown."""
    collation: str | None = None
    """Collation of TEXT; None if unknown."""
    quotient: tuple[Value, Value] | None = None
    """Dividend and divisor of a QUOTIENT."""
    no_text_reason: str | None = None
    """Why the text of the value is unknown although its number is known, for example `zerofill`."""
    column: tuple[str, Column] | None = None
    """The SQL of a column's value, and the column. `replace` keeps this field, so compare the SQL (`own_column`)."""

    @property
    def own_column(self) -> Column | None:
        """The column whose unchanged value this is; None for computed values."""
        return self.column[1] if self.column is not None and self.column[0] == self.sql else None

    @property
    def is_wide(self) -> bool:
        return self.digits > SIGNED_DIGITS


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the statement that computes an expression."""

    ms: int
    """ms since 1970, UTC."""
    is_start: bool
    """Whether the statement began in the second of `ms`; if not, it began earlier."""


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of an expression besides its text."""

    schema: TableSchema
    time_zone: str
    """IANA zone of the upstream session."""
    now: Now | None
    """None: the expression has no current time."""
    computed: str | None = None
    """The column that the expression defines, which it cannot read."""


Function: TypeAlias = Callable[[Sequence["Value"], "Context"], "Value"]
"""Translates a function with these arguments."""


# ---- Spark SQL text


def sql_string(text: str) -> str:
    """A Spark string literal."""
    # the escaped dollar prevents Spark's ${...} variable substitution
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


_SHORT = re.compile(r"`(?:[^`]|``)*`|\w+|'[^'\\]{0,20}'|CAST\((?:NULL|-?\d+) AS [A-Z]+\)")


def bind_sql(sql: str, body: Callable[[str], str]) -> str:
    """`body(name)`, where `name` is bound to `sql`: the SQL is written and evaluated once, however often `body` uses it."""
    if _SHORT.fullmatch(sql):
        return body(sql)
    name = _bound_name(sql)
    return _binding(sql, name, body(name))


def bind_value(value: Value, body: Callable[[Value], Value]) -> Value:
    """`body(value)`, where the value is written and evaluated once, however often `body` uses it.

    The result has the doubts of both.
    """
    if _SHORT.fullmatch(value.sql):
        return body(value)
    name = _bound_name(value.sql)
    result = body(replace(value, sql=name, condition=None, doubt=None))
    doubt = None if result.doubt is None else f"coalesce({_binding(value.sql, name, result.doubt)}, false)"
    doubts = any_true([value.doubt, doubt])
    if result.condition is not None:
        return replace(boolean_value(_binding(value.sql, name, result.condition)), doubt=doubts)
    return replace(result, sql=_binding(value.sql, name, result.sql), doubt=doubts)


def _bound_name(sql: str) -> str:
    # the name depends on the text only, so a nested binding can only shadow an equal one
    return f"bound__{blake2s(sql.encode(), digest_size=10).hexdigest()}"


def _binding(sql: str, name: str, body: str) -> str:
    return f"get(transform(array({sql}), {name} -> {body}), 0)"


def any_true(conditions: Iterable[str | None]) -> str | None:
    """A Spark boolean that is true if any condition is true; None without conditions."""
    distinct = list(dict.fromkeys(condition for condition in conditions if condition is not None))
    if not distinct:
        return None
    return distinct[0] if len(distinct) == 1 else "(" + " OR ".join(distinct) + ")"


def sqls(values: Iterable[Value]) -> str:
    """The SQL of the values, as arguments of a function."""
    return ", ".join(value.sql for value in values)


def combined_doubt(*values: Value) -> str | None:
    return any_true(value.doubt for value in values)


def add_doubts(value: Value, *doubts: str | None) -> Value:
    """The value with additional doubts. A doubt that is NULL counts as false."""
    not_null = (None if doubt is None else f"coalesce({doubt}, false)" for doubt in doubts)
    return replace(value, doubt=any_true([value.doubt, *not_null]))


def value_from(sql: str, kind: ValueKind, *sources: Value) -> Value:
    """A value computed from others, with their doubts."""
    return Value(sql, kind, combined_doubt(*sources))


# ---- kinds


def integer(sql: str, *sources: Value, digits: int = SIGNED_DIGITS) -> Value:
    """A signed integer; `sql` is of type BIGINT."""
    return Value(sql, ValueKind.INTEGER, combined_doubt(*sources), digits=digits)


def integer_from_int(sql: str, *sources: Value) -> Value:
    """A signed integer; `sql` is of type INT."""
    return integer(f"CAST({sql} AS BIGINT)", *sources, digits=10)


def integer_in_range(exact: str, unsigned: bool, *sources: Value) -> Value:
    """An integer; `exact` is a DECIMAL without a fraction. NULL outside BIGINT (UNSIGNED), where MySQL raises an error."""
    if not unsigned:
        return integer(f"try_cast({exact} AS BIGINT)", *sources)
    sql = bind_sql(exact, lambda x: f"CASE WHEN {x} BETWEEN 0 AND {_MAX_UNSIGNED} THEN CAST({x} AS DECIMAL(20,0)) END")
    return Value(sql, ValueKind.INTEGER, combined_doubt(*sources), digits=UNSIGNED_DIGITS, unsigned=True)


def integer_literal(number: int) -> Value:
    """An integer constant. Raises ExpressionError beyond BIGINT UNSIGNED, where MySQL's literal is a DECIMAL."""
    if not -_MAX_SIGNED - 1 <= number <= _MAX_UNSIGNED:
        raise ExpressionError(f"{number}: the integer is out of range for BIGINT")
    if number > _MAX_SIGNED:
        sql = f"CAST({number} AS DECIMAL(20,0))"
        return Value(sql, ValueKind.INTEGER, digits=UNSIGNED_DIGITS, unsigned=True, constant=number)
    sql = f"CAST('{number}' AS BIGINT)" if abs(number) > 2**31 else f"CAST({number} AS BIGINT)"
    return Value(sql, ValueKind.INTEGER, digits=len(str(abs(number))), constant=number)


def decimal_literal(text: str) -> Value:
    """A DECIMAL constant such as `1.50`. Raises ExpressionError for more than 38 digits."""
    whole, _, fraction = text.partition(".")
    digits = max(len(whole.lstrip("0")) + len(fraction), 1)
    if digits > MAX_DIGITS:
        raise ExpressionError(f"{text}: the number has more than {MAX_DIGITS} digits")
    sql = f"CAST('{text}' AS DECIMAL({digits},{len(fraction)}))"
    return Value(sql, ValueKind.DECIMAL, digits=digits, scale=len(fraction))


def text_literal(text: str) -> Value:
    """A string constant. Raises ExpressionError for lone surrogates, which a Spark string cannot hold."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ExpressionError("the string is not valid Unicode")
    return Value(sql_string(text), ValueKind.TEXT, constant=text, charset="utf8mb4", collation=LITERAL)


def bytes_literal(content: bytes) -> Value:
    return Value(f"X'{content.hex()}'", ValueKind.BYTES, constant=content)


def boolean_value(condition: str, *sources: Value) -> Value:
    """1, 0 or NULL; `condition` is a Spark boolean."""
    value = integer(f"CAST({condition} AS BIGINT)", *sources, digits=1)
    return replace(value, condition=condition)


def null() -> Value:
    return Value("NULL", ValueKind.NULL)


def to_condition(value: Value) -> str:
    """The value as a Spark boolean: whether it is not zero. Raises ExpressionError if it is not a number."""
    if value.kind is ValueKind.NULL:
        return "CAST(NULL AS BOOLEAN)"
    if value.condition is not None:
        return value.condition
    require_kind(value, NUMBERS, "a condition")
    return f"({value.sql} <> 0)"


def require_kind(value: Value, kinds: Iterable[ValueKind], where: str) -> None:
    """Raises ExpressionError if the value is not of one of the kinds. `where` begins the message."""
    if value.kind not in kinds:
        raise ExpressionError(f"{where}: {value.kind.value} values are not supported")


def constant_integer(value: Value, where: str) -> int:
    """The number of an integer constant. Raises ExpressionError for other values."""
    if value.kind is not ValueKind.INTEGER or not isinstance(value.constant, int):
        raise ExpressionError(f"{where}: the argument must be a constant integer")
    return value.constant


def constant_text(value: Value, where: str) -> str:
    """The text of a string constant. Raises ExpressionError for other values."""
    if value.kind is not ValueKind.TEXT or not isinstance(value.constant, str):
        raise ExpressionError(f"{where}: the argument must be a constant string")
    return value.constant


def exact_sql(value: Value) -> str:
    """An INTEGER or DECIMAL as SQL of type DECIMAL."""
    if value.kind is ValueKind.INTEGER:
        return f"try_cast({value.sql} AS DECIMAL({max(value.digits, 1)},0))"
    return value.sql


def string_sql(value: Value) -> str:
    """A value as SQL of type STRING, as Spark prints it."""
    kept = (ValueKind.TIME, ValueKind.JSON, ValueKind.LONG_DECIMAL)
    return value.sql if value.kind in kept else f"CAST({value.sql} AS STRING)"


def double_sql(value: Value) -> str:
    """A number as SQL of type DOUBLE."""
    return value.sql if value.kind is ValueKind.DOUBLE else f"CAST({value.sql} AS DOUBLE)"
