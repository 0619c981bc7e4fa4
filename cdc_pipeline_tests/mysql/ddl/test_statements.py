"""Events of `ddl_history`: DDL of other databases, the key of a created table, and statements as messages show them."""

from __future__ import annotations

import pytest

from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, OTHER_DDL_EVENT, event_changes, without_literals
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
        ("CREATE TABLE t (a INT NOT NULL, UNIQUE (a) WHERE a > 1 AND a IN (2, 3), b INT NOT NULL UNIQUE)", ("b",)),
        # which TiCDC does not send
        ("CREATE TABLE t (a INT, b INT AS (a + 1) VIRTUAL NOT NULL UNIQUE)", ()),
        (
            "CREATE TABLE t (a INT NOT NULL, b INT AS (a + 1) VIRTUAL NOT NULL UNIQUE, UNIQUE (a, b), UNIQUE (a))",
            ("a",),
        ),
    ],
)
def test_the_handle_key_of_ticdc(sql: str, key: tuple[str, ...]) -> None:
    """Messages without other columns in DELETE name it."""
    (change,) = event_changes(DDL_EVENT, "d", "t", sql)
    assert isinstance(change, CreateTable)
    assert change.schema.row_key == key


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("ALTER TABLE `t 12` ADD c INT DEFAULT 5", "ALTER TABLE `t 12` ADD c INT DEFAULT …"),
        ("ALTER TABLE t\n  ADD c TEXT\tDEFAULT 'a@b.org'", "ALTER TABLE t ADD c TEXT DEFAULT '…'"),
        ("x 'it''s', \"q\"\"r\" y", "x '…', \"…\" y"),
        ("ADD `it's` INT DEFAULT 'v'", "ADD `it's` INT DEFAULT '…'"),
        # comments
        ("-- it's\nALTER TABLE t ADD c varchar(9) DEFAULT 'secret'", "ALTER TABLE t ADD c varchar(9) DEFAULT '…'"),
        ("# it's secret\nDROP TABLE t", "DROP TABLE t"),
        ("ALTER TABLE t /* don't */ COMMENT 'secret'", "ALTER TABLE t COMMENT '…'"),
        (
            "ALTER TABLE t COMMENT '-- x', ALGORITHM = INPLACE -- secret",
            "ALTER TABLE t COMMENT '…', ALGORITHM = INPLACE",
        ),
        ("ADD c TEXT DEFAULT '#', DROP d", "ADD c TEXT DEFAULT '…', DROP d"),
        ("ALTER TABLE t /*!99999 don't */ COMMENT 'secret' /*!99999 won't */", "ALTER TABLE t …"),
        ("ALTER TABLE t /* secret", "ALTER TABLE t …"),
        # numbers
        ("ADD c BIGINT(20) DEFAULT 4111111111111111", "ADD c BIGINT(20) DEFAULT …"),
        (
            "ADD c DECIMAL(10, 2) DEFAULT -4.50, ADD t2 DATETIME(6)",
            "ADD c DECIMAL(10, 2) DEFAULT -…, ADD t2 DATETIME(6)",
        ),
        (
            "DEFAULT 0x736563726574, DEFAULT x'73', DEFAULT b'01', DEFAULT 0b1",
            "DEFAULT …, DEFAULT x'…', DEFAULT b'…', DEFAULT …",
        ),
        ("VALUES LESS THAN (77), VALUES IN (1,.5,1e9)", "VALUES LESS THAN (…), VALUES IN (…,…,…)"),
        ("DEFAULT (char(115, 101))", "DEFAULT (char(…, …))"),
        ("DROP TABLE 2024_orders, db.t2024", "DROP TABLE 2024_orders, db.t2024"),
        # where a literal ends is not clear
        ("ALTER TABLE t ADD c TEXT DEFAULT 'C:\\' COMMENT 'secret'", "ALTER TABLE t …"),
        ("ALTER TABLE t ADD c TEXT DEFAULT 'it\\'s'", "ALTER TABLE t …"),
        ("ALTER TABLE t DEFAULT 'not closed", "ALTER TABLE t …"),
        ("DEFAULT 'not closed\\", "DEFAULT …"),
        ("DEFAULT 4111 'not closed", "DEFAULT …"),
        ("ALTER TABLE `t", "ALTER TABLE `t …"),
        ("a" * 300, "a" * 199 + "…"),
        ("DEFAULT '" + "secret" * 100 + "'", "DEFAULT '…'"),
        ("", ""),
    ],
)
def test_text_without_literals(statement: str, shown: str) -> None:
    assert without_literals(statement) == shown
