"""What statements about one table of a merged mirror become: its rows, and the columns that it has together with others.

A mirror has each column that one of its tables has; rows of a table that lacks it have NULL there. So a statement that is
rolled over the tables, one after another, does to the rows of each what upstream does, and to the mirror's columns what is
left when the last has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from cdc_pipeline.gaps import Gap, GapKind, of_other_kinds
from cdc_pipeline.mirrors.changes.late_ddl import comes_before
from cdc_pipeline.mirrors.model.shards import Shard, as_upstream, source_rows, those_of, with_shard
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import ChangeShardRows, DeleteRows
from cdc_pipeline.mirrors.planning.alter_planner import (
    altered_origins,
    gap_columns,
    healed,
    rows_emptied,
    with_kept,
    with_known_gaps,
)
from cdc_pipeline.mirrors.planning.outcomes import done, refuse
from cdc_pipeline.mirrors.planning.shard_columns import added_again, empty_column, moved_columns, unsure_values
from cdc_pipeline.mirrors.planning.shard_definitions import with_shards
from cdc_pipeline.mirrors.settings.ddl_policy import KEEP
from cdc_pipeline.mysql.ddl.evolution import SchemaConflictError, altered, shape
from cdc_pipeline.mysql.expressions.partition_rows import PartitionError
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    CreateTable,
    DropPartition,
    DropTable,
    FirstPartition,
    NotSupported,
    NotSupportedClause,
    RenameTable,
    TruncatePartition,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import TableSchema, origins_by_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.model.masks import Mask
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.planning.table_planner import TablePlanner
    from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
    from cdc_pipeline.mysql.model.schema_changes import Clause, OfShard
    from cdc_pipeline.mysql.model.table import ColumnOrigin, TableName


class ShardPlanner:
    """Plans one statement about a table that is merged with others."""

    def __init__(self, draft: PlanDraft, policy: DdlPolicy, tables: TablePlanner) -> None:
        self._draft = draft
        self._policy = policy
        self._tables = tables

    def plan(self, change: OfShard, event: DdlEvent, outcome: DdlOutcome) -> None:
        mirror, name, inner = change.name, change.shard, change.change
        self._draft.flush_rows(mirror)
        state = self._draft.state(mirror)
        shard = None if state is None else state.shard(name)
        match inner:
            case CreateTable():
                self._create(mirror, name, inner, event, outcome)
            case NotSupported():
                self._cannot_read(mirror, name, inner, event, outcome)
            case AlterTable() | TruncateTable() | DropTable() | RenameTable():
                if state is None or shard is None:
                    outcome.effects.append(f"{name} has no rows in {mirror} yet")
                else:
                    self._change(state, shard, inner, event, outcome)
            case _:
                assert_never(inner)

    def _change(
        self,
        state: MirrorState,
        shard: Shard,
        change: AlterTable | TruncateTable | DropTable | RenameTable,
        event: DdlEvent,
        outcome: DdlOutcome,
    ) -> None:
        """Of a table that the mirror knows."""
        match change:
            case AlterTable():
                self._alter(state, shard, change.clauses, event, outcome)
            case TruncateTable():
                self._change_rows(DeleteRows(state, source_rows(shard.name), f"TRUNCATE of {shard.name}"))
                done(outcome, f"took the rows of {shard.name} out of {state.name}", state)
            case DropTable():
                self._drop(state, shard, event, outcome)
            case RenameTable():
                self._rename(state, shard, change.new_name, event, outcome)
            case _:
                assert_never(change)

    # ---- CREATE

    def _create(
        self, mirror: TableName, name: TableName, change: CreateTable, event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        state, shard = self._draft.state(mirror), Shard(name, change.schema)
        if state is None:
            empty = MirrorState(mirror, f"{mirror}@{event.mark}", TableSchema(()), shards=())
            made = self._draft.create(with_shards(empty, (shard,)).with_gaps(*change.gaps))
            done(outcome, f"created {mirror} for the rows of {name}", made)
            return
        before, known = state, state.shard(name)
        words = f"{name} is merged into {mirror}"
        if known is not None and comes_before(event, known):
            # its rows came before the statement that made it: they are let in anew (`late_statements`)
            self._change_rows(DeleteRows(state, source_rows(name), f"CREATE of {name}"))
            if all(other.since is None for other in state.shards or () if other != known):
                before = replace(state, gaps=of_other_kinds(state.gaps, GapKind.UNSEEN_TABLES))
            words = f"defined {name}, of which rows had come before; they were let in anew"
        elif known is not None and change.if_not_exists:
            if not known.inferred or _folded_names(known.schema) != _folded_names(shard.schema):
                outcome.effects.append(f"{name} exists already")
                return
            shard = replace(shard, since=known.since)
            words = f"{name} exists already; its definition is known now"
        elif known is not None:
            self._change_rows(DeleteRows(state, source_rows(name), f"CREATE of {name}"))
            outcome.effects.append(f"the former rows of {name} were taken away: its end was not in the stream")
        others = tuple(other for other in state.shards or () if other.name != name)
        after = self._with_definitions(state, before, (*others, shard), (), (), event)
        if change.gaps:
            self._draft.add_gaps(mirror, *change.gaps)
        done(outcome, words, self._draft.state(mirror) or after)

    def _cannot_read(
        self, mirror: TableName, name: TableName, change: NotSupported, event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        """The table goes on by what its rows say of themselves, until a statement tells more."""
        if change.creates and self._draft.state(mirror) is None:
            self._draft.create(MirrorState(mirror, f"{mirror}@{event.mark}", TableSchema(()), inferred=True, shards=()))
        refuse(self._draft, mirror, f"{name}: {change.reason}", event, outcome)
        state = self._draft.state(mirror)
        shard = None if state is None else state.shard(name)
        if state is not None and shard is not None and not shard.inferred:
            shards = tuple(replace(one, inferred=one.inferred or one == shard) for one in state.shards or ())
            self._draft.record_state(replace(state, inferred=True, shards=shards))

    # ---- DROP, RENAME

    def _drop(self, state: MirrorState, shard: Shard, event: DdlEvent, outcome: DdlOutcome) -> None:
        others = tuple(other for other in state.shards or () if other != shard)
        if not others:
            outcome.effects.append(f"{shard.name} was the last of its tables")
            self._tables.drop(state.name, event, outcome)
            return
        if self._policy.of(state.name) == KEEP:
            aside = replace(shard.name, table=f"{shard.name.table}__dropped_{event.mark}")
            self._change_rows(ChangeShardRows(state, shard.name, renamed=aside))
            words = f"the rows of {shard.name} stay in {state.name}, as those of {aside}"
        else:
            self._change_rows(DeleteRows(state, source_rows(shard.name), f"DROP of {shard.name}"))
            words = f"took the rows of {shard.name} out of {state.name}"
        done(outcome, words, self._with_definitions(state, state, others, (), (), event))

    def _rename(
        self, state: MirrorState, shard: Shard, new_name: TableName, event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        if state.shard(new_name) is not None:
            refuse(self._draft, state.name, f"RENAME of {shard.name} to {new_name}, which exists", event, outcome)
            return
        self._change_rows(ChangeShardRows(state, shard.name, renamed=new_name))
        # the name may have been another table's before, of which the mirror may keep deleted rows with the same keys
        soft_key = () if state.keeps_deleted else None
        renamed = replace(state, shards=as_upstream(state.shards or (), shard.name, new_name), soft_key=soft_key)
        self._draft.record_state(renamed)
        done(outcome, f"the rows of {shard.name} in {state.name} are those of {new_name}", renamed)

    # ---- ALTER

    def _alter(
        self, state: MirrorState, shard: Shard, clauses: tuple[Clause, ...], event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        for clause in clauses:
            self._empty_partitions(state, shard, clause, event, outcome)
        refused = [clause for clause in clauses if isinstance(clause, NotSupportedClause)]
        self._alter_definition(shard, state.name, tuple(one for one in clauses if one not in refused), event, outcome)
        for clause in refused:
            refuse(self._draft, state.name, f"{shard.name}: {clause.what}", event, outcome)

    def _alter_definition(
        self, shard: Shard, mirror: TableName, clauses: tuple[Clause, ...], event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        state = self._draft.state(mirror)
        assert state is not None
        try:
            schema = altered(shard.schema, clauses)
        except SchemaConflictError as error:
            reason = f"ALTER TABLE does not fit the known columns of {shard.name}: {error}"
            refuse(self._draft, mirror, reason, event, outcome)
            return
        if schema == shard.schema:
            if clauses and not outcome.effects:
                outcome.effects.append(f"{shard.name}: changes neither columns nor rows")
            return
        origins = altered_origins(shard.schema, schema, clauses)
        others = [other for other in state.shards or () if other.name != shard.name]
        shards = with_shard(state.shards or (), replace(shard, schema=schema))
        gone = [column.name for column in shard.schema.columns if schema.find(column.name) is None]
        shared = [name for name in gone if any(other.schema.find(name) for other in others)]
        gaps = unsure_values(shard.name, origins, with_shards(state, shards).schema, alone=not others)
        if self._policy.of(mirror) == KEEP:
            words = "rows keep it (ddl_policy) whose table has dropped it"
            gaps += [Gap(GapKind.TABLES_DIFFER, words, name, example=str(shard.name)) for name in shared]
            shared = []
        cleared = [*shared, *added_again(shard.schema, origins)]
        found = self._with_definitions(state, state, shards, moved_columns(origins), cleared, event)
        marked = found.with_gaps(*gaps)
        if marked != found:
            self._draft.record_state(marked)
        done(outcome, f"altered {shard.name} in {mirror}", marked)

    def _empty_partitions(
        self, state: MirrorState, shard: Shard, clause: Clause, event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        if not isinstance(clause, (TruncatePartition, DropPartition, FirstPartition)):
            return
        # by the types that the columns have in the mirror
        columns = tuple(state.schema.find(column.name) or column for column in shard.schema.columns)
        try:
            rows = rows_emptied(shard.schema.with_columns(columns), clause, event, self._draft.time_zone)
        except PartitionError as error:
            refuse(self._draft, state.name, f"{shard.name}: {clause.description()}: {error}", event, outcome)
            return
        what = f"{clause.description()} of {shard.name}"
        self._change_rows(DeleteRows(state, those_of(shard.name, rows), what))
        done(outcome, f"took the rows of {shard.name} out of {state.name} that lay in the partitions", state)

    # ---- what all of them come to

    def _change_rows(self, step: DeleteRows | ChangeShardRows) -> None:
        if not self._draft.is_empty(step.state):
            self._draft.steps.append(step)

    def _with_definitions(
        self,
        mirror: MirrorState,
        before: MirrorState,
        shards: Sequence[Shard],
        moved: Sequence[ColumnOrigin],
        cleared: Sequence[str],
        event: DdlEvent,
    ) -> MirrorState:
        """The mirror of these tables: first with the columns that are new, empty, then with the values that rows of the
        first table get, then as all of them have it. `before` is the `mirror` with other gaps."""
        target = with_shards(before, shards)
        now = mirror
        if any(now.schema.find(column.name) is None for column in target.schema.columns):
            now = self._with_new_columns(now, target.schema, moved)
        if moved or cleared:
            rows = ChangeShardRows(now, shards[0].name, tuple(moved), tuple(cleared), commit_ms=event.commit_ms)
            self._change_rows(rows)
        target = with_shards(replace(now, gaps=before.gaps), shards)
        if target == now:
            return now
        if shape(target.schema) == shape(now.schema):
            self._draft.record_state(target)
            return target
        return self._with_columns(now, target, event)

    def _with_new_columns(self, now: MirrorState, target: TableSchema, moved: Sequence[ColumnOrigin]) -> MirrorState:
        """The mirror with empty columns where those will be that it does not have yet; what is masked stays so under its
        new name."""
        kept = [now.schema.find(column.name) or empty_column(column) for column in target.columns]
        names = {column.name for column in kept}
        columns = (*kept, *(column for column in now.schema.columns if column.name not in names))
        masks = dict(now.masks)
        carried: Mapping[str, Mask] = {
            origin.after.name: masks[origin.before.name]
            for origin in moved
            if origin.before is not None and origin.before.name in masks
        }
        wider = replace(now, schema=now.schema.with_columns(columns))
        return self._draft.change_columns(now, wider, origins_by_name(now.schema, columns), carried=carried)

    def _with_columns(self, now: MirrorState, target: MirrorState, event: DdlEvent) -> MirrorState:
        origins = origins_by_name(now.schema, target.schema.columns)
        gone = [column.name for column in now.schema.columns if target.schema.find(column.name) is None]
        kept: tuple[tuple[str, str], ...] = ()
        if self._policy.of(now.name) == KEEP:
            target, kept = with_kept(target, gone, event)
        # what all of them generate alike is computed anew
        anew = [
            origin.after.name
            for origin in origins
            if origin.before is not None and origin.after.generated is not None and origin.before.generated is None
        ]
        target = healed(target, gap_columns([*gone, *anew], ()))
        changed = with_known_gaps(target, now, origins, self._draft.time_zone)
        return self._draft.change_columns(now, changed, origins, event.commit_ms, kept)


def _folded_names(schema: TableSchema) -> set[str]:
    return {name.casefold() for name in schema.column_names}
