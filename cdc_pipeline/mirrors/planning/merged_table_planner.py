"""Plans statements about one source table of a merged mirror: its rows, and the columns that it shares with others.

A mirror has each column that one of its source tables has; rows of a table without the column have NULL in it. So an ALTER
TABLE that is rolled out table by table changes the rows of each table as upstream does, and the mirror's columns with the
first or the last table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from typing_extensions import assert_never

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.masks import Mask, stale_hash_gaps
from cdc_pipeline.mirrors.model.source_tables import SourceTable, rows_of_source, source_rows
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import ChangeSourceRows, DeleteRows
from cdc_pipeline.mirrors.planning import alter_planner
from cdc_pipeline.mirrors.planning.merged_definitions import (
    added_again,
    empty_column,
    inherited_masks,
    moved_columns,
    renamed_in_mirror,
    unsure_values,
    with_sources,
)
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.statement import Statement
from cdc_pipeline.mirrors.planning.table_planner import TablePlanner
from cdc_pipeline.mirrors.settings.ddl_policy import KEEP
from cdc_pipeline.mysql.ddl.evolution import altered, column_origins, row_shape
from cdc_pipeline.mysql.expressions.partition_rows import PartitionError
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.schema_changes import SchemaConflictError
from cdc_pipeline.mysql.model.table import ColumnOrigin, TableName, TableSchema, origins_by_name


class MergedTablePlanner:
    """Plans one statement about a source table of a merged mirror."""

    def __init__(self, draft: PlanDraft, tables: TablePlanner) -> None:
        self._draft = draft
        self._tables = tables

    def plan(self, change: ddl.OfSourceTable, statement: Statement) -> None:
        mirror, name, inner = change.name, change.source_table, change.change
        state = self._draft.flush_rows(mirror)
        source = None if state is None else state.source_table(name)
        match inner:
            case ddl.CreateTable():
                self._create(mirror, inner, statement)
                return
            case ddl.CreateTableLike():
                self._create_like(mirror, inner, statement)
                return
            case ddl.NotSupported():
                self._refuse_table(mirror, name, inner, statement)
                return
        if state is None or source is None:
            statement.note(f"{name} has no rows in {mirror} yet")
            return
        match inner:
            case ddl.AlterTable():
                self._alter(state, source, inner.clauses, statement)
            case ddl.TruncateTable():
                self._change_rows(DeleteRows(state, source_rows(name), f"TRUNCATE of {name}"))
                statement.record(f"deleted the rows of {name} in {mirror}", state)
            case ddl.DropTable():
                self._drop(state, source, statement)
            case ddl.RenameTable():
                self._rename(state, source, inner.new_name, statement)
            case _:
                assert_never(inner)

    # ---- CREATE

    def _create(self, mirror: TableName, change: ddl.CreateTable, statement: Statement) -> None:
        name = change.name
        self._draft.require_same_table(mirror)
        state, source = self._draft.state(mirror), SourceTable(name, change.schema)
        created = (source,) if source.schema.columns else ()
        known = None if state is None else state.source_table(name)
        gaps = self._tables.gaps_of_start(change, statement.event) if known is None else change.gaps
        if state is None:
            new = self._draft.create(with_sources(statement.new_mirror(mirror, merged=True), created).with_gaps(*gaps))
            statement.record(f"created {mirror} for the rows of {name}", new)
            return
        if known is not None and change.if_not_exists:
            statement.note(f"{name} exists already")
            return
        if known is not None:
            self._change_rows(DeleteRows(state, source_rows(name), f"CREATE of {name}"))
            statement.note(f"deleted the former rows of {name}: the stream has no DROP or RENAME of it")
        others = tuple(other for other in state.source_tables or () if other.name != name)
        changed = self._change_definitions(state, (*others, *created), statement.event).with_gaps(*gaps)
        self._draft.add_gaps(mirror, *gaps)
        statement.record(f"{name} is merged into {mirror}", changed)

    def _create_like(self, mirror: TableName, change: ddl.CreateTableLike, statement: Statement) -> None:
        state, name = self._draft.state(mirror), change.name
        like = None if state is None else state.source_table(change.source)
        if like is None or like.inferred:
            reason = f"CREATE TABLE LIKE {change.source}, whose definition is unknown"
            self._refuse_table(mirror, name, ddl.NotSupported(reason, name, creates=True), statement)
        else:
            self._create(mirror, ddl.CreateTable(name, like.schema, change.if_not_exists), statement)

    def _refuse_table(self, mirror: TableName, name: TableName, change: ddl.NotSupported, statement: Statement) -> None:
        """Refuses a statement. Infers the table's columns from its rows until another statement defines them."""
        if change.creates and self._draft.state(mirror) is None:
            self._draft.create(statement.new_mirror(mirror, merged=True))
        statement.refuse(mirror, f"{name}: {change.reason}")
        state = self._draft.state(mirror)
        source = None if state is None else state.source_table(name)
        if state is not None and source is not None and not source.inferred:
            sources = tuple(replace(one, inferred=one.inferred or one == source) for one in state.source_tables or ())
            self._draft.record_state(replace(state, inferred=True, source_tables=sources))

    # ---- DROP, RENAME

    def _drop(self, state: MirrorState, source: SourceTable, statement: Statement) -> None:
        others = tuple(other for other in state.source_tables or () if other != source)
        if not others:
            statement.note(f"{source.name} was the last table of {state.name}")
            self._tables.drop(state.name, statement)
            return
        if self._draft.settings.policy.action_for(state.name) == KEEP:
            kept_name = replace(source.name, table=f"{source.name.table}__dropped_{statement.event.ddl_id}")
            self._change_rows(ChangeSourceRows(state, source.name, renamed=kept_name))
            effect = f"kept the rows of {source.name} in {state.name} under the name {kept_name}"
        else:
            self._change_rows(DeleteRows(state, source_rows(source.name), f"DROP of {source.name}"))
            effect = f"deleted the rows of {source.name} in {state.name}"
        statement.record(effect, self._change_definitions(state, others, statement.event))

    def _rename(self, state: MirrorState, source: SourceTable, new_name: TableName, statement: Statement) -> None:
        if state.source_table(new_name) is not None:
            statement.refuse(state.name, f"RENAME of {source.name} to {new_name}: {new_name} exists")
            return
        self._change_rows(ChangeSourceRows(state, source.name, renamed=new_name))
        # the mirror may keep deleted rows of a former table of that name, with the same keys
        soft_key = () if state.has_soft_delete else None
        renamed = replace(
            state,
            source_tables=tuple(
                replace(one, name=new_name) if one == source else one for one in state.source_tables or ()
            ),
            soft_delete_key=soft_key,
        )
        self._draft.record_state(renamed)
        statement.record(f"renamed the rows of {source.name} in {state.name} to {new_name}", renamed)

    # ---- ALTER

    def _alter(
        self, state: MirrorState, source: SourceTable, clauses: tuple[ddl.Clause, ...], statement: Statement
    ) -> None:
        for clause in clauses:
            self._delete_partitions(state, source, clause, statement)
        refused = [clause for clause in clauses if isinstance(clause, ddl.NotSupportedClause)]
        self._alter_definition(source, state.name, tuple(one for one in clauses if one not in refused), statement)
        for clause in refused:
            statement.refuse(state.name, f"{source.name}: {clause.what}")

    def _alter_definition(
        self, source: SourceTable, mirror: TableName, clauses: tuple[ddl.Clause, ...], statement: Statement
    ) -> None:
        state = self._draft.state(mirror)
        assert state is not None
        try:
            schema = altered(source.schema, clauses)
        except SchemaConflictError as error:
            reason = f"ALTER TABLE does not fit the known columns of {source.name}: {error}"
            statement.refuse(mirror, reason)
            return
        origins = column_origins(source.schema, schema, clauses)
        if schema == source.schema and not any(origin.is_moved for origin in origins):
            if clauses and not statement.outcome.effects:
                statement.note(f"{source.name}: changes neither columns nor rows")
            return
        others = [other for other in state.source_tables or () if other.name != source.name]
        # first, so that its definition sets the order of the columns
        sources = (replace(source, schema=schema), *others)
        dropped = [column.name for column in source.schema.columns if schema.find(column.name) is None]
        shared = [name for name in dropped if any(other.schema.find(name) for other in others)]
        gaps = unsure_values(source.name, origins, with_sources(state, sources).schema, alone=not others)
        if self._draft.settings.policy.action_for(mirror) == KEEP:
            detail = "rows whose table dropped it keep their values (ddl_policy)"
            gaps += [Gap(GapKind.TABLES_DIFFER, detail, name, example=str(source.name)) for name in shared]
            shared = []
        cleared = [*shared, *added_again(source.schema, origins)]
        changed = self._change_definitions(state, sources, statement.event, moved_columns(origins), cleared)
        marked = changed.with_gaps(*gaps)
        if marked != changed:
            self._draft.record_state(marked)
        statement.record(f"altered {source.name} in {mirror}", marked)

    def _delete_partitions(
        self, state: MirrorState, source: SourceTable, clause: ddl.Clause, statement: Statement
    ) -> None:
        if not isinstance(clause, (ddl.TruncatePartition, ddl.DropPartition)):
            return
        # with the column types of the mirror
        columns = tuple(state.schema.find(column.name) or column for column in source.schema.columns)
        try:
            rows = alter_planner.rows_to_delete(
                source.schema.with_columns(columns), clause, statement.event, self._draft.time_zone
            )
        except PartitionError as error:
            statement.refuse(state.name, f"{source.name}: {clause.description()}: {error}")
            return
        what = f"{clause.description()} of {source.name}"
        self._change_rows(DeleteRows(state, rows_of_source(source.name, rows), what))
        statement.record(f"deleted the rows of these partitions of {source.name} in {state.name}", state)

    # ---- rows and definitions

    def _change_rows(self, step: DeleteRows | ChangeSourceRows) -> None:
        if not self._draft.is_empty(step.state):
            self._draft.add(step)

    def _change_definitions(
        self,
        before: MirrorState,
        sources: Sequence[SourceTable],
        event: DdlEvent,
        moved: Sequence[ColumnOrigin] = (),
        cleared: Sequence[str] = (),
    ) -> MirrorState:
        """Changes the mirror to the merged definition of `sources`. Returns its state.

        Adds new columns, changes the rows of the first source table, then changes the columns of the mirror.

        moved: columns that get values in the rows of the first source table.
        cleared: columns that become NULL in them.
        """
        target, current = with_sources(before, sources), before
        inherited = inherited_masks(current, moved)
        lacks_columns = any(current.schema.find(column.name) is None for column in target.schema.columns)
        if lacks_columns or inherited.keys() - dict(current.masks):
            current = self._add_columns(current, target.schema, inherited)
        if moved or cleared:
            name, time, is_start = sources[0].name, event.es, event.is_start
            before = before.with_gaps(*stale_hash_gaps(renamed_in_mirror(current, moved), dict(current.masks)))
            self._change_rows(
                ChangeSourceRows(current, name, tuple(moved), tuple(cleared), commit_ms=time, is_start=is_start)
            )
        target = with_sources(replace(current, gaps=before.gaps), sources)
        if target == current:
            return current
        if row_shape(target.schema) == row_shape(current.schema):
            self._draft.record_state(target)
            return target
        return self._change_columns(current, target, event)

    def _add_columns(self, current: MirrorState, target: TableSchema, inherited: Mapping[str, Mask]) -> MirrorState:
        """Adds the columns of `target` that the mirror lacks, empty, and the masks of columns that get masked values."""
        kept = [current.schema.find(column.name) or empty_column(column) for column in target.columns]
        names = {column.name for column in kept}
        columns = (*kept, *(column for column in current.schema.columns if column.name not in names))
        wider = replace(current, schema=current.schema.with_columns(columns))
        return self._draft.change_columns(
            current, wider, origins_by_name(current.schema, columns), inherited_masks=inherited
        )

    def _change_columns(self, current: MirrorState, target: MirrorState, event: DdlEvent) -> MirrorState:
        origins = origins_by_name(current.schema, target.schema.columns)
        # a column that all source tables generate by the same expression is recomputed
        recomputed = [
            origin.after.name
            for origin in origins
            if origin.before is not None and origin.after.generated is not None and origin.before.generated is None
        ]
        changed, _ = alter_planner.change_definition(self._draft, current, target, origins, event, recomputed)
        return changed
