"""The changes of one event of `ddl_history`.

DDL is parsed. Events whose rows were not sent become NotSupported, as no mirror can apply them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model.schema_changes import NotSupported, SchemaChange
from cdc_pipeline.mysql.model.table import TableName

DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT = "ddl", "other_ddl", "statement", "xa"
"""Values of `ddl_history.kind`: a MySQL DDL statement, a DDL statement of another database, a row change that was logged as
a statement, XA ROLLBACK."""

_RENAMES_TABLE = re.compile(r"\b(?:sp_)?rename\b(?!\s{1,99}(?:column|constraint|to\s{1,99}partition)\b)", re.I)
_OF_COLUMN = re.compile("'(?:column|index)'", re.I)
"""The object types of SQL Server's `sp_rename` other than tables."""


def event_changes(
    kind: str, database: str, table: str, sql: str, quotings: Sequence[Quoting] = (Quoting.MYSQL,)
) -> tuple[SchemaChange, ...]:
    """The changes of one event. Unqualified names get `database`. Never raises, see `parse_ddl`."""
    if kind == DDL_EVENT:
        return parse_ddl(sql, database, table, quotings)
    name = TableName(database, table) if table else None
    if kind == OTHER_DDL_EVENT:
        reason = "not applied: DDL of a database that is not MySQL"
        # a message about a rename has only the new name, so the renamed mirror is unknown
        return (NotSupported(reason, name, everywhere=name is None or _renames_a_table(sql)),)
    if kind == STATEMENT_EVENT:
        return (NotSupported("a change was logged as a statement (binlog_format), its rows were not sent", name),)
    return (NotSupported("XA ROLLBACK does not undo the rows that were sent at XA PREPARE", name),)


def _renames_a_table(sql: str) -> bool:
    return _RENAMES_TABLE.search(sql) is not None and _OF_COLUMN.search(sql) is None
