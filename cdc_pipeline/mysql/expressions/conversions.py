"""Type changes of columns: which ones keep existing values exact, and the gaps of uncertain types and conversions.

MODIFY and CHANGE send no rows (ticdc-facts §10), so the mirror must convert existing values as upstream does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cdc_pipeline.gaps import Gap, GapKind, merge_gaps, without_kinds
from cdc_pipeline.mysql.ddl.column_types import KNOWN_TYPES
from cdc_pipeline.mysql.expressions.column_values import INTEGER_DIGITS
from cdc_pipeline.mysql.expressions.translation import ExpressionError, SparkExpression, translate_assignment
from cdc_pipeline.mysql.model.limits import shortened
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, MySqlType, TableSchema
from cdc_pipeline.mysql.types.spark_types import DATES, GEOMETRIES, text_decimal
from cdc_pipeline.mysql.types.wider_types import BLOBS, UTF8_BYTES, most_bytes_of, wider_type

INTEGERS = frozenset(INTEGER_DIGITS)
_FRACTIONS = frozenset({"datetime", "timestamp", "time"})
_MOST_FRACTION, _LONGEST = 6, 2**32 - 1


def conversion_doubt(old: MySqlType, new: MySqlType) -> str | None:
    """Why existing values may differ from upstream's after the type change; None if they are exact."""
    if _is_exact(old, new):
        return None
    types = f"{shortened(str(old))} to {shortened(str(new))}"
    return f"the type changed from {types}: converted values may differ from upstream's"


def adds_labels(old: MySqlType, new: MySqlType) -> bool:
    """Whether the change adds the labels of an ENUM or SET, so that stored numbers can be replaced by labels."""
    return old.base == new.base and old.base in ("enum", "set") and not old.members and bool(new.members)


def column_change_doubt(
    old: Column, new: Column, schema: TableSchema, time_zone: str, *, inferred: bool = False
) -> str | None:
    """Why existing values may differ from upstream's after the change; None if they are exact or can be computed.

    `schema`: the table before the change; `inferred`: whether it comes from messages, which name no digits of a second
    (ticdc-facts §2). A generated column gives None: the mirror recomputes it and reports its gaps then.
    """
    keeps_digits = old.type == new.type or (new.type.base in _FRACTIONS and _digits(new.type) == _MOST_FRACTION)
    if inferred and old.type.base in _FRACTIONS and not old.type.params and not keeps_digits:
        return f"the type changed to {shortened(str(new.type))}, and the former digits of a second are not known"
    if new.generated is not None or converted_value(old, new, schema, time_zone) is not None:
        return None
    return conversion_doubt(old.type, new.type)


def converted_value(old: Column, new: Column, schema: TableSchema, time_zone: str) -> SparkExpression | None:
    """The value of the old column as MySQL converts it to the new column; None if the conversion is not supported.

    `schema`: the table before the change.
    """
    if old.type.base in DATES:
        # a zero date is NULL in the mirror; upstream it stays one, or becomes anything else
        has_doubt = replace(old, nullable=new.type.base in DATES)
        schema = replace(schema, columns=tuple(has_doubt if one == old else one for one in schema.columns))
    try:
        return translate_assignment(quoted(old.name), new, schema, time_zone)
    except ExpressionError:
        return None


def _is_exact(old: MySqlType, new: MySqlType) -> bool:
    """Whether every value of the old type is the same value in the new type."""
    before, after = old.base, new.base
    if before in INTEGERS:
        return _integer_is_exact(old, new)
    if before in TEXT_TYPES:
        # MySQL returns a CHAR without trailing spaces
        return after in TEXT_TYPES and (after != "char" or before == "char") and _is_as_long(new, old)
    if before in BLOBS:
        return after in BLOBS and _is_as_long(new, old)
    if before == "decimal":
        return _decimal_is_exact(old, new)
    if before != after:
        if before == "enum" and after in TEXT_TYPES:
            return after != "char" and bool(old.members) and _size(new) >= max(map(len, old.members))
        return ((before, after) == ("float", "double") and not new.params and not new.unsigned) or {
            before,
            after,
        } <= GEOMETRIES
    if new.unsigned and not old.unsigned:
        return False
    if before in _FRACTIONS:
        return _digits(new) == _digits(old) or (before != "time" and _digits(new) > _digits(old))
    if before == "binary" or (before in ("float", "double") and len(new.params) > 1):
        return old.params == new.params  # a longer BINARY is padded, a different scale rounds
    if before == "bit":
        return _digits(new) >= _digits(old)
    if adds_labels(old, new):
        return False  # the new labels need not be those of the stored numbers
    if before == "enum":
        return set(old.members) <= set(new.members)
    if before == "set":
        # MySQL prints the labels of a SET in the order of its definition
        return tuple(member for member in new.members if member in old.members) == old.members
    return True


