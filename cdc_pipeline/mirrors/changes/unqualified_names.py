"""Statements that name a table without its database, in a message that names none either.

Canal sends DDL that its parser does not know as QUERY with empty names (canal-facts 42). The one table of that name is
meant; where several have it, each is marked, so that none is silently wrong.
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
    """The events with every table's database found. `known` are the tables that exist before the first of them."""
    there = set(known)
    found = []
    for event in events:
        if event.database == "":
            changes = tuple(complete for change in event.changes for complete in _completed(change, there))
            event = replace(event, changes=changes)
        for change in event.changes:
            _follow(change, there)
        found.append(event)
    return found


def _completed(change: SchemaChange, there: set[TableName]) -> list[SchemaChange]:
    """The change with the database of its table; for each table it might mean one that cannot be applied."""
    name = getattr(change, "name", None)
    if not isinstance(name, TableName) or name.database:
        return [change]
    candidates = sorted(other for other in there if other.table == name.table)
    if len(candidates) == 1:
        return [_in_database(change, candidates[0].database)]
    reason = f"neither message nor statement names the database of {name.table}: {change.description()}"
    return [NotSupported(reason, candidate) for candidate in candidates] or [NotSupported(reason)]


def _in_database(change: SchemaChange, database: str) -> SchemaChange:
    """The change with every name that lacks a database in this one."""
    complete: SchemaChange = _with_names(change, database)
    if isinstance(complete, AlterTable):
        return replace(complete, clauses=tuple(_with_names(clause, database) for clause in complete.clauses))
    return complete


def _with_names(value: Any, database: str) -> Any:
    names = {item.name: found for item in fields(value) if isinstance(found := getattr(value, item.name), TableName)}
    return replace(value, **{key: replace(name, database=name.database or database) for key, name in names.items()})


def _follow(change: SchemaChange, there: set[TableName]) -> None:
    """Keeps up with which tables there are."""
    if isinstance(change, DropDatabase):
        there.difference_update([name for name in there if name.database == change.database])
    there.difference_update(change.names().removed)
    there.update(change.names().added)
