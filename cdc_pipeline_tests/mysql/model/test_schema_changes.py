"""What statements and clauses report about themselves.

Descriptions are stored in `ddl_history.changes`. If one changes, each rebuild rewrites that table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import pytest

from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.expressions.conversions import conversion_doubt
from cdc_pipeline.mysql.model.base_changes import BaseClause, TableNames
from cdc_pipeline.mysql.model.schema_changes import (
    AlterTable,
    Clause,
    NotSupportedClause,
    OfSourceTable,
    PartitionRowsClause,
    RowKeepingClause,
    SchemaChange,
)
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema

T, U, MERGED = TableName("db", "t"), TableName("db", "u"), TableName("m", "all")
SCHEMA = TableSchema((Column("a", MySqlType("int")), Column("b", MySqlType("varchar", (10,)))))

STATEMENTS = [
    ("CREATE TABLE t (a INT, b VARCHAR(9))", "CreateTable db.t (a int, b varchar(9))", TableNames((T,), created=(T,))),
    ("CREATE TABLE t LIKE u", "CreateTableLike db.t like db.u", TableNames((T,), created=(T,), read=(U,))),
    (
        "CREATE TABLE t AS SELECT a FROM u",
        "NotSupported the columns and rows of a query were not sent (position 15)",
        TableNames((T,)),
    ),
    ("ALTER TABLE t ADD a INT, DROP b", "AlterTable db.t: AddColumn a int, DropColumn b", TableNames((T,))),
    ("ALTER TABLE t ADD INDEX (a)", "AlterTable db.t: AddIndex (a)", TableNames(read=(T,))),
    ("ALTER TABLE t RENAME u", "AlterTable db.t: RenameTo db.u", TableNames((T, U), renamed=((T, U),))),
    (
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
        "AlterTable db.t: ExchangePartition p with db.u validated",
        TableNames((T, U)),
    ),
    ("RENAME TABLE t TO u", "RenameTable db.t to db.u", TableNames((T, U), renamed=((T, U),))),
    ("TRUNCATE t", "TruncateTable db.t", TableNames((T,), emptied=(T,))),
    ("DROP TABLE t", "DropTable db.t", TableNames((T,), dropped=(T,))),
    ("DROP DATABASE db", "DropDatabase db", TableNames()),
    ("RECOVER TABLE t", "RecoverTable db.t", TableNames((T,), recovered=(T,))),
    ("FLASHBACK TABLE t TO u", "RecoverTable db.t to db.u", TableNames((U,), recovered=(U,), read=(T,))),
    ("FLASHBACK DATABASE db", "RecoverDatabase db", TableNames()),
    ("FLASHBACK DATABASE db TO dc", "RecoverDatabase db to dc", TableNames()),
    ("CREATE DATABASE db", "NoTableEffect CREATE DATABASE", TableNames()),
    ("ALTER TABLE t ADD a FOO", "NotSupported unknown column type 'foo' (position 20)", TableNames((T,))),
]

CLAUSES = [
    ("ADD c INT UNSIGNED AFTER a", "AddColumn c int unsigned after a", False),
    ("DROP a", "DropColumn a", True),
    ("CHANGE a c BIGINT", "ChangeColumn a c bigint", False),
    ("MODIFY b INT", "ChangeColumn b b int", True),
    ("RENAME COLUMN a TO c", "RenameColumn a to c", False),
    ("ALTER a SET DEFAULT 1", "SetDefault a", False),
    ("ADD PRIMARY KEY (a, b)", "AddPrimaryKey a, b", False),
    ("DROP PRIMARY KEY", "DropPrimaryKey", False),
    ("ADD UNIQUE k (a, b)", "AddUniqueKey k (a, b)", False),
    ("ADD INDEX k (a, b)", "AddIndex k (a, b)", False),
    ("DROP INDEX k", "DropIndex k", False),
    ("RENAME INDEX k TO l", "RenameIndex k to l", False),
    (
        "ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES u (b) ON DELETE CASCADE",
        "AddForeignKey f to .u (ON DELETE CASCADE)",
        False,
    ),
    ("DROP FOREIGN KEY f", "DropForeignKey f", False),
    ("ENGINE=BLACKHOLE", "SetEngine BLACKHOLE", False),
    ("RENAME u", "RenameTo db.u", False),
    ("DEFAULT CHARSET utf8mb4", "DefaultCharset utf8mb4", False),
    ("CONVERT TO CHARSET latin1 COLLATE latin1_bin", "ConvertCharset latin1 latin1_bin", False),
    ("COMMENT 'x'", "NoRowEffect COMMENT 'x'", False),
    ("TRUNCATE PARTITION p, q", "TruncatePartition p, q", True),
    ("TRUNCATE PARTITION ALL", "TruncatePartition", True),
    ("DROP PARTITION IF EXISTS p", "DropPartition p if exists", True),
    (
        "EXCHANGE PARTITION p WITH TABLE u WITHOUT VALIDATION",
        "ExchangePartition p with db.u",
        True,
    ),
    ("ADD PARTITION PARTITIONS 2", "AddPartitions 2", False),
    ("ADD PARTITION (PARTITION p VALUES IN (1))", "AddPartitions PARTITION `p` VALUES IN (1)", False),
    ("REORGANIZE PARTITION", "ReorganizePartition", False),
    (
        "REORGANIZE PARTITION p INTO (PARTITION q VALUES IN (1))",
        "ReorganizePartition p PARTITION `q` VALUES IN (1)",
        False,
    ),
    ("COALESCE PARTITION 2", "CoalescePartition 2", False),
    ("PARTITION BY HASH (a)", "PartitionBy PARTITION BY HASH (a) (PARTITION `p0`)", False),
    ("REMOVE PARTITIONING", "RemovePartitioning", False),
]


def _parsed(sql: str) -> SchemaChange:
    (change,) = parse_ddl(sql, "db")
    return change


def _clause(sql: str) -> BaseClause:
    change = _parsed(f"ALTER TABLE t {sql}")
    assert isinstance(change, AlterTable)
    (clause,) = change.clauses
    return clause


@pytest.mark.parametrize(("sql", "description", "names"), STATEMENTS)
def test_statement(sql: str, description: str, names: TableNames) -> None:
    change = _parsed(sql)
    assert (change.description(), change.names()) == (description, names)


@pytest.mark.parametrize(("sql", "description", "loses_data"), CLAUSES)
def test_clause(sql: str, description: str, loses_data: bool) -> None:
    clause = _clause(sql)
    assert clause.description() == description
    assert clause.loses_data(SCHEMA, conversion_doubt) == loses_data
    if "PARTITION" in sql:
        assert isinstance(clause, PartitionRowsClause) == loses_data
        assert isinstance(clause, RowKeepingClause) != loses_data


def test_clause_that_is_not_supported() -> None:
    assert NotSupportedClause("DISCARD TABLESPACE").description() == "NotSupportedClause DISCARD TABLESPACE"


def test_all_classes_are_covered() -> None:
    assert {type(_clause(sql)) for sql, _, _ in CLAUSES} | {NotSupportedClause} == set(get_args(get_args(Clause)[0]))
    assert {type(_parsed(sql)) for sql, _, _ in STATEMENTS} | {OfSourceTable} == set(
        get_args(get_args(SchemaChange)[0])
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("TRUNCATE t", (T,)),
        ("DROP TABLE t", (T,)),
        ("ALTER TABLE t DROP a", (T,)),
        ("ALTER TABLE t ADD c INT", ()),
        ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", (T, U)),
        ("RENAME TABLE t TO u", ()),
        ("DROP DATABASE db", ()),
        ("RECOVER TABLE t", ()),
    ],
)
def test_tables_that_lose_data(sql: str, expected: tuple[TableName, ...]) -> None:
    assert _parsed(sql).tables_losing_data(lambda name: SCHEMA, conversion_doubt) == expected


@pytest.mark.parametrize(
    ("sql", "names", "loses_data"),
    [
        ("CREATE TABLE t (a INT)", TableNames((MERGED,), created=(MERGED,)), False),
        ("RENAME TABLE t TO u", TableNames((MERGED,), created=(MERGED,)), False),
        ("TRUNCATE t", TableNames((MERGED,)), True),
        ("ALTER TABLE t ADD INDEX (a)", TableNames(read=(MERGED,)), False),
    ],
)
def test_statement_on_a_table_of_a_merged_mirror(sql: str, names: TableNames, loses_data: bool) -> None:
    inner = _parsed(sql)
    change = OfSourceTable(MERGED, T, inner)  # type: ignore[arg-type]
    assert (change.description(), change.names()) == (f"m.all: {inner.description()}", names)
    assert change.tables_losing_data(lambda name: SCHEMA, conversion_doubt) == ((MERGED,) if loses_data else ())


def test_a_class_without_an_answer_fails() -> None:
    @dataclass(frozen=True, slots=True)
    class Silent(BaseClause):
        name: str

    with pytest.raises(TypeError, match="loses_data"):
        Silent("")  # type: ignore[abstract]
