"""What a definition shows of rows that change without row events: its storage engine, and foreign keys that change rows.

TiDB sends all changes and has one engine. A mirror knows which others its changes may change (`MirrorState.referencing`), so
that a cut reads no other mirror (`execution.cascades`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import cascade_gap
from cdc_pipeline.mirrors.model.steps import DropMirror
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mysql.model.engines import UNLOGGED
from cdc_pipeline.mysql.model.table import TableName


def add_definition_gaps(draft: PlanDraft, event: DdlEvent) -> None:
    """Adds the gaps of mirrors because of their definition after the statement."""
    for state in filter(None, map(draft.state, sorted(_names(event)))):
        merged = [source.schema for source in state.source_tables or ()]
        engines = (schema.engine for schema in (state.schema, *merged) if schema.engine)
        gaps = [Gap(GapKind.UNLOGGED_ENGINE, f"ENGINE={engine.upper()}: {UNLOGGED[engine]}") for engine in engines]
        gaps += (cascade_gap(key, "the table is merged") for schema in merged for key in schema.foreign_keys)
        draft.add_gaps(state.name, *gaps)


def link_foreign_keys(draft: PlanDraft, events: Iterable[DdlEvent]) -> None:
    """Notes mirrors of the events in those of the tables that their foreign keys reference. Without the latter nothing shows
    when its rows change theirs: a gap."""
    names = {name for event in events for name in _names(event)}
    ended = (step.state for step in draft.steps if isinstance(step, DropMirror) or step.state.retired)
    names |= {name for state in ended for name, _ in state.referencing}
    selection = draft.settings.selection
    for state in filter(None, map(draft.state, sorted(names))):
        for key in state.schema.foreign_keys:
            table = replace(key.table, database=key.table.database or state.upstream_tables[0].database)
            key = replace(key, table=table)
            parent = draft.state(selection.mirror_key(table)) if selection.includes(table) else None
            if parent is None:
                draft.add_gaps(state.name, cascade_gap(key, "the referenced table has no mirror"))
            elif (state.name, key) not in parent.referencing:
                draft.record_state(replace(parent, referencing=(*parent.referencing, (state.name, key))))


def _names(event: DdlEvent) -> set[TableName]:
    """The tables whose definition a binlog's statement may change; none if the statement, or the export that has it, comes
    from TiDB."""
    if dialect_has_trait(event.dialect, Trait.FROM_TIDB) or (event.is_baseline and event.exact_ts):
        return set()
    # a clause that keeps rows does not touch its table
    return {name for change in event.changes for name in (*change.names().touched, *change.names().read)}
