"""A table's definition as TiCDC's storage sink writes it into a schema file without a statement, as a statement.

Such a file tells of a table that was there before the changefeed, or of the second table of EXCHANGE PARTITION. It has
names, types, NOT NULL and the columns of the primary key (in table order); no defaults are taken from it, and it has no
other keys, no expressions of generated columns, and from the classic architecture no labels of ENUM and SET.
"""

from __future__ import annotations

import json
from typing import Any

from cdc_pipeline.mysql.model.quoted_names import quoted

_UNSIGNED = " UNSIGNED"
# of other types the number is a display width, or follows from the type
_SIZED = frozenset({"BIT", "CHAR", "VARCHAR", "BINARY", "VARBINARY", "DECIMAL", "TINYINT"})
_SCALED = frozenset({"FLOAT", "DOUBLE"})
_FRACTIONS = frozenset({"TIMESTAMP", "DATETIME", "TIME"})


def statement_of(sql: str) -> str:
    """The statement of a record of the storage sink: `sql`, or where that is a schema file the CREATE TABLE IF NOT EXISTS
    that it amounts to.

    No statement begins as JSON does. The file keeps the rules of `contracts.canal_json.TicdcSchemaFile`; one that does not
    raises an error of any kind.
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
    word: str = column["ColumnType"]
    base = word.removesuffix(_UNSIGNED)
    unsigned = word[len(base) :]
    base = "VARCHAR" if base == "VAR_STRING" else base
    precision, scale = column.get("ColumnPrecision"), column.get("ColumnScale")
    numbers: list[str] = []
    if base in _FRACTIONS:
        numbers = [scale] if scale else []
    elif base in _SIZED or (base in _SCALED and scale):
        numbers = [number for number in (precision, scale) if number]
    elif base in ("ENUM", "SET"):
        numbers = [_literal(label) for label in column.get("ColumnElems") or ()]
    return base + (f"({','.join(numbers)})" if numbers else "") + unsigned


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
