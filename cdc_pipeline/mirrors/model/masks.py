"""Masked columns: which schema texts reveal their values, and which type changes invalidate their hashes.

`hash`: HMAC-SHA-256 of the value as text with the pipeline's salt, as 64 hex digits. Equal values have equal hashes, so
rows can still be distinguished and joined. `null`: NULL in all rows. `merge.masked_values` computes them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from pyspark.sql.types import DecimalType

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.ddl.tokens import words_in
from cdc_pipeline.mysql.expressions.conversions import conversion_doubt
from cdc_pipeline.mysql.model.partitions import Partitioning
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, ColumnOrigin, Default, MySqlType, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

Mask: TypeAlias = Literal["hash", "null"]
HASH: Mask = "hash"
NULL: Mask = "null"

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_REDACTED = Default("expression", "a masked value")


def salt_key(salt: str) -> str:
    """Identifies the salt without revealing it: 16 hex digits."""
    return hmac.new(salt.encode(), b"\0cdc_pipeline mask_salt", hashlib.sha256).hexdigest()[:16]


def redacted_schema(schema: TableSchema, masks: Collection[str]) -> TableSchema:
    """The schema without texts that reveal values of these columns: defaults, and bounds of partitions by them."""
    columns = tuple(_redacted_default(column) if column.name in masks else column for column in schema.columns)
    return replace(schema, columns=columns, partitioning=_redacted_bounds(schema.partitioning, masks))


def _redacted_bounds(partitioning: Partitioning | None, masks: Collection[str]) -> Partitioning | None:
    if partitioning is None:
        return None
    if not partitioning.is_known:
        return Partitioning.unknown("its definition could not be parsed or followed", "")
    # all words that may be column names
    used = {name.casefold() for name in partitioning.columns} | words_in(partitioning.expression)
    masked = used & {name.casefold() for name in masks}
    return Partitioning.unknown("it uses a masked column", "") if masked else partitioning


def _redacted_default(column: Column) -> Column:
    has_value = column.default is not None and column.default.value is not None
    return replace(column, default=_REDACTED) if has_value else column


def stale_hash_gaps(origins: Iterable[ColumnOrigin], masks: Mapping[str, Mask]) -> list[Gap]:
    """Gaps of hashed columns whose values may have another text in their new type: hashes cannot be recomputed.

    `masks` are those before the change.
    """
    return [
        Gap(
            GapKind.HASHED_AS_OTHER_TYPE,
            f"older values were hashed as {origin.before.type}, new ones as {origin.after.type}",
            origin.after.name,
        )
        for origin in origins
        if origin.before is not None
        and masks.get(origin.before.name) == HASH
        and not _same_text(origin.before.type, origin.after.type)
    ]


def _same_text(old: MySqlType, new: MySqlType) -> bool:
    """Whether every value of the old type has the same text in the new type."""
    if replace(old, charset=None, collation=None) == replace(new, charset=None, collation=None):
        return True
    old_scale, new_scale = _scale(old), _scale(new)
    if old_scale is not None and new_scale is not None:
        return old_scale <= new_scale
    if old.base == new.base and old.base in ("datetime", "timestamp"):
        return (old.params or (0,)) <= (new.params or (0,))
    if old.base in TEXT_TYPES and new.base in TEXT_TYPES:
        return "char" not in (old.base, new.base) and conversion_doubt(old, new) is None
    if old.base == new.base and old.base in ("enum", "set"):
        return bool(old.members) and conversion_doubt(old, new) is None
    return False


def _scale(kind: MySqlType) -> int | None:
    """The scale of an exact numeric type; None for other types and for a DECIMAL that the mirror stores as text."""
    target = spark_type(kind)
    if kind.base == "decimal" and isinstance(target, DecimalType):
        return target.scale
    return 0 if kind.base in _INTEGERS else None
