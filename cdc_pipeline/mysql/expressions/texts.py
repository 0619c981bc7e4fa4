"""Text in MySQL expressions: conversion of values to text or bytes, comparison under collations, and the text of a TIME or
long DECIMAL (see `text_values`), rounded as MySQL does."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.moments import as_datetime
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind, bind_sql, sql_string
from cdc_pipeline.mysql.types.charsets import WIDE
from cdc_pipeline.mysql.types.text_values import MOST_DIGITS, MOST_TIME, NUMBER, TIME_PARTS

_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_CAST_TO_TEXT = frozenset(
    {
        *(ValueKind.NULL, ValueKind.INTEGER, ValueKind.DECIMAL, ValueKind.LONG_DECIMAL),
        *(ValueKind.DATE, ValueKind.TIME, ValueKind.JSON),
    }
)
NOT_ASCII = "[^\\x00-\\x7f]"
_NOT_PLAIN = "[^\\x20-\\x7e]"
_BEFORE_SPACE = "[\\x00-\\x1f]"


# ---- values as text


def as_text(value: Value, context: Context) -> Value:
    """The value converted to text, as in CONCAT. Raises ExpressionError if the text is unknown."""
    if value.kind is ValueKind.TEXT:
        return value
    if value.kind is ValueKind.TIMESTAMP:
        value = as_datetime(value, context)
    own, sql = value.own_column, v.string_sql(value)
    if own is not None and own.type.base == "year":
        sql = f"lpad({sql}, 4, '0')"
    elif value.no_text_reason is not None:
        raise ExpressionError(f"the text of a {value.no_text_reason} value is not supported")
    elif value.kind is ValueKind.DATETIME:
        fraction = "." + "S" * value.scale if value.scale else ""
        sql = f"date_format({value.sql}, 'yyyy-MM-dd HH:mm:ss{fraction}')"
    elif value.kind not in _CAST_TO_TEXT:
        raise ExpressionError(f"the text of a {value.kind.value} value is not supported")
    charset, collation = ("utf8mb4", "utf8mb4_bin") if value.kind is ValueKind.JSON else ("ascii", v.LITERAL)
    return Value(sql, ValueKind.TEXT, value.doubt, charset=charset, collation=collation)


def as_bytes(value: Value, context: Context) -> Value:
    """The bytes of a value in MySQL. Non-ASCII text is doubtful if its character set is unknown or not UTF-8.

    Raises ExpressionError for UCS-2, UTF-16 and UTF-32.
    """
    if value.kind is ValueKind.BYTES:
        return value
    text = as_text(value, context)
    content = v.value_from(f"encode({text.sql}, 'UTF-8')", ValueKind.BYTES, text)
    if text.charset in _UTF8:
        return content
    if text.charset in WIDE:
        raise ExpressionError(f"the bytes of {text.charset} text are not supported")
    return v.add_doubts(content, f"{text.sql} RLIKE {sql_string(NOT_ASCII)}")


def as_strings(values: Sequence[Value], context: Context) -> list[Value]:
    """All values as text, or all as bytes if one is bytes."""
    convert = as_bytes if any(value.kind is ValueKind.BYTES for value in values) else as_text
    return [convert(value, context) for value in values]


# ---- comparison


def text_comparison(operator: str, left: Value, right: Value) -> Value:
    """`left operator right` of two texts under their collation.

    Under a collation that is not binary, or unknown, identical texts are equal. ASCII texts that differ by more than case
    and trailing spaces are not equal. All other pairs are doubtful, and an order of such texts raises ExpressionError.
    """
    collations = {value.collation for value in (left, right)} - {v.LITERAL}
    collation = (collations.pop() if len(collations) == 1 else None) or "unknown"
    if collation in ("binary", "utf8mb4_0900_bin"):
        return v.boolean_value(f"({left.sql} {operator} {right.sql})", left, right)
    is_order, sqls = operator not in ("=", "<>"), (left.sql, right.sql)
    if collation.endswith("_bin"):
        value = v.boolean_value(f"(rtrim({left.sql}) {operator} rtrim({right.sql}))", left, right)
        # these characters sort before the spaces that pad the shorter text
        return v.add_doubts(value, *(f"{sql} RLIKE {sql_string(_BEFORE_SPACE)}" for sql in sqls if is_order))
    if is_order:
        raise ExpressionError(
            f"`{operator}` of text with the collation {collation}: only binary collations are supported"
        )
    # some language collations treat v and w, or i and y, as equal
    folded = " = ".join(f"translate(lower(rtrim({sql})), 'wy', 'vi')" for sql in sqls)
    odd = " OR ".join(f"{sql} RLIKE {sql_string(_NOT_PLAIN)}" for sql in sqls)
    value = v.boolean_value(f"({left.sql} {operator} {right.sql})", left, right)
    return v.add_doubts(value, f"({left.sql} <> {right.sql} AND ({folded} OR {odd}))")


def combined_string(values: Sequence[Value], sql: str, kind: ValueKind) -> Value:
    """A string computed from others, with the character set and collation on which they agree."""
    charsets = {value.charset for value in values if value.kind is ValueKind.TEXT}
    charset = next(iter(charsets)) if len(charsets) == 1 else "utf8mb4" if charsets <= _UTF8 else None
    collations = {value.collation for value in values} - {v.LITERAL}
    collation = v.LITERAL if not collations else collations.pop() if len(collations) == 1 else None
    return Value(sql, kind, v.combined_doubt(*values), charset=charset, collation=collation)


def time_micros_sql(text: str) -> str:
    """The microseconds of the text of a TIME; NULL for other text."""

    def micros(x: str) -> str:
        parts = [f"regexp_extract({x}, {sql_string(TIME_PARTS)}, {group})" for group in (2, 3, 4)]
        seconds = " + ".join(
            f"CAST({part} AS BIGINT) * {factor}" for part, factor in zip(parts, (3600, 60, 1), strict=True)
        )
        fraction = f"CAST(rpad(regexp_extract({x}, {sql_string(TIME_PARTS)}, 5), 6, '0') AS BIGINT)"
        sign = f"CASE WHEN {x} LIKE '-%' THEN -1 ELSE 1 END"
        return f"CASE WHEN {x} RLIKE {sql_string(TIME_PARTS)} THEN (({seconds}) * 1000000 + {fraction}) * {sign} END"

    return bind_sql(text, micros)


def rounded_micros_sql(micros: str, digits: int) -> str:
    """Microseconds rounded half away from zero to `digits` fractional digits of the second."""
    step = 10 ** (6 - digits)
    if step == 1:
        return micros
    return bind_sql(micros, lambda x: f"((abs({x}) + {step // 2}) DIV {step} * {step} * CAST(sign({x}) AS BIGINT))")


def time_text_sql(micros: str, digits: int) -> str:
    """The text of a TIME(digits) for microseconds; NULL beyond 838:59:59."""

    def text(x: str) -> str:
        seconds = f"(abs({x}) DIV 1000000)"
        hours = f"CAST({seconds} DIV 3600 AS STRING)"
        parts = [
            f"CASE WHEN {x} < 0 THEN '-' ELSE '' END",
            f"CASE WHEN {seconds} < 36000 THEN '0' ELSE '' END",
            hours,
            *(f"':', lpad(CAST({seconds} DIV {unit} % 60 AS STRING), 2, '0')" for unit in (60, 1)),
        ]
        if digits:
            parts.append(f"'.', substring(lpad(CAST(abs({x}) % 1000000 AS STRING), 6, '0'), 1, {digits})")
        return f"CASE WHEN abs({x}) <= {MOST_TIME}000000 THEN concat({', '.join(parts)}) END"

    return bind_sql(rounded_micros_sql(micros, digits), text)


def decimal_text_sql(text: str, digits: int, scale: int) -> str:
    """The text of a DECIMAL(digits, scale) for the text of a number without exponent, rounded half away from zero.

    NULL for other text and for numbers that do not fit.
    """

    def parts(x: str) -> str:
        whole = f"regexp_extract({x}, '^[+-]?0*(\\\\d*)', 1)"
        fraction = f"rpad(regexp_extract({x}, '\\\\.(\\\\d*)', 1), {scale + 1}, '0')"
        return f"concat('0', {whole}, {fraction})"

    def round_last(all_digits: str) -> str:
        """Drops the last digit and rounds by it, which carries through preceding nines."""
        kept = f"substring({all_digits}, 1, length({all_digits}) - 1)"
        up = f"right({all_digits}, 1) >= '5'"

        def increment(k: str) -> str:
            head, digit, nines = (f"regexp_extract({k}, '^(\\\\d*?)([0-8])(9*)$', {group})" for group in (1, 2, 3))
            raised = f"CAST(CAST({digit} AS INT) + 1 AS STRING), repeat('0', length({nines}))"
            return f"CASE WHEN {up} THEN concat({head}, {raised}) ELSE {k} END"

        return bind_sql(kept, increment)

    def convert(x: str) -> str:
        rounded = bind_sql(parts(x), round_last)

        def printed(d: str) -> str:
            whole = f"regexp_replace(substring({d}, 1, length({d}) - {scale}), '^0+', '')"
            tail = f", '.', right({d}, {scale})" if scale else ""
            number = bind_sql(
                whole,
                lambda w: (
                    f"CASE WHEN length({w}) <= {digits - scale} THEN "
                    f"concat(CASE WHEN {w} = '' THEN '0' ELSE {w} END{tail}) END"
                ),
            )
            return bind_sql(
                number, lambda n: f"CASE WHEN {x} LIKE '-%' AND {n} RLIKE '[1-9]' THEN concat('-', {n}) ELSE {n} END"
            )

        number = f"length({x}) <= {MOST_DIGITS} AND {x} RLIKE {sql_string(NUMBER)}"
        return f"CASE WHEN {number} THEN {bind_sql(rounded, printed)} END"

    return bind_sql(text, convert)
