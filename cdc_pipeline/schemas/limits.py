"""How much a statement may say: MySQL's and TiDB's own limits, and ours of what is read.

What lies beyond a limit is refused by name, with its size and the limit, before anything grows with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_pipeline.schemas.table import MySqlType

MOST_CHARACTERS = 2**20
"""Of a statement that is read. `max_allowed_packet` allows more (64 MB by default); 65,535 labels of ten letters fit."""
MOST_COLUMNS = 4096
"""Of a table: MySQL's, and TiDB's `table-column-count-limit` at most."""
MOST_INDEXES = 512
"""Of a table: TiDB's `index-limit` at most; MySQL has 64."""
MOST_KEY_COLUMNS = 64
"""Of an index; MySQL has 16, MariaDB 32."""
MOST_PARTITIONS = 8192
"""Of a table, in MySQL and TiDB."""
MOST_NAME_CHARACTERS = 64
"""Of an identifier."""
MOST_EXPRESSION_CHARACTERS = 65_535
"""Of a generated column, a default or a partition function."""
MOST_TRANSLATED_CHARACTERS = 100_000
"""Of the Spark SQL that an expression becomes."""
MOST_NESTING = 100
"""How deep an expression may be. MySQL goes on until its stack ends; Spark's own parser has a stack too."""
MOST_QUOTED = 200
"""Characters of a statement or value that a gap or an error quotes; `ddl_history` has statements whole."""

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


def short(text: str) -> str:
    """The text, cut to `MOST_QUOTED` characters, with its size where it was longer."""
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}… ({len(text):,} characters)"


def beyond(what: str, size: int, limit: int) -> str:
    """The words for a size above its limit."""
    return f"{what} {size:,}: at most {limit:,}"


def beyond_type(kind: MySqlType) -> str | None:
    """Why a column cannot be of this type: which of its numbers is above MySQL's limit; None where it can."""
    if (most := _LABELS.get(kind.base)) is not None and len(kind.members) > most:
        return f"{kind.base}: " + beyond("labels", len(kind.members), most)
    limits = _NUMBERS.get(kind.base, (("length", _LONGEST),))
    if len(kind.params) > len(limits):
        return f"{kind.base}: " + beyond("numbers in brackets", len(kind.params), len(limits))
    for (what, limit), number in zip(limits, kind.params, strict=False):
        if number > limit:
            return f"{kind.base}: " + beyond(what, number, limit)
    if kind.base == "decimal" and len(kind.params) > 1 and kind.params[1] > (kind.params[0] or 10):
        return f"decimal: {beyond('scale', kind.params[1], kind.params[0] or 10)}, its digits"
    return None


def longer_type(base: str, params: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """What a server makes of a VARCHAR or VARBINARY that is too long for a row; others as they are."""
    if base not in ("varchar", "varbinary") or not params or params[0] <= _LONGEST_IN_ROW:
        return base, params
    size = "medium" if params[0] < 2**24 else "long"
    return size + ("text" if base == "varchar" else "blob"), ()
