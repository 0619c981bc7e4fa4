"""ALTER TABLE as steps: columns and keys, and the rows that go with partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.gaps import Gap, GapKind, carried
from cdc_pipeline.mirrors.model.steps import DeleteRows, ExchangeRows, TruncateMirror
from cdc_pipeline.mirrors.planning.outcomes import done, refuse
from cdc_pipeline.mirrors.settings.ddl_policy import KEEP
from cdc_pipeline.mysql.ddl.evolution import SchemaConflictError, altered, shape
from cdc_pipeline.mysql.ddl.origins import column_origins
from cdc_pipeline.mysql.expressions.conversions import unsure_change, with_unclear_types
from cdc_pipeline.mysql.expressions.partition_rows import PartitionError, rows_below, rows_of_partitions
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    ChangeColumn,
    DropColumn,
    DropPartition,
    ExchangePartition,
    FirstPartition,
    NotSupportedClause,
    PartitionRowsClause,
    RenameColumn,
    TruncatePartition,
)
from cdc_pipeline.mysql.model.table import ColumnOrigin
from cdc_pipeline.mysql.types.spark_types import spark_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
    from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
    from cdc_pipeline.mysql.model.schema_changes import Clause
    from cdc_pipeline.mysql.model.table import TableName, TableSchema


class AlterPlanner:
    """Plans the clauses of ALTER TABLE, but for RENAME TO."""

    def __init__(self, draft: PlanDraft, policy: DdlPolicy) -> None:
        self._draft = draft
        self._policy = policy

    def alter(self, name: TableName, clauses: tuple[Clause, ...], event: DdlEvent, outcome: DdlOutcome) -> None:
        if self._draft.state(name) is None:
            self._draft.flush_rows(name)
        if self._draft.state(name) is None:
            outcome.effects.append(f"{name} has no mirror yet; its first rows will show its columns")
            return
        for clause in clauses:
            self._change_rows(name, clause, event, outcome)
        refused = [clause for clause in clauses if isinstance(clause, NotSupportedClause)]
        self._alter_definition(name, tuple(clause for clause in clauses if clause not in refused), event, outcome)
        for clause in refused:
            refuse(self._draft, name, clause.what, event, outcome)

    # ---- columns and keys

    def _alter_definition(
        self, name: TableName, clauses: tuple[Clause, ...], event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        state = self._draft.state(name)
        assert state is not None
        told = self._without_anticipated(state, clauses, event)
        try:
            schema = altered(told.schema, clauses)
        except SchemaConflictError as error:
            refuse(self._draft, name, f"ALTER TABLE does not fit the known columns: {error}", event, outcome)
            return
        changed = replace(told, schema=schema)
        if shape(schema) != shape(state.schema) or told is not state:
            self._draft.flush_rows(name)
            current = self._draft.state(name)
            assert current is not None
            if current is not state:  # rows have widened it meanwhile: fold the clauses over what it is now
                self._alter_definition(name, clauses, event, outcome)
                return
            # with the default of an added column that has the name of a masked one that goes
            self._change_columns(state, told, replace(changed, schema=schema, masks=()), clauses, event, outcome)
        elif schema != state.schema:
            self._draft.record_state(changed)
            done(outcome, f"noted the new definition of {name}; rows are as they were", changed)
        elif clauses and not outcome.effects:
            outcome.effects.append(f"{name}: changes neither columns nor rows")

    def _without_anticipated(self, state: MirrorState, clauses: tuple[Clause, ...], event: DdlEvent) -> MirrorState:
        """The state without the columns that rows had before the statement came which gives them to the table. Those rows
        come again after it (`late_statements`), so that the columns begin anew."""
        if event.exact_ts or not self._draft.key(state):
            return state
        untold = {gap.column for gap in state.gaps if gap.kind is GapKind.UNTOLD_COLUMN}
        given = given_columns(clauses)
        early = [
            column.name
            for column in state.schema.columns
            if column.name.casefold() in given and (state.inferred or column.name in untold)
        ]
        if not early:
            return state
        columns = tuple(column for column in state.schema.columns if column.name not in early)
        gaps = carried(state.gaps, dict.fromkeys(early))
        return replace(state, schema=state.schema.with_columns(columns), gaps=gaps)

    def _change_columns(
        self,
        state: MirrorState,
        told: MirrorState,
        changed: MirrorState,
        clauses: tuple[Clause, ...],
        event: DdlEvent,
        outcome: DdlOutcome,
    ) -> None:
        """`told` is the state without what rows have anticipated."""
        origins = altered_origins(told.schema, changed.schema, clauses)
        left = {origin.before.name for origin in origins if origin.before is not None}
        dropped = [column.name for column in told.schema.columns if column.name not in left]
        kept: tuple[tuple[str, str], ...] = ()
        if self._policy.of(state.name) == KEEP:
            changed, kept = with_kept(changed, dropped, event)
        changed = with_known_gaps(healed(changed, gap_columns(dropped, origins)), state, origins, self._draft.time_zone)
        changed = self._draft.change_columns(state, changed, origins, event.commit_ms, kept)
        done(outcome, f"altered {state.name}", changed)
        if kept:
            outcome.effects.append(f"kept what was dropped as {', '.join(new for _, new in kept)}")

    # ---- rows of partitions, which no message speaks of

    def _change_rows(self, name: TableName, clause: Clause, event: DdlEvent, outcome: DdlOutcome) -> None:
        if not isinstance(clause, PartitionRowsClause):
            return
        self._draft.flush_rows(name)
        state = self._draft.state(name)
        assert state is not None
        try:
            match clause:
                case ExchangePartition():
                    self._exchange(state, clause, event, outcome)
                case TruncatePartition(names=()):
                    self._draft.steps.append(TruncateMirror(state, event.mark))
                    self._draft.truncate(state)
                    done(outcome, f"emptied {name}", state)
                case TruncatePartition() | DropPartition() | FirstPartition():
                    self._delete(state, clause, event, outcome)
                case _:
                    assert_never(clause)
        except PartitionError as error:
            reason = f"{clause.description()}: {error}"
            refuse(self._draft, name, reason, event, outcome)
            if isinstance(clause, ExchangePartition):
                refuse(self._draft, clause.table, reason, event, outcome)

    def _delete(
        self,
        state: MirrorState,
        clause: TruncatePartition | DropPartition | FirstPartition,
        event: DdlEvent,
        outcome: DdlOutcome,
    ) -> None:
        rows = rows_emptied(state.schema, clause, event, self._draft.time_zone)
        self._draft.steps.append(DeleteRows(state, rows, clause.description()))
        done(outcome, f"took the rows of {state.name} away that lay in the partitions", state)

    def _exchange(self, state: MirrorState, clause: ExchangePartition, event: DdlEvent, outcome: DdlOutcome) -> None:
        self._draft.flush_rows(clause.table)
        other = self._draft.state(clause.table)
        if other is None:
            raise PartitionError(f"{clause.table} has no mirror")
        columns = _same_columns(state.schema, other.schema)
        if {(name, dict(state.masks).get(name)) for name, _ in columns} != {
            (name, dict(other.masks).get(theirs)) for name, theirs in columns
        }:
            raise PartitionError("the two tables do not mask the same columns")
        rows = rows_of_partitions(state.schema, (clause.name,), self._draft.time_zone, tidb=_is_tidb(event))
        self._draft.steps.append(ExchangeRows(state, other, columns, rows, clause.validated, clause.description()))
        for mirror in (state, other):
            self._draft.mark_filled(mirror)
            self._draft.reset_soft_delete_key(mirror)
        # rows whose values are not sure have come along
        self._draft.add_gaps(state.name, *other.gaps)
        self._draft.add_gaps(other.name, *state.gaps)
        done(outcome, f"exchanged the rows of a partition of {state.name} with those of {other.name}", state, other)


def given_columns(clauses: Iterable[Clause]) -> set[str]:
    """The names that clauses give to columns, and that the table surely had not before; folded."""
    given, there = set(), set()
    for clause in clauses:
        if (isinstance(clause, AddColumn) and not clause.if_not_exists) or isinstance(clause, ChangeColumn):
            given.add(clause.column.name.casefold())
        elif isinstance(clause, RenameColumn):
            given.add(clause.new_name.casefold())
        if isinstance(clause, (DropColumn, ChangeColumn, RenameColumn)):
            there.add(clause.name.casefold())
    return given - there


def altered_origins(before: TableSchema, after: TableSchema, clauses: tuple[Clause, ...]) -> tuple[ColumnOrigin, ...]:
    """Where the columns come from of `after`, which the clauses have made of `before`."""
    return tuple(
        ColumnOrigin(column, None if source is None else before.find(source))
        for column, source in zip(after.columns, column_origins(before, clauses), strict=True)
    )


def with_kept(
    state: MirrorState, dropped: Iterable[str], event: DdlEvent
) -> tuple[MirrorState, tuple[tuple[str, str], ...]]:
    """The state of a mirror that keeps columns which upstream drops (`ddl_policy`), and the name that each had with the one
    that it is kept by."""
    kept = tuple((column, f"{column}__dropped_{event.mark}") for column in dropped)
    return replace(state, kept=(*state.kept, *(new for _, new in kept))), kept


def rows_emptied(
    schema: TableSchema, clause: TruncatePartition | DropPartition | FirstPartition, event: DdlEvent, time_zone: str
) -> SparkCondition:
    """The rows of the partitions that the clause empties or drops. Raises PartitionError where that cannot be told."""
    if isinstance(clause, FirstPartition):
        return rows_below(schema, clause.bound, time_zone)
    missing_ok = isinstance(clause, DropPartition) and clause.if_exists
    return rows_of_partitions(schema, clause.names, time_zone, missing_ok=missing_ok, tidb=_is_tidb(event))


def _is_tidb(event: DdlEvent) -> bool:
    """Whether the statement is TiDB's, which places some rows otherwise than MySQL."""
    return trait_of(event.dialect, Trait.FROM_TIDB)


