"""Definitions of merged mirrors, computed from the definitions and rows of their source tables, and what ALTER TABLE of one
source table does to the columns that it shares with others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.masks import Mask
from cdc_pipeline.mirrors.model.source_tables import SOURCE_COLUMNS, SOURCE_NAMES, SourceTable, conflicting_columns
from cdc_pipeline.mirrors.model.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.planning.inferred_schema import undeclared_column_gaps, widened_schema
from cdc_pipeline.mysql.expressions.conversions import replace_type_gaps
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, ColumnOrigin, Default, MySqlType, TableName, TableSchema
from cdc_pipeline.mysql.types.charsets import charset_of_column, is_decoded_correctly
from cdc_pipeline.mysql.types.wider_types import holds_values, wider_type

_DIFFERENT = Default("expression", "another one in each source table")
UNSEEN_TABLES = Gap(GapKind.UNSEEN_TABLES, f"for some source tables, {UNSEEN_START.detail}")
"""The gap of a merged mirror with rows of tables without a CREATE TABLE in the stream."""


def with_sources(state: MirrorState, sources: Iterable[SourceTable]) -> MirrorState:
    """The merged mirror of these source tables, with their merged definition.

    Raises DeclarationError if a source table has a column with the name of a column that merging adds.
    """
    found = _with_shared_definitions(sources)
    for source in found:
        if conflicting_columns(source.schema.column_names):
            raise reserved_column_error(source.name)
    schema, gaps = _merged_schema(found, state.schema)
    merged = replace(state, schema=schema, source_tables=found, inferred=any(source.inferred for source in found))
    return replace(merged, gaps=replace_type_gaps(state.gaps, schema.columns)).with_gaps(*gaps)


def _with_shared_definitions(sources: Iterable[SourceTable]) -> tuple[SourceTable, ...]:
    """The source tables; those with equal definitions share one object, which makes a thousand of them fast to compare."""
    found: list[SourceTable] = []
    definitions: list[TableSchema] = []
    for source in sources:
        same = next((one for one in definitions if one is source.schema or one == source.schema), None)
        if same is None:
            definitions.append(source.schema)
        found.append(source if same is None or same is source.schema else replace(source, schema=same))
    return tuple(found)


def reserved_column_error(table: TableName) -> DeclarationError:
    """The error for a source table with a column whose name merging needs."""
    return DeclarationError(
        f"routes: {table} has a column {' or '.join(SOURCE_NAMES)} itself and cannot be merged: a merged mirror stores the "
        "source table of each row in columns of these names. Nothing was changed. Route it without merge, or exclude it"
    )


def require_free_names(groups: Iterable[RowGroup]) -> None:
    """Raises DeclarationError if rows of a merged table have a column with the name of one that merging adds."""
    for group in groups:
        if group.source is not None and conflicting_columns(set(group.columns).difference(SOURCE_NAMES)):
            raise reserved_column_error(group.source)


def with_rows(state: MirrorState, groups: Sequence[RowGroup]) -> MirrorState:
    """The merged mirror with the columns that its rows have and no DDL declared."""
    by_source: dict[TableName, list[RowGroup]] = {}
    for group in groups:
        assert group.source is not None
        by_source.setdefault(group.source, []).append(_as_upstream(group))
    sources = {source.name: source for source in state.source_tables or ()}
    gaps: list[Gap] = []
    for name, own in by_source.items():
        if name not in sources:
            sources[name] = SourceTable(name, TableSchema(()), inferred=True)
            gaps.append(UNSEEN_TABLES)
        source = sources[name]
        schema, added = widened_schema(source.schema, own, inferred=source.inferred)
        sources[name] = replace(source, schema=schema)
        gaps += [] if source.inferred else undeclared_column_gaps(added, str(name))
    if tuple(sources.values()) == state.source_tables:
        return state
    return with_sources(state, sources.values()).with_gaps(*gaps)


def with_lacking_columns(group: RowGroup, state: MirrorState) -> RowGroup:
    """The group with the mirror's columns that its source table does not have: they are known to be NULL, without a gap."""
    source = None if group.source is None else state.source_table(group.source)
    if source is None:
        return group
    lacking = (name for name in state.schema.column_names if name not in SOURCE_NAMES and not source.schema.find(name))
    return replace(group, columns=(*group.columns, *lacking))


