"""DDL as the mirrors of a selection see it: statements speak of upstream's tables, and become what they do to mirrors.

What concerns only tables that are left out is left out. A RENAME that leads out of the selection ends a mirror; one that
leads in makes one, of which the rows from before are missing and are said to be. What is said of a table that is merged
with others is said of it in its mirror (`schema_changes.OfShard`).
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
    OfShard,
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
    """`sources` are the tables of the mirrors, by mirror, as far as they are known. `definitions` are those of upstream's
    tables; without them what needs one counts as not known."""

    selection: TableSelection
    sources: Sources = field(default_factory=dict)
    definitions: UpstreamDefinitions | None = None

    def event(self, event: DdlEvent) -> DdlEvent:
        """The event with what its changes do to mirrors. It has no changes where all of them are left out."""
        if self.selection.everything:
            return event
        statement = _Statement(self, event, _passed_through(event, self.selection))
        changes: list[SchemaChange] = []
        notes: list[str] = []
        for change in event.changes:
            if self.definitions is not None:
                self.definitions.follow(event, change)
            found, said = statement.mirrored(change)
            changes += found
            notes += said
        return replace(event, changes=tuple(changes), notes=tuple(notes))

    def appearing(self, event: DdlEvent) -> list[TableName]:
        """The tables, by upstream's names, that the event brings into being and that are in."""
        names = (name for change in event.changes for name in _appearing(change))
        return [name for name in names if self.selection.is_in(name)]


def _appearing(change: SchemaChange) -> tuple[TableName, ...]:
    if isinstance(change, NotSupported) and change.creates and change.name is not None:
        return (change.name,)
    return (*change.names().added, *change.names().recovered)


def _passed_through(event: DdlEvent, selection: TableSelection) -> frozenset[TableName]:
    """Names that are left out and that a table has only between two RENAMEs of one statement, as when two are swapped."""
    found, taken = set(), set()
    for change in event.changes:
        if isinstance(change, RenameTable):
            if change.name in taken:
                found.add(change.name)
            if not selection.is_in(change.new_name):
                taken.add(change.new_name)
    return frozenset(found)


_Found = tuple[list["SchemaChange"], list[str]]
_NOTHING: _Found = ([], [])


