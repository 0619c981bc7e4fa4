"""Contracts of DataWorks' messages: their fields and rules (dataworks-kafka-message "Parameters").

Rows, types and nested fields as in `contracts.canal_json`. Fields that are validated once per shape of messages are in
`contracts.sent_dataworks`.
"""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
from typing import TYPE_CHECKING

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.canal_json import DDL_TYPES, FIRST_MS, LAST_MS, XA_TYPES
from cdc_pipeline.contracts.checks import at_most, rule
from cdc_pipeline.contracts.limits import ANY_COLUMNS, ANY_NAME, KEY_COLUMNS, STATEMENT

if TYPE_CHECKING:  # mypy needs a class as annotation, Pandera the complete Spark type
    from pyspark.sql.types import ArrayType as _Names
    from pyspark.sql.types import MapType as _Row
else:
    _Names = T.ArrayType(T.StringType())
    _Row = T.MapType(T.StringType(), T.StringType())
ROW_ID = "#alibaba_rds_row_id#"
"""The column that DataWorks adds to the images of tables without a key. The upstream table does not have it."""
HEARTBEAT_OPS = ("MHEARTBEAT",)
TRANSACTION_OPS = ("TRANSACTION_BEGIN", "TRANSACTION_END", "GTID")
ROW_OPS = ("INSERT", "UPDATE_BEFOR", "UPDATE_AFTER", "DELETE")
DDL_OPS = DDL_TYPES
_MS = {"min_value": FIRST_MS, "max_value": LAST_MS}
_NAMED = {"min_value": 1, "max_value": ANY_NAME}
_OP, _TIME, _SOURCE = {"clause": "payload.op"}, {"clause": "payload.timestamp"}, {"clause": "schema.source"}
_LIMIT = {"clause": "limit of the databases that DataWorks reads"}


class DataWorksMessage(pa.DataFrameModel):  # type: ignore[type-arg]
    """Any message of DataWorks. `eventTime`, `systemTime`: ms. `sequenceId` orders full and incremental records."""

    db_type: T.StringType = pa.Field(nullable=True, alias="dbType")
    db_name: T.StringType = pa.Field(nullable=True, alias="dbName")
    schema_name: T.StringType = pa.Field(
        nullable=True, alias="schemaName", str_length={"min_value": 0, "max_value": ANY_NAME}, metadata=_LIMIT
    )
    table_name: T.StringType = pa.Field(nullable=True, alias="tableName")
    primary_key: _Names = pa.Field(nullable=True, alias="primaryKey")
    op: T.StringType = pa.Field(metadata=_OP)
    before: _Row = pa.Field(nullable=True)
    after: _Row = pa.Field(nullable=True)
    sequence_id: T.StringType = pa.Field(nullable=True, alias="sequenceId")
    event_time: T.LongType = pa.Field(alias="eventTime", in_range=_MS, metadata=_TIME)
    system_time: T.LongType = pa.Field(nullable=True, alias="systemTime", in_range=_MS, metadata=_TIME)
    ddl_text: T.StringType = pa.Field(nullable=True, alias="ddlText")


_SEQUENCE_IS_NUMBER = rule(
    "sequence_is_number",
    "sequenceId, which orders records, is an integer below 2^63",
    "sequenceId IS NULL OR (sequenceId RLIKE '^[0-9]{1,19}\\\\z' AND try_cast(sequenceId AS BIGINT) IS NOT NULL)",
    clause="payload.sequenceId",
)
_NO_ROWS = rule(
    "images_are_of_row_changes",
    "before and after have no columns; only row changes have them",
    "coalesce(size(before) = 0, true) AND coalesce(size(after) = 0, true)",
    clause="payload.before, payload.after",
)


def _own_columns(image: str) -> str:
    """SQL of the number of columns of an image without the row id; null without an image."""
    return f"(size({image}) - IF(map_contains_key({image}, '{ROW_ID}'), 1, 0))"


_SIZE = "greatest(size(before), size(after))"
_KEYS = "concat(coalesce(map_keys(before), array()), coalesce(map_keys(after), array()))"


class DataWorksRow(DataWorksMessage):
    """A row change. INSERT has `after`, DELETE `before`. An UPDATE is one record with both, or two with one each."""

    op: T.StringType = pa.Field(isin=list(ROW_OPS), metadata=_OP)
    db_name: T.StringType = pa.Field(alias="dbName", str_length=_NAMED, metadata=_SOURCE)
    table_name: T.StringType = pa.Field(alias="tableName", str_length=_NAMED, metadata=_SOURCE)

    sequence_is_number = _SEQUENCE_IS_NUMBER
    images_fit_op = rule(
        "images_fit_op",
        "INSERT and UPDATE_AFTER have columns in after, DELETE and UPDATE_BEFOR in before, not counting the row id; INSERT "
        "has no before, DELETE and UPDATE_BEFOR have no after",
        f"CASE op WHEN 'INSERT' THEN {_own_columns('after')} > 0 AND before IS NULL "
        f"WHEN 'UPDATE_AFTER' THEN {_own_columns('after')} > 0 "
        f"ELSE {_own_columns('before')} > 0 AND after IS NULL END",
        clause="payload.before, payload.after",
    )
    key_is_in_image = rule(
        "key_is_in_image",
        "each column of primaryKey is in the row",
        "coalesce(size(primaryKey), 0) <= 0 OR size(array_except(primaryKey, map_keys(coalesce(after, before)))) = 0",
        clause="schema.primaryKey",
    )
    ddl_is_of_ddl = rule(
        "ddl_is_of_ddl",
        "ddl is null in a row change",
        "coalesce(ddlText, '') = ''",
        clause="payload.ddl",
        field="ddlText",
    )
    primary_key_is_short = at_most(
        "primary_key_is_short",
        "primaryKey",
        "size(primaryKey)",
        KEY_COLUMNS,
        "names",
        clause=_LIMIT["clause"],
        field="primaryKey",
    )
    image_has_few_columns = at_most(
        "image_has_few_columns", "a row", _SIZE, ANY_COLUMNS, "columns", clause=_LIMIT["clause"], field="after"
    )
    names_of_image_are_short = rule(
        "names_of_image_are_short",
        f"the name of a column has at most {ANY_NAME} characters",
        f"NOT exists({_KEYS}, name -> length(name) > {ANY_NAME})",
        clause=_LIMIT["clause"],
        field="after",
        found=f"concat('a name of ', array_max(transform({_KEYS}, name -> length(name))), ' characters')",
    )


class DataWorksDdl(DataWorksMessage):
    """A DDL event, its statement in `ddl.text`."""

    op: T.StringType = pa.Field(isin=list(DDL_OPS), metadata=_OP)
    table_name: T.StringType = pa.Field(
        nullable=True, alias="tableName", str_length={"min_value": 0, "max_value": ANY_NAME}, metadata=_LIMIT
    )
    db_name: T.StringType = pa.Field(
        nullable=True, alias="dbName", str_length={"min_value": 0, "max_value": ANY_NAME}, metadata=_LIMIT
    )
    ddl_text: T.StringType = pa.Field(
        alias="ddlText", str_length={"min_value": 1, "max_value": STATEMENT}, metadata={"clause": "payload.ddl"}
    )

    sequence_is_number = _SEQUENCE_IS_NUMBER
    images_are_of_row_changes = _NO_ROWS


class DataWorksNote(DataWorksMessage):
    """Heartbeat, begin or end of a transaction, XA."""

    op: T.StringType = pa.Field(isin=[*HEARTBEAT_OPS, *TRANSACTION_OPS, *XA_TYPES], metadata=_OP)

    images_are_of_row_changes = _NO_ROWS
