"""DataWorks' message format (dataworks-kafka-message): `schema`, `payload`, `version`.

Records are ordered by `sequenceId`, which the full load and the changes after it share. An UPDATE is one UPDATE_AFTER
with both images, or an UPDATE_BEFOR and an UPDATE_AFTER of one `sequenceId` with one image each. A table without a key
has the column `#alibaba_rds_row_id#`, which upstream's table does not have: it is left in the raw snapshot.

`dbType` says which database it is, and `schemaName` the schema inside it where the database has schemas (PostgreSQL, SQL
Server, Oracle): such a table's mirror is in the database `<dbName>.<schemaName>`, and its DDL, which is not MySQL's, is
recorded as not supported on the table that the message names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import XA_TYPES
from cdc_pipeline.contracts.dataworks import (
    DDL_OPS,
    HEARTBEAT_OPS,
    ROW_ID,
    TRANSACTION_OPS,
    DataWorksDdl,
    DataWorksNote,
    DataWorksRow,
)
from cdc_pipeline.contracts.sent_dataworks import DataWorksDdlSent, DataWorksNoteSent, DataWorksRowSent
from cdc_pipeline.dialects.dialect import Dialect, Form, MessageTypes, Trait, image
from cdc_pipeline.dialects.envelope import HAS_PAYLOAD
from cdc_pipeline.dialects.unified import DDL, HEARTBEAT, OTHER_DDL, ROW, TRANSACTION, TSO_SHIFT, XA

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

_ROW, _DDL, _OTHER_DDL, _XA = "dataworks_row", "dataworks_ddl", "dataworks_other_ddl", "dataworks_xa"
_HEARTBEAT, _TRANSACTION = "dataworks_heartbeat", "dataworks_transaction"
_SIGNS = "[^a-zA-Z]*"
_OF_MYSQL = rf"(?i)^{_SIGNS}(?:mysql|mariadb|tidb|(?:polardb|adb){_SIGNS}mysql|polardb{_SIGNS}x|drds){_SIGNS}\z"
"""`dbType` of the databases that speak MySQL's DDL and have no schemas inside databases, with versions and signs. One
pattern: each message is asked, and what is compiled for it has a limit (`dialects/test_speed.py`)."""
_OF_EITHER = rf"(?i)^{_SIGNS}(?:polardb|oceanbase)?{_SIGNS}\z"
"""Those that may, or may speak that of PostgreSQL or Oracle, with schemas; and where it is not said."""
# its six types → the MySQL type that holds all their values
_TYPES = {
    "BOOLEAN": "tinyint(1)",
    "LONG": "bigint",
    "DOUBLE": "double",
    "DATE": "timestamp(3)",
    "BYTES": "longblob",
    "STRING": "longtext",
}


def _recognised() -> Column:
    return F.col(HAS_PAYLOAD)


def _form() -> Column:
    op = F.col("op")
    return (
        F.when(op.isin(*HEARTBEAT_OPS), F.lit(_HEARTBEAT))
        .when(op.isin(*TRANSACTION_OPS), F.lit(_TRANSACTION))
        .when(op.isin(*XA_TYPES), F.lit(_XA))
        .when(op.isin(*DDL_OPS), F.when(_speaks_mysql(), F.lit(_DDL)).otherwise(F.lit(_OTHER_DDL)))
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
        "key_names": F.filter("primaryKey", lambda name: name != ROW_ID),
        "only_key": F.lit(False),
        "rows": F.array(image(_without_row_id("before"), _without_row_id("after"))),
    }


def _speaks_mysql() -> Column:
    """Whether the source is MySQL or one that speaks its DDL: by its type; where that does not tell, by its having no
    schemas."""
    return _is(_OF_MYSQL) | (_is(_OF_EITHER) & _has_no_schema())


def _is(pattern: str) -> Column:
    return F.coalesce(F.col("dbType"), F.lit("")).rlike(pattern)


def _has_no_schema() -> Column:
    schema = F.col("schemaName")
    return schema.isNull() | (schema == "") | F.coalesce(schema == F.col("dbName"), F.lit(False))


def _database() -> Column:
    """The database; with the schema's name where the source has schemas inside databases."""
    database, schema = F.col("dbName"), F.col("schemaName")
    plain = _has_no_schema() | _is(_OF_MYSQL)
    return F.when(plain, database).otherwise(F.concat_ws(".", database, schema))


def _statement() -> Column:
    """The statement; the document also shows the bare clauses of an ALTER TABLE, "ADD COLUMN ..."."""
    text = F.col("ddlText")
    table = F.replace(F.col("tableName"), F.lit("`"), F.lit("``"))
    of_mysql = (F.col("form") == _DDL) & (F.col("op") == "ALTER")
    clauses = of_mysql & ~text.rlike(r"(?i)^\s*(?:alter\b|/\*|--|#)") & table.isNotNull()
    return F.when(clauses, F.concat(F.lit("ALTER TABLE `"), table, F.lit("` "), text)).otherwise(text)


def _without_row_id(column: str) -> Column:
    row = F.col(column)
    stripped = F.map_filter(row, lambda name, _: name != ROW_ID)
    return F.when(F.coalesce(F.map_contains_key(row, F.lit(ROW_ID)), F.lit(False)), stripped).otherwise(row)


def _types(message: Row) -> MessageTypes:
    schema = message["schema"]
    columns = (schema["dataColumn"] if schema is not None else None) or []
    named = {
        column["name"]: column["type"]
        for column in columns
        if column is not None and column["name"] is not None and column["name"] != ROW_ID
    }
    wires = {name: wire for name, wire in named.items() if wire is not None}
    return MessageTypes({name: _TYPES.get(wires.get(name, ""), "") for name in named}, wires)


DATAWORKS = Dialect(
    "dataworks",
    _recognised,
    _recognised,
    _form,
    (
        Form(_ROW, ROW, DataWorksRow, DataWorksRowSent),
        Form(_DDL, DDL, DataWorksDdl, DataWorksDdlSent),
        Form(_OTHER_DDL, OTHER_DDL, DataWorksDdl, DataWorksDdlSent),
        Form(_HEARTBEAT, HEARTBEAT, DataWorksNote, DataWorksNoteSent),
        Form(_TRANSACTION, TRANSACTION, DataWorksNote, DataWorksNoteSent),
        Form(_XA, XA, DataWorksNote, DataWorksNoteSent),
    ),
    _columns,
    _types,
    frozenset({Trait.NUMBERS_CHANGES, Trait.SPLITS_UPDATES, Trait.LOADS_FIRST, Trait.NEEDS_TYPES}),
)
