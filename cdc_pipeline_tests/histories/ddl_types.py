"""What a DDL message says beside its text: its type, and whose name it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    TruncateTable,
)

if TYPE_CHECKING:
    from cdc_pipeline_tests.histories.ddl import Statement
    from cdc_pipeline_tests.histories.shapes import Table


def ddl_type(statement: Statement, *, canal: bool = False) -> str:
    """The type as TiCDC tells it (ticdc-facts §4), or as Canal's parser does (canal-facts 35)."""
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
    """The table whose name the message has: the new one of the first pair of a RENAME, the first one that is dropped; None
    where it has only a database's."""
    return None if isinstance(statement, (DropDatabase, CreateDatabase)) else statement.tables[0]


def statement_database(statement: Statement) -> str:
    """Where names without a database lie."""
    if isinstance(statement, (DropDatabase, CreateDatabase)):
        return statement.database
    return statement.tables[0].database
