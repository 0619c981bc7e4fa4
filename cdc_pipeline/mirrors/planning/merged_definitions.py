"""The state of a merged mirror from the definitions and rows of its source tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.merged_schema import merged_schema
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES, SourceTable, conflicting_columns
from cdc_pipeline.mirrors.model.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.planning.inferred_schema import (
    inferred_schema,
    undeclared_column_gaps,
    widened_schema,
)
from cdc_pipeline.mysql.expressions.conversions import replace_type_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mysql.model.table import TableName, TableSchema

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
    schema, gaps = merged_schema(found, state.schema)
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
    sources = list(state.source_tables or ())
    gaps: list[Gap] = []
    for name, own in by_source.items():
        index = next((index for index, source in enumerate(sources) if source.name == name), None)
        if index is None:
            sources.append(SourceTable(name, inferred_schema(own), inferred=True))
            gaps.append(UNSEEN_TABLES)
        else:
            sources[index], column_gaps = _widened(sources[index], own)
            gaps += column_gaps
    if tuple(sources) == state.source_tables:
        return state
    return with_sources(state, sources).with_gaps(*gaps)


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


def _widened(source: SourceTable, groups: Sequence[RowGroup]) -> tuple[SourceTable, list[Gap]]:
    """The source table with the columns of its rows, and the gaps of undeclared columns."""
    schema, added = widened_schema(source.schema, groups, inferred=source.inferred)
    widened = replace(source, schema=schema)
    return widened, [] if source.inferred else undeclared_column_gaps(added, str(source.name))
