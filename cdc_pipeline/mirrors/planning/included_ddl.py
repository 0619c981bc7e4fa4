"""Translates DDL of upstream's tables into changes of the selected mirrors.

Changes of excluded tables only are removed. A RENAME to an excluded name drops the mirror. A RENAME from an excluded name
creates one, with a gap for earlier rows. Changes of a source table of a merged mirror become `schema_changes.OfSourceTable`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.mysql.model.change_names import created_names, folded, table_names, with_keys, with_names
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    ExchangePartition,
    NoTableEffect,
    NotSupported,
    NotSupportedClause,
    OfSourceTable,
    RecoverDatabase,
    RecoverTable,
    RenameTable,
    RenameTo,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange, SourceTableChange


class UpstreamDefinitions:
    """The definitions of upstream's tables, mirrored or not, by DDL alone, at one point of the stream.

    An excluded table has no mirror, but CREATE TABLE LIKE or RENAME may need its definition. A planner without rows computes
    it from all statements so far.

    past: returns the events of earlier cuts by key, each once, in order. Called only when a definition is needed, which is
    rare.
    """

    def __init__(
        self, past: Callable[[], Iterable[DdlEvent]], time_zone: str, selection: TableSelection = ALL_TABLES
    ) -> None:
        self._past = past
        self._pending: list[DdlEvent] = []
        self._is_complete = False
        exact = TableSelection(case_sensitive=selection.case_sensitive)
        self._draft = PlanDraft((), lambda name: None, frozenset(), 0, time_zone, selection=exact)

    def follow(self, event: DdlEvent, change: SchemaChange) -> None:
        """Moves on to the point after this change."""
        self._pending.append(replace(event, changes=(change,), created=()))

    def definition(self, name: TableName) -> MirrorState | None:
        """The table as its mirror would be defined at this point; None if unknown."""
        if not self._is_complete:
            self._is_complete, self._pending = True, [*self._past(), *self._pending]
        Planner(self._draft).plan(self._pending)
        self._pending = []
        state = self._draft.state(name)
        return None if state is None or state.inferred or not state.schema.columns else state


@dataclass(frozen=True)
class IncludedDdl:
    """Translates the events of one stream to events with the keys of mirrors."""

    selection: TableSelection
    definitions: UpstreamDefinitions | None = None
    """The definitions of upstream's tables, excluded ones included. None: all are unknown."""
    between: frozenset[TableName] = frozenset()
    """Excluded names that a table has only between two RENAMEs of one statement, as in a swap of two tables."""

    def _includes(self, name: TableName) -> bool:
        return name in self.between or self.selection.includes(name)

    def _mirror_key(self, name: TableName) -> TableName:
        if name in self.between:
            return replace(name, table=f"{name.table}__between_renames")  # no mirror's own
        return self.selection.mirror_key(name)

    def mirrored_event(self, event: DdlEvent) -> DdlEvent:
        """The event with its changes of mirrors; without changes if it concerns excluded tables only."""
        created = (_as_sent(name, event) for name in created_names(event.changes))
        names = tuple((self.selection.mirror_key(name), name) for name in created if self.selection.includes(name))
        keyed = [with_keys(change, self.selection.key) for change in event.changes]
        event = replace(event, changes=tuple(keyed), created=names)
        if self.selection.is_identity:
            return event
        mirrored: list[SchemaChange] = []
        of_event = replace(self, between=_names_between(keyed, self.selection))
        for change in keyed:
            if self.definitions is not None:
                self.definitions.follow(event, change)
            mirrored += of_event._mirrored(change)
        return replace(event, changes=tuple(mirrored))

    def _mirrored(self, change: SchemaChange) -> list[SchemaChange]:
        names, is_in = table_names(change), self._includes
        if isinstance(change, RecoverDatabase) and (self.selection.routes or change.new_database is not None):
            return [NotSupported(f"{change.description()}: not all of its tables are included under their own names")]
        if not names:
            return [change]
        if not any(map(is_in, names)):
            return [replace(change, name=None)] if isinstance(change, NotSupported) and change.everywhere else []
        if self._have_own_mirrors(*names):
            return [self._own(change)]
        match change:
            case RenameTable():
                return self._renamed(change.name, change.new_name)
            case AlterTable():
                return self._altered(change)
            case RecoverTable():
                target = change.new_name or change.name
                return self._created(target, f"{target} was recovered from {change.name}, {_MISSING}")
            case CreateTableLike():
                unknown = f"CREATE TABLE LIKE {change.source}, whose definition is unknown"
                return self._created(change.name, unknown, if_not_exists=change.if_not_exists, lacks_rows=False)
            case CreateTable() | TruncateTable() | DropTable() | NotSupported():
                return [self._of_source(change)]
            case NoTableEffect() | DropDatabase() | RecoverDatabase() | OfSourceTable():
                raise AssertionError(f"{change.description()} names no table of upstream")
            case _:
                assert_never(change)

    def _have_own_mirrors(self, *names: TableName) -> bool:
        """Whether all of the tables are included, and none is merged with others."""
        return all(self._includes(name) and not self.selection.merges(name) for name in names)

    def _own(self, change: SchemaChange) -> SchemaChange:
        """The change of tables with mirrors of their own."""
        return with_names(change, self._mirror_key, self._mirror_key)

    def _of_source(self, change: SourceTableChange) -> SchemaChange:
        """The change of one included table, which may be merged."""
        assert change.name is not None
        if self.selection.merges(change.name):
            return OfSourceTable(self._mirror_key(change.name), change.name, change)
        return self._own(change)

    def _renamed(self, old: TableName, new: TableName) -> list[SchemaChange]:
        """A RENAME where a name is excluded or merged: rows are kept only within one merged mirror."""
        is_in, mirror_key = self._includes, self._mirror_key
        if self.selection.merges(old) and self.selection.merges(new) and mirror_key(old) == mirror_key(new):
            return [self._of_source(RenameTable(old, new))]
        if self._have_own_mirrors(old, new):
            return [self._own(RenameTable(old, new))]
        dropped = [self._of_source(DropTable(old))] if is_in(old) else []
        return [*dropped, *self._created(new, f"{new} was renamed from {old}, {_MISSING}")]

    def _created(
        self, name: TableName, unknown: str, *, if_not_exists: bool = False, lacks_rows: bool = True
    ) -> list[SchemaChange]:
        """A table that is created from an excluded or merged one: with its definition, or, if that is unknown, refused.

        unknown: the reason of the gap or refusal.
        """
        if not self._includes(name):
            return []
        state = None if self.definitions is None else self.definitions.definition(name)
        if state is None:
            return [self._of_source(NotSupported(unknown, name, creates=True))]
        gaps = (*state.gaps, Gap(GapKind.NOT_INCLUDED_BEFORE, unknown)) if lacks_rows else state.gaps
        return [self._of_source(CreateTable(name, state.schema, if_not_exists, gaps))]

    def _altered(self, change: AlterTable) -> list[SchemaChange]:
        """An ALTER TABLE where a table is excluded or merged: no rows are exchanged with it."""
        target = next((clause.name for clause in change.clauses if isinstance(clause, RenameTo)), change.name)
        exchanged = [clause.table for clause in change.clauses if isinstance(clause, ExchangePartition)]
        refused = [other for other in exchanged if not self._have_own_mirrors(change.name, other)]
        clauses = tuple(
            _not_exchanged(clause.table)
            if isinstance(clause, ExchangePartition) and clause.table in refused
            else clause
            for clause in change.clauses
            if not isinstance(clause, RenameTo)
        )
        parts = [AlterTable(change.name, clauses)] if clauses else []
        parts += [AlterTable(other, (_not_exchanged(change.name),)) for other in refused]
        found = [self._of_source(part) for part in parts if self._includes(part.name)]
        return [*found, *(self._renamed(change.name, target) if target != change.name else [])]