def _as_upstream(group: RowGroup) -> RowGroup:
    """The group without the columns that merging adds."""
    columns, key = (
        tuple(name for name in names if name not in SOURCE_NAMES) for names in (group.columns, group.key_names)
    )
    return replace(group, columns=columns, key_names=key)


# ---- the definition


def _merged_schema(sources: Iterable[SourceTable], current: TableSchema) -> tuple[TableSchema, tuple[Gap, ...]]:
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


# ---- ALTER TABLE of one source table


def empty_column(column: Column) -> Column:
    """The column while it is NULL in all rows."""
    return replace(column, nullable=True, default=None, generated=None, expression=None)


def moved_columns(origins: Sequence[ColumnOrigin]) -> list[ColumnOrigin]:
    """The columns that get values in existing rows: those of a renamed column, or a default."""
    return [
        origin
        for origin in origins
        if (
            origin.after.generated is None and not _starts_null(origin.after)
            if origin.before is None
            else origin.before.name.casefold() != origin.after.name.casefold()
        )
    ]


def renamed_in_mirror(mirror: MirrorState, moved: Iterable[ColumnOrigin]) -> list[ColumnOrigin]:
    """The columns of `moved` that get the values of another column, as the mirror spells and defines them."""
    found = []
    for origin in moved:
        before = None if origin.before is None else mirror.schema.find(origin.before.name)
        if before is not None:
            found.append(ColumnOrigin(mirror.schema.find(origin.after.name) or origin.after, before))
    return found


def inherited_masks(mirror: MirrorState, moved: Iterable[ColumnOrigin]) -> dict[str, Mask]:
    """The masks of columns that get the values of masked columns, so that a renamed column stays masked."""
    masks = dict(mirror.masks)
    renamed = ((origin.after, origin.before) for origin in renamed_in_mirror(mirror, moved))
    return {after.name: masks[before.name] for after, before in renamed if before is not None and before.name in masks}


def _starts_null(column: Column) -> bool:
    """Whether an added column is NULL in existing rows. A TIMESTAMP without a default may not be (`default_value`)."""
    default = column.default
    if default is None:
        return column.nullable and column.type.base != "timestamp"
    return default.kind == "literal" and default.value is None


def added_again(before: TableSchema, origins: Sequence[ColumnOrigin]) -> list[str]:
    """The columns that a statement drops and adds again without a default."""
    return [
        origin.after.name
        for origin in origins
        if origin.before is None and before.find(origin.after.name) is not None and _starts_null(origin.after)
    ]


def unsure_values(name: TableName, origins: Sequence[ColumnOrigin], target: TableSchema, *, alone: bool) -> list[Gap]:
    """The gaps of columns in which older rows of the source table may differ from upstream, because the mirror's column
    follows the definitions of other source tables.

    target: the mirror's definition after the statement.
    alone: the mirror has no other source table.
    """
    gaps = []
    for origin in origins:
        after, before, merged = origin.after, origin.before, target.find(origin.after.name)
        computed = after.generated is not None and (before is None or before.expression != after.expression)
        if computed and merged is not None and merged.generated is None:
            detail = "older rows lack the values that upstream computes"
            gaps.append(Gap(GapKind.UNSURE_FORMULA, detail, after.name, example=str(name)))
        elif before is None or merged is None or alone or before.name != after.name:
            continue
        elif not holds_values(after.type, before.type) and merged.type != after.type:
            change = f"{before.type} became {after.type}, but the mirror has {merged.type}"
            detail = f"{change}: older values may differ from upstream"
            gaps.append(Gap(GapKind.UNSURE_CONVERSION, detail, after.name, example=str(name)))
    return gaps
