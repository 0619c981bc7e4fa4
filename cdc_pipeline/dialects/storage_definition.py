"""CREATE TABLE statements from schema files of TiCDC's storage sink that have no statement (ticdc-facts §6).

TiCDC writes such a file for a table that existed before the changefeed, and for the second table of EXCHANGE PARTITION.
Taken from it: names, types, NOT NULL and the columns of the primary key (in table order). Not taken: defaults. Not in the
file: other keys, expressions of generated columns, and in the classic architecture labels of ENUM and SET.
"""

from __future__ import annotations

import json
from typing import Any

from cdc_pipeline.mysql.model.quoted_names import quoted

_UNSIGNED = " UNSIGNED"
# for all other types ColumnPrecision is a display width, or follows from the type
_SIZED = frozenset({"BIT", "CHAR", "VARCHAR", "BINARY", "VARBINARY", "DECIMAL", "TINYINT"})
_SCALED = frozenset({"FLOAT", "DOUBLE"})
_FRACTIONAL = frozenset({"TIMESTAMP", "DATETIME", "TIME"})


def to_statement(sql: str) -> str:
    """`sql`, or if it is a schema file in JSON, the equivalent CREATE TABLE IF NOT EXISTS.

    The file must keep the rules of `contracts.storage_files.TicdcSchemaFile`; else raises an arbitrary exception.
    """
    if not sql.startswith("{"):
        return sql
    definition = json.loads(sql)
    columns = definition["TableColumns"]
    elements = [_column(column) for column in columns]
    key = [quoted(column["ColumnName"]) for column in columns if column.get("ColumnIsPk") == "true"]
    if key:
        elements.append(f"PRIMARY KEY ({', '.join(key)})")
    name = f"{quoted(definition['Schema'])}.{quoted(definition['Table'])}"
    return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(elements)})"


def _column(column: dict[str, Any]) -> str:
    required = " NOT NULL" if column.get("ColumnNullable") == "false" else ""
    return f"{quoted(column['ColumnName'])} {_type(column)}{required}"


def _type(column: dict[str, Any]) -> str:
    name: str = column["ColumnType"]
    base = name.removesuffix(_UNSIGNED)
    unsigned = name[len(base) :]
    base = "VARCHAR" if base == "VAR_STRING" else base
    precision, scale = column.get("ColumnPrecision"), column.get("ColumnScale")
    arguments: list[str] = []
    if base in _FRACTIONAL:
        arguments = [scale] if scale else []
    elif base in _SIZED or (base in _SCALED and scale):
        arguments = [number for number in (precision, scale) if number]
    elif base in ("ENUM", "SET"):
        arguments = [_literal(label) for label in column.get("ColumnElems") or ()]
    return base + (f"({','.join(arguments)})" if arguments else "") + unsigned


def _literal(text: str) -> str:
    """The label as TiDB prints it (`Quoting.TIDB`)."""
    return "'" + text.replace("'", "''") + "'"