_MISSING = (
    "which is excluded or merged: earlier rows are missing; include both, without merging, and rebuild to add them"
)


def _not_exchanged(other: TableName) -> NotSupportedClause:
    what = f"EXCHANGE PARTITION with {other}: its rows are unknown, because a table is excluded or merged"
    return NotSupportedClause(what, of_rows=True)


def _names_between(changes: Iterable[SchemaChange], selection: TableSelection) -> frozenset[TableName]:
    found, taken = set(), set()
    for change in changes:
        if isinstance(change, RenameTable):
            if change.name in taken:
                found.add(change.name)
            if not selection.includes(change.new_name) and selection.includes(change.name):
                taken.add(change.new_name)
    return frozenset(found)


def _as_sent(name: TableName, event: DdlEvent) -> TableName:
    """The name as the message spells it, if it has the name: statements may spell it in any case."""
    if folded(name) == folded(TableName(event.database, event.table)):
        return TableName(event.database, event.table)
    is_in_database = name.database.lower() == event.database.lower()
    return replace(name, database=event.database) if is_in_database else name


def exclusion_reason(event: DdlEvent) -> str:
    """Why the event changes no mirror. `event`: with upstream's table names."""
    names = dict.fromkeys(name for change in event.changes for name in change.names().touched)
    tables = ", ".join(map(str, names))
    return f"not included: {tables}" if tables else "names no included table"
