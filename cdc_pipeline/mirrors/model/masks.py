"""Columns of which a mirror does not show the values: what is said of them without Spark.

`hash`: text, 64 hex digits, HMAC-SHA-256 of the value as text under the pipeline's salt; equal values have equal hashes, so
that rows can be told apart and joined. `null`: NULL in all rows.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark.sql.types import DecimalType

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model.partitions import Partitioning
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, Default, MySqlType, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cdc_pipeline.mysql.model.table import ColumnOrigin

Mask: TypeAlias = Literal["hash", "null"]
HASH: Mask = "hash"
NULL: Mask = "null"

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_HIDDEN = Default("expression", "a masked value")


def salt_key(salt: str) -> str:
    """By what a mirror tells that its values were hashed with this salt, and not with another."""
    return hmac.new(salt.encode(), b"\0cdc_pipeline mask_salt", hashlib.sha256).hexdigest()[:16]


def without_values(schema: TableSchema, masks: Collection[str]) -> TableSchema:
    """The schema without what would tell values of these columns: their defaults, and the bounds of partitions by them."""
    columns = tuple(_without_default(column) if column.name in masks else column for column in schema.columns)
    return replace(schema, columns=columns, partitioning=_without_bounds(schema.partitioning, masks))


def _without_bounds(partitioning: Partitioning | None, masks: Collection[str]) -> Partitioning | None:
    if partitioning is None:
        return None
    if not partitioning.known:
        return Partitioning.unknown("its definition could not be read or followed", "")
    masked = _words(partitioning) & {name.casefold() for name in masks}
    return Partitioning.unknown("it is by a column that is masked", "") if masked else partitioning


def _without_default(column: Column) -> Column:
    told = column.default is not None and column.default.value is not None
    return replace(column, default=_HIDDEN) if told else column


def _words(partitioning: Partitioning) -> set[str]:
    """The words that may be names of columns by which rows are divided."""
    found = {name.casefold() for name in partitioning.columns}
    expressions = [partitioning.expression]
    if partitioning.subpartitioning is not None:
        found |= {name.casefold() for name in partitioning.subpartitioning.columns}
        expressions.append(partitioning.subpartitioning.expression)
    for expression in expressions:
        cursor = Cursor(expression)
        while not cursor.done:
            word = cursor.skip()
            if word.kind in (Kind.WORD, Kind.QUOTED):
                found.add(word.text.casefold())
    return found


def unsure_hashes(origins: Iterable[ColumnOrigin], masks: Mapping[str, Mask]) -> list[Gap]:
    """The gaps of hashed columns whose values may have another text in their new type: hashes cannot be made anew. `masks`
    is how columns were masked before."""
    return [
        Gap(
            GapKind.HASHED_AS_BEFORE,
            f"values were hashed as {origin.before.type} before and are as {origin.after.type} now",
            origin.after.name,
        )
        for origin in origins
        if origin.before is not None
        and masks.get(origin.before.name) == HASH
        and not _same_text(origin.before.type, origin.after.type)
    ]


def _same_text(old: MySqlType, new: MySqlType) -> bool:
    """Whether all values that were there have the same text in the new type."""
    if replace(old, charset=None, collation=None) == replace(new, charset=None, collation=None):
        return True
    places = (_places(old), _places(new))
    if places[0] is not None and places[1] is not None:
        return places[0] <= places[1]
    if old.base == new.base and old.base in ("datetime", "timestamp"):
        return (old.params or (0,)) <= (new.params or (0,))
    if old.base in TEXT_TYPES and new.base in TEXT_TYPES:
        return "char" not in (old.base, new.base) and (not new.params or (old.params or (0,)) <= new.params)
    if old.base == new.base and old.base in ("enum", "set"):
        return bool(old.members) and set(old.members) <= set(new.members)
    return False


def _places(kind: MySqlType) -> int | None:
    """The digits after the point of an exact number; None for other types, and where the mirror has it as text."""
    found = spark_type(kind)
    if kind.base == "decimal" and isinstance(found, DecimalType):
        return found.scale
    return 0 if kind.base in _INTEGERS else None
