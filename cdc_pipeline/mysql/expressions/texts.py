"""Text in MySQL expressions: conversion of values to text or bytes, and comparison under collations."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_pipeline.mysql.expressions.values import (
    LITERAL,
    ExpressionError,
    Value,
    ValueKind,
    add_doubts,
    combined_doubt,
    sql_string,
    value_from,
)

_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_WIDE_CHARSETS = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
NOT_ASCII = "[^\\x00-\\x7f]"
NOT_PLAIN = "[^\\x20-\\x7e]"


# ---- values as text


def as_text(value: Value) -> Value:
    """The value converted to text, as in CONCAT. Raises ExpressionError if the text is unknown."""
    if value.no_text_reason is not None and value.no_text_reason != "year":
        raise ExpressionError(f"the text of a {value.no_text_reason} value is not supported")
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
        case ValueKind.INTEGER if value.no_text_reason == "year":
            return f"lpad(CAST({value.sql} AS STRING), 4, '0')"
        case ValueKind.INTEGER | ValueKind.DATE:
            return f"CAST({value.sql} AS STRING)"
        case ValueKind.DECIMAL:
            if value.quotient is not None:
                raise ExpressionError("the text of `/` is not supported")
            return f"CAST({value.sql} AS STRING)"
        case ValueKind.DATETIME:
            fraction = "." + "S" * value.scale if value.scale else ""
            return f"date_format({value.sql}, 'yyyy-MM-dd HH:mm:ss{fraction}')"
        case _:
            raise ExpressionError(f"the text of a {value.kind.value} value is not supported")


def as_bytes(value: Value) -> Value:
    """The bytes of a value in MySQL. Non-ASCII text is doubtful if its character set is unknown or not UTF-8.

    Raises ExpressionError for UCS-2, UTF-16 and UTF-32.
    """
    if value.kind is ValueKind.BYTES:
        return value
    text = as_text(value)
    content = value_from(f"encode({text.sql}, 'UTF-8')", ValueKind.BYTES, text)
    if text.charset in _UTF8:
        return content
    if text.charset in _WIDE_CHARSETS:
        raise ExpressionError(f"the bytes of {text.charset} text are not supported")
    return add_doubts(content, f"{text.sql} RLIKE {sql_string(NOT_ASCII)}")


# ---- comparison


def common_collation(values: Sequence[Value]) -> str | None:
    """The collation under which MySQL compares the values; None if unknown."""
    collations = {value.collation for value in values if value.collation != LITERAL}
    return collations.pop() if len(collations) == 1 else None


def equal_texts(left: Value, right: Value) -> tuple[str, str | None]:
    """SQL of `left = right` under their collation, and its doubt.

    Under a non-binary or unknown collation, identical texts are equal. ASCII texts that differ by more than case and
    trailing spaces are not equal. All other pairs are doubtful.
    """
    collation = common_collation([left, right])
    if collation in ("binary", "utf8mb4_0900_bin"):
        return f"({left.sql} = {right.sql})", None
    if collation is not None and collation.endswith("_bin"):
        return f"(rtrim({left.sql}) = rtrim({right.sql}))", None
    same = f"({left.sql} = {right.sql})"
    # some language collations treat v and w, or i and y, as equal
    folded = [f"translate(lower(rtrim({item.sql})), 'wy', 'vi')" for item in (left, right)]
    odd = [f"{item.sql} RLIKE {sql_string(NOT_PLAIN)}" for item in (left, right)]
    return same, f"(NOT {same} AND ({folded[0]} = {folded[1]} OR {odd[0]} OR {odd[1]}))"


def ordered_texts(left: Value, right: Value, operator: str) -> tuple[str, str | None]:
    """SQL of `left operator right` for two texts, and its doubt. Raises ExpressionError if their collation is not binary."""
    collation = common_collation([left, right])
    if collation in ("binary", "utf8mb4_0900_bin"):
        return f"({left.sql} {operator} {right.sql})", None
    if collation is None or not collation.endswith("_bin"):
        raise ExpressionError(
            f"`{operator}` of text with the collation {collation or 'unknown'}: only binary collations are supported"
        )
    sides = [f"rtrim({item.sql})" for item in (left, right)]
    # these characters sort before the spaces that pad the shorter text
    odd = [f"{item.sql} RLIKE {sql_string('[' + chr(92) + 'x00-' + chr(92) + 'x1f]')}" for item in (left, right)]
    return f"({sides[0]} {operator} {sides[1]})", f"({odd[0]} OR {odd[1]})"


def combined_string(values: Sequence[Value], sql: str, kind: ValueKind) -> Value:
    """A string computed from others, with the character set and collation on which they agree."""
    charsets = {value.charset for value in values if value.kind is ValueKind.TEXT}
    charset = next(iter(charsets)) if len(charsets) == 1 else "utf8mb4" if charsets <= _UTF8 else None
    collations = {value.collation for value in values} - {LITERAL}
    collation = LITERAL if not collations else collations.pop() if len(collations) == 1 else None
    return Value(sql, kind, combined_doubt(*values), charset=charset, collation=collation)
