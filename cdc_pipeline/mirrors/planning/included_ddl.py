"""Translates DDL of upstream's tables into changes of the selected mirrors.

Changes of excluded tables only are removed. A RENAME to an excluded name drops the mirror. A RENAME from an excluded name
creates one, with a gap for earlier rows. Changes of a source table of a merged mirror become `schema_changes.OfSourceTable`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    CreateTable,
    CreateTableAsSelect,
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
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.planning.upstream_definitions import UpstreamDefinitions
    from cdc_pipeline.mirrors.settings.selection import Sources, TableSelection
    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange


@dataclass(frozen=True)
class IncludedDdl:
    """Translates the events of one stream."""

    selection: TableSelection
    sources: Sources = field(default_factory=dict)
    """The known source tables of each mirror."""
    definitions: UpstreamDefinitions | None = None
    """The definitions of upstream's tables, excluded ones included. None: all are unknown."""

    def mirrored_event(self, event: DdlEvent) -> DdlEvent:
        """The event with its changes of mirrors; without changes if it concerns excluded tables only."""
        if self.selection.is_identity:
            return event
        statement = _Statement(self, _transient_names(event, self.selection))
        changes: list[SchemaChange] = []
        notes: list[str] = []
        for change in event.changes:
            if self.definitions is not None:
                self.definitions.follow(event, change)
            mirrored, more_notes = statement.mirrored(change)
            changes += mirrored
            notes += more_notes
        return replace(event, changes=tuple(changes), notes=tuple(notes))

    def created_tables(self, event: DdlEvent) -> list[TableName]:
        """The included tables, by upstream's names, that the event creates, renames or restores."""
        names = (name for change in event.changes for name in _appearing(change))
        return [name for name in names if self.selection.includes(name)]


def _appearing(change: SchemaChange) -> tuple[TableName, ...]:
    if isinstance(change, NotSupported) and change.creates and change.name is not None:
        return (change.name,)
    return (*change.names().added, *change.names().recovered)


def _transient_names(event: DdlEvent, selection: TableSelection) -> frozenset[TableName]:
    """Excluded names that a table has only between two RENAMEs of one statement, as in a swap of two tables."""
    found, taken = set(), set()
    for change in event.changes:
        if isinstance(change, RenameTable):
            if change.name in taken:
                found.add(change.name)
            if not selection.includes(change.new_name):
                taken.add(change.new_name)
    return frozenset(found)


_Translated = tuple[list["SchemaChange"], list[str]]
"""Changes of mirrors, and notes for the outcome of the event."""
_NOTHING: _Translated = ([], [])


