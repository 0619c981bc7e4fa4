"""String functions of MySQL expressions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.texts import (
    NOT_ASCII,
    NOT_PLAIN,
    as_bytes,
    as_text,
    joined,
    joint_collation,
)
from cdc_pipeline.mysql.expressions.values import (
    LITERAL,
    ExpressionError,
    Value,
    ValueKind,
    bound,
    constant_integer,
    constant_text,
    derived,
    doubt_of,
    doubted,
    integer,
    quoted,
    require,
    small,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STRINGS = (ValueKind.TEXT, ValueKind.BYTES)
_MAX_PAD = 65_535


def _strings(values: Sequence[Value]) -> list[Value]:
    """All as text, or all as bytes if one is bytes."""
    if not any(value.kind is ValueKind.BYTES for value in values):
        return [as_text(value) for value in values]
    return [as_bytes(value) for value in values]


def concat(values: Sequence[Value]) -> Value:
    strings = _strings(values)
    return joined(strings, f"concat({', '.join(item.sql for item in strings)})", strings[0].kind)


def _concat_ws(values: Sequence[Value]) -> Value:
    strings = [as_text(value) for value in values]
    if len(strings) < 2:
        raise ExpressionError("CONCAT_WS of fewer than two values")
    return joined(strings, f"concat_ws({', '.join(item.sql for item in strings)})", ValueKind.TEXT)


def _string(value: Value) -> Value:
    return value if value.kind is ValueKind.BYTES else as_text(value)


def _size(value: Value) -> str:
    return f"{'octet_length' if value.kind is ValueKind.BYTES else 'char_length'}({value.sql})"


def _length(values: Sequence[Value]) -> Value:
    found = as_bytes(values[0])
    return small(f"octet_length({found.sql})", found)


def _char_length(values: Sequence[Value]) -> Value:
    found = _string(values[0])
    return small(_size(found), found)


def _int(value: Value) -> str:
    """INT text of a whole number, with the outermost ones of INT for what lies beyond."""
    require(value, [ValueKind.INTEGER], "a position or length")
    return f"CAST(least(greatest({value.sql}, -2147483647), 2147483647) AS INT)"


def _like(source: Value, sql: str, *others: Value) -> Value:
    """A string made of a part of `source`."""
    made = replace(source, sql=sql, constant=None)
    return replace(made, doubt=doubt_of(source, *others))


def substring(values: Sequence[Value]) -> Value:
    """SUBSTRING(text, position[, length])."""
    source, place = _string(values[0]), _int(values[1])
    size = _int(values[2]) if len(values) > 2 else "2147483647"
    empty = "X''" if source.kind is ValueKind.BYTES else "''"

    def part(text: str, place: str, size: str) -> str:
        length = _size(replace(source, sql=text))
        # MySQL has nothing before the first character, where Spark counts on from there
        return (
            f"CASE WHEN {text} IS NULL OR {place} IS NULL OR {size} IS NULL THEN NULL "
            f"WHEN {place} > 0 OR ({place} < 0 AND {place} >= -{length}) THEN substring({text}, {place}, {size}) "
            f"ELSE {empty} END"
        )

    sql = bound(source.sql, lambda x: bound(place, lambda at: bound(size, lambda count: part(x, at, count))))
    return _like(source, sql, *values[1:])


def _left(values: Sequence[Value]) -> Value:
    source = _string(values[0])
    return _like(source, f"substring({source.sql}, 1, greatest({_int(values[1])}, 0))", values[1])


def _right(values: Sequence[Value]) -> Value:
    source, size = _string(values[0]), _int(values[1])
    empty = "X''" if source.kind is ValueKind.BYTES else "''"
    # NULL is less than nothing: the CASE goes on to substring, which then is NULL

    def part(text: str, count: str) -> str:
        return f"CASE WHEN {count} <= 0 THEN nvl2({text}, {empty}, NULL) ELSE substring({text}, -{count}) END"

    return _like(source, bound(source.sql, lambda x: bound(size, lambda n: part(x, n))), values[1])


def _cased(function: str) -> Callable[[Sequence[Value]], Value]:
    def made(values: Sequence[Value]) -> Value:
        require(values[0], [ValueKind.TEXT], function.upper())
        # MySQL changes single letters by the tables of its version, Java whole words: ß is SS
        return doubted(_like(values[0], f"{function}({values[0].sql})"), f"{values[0].sql} RLIKE {quoted(NOT_ASCII)}")

    return made


def trimmed(value: Value, side: str, what: Value | None) -> Value:
    """TRIM with `side` BOTH, LEADING or TRAILING. Raises ExpressionError for more than one character to remove."""
    source = as_text(value)
    letter = " " if what is None else constant_text(what, "TRIM")
    if len(letter) != 1:
        raise ExpressionError(f"TRIM of {letter!r}: only a single character")
    return _like(source, f"trim({side} {quoted(letter)} FROM {source.sql})")


def _replace(values: Sequence[Value]) -> Value:
    strings = [as_text(value) for value in values]
    return joined(strings, f"replace({', '.join(item.sql for item in strings)})", ValueKind.TEXT)


def _padded(function: str) -> Callable[[Sequence[Value]], Value]:
    def made(values: Sequence[Value]) -> Value:
        source, pad = as_text(values[0]), constant_text(values[2], function.upper())
        size = constant_integer(values[1], function.upper())
        if not pad or not 0 <= size <= _MAX_PAD:
            raise ExpressionError(f"{function.upper()} to {size} with {pad!r}")
        return joined([source, values[2]], f"{function}({source.sql}, {size}, {quoted(pad)})", ValueKind.TEXT)

    return made


def _reverse(values: Sequence[Value]) -> Value:
    source = as_text(values[0])
    return _like(source, f"reverse({source.sql})")


def _substring_index(values: Sequence[Value]) -> Value:
    source, delimiter = as_text(values[0]), constant_text(values[1], "SUBSTRING_INDEX")
    count = constant_integer(values[2], "SUBSTRING_INDEX")
    if len(delimiter) != 1 or abs(count) > _MAX_PAD:
        raise ExpressionError(f"SUBSTRING_INDEX by {delimiter!r}: only a single character")
    return _like(source, f"substring_index({source.sql}, {quoted(delimiter)}, {count})")


def _instr(values: Sequence[Value]) -> Value:
    source, part = as_text(values[0]), as_text(values[1])
    exact = f"instr({source.sql}, {part.sql})"
    found = small(exact, source, part)
    collation = joint_collation([source, part])
    if collation is not None and collation.endswith("_bin"):
        return found
    folded = [f"translate(lower({item.sql}), 'wy', 'vi')" for item in (source, part)]
    odd = [f"{item.sql} RLIKE {quoted(NOT_PLAIN)}" for item in (source, part)]
    return doubted(found, f"({exact} <> instr({folded[0]}, {folded[1]}) OR {odd[0]} OR {odd[1]})")


def _hex(values: Sequence[Value]) -> Value:
    value = values[0]
    if value.kind is ValueKind.INTEGER and not value.wide:
        return _ascii(f"hex({value.sql})", value)
    require(value, _STRINGS, "HEX")
    found = as_bytes(value)
    return _ascii(f"hex({found.sql})", found)


def _ascii(sql: str, *sources: Value) -> Value:
    return replace(derived(sql, ValueKind.TEXT, *sources), charset="ascii", collation=LITERAL)


def _unhex(values: Sequence[Value]) -> Value:
    require(values[0], [ValueKind.TEXT], "UNHEX")
    return derived(f"unhex({values[0].sql})", ValueKind.BYTES, values[0])


def _digest(function: str) -> Callable[[Sequence[Value]], Value]:
    def made(values: Sequence[Value]) -> Value:
        found = as_bytes(values[0])
        return _ascii(f"{function}({found.sql})", found)

    return made


def _sha2(values: Sequence[Value]) -> Value:
    found, size = as_bytes(values[0]), constant_integer(values[1], "SHA2")
    if size not in (0, 224, 256, 384, 512):
        raise ExpressionError(f"SHA2 of {size} bits")
    return _ascii(f"sha2({found.sql}, {size})", found)


def _crc32(values: Sequence[Value]) -> Value:
    found = as_bytes(values[0])
    return integer(f"crc32({found.sql})", found, digits=10)


def cut(value: Value, size: int) -> Value:
    """The first characters of a text."""
    return _like(value, f"substring({value.sql}, 1, {size})")


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
    "UPPER": (1, 1, _cased("upper")),
    "UCASE": (1, 1, _cased("upper")),
    "LOWER": (1, 1, _cased("lower")),
    "LCASE": (1, 1, _cased("lower")),
    "LTRIM": (1, 1, lambda values: trimmed(values[0], "LEADING", None)),
    "RTRIM": (1, 1, lambda values: trimmed(values[0], "TRAILING", None)),
    "REPLACE": (3, 3, _replace),
    "LPAD": (3, 3, _padded("lpad")),
    "RPAD": (3, 3, _padded("rpad")),
    "REVERSE": (1, 1, _reverse),
    "SUBSTRING_INDEX": (3, 3, _substring_index),
    "INSTR": (2, 2, _instr),
    "LOCATE": (2, 2, lambda values: _instr([values[1], values[0]])),
    "HEX": (1, 1, _hex),
    "UNHEX": (1, 1, _unhex),
    "MD5": (1, 1, _digest("md5")),
    "SHA": (1, 1, _digest("sha1")),
    "SHA1": (1, 1, _digest("sha1")),
    "SHA2": (2, 2, _sha2),
    "CRC32": (1, 1, _crc32),
}
"""By MySQL's name: the fewest and the most arguments, and what makes the value."""
