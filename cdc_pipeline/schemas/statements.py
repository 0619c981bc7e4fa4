"""What an event of `ddl_history` says: DDL is parsed; a change that came as no rows is what no mirror can follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.schemas.changes import NotSupported
from cdc_pipeline.schemas.ddl_parser import parse_ddl
from cdc_pipeline.schemas.table import TableName

if TYPE_CHECKING:
    from cdc_pipeline.schemas.changes import SchemaChange

DDL_EVENT, STATEMENT_EVENT, XA_EVENT = "ddl", "statement", "xa"
"""The kinds of `ddl_history`: a DDL statement, a change that was logged as its statement instead of as rows, XA."""


def changes_of(kind: str, database: str, table: str, sql: str) -> tuple[SchemaChange, ...]:
    """The changes of one event. Unqualified names are in `database`. Never raises: see `parse_ddl`."""
    if kind == DDL_EVENT:
        return parse_ddl(sql, database, table)
    name = TableName(database, table) if table else None
    if kind == STATEMENT_EVENT:
        return (NotSupported("a change was logged as its statement (binlog_format), its rows were not sent", name),)
    return (NotSupported("XA ROLLBACK does not take back the rows that were sent at XA PREPARE", name),)
