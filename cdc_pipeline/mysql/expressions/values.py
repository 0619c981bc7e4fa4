"""Values of MySQL expressions as Spark SQL text, and what all translations of them share.

How a kind is represented in Spark: INTEGER is BIGINT, or DECIMAL(20,0) where more than 19 digits are possible
(`Value.wide`); DATETIME is TIMESTAMP_NTZ; TIMESTAMP is an instant; TIME and JSON are MySQL's own text of them, and so are
LONG_DECIMALs, which have more than 38 digits: they are carried over to other columns, not computed with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import blake2s
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mysql.model.table import Column, TableSchema

MAX_DIGITS = 38
SIGNED_DIGITS, UNSIGNED_DIGITS = 19, 20
_MAX_UNSIGNED = 2**64 - 1
_MAX_SIGNED = 2**63 - 1


class ExpressionError(ValueError):
    """An expression that has no exact equal in Spark SQL here; the message names the piece of SQL."""


class ValueKind(Enum):
    """What a value is to MySQL. Truth values are INTEGER 0 and 1; NULL is the literal, which fits every kind."""

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


NUMBERS = frozenset({ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.DOUBLE})
MOMENTS = frozenset({ValueKind.DATE, ValueKind.DATETIME, ValueKind.TIMESTAMP})
LITERAL = "literal"
"""The `collation` of text that takes the collation of what it is compared with."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value. `doubt` is a Spark boolean, never NULL, that is true for rows of which the value is not sure."""

    sql: str
    kind: ValueKind
    doubt: str | None = None
    digits: int = 0
    """The most digits that an INTEGER or DECIMAL can have."""
    scale: int = 0
    """Digits of the fraction: of a DECIMAL, or of the seconds of a DATETIME, TIMESTAMP or TIME."""
    unsigned: bool = False
    condition: str | None = None
    """The same as a Spark boolean, of a truth value."""
    constant: str | int | bytes | None = None
    charset: str | None = None
    """Of TEXT; None where it is not known."""
    collation: str | None = None
    """Of TEXT; None where it is not known."""
    quotient: tuple[Value, Value] | None = None
    """Dividend and divisor of `/`: MySQL computes on with more digits than the value shows."""
    textless: str | None = None
    """Why the value's text is not known although its number is, such as `zerofill`."""
    column: tuple[str, Column] | None = None
    """Of a column's own value its SQL and the column: what is made of a value may not be what it was of."""

    @property
    def own_column(self) -> Column | None:
        """The column whose value this is as it stands there."""
        return self.column[1] if self.column is not None and self.column[0] == self.sql else None

    @property
    def wide(self) -> bool:
        return self.digits > SIGNED_DIGITS


@dataclass(frozen=True, slots=True)
class Context:
    """Where an expression is evaluated: the columns, the session's IANA zone, and the time now (UTC, ms)."""

    schema: TableSchema
    time_zone: str
    now_ms: int | None


# ---- Spark SQL text


def quoted(text: str) -> str:
    """A Spark string literal."""
    # an escaped dollar keeps ${...} from being substituted
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"


_SHORT = re.compile(r"`(?:[^`]|``)*`|\w+|'[^'\\]{0,20}'|CAST\((?:NULL|-?\d+) AS [A-Z]+\)")


def bound(sql: str, body: Callable[[str], str]) -> str:
    """`body` over `sql`, which is evaluated once and written once, however often `body` names it."""
    if _SHORT.fullmatch(sql):
        return body(sql)
    name = _bound_name(sql)
    return _binding(sql, name, body(name))


def once(value: Value, body: Callable[[Value], Value]) -> Value:
    """`body` of a value that is evaluated and written once, however often `body` names it. The doubts of both are the
    doubts of what is made."""
    if _SHORT.fullmatch(value.sql):
        return body(value)
    name = _bound_name(value.sql)
    made = body(replace(value, sql=name, condition=None, doubt=None, quotient=None))
    doubt = None if made.doubt is None else f"coalesce({_binding(value.sql, name, made.doubt)}, false)"
    doubts = any_of([value.doubt, doubt])
    if made.condition is not None:
        return replace(truth(_binding(value.sql, name, made.condition)), doubt=doubts)
    return replace(made, sql=_binding(value.sql, name, made.sql), doubt=doubts)


def _bound_name(sql: str) -> str:
    # equal texts get equal names, and then an inner one hides nothing but its equal
    return f"bound__{blake2s(sql.encode(), digest_size=10).hexdigest()}"


def _binding(sql: str, name: str, body: str) -> str:
    return f"get(transform(array({sql}), {name} -> {body}), 0)"


def any_of(conditions: Iterable[str | None]) -> str | None:
    """The Spark boolean that is true where one of these is; None where there are none."""
    found = list(dict.fromkeys(condition for condition in conditions if condition is not None))
    if not found:
        return None
    return found[0] if len(found) == 1 else "(" + " OR ".join(found) + ")"


def doubt_of(*values: Value) -> str | None:
    return any_of(value.doubt for value in values)


def doubted(value: Value, *doubts: str | None) -> Value:
    """The value with further doubts; NULL as a doubt is none."""
    sure = (None if doubt is None else f"coalesce({doubt}, false)" for doubt in doubts)
    return replace(value, doubt=any_of([value.doubt, *sure]))


