"""The contracts of messages: for each dialect and kind of message its fields, and what they must be.

A row is a parsed message, its nested fields laid flat (`dialects.envelope.PATHS` says where each comes from), null
where the message has none. The types are those that the one parse asks for; a field of another type is a broken
message before any rule is looked at. Clauses: ticdc-canal-json "Definitions of message formats", ticdc-facts §1, §3,
canal-facts 1–20, 35–37, dataworks-kafka-message "Parameters".
"""

# No `from __future__ import annotations` here: Pandera evaluates the annotations, which are values.
from typing import TYPE_CHECKING

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.checks import rule

FIRST_MS, LAST_MS = 10**12, 10**13 - 1
"""Times are ms of 13 digits: from September 2001 to November 2286."""
FIRST_TSO, LAST_TSO = FIRST_MS << 18, (LAST_MS + 1 << 18) - 1
ROW_TYPES = ("INSERT", "UPDATE", "DELETE")
XA_TYPES = ("XACOMMIT", "XAROLLBACK")
WATERMARK_TYPE = "TIDB_WATERMARK"
CLAIM_RULE = "claim_is_resolved"

if TYPE_CHECKING:  # to mypy an annotation must be a class; Pandera wants the whole type
    from pyspark.sql.types import ArrayType as _Names
    from pyspark.sql.types import ArrayType as _Rows
    from pyspark.sql.types import MapType as _Row
else:
    _Names = T.ArrayType(T.StringType())
    _Row = T.MapType(T.StringType(), T.StringType())
    _Rows = T.ArrayType(_Row)
_MS = {"min_value": FIRST_MS, "max_value": LAST_MS}


# ---- Canal-JSON, as TiCDC and Canal share it


class CanalMessage(pa.DataFrameModel):  # type: ignore[type-arg]
    """Any message of Canal-JSON. `commitTs`, `watermarkTs` are TSOs, `es` and `ts` ms.

    `partialJson` is no field of the message: whether a value of a JSON column is an expression (canal-facts 30).
    """

    is_ddl: T.BooleanType = pa.Field(alias="isDdl")
    type: T.StringType = pa.Field(nullable=True)
    database: T.StringType = pa.Field(nullable=True)
    table: T.StringType = pa.Field(nullable=True)
    pk_names: _Names = pa.Field(nullable=True, alias="pkNames")
    es: T.LongType = pa.Field(in_range=_MS)
    ts: T.LongType = pa.Field(nullable=True, in_range=_MS)
    sql: T.StringType = pa.Field(nullable=True)
    data: _Rows = pa.Field(nullable=True)
    old: _Rows = pa.Field(nullable=True)
    commit_ts: T.LongType = pa.Field(nullable=True, alias="commitTs")
    watermark_ts: T.LongType = pa.Field(nullable=True, alias="watermarkTs")
    only_handle_key: T.BooleanType = pa.Field(nullable=True, alias="onlyHandleKey")
    claim_check_location: T.StringType = pa.Field(nullable=True, alias="claimCheckLocation")
    partial_json: T.BooleanType = pa.Field(alias="partialJson")


_TSO_IS_ES = rule(
    "tso_is_es",
    "the physical part of commitTs or watermarkTs (TSO >> 18) is es",
    "coalesce(shiftright(coalesce(commitTs, watermarkTs), 18) = es, true)",
)


class _Ddl(CanalMessage):
    is_ddl: T.BooleanType = pa.Field(alias="isDdl", eq=True)
    sql: T.StringType = pa.Field(str_length={"min_value": 1})


class _RowChange(CanalMessage):
    database: T.StringType = pa.Field(str_length={"min_value": 1})
    table: T.StringType = pa.Field(str_length={"min_value": 1})
    is_ddl: T.BooleanType = pa.Field(alias="isDdl", eq=False)
    type: T.StringType = pa.Field(isin=list(ROW_TYPES))

    sql_is_of_ddl = rule("sql_is_of_ddl", "sql is empty where isDdl is false", "coalesce(sql, '') = ''")
    old_is_of_update = rule(
        "old_is_of_update",
        "an INSERT has no rows in old",
        "coalesce(type <> 'INSERT', true) OR coalesce(size(old), 0) <= 0",
    )


class TicdcDdl(_Ddl):
    """A DDL event of TiCDC."""

    tso_is_es = _TSO_IS_ES


class CanalDdl(_Ddl):
    """A DDL event of Canal. `database` may be empty: Canal could not read the statement (canal-facts 42)."""


