"""From DDL events and groups of rows to the steps of a cut: pure, no Spark.

Each table's rows are cut into segments by the DDL events that touch it (`events.DdlEvent.names`): segment n lies after
the n-th of them. The planner walks the events in order, first letting the rows before an event in, then the event.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.inferred import inferred_schema, new_columns, wider_column
from cdc_pipeline.mirrors.partial_rows import partial_columns, unknown_columns
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.mirrors.steps import (
    ApplyRows,
    ChangeColumns,
    ColumnOrigin,
    CreateMirror,
    DropMirror,
    NoteState,
    RenameMirror,
    Step,
    TruncateMirror,
)
from cdc_pipeline.schemas.changes import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    NoTableEffect,
    NotSupported,
    NotSupportedClause,
    RenameTable,
    RenameTo,
    SchemaChange,
    TruncateTable,
)
from cdc_pipeline.schemas.conversions import unclear_type, unsent_columns, unsure_conversion
from cdc_pipeline.schemas.evolution import SchemaConflictError, altered
from cdc_pipeline.schemas.origins import column_origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdc_pipeline.mirrors.events import DdlEvent
    from cdc_pipeline.mirrors.row_groups import RowGroup
    from cdc_pipeline.schemas.changes import Clause
    from cdc_pipeline.schemas.table import TableName, TableSchema

APPLIED, NO_EFFECT, DUPLICATE, NOT_APPLIED = "applied", "no effect", "duplicate", "not applied yet"


@dataclass
class DdlOutcome:
    """What became of a DDL event: a status, what was done in words, and the tables' states after it."""

    status: str
    effects: list[str] = field(default_factory=list)
    tables: list[MirrorState] = field(default_factory=list)

    @property
    def effect(self) -> str:
        return "; ".join(self.effects)


@dataclass(frozen=True)
class CutPlan:
    """The steps of a cut in order, and what becomes of each DDL event, by the event's position."""

    steps: tuple[Step, ...]
    outcomes: dict[tuple[str, int, int], DdlOutcome]


