"""The contracts of Alibaba Canal's flat messages (canal-facts)."""

# No `from __future__ import annotations` here: Pandera evaluates the annotations, which are values.
import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.canal_json import (
    LIMIT,
    NAMED,
    NO_ROWS,
    ROW_TYPES,
    XA_TYPES,
    CanalMessage,
    DdlMessage,
    RowChange,
)
from cdc_pipeline.contracts.checks import length_of, rule
from cdc_pipeline.contracts.limits import NAME


class CanalDdl(DdlMessage):
    """A DDL event of Canal. `database` may be empty: Canal could not read the statement (canal-facts 42); of CREATE and
    DROP DATABASE it may have the statement's back-ticks (canal-facts 37)."""

    database_is_short = rule(
        "database_is_short",
        f"database has at most {NAME} characters, without its quotes",
        f"coalesce(length(database) <= {NAME} OR (database LIKE '`%`' AND length(database) <= {2 * NAME + 2}), true)",
        clause=LIMIT["clause"],
        field="database",
        found=length_of("database"),
    )


class CanalRow(RowChange):
    """Row changes of Canal: one or more rows, those of DELETE in data, or in old where a writer put them there.

    `pkNames` may be stale after DDL on the key (canal-facts 15, 55): a key that is not in the rows is no breach here.
    """

    data_has_rows = rule(
        "data_has_rows",
        "data has rows, each with columns (those of a DELETE may be in old)",
        "CASE WHEN coalesce(size(data), 0) > 0 THEN NOT exists(data, row -> coalesce(size(row), 0) < 1) "
        "ELSE type = 'DELETE' AND size(old) > 0 AND NOT exists(old, row -> coalesce(size(row), 0) < 1) END",
        clause="canal-facts 8",
    )
    old_has_the_rows_of_data = rule(
        "old_has_the_rows_of_data",
        "an UPDATE has as many rows in old as in data",
        "coalesce(type <> 'UPDATE', true) OR (size(old) = size(data) AND NOT exists(old, row -> row IS NULL))",
        clause="canal-facts 9",
    )
    values_are_whole = rule(
        "values_are_whole",
        "a JSON column has a value, not an expression of binlog_row_value_options=PARTIAL_JSON",
        "NOT partialJson",
        clause="canal-facts 30",
    )
    image_has_key = rule(
        "image_has_key",
        "an UPDATE names in old what it changed: under binlog_row_image=MINIMAL it has neither key nor before image",
        "coalesce(type <> 'UPDATE', true) OR coalesce(NOT exists(old, row -> size(row) = 0), true)",
        clause="canal-facts 16",
    )


class CanalStatement(CanalMessage):
    """A change that was logged as a statement, not as rows: data and old are null (canal-facts 17)."""

    table: T.StringType = pa.Field(str_length=NAMED, metadata={"clause": "canal-facts 17"})
    type: T.StringType = pa.Field(isin=list(ROW_TYPES), metadata={"clause": "canal-facts 17"})
    sql: T.StringType = pa.Field(str_length={"min_value": 1}, metadata={"clause": "canal-facts 17"})


class CanalNote(CanalMessage):
    """What changes no row: the text of a statement whose rows follow (QUERY), XACOMMIT, XAROLLBACK."""

    type: T.StringType = pa.Field(isin=["QUERY", *XA_TYPES], metadata={"clause": "canal-facts 18, 36"})

    rows_are_of_row_changes = NO_ROWS
