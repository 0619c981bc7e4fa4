"""Alibaba Canal's flat messages (canal-facts).

A row change has one or more rows in binlog order (canal-facts 8). `old[i]` has the before values of the changed columns of
`data[i]`. It may also have columns that changed in an earlier row only, so a column in `old` need not have changed
(canal-facts 10).

A message without rows that is no DDL event is one of:

- QUERY: the SQL text of a statement whose rows follow (canal-facts 18)
- XACOMMIT, XAROLLBACK: the end of an XA transaction (canal-facts 36)
- INSERT, UPDATE or DELETE with `data` null: a change in statement format (canal-facts 17). It is never executed; its table
  gets a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal import CanalDdl, CanalNote, CanalRow, CanalStatement
from cdc_pipeline.contracts.canal_json import ROW_TYPES, XA_TYPES
from cdc_pipeline.contracts.sent_canal_json import CanalDdlSent, CanalNoteSent, CanalRowSent, CanalStatementSent
from cdc_pipeline.dialects.dialect import Dialect, Form, MessageTypes, Trait, mysql_type, no_row, row_images
from cdc_pipeline.dialects.envelope import BATCH
from cdc_pipeline.dialects.unified import DDL, QUERY_TEXT, ROW, STATEMENT, TSO_SHIFT, XA
from cdc_pipeline.mysql.types.wire_values import JSON_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

_ROW, _DDL, _STATEMENT, _QUERY, _XA = "canal_row", "canal_ddl", "canal_statement", "canal_query", "canal_xa"
_BLOB_CODE = 2004
"""`sqlType` of bytes."""


def _matches() -> Column:
    """True: no field marks a message of Canal in every version, so it matches what the other dialects do not."""
    return F.lit(True)


def _form() -> Column:
    kind = F.col("type")
    no_rows = F.col("data").isNull() & F.col("old").isNull()
    return (
        F.when(F.col("isDdl"), F.lit(_DDL))
        .when(kind == "QUERY", F.lit(_QUERY))
        .when(kind.isin(*XA_TYPES), F.lit(_XA))
        .when(no_rows & kind.isin(*ROW_TYPES) & (F.coalesce("sql", F.lit("")) != ""), F.lit(_STATEMENT))
        .otherwise(F.lit(_ROW))
    )


def _columns() -> dict[str, Column]:
    op, data, old = F.col("type"), F.col("data"), F.col("old")
    deleted = F.when(F.coalesce(F.size(data), F.lit(0)) > 0, data).otherwise(old)
    rows = (
        F.when(op == "INSERT", F.transform(data, lambda row: row_images(no_row(), row)))
        .when(op == "DELETE", F.transform(deleted, lambda row: row_images(row, no_row())))
        .when(op == "UPDATE", F.transform(data, lambda row, index: row_images(F.get(old, index), row)))
    )
    return {
        "database": _without_back_ticks("database"),
        "table": F.col("table"),
        "type": op,
        "op": op,
        "commit_ts": F.shiftleft("es", TSO_SHIFT),
        "exact_ts": F.lit(False),
        "watermark_ts": F.lit(None).cast("bigint"),
        "es": F.col("es"),
        "ts": F.nullif("ts", F.lit(0)),
        "message_id": F.col(BATCH),
        "sql": F.col("sql"),
        "key_names": F.col("pkNames"),
        "only_key": F.lit(False),
        "rows": rows,
    }


def _without_back_ticks(column: str) -> Column:
    """The name without the back-ticks that CREATE and DROP DATABASE keep around it (canal-facts 37)."""
    name = F.col(column)
    inner = F.replace(F.substring(name, F.lit(2), F.length(name) - 2), F.lit("``"), F.lit("`"))
    return F.when(name.startswith("`") & name.endswith("`") & (F.length(name) > 2), inner).otherwise(name)


def _types(message: Row) -> MessageTypes:
    """The types of `mysqlType`. A JSON column with the `sqlType` of bytes is MariaDB's (canal-facts 29)."""
    types = {name: mysql_type(text or "") for name, text in (message["mysqlType"] or {}).items()}
    sql_types = message["sqlType"] or {}
    encodings = {
        name: JSON_BYTES
        for name, text in types.items()
        if text.strip().lower() == "json" and sql_types.get(name) == _BLOB_CODE
    }
    return MessageTypes(types, encodings)


CANAL = Dialect(
    "canal",
    _matches,
    lambda: F.lit(False),
    _form,
    (
        Form(_ROW, ROW, CanalRow, CanalRowSent),
        Form(_DDL, DDL, CanalDdl, CanalDdlSent),
        Form(_STATEMENT, STATEMENT, CanalStatement, CanalStatementSent),
        Form(_QUERY, QUERY_TEXT, CanalNote, CanalNoteSent),
        Form(_XA, XA, CanalNote, CanalNoteSent),
    ),
    _columns,
    _types,
    frozenset(
        {
            Trait.IN_LOG_ORDER,
            Trait.NUMBERS_BATCHES,
            Trait.ABSENT_IS_DEFAULT,
            Trait.JSON_NEEDS_TYPES,
            Trait.READS_TEXT_AS_UTF8,
        }
    ),
)
