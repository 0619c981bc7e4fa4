"""Statements whose table has no database, neither in the statement nor in the message.

Canal sends DDL that its parser does not know as QUERY with empty names (canal-facts 42). If one database has a table of
that name, the statement is about it. If several have one, each gets a gap.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    DropDatabase,
    NotSupported,
)
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange


def with_databases(events: Iterable[DdlEvent], known: Iterable[TableName]) -> list[DdlEvent]:
    """Adds the missing databases to the changes of `events`, in order. `known`: the tables that exist before them."""
    tables = set(known)
    found = []
    for event in events:
        if event.database == "":
            changes = tuple(qualified for change in event.changes for qualified in _qualified(change, tables))
            event = replace(event, changes=changes)
        for change in event.changes:
            _update(tables, change)
        found.append(event)
    return found


def _qualified(change: SchemaChange, tables: set[TableName]) -> list[SchemaChange]:
    """The change with the database of its table. If several tables match, a `NotSupported` for each."""
    name = getattr(change, "name", None)
    if not isinstance(name, TableName) or name.database:
        return [change]
    candidates = sorted(other for other in tables if other.table == name.table)
    if len(candidates) == 1:
        return [_in_database(change, candidates[0].database)]
    reason = f"neither the message nor the statement names the database of {name.table}: {change.description()}"
    return [NotSupported(reason, candidate) for candidate in candidates] or [NotSupported(reason)]


def _in_database(change: SchemaChange, database: str) -> SchemaChange:
    """The change with `database` in every name that lacks one."""
    qualified: SchemaChange = _with_database(change, database)
    if isinstance(qualified, AlterTable):
        return replace(qualified, clauses=tuple(_with_database(clause, database) for clause in qualified.clauses))
    return qualified


def _with_database(value: Any, database: str) -> Any:
    names = {item.name: found for item in fields(value) if isinstance(found := getattr(value, item.name), TableName)}
    return replace(value, **{key: replace(name, database=name.database or database) for key, name in names.items()})


def _update(tables: set[TableName], change: SchemaChange) -> None:
    """Applies the change to the set of existing tables."""
    if isinstance(change, DropDatabase):
        tables.difference_update([name for name in tables if name.database == change.database])
    tables.difference_update(change.names().removed)
    tables.update(change.names().added)
