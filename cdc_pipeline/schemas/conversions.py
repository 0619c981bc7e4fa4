"""Which changes of a column's type carry existing values over exactly, and which this version cannot vouch for.

MODIFY and CHANGE send no rows (ticdc-facts §10): what upstream makes of its values has to be made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.schemas.ddl_types import KNOWN_TYPES
from cdc_pipeline.schemas.expressions import ExpressionError, assigned
from cdc_pipeline.schemas.gaps import Gap, GapKind, added, of_other_kinds
from cdc_pipeline.schemas.limits import short
from cdc_pipeline.schemas.names import quoted
from cdc_pipeline.schemas.table import TEXT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.schemas.expressions import SparkExpression
    from cdc_pipeline.schemas.table import Column, MySqlType, TableSchema

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_BLOBS = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_FRACTIONS = frozenset({"datetime", "timestamp", "time"})


def unsure_conversion(old: MySqlType, new: MySqlType) -> str | None:
    """Why existing values may differ from upstream's after the change; None where they are exact."""
    if _is_exact(old, new):
        return None
    return f"values were {short(str(old))} before and are {short(str(new))} now: converted without certainty"


def learns_labels(old: MySqlType, new: MySqlType) -> bool:
    """Whether numbers of an ENUM or SET whose labels were not known can become labels."""
    return old.base == new.base and old.base in ("enum", "set") and not old.members and bool(new.members)


def unsure_change(old: Column, new: Column, schema: TableSchema, time_zone: str) -> str | None:
    """`unsure_conversion`, where the value cannot be computed as MySQL assigns it either. `schema` is the table's before.

    A generated column is computed anew, and one whose formula has no equal here is told when that is tried.
    """
    if new.generated is not None or converted(old, new, schema, time_zone) is not None:
        return None
    return unsure_conversion(old.type, new.type)


def converted(old: Column, new: Column, schema: TableSchema, time_zone: str) -> SparkExpression | None:
    """The value that MySQL makes of the old column's for the new one; None where it is not known to be so here.

    `schema` is the table's before the change.
    """
    try:
        return assigned(quoted(old.name), new, schema, time_zone)
    except ExpressionError:
        return None


def _is_exact(old: MySqlType, new: MySqlType) -> bool:
    before, after = old.base, new.base
    if before in INTEGERS:
        return after in INTEGERS or after in TEXT_TYPES or (after == "decimal" and not new.zerofill)
    if before in TEXT_TYPES:
        return after in TEXT_TYPES or after == "json"
    if before in _BLOBS:
        return after in _BLOBS
    if before == "decimal":
        return after in TEXT_TYPES or (after == "decimal" and _scale(new) >= _scale(old))
    if before != after:
        # a double becomes the decimal of its shortest text, rounded, in MySQL as here
        pairs = {("float", "double"), ("double", "decimal")}
        return (before, after) in pairs or (before == "enum" and after in TEXT_TYPES)
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


_PARTIAL_IMAGES = (
    "rows came without some columns, which are NULL here (a partial row image, such as "
    "binlog_row_image MINIMAL or NOBLOB, or a column selector)"
)


def unsent_columns(columns: Sequence[Column]) -> tuple[Gap, ...]:
    """The gaps of these columns, which rows did not bring."""
    return tuple(
        Gap(GapKind.VIRTUAL_NOT_SENT, "virtual generated columns are not sent, they are NULL here", column.name)
        if column.generated == "virtual"
        else Gap(GapKind.PARTIAL_IMAGES, _PARTIAL_IMAGES, column.name)
        for column in sorted(columns, key=lambda column: column.generated != "virtual")
    )


def with_unclear_types(gaps: Iterable[Gap], columns: Iterable[Column]) -> tuple[Gap, ...]:
    """The gaps of a table that has these columns now: those of types are told anew."""
    return added(of_other_kinds(gaps, GapKind.UNCLEAR_TYPE), unclear_types(columns))


def unclear_types(columns: Iterable[Column]) -> tuple[Gap, ...]:
    """`unclear_type` of each column that has one."""
    return tuple(filter(None, map(unclear_type, columns)))


def unclear_type(column: Column) -> Gap | None:
    """Why the values of a column whose type only messages name may not be upstream's; None where they are."""
    kind, words = column.type, None
    if not kind.base:
        words = "its type is not known, values are kept as text"
    elif kind.base not in KNOWN_TYPES:
        words = f"{short(str(kind))} is no type of MySQL that is known here, values are kept as text"
    elif kind.base in ("enum", "set") and not kind.members:
        words = f"the labels of the {kind.base} are not known, numbers are kept as text"
    return None if words is None else Gap(GapKind.UNCLEAR_TYPE, words, column.name)
