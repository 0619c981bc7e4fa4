from __future__ import annotations

import json
from typing import Any

import pytest

from cdc_pipeline.dialects.storage_definition import to_statement
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.model.table import TableName

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
