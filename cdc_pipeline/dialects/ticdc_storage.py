"""TiCDC's storage sink (ticdc-facts §6): schema files, the checkpoint, and the `commit_ts` of rows without `_tidb`.

- A schema file has a DDL statement, or the definition of a table. Its TSO is the table version.
- The file `metadata` is the checkpoint: all changes up to it are in files written before it.

Rows have `_tidb` only if the changefeed sets enable-tidb-extension. Without it only the ms of their commit is known:

- A row in the folder of a table version with the same ms was committed after that version's statement. Its `commit_ts` is
  the version + 1.
- A checkpoint inside a ms does not tell which rows of that ms are included. It closes the ms before. The source marks such
  a checkpoint with the header `CLOSES_MS`.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import READ_BY, SENT
from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.contracts.storage_files import TicdcSchemaFile, TicdcStorageCheckpoint, TicdcStorageFile
from cdc_pipeline.dialects.dialect import Form, sent_statement
from cdc_pipeline.dialects.unified import DDL, TSO_SHIFT, WATERMARK
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.sources.storage.layout import CLOSES_MS, FILE

STORAGE_PATHS = {
    "definedDatabase": "Schema",
    "definedTable": "Table",
    "tableVersion": "TableVersion",
    "statement": "Query",
    "actionType": "Type",
    "definedColumns": "TableColumns",
    "checkpointTs": "checkpoint-ts",
}
"""Field of a contract → its key in the file."""
STORAGE_FORM = "storage_form"
"""Column with the form of a record that is one of these files; null for all other records."""
_DEFINITION, _CHECKPOINT = "ticdc_storage_definition", "ticdc_storage_checkpoint"
STORAGE_FORMS = (
    Form(_DEFINITION, DDL, TicdcSchemaFile),
    Form(_CHECKPOINT, WATERMARK, TicdcStorageCheckpoint),
)
# the folder of a table version, with at most a physical table id and a date below it
_VERSION = r"(?:^|/)(\d{18,19})/(?:[^/]*/){0,2}CDC[^/]*$"
_ACTIONS = {
    "CREATE": (3,),
    "ERASE": (4,),
    "CINDEX": (7, 9, 32),
    "DINDEX": (8, 10, 33),
    "TRUNCATE": (11,),
    "RENAME": (14, 47),
    "ALTER": (5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72),
}
"""`type` in Canal-JSON → TiDB's ActionType numbers (ticdc-facts §4)."""
_OTHER_ACTION = "QUERY"

DEFINITION_TYPE = "DEFINITION"
"""The `type` of a definition without statement, and without rows before it."""


def with_storage_fields(parsed: DataFrame, no_message: Column) -> DataFrame:
    """Adds the fields of `TicdcStorageFile`, null for all other records, and `STORAGE_FORM`.

    Parses only the records that are `no_message` a second time; they are few.
    """
    form = F.when(
        no_message,
        F.when(F.contains("value", F.lit(b'"TableVersion"')), F.lit(_DEFINITION)).when(
            F.contains("value", F.lit(b'"checkpoint-ts"')), F.lit(_CHECKPOINT)
        ),
    )
    fields = TicdcStorageFile.to_schema().columns
    types = {name: column.dtype.type.simpleString() for name, column in fields.items() if name not in (SENT, READ_BY)}
    schema = ", ".join(f"`{STORAGE_PATHS[name]}` {type_}" for name, type_ in types.items())
    text = F.when(F.col(STORAGE_FORM).isNotNull(), F.col("value").cast("string"))
    return (
        parsed.withColumn(STORAGE_FORM, form)
        .withColumn("storage_file", F.from_json(text, schema, OPTIONS))
        .select(
            *parsed.columns, STORAGE_FORM, *(F.col("storage_file")[STORAGE_PATHS[name]].alias(name) for name in types)
        )
    )


def is_storage_file() -> Column:
    return F.col(STORAGE_FORM).isNotNull()


def statement() -> Column:
    """The statement of a schema file, or the whole file if it has none (see `to_statement`)."""
    has_statement = F.length("statement") > 0
    return F.when(
        F.col(STORAGE_FORM) == _DEFINITION,
        F.when(has_statement, F.col("statement")).otherwise(F.col("value").cast("string")),
    )


def event_statement(event: Row) -> str | None:
    """The statement of a row of `unified.ddl_events`. Only events from schema files have no `ts`."""
    sql = sent_statement(event)
    if sql is None or event["ts"] is not None:
        return sql
    try:
        return to_statement(sql)
    except Exception:  # a broken file must not fail the batch: its text becomes an unsupported statement
        return sql


def action_type() -> Column:
    """The `type` of a message with the same statement; DEFINITION_TYPE for a file without one."""
    type_ = F.when(F.col("actionType").isNotNull(), F.lit(_OTHER_ACTION))
    for name, numbers in _ACTIONS.items():
        type_ = F.when(F.col("actionType").isin(*numbers), F.lit(name)).otherwise(type_)
    return F.when(F.length("statement") == 0, F.lit(DEFINITION_TYPE)).otherwise(type_)


def closed_ts() -> Column:
    """The TSO up to which a checkpoint guarantees all changes."""
    before = F.shiftleft(F.shiftright("checkpointTs", TSO_SHIFT), TSO_SHIFT) - 1
    return F.when(_header(CLOSES_MS).isNotNull(), before).otherwise(F.col("checkpointTs"))


def commit_ts_without_tso() -> Column:
    """The `commit_ts` of a row without TSO: `es << 18`, or the table version of its file + 1 if that has the same ms."""
    version = F.regexp_extract(_header(FILE).cast("string"), _VERSION, 1).try_cast("bigint")
    is_same_ms = F.shiftright(version, TSO_SHIFT) == F.col("es")
    return F.when(is_same_ms, version + 1).otherwise(F.shiftleft("es", TSO_SHIFT))


def _header(name: str) -> Column:
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]


_UNSIGNED = " UNSIGNED"
# for all other types ColumnPrecision is a display width, or follows from the type
_SIZED = frozenset({"BIT", "CHAR", "VARCHAR", "BINARY", "VARBINARY", "DECIMAL", "TINYINT"})
_SCALED = frozenset({"FLOAT", "DOUBLE"})
_FRACTIONAL = frozenset({"TIMESTAMP", "DATETIME", "TIME"})


def to_statement(sql: str) -> str:
    """`sql`, or if it is a schema file in JSON, the equivalent CREATE TABLE IF NOT EXISTS.

    TiCDC writes such a file for a table that existed before the changefeed, and for the second table of EXCHANGE PARTITION.
    Taken from it: names, types, NOT NULL and the columns of the primary key (in table order). Not taken: defaults. Not in
    the file: other keys, expressions of generated columns, and in the classic architecture labels of ENUM and SET.
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
