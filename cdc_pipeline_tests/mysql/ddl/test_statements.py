"""Events of `ddl_history`: DDL of other databases, and the key of a created table."""

from __future__ import annotations

import pytest

from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, OTHER_DDL_EVENT, event_changes
from cdc_pipeline.mysql.model.schema_changes import CreateTable, NotSupported
from cdc_pipeline.mysql.model.table import TableName

# Statement → whether it may change a table that the message does not name.
_STATEMENTS = {
    "ALTER TABLE public.t ADD COLUMN c integer": False,
    'ALTER TABLE "HR"."t" DROP ("C")': False,
    "ALTER TABLE t RENAME COLUMN a TO b": False,
    "EXEC sp_rename 'dbo.t.a', 'b', 'COLUMN'": False,
    "ALTER TABLE public.t ADD renamed int": False,
    "ALTER TABLE s RENAME TO t": True,
    "RENAME s TO t": True,
    "EXEC sp_rename 'dbo.s', 't'": True,
}


@pytest.mark.parametrize("sql", _STATEMENTS)
def test_ddl_of_another_database(sql: str) -> None:
    """Never parsed as MySQL's DDL."""
    (change,) = event_changes(OTHER_DDL_EVENT, "d.public", "t", sql)
    assert isinstance(change, NotSupported)
    assert (change.name, change.everywhere) == (TableName("d.public", "t"), _STATEMENTS[sql])


def test_ddl_of_another_database_without_a_table() -> None:
    (change,) = event_changes(OTHER_DDL_EVENT, "d", "", "DROP SCHEMA s CASCADE")
    assert isinstance(change, NotSupported)
    assert (change.name, change.everywhere) == (None, True)


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("CREATE TABLE t (a INT NOT NULL UNIQUE, b INT NOT NULL UNIQUE)", ("a",)),
        # TiDB numbers the keys of column definitions after the others
        ("CREATE TABLE t (a INT NOT NULL UNIQUE, b INT NOT NULL, UNIQUE (b))", ("b",)),
        ("CREATE TABLE t (a INT NOT NULL UNIQUE, b INT NOT NULL, UNIQUE (b, a))", ("a",)),
        ("CREATE TABLE t (a INT NOT NULL UNIQUE, b INT, UNIQUE (b))", ("a",)),
        ("CREATE TABLE t (a INT NOT NULL UNIQUE, b INT PRIMARY KEY)", ("b",)),
    ],
)
def test_the_handle_key_of_ticdc(sql: str, key: tuple[str, ...]) -> None:
    """Messages without other columns in DELETE name it."""
    (change,) = event_changes(DDL_EVENT, "d", "t", sql)
    assert isinstance(change, CreateTable)
    assert change.schema.row_key == key
