"""The schema of a merged mirror, computed from the definitions of its source tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.source_tables import SOURCE_COLUMNS, SOURCE_NAMES
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, Default, TableSchema
from cdc_pipeline.mysql.types.charsets import charset_of_column
from cdc_pipeline.mysql.types.damaged_text import is_decoded_correctly
from cdc_pipeline.mysql.types.wider_types import wider_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.model.source_tables import SourceTable
    from cdc_pipeline.mysql.model.table import MySqlType

_DIFFERENT = Default("expression", "another one in each source table")


def merged_schema(sources: Iterable[SourceTable], current: TableSchema) -> tuple[TableSchema, tuple[Gap, ...]]:
    """The mirror's schema, and gaps where the definitions conflict; there the `current` definition stays.

    Columns are in the order of the first source table.
    """
    distinct = _distinct(sources)
    if not distinct:
        return current, ()
    gaps: list[Gap] = []
    columns = [_merged_column(name, distinct, current, gaps) for name in _names(distinct)]
    key = _merged_key(distinct, current, gaps)
    folded = {name.casefold() for name in key}
    columns = [replace(column, nullable=False) if column.name.casefold() in folded else column for column in columns]
    charsets = {source.schema.charset for source in distinct}
    charset = charsets.pop() if len(charsets) == 1 else None
    return TableSchema((*SOURCE_COLUMNS, *columns), key, charset=charset), tuple(gaps)


def _distinct(sources: Iterable[SourceTable]) -> list[SourceTable]:
    """The first source table of each distinct definition: a thousand source tables may share one."""
    distinct: list[SourceTable] = []
    for source in sources:
        if all(other.schema is not source.schema and other.schema != source.schema for other in distinct):
            distinct.append(source)
    return distinct


def _names(sources: Sequence[SourceTable]) -> list[str]:
    """All column names in the first source's order; a column of another source follows the one before it there."""
    names: list[str] = []
    for source in sources:
        index = 0
        for column in source.schema.columns:
            folded = [name.casefold() for name in names]
            if column.name.casefold() in folded:
                index = folded.index(column.name.casefold()) + 1
            else:
                names.insert(index, column.name)
                index += 1
    return names


def _merged_column(name: str, sources: Sequence[SourceTable], current: TableSchema, gaps: list[Gap]) -> Column:
    definitions = [(source, column) for source in sources if (column := source.schema.find(name)) is not None]
    columns = [column for _, column in definitions]
    kind: MySqlType | None = columns[0].type
    for source, column in definitions[1:]:
        kind = None if kind is None else wider_type(kind, column.type)
        if kind is None:
            kinds = " and ".join(sorted({str(columns[0].type), str(column.type)}))
            message = f"its source tables have different types ({kinds}), so some values may differ from upstream"
            gaps.append(Gap(GapKind.TABLES_DIFFER, message, name, example=str(source.name)))
            break
    if kind is None:
        former = current.find(name)
        kind = columns[0].type if former is None else former.type
    charsets = [charset_of_column(column.type, source.schema.charset) for source, column in definitions]
    if len(set(charsets)) > 1 and kind.base in TEXT_TYPES:
        # a charset whose text the encoder may damage wins, so that damage is detected in all source tables
        damaged = next((charset for charset in charsets if not is_decoded_correctly(charset)), None)
        kind = kind if damaged is None else replace(kind, charset=damaged, collation=None)
    everywhere = len(definitions) == len(sources)
    nullable = not everywhere or any(column.nullable for column in columns)
    formulas = {(column.generated, column.expression) for column in columns}
    if everywhere and len(formulas) == 1 and columns[0].generated is not None:
        return replace(columns[0], name=name, type=kind, nullable=nullable)
    return Column(name, kind, nullable, _merged_default(columns, everywhere=everywhere))


def _merged_default(columns: Sequence[Column], *, everywhere: bool) -> Default | None:
    defaults = {column.default for column in columns}
    # rows of a table without the column have NULL
    if len(defaults) == 1 and (everywhere or columns[0].default in (None, Default("literal", None))):
        return columns[0].default
    return _DIFFERENT


def _merged_key(sources: Sequence[SourceTable], current: TableSchema, gaps: list[Gap]) -> tuple[str, ...]:
    keys = {tuple(name.casefold() for name in source.schema.row_key): source for source in reversed(sources)}
    if len(keys) == 1:
        key = sources[0].schema.row_key
        return (*SOURCE_NAMES, *key) if key else ()
    different = " and ".join(sorted(f"({', '.join(key)})" if key else "no key" for key in keys))
    message = f"its source tables have different keys: {different}; rows of some of them may be wrong"
    gaps.append(Gap(GapKind.KEYS_DIFFER, message, example=str(sources[0].name)))
    known = {column.name.casefold() for source in sources for column in source.schema.columns} | set(SOURCE_NAMES)
    if not current.columns:
        key = sources[-1].schema.row_key
        return (*SOURCE_NAMES, *key) if key else ()
    return current.primary_key if all(name.casefold() in known for name in current.primary_key) else ()