def _integer_is_exact(old: MySqlType, new: MySqlType) -> bool:
    digits = INTEGER_DIGITS[old.base] + (old.base == "bigint" and old.unsigned)
    if new.base in INTEGERS:
        kind = wider_type(replace(old, zerofill=False, params=()), replace(new, zerofill=False, params=()))
        return kind is not None and (kind.base, kind.unsigned) == (new.base, new.unsigned)
    if new.unsigned and not old.unsigned:
        return False
    if new.base == "decimal":
        # a text of one spelling gets the zeros of its scale
        same_text = text_decimal(new) is None or not _scale(new)
        return same_text and not new.zerofill and (new.params[0] if new.params else 10) - _scale(new) >= digits
    return new.base in TEXT_TYPES and not old.zerofill and _size(new) > digits


def _decimal_is_exact(old: MySqlType, new: MySqlType) -> bool:
    digits = old.params[0] if old.params else 0
    if new.base in TEXT_TYPES:
        return not old.zerofill and _size(new) >= digits + 2
    if new.base != "decimal" or (new.unsigned and not old.unsigned):
        return False
    if not old.params or not new.params:
        return old.params == new.params
    same_text = old.params == new.params or text_decimal(old) is None is text_decimal(new)
    return same_text and _scale(new) >= _scale(old) and new.params[0] - _scale(new) >= digits - _scale(old)


def _is_as_long(new: MySqlType, old: MySqlType) -> bool:
    """Whether all texts or bytes of the old type fit the new one. TEXT types hold bytes, CHAR and VARCHAR characters."""
    if (most := most_bytes_of(new)) is None:
        return _size(new) >= _size(old)
    has_characters = old.base in TEXT_TYPES and most_bytes_of(old) is None
    return most >= min(_size(old) * (UTF8_BYTES if has_characters else 1), _LONGEST)


def _size(kind: MySqlType) -> int:
    """Maximum number of characters or bytes."""
    return most_bytes_of(kind) or (kind.params[0] if kind.params else _LONGEST)


def _scale(kind: MySqlType) -> int:
    return kind.params[1] if len(kind.params) > 1 else 0


def _digits(kind: MySqlType) -> int:
    return kind.params[0] if kind.params else 0


_PARTIAL_IMAGES = (
    "rows came without some columns, which are NULL here (a partial row image, such as "
    "binlog_row_image MINIMAL or NOBLOB, or a column selector)"
)


def absent_column_gaps(columns: Sequence[Column]) -> tuple[Gap, ...]:
    """The gaps of columns that row changes do not contain, virtual generated columns first."""
    return tuple(
        Gap(GapKind.VIRTUAL_NOT_SENT, "virtual generated columns are not sent, they are NULL here", column.name)
        if column.generated == "virtual"
        else Gap(GapKind.PARTIAL_IMAGES, _PARTIAL_IMAGES, column.name)
        for column in sorted(columns, key=lambda column: column.generated != "virtual")
    )


def replace_type_gaps(gaps: Iterable[Gap], columns: Iterable[Column]) -> tuple[Gap, ...]:
    """The gaps of a table, with its UNCLEAR_TYPE gaps replaced by those of the given columns."""
    return merge_gaps(without_kinds(gaps, GapKind.UNCLEAR_TYPE), type_gaps(columns))


def type_gaps(columns: Iterable[Column]) -> tuple[Gap, ...]:
    """The `type_gap` of each column that has one."""
    return tuple(filter(None, map(type_gap, columns)))


def type_gap(column: Column) -> Gap | None:
    """The gap of a column whose type is known only from messages, and not fully; None if the type is fully known."""
    kind, reason = column.type, None
    if not kind.base:
        reason = "its type is not known, values are kept as text"
    elif kind.base not in KNOWN_TYPES:
        reason = f"{shortened(str(kind))} is not a known MySQL type, values are kept as text"
    elif kind.base in ("enum", "set") and not kind.members:
        reason = f"the labels of the {kind.base} are not known, numbers are kept as text"
    return None if reason is None else Gap(GapKind.UNCLEAR_TYPE, reason, column.name)