def _same_columns(one: TableSchema, other: TableSchema) -> tuple[tuple[str, str], ...]:
    """The name of each column in both tables, which are equal but for partitions. Raises PartitionError otherwise."""
    pairs = [(column, other.find(column.name)) for column in one.columns]
    if len(one.columns) != len(other.columns) or any(
        found is None or spark_type(found.type) != spark_type(column.type) for column, found in pairs
    ):
        raise PartitionError("the two tables are not known to have the same columns")
    return tuple((column.name, found.name) for column, found in pairs if found is not None)


def gap_columns(gone: Iterable[str], origins: Iterable[ColumnOrigin]) -> dict[str, str | None]:
    """What `gaps.carried` is told: the columns that are gone, and those that have another name now."""
    renamed: dict[str, str | None] = {
        origin.before.name: origin.after.name
        for origin in origins
        if origin.before is not None and origin.before.name != origin.after.name
    }
    return {**dict.fromkeys(gone), **renamed}


def healed(state: MirrorState, now: Mapping[str, str | None]) -> MirrorState:
    """The state with its gaps under the names that columns have `now` (`gap_columns`), without those of columns that are
    gone, or whose type was not known and is now."""
    return replace(state, gaps=with_unclear_types(carried(state.gaps, now), state.schema.columns))


def with_known_gaps(
    state: MirrorState, before: MirrorState, origins: tuple[ColumnOrigin, ...], time_zone: str
) -> MirrorState:
    """The state, marked where a change of types alone tells that values may not be upstream's."""
    for origin in origins:
        if origin.before is None or origin.before.name in dict(before.masks):
            continue
        if reason := unsure_change(origin.before, origin.after, before.schema, time_zone):
            state = state.with_gaps(Gap(GapKind.UNSURE_CONVERSION, reason, origin.after.name))
    return state