class TicdcWatermark(CanalMessage):
    """A WATERMARK event: all changes with commitTs <= watermarkTs were sent before it."""

    is_ddl: T.BooleanType = pa.Field(alias="isDdl", eq=False)
    type: T.StringType = pa.Field(isin=[WATERMARK_TYPE])
    watermark_ts: T.LongType = pa.Field(alias="watermarkTs")

    tso_is_es = _TSO_IS_ES


class TicdcRow(_RowChange):
    """A row change of TiCDC: exactly one row (ticdc-facts §1). Before v5.4 a DELETE repeats its row in old.

    Of a large message (ticdc-facts §7) either the rest is in a file, which is parsed in its place where it was found, or
    it has its handle key only (`onlyHandleKey`), which breaks no rule: the row is known, its other columns are not.
    """

    tso_is_es = _TSO_IS_ES
    claim_is_resolved = rule(
        CLAIM_RULE,
        "the whole row, in the message or in the file of the claim store that it refers to",
        "claimCheckLocation IS NULL",
    )
    data_has_one_row = rule(
        "data_has_one_row",
        "data has exactly one row, which has columns",
        "size(data) = 1 AND size(get(data, 0)) > 0",
    )
    old_has_one_row = rule(
        "old_has_one_row",
        "an UPDATE has exactly one row in old",
        "coalesce(type <> 'UPDATE', true) OR (size(old) = 1 AND get(old, 0) IS NOT NULL)",
    )
    key_is_in_data = rule(
        "key_is_in_data",
        "each column of pkNames is in data",
        "CASE coalesce(size(pkNames), 0) WHEN 0 THEN true "
        "WHEN 1 THEN map_contains_key(get(data, 0), get(pkNames, 0)) "
        "ELSE size(array_except(pkNames, map_keys(get(data, 0)))) = 0 END",
    )


class CanalRow(_RowChange):
    """Row changes of Canal: one or more rows, those of DELETE in data, or in old where a writer put them there.

    `pkNames` may be stale after DDL on the key (canal-facts 15, 55): a key that is not in the rows is no breach here.
    """

    data_has_rows = rule(
        "data_has_rows",
        "data has rows, each with columns (those of a DELETE may be in old)",
        "CASE WHEN coalesce(size(data), 0) > 0 THEN NOT exists(data, row -> coalesce(size(row), 0) < 1) "
        "ELSE type = 'DELETE' AND size(old) > 0 AND NOT exists(old, row -> coalesce(size(row), 0) < 1) END",
    )
    old_has_the_rows_of_data = rule(
        "old_has_the_rows_of_data",
        "an UPDATE has as many rows in old as in data",
        "coalesce(type <> 'UPDATE', true) OR (size(old) = size(data) AND NOT exists(old, row -> row IS NULL))",
    )
    values_are_whole = rule(
        "values_are_whole",
        "a JSON column has a value, not an expression of binlog_row_value_options=PARTIAL_JSON",
        "NOT partialJson",
    )
    image_has_key = rule(
        "image_has_key",
        "an UPDATE names in old what it changed: under binlog_row_image=MINIMAL it has neither key nor before image",
        "coalesce(type <> 'UPDATE', true) OR coalesce(NOT exists(old, row -> size(row) = 0), true)",
    )


class CanalStatement(CanalMessage):
    """A change that was logged as a statement, not as rows: data and old are null (canal-facts 17)."""

    table: T.StringType = pa.Field(str_length={"min_value": 1})
    type: T.StringType = pa.Field(isin=list(ROW_TYPES))
    sql: T.StringType = pa.Field(str_length={"min_value": 1})


class CanalNote(CanalMessage):
    """What changes no row: the text of a statement whose rows follow (QUERY), XACOMMIT, XAROLLBACK."""

    type: T.StringType = pa.Field(isin=["QUERY", *XA_TYPES])


# ---- TiCDC's storage sink: what stands in its folder beside row messages (ticdc-facts §6)

_TSO = {"min_value": FIRST_TSO, "max_value": LAST_TSO}


class TicdcStorageFile(pa.DataFrameModel):  # type: ignore[type-arg]
    """A schema file or the checkpoint. `tableVersion`, `checkpointTs` are TSOs; a column has the texts of its fields."""

    defined_database: T.StringType = pa.Field(nullable=True, alias="definedDatabase")
    defined_table: T.StringType = pa.Field(nullable=True, alias="definedTable")
    table_version: T.LongType = pa.Field(nullable=True, alias="tableVersion")
    statement: T.StringType = pa.Field(nullable=True)
    action_type: T.LongType = pa.Field(nullable=True, alias="actionType")
    defined_columns: _Rows = pa.Field(nullable=True, alias="definedColumns")
    checkpoint_ts: T.LongType = pa.Field(nullable=True, alias="checkpointTs")


