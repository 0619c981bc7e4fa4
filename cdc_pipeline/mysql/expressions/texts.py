"""Text and bytes in MySQL expressions: values as text or bytes, and comparison under collations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.values import (
    LITERAL,
    ExpressionError,
    Value,
    ValueKind,
    derived,
    doubt_of,
    doubted,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_WIDE_CHARSETS = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
NOT_ASCII = "[^\\x00-\\x7f]"
NOT_PLAIN = "[^\\x20-\\x7e]"


# ---- values as text


def as_text(value: Value) -> Value:
    """The text that MySQL makes of a value, such as inside of CONCAT. Raises ExpressionError where it is not known."""
    if value.textless is not None and value.textless != "year":
        raise ExpressionError(f"text of a {value.textless} value")
    sql = _text_sql(value)
    if value.kind is ValueKind.TEXT:
        return value
    charset = "utf8mb4" if value.kind is ValueKind.JSON else "ascii"
    collation = "utf8mb4_bin" if value.kind is ValueKind.JSON else LITERAL
    return Value(sql, ValueKind.TEXT, value.doubt, charset=charset, collation=collation)


def _text_sql(value: Value) -> str:
    match value.kind:
        case ValueKind.TEXT | ValueKind.TIME | ValueKind.JSON | ValueKind.LONG_DECIMAL:
            return value.sql
        case ValueKind.NULL:
            return "CAST(NULL AS STRING)"
        case ValueKind.INTEGER if value.textless == "year":
            return f"lpad(CAST({value.sql} AS STRING), 4, '0')"
        case ValueKind.INTEGER | ValueKind.DATE:
            return f"CAST({value.sql} AS STRING)"
        case ValueKind.DECIMAL:
            if value.quotient is not None:
                raise ExpressionError("text of `/`")
            return f"CAST({value.sql} AS STRING)"
        case ValueKind.DATETIME:
            fraction = "." + "S" * value.scale if value.scale else ""
            return f"date_format({value.sql}, 'yyyy-MM-dd HH:mm:ss{fraction}')"
        case _:
            raise ExpressionError(f"text of a {value.kind.value} value")


def as_bytes(value: Value) -> Value:
    """The bytes of a value in MySQL; doubtful where its character set is not UTF-8 or not known."""
    if value.kind is ValueKind.BYTES:
        return value
    text = as_text(value)
    found = derived(f"encode({text.sql}, 'UTF-8')", ValueKind.BYTES, text)
    if text.charset in _UTF8:
        return found
    if text.charset in _WIDE_CHARSETS:
        raise ExpressionError(f"bytes of {text.charset} text")
    return doubted(found, f"{text.sql} RLIKE {quoted(NOT_ASCII)}")


# ---- comparison


def joint_collation(values: Sequence[Value]) -> str | None:
    """The collation under which values are compared; None where it is not known."""
    found = {value.collation for value in values if value.collation != LITERAL}
    return found.pop() if len(found) == 1 else None


def equal_texts(left: Value, right: Value) -> tuple[str, str | None]:
    """Whether two texts are equal by their collation, and the doubt of that.

    Where the collation is not a binary one, equal text is equal and text that differs by more than its case and the
    spaces at its end is not, as long as it is ASCII.
    """
    collation = joint_collation([left, right])
    if collation in ("binary", "utf8mb4_0900_bin"):
        return f"({left.sql} = {right.sql})", None
    if collation is not None and collation.endswith("_bin"):
        return f"(rtrim({left.sql}) = rtrim({right.sql}))", None
    same = f"({left.sql} = {right.sql})"
    # some languages' collations hold v and w, or i and y, for equal
    folded = [f"translate(lower(rtrim({item.sql})), 'wy', 'vi')" for item in (left, right)]
    odd = [f"{item.sql} RLIKE {quoted(NOT_PLAIN)}" for item in (left, right)]
    return same, f"(NOT {same} AND ({folded[0]} = {folded[1]} OR {odd[0]} OR {odd[1]}))"


def ordered_texts(left: Value, right: Value, operator: str) -> tuple[str, str | None]:
    """`left operator right` of two texts, and its doubt. Raises ExpressionError unless their collation is binary."""
    collation = joint_collation([left, right])
    if collation in ("binary", "utf8mb4_0900_bin"):
        return f"({left.sql} {operator} {right.sql})", None
    if collation is None or not collation.endswith("_bin"):
        raise ExpressionError(f"`{operator}` of text whose collation is {collation or 'not known'}")
    sides = [f"rtrim({item.sql})" for item in (left, right)]
    # what sorts before the spaces that pad the shorter text
    odd = [f"{item.sql} RLIKE {quoted('[' + chr(92) + 'x00-' + chr(92) + 'x1f]')}" for item in (left, right)]
    return f"({sides[0]} {operator} {sides[1]})", f"({odd[0]} OR {odd[1]})"


def joined(values: Sequence[Value], sql: str, kind: ValueKind) -> Value:
    """A string made of others: its character set and collation are theirs where they agree."""
    charsets = {value.charset for value in values if value.kind is ValueKind.TEXT}
    charset = next(iter(charsets)) if len(charsets) == 1 else "utf8mb4" if charsets <= _UTF8 else None
    collations = {value.collation for value in values} - {LITERAL}
    collation = LITERAL if not collations else collations.pop() if len(collations) == 1 else None
    return Value(sql, kind, doubt_of(*values), charset=charset, collation=collation)
