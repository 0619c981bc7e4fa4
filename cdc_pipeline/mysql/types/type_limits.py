"""Limits of the parameters of column types, and the types that replace too long VARCHAR and VARBINARY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.model.limits import limit_message

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.table import MySqlType

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
# base type → (meaning, maximum) of each number in brackets
_NUMBERS: dict[str, tuple[tuple[str, int], ...]] = {
    **dict.fromkeys(_INTEGERS, (("display width", 255),)),
    "bit": (("bits", 64),),
    # the maximum scale is 30 in MySQL, 38 in MariaDB
    "decimal": (("digits", 65), ("scale", 38)),
    "float": (("digits", 255), ("scale", 38)),
    "double": (("digits", 255), ("scale", 38)),
    **dict.fromkeys(("time", "datetime", "timestamp"), (("digits of a second", 6),)),
    "year": (("digits", 4),),
    "char": (("length", 255),),
    "binary": (("length", 255),),
    "vector": (("dimensions", 16_383),),
}
_LABELS = {"enum": 65_535, "set": 64}
_LONGEST = 2**32 - 1
_LONGEST_IN_ROW = 65_535
"""Maximum bytes of VARCHAR and VARBINARY. A server without strict mode converts longer ones to TEXT and BLOB."""


def exceeded_type_limit(kind: MySqlType) -> str | None:
    """Which parameter of the type exceeds its limit, as a message; None if all are valid."""
    if (most := _LABELS.get(kind.base)) is not None and len(kind.members) > most:
        return f"{kind.base}: " + limit_message("labels", len(kind.members), most)
    limits = _NUMBERS.get(kind.base, (("length", _LONGEST),))
    if len(kind.params) > len(limits):
        return f"{kind.base}: " + limit_message("numbers in brackets", len(kind.params), len(limits))
    for (what, limit), number in zip(limits, kind.params, strict=False):
        if number > limit:
            return f"{kind.base}: " + limit_message(what, number, limit)
    if kind.base == "decimal" and len(kind.params) > 1 and kind.params[1] > (kind.params[0] or 10):
        return f"decimal: {limit_message('scale', kind.params[1], kind.params[0] or 10)}, its digits"
    return None


def widened_string_type(base: str, params: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The TEXT or BLOB type that replaces a VARCHAR or VARBINARY of more than 65,535; other types unchanged."""
    if base not in ("varchar", "varbinary") or not params or params[0] <= _LONGEST_IN_ROW:
        return base, params
    size = "medium" if params[0] < 2**24 else "long"
    return size + ("text" if base == "varchar" else "blob"), ()