class TicdcSchemaFile(TicdcStorageFile):
    """A schema file: a DDL statement, or without one the table's definition."""

    defined_database: T.StringType = pa.Field(alias="definedDatabase", str_length={"min_value": 1})
    table_version: T.LongType = pa.Field(alias="tableVersion", in_range=_TSO)
    statement: T.StringType = pa.Field()
    action_type: T.LongType = pa.Field(alias="actionType", ge=0)

    defines_something = rule(
        "defines_something",
        "there is a statement in Query, or else a name in Table and columns with name and type in TableColumns",
        "length(statement) > 0 OR (length(definedTable) > 0 AND size(definedColumns) > 0 AND NOT exists(definedColumns, "
        "column -> coalesce(length(column['ColumnName']), 0) = 0 OR coalesce(length(column['ColumnType']), 0) = 0))",
    )


class TicdcStorageCheckpoint(TicdcStorageFile):
    """The checkpoint: all changes with commitTs <= checkpoint-ts are in files that were written before it."""

    checkpoint_ts: T.LongType = pa.Field(alias="checkpointTs", in_range=_TSO)


# ---- DataWorks

HEARTBEAT_OPS = ("MHEARTBEAT",)
TRANSACTION_OPS = ("TRANSACTION_BEGIN", "TRANSACTION_END", "GTID")
DATAWORKS_ROW_OPS = ("INSERT", "UPDATE_BEFOR", "UPDATE_AFTER", "DELETE")
DATAWORKS_DDL_OPS = ("CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")


class DataWorksMessage(pa.DataFrameModel):  # type: ignore[type-arg]
    """Any message of DataWorks. `eventTime`, `systemTime` are ms; `sequenceId` orders full and incremental records."""

    db_name: T.StringType = pa.Field(nullable=True, alias="dbName")
    schema_name: T.StringType = pa.Field(nullable=True, alias="schemaName")
    table_name: T.StringType = pa.Field(nullable=True, alias="tableName")
    primary_key: _Names = pa.Field(nullable=True, alias="primaryKey")
    op: T.StringType = pa.Field()
    before: _Row = pa.Field(nullable=True)
    after: _Row = pa.Field(nullable=True)
    sequence_id: T.StringType = pa.Field(nullable=True, alias="sequenceId")
    event_time: T.LongType = pa.Field(alias="eventTime", in_range=_MS)
    system_time: T.LongType = pa.Field(nullable=True, alias="systemTime", in_range=_MS)
    ddl_text: T.StringType = pa.Field(nullable=True, alias="ddlText")


_SEQUENCE_IS_NUMBER = rule(
    "sequence_is_number",
    "sequenceId, by which records are ordered, is a whole number below 2^63",
    "sequenceId IS NULL OR (sequenceId RLIKE '^[0-9]{1,19}\\\\z' AND try_cast(sequenceId AS BIGINT) IS NOT NULL)",
)


class DataWorksRow(DataWorksMessage):
    """A row change: INSERT has after, DELETE before; an UPDATE is one record with both or a pair with one each."""

    op: T.StringType = pa.Field(isin=list(DATAWORKS_ROW_OPS))
    db_name: T.StringType = pa.Field(alias="dbName", str_length={"min_value": 1})
    table_name: T.StringType = pa.Field(alias="tableName", str_length={"min_value": 1})

    sequence_is_number = _SEQUENCE_IS_NUMBER
    images_fit_op = rule(
        "images_fit_op",
        "INSERT and UPDATE_AFTER have columns in after, DELETE and UPDATE_BEFOR in before; INSERT has no before, "
        "DELETE and UPDATE_BEFOR no after",
        "CASE op WHEN 'INSERT' THEN size(after) > 0 AND before IS NULL WHEN 'UPDATE_AFTER' THEN size(after) > 0 "
        "ELSE size(before) > 0 AND after IS NULL END",
    )
    key_is_in_image = rule(
        "key_is_in_image",
        "each column of primaryKey is in the row",
        "coalesce(size(primaryKey), 0) <= 0 OR size(array_except(primaryKey, map_keys(coalesce(after, before)))) = 0",
    )


class DataWorksDdl(DataWorksMessage):
    """A change of a table's definition, its statement in ddl.text."""

    op: T.StringType = pa.Field(isin=list(DATAWORKS_DDL_OPS))
    ddl_text: T.StringType = pa.Field(alias="ddlText", str_length={"min_value": 1})

    sequence_is_number = _SEQUENCE_IS_NUMBER


class DataWorksNote(DataWorksMessage):
    """Heartbeats, the begin and end of transactions, XA: counted."""

    op: T.StringType = pa.Field(isin=[*HEARTBEAT_OPS, *TRANSACTION_OPS, *XA_TYPES])
