"""DataWorks' message format (dataworks-kafka-message "Parameters").

`sequenceId` orders the records of the full load and the changes after it. An UPDATE is one UPDATE_AFTER record with both
images, or an UPDATE_BEFOR and an UPDATE_AFTER record with the same `sequenceId` and one image each. The images of a table
without a key have the column `#alibaba_rds_row_id#`, which the upstream table does not have; decoding drops it.

`dbType` names the kind of the source database. Where that kind has schemas inside databases (PostgreSQL, SQL Server,
Oracle), the mirror's database is `<dbName>.<schemaName>`. Its DDL is not MySQL's: it is recorded as not supported for the
table that the message names.
"""

from __future__ import annotations

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from cdc_pipeline.contracts import dataworks
from cdc_pipeline.contracts.canal_json import XA_TYPES
from cdc_pipeline.contracts.sent_dataworks import DataWorksDdlSent, DataWorksNoteSent, DataWorksRowSent
from cdc_pipeline.dialects.dialect import Dialect, Form, MessageTypes, Trait, row_images
from cdc_pipeline.dialects.envelope import HAS_PAYLOAD
from cdc_pipeline.dialects.unified import DDL, HEARTBEAT, OTHER_DDL, ROW, TRANSACTION, TSO_SHIFT, XA

_ROW, _DDL, _OTHER_DDL, _XA = "dataworks_row", "dataworks_ddl", "dataworks_other_ddl", "dataworks_xa"
_HEARTBEAT, _TRANSACTION = "dataworks_heartbeat", "dataworks_transaction"
_SIGNS = "[^a-zA-Z]*"
_MYSQL = rf"(?i)^{_SIGNS}(?:mysql|mariadb|tidb|(?:polardb|adb){_SIGNS}mysql|polardb{_SIGNS}x|drds){_SIGNS}\z"
"""`dbType` of the databases that use MySQL's DDL and have no schemas inside databases, with versions and punctuation.

One pattern, because it runs for each message and Spark's generated code is limited in size (`dialects/test_speed.py`).
"""
_MAYBE_MYSQL = rf"(?i)^{_SIGNS}(?:polardb|oceanbase)?{_SIGNS}\z"
"""`dbType` of databases that use the DDL of MySQL, or that of PostgreSQL or Oracle; also a missing `dbType`."""
_TYPES = {
    "BOOLEAN": "tinyint(1)",
    "LONG": "bigint",
    "DOUBLE": "double",
    "DATE": "timestamp(3)",
    "BYTES": "longblob",
    "STRING": "longtext",
}
"""Type of `schema.dataColumn` ("Field types") → the MySQL type that holds all its values."""


def _matches() -> Column:
    return F.col(HAS_PAYLOAD)


def _form() -> Column:
    op = F.col("op")
    return (
        F.when(op.isin(*dataworks.HEARTBEAT_OPS), F.lit(_HEARTBEAT))
        .when(op.isin(*dataworks.TRANSACTION_OPS), F.lit(_TRANSACTION))
        .when(op.isin(*XA_TYPES), F.lit(_XA))
        .when(op.isin(*dataworks.DDL_OPS), F.when(_is_mysql_ddl(), F.lit(_DDL)).otherwise(F.lit(_OTHER_DDL)))
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
        "at": F.shiftleft(F.coalesce("systemTime", "eventTime"), TSO_SHIFT),
        "exact_ts": F.lit(False),
        "watermark_ts": F.lit(None).cast("bigint"),
        "es": F.col("eventTime"),
        "ts": F.col("systemTime"),
        "message_id": F.lit(None).cast("bigint"),
        "sql": _statement(),
        "key_names": F.filter("primaryKey", lambda name: name != dataworks.ROW_ID),
        "only_key": F.lit(False),
        "rows": F.array(row_images(_without_row_id("before"), _without_row_id("after"))),
    }


def _is_mysql_ddl() -> Column:
    """Whether the source uses MySQL's DDL: by `dbType`; where that is ambiguous, if the message names no schema."""
    return _has_db_type(_MYSQL) | (_has_db_type(_MAYBE_MYSQL) & _has_no_schema())


def _has_db_type(pattern: str) -> Column:
    return F.coalesce(F.col("dbType"), F.lit("")).rlike(pattern)


def _has_no_schema() -> Column:
    schema = F.col("schemaName")
    return schema.isNull() | (schema == "") | F.coalesce(schema == F.col("dbName"), F.lit(False))


def _database() -> Column:
    """`<dbName>`, or `<dbName>.<schemaName>` where the source has schemas inside databases."""
    database, schema = F.col("dbName"), F.col("schemaName")
    is_alone = _has_no_schema() | _has_db_type(_MYSQL)
    return F.when(is_alone, database).otherwise(F.concat_ws(".", database, schema))


def _statement() -> Column:
    """The statement. For clauses without `ALTER TABLE`, which "Overall message format" shows, prepends it."""
    text = F.col("ddlText")
    table = F.replace(F.col("tableName"), F.lit("`"), F.lit("``"))
    is_alter = (F.col("form") == _DDL) & (F.col("op") == "ALTER")
    has_clauses_only = is_alter & ~text.rlike(r"(?i)^\s*(?:alter\b|/\*|--|#)") & table.isNotNull()
    return F.when(has_clauses_only, F.concat(F.lit("ALTER TABLE `"), table, F.lit("` "), text)).otherwise(text)


def _without_row_id(column: str) -> Column:
    row = F.col(column)
    has_row_id = F.coalesce(F.map_contains_key(row, F.lit(dataworks.ROW_ID)), F.lit(False))
    return F.when(has_row_id, F.map_filter(row, lambda name, _: name != dataworks.ROW_ID)).otherwise(row)


def _types(message: Row) -> MessageTypes:
    schema = message["schema"]
    columns = (schema["dataColumn"] if schema is not None else None) or []
    named = {
        column["name"]: column["type"]
        for column in columns
        if column is not None and column["name"] is not None and column["name"] != dataworks.ROW_ID
    }
    encodings = {name: type_ for name, type_ in named.items() if type_ is not None}
    return MessageTypes({name: _TYPES.get(encodings.get(name, ""), "") for name in named}, encodings)


DATAWORKS = Dialect(
    "dataworks",
    _matches,
    _matches,
    _form,
    (
        Form(_ROW, ROW, dataworks.DataWorksRow, DataWorksRowSent),
        Form(_DDL, DDL, dataworks.DataWorksDdl, DataWorksDdlSent),
        Form(_OTHER_DDL, OTHER_DDL, dataworks.DataWorksDdl, DataWorksDdlSent),
        Form(_HEARTBEAT, HEARTBEAT, dataworks.DataWorksNote, DataWorksNoteSent),
        Form(_TRANSACTION, TRANSACTION, dataworks.DataWorksNote, DataWorksNoteSent),
        Form(_XA, XA, dataworks.DataWorksNote, DataWorksNoteSent),
    ),
    _columns,
    _types,
    frozenset({Trait.NUMBERS_CHANGES, Trait.LOADS_FIRST, Trait.NEEDS_TYPES}),
)
