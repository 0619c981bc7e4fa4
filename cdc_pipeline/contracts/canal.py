"""Contracts of Alibaba Canal's flat messages (canal-facts)."""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts import canal_json
from cdc_pipeline.contracts.checks import length_text, rule, warning
from cdc_pipeline.contracts.limits import NAME

INSERT_TYPES = (
    "INIT",  # rows of a full load: Tencent Cloud DTS (document 571/102285), Huawei Cloud DRS (drs_03_0052)
)
"""Types of services that write Canal's format, whose rows can only be inserted."""
STATEMENT_TYPES = (
    *(name for name in canal_json.DDL_TYPES if name != "QUERY"),
    *("DDL", "INIT_DDL"),  # Huawei Cloud DRS (drs_03_0052)
)
"""Types whose `sql` is a DDL statement even if `isDdl` is false. QUERY is not: it is also the text of DML, so that its text
decides (`dialects.canal`)."""
_NO_UPDATE = "coalesce(type <> 'UPDATE', true)"
_HAS_BEFORE_VALUES = "coalesce(size(old) = size(data) AND NOT exists(old, row -> coalesce(size(row), 0) <= 0), false)"


class CanalDdl(canal_json.DdlMessage):
    """A DDL event of Canal.

    `database` is empty if Canal could not parse the statement (canal-facts 42). CREATE and DROP DATABASE keep the
    statement's back-ticks around it (canal-facts 37).
    """

    is_ddl: T.BooleanType = pa.Field(alias="isDdl", metadata=canal_json.RESOLUTION)

    is_ddl_of_ddl = warning(
        "is_ddl_of_ddl",
        f"isDdl is true; if it is false, a message without rows is DDL by its type ({', '.join(STATEMENT_TYPES)}; QUERY by "
        "its text)",
        "coalesce(isDdl, true)",
        canal_json.RESOLUTION["clause"],
        "isDdl",
    )
    database_is_short = rule(
        "database_is_short",
        f"database has at most {NAME} characters, not counting back-ticks around it",
        f"coalesce(length(database) <= {NAME} OR (database LIKE '`%`' AND length(database) <= {2 * NAME + 2}), true)",
        clause=canal_json.LIMIT["clause"],
        field="database",
        found=length_text("database"),
    )


class CanalRow(canal_json.RowChange):
    """Row changes of Canal: one or more rows in `data`; of a DELETE also accepted in `old`.

    `pkNames` may be stale after DDL on the key (canal-facts 15, 55), so no rule requires its columns in the rows.
    """

    type: T.StringType = pa.Field(isin=[*canal_json.ROW_TYPES, *INSERT_TYPES], metadata=canal_json.FIELDS)

    type_is_of_canal = warning(
        "type_is_of_canal",
        f"type is one of {', '.join(canal_json.ROW_TYPES)}; rows of type {', '.join(INSERT_TYPES)} are inserted",
        f"coalesce(type NOT IN ({', '.join(map(repr, INSERT_TYPES))}), true)",
        canal_json.FIELDS["clause"],
        "type",
    )
    data_has_rows = rule(
        "data_has_rows",
        "data has at least one row, and each row has columns (a DELETE may have its rows in old)",
        "CASE WHEN coalesce(size(data), 0) > 0 THEN NOT exists(data, row -> coalesce(size(row), 0) < 1) "
        "ELSE type = 'DELETE' AND size(old) > 0 AND NOT exists(old, row -> coalesce(size(row), 0) < 1) END",
        clause="canal-facts 8",
    )
    old_has_the_rows_of_data = rule(
        "old_has_the_rows_of_data",
        "an UPDATE has as many rows in old as in data, and each has columns; without that, data is applied by key",
        f"{_NO_UPDATE} OR {_HAS_BEFORE_VALUES}",
        clause="canal-facts 9",
        field="old",
        warn=True,
    )
    old_keeps_the_key = rule(
        "old_keeps_the_key",
        "an UPDATE whose old has rows, but not as many as data, names its key in pkNames and none of its columns in old, "
        "because it is unknown to which row each before value belongs",
        f"{_NO_UPDATE} OR coalesce(size(old), 0) <= 0 OR size(old) = size(data) "
        "OR (size(pkNames) > 0 AND size(array_except(pkNames, map_keys(get(data, 0)))) = 0 "
        "AND NOT exists(old, row -> coalesce(size(array_intersect(map_keys(row), pkNames)), 0) > 0))",
        clause="canal-facts 9",
    )
    values_are_whole = rule(
        "values_are_whole",
        "a JSON column has a value, not an expression such as JSON_SET (binlog_row_value_options=PARTIAL_JSON)",
        "NOT partialJson",
        clause="canal-facts 30",
    )
    image_has_key = rule(
        "image_has_key",
        "an UPDATE whose pkNames is null has before values of each row in old (binlog_row_image=MINIMAL sends neither key "
        "nor before image)",
        f"{_NO_UPDATE} OR NOT noKey OR {_HAS_BEFORE_VALUES}",
        clause="canal-facts 16",
    )


class CanalStatement(canal_json.CanalMessage):
    """A row change in statement format: its SQL text, `data` and `old` null (canal-facts 17)."""

    table: T.StringType = pa.Field(str_length=canal_json.NAMED, metadata={"clause": "canal-facts 17"})
    type: T.StringType = pa.Field(isin=list(canal_json.ROW_TYPES), metadata={"clause": "canal-facts 17"})
    sql: T.StringType = pa.Field(str_length={"min_value": 1}, metadata={"clause": "canal-facts 17"})


class CanalNote(canal_json.CanalMessage):
    """A message without rows: QUERY, the SQL text of a statement whose rows follow (canal-facts 18); XACOMMIT or XAROLLBACK
    (canal-facts 36)."""

    type: T.StringType = pa.Field(isin=["QUERY", *canal_json.XA_TYPES], metadata={"clause": "canal-facts 18, 36"})

    rows_are_of_row_changes = canal_json.NO_ROWS
