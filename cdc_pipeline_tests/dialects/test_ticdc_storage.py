"""Schema files and checkpoints of TiCDC's storage sink, and the `commit_ts` of rows by the path of their file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.limits import COLUMNS, STATEMENT
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decode import EXPECTATIONS, decode_with_reasons
from cdc_pipeline.dialects.ticdc import TICDC
from cdc_pipeline.dialects.ticdc_storage import to_statement
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.dialect_cases import (
    Bad,
    Columns,
    Good,
    breakable,
    broken_by_form,
    explained_by_name,
    named,
    raw,
    says,
)
from cdc_pipeline_tests.support.messages import row, tso

_COLUMN = {"ColumnName": "id", "ColumnType": "INT"}
_FILE: dict[str, Any] = {
    "Table": "t",
    "Schema": "d",
    "Version": 1,
    "TableVersion": tso(1) + 7,
    "Query": "ALTER TABLE `t` ADD COLUMN `c` INT",
    "Type": 5,
    "TableColumns": [{**_COLUMN, "ColumnDefault": 5, "ColumnElems": ["a", "b"]}],
    "TableColumnsTotal": 1,
}


def _file(**fields: Any) -> bytes:
    return json.dumps({**_FILE, **fields}, indent=4).encode()


_SNAPSHOT = _file(Query="", Type=0)
_GOOD: Good = {
    "a statement": (
        _file(),
        {
            "kind": unified.DDL,
            "dialect": "ticdc",
            "rule": None,
            "database": "d",
            "table": "t",
            "type": "ALTER",
            "commit_ts": tso(1) + 7,
            "exact_ts": True,
            "es": tso(1) >> 18,
            "ts": None,
            "watermark_ts": None,
            "sql": "ALTER TABLE `t` ADD COLUMN `c` INT",
        },
    ),
    "of a database": (
        _file(Table="", TableColumns=None, TableColumnsTotal=0, Query="DROP DATABASE `d`", Type=2),
        {"kind": unified.DDL, "table": "", "type": "QUERY", "sql": "DROP DATABASE `d`"},
    ),
    "two tables renamed": (_file(Type=47), {"type": "RENAME"}),
    "an action of tomorrow": (_file(Type=200), {"type": "QUERY"}),
    "a definition": (_SNAPSHOT, {"kind": unified.DDL, "type": "DEFINITION", "sql": _SNAPSHOT.decode()}),
    "a checkpoint": (
        b'{"checkpoint-ts":%d}' % (tso(2) + 9),
        {"kind": unified.WATERMARK, "dialect": "ticdc", "watermark_ts": tso(2) + 9, "es": tso(2) >> 18, "rule": None},
    ),
    "a message that speaks of them": (
        row("INSERT", "t", 1, {'"TableVersion"': '"checkpoint-ts"'}).encode(),
        {"kind": unified.ROW, "database": "db", "commit_ts": tso(1)},
    ),
}
_BAD: Bad = {
    "definedDatabase.not_null": {"null": _file(Schema=None)},
    "definedDatabase.str_length": {"empty": _file(Schema=""), "long": _file(Schema="d" * 65)},
    "definedTable.str_length": {"long": _file(Table="t" * 65)},
    "statement.str_length": {"long": _file(Query="x" * (STATEMENT + 1))},
    "defined_columns_are_few": {
        "more than 4,096": _file(Query="", TableColumns=[{"ColumnName": "c", "ColumnType": "INT"}] * (COLUMNS + 1))
    },
    "tableVersion.not_null": {"null": _file(TableVersion=None)},
    "tableVersion.in_range": {"a small number": _file(TableVersion=100), "ms": _file(TableVersion=tso(1) >> 18)},
    "statement.not_null": {"null": _file(Query=None)},
    "actionType.not_null": {"null": _file(Type=None)},
    "actionType.greater_than_or_equal_to": {"negative": _file(Type=-1)},
    "defines_something": {
        "no columns": _file(Query="", Type=0, TableColumns=[]),
        "a column without a type": _file(Query="", TableColumns=[{"ColumnName": "id"}]),
        "no table": _file(Query="", Table=""),
    },
    "checkpointTs.not_null": {"null": b'{"checkpoint-ts":null}'},
    "checkpointTs.in_range": {"zero": b'{"checkpoint-ts":0}'},
    "value_is_json_object": {"a cut file": _file()[:-5], "two checkpoints": b'{"checkpoint-ts":1}{"checkpoint-ts":1}'},
}
_VALUES = named(_GOOD, _BAD)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Columns:
    return explained_by_name(spark, _VALUES)


@pytest.mark.parametrize("name", _GOOD)
def test_what_a_record_becomes(name: str, rows: Columns) -> None:
    found, wanted = rows[f"good: {name}"], _GOOD[name][1]
    assert {field: found[field] for field in wanted} == wanted


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, cases in _BAD.items() for name in cases])
def test_broken_rule(rule: str, name: str, rows: Columns) -> None:
    found = rows[f"{rule}: {name}"]
    assert (found["kind"], found["rule"], found["column"]) == (unified.DEAD, rule, EXPECTATIONS[rule][1])
    assert says(found["reason"], rule, _BAD[rule][name]), found["reason"]


def test_each_rule_has_a_case(spark: SparkSession) -> None:
    # of a checkpoint from the future: test_watermarks_ahead
    of_time = ("ticdc_storage_checkpoint", "checkpoint_is_not_ahead")
    wanted = {found for found in breakable(TICDC, {}) if found[0].startswith("ticdc_storage")} - {of_time}
    assert broken_by_form(spark, _BAD, TICDC) >= wanted


def test_the_declared_dialect(spark: SparkSession) -> None:
    values = {name: value for name, (value, _) in _GOOD.items()}
    found = explained_by_name(spark, values, "ticdc")
    assert {columns["rule"] for columns in found.values()} == {None}
    found = explained_by_name(spark, values, "canal")
    assert {columns["rule"] for columns in found.values()} == {"dialect_is_declared"}


# ---- by path and headers: name → (value, headers, column, expected value)

_MS = tso(1) + (1 << 18)
_V = _MS + 7
_MS_ONLY = row("INSERT", "t", 1, {"id": "1"}, extension=False).encode()
_EXACT = row("INSERT", "t", 1, {"id": "1"}).encode()
_CHECKPOINT = b'{"checkpoint-ts":%d}' % (tso(2) + 9)
_PLACES: dict[str, tuple[bytes, dict[str, str], str, int]] = {
    "no place": (_MS_ONLY, {}, "commit_ts", _MS),
    "below a version of its ms": (_MS_ONLY, {"ticdc.file": f"d/t/{_V}/CDC000001.json"}, "commit_ts", _V + 1),
    "by table id, date and dispatcher": (
        _MS_ONLY,
        {"ticdc.file": f"12/{_V}/104/2026-11-21/CDC_a_000001.json"},
        "commit_ts",
        _V + 1,
    ),
    "below an older version": (_MS_ONLY, {"ticdc.file": f"d/t/{tso(0)}/CDC000001.json"}, "commit_ts", _MS),
    "with a TSO": (_EXACT, {"ticdc.file": f"d/t/{_V}/CDC000001.json"}, "commit_ts", tso(1)),
    "a table called by a TSO": (_MS_ONLY, {"ticdc.file": f"{_V}/t/{tso(0)}/7/CDC000001.json"}, "commit_ts", _MS),
    "checkpoint over rows with TSOs": (_CHECKPOINT, {"ticdc.file": "metadata"}, "watermark_ts", tso(2) + 9),
    "checkpoint over others": (_CHECKPOINT, {"ticdc.closes_ms": "true"}, "watermark_ts", tso(2) - 1),
}


def test_what_the_place_says(spark: SparkSession) -> None:
    headers = F.array(
        *(
            F.array(
                *(F.struct(F.lit(key).alias("key"), F.lit(text).cast("binary").alias("value")) for key, text in found)
            ).cast("array<struct<key: string, value: binary>>")
            for found in (list(case[1].items()) for case in _PLACES.values())
        )
    )
    records = raw(spark, {name: case[0] for name, case in _PLACES.items()})
    placed = records.withColumn("headers", F.get(headers, F.col("offset").cast("int")))
    decoded = {list(_PLACES)[found["offset"]]: found for found in decode_with_reasons(placed).collect()}
    assert {name: decoded[name][case[2]] for name, case in _PLACES.items()} == {
        name: case[3] for name, case in _PLACES.items()
    }
    assert all(found["es"] == found[column] >> 18 for name, found in decoded.items() for column in [_PLACES[name][2]])


# fields of a column as TiCDC's FromTiColumnInfo writes them, its type, whether it is nullable
_COLUMNS: list[tuple[dict[str, Any], str, bool]] = [
    ({"ColumnType": "INT", "ColumnPrecision": "11"}, "int", True),
    ({"ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20", "ColumnNullable": "false"}, "bigint unsigned", False),
    ({"ColumnType": "TINYINT", "ColumnPrecision": "1"}, "tinyint(1)", True),
    ({"ColumnType": "DECIMAL UNSIGNED", "ColumnPrecision": "65", "ColumnScale": "30"}, "decimal(65,30) unsigned", True),
    ({"ColumnType": "DECIMAL", "ColumnPrecision": "10", "ColumnScale": "0"}, "decimal(10,0)", True),
    ({"ColumnType": "FLOAT", "ColumnPrecision": "12"}, "float", True),
    ({"ColumnType": "DOUBLE", "ColumnPrecision": "7", "ColumnScale": "3"}, "double(7,3)", True),
    ({"ColumnType": "BIT", "ColumnPrecision": "64"}, "bit(64)", True),
    ({"ColumnType": "VAR_STRING", "ColumnPrecision": "64"}, "varchar(64)", True),
    ({"ColumnType": "VARBINARY", "ColumnPrecision": "8"}, "varbinary(8)", True),
    ({"ColumnType": "LONGTEXT", "ColumnPrecision": "4294967295"}, "longtext", True),
    ({"ColumnType": "BLOB", "ColumnPrecision": "65535"}, "blob", True),
    ({"ColumnType": "TIMESTAMP", "ColumnScale": "6", "ColumnDefault": "CURRENT_TIMESTAMP"}, "timestamp(6)", True),
    ({"ColumnType": "DATETIME"}, "datetime", True),
    ({"ColumnType": "TIME", "ColumnScale": "3"}, "time(3)", True),
    ({"ColumnType": "YEAR", "ColumnPrecision": "4"}, "year", True),
    ({"ColumnType": "ENUM", "ColumnElems": ["a", "it's", "b\\c"]}, "enum('a','it''s','b\\c')", True),
    ({"ColumnType": "SET", "ColumnElems": ["C:\\temp", "\\"]}, "set('C:\\temp','\\')", True),
    ({"ColumnType": "SET"}, "set", True),
    ({"ColumnType": "JSON"}, "json", True),
    ({"ColumnType": "VECTOR"}, "vector", True),
]


def _created(columns: list[dict[str, Any]], database: str = "d", table: str = "t") -> CreateTable:
    definition = {"Schema": database, "Table": table, "TableColumns": columns}
    (change,) = parse_ddl(to_statement(json.dumps(definition, indent=4)), "other", quotings=[Quoting.TIDB])
    assert isinstance(change, CreateTable)
    assert change.if_not_exists
    return change


@pytest.mark.parametrize(("column", "kind", "nullable"), _COLUMNS, ids=[kind for _, kind, _ in _COLUMNS])
def test_a_columns_type(column: dict[str, Any], kind: str, nullable: bool) -> None:
    (found,) = _created([{"ColumnName": "c", **column}]).schema.columns
    assert (str(found.type), found.nullable) == (kind, nullable)


def test_names_and_key() -> None:
    key = {"ColumnType": "INT", "ColumnIsPk": "true", "ColumnNullable": "false"}
    columns = [
        {"ColumnName": "b`'", **key},
        {"ColumnName": "select", "ColumnType": "INT"},
        {"ColumnName": "ä 空", **key},
    ]
    found = _created(columns, "d`b", 'Odd Näme-表."')
    assert found.name == TableName("d`b", 'Odd Näme-表."')
    assert (found.schema.column_names, found.schema.primary_key) == (("b`'", "select", "ä 空"), ("b`'", "ä 空"))


def test_statements_stay_as_they_are() -> None:
    assert to_statement("DROP TABLE `{`") == "DROP TABLE `{`"
    assert to_statement("") == ""
