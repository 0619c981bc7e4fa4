"""Statements whose table has no database, neither in the statement nor in the message.

Canal sends DDL that its parser does not know as QUERY with empty names (canal-facts 42). If one database has a table of
that name, the statement is about it. If several have one, each gets a gap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.model.change_names import with_names
from cdc_pipeline.mysql.model.schema_changes import NotSupported
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_pipeline.mysql.model.schema_changes import SchemaChange


def qualified(change: SchemaChange, tables: Iterable[TableName]) -> list[SchemaChange]:
    """The change with the database of its table. If several of `tables` match, a `NotSupported` for each."""
    name = getattr(change, "name", None)
    if not isinstance(name, TableName) or name.database:
        return [change]
    known = sorted(tables)
    candidates = [other for other in known if other.table == name.table]
    candidates = candidates or [other for other in known if other.table.lower() == name.table.lower()]
    if len({candidate.database for candidate in candidates}) == 1:
        return [_in_database(change, candidates[0].database)]
    reason = f"neither the message nor the statement names the database of {name.table}: {change.description()}"
    return [NotSupported(reason, candidate) for candidate in candidates] or [NotSupported(reason)]


def _in_database(change: SchemaChange, database: str) -> SchemaChange:
    """The change with `database` in every name that lacks one."""

    def qualify(name: TableName) -> TableName:
        return replace(name, database=name.database or database)

    return with_names(change, qualify, qualify)