class Planner:
    """Makes a `CutPlan`. `lookup` gives a mirror as the last cut left it; `known` are the names that cut had."""

    def __init__(
        self,
        groups: Iterable[RowGroup],
        lookup: Callable[[TableName], MirrorState | None],
        known: frozenset[TableName] = frozenset(),
        cut_id: int = 0,
        lost: Mapping[TableName, tuple[str, ...]] | None = None,
    ) -> None:
        """`lost` are tables of which records became dead letters before they could be told apart, with the reasons."""
        self._lost = dict(lost or {})
        self._groups: dict[TableName, dict[int, list[RowGroup]]] = defaultdict(lambda: defaultdict(list))
        for group in groups:
            self._groups[group.name][group.segment].append(group)
        self._lookup = lookup
        self._known = known
        self._cut_id = cut_id
        self._live: dict[TableName, MirrorState | None] = {}
        self._events_passed: dict[TableName, int] = defaultdict(int)
        self._steps: list[Step] = []
        self._empty: set[str] = set()

    def plan(self, events: Iterable[DdlEvent]) -> CutPlan:
        """`events` in stream order (`events.in_order`), those of this cut only."""
        outcomes: dict[tuple[str, int, int], DdlOutcome] = {}
        seen: set[tuple[int, str, str, str]] = set()
        for event in events:
            if event.identity in seen:
                outcomes[event.position] = DdlOutcome(DUPLICATE, ["the same statement at the same time came before"])
                continue
            seen.add(event.identity)
            outcome = DdlOutcome(NO_EFFECT)
            for change in event.changes:
                self._carry_out(change, event, outcome)
            for name in event.names():
                self._events_passed[name] += 1
            outcomes[event.position] = outcome
        for name in list(self._groups):
            self._let_rows_in(name, everything=True)
        for name, reasons in sorted(self._lost.items()):
            self._mark(name, *reasons)
        return CutPlan(tuple(self._steps), outcomes)

    # ---- states

    def _state(self, name: TableName) -> MirrorState | None:
        if name not in self._live:
            self._live[name] = self._lookup(name)
        return self._live[name]

    def _put(self, state: MirrorState) -> None:
        self._live[state.name] = state

    # ---- rows

    def _segments_now(self, name: TableName, *, everything: bool = False) -> list[int]:
        """The segments of the name that lie before the current event and are not in yet."""
        waiting = self._groups.get(name, {})
        return sorted(segment for segment in waiting if everything or segment <= self._events_passed[name])

    def _let_rows_in(self, name: TableName, *, everything: bool = False) -> None:
        segments = self._segments_now(name, everything=everything)
        if not segments:
            return
        groups = [group for segment in segments for group in self._groups[name].pop(segment)]
        state = self._fitting_state(name, groups)
        changes = sum(group.changes for group in groups)
        wires = tuple(sorted({group.dialect: group.types.wires for group in groups}.items()))
        lacking = tuple(column.name for column in partial_columns(state.schema, groups))
        self._steps.append(
            ApplyRows(state, name, tuple(segments), changes, state.mirror_id in self._empty, wires, lacking)
        )
        self._empty.discard(state.mirror_id)
        self._mark(name, *unsent_columns(unknown_columns(state, groups)))

    def _mark(self, name: TableName, *reasons: str) -> None:
        """Marks the table's mirror, if there is one, as having gaps for these reasons."""
        state = self._state(name)
        if state is None or not set(reasons) - set(state.gaps):
            return
        marked = state.with_gaps(*reasons)
        self._steps.append(NoteState(marked))
        self._put(marked)

    def _drop_rows(self, name: TableName) -> None:
        for segment in self._segments_now(name):
            del self._groups[name][segment]

    def _fitting_state(self, name: TableName, groups: list[RowGroup]) -> MirrorState:
        """The mirror's state, made or widened where the rows have columns that no DDL has told of."""
        state = self._state(name)
        if state is None:
            schema = inferred_schema(groups)
            since = min((group.first_ts for group in groups if group.first_ts is not None), default=None)
            state = MirrorState(name, f"{name}@cut{self._cut_id}.{len(self._steps)}", schema, True, since=since)
            state = state.with_gaps(*filter(None, map(unclear_type, schema.columns)))
            self._put(state)
            self._steps.append(CreateMirror(state))
            self._empty.add(state.mirror_id)
            return state
        added = new_columns(state.schema, groups)
        kept = tuple(wider_column(column, groups) for column in state.schema.columns) if state.inferred else None
        columns = (*(kept or state.schema.columns), *added)
        if columns == state.schema.columns:
            return state
        wider = replace(state, schema=state.schema.with_columns(columns))
        wider = wider.with_gaps(*filter(None, map(unclear_type, added)))
        if added and not state.inferred:
            names = ", ".join(column.name for column in added)
            wider = wider.with_gaps(f"rows have columns that no DDL has told of: {names}")
        origins = tuple(ColumnOrigin(column, state.schema.find(column.name)) for column in columns)
        self._steps.append(ChangeColumns(state, wider, origins, commit_ms=0))
        self._put(wider)
        return wider

    # ---- DDL

    def _carry_out(self, change: SchemaChange, event: DdlEvent, outcome: DdlOutcome) -> None:
        if isinstance(change, NoTableEffect):
            outcome.effects.append(f"{change.what}: changes no table")
        elif isinstance(change, NotSupported):
            self._refuse(change.name, change.reason, event, outcome)
        elif isinstance(change, CreateTable):
            self._create(change.name, change.schema, change.if_not_exists, event, outcome)
        elif isinstance(change, CreateTableLike):
            self._create_like(change, event, outcome)
        elif isinstance(change, TruncateTable):
            self._truncate(change.name, outcome)
        elif isinstance(change, DropTable):
            self._drop(change.name, event, outcome)
        elif isinstance(change, DropDatabase):
            self._drop_database(change.database, event, outcome)
        elif isinstance(change, RenameTable):
            self._rename(change.name, change.new_name, event, outcome)
        elif isinstance(change, AlterTable):
            self._alter(change, event, outcome)

    def _create(
        self, name: TableName, schema: TableSchema, if_not_exists: bool, event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        existing = self._state(name)
        if existing is not None and comes_before(event, existing):
            self._define(existing, schema, event, outcome)
            return
        if existing is not None and if_not_exists:
            outcome.effects.append(f"{name} exists already")
            return
        self._let_rows_in(name)
        existing = self._state(name)
        if existing is not None:
            # Upstream made it, so there it was gone: a DROP or RENAME of it never reached us.
            self._steps.append(DropMirror(existing, event.mark))
            outcome.effects.append(f"the former {name} was set aside: its end was not in the stream")
        state = MirrorState(name, f"{name}@{event.mark}", schema)
        self._put(state)
        self._steps.append(CreateMirror(state))
        self._empty.add(state.mirror_id)
        _done(outcome, f"created {name}", state)

    def _define(self, state: MirrorState, schema: TableSchema, event: DdlEvent, outcome: DdlOutcome) -> None:
        """The rows of this table came before the statement that made it: they are let in anew, under its definition
        (`tables_made_by_rows`)."""
        self._steps.append(TruncateMirror(state))
        defined = replace(state, schema=schema, inferred=False, gaps=(), since=None)
        origins = tuple(ColumnOrigin(column, state.schema.find(column.name)) for column in schema.columns)
        self._steps.append(ChangeColumns(state, defined, origins, event.commit_ms))
        self._put(defined)
        self._empty.add(state.mirror_id)
        _done(outcome, f"defined {state.name}, of which rows had come before; they were let in anew", defined)

    def _create_like(self, change: CreateTableLike, event: DdlEvent, outcome: DdlOutcome) -> None:
        source = self._state(change.source)
        if source is None:
            self._refuse(
                change.name, f"CREATE TABLE LIKE {change.source}, whose definition is not known", event, outcome
            )
            return
        self._create(change.name, source.schema, change.if_not_exists, event, outcome)

    def _truncate(self, name: TableName, outcome: DdlOutcome) -> None:
        self._drop_rows(name)
        state = self._state(name)
        if state is None:
            _done(outcome, f"{name}: no mirror to empty")
            return
        self._steps.append(TruncateMirror(state))
        self._empty.add(state.mirror_id)
        _done(outcome, f"emptied {name}", state)

    def _drop(self, name: TableName, event: DdlEvent, outcome: DdlOutcome) -> None:
        self._let_rows_in(name)
        state = self._state(name)
        if state is None:
            outcome.effects.append(f"{name}: no mirror to drop")
            return
        self._steps.append(DropMirror(state, event.mark))
        self._live[name] = None
        _done(outcome, f"dropped {name}; its mirror is kept aside")

    def _drop_database(self, database: str, event: DdlEvent, outcome: DdlOutcome) -> None:
        names = {*self._known, *self._groups, *self._live}
        for name in sorted(name for name in names if name.database == database):
            # rows of a name that is not touched by name lie in one segment; those after the drop come by a new CREATE
            if self._state(name) is not None or self._segments_now(name):
                self._drop(name, event, outcome)
        if not outcome.effects:
            outcome.effects.append(f"database {database}: no mirrors to drop")

    def _rename(self, old: TableName, new: TableName, event: DdlEvent, outcome: DdlOutcome) -> None:
        found = self._renamed_source(old)
        if found is None:
            _done(outcome, f"{old} has no mirror yet; its rows will come as {new}")
            return
        self._let_rows_in(found)
        self._let_rows_in(new)
        state = self._state(found)
        assert state is not None  # _renamed_source saw it, or rows that have just made it
        if self._state(new) is not None:
            self._refuse(found, f"RENAME of {found} to {new}, which exists", event, outcome)
            return
        renamed = replace(state, name=new)
        self._steps.append(RenameMirror(state, renamed))
        self._live[found] = None
        self._put(renamed)
        _done(outcome, f"renamed {found} to {new}", renamed)

    def _renamed_source(self, name: TableName) -> TableName | None:
        """The table that a RENAME speaks of. TiCDC's old architecture can lose its database (ticdc-facts §4): then the
        one table of that name in any database is meant."""
        if self._state(name) is not None or self._segments_now(name):
            return name
        names = {*self._known, *self._groups, *(known for known, state in self._live.items() if state is not None)}
        same = [
            other
            for other in names
            if other.table == name.table and (self._state(other) is not None or self._segments_now(other))
        ]
        return same[0] if len(same) == 1 else None

    def _alter(self, change: AlterTable, event: DdlEvent, outcome: DdlOutcome) -> None:
        renames = [clause for clause in change.clauses if isinstance(clause, RenameTo)]
        clauses = tuple(clause for clause in change.clauses if not isinstance(clause, RenameTo))
        if clauses:
            self._alter_columns(change.name, clauses, event, outcome)
        for rename in renames:
            self._rename(change.name, rename.name, event, outcome)

    def _alter_columns(
        self, name: TableName, clauses: tuple[Clause, ...], event: DdlEvent, outcome: DdlOutcome
    ) -> None:
        state = self._state(name)
        if state is None and self._segments_now(name):
            self._let_rows_in(name)
            state = self._state(name)
        if state is None:
            outcome.effects.append(f"{name} has no mirror yet; its first rows will show its columns")
            return
        refused = [clause for clause in clauses if isinstance(clause, NotSupportedClause)]
        clauses = tuple(clause for clause in clauses if not isinstance(clause, NotSupportedClause))
        try:
            schema = altered(state.schema, clauses)
        except SchemaConflictError as error:
            self._refuse(name, f"ALTER TABLE does not fit the known columns: {error}", event, outcome)
            return
        changed = replace(state, schema=schema)
        if _shape(schema) != _shape(state.schema):
            self._let_rows_in(name)
            current = self._state(name)
            assert current is not None
            if current is not state:  # rows have widened it meanwhile: fold the clauses over what it is now
                self._alter_columns(name, clauses, event, outcome)
                return
            origins = tuple(
                ColumnOrigin(column, None if source is None else state.schema.find(source))
                for column, source in zip(schema.columns, column_origins(state.schema, clauses), strict=True)
            )
            changed = _with_known_gaps(changed, origins)
            self._steps.append(ChangeColumns(state, changed, origins, event.commit_ms))
            _done(outcome, f"altered {name}", changed)
        elif schema != state.schema:
            self._steps.append(NoteState(changed))
            _done(outcome, f"noted the new definition of {name}; rows are as they were", changed)
        elif not refused:
            outcome.effects.append(f"{name}: changes neither columns nor rows")
        self._put(changed)
        for clause in refused:
            self._refuse(name, clause.what, event, outcome)
            if clause.other is not None:
                self._refuse(clause.other, clause.what, event, outcome)

    def _refuse(self, name: TableName | None, reason: str, event: DdlEvent, outcome: DdlOutcome) -> None:
        """Records what is not applied, and marks the table so that nothing is silently wrong."""
        outcome.status = NOT_APPLIED
        outcome.effects.append(f"{NOT_APPLIED}: {reason}")
        if name is None:
            return
        self._let_rows_in(name)
        before = self._state(name)
        self._mark(name, f"{reason} (commit_ts {event.commit_ts}): {event.sql}")
        marked = self._state(name)
        if marked is not None and marked is not before:
            outcome.tables.append(marked)


def comes_before(event: DdlEvent, state: MirrorState) -> bool:
    """Whether a CREATE TABLE is the one of a mirror that rows have made: without TSOs a partition may be ahead of the one
    that DDL travels in."""
    return not event.exact_ts and state.inferred and state.since is not None and event.commit_ts <= state.since


def tables_made_by_rows(
    events: Iterable[DdlEvent], lookup: Callable[[TableName], MirrorState | None]
) -> tuple[TableName, ...]:
    """The tables whose CREATE TABLE is among the events and comes after rows of them: all of those are let in again."""
    return tuple(
        dict.fromkeys(
            change.name
            for event in events
            for change in event.changes
            if isinstance(change, CreateTable)
            and (state := lookup(change.name)) is not None
            and comes_before(event, state)
        )
    )


def _done(outcome: DdlOutcome, effect: str, *states: MirrorState) -> None:
    outcome.effects.append(effect)
    outcome.tables.extend(states)
    if outcome.status == NO_EFFECT:
        outcome.status = APPLIED


def _shape(schema: TableSchema) -> tuple[object, ...]:
    """What rows depend on: the columns' names and types, and what identifies a row."""
    return (tuple((column.name, column.type) for column in schema.columns), schema.row_key)


def _with_known_gaps(state: MirrorState, origins: tuple[ColumnOrigin, ...]) -> MirrorState:
    """The state, marked where a change of types alone tells that values may not be upstream's."""
    for origin in origins:
        if origin.before is not None and (reason := unsure_conversion(origin.before.type, origin.after.type)):
            state = state.with_gaps(f"column {origin.after.name}: {reason}")
    return state
