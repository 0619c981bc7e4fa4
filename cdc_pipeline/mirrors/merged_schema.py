"""The definition of a mirror of several tables: what each of them has, in one. Pure: definitions in, a definition out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.shards import SOURCE_COLUMNS, SOURCE_NAMES
from cdc_pipeline.schemas.table import Column, Default, TableSchema
from cdc_pipeline.schemas.wider_types import wider_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mirrors.shards import Shard
    from cdc_pipeline.schemas.table import MySqlType

_DIFFERENT = Default("expression", "another one in each shard")


def merged_schema(shards: Sequence[Shard], current: TableSchema) -> tuple[TableSchema, tuple[str, ...]]:
    """The mirror's definition, and the gaps that it has where the shards do not go together. `current` is what it was: it
    stays so where they disagree. The first shard's order of columns counts."""
    if not shards:
        return current, ()
    gaps: list[str] = []
    columns = [_merged_column(name, shards, current, gaps) for name in _names(shards)]
    key = _merged_key(shards, current, gaps)
    folded = {name.casefold() for name in key}
    columns = [replace(column, nullable=False) if column.name.casefold() in folded else column for column in columns]
    charsets = {shard.schema.charset for shard in shards}
    charset = charsets.pop() if len(charsets) == 1 else None
    return TableSchema((*SOURCE_COLUMNS, *columns), key, charset=charset), tuple(gaps)


def _names(shards: Sequence[Shard]) -> list[str]:
    """The names of all columns: those of the first shard, then what others have more, each after the one that it follows."""
    names: list[str] = []
    for definition in dict.fromkeys(shard.schema for shard in shards):
        place = 0
        for column in definition.columns:
            folded = [name.casefold() for name in names]
            if column.name.casefold() in folded:
                place = folded.index(column.name.casefold()) + 1
            else:
                names.insert(place, column.name)
                place += 1
    return names


def _merged_column(name: str, shards: Sequence[Shard], current: TableSchema, gaps: list[str]) -> Column:
    found = [(shard, column) for shard in shards if (column := shard.schema.find(name)) is not None]
    columns = [column for _, column in found]
    kind: MySqlType | None = columns[0].type
    for shard, column in found[1:]:
        wider = None if kind is None else wider_type(kind, column.type)
        if wider is None:
            first = found[0]
            gaps.append(
                f"column {name}: {shard.name} has {column.type}, and {first[0].name} {first[1].type}: values of one of them "
                "may not be upstream's"
            )
        kind = wider
        if kind is None:
            break
    if kind is None:
        former = current.find(name)
        kind = columns[0].type if former is None else former.type
    everywhere = len(found) == len(shards)
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


def _merged_key(shards: Sequence[Shard], current: TableSchema, gaps: list[str]) -> tuple[str, ...]:
    keys = {tuple(name.casefold() for name in shard.schema.row_key): shard for shard in shards}
    if len(keys) == 1:
        key = shards[0].schema.row_key
        return (*SOURCE_NAMES, *key) if key else ()
    words = ", ".join(
        f"({', '.join(key)}) in {shard.name}" if key else f"no key in {shard.name}" for key, shard in keys.items()
    )
    gaps.append(f"rows are identified by {words}: those of one of them may be wrong")
    known = {column.name.casefold() for shard in shards for column in shard.schema.columns} | set(SOURCE_NAMES)
    if not current.columns:
        key = shards[-1].schema.row_key
        return (*SOURCE_NAMES, *key) if key else ()
    return current.primary_key if all(name.casefold() in known for name in current.primary_key) else ()
