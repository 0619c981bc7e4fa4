"""Contracts of complete DataWorks messages, with the fields that decoding does not read (dataworks-kafka-message).

As in `contracts.sent_canal_json` they validate one message per shape, and every rule only warns.
"""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
from typing import TYPE_CHECKING

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.canal_json import FIRST_MS, LAST_MS
from cdc_pipeline.contracts.checks import warning
from cdc_pipeline.contracts.dataworks import DataWorksDdl, DataWorksNote, DataWorksRow

_COLUMN = T.StructType([T.StructField("name", T.StringType()), T.StructField("type", T.StringType())])
if TYPE_CHECKING:  # mypy needs a class as annotation, Pandera the complete Spark type
    from pyspark.sql.types import ArrayType as _Columns
    from pyspark.sql.types import MapType as _Texts
else:
    _Columns = T.ArrayType(_COLUMN)
    _Texts = T.MapType(T.StringType(), T.StringType())

VALUE_TYPES = ("BOOLEAN", "DOUBLE", "DATE", "BYTES", "LONG", "STRING")
_NUMBER = "coalesce(item.kind LIKE 'DECIMAL%' OR item.kind IN ('BIGINT', 'DOUBLE', 'FLOAT'), false)"
_INTEGER = "coalesce(item.kind = 'BIGINT' OR item.kind LIKE 'DECIMAL(%,0)', false)"
_FITS = (
    "CASE item.type WHEN 'BOOLEAN' THEN item.kind = 'BOOLEAN' "
    f"WHEN 'DOUBLE' THEN {_NUMBER} WHEN 'LONG' THEN {_INTEGER} WHEN 'DATE' THEN {_INTEGER} "
    "WHEN 'BYTES' THEN item.kind = 'STRING' WHEN 'STRING' THEN item.kind = 'STRING' ELSE true END"
)
"""SQL of whether a value of `_VALUES` has the JSON type of its column's type ("Field types")."""
_VALUES = "transform(dataColumn, column -> named_struct('type', column.type, 'kind', valueKinds[column.name]))"
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\\\\z"


class Sent(pa.DataFrameModel):  # type: ignore[type-arg]
    """The fields that decoding does not read. A field of another JSON type is null."""

    data_column: _Columns = pa.Field(nullable=True, alias="dataColumn")
    db_version: T.StringType = pa.Field(nullable=True, alias="dbVersion")
    scn: T.StringType = pa.Field(nullable=True)
    checkpoint_time: T.LongType = pa.Field(nullable=True, alias="checkpointTime")
    ddl_meta: T.StringType = pa.Field(nullable=True, alias="ddlMeta")
    version: T.StringType = pa.Field(nullable=True)
    value_kinds: _Texts = pa.Field(nullable=True, alias="valueKinds")
    """Column → the type of its value in `after`, else in `before`, as Spark's `schema_of_variant` names it. Derived."""

    checkpoint_time_is_ms = warning(
        "checkpoint_time_is_ms",
        f"checkpointTime is null, or between {FIRST_MS} and {LAST_MS}",
        f"coalesce(checkpointTime BETWEEN {FIRST_MS} AND {LAST_MS}, true)",
        "payload.timestamp",
        "checkpointTime",
    )
    version_is_there = warning("version_is_there", "version is not empty", "length(version) > 0", "version", "version")


class _OfTable(Sent):
    """A row change or DDL event."""

    db_type_is_there = warning(
        "db_type_is_there", "dbType is not empty", "length(dbType) > 0", "schema.source", "dbType"
    )
    sequence_is_there = warning(
        "sequence_is_there",
        "sequenceId is not null; without it only eventTime orders the record",
        "sequenceId IS NOT NULL",
        "payload.sequenceId",
        "sequenceId",
    )
    scn_is_of_oracle = warning(
        "scn_is_of_oracle",
        "scn is empty unless dbType is Oracle",
        "coalesce(scn, '') = '' OR lower(coalesce(dbType, '')) LIKE 'oracle%'",
        "payload.scn",
        "scn",
    )


class DataWorksRowSent(_OfTable, DataWorksRow):
    """A row change."""

    columns_are_typed = warning(
        "columns_are_typed",
        f"each entry of dataColumn has a name and one of the types {', '.join(VALUE_TYPES)}",
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
        "each value has the JSON type of its column's type",
        f"coalesce(NOT exists({_VALUES}, item -> coalesce(item.kind, 'VOID') <> 'VOID' AND NOT ({_FITS})), true)",
        "Field types",
    )
    ddl_meta_is_of_ddl = warning(
        "ddl_meta_is_of_ddl", "ddl is null in a row change", "ddlMeta IS NULL", "payload.ddl", "ddlMeta"
    )


class DataWorksDdlSent(_OfTable, DataWorksDdl):
    """A DDL event."""

    ddl_meta_is_base64 = warning(
        "ddl_meta_is_base64",
        "ddlMeta is Base64",
        f"coalesce(ddlMeta RLIKE '{_BASE64}', false)",
        "payload.ddl",
        "ddlMeta",
    )


class DataWorksNoteSent(Sent, DataWorksNote):
    """Heartbeat, begin or end of a transaction, XA."""

    note_is_of_no_table = warning(
        "note_is_of_no_table",
        "dataColumn, primaryKey and source are null in heartbeat, transaction and XA messages",
        "dataColumn IS NULL AND primaryKey IS NULL AND dbName IS NULL AND tableName IS NULL",
        "Heartbeat message format",
    )
    note_has_no_statement = warning(
        "note_has_no_statement",
        "ddl is null in heartbeat, transaction and XA messages",
        "ddlText IS NULL",
        "payload.ddl",
        "ddlText",
    )
