"""How large the numbers of a column's type may be: MySQL's own limits, and what a server makes of a longer one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.model.limits import limit_message

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.table import MySqlType

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
# base → for each number in brackets what it is, and the most that it may be
_NUMBERS: dict[str, tuple[tuple[str, int], ...]] = {
    **dict.fromkeys(_INTEGERS, (("display width", 255),)),
    "bit": (("bits", 64),),
    # MySQL's scale ends at 30, MariaDB's at 38
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
"""Bytes of VARCHAR and VARBINARY. A server that is not strict makes TEXT and BLOB of longer ones."""


def beyond_type(kind: MySqlType) -> str | None:
    """Why a column cannot be of this type: which of its numbers is above MySQL's limit; None where it can."""
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


def longer_type(base: str, params: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """What a server makes of a VARCHAR or VARBINARY that is too long for a row; others as they are."""
    if base not in ("varchar", "varbinary") or not params or params[0] <= _LONGEST_IN_ROW:
        return base, params
    size = "medium" if params[0] < 2**24 else "long"
    return size + ("text" if base == "varchar" else "blob"), ()
