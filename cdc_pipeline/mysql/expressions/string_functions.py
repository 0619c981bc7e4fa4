"""String functions of MySQL expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.texts import NOT_ASCII, as_bytes, as_text, combined_string, common_collation
from cdc_pipeline.mysql.expressions.values import ExpressionError, Value, ValueKind

_STRINGS = (ValueKind.TEXT, ValueKind.BYTES)
_MAX_PAD = 65_535


def _strings(values: Sequence[Value]) -> list[Value]:
    """All values as text, or all as bytes if one is bytes."""
    if not any(value.kind is ValueKind.BYTES for value in values):
        return [as_text(value) for value in values]
    return [as_bytes(value) for value in values]


def concat(values: Sequence[Value]) -> Value:
    """CONCAT(value, …)."""
    strings = _strings(values)
    return combined_string(strings, f"concat({', '.join(item.sql for item in strings)})", strings[0].kind)


def _concat_ws(values: Sequence[Value]) -> Value:
    strings = [as_text(value) for value in values]
    if len(strings) < 2:
        raise ExpressionError("CONCAT_WS needs at least two arguments")
    return combined_string(strings, f"concat_ws({', '.join(item.sql for item in strings)})", ValueKind.TEXT)


def _string(value: Value) -> Value:
    return value if value.kind is ValueKind.BYTES else as_text(value)


def _size(value: Value) -> str:
    return f"{'octet_length' if value.kind is ValueKind.BYTES else 'char_length'}({value.sql})"


def _length(values: Sequence[Value]) -> Value:
    content = as_bytes(values[0])
    return v.integer_from_int(f"octet_length({content.sql})", content)


def _char_length(values: Sequence[Value]) -> Value:
    string = _string(values[0])
    return v.integer_from_int(_size(string), string)


def _int(value: Value) -> str:
    """An integer as SQL of type INT, clamped to the range of INT."""
    v.require_kind(value, [ValueKind.INTEGER], "position or length")
    return f"CAST(least(greatest({value.sql}, -2147483647), 2147483647) AS INT)"


def _string_from(source: Value, sql: str, *others: Value) -> Value:
    """A string derived from `source`, with its character set and collation, and the doubts of all values."""
    return replace(source, sql=sql, constant=None, doubt=v.combined_doubt(source, *others))


def substring(values: Sequence[Value]) -> Value:
    """SUBSTRING(text, position[, length])."""
    source, position = _string(values[0]), _int(values[1])
    size = _int(values[2]) if len(values) > 2 else "2147483647"
    empty = "X''" if source.kind is ValueKind.BYTES else "''"

    def part(text: str, start: str, size: str) -> str:
        length = _size(replace(source, sql=text))
        # a start before the first character gives empty text in MySQL, but not in Spark
        return (
            f"CASE WHEN {text} IS NULL OR {start} IS NULL OR {size} IS NULL THEN NULL "
            f"WHEN {start} > 0 OR ({start} < 0 AND {start} >= -{length}) THEN substring({text}, {start}, {size}) "
            f"ELSE {empty} END"
        )

    sql = v.bind_sql(
        source.sql, lambda x: v.bind_sql(position, lambda at: v.bind_sql(size, lambda count: part(x, at, count)))
    )
    return _string_from(source, sql, *values[1:])


def _left(values: Sequence[Value]) -> Value:
    source = _string(values[0])
    return _string_from(source, f"substring({source.sql}, 1, greatest({_int(values[1])}, 0))", values[1])


def _right(values: Sequence[Value]) -> Value:
    source, size = _string(values[0]), _int(values[1])
    empty = "X''" if source.kind is ValueKind.BYTES else "''"
    # a NULL count is not <= 0, so the CASE evaluates substring, which gives NULL

    def part(text: str, count: str) -> str:
        return f"CASE WHEN {count} <= 0 THEN nvl2({text}, {empty}, NULL) ELSE substring({text}, -{count}) END"

    return _string_from(source, v.bind_sql(source.sql, lambda x: v.bind_sql(size, lambda n: part(x, n))), values[1])


def _case_function(function: str) -> Callable[[Sequence[Value]], Value]:
    def translate(values: Sequence[Value]) -> Value:
        v.require_kind(values[0], [ValueKind.TEXT], function.upper())
        # MySQL maps single characters by its version's tables, Java maps whole strings (ß to SS)
        return v.add_doubts(
            _string_from(values[0], f"{function}({values[0].sql})"), f"{values[0].sql} RLIKE {v.sql_string(NOT_ASCII)}"
        )

    return translate


def trim(value: Value, side: str, removed: Value | None) -> Value:
    """TRIM(side removed FROM value) with `side` BOTH, LEADING or TRAILING; without `removed`, it removes spaces.

    Raises ExpressionError if `removed` is not one character.
    """
    source = as_text(value)
    letter = " " if removed is None else v.constant_text(removed, "TRIM")
    if len(letter) != 1:
        raise ExpressionError(f"TRIM of {letter!r}: only one character is supported")
    return _string_from(source, f"trim({side} {v.sql_string(letter)} FROM {source.sql})")


def _replace(values: Sequence[Value]) -> Value:
    strings = [as_text(value) for value in values]
    return combined_string(strings, f"replace({', '.join(item.sql for item in strings)})", ValueKind.TEXT)


def _pad_function(function: str) -> Callable[[Sequence[Value]], Value]:
    def translate(values: Sequence[Value]) -> Value:
        source, pad = as_text(values[0]), v.constant_text(values[2], function.upper())
        size = v.constant_integer(values[1], function.upper())
        if not pad or not 0 <= size <= _MAX_PAD:
            raise ExpressionError(
                f"{function.upper()} to {size} with {pad!r}: expected a size of 0 to {_MAX_PAD} and a pad that is not empty"
            )
        return combined_string(
            [source, values[2]], f"{function}({source.sql}, {size}, {v.sql_string(pad)})", ValueKind.TEXT
        )

    return translate


def _reverse(values: Sequence[Value]) -> Value:
    source = as_text(values[0])
    return _string_from(source, f"reverse({source.sql})")


def _substring_index(values: Sequence[Value]) -> Value:
    source, delimiter = as_text(values[0]), v.constant_text(values[1], "SUBSTRING_INDEX")
    count = v.constant_integer(values[2], "SUBSTRING_INDEX")
    if len(delimiter) != 1 or abs(count) > _MAX_PAD:
        raise ExpressionError(
            f"SUBSTRING_INDEX by {delimiter!r}, {count}: expected one character and at most {_MAX_PAD}"
        )
    return _string_from(source, f"substring_index({source.sql}, {v.sql_string(delimiter)}, {count})")


def _instr(values: Sequence[Value]) -> Value:
    source, part = as_text(values[0]), as_text(values[1])
    collation = common_collation([source, part])
    if collation is None or not collation.endswith(("_bin", "binary")):
        raise ExpressionError(
            f"INSTR of text with the collation {collation or 'unknown'}: only binary collations are supported"
        )
    return v.integer_from_int(f"instr({source.sql}, {part.sql})", source, part)


def _hex(values: Sequence[Value]) -> Value:
    value = values[0]
    if value.kind is ValueKind.INTEGER and not value.is_wide:
        return _ascii(f"hex({value.sql})", value)
    v.require_kind(value, _STRINGS, "HEX")
    content = as_bytes(value)
    return _ascii(f"hex({content.sql})", content)


def _ascii(sql: str, *sources: Value) -> Value:
    return replace(v.value_from(sql, ValueKind.TEXT, *sources), charset="ascii", collation=v.LITERAL)


def _unhex(values: Sequence[Value]) -> Value:
    v.require_kind(values[0], [ValueKind.TEXT], "UNHEX")
    return v.value_from(f"unhex({values[0].sql})", ValueKind.BYTES, values[0])


def _digest_function(function: str) -> Callable[[Sequence[Value]], Value]:
    def translate(values: Sequence[Value]) -> Value:
        content = as_bytes(values[0])
        return _ascii(f"{function}({content.sql})", content)

    return translate


def _sha2(values: Sequence[Value]) -> Value:
    content, size = as_bytes(values[0]), v.constant_integer(values[1], "SHA2")
    if size not in (0, 224, 256, 384, 512):
        raise ExpressionError(f"SHA2 of {size} bits: expected 0, 224, 256, 384 or 512")
    return _ascii(f"sha2({content.sql}, {size})", content)


def _crc32(values: Sequence[Value]) -> Value:
    content = as_bytes(values[0])
    return v.integer(f"crc32({content.sql})", content, digits=10)


def text_prefix(value: Value, size: int) -> Value:
    """The first `size` characters of a text."""
    return _string_from(value, f"substring({value.sql}, 1, {size})")


FUNCTIONS: dict[str, tuple[int, int, Callable[[Sequence[Value]], Value]]] = {
    "CONCAT": (1, 1000, concat),
    "CONCAT_WS": (2, 1000, _concat_ws),
    "LENGTH": (1, 1, _length),
    "OCTET_LENGTH": (1, 1, _length),
    "CHAR_LENGTH": (1, 1, _char_length),
    "CHARACTER_LENGTH": (1, 1, _char_length),
    "SUBSTR": (2, 3, substring),
    "MID": (3, 3, substring),
    "LEFT": (2, 2, _left),
    "RIGHT": (2, 2, _right),
    "UPPER": (1, 1, _case_function("upper")),
    "UCASE": (1, 1, _case_function("upper")),
    "LOWER": (1, 1, _case_function("lower")),
    "LCASE": (1, 1, _case_function("lower")),
    "LTRIM": (1, 1, lambda values: trim(values[0], "LEADING", None)),
    "RTRIM": (1, 1, lambda values: trim(values[0], "TRAILING", None)),
    "REPLACE": (3, 3, _replace),
    "LPAD": (3, 3, _pad_function("lpad")),
    "RPAD": (3, 3, _pad_function("rpad")),
    "REVERSE": (1, 1, _reverse),
    "SUBSTRING_INDEX": (3, 3, _substring_index),
    "INSTR": (2, 2, _instr),
    "LOCATE": (2, 2, lambda values: _instr([values[1], values[0]])),
    "HEX": (1, 1, _hex),
    "UNHEX": (1, 1, _unhex),
    "MD5": (1, 1, _digest_function("md5")),
    "SHA": (1, 1, _digest_function("sha1")),
    "SHA1": (1, 1, _digest_function("sha1")),
    "SHA2": (2, 2, _sha2),
    "CRC32": (1, 1, _crc32),
}
"""MySQL name → minimum and maximum number of arguments, and the translation."""
