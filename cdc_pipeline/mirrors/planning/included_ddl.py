"""Translates DDL of upstream's tables into changes of the selected mirrors.

An excluded table has no mirror, so the planner knows nothing about it. Changes of excluded tables only are removed. A RENAME
to an excluded name drops the mirror. A RENAME from one creates an empty mirror with a gap. Changes of a source table of a
merged mirror become `schema_changes.OfSourceTable`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.change_names import created_names, folded, table_names, with_keys, with_names
from cdc_pipeline.mysql.model.table import TableName, TableSchema

_MISSING = (
    "which is excluded or merged: earlier rows are missing; include both, without merging, and rebuild to add them"
)


def mirrored_event(event: DdlEvent, selection: TableSelection) -> DdlEvent:
    """The event with its changes of mirrors, by key; without changes if it concerns excluded tables only."""
    created = (_as_sent(name, event) for name in created_names(event.changes))
    names = tuple((selection.mirror_key(name), name) for name in created if selection.includes(name))
    changes = tuple(with_keys(change, selection.key) for change in event.changes)
    if not selection.is_identity:
        translation = _Translation(selection, _names_between(changes, selection))
        changes = tuple(found for change in changes for found in translation.mirrored(change))
    return replace(event, changes=changes, created=names)


@dataclass(frozen=True)
class _Translation:
    """Translates the changes of one event."""

    selection: TableSelection
    between: frozenset[TableName]
    """Excluded names that a table has only between two RENAMEs of the statement, as in a swap of two tables."""

    def mirrored(self, change: ddl.SchemaChange) -> list[ddl.SchemaChange]:
        if isinstance(change, ddl.RecoverDatabase) and (self.selection.routes or change.new_database is not None):
            return [
                ddl.NotSupported(f"{change.description()}: not all of its tables are included under their own names")
            ]
        names = table_names(change)
        if not names:
            return [change]
        if not any(map(self._includes, names)):
            return [replace(change, name=None)] if isinstance(change, ddl.NotSupported) and change.everywhere else []
        if isinstance(change, ddl.RenameTable):
            return self._renamed(change.name, change.new_name)
        if isinstance(change, ddl.AlterTable):
            return self._altered(change)
        if isinstance(change, (ddl.CreateTable, ddl.TruncateTable, ddl.DropTable, ddl.NotSupported)):
            return [self._of_table(change)]
        return self._created(change)

    def _includes(self, name: TableName) -> bool:
        return name in self.between or self.selection.includes(name)

    def _has_own_mirror(self, name: TableName) -> bool:
        return self._includes(name) and not self.selection.merges(name)

    def _key(self, name: TableName) -> TableName:
        """The key of the table's own mirror; a name that no mirror has if there is none."""
        if name in self.between:
            return replace(name, table=f"{name.table} (between two RENAMEs)")
        if not self._has_own_mirror(name):
            return replace(name, table=f"{name.table} (excluded or merged)")
        return self.selection.mirror_key(name)

    def _own(self, change: ddl.SchemaChange) -> ddl.SchemaChange:
        return with_names(change, self._key)

    def _of_table(self, change: ddl.SourceTableChange) -> ddl.SchemaChange:
        """The change of one included table, which may be merged."""
        assert change.name is not None
        if self.selection.merges(change.name):
            return ddl.OfSourceTable(self.selection.mirror_key(change.name), change.name, change)
        return self._own(change)

    def _created(self, change: ddl.SchemaChange) -> list[ddl.SchemaChange]:
        """CREATE TABLE LIKE and RECOVER."""
        (name,) = created_names([change])
        if not self._includes(name):
            return []
        if isinstance(change, ddl.CreateTableLike) and self._share_a_mirror(name, change.source):
            return [self._of_table(change)]
        if self.selection.merges(name):
            reason = f"{change.description()}: the definition is unknown, because a table is merged"
            return [self._of_table(ddl.NotSupported(reason, name, creates=True))]
        return [self._own(change)]

    def _share_a_mirror(self, one: TableName, other: TableName) -> bool:
        merges, key = self.selection.merges, self.selection.mirror_key
        return merges(one) and merges(other) and key(one) == key(other)

    def _renamed(self, old: TableName, new: TableName) -> list[ddl.SchemaChange]:
        """A RENAME. Where a name is excluded or merged, rows are kept only within one merged mirror."""
        if self._share_a_mirror(old, new):
            return [self._of_table(ddl.RenameTable(old, new))]
        if self._has_own_mirror(old) and self._has_own_mirror(new):
            return [self._own(ddl.RenameTable(old, new))]
        found = [self._of_table(ddl.DropTable(old))] if self._includes(old) else []
        if self._includes(new):
            gap = Gap(GapKind.NOT_INCLUDED_BEFORE, f"{new} was renamed from {old}, {_MISSING}")
            found.append(self._of_table(ddl.CreateTable(new, TableSchema(()), gaps=(gap,))))
        return found

    def _altered(self, change: ddl.AlterTable) -> list[ddl.SchemaChange]:
        """An ALTER TABLE: no rows are exchanged with an excluded or merged table, and its RENAME is one of `_renamed`."""
        target = next((clause.name for clause in change.clauses if isinstance(clause, ddl.RenameTo)), change.name)
        exchanged = [clause.table for clause in change.clauses if isinstance(clause, ddl.ExchangePartition)]
        if all(map(self._has_own_mirror, (change.name, target, *exchanged))):
            return [self._own(change)]
        clauses = tuple(
            _not_exchanged(clause.table) if isinstance(clause, ddl.ExchangePartition) else clause
            for clause in change.clauses
            if not isinstance(clause, ddl.RenameTo)
        )
        parts = [ddl.AlterTable(change.name, clauses)] if clauses else []
        parts += [ddl.AlterTable(other, (_not_exchanged(change.name),)) for other in exchanged]
        found = [self._of_table(part) for part in parts if self._includes(part.name)]
        return [*found, *(self._renamed(change.name, target) if target != change.name else [])]


def _not_exchanged(other: TableName) -> ddl.NotSupportedClause:
    what = f"EXCHANGE PARTITION with {other}: its rows are unknown, because a table is excluded or merged"
    return ddl.NotSupportedClause(what, of_rows=True)


def _names_between(changes: Iterable[ddl.SchemaChange], selection: TableSelection) -> frozenset[TableName]:
    found, taken = set(), set()
    for change in changes:
        if isinstance(change, ddl.RenameTable):
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
