"""What an event of `ddl_history` says: DDL is parsed; a change that came as no rows is what no mirror can follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.model.schema_changes import NotSupported
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange

DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT = "ddl", "other_ddl", "statement", "xa"
"""The kinds of `ddl_history`: a DDL statement, one of a database that does not speak MySQL's DDL, a change that was logged
as its statement instead of as rows, XA."""

_RENAMES_TABLE = re.compile(r"\b(?:sp_)?rename\b(?!\s{1,99}(?:column|constraint|to\s{1,99}partition)\b)", re.I)
_OF_COLUMN = re.compile("'(?:column|index)'", re.I)
"""What SQL Server's `sp_rename` says that it renames, in place of a table."""


def changes_of(kind: str, database: str, table: str, sql: str) -> tuple[SchemaChange, ...]:
    """The changes of one event. Unqualified names are in `database`. Never raises: see `parse_ddl`."""
    if kind == DDL_EVENT:
        return parse_ddl(sql, database, table)
    name = TableName(database, table) if table else None
    if kind == OTHER_DDL_EVENT:
        reason = "the statement is of a database that is not MySQL: it was not applied"
        # a message names a table that got another name by its new one: the mirror of the old one is not known
        return (NotSupported(reason, name, everywhere=name is None or _renames_a_table(sql)),)
    if kind == STATEMENT_EVENT:
        return (NotSupported("a change was logged as its statement (binlog_format), its rows were not sent", name),)
    return (NotSupported("XA ROLLBACK does not take back the rows that were sent at XA PREPARE", name),)


def _renames_a_table(sql: str) -> bool:
    return _RENAMES_TABLE.search(sql) is not None and _OF_COLUMN.search(sql) is None
