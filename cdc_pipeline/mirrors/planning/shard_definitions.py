"""What rows and statements tell of the tables of a merged mirror, as the mirror's state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.merged_schema import merged_schema
from cdc_pipeline.mirrors.model.shards import SOURCE_NAMES, Shard, own_source_columns
from cdc_pipeline.mirrors.model.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.planning.inferred_schema import (
    first_commit_ts,
    inferred_schema,
    untold_columns_gaps,
    widened_schema,
)
from cdc_pipeline.mysql.expressions.conversions import with_unclear_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mysql.model.table import TableName, TableSchema

UNSEEN_TABLES = Gap(GapKind.UNSEEN_TABLES, f"of some of its tables {UNSEEN_START.detail}")
"""The gap of a merged mirror that has rows of tables of which no statement has told. The shard's `since` is known then."""


def with_shards(state: MirrorState, shards: Iterable[Shard]) -> MirrorState:
    """The merged mirror with these tables: its definition is what they have together. Raises DeclarationError where one has
    a column that has the name of one of the mirror's own."""
    found = _with_shared_definitions(shards)
    for shard in found:
        if own_source_columns(shard.schema.column_names):
            raise taken_names(shard.name)
    schema, gaps = merged_schema(found, state.schema)
    merged = replace(state, schema=schema, shards=found, inferred=any(shard.inferred for shard in found))
    return replace(merged, gaps=with_unclear_types(state.gaps, schema.columns)).with_gaps(*gaps)


def _with_shared_definitions(shards: Iterable[Shard]) -> tuple[Shard, ...]:
    """The shards, those of equal definitions with the very same: a thousand of them are then compared at once."""
    found: list[Shard] = []
    definitions: list[TableSchema] = []
    for shard in shards:
        same = next((one for one in definitions if one is shard.schema or one == shard.schema), None)
        if same is None:
            definitions.append(shard.schema)
        found.append(shard if same is None or same is shard.schema else replace(shard, schema=same))
    return tuple(found)


def taken_names(table: TableName) -> DeclarationError:
    """What is raised where a table has a column of a name that merging needs."""
    return DeclarationError(
        f"routes: {table} has a column {' or '.join(SOURCE_NAMES)} itself, and cannot be merged with others: rows of merged "
        "tables name theirs in columns of these names. Nothing was touched. Give it a route without merge, or exclude it"
    )


def with_rows(state: MirrorState, groups: Sequence[RowGroup]) -> MirrorState:
    """The merged mirror with the columns that these rows of it have and no statement has told of."""
    by_source: dict[TableName, list[RowGroup]] = {}
    for group in groups:
        assert group.source is not None
        by_source.setdefault(group.source, []).append(_as_upstream(group))
    shards = list(state.shards or ())
    gaps: list[Gap] = []
    for source, own in by_source.items():
        place = next((place for place, shard in enumerate(shards) if shard.name == source), None)
        if place is None:
            shards.append(Shard(source, inferred_schema(own), inferred=True, since=first_commit_ts(own)))
            gaps.append(UNSEEN_TABLES)
        else:
            shards[place], told = _widened(shards[place], own)
            gaps += told
    if tuple(shards) == state.shards:
        return state
    return with_shards(state, shards).with_gaps(*gaps)


def with_lacking_columns(group: RowGroup, state: MirrorState) -> RowGroup:
    """The group as if its rows had said NULL of the mirror's columns that their table does not have: that is known of them,
    and leaves no gap."""
    shard = None if group.source is None else state.shard(group.source)
    if shard is None:
        return group
    lacking = (name for name in state.schema.column_names if name not in SOURCE_NAMES and not shard.schema.find(name))
    return replace(group, columns=(*group.columns, *lacking))


def _as_upstream(group: RowGroup) -> RowGroup:
    """The group without the columns that merging has added."""
    columns, key = (
        tuple(name for name in names if name not in SOURCE_NAMES) for names in (group.columns, group.key_names)
    )
    return replace(group, columns=columns, key_names=key)


def _widened(shard: Shard, groups: Sequence[RowGroup]) -> tuple[Shard, list[Gap]]:
    """The table as these rows show it, and the gaps that this leaves."""
    schema, added = widened_schema(shard.schema, groups, inferred=shard.inferred)
    widened = replace(shard, schema=schema)
    return widened, [] if shard.inferred else untold_columns_gaps(added, str(shard.name))