def derived(sql: str, kind: ValueKind, *sources: Value) -> Value:
    """A value made from others, whose doubts it has."""
    return Value(sql, kind, doubt_of(*sources))


# ---- kinds


def integer(sql: str, *sources: Value, digits: int = SIGNED_DIGITS) -> Value:
    """A signed integer of BIGINT text."""
    return Value(sql, ValueKind.INTEGER, doubt_of(*sources), digits=digits)


def small(sql: str, *sources: Value) -> Value:
    """An integer of the text of a Spark function that gives INT."""
    return integer(f"CAST({sql} AS BIGINT)", *sources, digits=10)


def ranged_integer(exact: str, unsigned: bool, *sources: Value) -> Value:
    """An integer of DECIMAL text without a fraction; NULL outside of MySQL's range, where MySQL refuses the row."""
    if not unsigned:
        return integer(f"try_cast({exact} AS BIGINT)", *sources)
    sql = bound(exact, lambda x: f"CASE WHEN {x} BETWEEN 0 AND {_MAX_UNSIGNED} THEN CAST({x} AS DECIMAL(20,0)) END")
    return Value(sql, ValueKind.INTEGER, doubt_of(*sources), digits=UNSIGNED_DIGITS, unsigned=True)


def integer_literal(number: int) -> Value:
    """An integer constant; raises ExpressionError outside of BIGINT, where MySQL has a DECIMAL."""
    if not -_MAX_SIGNED - 1 <= number <= _MAX_UNSIGNED:
        raise ExpressionError(f"{number}: an integer beyond BIGINT")
    if number > _MAX_SIGNED:
        sql = f"CAST({number} AS DECIMAL(20,0))"
        return Value(sql, ValueKind.INTEGER, digits=UNSIGNED_DIGITS, unsigned=True, constant=number)
    sql = f"CAST('{number}' AS BIGINT)" if abs(number) > 2**31 else f"CAST({number} AS BIGINT)"
    return Value(sql, ValueKind.INTEGER, digits=len(str(abs(number))), constant=number)


def decimal_literal(text: str) -> Value:
    """A constant such as `1.50`."""
    whole, _, fraction = text.partition(".")
    digits = max(len(whole.lstrip("0")) + len(fraction), 1)
    if digits > MAX_DIGITS:
        raise ExpressionError(f"{text}: more than {MAX_DIGITS} digits")
    sql = f"CAST('{text}' AS DECIMAL({digits},{len(fraction)}))"
    return Value(sql, ValueKind.DECIMAL, digits=digits, scale=len(fraction))


def text_literal(text: str) -> Value:
    """A string constant. Spark's text has no lone surrogates."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ExpressionError("a string that is no Unicode text")
    return Value(quoted(text), ValueKind.TEXT, constant=text, charset="utf8mb4", collation=LITERAL)


def bytes_literal(content: bytes) -> Value:
    return Value(f"X'{content.hex()}'", ValueKind.BYTES, constant=content)


def truth(condition: str, *sources: Value) -> Value:
    """1, 0 or NULL of a Spark boolean."""
    made = integer(f"CAST({condition} AS BIGINT)", *sources, digits=1)
    return replace(made, condition=condition)


def null() -> Value:
    return Value("NULL", ValueKind.NULL)


def condition_of(value: Value) -> str:
    """The value as a Spark boolean: whether it is not zero. Raises ExpressionError for what is no number."""
    if value.kind is ValueKind.NULL:
        return "CAST(NULL AS BOOLEAN)"
    if value.condition is not None:
        return value.condition
    require(value, NUMBERS, "a condition")
    return f"({value.sql} <> 0)"


def require(value: Value, kinds: Iterable[ValueKind], where: str) -> None:
    """Raises ExpressionError where the value is of none of these kinds."""
    if value.kind not in kinds:
        raise ExpressionError(f"{where}: {value.kind.value} value")
    if value.quotient is not None:
        raise ExpressionError(f"{where}: `/` inside of an expression, of which MySQL keeps more digits than it shows")


def constant_integer(value: Value, where: str) -> int:
    """The number of an integer constant; raises ExpressionError for all else."""
    if value.kind is not ValueKind.INTEGER or not isinstance(value.constant, int):
        raise ExpressionError(f"{where}: only a constant whole number")
    return value.constant


def constant_text(value: Value, where: str) -> str:
    """The text of a string constant; raises ExpressionError for all else."""
    if value.kind is not ValueKind.TEXT or not isinstance(value.constant, str):
        raise ExpressionError(f"{where}: only a constant string")
    return value.constant


def exact_sql(value: Value) -> str:
    """DECIMAL text of an INTEGER or DECIMAL."""
    if value.kind is ValueKind.INTEGER:
        return f"try_cast({value.sql} AS DECIMAL({max(value.digits, 1)},0))"
    return value.sql


def double_sql(value: Value) -> str:
    """DOUBLE text of a number."""
    return value.sql if value.kind is ValueKind.DOUBLE else f"CAST({value.sql} AS DOUBLE)"
