"""Plans ALTER TABLE: columns and keys, and the rows of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from typing_extensions import assert_never

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.gaps import Gap, GapKind, gaps_after_alter
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DeleteRows, ExchangeRows, TruncateMirror
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.statement import Statement
from cdc_pipeline.mirrors.settings.ddl_policy import KEEP
from cdc_pipeline.mysql.ddl.evolution import altered, column_origins, row_shape
from cdc_pipeline.mysql.expressions.conversions import column_change_doubt, replace_type_gaps
from cdc_pipeline.mysql.expressions.partition_rows import PartitionError, SparkCondition, rows_of_partitions
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.schema_changes import SchemaConflictError
from cdc_pipeline.mysql.model.table import ColumnOrigin, Default, TableName, TableSchema, names_after
from cdc_pipeline.mysql.types.spark_types import spark_type


class AlterPlanner:
    """Plans the clauses of ALTER TABLE except RENAME TO."""

    def __init__(self, draft: PlanDraft) -> None:
        self._draft = draft

    def alter(self, name: TableName, clauses: tuple[ddl.Clause, ...], statement: Statement) -> None:
        if self._draft.state(name) is None and self._draft.flush_rows(name) is None:
            statement.note(f"{name} has no mirror yet; its first rows will define its columns")
            for clause in clauses:
                if isinstance(clause, ddl.ExchangePartition) and self._draft.exists(clause.table):
                    reason = f"{clause.description()}: the rows of {name} are unknown"
                    statement.refuse(clause.table, reason)
            return
        for clause in clauses:
            self._change_partition_rows(name, clause, statement)
        refused = [clause for clause in clauses if isinstance(clause, ddl.NotSupportedClause)]
        self._alter_definition(name, tuple(clause for clause in clauses if clause not in refused), statement)
        for clause in refused:
            refuse = statement.refuse if clause.of_rows else statement.refuse_definition
            refuse(name, clause.what)

    # ---- columns and keys

    def _alter_definition(self, name: TableName, clauses: tuple[ddl.Clause, ...], statement: Statement) -> None:
        state = self._draft.state(name)
        assert state is not None
        try:
            schema = altered(state.schema, clauses)
        except SchemaConflictError as error:
            statement.refuse_definition(name, f"ALTER TABLE does not fit the known columns: {error}")
            return
        changed = replace(state, schema=schema)
        changes_columns = row_shape(schema) != row_shape(state.schema) or any(
            origin.is_moved or origin.loses_nulls for origin in column_origins(state.schema, schema, clauses)
        )
        if changes_columns or _defaults(schema) != _defaults(state.schema):
            # rows without a column have its default as of their time
            current = self._draft.flush_rows(name)
            assert current is not None
            if current is not state:  # the rows have widened it: apply the clauses to the widened schema
                self._alter_definition(name, clauses, statement)
                return
        if changes_columns:
            # without the old masks: an added column may have the name of a dropped, masked one, and needs its default
            self._change_columns(state, replace(changed, schema=schema, masks=()), clauses, statement)
        elif schema != state.schema:
            self._draft.record_state(changed)
            statement.record(f"recorded the new definition of {name}; rows are unchanged", changed)
        elif clauses and not statement.outcome.effects:
            statement.note(f"{name}: changes neither columns nor rows")

    def _change_columns(
        self, state: MirrorState, changed: MirrorState, clauses: tuple[ddl.Clause, ...], statement: Statement
    ) -> None:
        origins = column_origins(state.schema, changed.schema, clauses)
        changed, kept = change_definition(self._draft, state, changed, origins, statement.event)
        statement.record(f"altered {state.name}", changed)
        if kept:
            statement.note(f"kept the dropped columns as {', '.join(kept)}")

    # ---- rows of partitions: upstream sends no messages for them

    def _change_partition_rows(self, name: TableName, clause: ddl.Clause, statement: Statement) -> None:
        if not isinstance(clause, ddl.PartitionRowsClause):
            return
        state = self._draft.flush_rows(name)
        assert state is not None
        try:
            match clause:
                case ddl.ExchangePartition():
                    self._exchange(state, clause, statement)
                case ddl.TruncatePartition(names=()):
                    self._draft.add(TruncateMirror(state))
                    statement.record(f"truncated {name}", state)
                case ddl.TruncatePartition() | ddl.DropPartition():
                    self._delete_partitions(state, clause, statement)
                case _:
                    assert_never(clause)
        except PartitionError as error:
            reason = f"{clause.description()}: {error}"
            statement.refuse(name, reason)
            if isinstance(clause, ddl.ExchangePartition):
                statement.refuse(clause.table, reason)

    def _delete_partitions(
        self, state: MirrorState, clause: ddl.TruncatePartition | ddl.DropPartition, statement: Statement
    ) -> None:
        rows = rows_to_delete(state.schema, clause, statement.event, self._draft.time_zone)
        self._draft.add(DeleteRows(state, rows, clause.description()))
        statement.record(f"deleted the rows of these partitions of {state.name}", state)

    def _exchange(self, state: MirrorState, clause: ddl.ExchangePartition, statement: Statement) -> None:
        other = self._draft.flush_rows(clause.table)
        if other is None:
            raise PartitionError(f"{clause.table} has no mirror")
        columns = _same_columns(state.schema, other.schema)
        if {(name, dict(state.masks).get(name)) for name, _ in columns} != {
            (name, dict(other.masks).get(theirs)) for name, theirs in columns
        }:
            raise PartitionError("the two tables mask different columns")
        rows = rows_of_partitions(state.schema, (clause.name,), self._draft.time_zone, tidb=_is_tidb(statement.event))
        self._draft.add(ExchangeRows(state, other, columns, rows, clause.validated, clause.description()))
        for mirror in (state, other):
            if mirror.has_soft_delete:  # the keys may be those of deleted rows: the next rows make them unique
                self._draft.record_state(replace(mirror, soft_delete_key=()))
        # the gaps of the rows move with them
        self._draft.add_gaps(state.name, *other.gaps)
        self._draft.add_gaps(other.name, *state.gaps)
        statement.record(f"exchanged the rows of a partition of {state.name} with those of {other.name}", state, other)


def change_definition(
    draft: PlanDraft,
    before: MirrorState,
    after: MirrorState,
    origins: tuple[ColumnOrigin, ...],
    event: DdlEvent,
    recomputed: Iterable[str] = (),
) -> tuple[MirrorState, list[str]]:
    """Changes the columns of a mirror, and its gaps about columns. Returns its state, and the names under which it keeps
    dropped columns (`ddl_policy: keep`).

    Gaps of dropped and `recomputed` columns and of columns whose type is now known end. A type change after which values may
    differ from upstream, whatever the values are, has a gap.
    """
    names = names_after(before.schema, origins)
    kept: tuple[tuple[str, str], ...] = ()
    if draft.settings.policy.action_for(before.name) == KEEP:
        kept = tuple((name, f"{name}__dropped_{event.ddl_id}") for name, new in names.items() if new is None)
    shown = [name for _, name in kept]
    gaps = gaps_after_alter(after.gaps, {**names, **dict.fromkeys(recomputed)})
    after = replace(
        after,
        kept_columns=(*after.kept_columns, *shown),
        gaps=replace_type_gaps(gaps, after.schema.columns),
    )
    for origin in origins:
        if origin.before is None or origin.before.name in dict(before.masks):
            continue
        types = origin.before, origin.after
        if reason := column_change_doubt(*types, before.schema, draft.time_zone, inferred=before.inferred):
            after = after.with_gaps(Gap(GapKind.UNSURE_CONVERSION, reason, origin.after.name))
    return draft.change_columns(before, after, origins, event, kept), shown


def rows_to_delete(
    schema: TableSchema, clause: ddl.TruncatePartition | ddl.DropPartition, event: DdlEvent, time_zone: str
) -> SparkCondition:
    """The rows of the partitions that the clause truncates or drops. Raises PartitionError if they are unknown."""
    missing_ok = isinstance(clause, ddl.DropPartition) and clause.if_exists
    return rows_of_partitions(schema, clause.names, time_zone, missing_ok=missing_ok, tidb=_is_tidb(event))


def _defaults(schema: TableSchema) -> dict[str, Default | None]:
    return {column.name: column.default for column in schema.columns}


def _is_tidb(event: DdlEvent) -> bool:
    """Whether TiDB ran the statement: it assigns some rows to other partitions than MySQL."""
    return dialect_has_trait(event.dialect, Trait.FROM_TIDB)


def _same_columns(one: TableSchema, other: TableSchema) -> tuple[tuple[str, str], ...]:
    """(name in `one`, name in `other`) per column. Raises PartitionError if the columns differ."""
    pairs = [(column, other.find(column.name)) for column in one.columns]
    if len(one.columns) != len(other.columns) or any(
        found is None or spark_type(found.type) != spark_type(column.type) for column, found in pairs
    ):
        raise PartitionError("the columns of the two tables differ")
    return tuple((column.name, found.name) for column, found in pairs if found is not None)
