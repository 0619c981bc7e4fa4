"""DataWorks' messages as they were sent: what is looked at once per shape of messages (dataworks-kafka-message).

As in `contracts.sent_canal_json`: one message of each shape, and every rule is a warning.
"""

# No `from __future__ import annotations` here: Pandera evaluates the annotations, which are values.
from typing import TYPE_CHECKING

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.canal_json import FIRST_MS, LAST_MS
from cdc_pipeline.contracts.checks import warning
from cdc_pipeline.contracts.dataworks import DataWorksDdl, DataWorksNote, DataWorksRow

_COLUMN = T.StructType([T.StructField("name", T.StringType()), T.StructField("type", T.StringType())])
if TYPE_CHECKING:  # to mypy an annotation must be a class; Pandera wants the whole type
    from pyspark.sql.types import ArrayType as _Columns
    from pyspark.sql.types import MapType as _Texts
else:
    _Columns = T.ArrayType(_COLUMN)
    _Texts = T.MapType(T.StringType(), T.StringType())

VALUE_TYPES = ("BOOLEAN", "DOUBLE", "DATE", "BYTES", "LONG", "STRING")
_NUMBER = "coalesce(told.kind LIKE 'DECIMAL%' OR told.kind IN ('BIGINT', 'DOUBLE', 'FLOAT'), false)"
_WHOLE = "coalesce(told.kind = 'BIGINT' OR told.kind LIKE 'DECIMAL(%,0)', false)"
# the JSON type, as Spark's VARIANT has it, that the values of a type have
_FITS = (
    "CASE told.type WHEN 'BOOLEAN' THEN told.kind = 'BOOLEAN' "
    f"WHEN 'DOUBLE' THEN {_NUMBER} WHEN 'LONG' THEN {_WHOLE} WHEN 'DATE' THEN {_WHOLE} "
    "WHEN 'BYTES' THEN told.kind = 'STRING' WHEN 'STRING' THEN told.kind = 'STRING' ELSE true END"
)
_TOLD = "transform(dataColumn, column -> named_struct('type', column.type, 'kind', valueKinds[column.name]))"
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\\\\z"


class Sent(pa.DataFrameModel):  # type: ignore[type-arg]
    """The fields that are not read of each message. A field of another type is null.

    `valueKinds` is made of the last of the two images: the JSON type of each column's value, as Spark's VARIANT has it.
    """

    data_column: _Columns = pa.Field(nullable=True, alias="dataColumn")
    db_version: T.StringType = pa.Field(nullable=True, alias="dbVersion")
    scn: T.StringType = pa.Field(nullable=True)
    checkpoint_time: T.LongType = pa.Field(nullable=True, alias="checkpointTime")
    ddl_meta: T.StringType = pa.Field(nullable=True, alias="ddlMeta")
    version: T.StringType = pa.Field(nullable=True)
    value_kinds: _Texts = pa.Field(nullable=True, alias="valueKinds")

    checkpoint_time_is_ms = warning(
        "checkpoint_time_is_ms",
        f"checkpointTime, where it is there, is between {FIRST_MS} and {LAST_MS}",
        f"coalesce(checkpointTime BETWEEN {FIRST_MS} AND {LAST_MS}, true)",
        "payload.timestamp",
        "checkpointTime",
    )
    version_is_there = warning(
        "version_is_there", "version says which message format it is", "length(version) > 0", "version", "version"
    )


class _OfTable(Sent):
    """What row changes and DDL say of their table."""

    db_type_is_there = warning(
        "db_type_is_there", "dbType says which database it is", "length(dbType) > 0", "schema.source", "dbType"
    )
    sequence_is_there = warning(
        "sequence_is_there",
        "sequenceId is there: records without it have only their second to be ordered by",
        "sequenceId IS NOT NULL",
        "payload.sequenceId",
        "sequenceId",
    )
    scn_is_of_oracle = warning(
        "scn_is_of_oracle",
        "scn is there for Oracle only",
        "coalesce(scn, '') = '' OR lower(coalesce(dbType, '')) LIKE 'oracle%'",
        "payload.scn",
        "scn",
    )


class DataWorksRowSent(_OfTable, DataWorksRow):
    """A row change."""

    columns_are_typed = warning(
        "columns_are_typed",
        f"each of dataColumn has a name, and a type of {', '.join(VALUE_TYPES)}",
        "dataColumn IS NOT NULL AND NOT exists(dataColumn, column -> coalesce(length(column.name), 0) = 0 "
        f"OR NOT coalesce(column.type IN ({', '.join(map(repr, VALUE_TYPES))}), false))",
        "schema.dataColumn, Field types",
        "dataColumn",
    )
    columns_are_of_image = warning(
        "columns_are_of_image",
        "each column of the row is in dataColumn",
        "coalesce(size(array_except(map_keys(coalesce(after, before)), transform(dataColumn, column -> column.name))) = 0, "
        "true)",
        "schema.dataColumn",
        "dataColumn",
    )
    values_fit_types = warning(
        "values_fit_types",
        "each value is of the JSON type of its column's type",
        f"coalesce(NOT exists({_TOLD}, told -> coalesce(told.kind, 'VOID') <> 'VOID' AND NOT ({_FITS})), true)",
        "Field types",
    )
    ddl_meta_is_of_ddl = warning(
        "ddl_meta_is_of_ddl", "ddl is null in a row change", "ddlMeta IS NULL", "payload.ddl", "ddlMeta"
    )


class DataWorksDdlSent(_OfTable, DataWorksDdl):
    """A change of a table's definition."""

    ddl_meta_is_base64 = warning(
        "ddl_meta_is_base64",
        "ddlMeta is a Base64 text",
        f"coalesce(ddlMeta RLIKE '{_BASE64}', false)",
        "payload.ddl",
        "ddlMeta",
    )


class DataWorksNoteSent(Sent, DataWorksNote):
    """Heartbeats, the begin and end of transactions, XA."""

    note_is_of_no_table = warning(
        "note_is_of_no_table",
        "dataColumn, primaryKey and source are null in a heartbeat, and at the begin and end of a transaction",
        "dataColumn IS NULL AND primaryKey IS NULL AND dbName IS NULL AND tableName IS NULL",
        "Heartbeat message format",
    )
    note_has_no_statement = warning(
        "note_has_no_statement", "ddl is null where nothing changes", "ddlText IS NULL", "payload.ddl", "ddlText"
    )
