"""DataWorks' message format (dataworks-kafka-message): `schema`, `payload`, `version`.

Records are ordered by `sequenceId`, which the full load and the changes after it share. An UPDATE is one UPDATE_AFTER
with both images, or an UPDATE_BEFOR and an UPDATE_AFTER of one `sequenceId` with one image each. A table without a key
has the column `#alibaba_rds_row_id#`, which upstream's table does not have: it is left in the raw snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.messages import (
    DATAWORKS_DDL_OPS,
    HEARTBEAT_OPS,
    TRANSACTION_OPS,
    XA_TYPES,
    DataWorksDdl,
    DataWorksNote,
    DataWorksRow,
)
from cdc_pipeline.dialects.dialect import Dialect, Form, image
from cdc_pipeline.dialects.envelope import HAS_PAYLOAD
from cdc_pipeline.dialects.unified import DDL, HEARTBEAT, ROW, TRANSACTION, TSO_SHIFT, XA

if TYPE_CHECKING:
    from pyspark.sql import Column

NAME = "dataworks"
ROW_ID = "#alibaba_rds_row_id#"
_ROW, _DDL, _XA = "dataworks_row", "dataworks_ddl", "dataworks_xa"
_HEARTBEAT, _TRANSACTION = "dataworks_heartbeat", "dataworks_transaction"


def _recognised() -> Column:
    return F.col(HAS_PAYLOAD)


def _form() -> Column:
    op = F.col("op")
    return (
        F.when(op.isin(*HEARTBEAT_OPS), F.lit(_HEARTBEAT))
        .when(op.isin(*TRANSACTION_OPS), F.lit(_TRANSACTION))
        .when(op.isin(*XA_TYPES), F.lit(_XA))
        .when(op.isin(*DATAWORKS_DDL_OPS), F.lit(_DDL))
        .otherwise(F.lit(_ROW))
    )


def _columns() -> dict[str, Column]:
    op = F.col("op")
    return {
        "database": _database(),
        "table": F.col("tableName"),
        "type": op,
        "op": F.when(op.startswith("UPDATE_"), F.lit("UPDATE")).otherwise(op),
        "commit_ts": F.coalesce(F.col("sequenceId").try_cast("bigint"), F.shiftleft("eventTime", TSO_SHIFT)),
        "exact_ts": F.lit(False),
        "watermark_ts": F.lit(None).cast("bigint"),
        "es": F.col("eventTime"),
        "ts": F.col("systemTime"),
        "message_id": F.lit(None).cast("bigint"),
        "sql": _statement(),
        "key_names": F.col("primaryKey"),
        "only_key": F.lit(False),
        "rows": F.array(image(_without_row_id("before"), _without_row_id("after"))),
    }


def _database() -> Column:
    """The database; with the schema's name where the source has schemas inside databases (PostgreSQL, SQL Server)."""
    database, schema = F.col("dbName"), F.col("schemaName")
    same = schema.isNull() | (schema == "") | (schema == database)
    return F.when(same, database).otherwise(F.concat_ws(".", database, schema))


def _statement() -> Column:
    """The statement; the document also shows the bare clauses of an ALTER TABLE, "ADD COLUMN ..."."""
    text = F.col("ddlText")
    table = F.replace(F.col("tableName"), F.lit("`"), F.lit("``"))
    clauses = (F.col("op") == "ALTER") & ~text.rlike(r"(?i)^\s*(?:alter\b|/\*|--|#)") & table.isNotNull()
    return F.when(clauses, F.concat(F.lit("ALTER TABLE `"), table, F.lit("` "), text)).otherwise(text)


def _without_row_id(column: str) -> Column:
    row = F.col(column)
    stripped = F.map_filter(row, lambda name, _: name != ROW_ID)
    return F.when(F.coalesce(F.map_contains_key(row, F.lit(ROW_ID)), F.lit(False)), stripped).otherwise(row)


DATAWORKS = Dialect(
    NAME,
    _recognised,
    _recognised,
    _form,
    (
        Form(_ROW, ROW, DataWorksRow),
        Form(_DDL, DDL, DataWorksDdl),
        Form(_HEARTBEAT, HEARTBEAT, DataWorksNote),
        Form(_TRANSACTION, TRANSACTION, DataWorksNote),
        Form(_XA, XA, DataWorksNote),
    ),
    _columns,
)
