"""The common type of a column whose type differs among the source tables of a merged mirror."""

from __future__ import annotations

from dataclasses import replace

from cdc_pipeline.mysql.model.table import TEXT_TYPES, MySqlType

_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
BLOBS = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
"""Types of bytes of any length."""
_MOST_BYTES = {
    **dict.fromkeys(("tinytext", "tinyblob"), 2**8 - 1),
    **dict.fromkeys(("text", "blob"), 2**16 - 1),
    **dict.fromkeys(("mediumtext", "mediumblob"), 2**24 - 1),
    **dict.fromkeys(("longtext", "longblob"), 2**32 - 1),
}
UTF8_BYTES = 4
"""The most bytes of a character."""


def most_bytes_of(kind: MySqlType) -> int | None:
    """The maximum of a TEXT or BLOB type in bytes; None for other types. TEXT(n) is the smallest that holds n characters."""
    if not kind.params or kind.base not in _MOST_BYTES:
        return _MOST_BYTES.get(kind.base)
    least = kind.params[0] * (UTF8_BYTES if kind.base in TEXT_TYPES else 1)
    return next((most for most in sorted(set(_MOST_BYTES.values())) if most >= least), 2**32 - 1)


def wider_type(one: MySqlType, other: MySqlType) -> MySqlType | None:
    """The type of the two that holds all values of both, encoded and stored in the same way; None if neither does.

    If the values of both types are the same, the first one.
    """
    if _values(one) == _values(other):
        return one
    if one.base in _BYTES and other.base in _BYTES:
        return _by_range(one, other)
    if any(one.base in kinds and other.base in kinds for kinds in (TEXT_TYPES, BLOBS)):
        return max(one, other, key=lambda kind: most_bytes_of(kind) or (kind.params[0] if kind.params else 1))
    if one.base != other.base or one.unsigned != other.unsigned:
        return None
    if one.base == "decimal" and one.params and other.params:
        return _by_digits(one, other)
    if one.base in ("enum", "set"):
        # messages send the number of a label, which is the same in both only if one list is a prefix of the other
        few, many = sorted((one, other), key=lambda kind: len(kind.members))
        return many if few.members and many.members[: len(few.members)] == few.members else None
    if one.base in ("datetime", "timestamp"):
        return max(one, other, key=lambda kind: kind.params or (0,))
    return None


def _values(kind: MySqlType) -> MySqlType:
    """The type without the attributes that do not affect its values."""
    params = () if kind.base in _BYTES else kind.params
    return replace(kind, params=params, zerofill=False, charset=None, collation=None)


def _by_range(one: MySqlType, other: MySqlType) -> MySqlType | None:
    few, many = sorted((one, other), key=lambda kind: (_BYTES[kind.base], not kind.unsigned))
    if few.unsigned == many.unsigned:
        return many
    return many if few.unsigned and _BYTES[few.base] < _BYTES[many.base] else None


def _by_digits(one: MySqlType, other: MySqlType) -> MySqlType | None:
    digits, scales = [kind.params[0] for kind in (one, other)], [(*kind.params, 0)[1] for kind in (one, other)]
    for first, second, kind in ((0, 1, one), (1, 0, other)):
        if scales[first] >= scales[second] and digits[first] - scales[first] >= digits[second] - scales[second]:
            return kind
    return None


def holds_values(wide: MySqlType, narrow: MySqlType) -> bool:
    """Whether a column of type `wide` holds all values of type `narrow` unchanged."""
    return wider_type(wide, narrow) == wide
