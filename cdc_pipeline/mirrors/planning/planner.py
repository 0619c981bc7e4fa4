"""Plans the steps of a cut from its DDL events and groups of rows.

The DDL events that name a table (`DdlEvent.names`) split its rows into segments: segment n follows the n-th event. The
planner processes the events in order, and before an event the rows that precede it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from typing_extensions import assert_never

from cdc_pipeline.errors import CdcError
from cdc_pipeline.gaps import Gap, GapKind, statement_gap
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.lake.tables.ddl_history import HELD
from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.steps import DdlOutcome, Step
from cdc_pipeline.mirrors.planning.alter_planner import AlterPlanner
from cdc_pipeline.mirrors.planning.merged_table_planner import MergedTablePlanner
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.statement import Statement
from cdc_pipeline.mirrors.planning.table_planner import TablePlanner
from cdc_pipeline.mirrors.planning.unlogged_changes import add_definition_gaps, link_foreign_keys
from cdc_pipeline.mirrors.settings.ddl_policy import HOLD, NO_STATEMENT, HeldTable
from cdc_pipeline.mysql.expressions.conversions import conversion_doubt
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.table import TableName, TableSchema
from cdc_pipeline.positions import Position
from cdc_pipeline.stored_json import AS_PAIRS


@dataclass(frozen=True)
class CutPlan:
    """What one cut does."""

    steps: tuple[Step, ...]
    outcomes: Annotated[dict[Position, DdlOutcome], AS_PAIRS]
    """By the position of the DDL event."""
    held: tuple[HeldTable, ...] = ()
    """The tables that are held or quarantined after the cut."""
    held_from: Annotated[dict[TableName, int], AS_PAIRS] = field(default_factory=dict)
    """The first segment of a held table whose rows are not applied."""


class Planner:
    """Plans a cut on a draft.

    known_gaps: gaps that are known before planning, such as those of dead letters.
    permitted: statements that the policy does not hold: a replay applies them.
    held: the tables that wait from the start.
    ended: returns the tables of a database that earlier cuts dropped or truncated.
    doubts: statement → its gap, if the messages do not show whether some rows precede it.
    """

    def __init__(
        self,
        draft: PlanDraft,
        *,
        known_gaps: Mapping[TableName, tuple[Gap, ...]] | None = None,
        permitted: frozenset[Position] = frozenset(),
        held: Iterable[HeldTable] = (),
        ended: Callable[[str], Iterable[EndedTable]] = lambda database: (),
        doubts: Mapping[Position, Gap] | None = None,
    ) -> None:
        self._draft = draft
        self.tables: tuple[TableName, ...] = ()
        """The tables of the statement or the rows that are being planned."""
        self._known_gaps = dict(known_gaps or {})
        self._doubts = doubts or {}
        self._permitted = permitted
        self._held = {table.name: table for table in held}
        self._held_from = dict.fromkeys(self._held, 0)
        self._alterations = AlterPlanner(draft)
        self._tables = TablePlanner(draft, ended)
        self._merged_tables = MergedTablePlanner(draft, self._tables)

    def plan(self, events: Iterable[DdlEvent]) -> CutPlan:
        """Plans the events, sorted by `ddl_events.in_upstream_order`."""
        outcomes: dict[Position, DdlOutcome] = {}
        self._draft.mask_all()
        events = list(events)
        self._tables.expect(change for event in events for change in event.changes)
        for event in events:
            self._draft.name_tables(event.created)
            statement = Statement(event, self._draft)
            for change in event.changes:
                self.tables = change.names().touched or change.names().read
                for old, new in change.names().renamed:
                    # the gaps move with the table
                    self._known_gaps[new] = (*self._known_gaps.get(new, ()), *self._known_gaps.get(old, ()))
                self._permit(change, statement)
            for name in event.names():
                self._draft.pass_event(name)
                self._draft.add_gaps(name, *self._doubts_of(event, name))
            add_definition_gaps(self._draft, event)
            outcomes[event.position] = statement.outcome
        for name in self._held:
            self._draft.discard_rows(name, everything=True)
        for name in self._draft.names_with_rows():
            self.tables = (name,)
            self._draft.flush_rows(name, everything=True)
        link_foreign_keys(self._draft, events)
        for name, gaps in sorted(self._known_gaps.items()):
            self.tables = (name,)
            self._draft.add_gaps(name, *gaps)
        self.tables = ()
        held = tuple(
            replace(table, name=state.name) if (state := self._draft.state(name)) else table
            for name, table in self._held.items()
        )
        return CutPlan(tuple(self._draft.steps), outcomes, held, self._held_from)

    def _doubts_of(self, event: DdlEvent, name: TableName) -> Iterable[Gap]:
        """Gaps of the table because the order of the statement and of some rows, or of its export, is unknown."""
        if doubt := self._doubts.get(event.position):
            yield doubt
        state = self._draft.state(name)
        if state is not None and 0 < event.es <= state.exported_until and not event.is_baseline:
            text = "a statement ran while the table was exported: the rows of the export may be from before or after it"
            yield statement_gap(GapKind.UNSURE_ORDER, text, event.position)

    # ---- ddl_policy

    def _permit(self, change: ddl.SchemaChange, statement: Statement) -> None:
        """Applies the change, unless a table that it names is held or must be held before it."""
        names, read = change.names().touched, change.names().read
        # a table that is made like a quarantined one is not the cause of its error
        read = tuple(name for name in read if name in self._held and not (names and self._held[name].error))
        names = (*names, *read)
        # a swap waits as a whole
        tied = statement.event.names() if change.names().renamed else names
        held = next((self._held[name] for name in tied if name in self._held), None)
        if held is None and statement.event.position not in self._permitted:
            destroyed = change.tables_losing_data(self._schema, conversion_doubt)
            if any(self._holds(name) and self._draft.exists(name) for name in destroyed):
                held = self._held_before(names[0], statement.event)
        if held is None:
            self._apply(change, statement)
            return
        for name in names:
            self._hold(name, held, statement)

    def _schema(self, name: TableName) -> TableSchema:
        state = self._draft.state(name)
        return TableSchema(()) if state is None else state.schema

    def _holds(self, name: TableName) -> bool:
        return self._draft.settings.policy.action_for(name) == HOLD

    def _held_before(self, name: TableName, event: DdlEvent) -> HeldTable:
        return HeldTable(name, event.position, event.commit_ts)

    def _hold(self, name: TableName, cause: HeldTable, statement: Statement) -> None:
        if name not in self._held:
            self._draft.flush_rows(name)
            self._held[name] = replace(cause, name=name, commit_ts=statement.event.commit_ts, rows=0)
            self._held_from[name] = self._draft.passed_events(name) + 1
        statement.outcome.status = HELD
        statement.note(f"{name}: {self._held[name].gap}")

    def _apply(self, change: ddl.SchemaChange, statement: Statement) -> None:
        match change:
            case ddl.NoTableEffect():
                statement.note(f"{change.what}: changes no table")
            case ddl.NotSupported():
                self._tables.refuse_table(change, statement)
            case ddl.CreateTable():
                self._tables.create(change, statement)
            case ddl.CreateTableLike():
                self._tables.create_like(change, statement)
            case ddl.TruncateTable():
                self._tables.truncate(change.name, statement)
            case ddl.DropTable():
                self._tables.drop(change.name, statement)
            case ddl.DropDatabase():
                self._drop_database(change, statement)
            case ddl.RenameTable():
                self._tables.rename(change.name, change.new_name, statement)
            case ddl.RecoverTable():
                self._tables.recover(change, statement)
            case ddl.RecoverDatabase():
                self._tables.recover_database(change.database, change.new_database, statement)
            case ddl.OfSourceTable():
                self._merged_tables.plan(change, statement)
            case ddl.AlterTable():
                self._alter(change, statement)
            case _:
                assert_never(change)

    def _drop_database(self, change: ddl.DropDatabase, statement: Statement) -> None:
        """Drops the tables of the database one by one, or holds those with `ddl_policy: hold`."""
        key = self._draft.settings.selection.key
        for name in self._draft.names():
            self.tables = (name,)
            if name not in self._held:
                self._draft.flush_rows(name)
            state = self._draft.state(name)
            tables = (
                [] if state is None else [table for table in map(key, state.upstream_tables) if change.drops(table)]
            )
            if state is None or state.retired or not tables:
                continue
            if name in self._held:
                self._hold(name, self._held[name], statement)
            elif self._holds(name) and statement.event.position not in self._permitted:
                self._hold(name, self._held_before(name, statement.event), statement)
            elif state.source_tables is not None:
                for table in tables:
                    self._merged_tables.plan(ddl.OfSourceTable(name, table, ddl.DropTable(table)), statement)
            else:
                # no statement names the table, so that all its rows lie in one segment; rows after the DROP follow a CREATE
                self._tables.drop(name, statement)
        if not statement.outcome.effects:
            statement.note(f"database {change.database}: no mirrors to drop")

    def _alter(self, change: ddl.AlterTable, statement: Statement) -> None:
        renames = [clause for clause in change.clauses if isinstance(clause, ddl.RenameTo)]
        clauses = tuple(clause for clause in change.clauses if not isinstance(clause, ddl.RenameTo))
        if clauses:
            self._alterations.alter(change.name, clauses, statement)
        for rename in renames:
            self._tables.rename(change.name, rename.name, statement)


def plan_tables(
    planner_for: Callable[[tuple[HeldTable, ...]], Planner],
    events: Iterable[DdlEvent],
    held: Iterable[HeldTable],
    since: int,
    report: Callable[[str], None],
) -> CutPlan:
    """Plans the events. An unexpected error quarantines the tables that it concerns, and the others are planned.

    `planner_for`: returns a planner on a new draft, for which these tables wait. `held`: the tables that wait already.
    `since`: the `commit_ts` at which a quarantined table stops. A CdcError is raised: it concerns the pipeline.
    """
    waiting = {table.name: table for table in held}
    while True:
        planner = planner_for(tuple(waiting.values()))
        try:
            return planner.plan(events)
        except CdcError:
            raise
        except Exception as error:
            failed = [name for name in planner.tables if name not in waiting]
            if not failed:
                raise
            report(f"{', '.join(map(str, failed))}: quarantined, because planning failed: {first_line(error)}")
            # without the text of the error, which may quote a value
            reason = f"planning failed ({type(error).__name__})"
            waiting |= {name: HeldTable(name, NO_STATEMENT, since, error=reason) for name in failed}
