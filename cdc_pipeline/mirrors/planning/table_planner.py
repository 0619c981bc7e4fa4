"""What statements about whole tables become: CREATE, TRUNCATE, DROP and RENAME as steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind, short_statement
from cdc_pipeline.mirrors.changes.late_ddl import comes_before
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DropMirror, RenameMirror, TruncateMirror
from cdc_pipeline.mirrors.planning.outcomes import done, refuse
from cdc_pipeline.mirrors.settings.ddl_policy import KEEP
from cdc_pipeline.mysql.ddl.evolution import altered
from cdc_pipeline.mysql.ddl.queried_columns import created_as, queried_columns
from cdc_pipeline.mysql.expressions.conversions import unclear_types, with_unclear_types
from cdc_pipeline.mysql.model.schema_changes import CreateTable, CreateTableAsSelect, CreateTableLike, NotSupported
from cdc_pipeline.mysql.model.table import TableSchema, origins_by_name

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.planning.recovery_planner import RecoveryPlanner
    from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
    from cdc_pipeline.mysql.model.table import TableName


class TablePlanner:
    """Plans one statement about a whole table. `recovery` is told of what is ended, so that it can come back."""

    def __init__(self, draft: PlanDraft, policy: DdlPolicy, recovery: RecoveryPlanner) -> None:
        self._draft = draft
        self._policy = policy
        self._recovery = recovery

    def cannot_read(self, change: NotSupported, event: DdlEvent, outcome: DdlOutcome) -> None:
        """Its table goes on by what its rows say of themselves, until a statement tells more."""
        name = change.name
        if name is not None and change.creates and not self._draft.exists(name):
            self._draft.create(MirrorState(name, f"{name}@{event.mark}", TableSchema(()), inferred=True))
        refuse(self._draft, name, change.reason, event, outcome)
        state = None if name is None else self._draft.state(name)
        if state is not None and not state.inferred:
            self._draft.record_state(replace(state, inferred=True))
        if change.everywhere:
            for other in self._draft.names():
                refuse(self._draft, other, change.reason, event, outcome)

    # ---- CREATE

    def create(self, change: CreateTable, event: DdlEvent, outcome: DdlOutcome) -> None:
        name, schema = change.name, change.schema
        existing = self._draft.state(name)
        if existing is not None and comes_before(event, existing):
            self._define(existing, change, event, outcome)
            return
        if change.if_not_exists and self._draft.exists(name):
            self._draft.flush_rows(name)
            self._learn(name, schema, event, outcome)
            return
        self._draft.flush_rows(name)
        existing = self._draft.state(name)
        if existing is not None:
            # Upstream made it, so there it was gone: a DROP or RENAME of it never reached us.
            self._draft.steps.append(DropMirror(existing, event.mark))
            self._recovery.has_dropped(existing, event.mark)
            outcome.effects.append(f"the former {name} was set aside: its end was not in the stream")
        state = MirrorState(name, f"{name}@{event.mark}", schema).with_gaps(*change.gaps)
        done(outcome, f"created {name}", self._draft.create(state))

    def _define(self, state: MirrorState, change: CreateTable, event: DdlEvent, outcome: DdlOutcome) -> None:
        """The rows of this table came before the statement that made it: they are let in anew, under its definition
        (`late_statements`)."""
        self._draft.steps.append(TruncateMirror(state))
        defined = replace(state, schema=change.schema, inferred=False, gaps=change.gaps, since=None)
        defined = self._defined(state, defined, event, anew=True)
        self._draft.mark_empty(defined)
        done(outcome, f"defined {state.name}, of which rows had come before; they were let in anew", defined)

    def _learn(self, name: TableName, schema: TableSchema, event: DdlEvent, outcome: DdlOutcome) -> None:
        """A CREATE TABLE IF NOT EXISTS of a table that exists changes nothing upstream. It tells the definition where only
        rows have told of the table, if the columns are the same."""
        state = self._draft.state(name)
        assert state is not None
        columns = {column.casefold() for column in schema.column_names}
        if not state.inferred or columns != {column.casefold() for column in state.schema.column_names}:
            outcome.effects.append(f"{name} exists already")
            return
        gaps = with_unclear_types(state.gaps, schema.columns)
        learnt = replace(state, schema=schema, inferred=False, since=None, gaps=gaps)
        learnt = self._defined(state, learnt, event)
        done(outcome, f"{name} exists already; its definition is known now", learnt)

    def _defined(self, before: MirrorState, after: MirrorState, event: DdlEvent, *, anew: bool = False) -> MirrorState:
        origins = origins_by_name(before.schema, after.schema.columns)
        return self._draft.change_columns(before, after, origins, event.commit_ms, anew=anew)

    def create_like(self, change: CreateTableLike, event: DdlEvent, outcome: DdlOutcome) -> None:
        source = self._draft.state(change.source)
        if source is None and self._draft.exists(change.source):
            self._draft.flush_rows(change.source)
            source = self._draft.state(change.source)
        if source is None:
            reason = f"CREATE TABLE LIKE {change.source}, whose definition is not known"
            self.cannot_read(NotSupported(reason, change.name, creates=True), event, outcome)
            return
        created = CreateTable(change.name, source.schema, change.if_not_exists)
        self.create(created, event, outcome)

    def create_as_select(self, change: CreateTableAsSelect, event: DdlEvent, outcome: DdlOutcome) -> None:
        """Only where a change is logged as its statement does the query arrive: then the rows that it gave do not."""

        def schema_of(name: TableName) -> TableSchema | None:
            self._draft.flush_rows(name)
            state = self._draft.state(name)
            return None if state is None else state.schema

        try:
            own = altered(TableSchema((), charset=change.charset, collation=change.collation), change.columns)
            columns = created_as(own, queried_columns(change.query, change.database, schema_of))
            schema = altered(replace(own, columns=columns), change.keys)
        except ValueError as error:  # QueryError, SchemaConflictError
            self.cannot_read(NotSupported(str(error), change.name, creates=True), event, outcome)
            return
        hidden = "its first rows are those of a query, which were not sent: see ddl_history"
        clear = f"its first rows are those of a query, which were not sent: {short_statement(change.query)}"
        gap = Gap(GapKind.ROWS_OF_QUERY, hidden, clear=clear)
        self.create(CreateTable(change.name, schema, change.if_not_exists, (gap,)), event, outcome)

    # ---- TRUNCATE, DROP, RENAME

    def truncate(self, name: TableName, event: DdlEvent, outcome: DdlOutcome) -> None:
        if self._draft.keeps_deleted(name):
            self._draft.flush_rows(name)
        else:
            self._draft.discard_rows(name)
        state = self._draft.state(name)
        if state is None:
            done(outcome, f"{name}: no mirror to empty")
            return
        self._draft.steps.append(TruncateMirror(state, event.mark))
        self._recovery.has_truncated(state, event.mark)
        self._draft.truncate(state)
        # what was missing or unsure in the rows is gone with them
        healed = replace(state, gaps=()).with_gaps(*unclear_types(state.schema.columns))
        if healed != state:
            self._draft.record_state(healed)
        done(outcome, f"emptied {name}", healed)

    def drop(self, name: TableName, event: DdlEvent, outcome: DdlOutcome) -> None:
        self._draft.flush_rows(name)
        state = self._draft.state(name)
        if state is None:
            outcome.effects.append(f"{name}: no mirror to drop")
            return
        self._draft.remove(name)
        if self._policy.of(name) == KEEP:
            kept = state.as_retired(event.mark)
            self._draft.steps.append(RenameMirror(state, kept))
            self._draft.set_state(kept)
            self._recovery.has_retired(kept, event.mark)
            done(outcome, f"dropped {name}; its mirror is kept as {kept.name}")
            return
        self._draft.steps.append(DropMirror(state, event.mark))
        self._recovery.has_dropped(state, event.mark)
        done(outcome, f"dropped {name}; its mirror is kept aside")

    def rename(self, old: TableName, new: TableName, event: DdlEvent, outcome: DdlOutcome) -> None:
        found = self._renamed_source(old)
        if found is None:
            done(outcome, f"{old} has no mirror yet; its rows will come as {new}")
            return
        self._draft.flush_rows(found)
        self._draft.flush_rows(new)
        state = self._draft.state(found)
        assert state is not None  # _renamed_source saw it, or rows that have just made it
        there = self._draft.state(new)
        if there is not None and comes_before(event, there):
            # its rows came before the statement that gave the table its name: they come again
            self._draft.steps.append(DropMirror(there, event.mark))
            self._draft.remove(new)
            there = None
        if there is not None:
            refuse(self._draft, found, f"RENAME of {found} to {new}, which exists", event, outcome)
            return
        renamed = replace(state, name=new)
        self._draft.steps.append(RenameMirror(state, renamed))
        self._draft.remove(found)
        self._draft.set_state(renamed)
        done(outcome, f"renamed {found} to {new}", self._draft.apply_name_rules(renamed))

    def _renamed_source(self, name: TableName) -> TableName | None:
        """The table that a RENAME speaks of. TiCDC's old architecture can lose its database (ticdc-facts §4): then the
        one table of that name in any database is meant."""
        if self._draft.exists(name):
            return name
        same = [other for other in self._draft.names() if other.table == name.table]
        return same[0] if len(same) == 1 else None
