"""The schema of a merged mirror, computed from the definitions of its source tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.shards import SOURCE_COLUMNS, SOURCE_NAMES
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, Default, TableSchema
from cdc_pipeline.mysql.types.charsets import charset_of_column
from cdc_pipeline.mysql.types.damaged_text import is_decoded_correctly
from cdc_pipeline.mysql.types.wider_types import wider_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.model.shards import SourceTable
    from cdc_pipeline.mysql.model.table import MySqlType

_DIFFERENT = Default("expression", "another one in each shard")


def merged_schema(shards: Iterable[SourceTable], current: TableSchema) -> tuple[TableSchema, tuple[Gap, ...]]:
    """The mirror's schema, and gaps where the definitions conflict; there the `current` definition stays.

    Columns are in the order of the first shard.
    """
    distinct = _distinct(shards)
    if not distinct:
        return current, ()
    gaps: list[Gap] = []
    columns = [_merged_column(name, distinct, current, gaps) for name in _names(distinct)]
    key = _merged_key(distinct, current, gaps)
    folded = {name.casefold() for name in key}
    columns = [replace(column, nullable=False) if column.name.casefold() in folded else column for column in columns]
    charsets = {shard.schema.charset for shard in distinct}
    charset = charsets.pop() if len(charsets) == 1 else None
    return TableSchema((*SOURCE_COLUMNS, *columns), key, charset=charset), tuple(gaps)


def _distinct(shards: Iterable[SourceTable]) -> list[SourceTable]:
    """The first shard of each distinct definition: a thousand shards may share one."""
    distinct: list[SourceTable] = []
    for shard in shards:
        if all(other.schema is not shard.schema and other.schema != shard.schema for other in distinct):
            distinct.append(shard)
    return distinct


def _names(shards: Sequence[SourceTable]) -> list[str]:
    """All column names in the first shard's order; a column of another shard follows the one before it there."""
    names: list[str] = []
    for shard in shards:
        index = 0
        for column in shard.schema.columns:
            folded = [name.casefold() for name in names]
            if column.name.casefold() in folded:
                index = folded.index(column.name.casefold()) + 1
            else:
                names.insert(index, column.name)
                index += 1
    return names


def _merged_column(name: str, shards: Sequence[SourceTable], current: TableSchema, gaps: list[Gap]) -> Column:
    definitions = [(shard, column) for shard in shards if (column := shard.schema.find(name)) is not None]
    columns = [column for _, column in definitions]
    kind: MySqlType | None = columns[0].type
    for shard, column in definitions[1:]:
        kind = None if kind is None else wider_type(kind, column.type)
        if kind is None:
            kinds = " and ".join(sorted({str(columns[0].type), str(column.type)}))
            message = f"its source tables have different types ({kinds}), so some values may differ from upstream"
            gaps.append(Gap(GapKind.TABLES_DIFFER, message, name, example=str(shard.name)))
            break
    if kind is None:
        former = current.find(name)
        kind = columns[0].type if former is None else former.type
    charsets = [charset_of_column(column.type, shard.schema.charset) for shard, column in definitions]
    if len(set(charsets)) > 1 and kind.base in TEXT_TYPES:
        # a charset whose text the encoder may damage wins, so that damage is detected in all source tables
        damaged = next((charset for charset in charsets if not is_decoded_correctly(charset)), None)
        kind = kind if damaged is None else replace(kind, charset=damaged, collation=None)
    everywhere = len(definitions) == len(shards)
    nullable = not everywhere or any(column.nullable for column in columns)
    formulas = {(column.generated, column.expression) for column in columns}
    if everywhere and len(formulas) == 1 and columns[0].generated is not None:
        return replace(columns[0], name=name, type=kind, nullable=nullable)
    return Column(name, kind, nullable, _merged_default(columns, everywhere=everywhere))


def _merged_default(columns: Sequence[Column], *, everywhere: bool) -> Default | None:
    defaults = {column.default for column in columns}
    if len(defaults) == 1 and (everywhere or columns[0].default is None):
        return columns[0].default
    return _DIFFERENT


def _merged_key(shards: Sequence[SourceTable], current: TableSchema, gaps: list[Gap]) -> tuple[str, ...]:
    keys = {tuple(name.casefold() for name in shard.schema.row_key): shard for shard in reversed(shards)}
    if len(keys) == 1:
        key = shards[0].schema.row_key
        return (*SOURCE_NAMES, *key) if key else ()
    different = " and ".join(sorted(f"({', '.join(key)})" if key else "no key" for key in keys))
    message = f"its source tables have different keys: {different}; rows of some of them may be wrong"
    gaps.append(Gap(GapKind.KEYS_DIFFER, message, example=str(shards[0].name)))
    known = {column.name.casefold() for shard in shards for column in shard.schema.columns} | set(SOURCE_NAMES)
    if not current.columns:
        key = shards[-1].schema.row_key
        return (*SOURCE_NAMES, *key) if key else ()
    return current.primary_key if all(name.casefold() in known for name in current.primary_key) else ()
