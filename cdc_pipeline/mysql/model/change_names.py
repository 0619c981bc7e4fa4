"""Replaces the table names of a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.table import TableName


def folded(name: TableName) -> TableName:
    """The name in lower case: equal for names that differ in case alone."""
    return TableName(name.database.lower(), name.table.lower())


def with_names(change: ddl.SchemaChange, renamed: Callable[[TableName], TableName]) -> ddl.SchemaChange:
    """The statement with other table names."""
    named: ddl.SchemaChange = _with_names(change, renamed)
    if isinstance(named, ddl.AlterTable):
        return replace(named, clauses=tuple(_with_names(clause, renamed) for clause in named.clauses))
    return named


def _with_names(value: Any, renamed: Callable[[TableName], TableName]) -> Any:
    names = {item.name: name for item in fields(value) if isinstance(name := getattr(value, item.name), TableName)}
    found = {field: renamed(name) for field, name in names.items()}
    return value if found == names else replace(value, **found)


def unqualified_names(changes: Iterable[ddl.SchemaChange]) -> tuple[set[TableName], set[TableName]]:
    """The names without database of a statement's changes: (of tables that exist before it, of those that it creates)."""
    before, after = set[TableName](), set[TableName]()
    for change in changes:
        names = {name for name in table_names(change) if not name.database}
        created = names.intersection(created_names([change]))
        before |= names - created - after
        after |= created
    return before, after


def table_names(change: ddl.SchemaChange) -> list[TableName]:
    """The tables that the statement names."""
    found: list[TableName] = []

    def collect(name: TableName) -> TableName:
        found.append(name)
        return name

    with_names(change, collect)
    return found


def created_names(changes: Iterable[ddl.SchemaChange]) -> list[TableName]:
    """The names that tables have after the changes and not before: of created, renamed and recovered ones."""
    found: list[TableName] = []
    for change in changes:
        if isinstance(change, ddl.NotSupported) and change.creates and change.name is not None:
            found.append(change.name)
        found += (*change.names().added, *change.names().recovered)
    return found


def with_database(change: ddl.SchemaChange, database: str) -> ddl.SchemaChange:
    """The change with this database in every name that lacks one."""

    def qualify(name: TableName) -> TableName:
        return replace(name, database=name.database or database)

    return with_names(change, qualify)


def with_keys(change: ddl.SchemaChange, key: Callable[[TableName], TableName]) -> ddl.SchemaChange:
    """The statement with the key of each name of a table or database."""
    if isinstance(change, (ddl.DropDatabase, ddl.RecoverDatabase)):
        return replace(change, database=key(TableName(change.database, "")).database)
    return with_names(change, key)


def with_sent_name(changes: tuple[ddl.SchemaChange, ...], sent: TableName) -> tuple[ddl.SchemaChange, ...]:
    """The changes of a statement of TiCDC, whose message has the table `sent`.

    TiCDC finds the table by its id. The statement has its name as of when it was queued: a RENAME may have run before it
    (tidb #32610, ticdc #2298). One that cannot be read may be about either. Of several tables, the message has any.
    """
    names = [name for change in changes for name in table_names(change)]
    if len(names) != 1 or not sent.database or not sent.table or folded(names[0]) == folded(sent):
        return changes
    match changes:
        case (ddl.AlterTable() | ddl.TruncateTable() | ddl.DropTable() as change,):
            return (replace(change, name=sent),)
        case (ddl.NotSupported(creates=False) as change,):
            return (change, replace(change, name=sent))
    return changes
