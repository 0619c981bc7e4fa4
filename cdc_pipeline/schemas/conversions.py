"""Which changes of a column's type carry existing values over exactly, and which this version cannot vouch for.

MODIFY and CHANGE send no rows (ticdc-facts §10): what upstream makes of its values has to be made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.schemas.table import TEXT_TYPES

if TYPE_CHECKING:
    from cdc_pipeline.schemas.table import Column, MySqlType

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_BLOBS = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_FRACTIONS = frozenset({"datetime", "timestamp", "time"})


def unsure_conversion(old: MySqlType, new: MySqlType) -> str | None:
    """Why existing values may differ from upstream's after the change; None where they are exact."""
    if _is_exact(old, new):
        return None
    return f"values were {old} before and are {new} now: converted without certainty"


def _is_exact(old: MySqlType, new: MySqlType) -> bool:
    before, after = old.base, new.base
    if before in _INTEGERS:
        return after in _INTEGERS or after in TEXT_TYPES or (after == "decimal" and not new.zerofill)
    if before in TEXT_TYPES:
        return after in TEXT_TYPES or after == "json"
    if before in _BLOBS:
        return after in _BLOBS
    if before == "decimal":
        return after in TEXT_TYPES or (after == "decimal" and _scale(new) >= _scale(old))
    if before != after:
        return (before, after) == ("float", "double") or (before == "enum" and after in TEXT_TYPES)
    if before in _FRACTIONS:
        # fewer digits round; the text of a time shows as many as its type has
        return _digits(new) == _digits(old) or (before != "time" and _digits(new) > _digits(old))
    if before == "binary":
        return old.params == new.params  # a longer one is padded
    if before in ("enum", "set"):
        return set(old.members) <= set(new.members)
    return True


def _scale(kind: MySqlType) -> int:
    return kind.params[1] if len(kind.params) > 1 else 0


def _digits(kind: MySqlType) -> int:
    return kind.params[0] if kind.params else 0


def unsent_column(column: Column) -> str | None:
    """Why the mirror lacks a column's values; None where the encoder sends them."""
    if column.generated == "virtual":
        return f"column {column.name} is a virtual generated one: TiCDC does not send its values, they are NULL here"
    return None