@dataclass(frozen=True)
class _Statement:
    """Translates the changes of one event."""

    ddl: IncludedDdl
    transient: frozenset[TableName]
    """The names of `_transient_names`."""
    merged: dict[TableName, TableName] = field(default_factory=dict)
    """Transient name → the merged mirror of its table."""

    def _merged_into(self, name: TableName) -> TableName | None:
        """The merged mirror of a source table; None for a table with a mirror of its own."""
        selection = self.ddl.selection
        if name in self.transient:
            return self.merged.get(name)
        return selection.mirror_name(name) if selection.merges(name) else None

    def _is_in(self, name: TableName) -> bool:
        return name in self.transient or self.ddl.selection.includes(name)

    def _routed(self, name: TableName) -> TableName:
        if name in self.transient:
            return TableName(name.database, f"{name.table}__between_renames")  # no mirror's own
        return self.ddl.selection.mirror_name(name)

    def mirrored(self, change: SchemaChange) -> _Translated:
        match change:
            case NoTableEffect():
                return [change], []
            case DropDatabase() | RecoverDatabase():
                return self._of_database(change), []
            case NotSupported():
                return self._not_supported(change), []
            case AlterTable():
                return self._altered(change)
            case RenameTable():
                return self._renamed(change, change.name, change.new_name)
            case RecoverTable():
                return self._recovered(change)
            case CreateTableLike():
                return (self._like(change), []) if self._is_in(change.name) else _NOTHING
            case CreateTableAsSelect():
                return (self._as_select(change), []) if self._is_in(change.name) else _NOTHING
            case CreateTable() | TruncateTable() | DropTable():
                return ([self._named(change)], []) if self._is_in(change.name) else _NOTHING
            case OfSourceTable():
                raise AssertionError(
                    f"{change.name}: expected a change by upstream's table names, found one of a merged mirror"
                )
            case _:
                assert_never(change)

    def _named(self, change: CreateTable | TruncateTable | DropTable | NotSupported) -> SchemaChange:
        """The change under the name of the table's mirror."""
        assert change.name is not None
        mirror = self._merged_into(change.name)
        return (
            replace(change, name=self._routed(change.name))
            if mirror is None
            else OfSourceTable(mirror, change.name, change)
        )

    def _of_database(self, change: DropDatabase | RecoverDatabase) -> list[SchemaChange]:
        selection = self.ddl.selection
        if isinstance(change, RecoverDatabase):
            if not selection.routes and change.new_database is None:
                return [change]
            return [NotSupported(f"{change.description()}: not all of its tables are included under their own names")]
        if not selection.routes:
            return [change]
        own = {
            source: mirror
            for mirror, sources in self.ddl.sources.items()
            for source in sources
            if source.database == change.database
        }
        tables = frozenset(mirror for source, mirror in own.items() if self._merged_into(source) is None)
        merged = [self._named(DropTable(source)) for source in sorted(own) if self._merged_into(source) is not None]
        return [*([replace(change, tables=tables)] if tables or not merged else []), *merged]

    def _not_supported(self, change: NotSupported) -> list[SchemaChange]:
        if change.name is None:
            return [change]
        if self._is_in(change.name):
            return [self._named(change)]
        return [replace(change, name=None)] if change.everywhere else []

    # ---- RENAME, RECOVER

    def _renamed(self, change: RenameTable | AlterTable, old: TableName, new: TableName) -> _Translated:
        mirror = self._merged_into(old)
        if new in self.transient and mirror is not None:
            self.merged[new] = mirror
        if mirror is not None or self._merged_into(new) is not None:
            return self._renamed_merged(old, new)
        if self._is_in(old) and self._is_in(new):
            return [RenameTable(self._routed(old), self._routed(new))], []
        if self._is_in(old):
            note = f"{old} was renamed to {new}, which is not included: its mirror is dropped"
            return [DropTable(self._routed(old))], [note]
        if not self._is_in(new):
            return _NOTHING
        return self._created(new, f"it was renamed from {old}, which is not included: {_MISSING}"), []

    def _renamed_merged(self, old: TableName, new: TableName) -> _Translated:
        """A RENAME where one or both names belong to a merged mirror: rows are kept only within one mirror."""
        mirror, target = self._merged_into(old), self._merged_into(new)
        if mirror is not None and mirror == target:
            return [OfSourceTable(mirror, old, RenameTable(old, new))], []
        changes: list[SchemaChange] = []
        notes: list[str] = []
        if self._is_in(old):
            changes.append(self._named(DropTable(old)))
            notes.append(f"{old} was renamed to {new}: its rows are deleted as by a DROP")
        if self._is_in(new):
            reason = "earlier rows are missing, because rows of merged tables do not move between mirrors"
            changes += self._created(new, f"{new} was renamed from {old}: {reason}")
        return changes, notes

    def _created(
        self, name: TableName, unknown: str, *, if_not_exists: bool = False, lacks_rows: bool = True
    ) -> list[SchemaChange]:
        """A table that is created from an excluded one: with its definition, or, if that is unknown, refused.

        unknown: the reason of the gap or refusal.
        """
        state = None if self.ddl.definitions is None else self.ddl.definitions.definition(name)
        if state is None:
            return [self._named(NotSupported(unknown, name, creates=True))]
        gaps = (*state.gaps, Gap(GapKind.NOT_INCLUDED_BEFORE, unknown)) if lacks_rows else state.gaps
        return [self._named(CreateTable(name, state.schema, if_not_exists, gaps))]

    def _recovered(self, change: RecoverTable) -> _Translated:
        target = change.new_name or change.name
        if not self._is_in(target):
            note = f"{change.name} was recovered as {target}, which is not included"
            return [], [note] if self._is_in(change.name) else []
        if self._merged_into(change.name) is not None or self._merged_into(target) is not None:
            unknown = f"{change.name} was recovered without rows: a merged mirror keeps no rows of dropped tables"
            return self._created(target, unknown), []
        if self._is_in(change.name):
            new_name = None if change.new_name is None else self._routed(change.new_name)
            return [replace(change, name=self._routed(change.name), new_name=new_name)], []
        return self._created(target, f"it was recovered from {change.name}, which is not included: {_MISSING}"), []

    # ---- CREATE TABLE LIKE, CREATE TABLE SELECT

    def _like(self, change: CreateTableLike) -> list[SchemaChange]:
        merged = self._merged_into(change.name) is not None or self._merged_into(change.source) is not None
        if self._is_in(change.source) and not merged:
            return [replace(change, name=self._routed(change.name), source=self._routed(change.source))]
        which = "whose definition is unknown" if merged else "which is not included and whose definition is unknown"
        unknown = f"CREATE TABLE LIKE {change.source}, {which}"
        return self._created(change.name, unknown, if_not_exists=change.if_not_exists, lacks_rows=False)

    def _as_select(self, change: CreateTableAsSelect) -> list[SchemaChange]:
        if not self.ddl.selection.routes and (
            self.ddl.definitions is None or not self.ddl.definitions.definition(change.name)
        ):
            return [change]  # the planner may know the definitions: the mirrors have upstream's names
        unknown = f"its rows come from a query on tables with unknown definitions: {change.query}"
        # its definition has the gap of its first rows already
        return self._created(change.name, unknown, if_not_exists=change.if_not_exists, lacks_rows=False)

    # ---- ALTER TABLE

    def _altered(self, change: AlterTable) -> _Translated:
        target = next((clause.name for clause in change.clauses if isinstance(clause, RenameTo)), change.name)
        exchanged = [clause for clause in change.clauses if isinstance(clause, ExchangePartition)]
        if any(map(self._merged_into, (change.name, target, *(clause.table for clause in exchanged)))):
            return self._altered_merged(change, target, [clause.table for clause in exchanged])
        if self._is_in(change.name) and self._is_in(target):
            clauses = tuple(map(self._clause, change.clauses))
            return [AlterTable(self._routed(change.name), clauses)], []
        if target != change.name and (self._is_in(change.name) or self._is_in(target)):
            return self._renamed(change, change.name, target)
        return [
            AlterTable(self._routed(clause.table), (_unknown_rows(change.name),))
            for clause in exchanged
            if self._is_in(clause.table)
        ], []

    def _altered_merged(self, change: AlterTable, target: TableName, exchanged: list[TableName]) -> _Translated:
        """An ALTER TABLE where one of the tables belongs to a merged mirror: EXCHANGE PARTITION is refused."""
        changes: list[SchemaChange] = []
        notes: list[str] = []
        if self._is_in(change.name):
            mirror = self._merged_into(change.name)
            clauses = tuple(
                _rows_not_exchanged(clause.table) if isinstance(clause, ExchangePartition) else clause
                for clause in change.clauses
                if not isinstance(clause, RenameTo)
            )
            altered = AlterTable(self._routed(change.name) if mirror is None else change.name, clauses)
            if clauses:
                changes.append(altered if mirror is None else OfSourceTable(mirror, change.name, altered))
        for other in exchanged:
            if self._is_in(other):
                mirror = self._merged_into(other)
                altered = AlterTable(
                    self._routed(other) if mirror is None else other, (_rows_not_exchanged(change.name),)
                )
                changes.append(altered if mirror is None else OfSourceTable(mirror, other, altered))
        if target != change.name:
            renamed, notes = self._renamed(change, change.name, target)
            changes += renamed
        return changes, notes

    def _clause(self, clause: Clause) -> Clause:
        if isinstance(clause, RenameTo):
            return RenameTo(self._routed(clause.name))
        if isinstance(clause, ExchangePartition):
            if not self._is_in(clause.table):
                return _unknown_rows(clause.table)
            return replace(clause, table=self._routed(clause.table))
        return clause


_MISSING = "earlier rows are missing; include both tables and rebuild to add them"


def _rows_not_exchanged(other: TableName) -> NotSupportedClause:
    return NotSupportedClause(
        f"EXCHANGE PARTITION with {other}: rows of merged tables cannot be exchanged", of_rows=True
    )


def _unknown_rows(other: TableName) -> NotSupportedClause:
    return NotSupportedClause(
        f"EXCHANGE PARTITION with {other}, which is not included: its rows are unknown", of_rows=True
    )


def exclusion_reason(event: DdlEvent) -> str:
    """Why the event changes no mirror. `event`: with upstream's table names."""
    names = dict.fromkeys(name for change in event.changes for name in change.names().touched)
    tables = ", ".join(map(str, names))
    return f"not included: {tables}" if tables else "names no included table"
