"""String functions of MySQL expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.texts import NOT_ASCII, as_bytes, as_strings, as_text, combined_string
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Function, Value, ValueKind

_MAX_PAD = 65_535


def _of_texts(template: str) -> Function:
    """A text computed from the texts of all arguments."""

    def translate(values: Sequence[Value], context: Context) -> Value:
        texts = [as_text(value, context) for value in values]
        return combined_string(texts, template.format(v.sqls(texts)), ValueKind.TEXT)

    return translate


def _of_bytes(template: str, result: Callable[[str, Value], Value]) -> Function:
    """A value computed from the bytes of one argument."""

    def translate(values: Sequence[Value], context: Context) -> Value:
        content = as_bytes(values[0], context)
        return result(template.format(content.sql), content)

    return translate


def _ascii(sql: str, source: Value) -> Value:
    return Value(sql, ValueKind.TEXT, source.doubt, charset="ascii", collation=v.LITERAL)


def _concat(values: Sequence[Value], context: Context) -> Value:
    strings = as_strings(values, context)
    return combined_string(strings, f"concat({v.sqls(strings)})", strings[0].kind)


def _size(kind: ValueKind, sql: str) -> str:
    return f"{'octet_length' if kind is ValueKind.BYTES else 'char_length'}({sql})"


def _char_length(values: Sequence[Value], context: Context) -> Value:
    [string] = as_strings(values, context)
    return v.integer_from_int(_size(string.kind, string.sql), string)


def _int(value: Value) -> str:
    """An integer as SQL of type INT, clamped to the range of INT."""
    v.require_kind(value, [ValueKind.INTEGER], "position or length")
    return f"CAST(least(greatest({value.sql}, -2147483647), 2147483647) AS INT)"


def _string_from(source: Value, sql: str, *others: Value) -> Value:
    """A string derived from `source`, with its character set and collation, and the doubts of all values."""
    return replace(source, sql=sql, constant=None, doubt=v.combined_doubt(source, *others))


def _empty(source: Value) -> str:
    return "X''" if source.kind is ValueKind.BYTES else "''"


def substring(values: Sequence[Value], context: Context) -> Value:
    """SUBSTRING(text, position[, length])."""
    [source], position = as_strings(values[:1], context), _int(values[1])
    size = _int(values[2]) if len(values) > 2 else "2147483647"

    def part(text: str, start: str, size: str) -> str:
        # a start before the first character gives empty text in MySQL, but not in Spark
        return (
            f"CASE WHEN {text} IS NULL OR {start} IS NULL OR {size} IS NULL THEN NULL "
            f"WHEN {start} > 0 OR ({start} < 0 AND {start} >= -{_size(source.kind, text)}) "
            f"THEN substring({text}, {start}, {size}) ELSE {_empty(source)} END"
        )

    sql = v.bind_sql(
        source.sql, lambda x: v.bind_sql(position, lambda at: v.bind_sql(size, lambda count: part(x, at, count)))
    )
    return _string_from(source, sql, *values[1:])


def _left(values: Sequence[Value], context: Context) -> Value:
    [source] = as_strings(values[:1], context)
    return _string_from(source, f"substring({source.sql}, 1, greatest({_int(values[1])}, 0))", values[1])


def _right(values: Sequence[Value], context: Context) -> Value:
    [source] = as_strings(values[:1], context)

    def part(text: str, count: str) -> str:
        # a NULL count is not <= 0, so the CASE evaluates substring, which gives NULL
        return f"CASE WHEN {count} <= 0 THEN nvl2({text}, {_empty(source)}, NULL) ELSE substring({text}, -{count}) END"

    sql = v.bind_sql(source.sql, lambda x: v.bind_sql(_int(values[1]), lambda n: part(x, n)))
    return _string_from(source, sql, values[1])


def _letter_case(function: str) -> Function:
    def translate(values: Sequence[Value], _: Context) -> Value:
        source = values[0]
        v.require_kind(source, [ValueKind.TEXT], function.upper())
        # MySQL maps single characters by its version's tables, Java maps whole strings (ß to SS)
        is_odd = f"{source.sql} RLIKE {v.sql_string(NOT_ASCII)}"
        return v.add_doubts(_string_from(source, f"{function}({source.sql})"), is_odd)

    return translate


def trim(value: Value, side: str, removed: Value | None, context: Context) -> Value:
    """TRIM(side removed FROM value) with `side` BOTH, LEADING or TRAILING; without `removed`, it removes spaces.

    Raises ExpressionError if `removed` is not one character.
    """
    source = as_text(value, context)
    letter = " " if removed is None else v.constant_text(removed, "TRIM")
    if len(letter) != 1:
        raise ExpressionError(f"TRIM of {letter!r}: only one character is supported")
    return _string_from(source, f"trim({side} {v.sql_string(letter)} FROM {source.sql})")


def _pad(function: str) -> Function:
    def translate(values: Sequence[Value], context: Context) -> Value:
        source, pad = as_text(values[0], context), v.constant_text(values[2], function)
        size = v.constant_integer(values[1], function)
        if not pad or not 0 <= size <= _MAX_PAD:
            raise ExpressionError(
                f"{function} to {size} with {pad!r}: expected a size of 0 to {_MAX_PAD} and a pad that is not empty"
            )
        sql = f"{function.lower()}({source.sql}, {size}, {v.sql_string(pad)})"
        return combined_string([source, values[2]], sql, ValueKind.TEXT)

    return translate


def _substring_index(values: Sequence[Value], context: Context) -> Value:
    source, delimiter = as_text(values[0], context), v.constant_text(values[1], "SUBSTRING_INDEX")
    count = v.constant_integer(values[2], "SUBSTRING_INDEX")
    if len(delimiter) != 1 or abs(count) > _MAX_PAD:
        raise ExpressionError(
            f"SUBSTRING_INDEX by {delimiter!r}, {count}: expected one character and at most {_MAX_PAD}"
        )
    return _string_from(source, f"substring_index({source.sql}, {v.sql_string(delimiter)}, {count})")


def _hex(values: Sequence[Value], context: Context) -> Value:
    v.require_kind(values[0], [ValueKind.TEXT, ValueKind.BYTES], "HEX")
    content = as_bytes(values[0], context)
    return _ascii(f"hex({content.sql})", content)


def _unhex(values: Sequence[Value], _: Context) -> Value:
    v.require_kind(values[0], [ValueKind.TEXT], "UNHEX")
    return v.value_from(f"unhex({values[0].sql})", ValueKind.BYTES, values[0])


def _sha2(values: Sequence[Value], context: Context) -> Value:
    content, size = as_bytes(values[0], context), v.constant_integer(values[1], "SHA2")
    if size not in (0, 224, 256, 384, 512):
        raise ExpressionError(f"SHA2 of {size} bits: expected 0, 224, 256, 384 or 512")
    return _ascii(f"sha2({content.sql}, {size})", content)


FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "CONCAT": (1, 1000, _concat),
    "CONCAT_WS": (2, 1000, _of_texts("concat_ws({})")),
    **dict.fromkeys(("LENGTH", "OCTET_LENGTH"), (1, 1, _of_bytes("octet_length({})", v.integer_from_int))),
    **dict.fromkeys(("CHAR_LENGTH", "CHARACTER_LENGTH"), (1, 1, _char_length)),
    "SUBSTR": (2, 3, substring),
    "MID": (3, 3, substring),
    "LEFT": (2, 2, _left),
    "RIGHT": (2, 2, _right),
    **dict.fromkeys(("UPPER", "UCASE"), (1, 1, _letter_case("upper"))),
    **dict.fromkeys(("LOWER", "LCASE"), (1, 1, _letter_case("lower"))),
    "LTRIM": (1, 1, lambda values, context: trim(values[0], "LEADING", None, context)),
    "RTRIM": (1, 1, lambda values, context: trim(values[0], "TRAILING", None, context)),
    "REPLACE": (3, 3, _of_texts("replace({})")),
    "LPAD": (3, 3, _pad("LPAD")),
    "RPAD": (3, 3, _pad("RPAD")),
    "REVERSE": (1, 1, _of_texts("reverse({})")),
    "SUBSTRING_INDEX": (3, 3, _substring_index),
    "HEX": (1, 1, _hex),
    "UNHEX": (1, 1, _unhex),
    "MD5": (1, 1, _of_bytes("md5({})", _ascii)),
    **dict.fromkeys(("SHA", "SHA1"), (1, 1, _of_bytes("sha1({})", _ascii))),
    "SHA2": (2, 2, _sha2),
    "CRC32": (1, 1, _of_bytes("crc32({})", lambda sql, source: v.integer(sql, source, digits=10))),
}
"""MySQL name → minimum and maximum number of arguments, and the translation."""
