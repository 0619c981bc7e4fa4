"""The type and the table name of DDL messages."""

from __future__ import annotations

from cdc_pipeline_tests.histories.ddl import (
    AddKey,
    AlterTable,
    CreateDatabase,
    CreateTable,
    DropDatabase,
    DropKey,
    DropTables,
    ExchangePartition,
    RenameTables,
    Statement,
    TruncateTable,
)
from cdc_pipeline_tests.histories.shapes import Table


def ddl_type(statement: Statement, *, canal: bool = False) -> str:
    """The `type` that TiCDC sends (ticdc-facts §4), or the one of Canal's parser (canal-facts 35)."""
    if isinstance(statement, CreateTable):
        return "CREATE"
    if isinstance(statement, (DropDatabase, CreateDatabase)):
        return "QUERY"
    if isinstance(statement, DropTables):
        return "ERASE"
    if isinstance(statement, TruncateTable):
        return "TRUNCATE"
    if isinstance(statement, RenameTables):
        return "RENAME"
    if isinstance(statement, ExchangePartition):
        return "ALTER" if canal else "QUERY"
    assert isinstance(statement, AlterTable)
    kinds = {type(clause) for clause in statement.clauses}
    if kinds == {AddKey}:
        return "CINDEX"
    return "DINDEX" if kinds == {DropKey} and not canal else "ALTER"


def named_table(statement: Statement) -> Table | None:
    """The table that the message names: the new name of the first pair of a RENAME, the first table of a DROP.

    None if the message names only a database.
    """
    return None if isinstance(statement, (DropDatabase, CreateDatabase)) else statement.tables[0]


def statement_database(statement: Statement) -> str:
    """The database of unqualified names."""
    if isinstance(statement, (DropDatabase, CreateDatabase)):
        return statement.database
    return statement.tables[0].database