@dataclass(frozen=True)
class _Statement:
    """The changes of one event; `passing` are the names that tables have only inside it, and `merged` the mirrors of those
    of them that are merged."""

    ddl: IncludedDdl
    event: DdlEvent
    passing: frozenset[TableName]
    merged: dict[TableName, TableName] = field(default_factory=dict)

    def _merged_into(self, name: TableName) -> TableName | None:
        """The mirror of a table that is merged with others; None for any other."""
        selection = self.ddl.selection
        if name in self.passing:
            return self.merged.get(name)
        return selection.routed(name) if selection.merges(name) else None

    def _is_in(self, name: TableName) -> bool:
        return name in self.passing or self.ddl.selection.is_in(name)

    def _routed(self, name: TableName) -> TableName:
        if name in self.passing:
            return TableName(name.database, f"{name.table}__between_renames")  # no mirror's own
        return self.ddl.selection.routed(name)

    def mirrored(self, change: SchemaChange) -> _Found:
        """What the change does to mirrors, and what is to be said of it besides."""
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
            case OfShard():
                raise AssertionError(f"{change.name}: a statement by upstream's names is expected")
            case _:
                assert_never(change)

    def _named(self, change: CreateTable | TruncateTable | DropTable | NotSupported) -> SchemaChange:
        """The change of one table, by the name of its mirror."""
        assert change.name is not None
        mirror = self._merged_into(change.name)
        return (
            replace(change, name=self._routed(change.name)) if mirror is None else OfShard(mirror, change.name, change)
        )

    def _of_database(self, change: DropDatabase | RecoverDatabase) -> list[SchemaChange]:
        selection = self.ddl.selection
        if isinstance(change, RecoverDatabase):
            if not selection.routes and change.new_database is None:
                return [change]
            return [NotSupported(f"{change.description()}: its tables are not all included under their own names")]
        if not selection.routes:
            return [change]
        own = {
            source: mirror
            for mirror, sources in self.ddl.sources.items()
            for source in sources
            if source.database == change.database
        }
        tables = frozenset(mirror for source, mirror in own.items() if self._merged_into(source) is None)
        shards = [self._named(DropTable(source)) for source in sorted(own) if self._merged_into(source) is not None]
        return [*([replace(change, tables=tables)] if tables or not shards else []), *shards]

    def _not_supported(self, change: NotSupported) -> list[SchemaChange]:
        if change.name is None:
            return [change]
        return [self._named(change)] if self._is_in(change.name) else []

    # ---- in and out by a name

    def _renamed(self, change: RenameTable | AlterTable, old: TableName, new: TableName) -> _Found:
        mirror = self._merged_into(old)
        if new in self.passing and mirror is not None:
            self.merged[new] = mirror
        if mirror is not None or self._merged_into(new) is not None:
            return self._renamed_merged(old, new)
        if self._is_in(old) and self._is_in(new):
            return [RenameTable(self._routed(old), self._routed(new))], []
        if self._is_in(old):
            said = f"{old} is {new} from now on, which is not included: its mirror goes as with a DROP"
            return [DropTable(self._routed(old))], [said]
        if not self._is_in(new):
            return _NOTHING
        return self._made(new, f"it was {old} before, which is not included: {_MISSING}"), []

    def _renamed_merged(self, old: TableName, new: TableName) -> _Found:
        """Of two names one or both of which are of merged tables: only inside one mirror do the rows go along."""
        mirror, target = self._merged_into(old), self._merged_into(new)
        if mirror is not None and mirror == target:
            return [OfShard(mirror, old, RenameTable(old, new))], []
        changes: list[SchemaChange] = []
        said: list[str] = []
        if self._is_in(old):
            changes.append(self._named(DropTable(old)))
            said.append(f"{old} is {new} from now on: its rows go as with a DROP")
        if self._is_in(new):
            lacking = "rows from before are not here, because those of merged tables do not go from mirror to mirror"
            changes += self._made(new, f"{new} was {old} before: {lacking}")
        return changes, said

    def _made(
        self, name: TableName, unknown: str, *, if_not_exists: bool = False, lacks_rows: bool = True
    ) -> list[SchemaChange]:
        """A table that comes from one that is left out: of its definition, where that is known."""
        state = None if self.ddl.definitions is None else self.ddl.definitions.of(name)
        if state is None:
            return [self._named(NotSupported(unknown, name, creates=True))]
        gaps = (*state.gaps, Gap(GapKind.NOT_INCLUDED_BEFORE, unknown)) if lacks_rows else state.gaps
        return [self._named(CreateTable(name, state.schema, if_not_exists, gaps))]

    def _recovered(self, change: RecoverTable) -> _Found:
        target = change.new_name or change.name
        if not self._is_in(target):
            said = f"{change.name} comes back as {target}, which is not included"
            return [], [said] if self._is_in(change.name) else []
        if self._merged_into(change.name) is not None or self._merged_into(target) is not None:
            unknown = f"{change.name} comes back: rows of tables that are merged are not kept apart"
            return self._made(target, unknown), []
        if self._is_in(change.name):
            new_name = None if change.new_name is None else self._routed(change.new_name)
            return [RecoverTable(self._routed(change.name), new_name)], []
        return self._made(target, f"{change.name} comes back as it, which is not included: {_MISSING}"), []

    # ---- made of another

    def _like(self, change: CreateTableLike) -> list[SchemaChange]:
        merged = self._merged_into(change.name) is not None or self._merged_into(change.source) is not None
        if self._is_in(change.source) and not merged:
            return [replace(change, name=self._routed(change.name), source=self._routed(change.source))]
        which = "whose definition is not known" if merged else "which is not included and whose definition is not known"
        unknown = f"CREATE TABLE LIKE {change.source}, {which}"
        return self._made(change.name, unknown, if_not_exists=change.if_not_exists, lacks_rows=False)

    def _as_select(self, change: CreateTableAsSelect) -> list[SchemaChange]:
        if not self.ddl.selection.routes and (self.ddl.definitions is None or not self.ddl.definitions.of(change.name)):
            return [change]  # perhaps the mirrors tell: they have upstream's names
        unknown = f"its rows are those of a query on tables whose definitions are not known: {change.query}"
        # the gap that it has in any case comes with its definition
        return self._made(change.name, unknown, if_not_exists=change.if_not_exists, lacks_rows=False)

    # ---- ALTER TABLE

    def _altered(self, change: AlterTable) -> _Found:
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

    def _altered_merged(self, change: AlterTable, target: TableName, exchanged: list[TableName]) -> _Found:
        """Where one of the tables is merged with others: rows do not change places with those of another table."""
        found: list[SchemaChange] = []
        said: list[str] = []
        if self._is_in(change.name):
            mirror = self._merged_into(change.name)
            clauses = tuple(
                _unmoved_rows(clause.table) if isinstance(clause, ExchangePartition) else clause
                for clause in change.clauses
                if not isinstance(clause, RenameTo)
            )
            altered = AlterTable(self._routed(change.name) if mirror is None else change.name, clauses)
            if clauses:
                found.append(altered if mirror is None else OfShard(mirror, change.name, altered))
        for other in exchanged:
            if self._is_in(other):
                mirror = self._merged_into(other)
                altered = AlterTable(self._routed(other) if mirror is None else other, (_unmoved_rows(change.name),))
                found.append(altered if mirror is None else OfShard(mirror, other, altered))
        if target != change.name:
            renamed, said = self._renamed(change, change.name, target)
            found += renamed
        return found, said

    def _clause(self, clause: Clause) -> Clause:
        if isinstance(clause, RenameTo):
            return RenameTo(self._routed(clause.name))
        if isinstance(clause, ExchangePartition):
            if not self._is_in(clause.table):
                return _unknown_rows(clause.table)
            return replace(clause, table=self._routed(clause.table))
        return clause


_MISSING = "rows from before are not here; a rebuild with both included takes them in"


def _unmoved_rows(other: TableName) -> NotSupportedClause:
    return NotSupportedClause(f"EXCHANGE PARTITION with {other}: rows of tables that are merged do not change places")


def _unknown_rows(other: TableName) -> NotSupportedClause:
    return NotSupportedClause(f"EXCHANGE PARTITION with {other}, which is not included: its rows are not known")


def left_out_words(event: DdlEvent) -> str:
    """Why an event does nothing to any mirror; `event` is as upstream has it."""
    names = dict.fromkeys(name for change in event.changes for name in change.names().touched)
    tables = ", ".join(map(str, names))
    return f"not included: {tables}" if tables else "speaks of no table that is included"
