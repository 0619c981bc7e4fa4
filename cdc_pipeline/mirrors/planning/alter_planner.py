"""Plans ALTER TABLE: columns and keys, and the rows of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from cdc_pipeline.mysql.model.table import ColumnOrigin, Default, TableName, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type


class AlterPlanner:
    """Plans the clauses of ALTER TABLE except RENAME TO."""

    def __init__(self, draft: PlanDraft) -> None:
        self._draft = draft

    def alter(self, name: TableName, clauses: tuple[ddl.Clause, ...], statement: Statement) -> None:
        if self._draft.state(name) is None:
            self._draft.flush_rows(name)
        if self._draft.state(name) is None:
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
            self._draft.flush_rows(name)
            current = self._draft.state(name)
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
        remaining = {origin.before.name for origin in origins if origin.before is not None}
        dropped = [column.name for column in state.schema.columns if column.name not in remaining]
        kept: tuple[tuple[str, str], ...] = ()
        if self._draft.settings.policy.action_for(state.name) == KEEP:
            changed, kept = with_kept(changed, dropped, statement.event)
        changed = with_conversion_gaps(
            with_renamed_gaps(changed, names_after(dropped, origins)), state, origins, self._draft.time_zone
        )
        changed = self._draft.change_columns(state, changed, origins, statement.event, kept)
        statement.record(f"altered {state.name}", changed)
        if kept:
            statement.note(f"kept the dropped columns as {', '.join(new for _, new in kept)}")

    # ---- rows of partitions: upstream sends no messages for them

    def _change_partition_rows(self, name: TableName, clause: ddl.Clause, statement: Statement) -> None:
        if not isinstance(clause, ddl.PartitionRowsClause):
            return
        self._draft.flush_rows(name)
        state = self._draft.state(name)
        assert state is not None
        try:
            match clause:
                case ddl.ExchangePartition():
                    self._exchange(state, clause, statement)
                case ddl.TruncatePartition(names=()):
                    self._draft.steps.append(TruncateMirror(state))
                    self._draft.truncate(state)
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
        self._draft.steps.append(DeleteRows(state, rows, clause.description()))
        statement.record(f"deleted the rows of these partitions of {state.name}", state)

    def _exchange(self, state: MirrorState, clause: ddl.ExchangePartition, statement: Statement) -> None:
        self._draft.flush_rows(clause.table)
        other = self._draft.state(clause.table)
        if other is None:
            raise PartitionError(f"{clause.table} has no mirror")
        columns = _same_columns(state.schema, other.schema)
        if {(name, dict(state.masks).get(name)) for name, _ in columns} != {
            (name, dict(other.masks).get(theirs)) for name, theirs in columns
        }:
            raise PartitionError("the two tables mask different columns")
        rows = rows_of_partitions(state.schema, (clause.name,), self._draft.time_zone, tidb=_is_tidb(statement.event))
        self._draft.steps.append(ExchangeRows(state, other, columns, rows, clause.validated, clause.description()))
        for mirror in (state, other):
            self._draft.move_rows_in(mirror)
        # the gaps of the rows move with them
        self._draft.add_gaps(state.name, *other.gaps)
        self._draft.add_gaps(other.name, *state.gaps)
        statement.record(f"exchanged the rows of a partition of {state.name} with those of {other.name}", state, other)


def with_kept(
    state: MirrorState, dropped: Iterable[str], event: DdlEvent
) -> tuple[MirrorState, tuple[tuple[str, str], ...]]:
    """The state of a mirror that keeps dropped columns (`ddl_policy: keep`), and (old name, kept name) per column."""
    kept = tuple((column, f"{column}__dropped_{event.ddl_id}") for column in dropped)
    return replace(state, kept_columns=(*state.kept_columns, *(new for _, new in kept))), kept


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


def names_after(dropped: Iterable[str], origins: Iterable[ColumnOrigin]) -> dict[str, str | None]:
    """Old name → new name of renamed columns, and → None of dropped ones (the argument of `gaps.gaps_after_alter`)."""
    renamed: dict[str, str | None] = {
        origin.before.name: origin.after.name
        for origin in origins
        if origin.before is not None and origin.before.name != origin.after.name
    }
    return {**dict.fromkeys(dropped), **renamed}


def with_renamed_gaps(state: MirrorState, names: Mapping[str, str | None]) -> MirrorState:
    """The state with its gaps under the new column names (`names_after`).

    Removes the gaps of dropped columns and of columns whose type is now known.
    """
    return replace(state, gaps=replace_type_gaps(gaps_after_alter(state.gaps, names), state.schema.columns))


def with_conversion_gaps(
    state: MirrorState, before: MirrorState, origins: tuple[ColumnOrigin, ...], time_zone: str
) -> MirrorState:
    """The state with gaps for type changes after which values may differ from upstream, whatever the values are."""
    for origin in origins:
        if origin.before is None or origin.before.name in dict(before.masks):
            continue
        if reason := column_change_doubt(origin.before, origin.after, before.schema, time_zone):
            state = state.with_gaps(Gap(GapKind.UNSURE_CONVERSION, reason, origin.after.name))
    return state
