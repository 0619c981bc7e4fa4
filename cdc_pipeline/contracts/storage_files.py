"""Contracts of the schema files and the checkpoint of TiCDC's storage sink (ticdc-facts §6)."""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
from typing import TYPE_CHECKING

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.canal_json import FIRST_TSO, LAST_TSO, LIMIT, READ_BY, SENT, SENT_MS, SENT_OR_READ
from cdc_pipeline.contracts.checks import at_most, rule
from cdc_pipeline.contracts.limits import COLUMNS, MAX_CLOCK_SKEW_MS, NAME, STATEMENT

if TYPE_CHECKING:  # mypy needs a class as annotation, Pandera the complete Spark type
    from pyspark.sql.types import ArrayType as _Rows
    from pyspark.sql.types import ArrayType as _Times
else:
    _Rows = T.ArrayType(T.MapType(T.StringType(), T.StringType()))
    _Times = T.ArrayType(T.LongType())
_TSO = {"min_value": FIRST_TSO, "max_value": LAST_TSO}
_FILES = {"clause": "ticdc-facts §6"}


class TicdcStorageFile(pa.DataFrameModel):  # type: ignore[type-arg]
    """A schema file or the checkpoint. `tableVersion`, `checkpointTs`: TSO."""

    defined_database: T.StringType = pa.Field(nullable=True, alias="definedDatabase")
    defined_table: T.StringType = pa.Field(nullable=True, alias="definedTable")
    table_version: T.LongType = pa.Field(nullable=True, alias="tableVersion")
    statement: T.StringType = pa.Field(nullable=True)
    action_type: T.LongType = pa.Field(nullable=True, alias="actionType")
    defined_columns: _Rows = pa.Field(nullable=True, alias="definedColumns")
    """Per column of the table: name of a field of `TableColumns` → its text."""
    checkpoint_ts: T.LongType = pa.Field(nullable=True, alias="checkpointTs")
    sent: T.TimestampType = pa.Field(nullable=True, alias=SENT)
    """Modification time of the file. No field of the file."""
    read_by: _Times = pa.Field(nullable=True, alias=READ_BY)


class TicdcSchemaFile(TicdcStorageFile):
    """A schema file: a DDL statement, or the definition of a table."""

    defined_database: T.StringType = pa.Field(
        alias="definedDatabase", str_length={"min_value": 1, "max_value": NAME}, metadata=_FILES
    )
    defined_table: T.StringType = pa.Field(
        nullable=True, alias="definedTable", str_length={"min_value": 0, "max_value": NAME}, metadata=LIMIT
    )
    table_version: T.LongType = pa.Field(alias="tableVersion", in_range=_TSO, metadata=_FILES)
    statement: T.StringType = pa.Field(str_length={"min_value": 0, "max_value": STATEMENT}, metadata=_FILES)
    action_type: T.LongType = pa.Field(alias="actionType", ge=0, metadata=_FILES)

    defines_something = rule(
        "defines_something",
        "Query has a statement, or Table a name and TableColumns at least one column, each with name and type",
        "length(statement) > 0 OR (length(definedTable) > 0 AND size(definedColumns) > 0 AND NOT exists(definedColumns, "
        "column -> coalesce(length(column['ColumnName']), 0) = 0 OR coalesce(length(column['ColumnType']), 0) = 0))",
        clause=_FILES["clause"],
    )
    defined_columns_are_few = at_most(
        "defined_columns_are_few",
        "TableColumns",
        "size(definedColumns)",
        COLUMNS,
        "columns",
        clause=LIMIT["clause"],
        field="definedColumns",
    )


class TicdcStorageCheckpoint(TicdcStorageFile):
    """The checkpoint: all changes with commitTs <= checkpoint-ts are in files written before it."""

    checkpoint_ts: T.LongType = pa.Field(alias="checkpointTs", in_range=_TSO, metadata=_FILES)

    checkpoint_is_not_ahead = rule(
        "checkpoint_is_not_ahead",
        f"checkpoint-ts is at most {MAX_CLOCK_SKEW_MS // 60_000} minutes later than the modification time of its file, and "
        "than the clock of the pipeline (max_clock_skew_seconds)",
        f"shiftright(checkpointTs, 18) - {SENT_OR_READ.format(SENT_MS)} <= {MAX_CLOCK_SKEW_MS}",
        clause=_FILES["clause"],
        field="checkpointTs",
        found="concat(checkpointTs, ', which is ', timestamp_millis(shiftright(checkpointTs, 18)), ' UTC, in a file of ', "
        f"timestamp_millis({SENT_OR_READ.format(SENT_MS)}))",
    )
