"""Conditions for the rows of table partitions. Each case lists rows with the partition in which MySQL stores them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.expressions.partition_rows import PartitionError, SparkCondition, rows_of_partitions
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.model.table import TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

_ZONE = "Asia/Shanghai"


def _table(definition: str) -> TableSchema:
    (created,) = parse_ddl(f"CREATE TABLE t {definition}", "db")
    assert isinstance(created, CreateTable), created
    return created.schema


@dataclass
class _Case:
    """A table and its rows: column values followed by the name of the partition."""

    definition: str
    rows: list[tuple[Any, ...]]
    tidb: bool = False


_CASES = [
    _Case(
        "(a INT) PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (-5), PARTITION p1 VALUES LESS THAN (2 * 5),"
        " PARTITION p2 VALUES LESS THAN MAXVALUE)",
        [(None, "p0"), (-6, "p0"), (-5, "p1"), (9, "p1"), (10, "p2"), (2147483647, "p2")],
    ),
    _Case(
        "(`from``x` BIGINT UNSIGNED) PARTITION BY RANGE (`from``x`) (PARTITION p0 VALUES LESS THAN (1),"
        " PARTITION p1 VALUES LESS THAN (18446744073709551615), PARTITION p2 VALUES LESS THAN (MAXVALUE))",
        [(Decimal(0), "p0"), (Decimal(1), "p1"), (Decimal(2**64 - 2), "p1"), (Decimal(2**64 - 1), "p2"), (None, "p0")],
    ),
    _Case(
        "(d DATE) PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2019), PARTITION p1 VALUES LESS THAN"
        " (2021), PARTITION p2 VALUES LESS THAN (2022))",
        [(None, "p0"), (date(2018, 12, 31), "p0"), (date(2019, 1, 1), "p1"), (date(2020, 12, 31), "p1")]
        + [(date(2021, 1, 1), "p2")],
    ),
    _Case(
        "(d DATETIME) PARTITION BY RANGE (TO_DAYS(d)) (PARTITION p0 VALUES LESS THAN (TO_DAYS('2020-01-01')), PARTITION"
        " p1 VALUES LESS THAN (737821), PARTITION p2 VALUES LESS THAN MAXVALUE)",
        [(datetime(2019, 12, 31, 23, 59, 59), "p0"), (datetime(2020, 1, 1), "p1"), (datetime(2020, 1, 31, 23), "p1")]
        + [(datetime(2020, 2, 1), "p2"), (None, "p0")],
    ),
    _Case(
        "(t TIMESTAMP) PARTITION BY RANGE (UNIX_TIMESTAMP(t)) (PARTITION p0 VALUES LESS THAN (UNIX_TIMESTAMP("
        "'2020-01-01 00:00:00')), PARTITION p1 VALUES LESS THAN (1580486400))",
        [(datetime(2019, 12, 31, 15, 59, 59, tzinfo=timezone.utc), "p0")]
        + [(datetime(2019, 12, 31, 16, tzinfo=timezone.utc), "p1"), (None, "p0")],
    ),
    _Case(
        "(d DATE) PARTITION BY RANGE COLUMNS (d) (PARTITION P_NULL VALUES LESS THAN ('0000-01-01'), PARTITION p1 VALUES"
        " LESS THAN ('2020-02-01'), PARTITION P_MAXVALUE VALUES LESS THAN (MAXVALUE))",
        [(None, "P_NULL"), (date(1, 1, 1), "p1"), (date(2020, 1, 31), "p1"), (date(2020, 2, 1), "P_MAXVALUE")],
    ),
    _Case(
        "(a INT) PARTITION BY RANGE (a) (PARTITION P_NULL VALUES LESS THAN (-9223372036854775808), PARTITION p1 VALUES"
        " LESS THAN (10))",
        [(None, "P_NULL"), (-2147483648, "p1"), (0, "p1")],
    ),
    _Case(
        "(s VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin) PARTITION BY RANGE COLUMNS (s) (PARTITION p0 VALUES"
        " LESS THAN ('b'), PARTITION p1 VALUES LESS THAN ('it''s'), PARTITION p2 VALUES LESS THAN (MAXVALUE))",
        [("", "p0"), ("B", "p0"), ("azz", "p0"), ("b", "p1"), ("it", "p1"), ("it's", "p2"), ("é", "p2"), (None, "p0")],
    ),
    _Case(
        "(a INT, b INT) PARTITION BY RANGE COLUMNS (a, b) (PARTITION p0 VALUES LESS THAN (1, 5), PARTITION p1 VALUES"
        " LESS THAN (1, MAXVALUE), PARTITION p2 VALUES LESS THAN (3, 0), PARTITION p3 VALUES LESS THAN"
        " (MAXVALUE, MAXVALUE))",
        [(0, 99, "p0"), (1, 4, "p0"), (1, None, "p0"), (None, 7, "p0"), (None, None, "p0"), (1, 5, "p1")]
        + [(1, 1000, "p1"), (2, None, "p2"), (3, -1, "p2"), (3, None, "p2"), (3, 0, "p3"), (4, None, "p3")],
    ),
    _Case(
        "(a INT) PARTITION BY LIST (MOD(a, 10)) (PARTITION p0 VALUES IN (0, 1, NULL), PARTITION p1 VALUES IN (-3, 3),"
        " PARTITION p2 VALUES IN (2, DEFAULT), PARTITION p3 VALUES IN (8, 9))",
        [(None, "p0"), (10, "p0"), (-13, "p1"), (3, "p1"), (2, "p2"), (7, "p2"), (-8, "p2"), (28, "p3")],
    ),
    _Case(
        "(a INT) PARTITION BY LIST (a) (PARTITION p0 VALUES IN (1), PARTITION p1 DEFAULT)",
        [(1, "p0"), (2, "p1"), (None, "p1")],
    ),
    _Case(
        "(a INT, d DATE) PARTITION BY LIST COLUMNS (a, d) (PARTITION p0 VALUES IN ((1, '2020-01-01'), (2, NULL)),"
        " PARTITION p1 VALUES IN ((1, NULL), (NULL, NULL)), PARTITION p2 VALUES IN ((NULL, '2020-01-01')))",
        [(1, date(2020, 1, 1), "p0"), (2, None, "p0"), (1, None, "p1"), (None, None, "p1")]
        + [(None, date(2020, 1, 1), "p2")],
    ),
    _Case(
        "(d DATE) PARTITION BY LIST COLUMNS (d) (PARTITION p0 VALUES IN ('2020-01-01', NULL), PARTITION p1 VALUES IN"
        " ('2020-01-02'))",
        [(date(2020, 1, 1), "p0"), (None, "p0"), (date(2020, 1, 2), "p1")],
    ),
    _Case(
        "(s VARCHAR(9) CHARACTER SET utf8mb4) PARTITION BY LIST COLUMNS (s) (PARTITION p0 VALUES IN (_UTF8MB4'a', NULL),"
        " PARTITION p1 VALUES IN ('it''s', 'c'))",
        [("a", "p0"), (None, "p0"), ("it's", "p1"), ("c", "p1")],
    ),
    _Case(
        "(a INT) PARTITION BY HASH (a) PARTITIONS 4",
        [(0, "p0"), (-1, "p1"), (5, "p1"), (-6, "p2"), (7, "p3"), (None, "p0")],
    ),
    _Case("(a INT) PARTITION BY HASH (a) PARTITIONS 3", [(None, "p2"), (4, "p1")], False),
    _Case("(a INT) PARTITION BY HASH (a) PARTITIONS 3", [(None, "p0"), (4, "p1")], True),
    _Case(
        "(d DATE) PARTITION BY HASH (YEAR(d) + 1) PARTITIONS 4",
        [(date(2019, 5, 5), "p0"), (date(2020, 5, 5), "p1")],
    ),
    _Case(
        "(a BIGINT UNSIGNED) PARTITION BY HASH (a) PARTITIONS 3",
        [(Decimal(5), "p2"), (Decimal(2**64 - 1), "p1"), (Decimal(2**63), "p2"), (Decimal(2**63 - 1), "p1")]
        + [(Decimal(2**63 + 2), "p0")],
        False,
    ),
]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case.definition[:70]} {case.tidb}")
def test_rows_of_each_partition(spark: SparkSession, case: _Case) -> None:
    schema = _table(case.definition)
    assert schema.partitioning is not None
    names = [partition.name for partition in schema.partitioning.partitions]
    conditions = {name: _condition(schema, (name.upper(),), case.tidb) for name in names}
    conditions["two"] = _condition(schema, (names[0], names[-1]), case.tidb)
    conditions["last two"] = _condition(schema, tuple(names[-2:]), case.tidb)
    expected = [
        {name for name in names if name == row[-1]}
        | ({"two"} if row[-1] in (names[0], names[-1]) else set())
        | ({"last two"} if row[-1] in names[-2:] else set())
        for row in case.rows
    ]
    # some conditions are doubtful for certain rows, but for none of these
    doubts = {f"doubt of {name}": SparkCondition(item.doubtful) for name, item in conditions.items() if item.doubtful}
    conditions.update(doubts)
    assert _found(spark, schema, [row[:-1] for row in case.rows], conditions) == expected


def test_rows_with_an_uncertain_value_are_doubtful(spark: SparkSession) -> None:
    schema = _table(
        "(d DATE NOT NULL) PARTITION BY RANGE (YEAR(d)) (PARTITION p VALUES LESS THAN (1), PARTITION q"
        " VALUES LESS THAN (2020))"
    )
    condition = _condition(schema, ("q",))
    assert condition.doubtful is not None
    found = _found(spark, schema, [(None,), (date(2019, 1, 1),)], {"doubtful": SparkCondition(condition.doubtful)})
    assert found == [{"doubtful"}, set()]


def test_many_partitions_make_no_deep_expression() -> None:
    partitions = ", ".join(f"PARTITION p{number} VALUES LESS THAN ({number}, 0)" for number in range(2000))
    schema = _table(f"(a INT, b INT) PARTITION BY RANGE COLUMNS (a, b) ({partitions})")
    # each is a separate range; a chain of that many OR terms would be too deep for the parser
    assert "1999" in _condition(schema, tuple(f"p{number}" for number in range(1, 2000, 2))).sql


_REFUSED = [
    ("(a INT) PARTITION BY KEY (a) PARTITIONS 2", "p0", "partitions by KEY"),
    ("(a INT)", "p0", "the table has no known partitions"),
    ("(a INT) PARTITION BY SYSTEM_TIME", "p0", "is not known: RANGE, LIST, HASH or KEY expected"),
    ("(a INT) PARTITION BY HASH (a) PARTITIONS 2", "p2", "no known partition 'p2'"),
    (
        "(a INT) PARTITION BY RANGE (a) SUBPARTITION BY HASH (a) SUBPARTITIONS 2 (PARTITION p VALUES LESS THAN (1))",
        "PSP1",
        "no known partition 'PSP1'",
    ),
    (
        "(a INT) PARTITION BY RANGE (a) SUBPARTITION BY HASH (a) (PARTITION p VALUES LESS THAN (1) (SUBPARTITION s))",
        "s",
        "no known partition 's'",
    ),
    ("(a INT) PARTITION BY HASH (NO_SUCH(a)) PARTITIONS 2", "p0", "no exact equivalent in Spark"),
    (
        "(s VARCHAR(9) COLLATE utf8mb4_0900_ai_ci) PARTITION BY RANGE COLUMNS (s) (PARTITION p VALUES LESS THAN ('b'),"
        " PARTITION q VALUES LESS THAN ('c'))",
        "p",
        "no exact equivalent in Spark",
    ),
]


@pytest.mark.parametrize(("definition", "name", "reason"), _REFUSED)
def test_refused(definition: str, name: str, reason: str) -> None:
    with pytest.raises(PartitionError, match=reason):
        _condition(_table(definition), (name,))


def test_statements_on_all_rows_or_none_need_no_partitioning() -> None:
    # TRUNCATE PARTITION ALL
    assert _condition(_table("(a INT) PARTITION BY FOO"), ()) == SparkCondition("TRUE")
    by_hash = _table("(a INT) PARTITION BY HASH (NO_SUCH(a)) PARTITIONS 2")
    assert _condition(by_hash, ("P1", "p0")) == SparkCondition("TRUE")
    # DROP PARTITION IF EXISTS
    assert rows_of_partitions(by_hash, ("p7",), _ZONE, missing_ok=True, tidb=False) == SparkCondition("FALSE")


def _condition(schema: TableSchema, names: tuple[str, ...], tidb: bool = False) -> SparkCondition:
    return rows_of_partitions(schema, names, _ZONE, tidb=tidb)


def _found(
    spark: SparkSession, schema: TableSchema, rows: list[tuple[Any, ...]], conditions: dict[str, SparkCondition]
) -> list[set[str]]:
    """Per row the names of the conditions that are true. Asserts that no condition is NULL."""
    columns = [StructField(column.name, spark_type(column.type)) for column in schema.columns]
    table = spark.createDataFrame(rows, StructType(columns))
    flags = [F.expr(condition.sql).alias(name) for name, condition in conditions.items()]
    found = table.select(*flags).collect()
    assert all(value is not None for row in found for value in row)
    return [{name for name, value in row.asDict().items() if value} for row in found]
