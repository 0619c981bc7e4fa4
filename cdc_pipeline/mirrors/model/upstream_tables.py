"""Upstream's tables at one point of the stream, by key, and statements with names that lack a database.

Canal sends DDL that its parser does not know as QUERY with empty names (canal-facts 42). Where a statement qualifies the
table from which the encoder takes the message's `database`, the message does not show the session's (`CREATE TABLE a.t LIKE
s`). The session's database is the only one that has tables of all these names; if several have, each gets a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from itertools import groupby

from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, in_rename_order
from cdc_pipeline.mysql.model.change_names import created_names, unqualified_names, with_database, with_keys
from cdc_pipeline.mysql.model.schema_changes import DropDatabase, NotSupported, SchemaChange
from cdc_pipeline.mysql.model.table import TableName


def qualified_events(
    events: Iterable[DdlEvent], before: Callable[[], Iterable[TableName]], key: Callable[[TableName], TableName]
) -> list[DdlEvent]:
    """The events, in order, with a database in each name; the pairs of a RENAME that swaps names in the statement's order.

    before: the keys of the tables that exist before them, or have rows among them. Called only for a name without database
    and for such a RENAME.
    """
    found: list[DdlEvent] = []

    def existing() -> set[TableName]:
        tables = set(before())
        for change in (with_keys(change, key) for event in found for change in event.changes):
            if isinstance(change, DropDatabase):
                tables = {name for name in tables if not change.drops(name)}
            tables = tables.difference(change.names().removed).union(created_names([change]))
        return tables

    for _, same in groupby(events, key=lambda event: event.commit_ts):
        for event in in_rename_order([*same], existing):
            found.append(replace(event, changes=tuple(qualified(event.changes, event.database, existing))))
    return found


def qualified(
    changes: Sequence[SchemaChange], database: str, existing_tables: Callable[[], Set[TableName]]
) -> list[SchemaChange]:
    """The changes of a statement with the database of each name.

    database: that of the message, may be empty. existing_tables: called only for a statement with such names. If several
    tables match a name, or a table would be created in an unknown database, the changes become a `NotSupported` for each
    table that they may be about.
    """
    existing, created = unqualified_names(changes)
    if not existing and not created:
        return list(changes)
    tables = existing_tables()
    candidates = {name: _namesakes(name, tables) for name in sorted(existing)}
    known = [{table.database for table in found} for found in candidates.values() if found]
    databases = set.intersection(*known) if known else {database} - {""}
    if len(databases) == 1 and (existing or database):
        return [with_database(change, *databases) for change in changes]
    names = [name for change in changes for name in change.names().touched if name.database]
    names += [table for name in sorted(existing | created) for table in _namesakes(name, tables)]
    typed = ", ".join(name.table for name in sorted(existing | created))
    description = "; ".join(change.description() for change in changes)
    reason = f"neither the message nor the statement names the database of {typed}: {description}"
    return [NotSupported(reason, name) for name in dict.fromkeys(names)] or [NotSupported(reason)]


def _namesakes(name: TableName, tables: Iterable[TableName]) -> list[TableName]:
    """The tables of this name in any database, spelled the same if there are such."""
    found = sorted(table for table in tables if table.table.lower() == name.table.lower())
    return [table for table in found if table.table == name.table] or found
