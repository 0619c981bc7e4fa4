"""Contracts that TiCDC and Canal share: the fields of Canal-JSON and their rules.

A row of a model is one parsed message. Nested fields are columns of their own (`dialects.envelope.PATHS`), null if the
message lacks them. The models also give the parse its types: a field of another type fails the rule
`value_is_json_object`, before any rule of a model. Fields that are validated once per shape of messages are in
`contracts.sent_canal_json`.

Clauses: ticdc-canal-json "Definitions of message formats", ticdc-facts §1, §3, canal-facts 1–20, 35–37.
"""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
from typing import TYPE_CHECKING

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.checks import at_most, rule
from cdc_pipeline.contracts.limits import COLUMNS, KEY_COLUMNS, NAME, STATEMENT

FIRST_MS, LAST_MS = 10**12, 10**13 - 1
"""Times have 13 digits (ms): September 2001 to November 2286."""
FIRST_TSO, LAST_TSO = FIRST_MS << 18, (LAST_MS + 1 << 18) - 1
ROW_TYPES = ("INSERT", "UPDATE", "DELETE")
DDL_TYPES = ("CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")
XA_TYPES = ("XACOMMIT", "XAROLLBACK")
WATERMARK_TYPE = "TIDB_WATERMARK"
CLAIM_RULE = "claim_is_resolved"
EXTENSION, PARTIAL_JSON, NO_KEY, SENT, READ_BY = "hasTidb", "partialJson", "noKey", "timestamp", "readBy"
"""Columns that are no field of the message (see `CanalMessage`)."""
SENT_MS = f"IF(unix_millis({SENT}) >= {FIRST_MS}, unix_millis({SENT}), NULL)"
"""SQL of the Kafka timestamp of the record, in ms; null unless it has 13 digits."""
SENT_OR_READ = f"get(least(array(coalesce({{0}}, {LAST_MS})), {READ_BY}), 0)"
"""SQL of the time at which a record was sent, to be formatted with that time in ms: nothing is sent after it is read.

`READ_BY` is an array, because a number would be compiled into the code of each batch."""
ROW_CLAUSE, DDL_CLAUSE, MARK_CLAUSE = "DML Event", "DDL Event", "WATERMARK Event"

if TYPE_CHECKING:  # mypy needs a class as annotation, Pandera the complete Spark type
    from pyspark.sql.types import ArrayType as _Names
    from pyspark.sql.types import ArrayType as _Rows
    from pyspark.sql.types import ArrayType as _Times
    from pyspark.sql.types import MapType as _Row
else:
    _Names = T.ArrayType(T.StringType())
    _Row = T.MapType(T.StringType(), T.StringType())
    _Rows = T.ArrayType(_Row)
    _Times = T.ArrayType(T.LongType())
_MS = {"min_value": FIRST_MS, "max_value": LAST_MS}
TSO = {"min_value": 1, "max_value": LAST_TSO}
NAMED = {"min_value": 1, "max_value": NAME}
FIELDS = {"clause": "DDL Event, the table of fields"}
RESOLUTION = {"clause": "Data resolution on the consumer side"}
LIMIT = {"clause": "limit of MySQL and TiDB"}


class CanalMessage(pa.DataFrameModel):  # type: ignore[type-arg]
    """Any message of Canal-JSON. `es`, `ts`: ms. `commitTs`, `watermarkTs`: TSO."""

    is_ddl: T.BooleanType = pa.Field(alias="isDdl", metadata=FIELDS)
    type: T.StringType = pa.Field(nullable=True)
    database: T.StringType = pa.Field(nullable=True)
    table: T.StringType = pa.Field(nullable=True)
    pk_names: _Names = pa.Field(nullable=True, alias="pkNames")
    es: T.LongType = pa.Field(in_range=_MS, metadata=FIELDS)
    ts: T.LongType = pa.Field(nullable=True)
    sql: T.StringType = pa.Field(nullable=True)
    data: _Rows = pa.Field(nullable=True)
    old: _Rows = pa.Field(nullable=True)
    commit_ts: T.LongType = pa.Field(nullable=True, alias="commitTs")
    watermark_ts: T.LongType = pa.Field(nullable=True, alias="watermarkTs")
    only_handle_key: T.BooleanType = pa.Field(nullable=True, alias="onlyHandleKey")
    claim_check_location: T.StringType = pa.Field(nullable=True, alias="claimCheckLocation")
    partial_json: T.BooleanType = pa.Field(nullable=True, alias=PARTIAL_JSON)
    """Whether a value of a JSON column is an expression (canal-facts 30). No field of the message."""
    no_key: T.BooleanType = pa.Field(nullable=True, alias=NO_KEY)
    """Whether `pkNames` is null, and not absent. No field of the message."""
    has_tidb: T.BooleanType = pa.Field(nullable=True, alias=EXTENSION)
    """Whether the message has `_tidb`."""
    sent: T.TimestampType = pa.Field(nullable=True, alias=SENT)
    """Kafka timestamp of the record. No field of the message."""
    read_by: _Times = pa.Field(nullable=True, alias=READ_BY)
    """The latest time (ms) at which the record can have been sent, by its reader's clock. No field of the message."""

    ts_is_ms = rule(
        "ts_is_ms",
        f"ts is between {FIRST_MS} and {LAST_MS}, or 0 (TiCDC before v5.4)",
        f"coalesce(ts = 0 OR ts BETWEEN {FIRST_MS} AND {LAST_MS}, true)",
        clause=FIELDS["clause"],
        field="ts",
    )


# ---- rules that several models share

NO_ROWS = rule(
    "rows_are_of_row_changes",
    "data and old have no rows; only INSERT, UPDATE and DELETE have rows",
    "coalesce(NOT exists(data, row -> size(row) > 0), true) AND coalesce(NOT exists(old, row -> size(row) > 0), true)",
    clause=DDL_CLAUSE,
)
TSO_IS_ES = rule(
    "tso_is_es",
    "the physical time of commitTs or watermarkTs (TSO >> 18) equals es",
    "coalesce(shiftright(coalesce(commitTs, watermarkTs), 18) = es, true)",
    clause="ticdc-facts §1",
    warn=True,
)
HAS_COMMIT_TS = rule(
    "extension_has_commit_ts",
    "_tidb has commitTs, by which the change is ordered",
    "NOT hasTidb OR commitTs IS NOT NULL",
    clause="TiDB extension field",
    field="commitTs",
)
_DDL_TYPE = rule(
    "type_is_of_ddl",
    f"type is one of {', '.join(DDL_TYPES)} if isDdl is true",
    f"type IN ({', '.join(map(repr, DDL_TYPES))})",
    clause=FIELDS["clause"],
    field="type",
    warn=True,
)


_LONG_NAME = f"length(name) > {NAME} AND length(replace(name, '``', '`')) > {NAME}"
_ROWS = "concat(coalesce(data, array()), coalesce(old, array()))"
_COLUMNS = f"array_max(transform({_ROWS}, row -> size(row)))"
_LONGEST = f"array_max(transform(flatten(transform({_ROWS}, row -> map_keys(row))), name -> length(name)))"


def _no_row_has(condition: str) -> str:
    """SQL: no row of `data` or `old` meets the condition on `row`."""
    return " AND ".join(f"coalesce(NOT exists({rows}, row -> {condition}), true)" for rows in ("data", "old"))


class DdlMessage(CanalMessage):
    is_ddl: T.BooleanType = pa.Field(alias="isDdl", eq=True, metadata=RESOLUTION)
    sql: T.StringType = pa.Field(str_length={"min_value": 1, "max_value": STATEMENT}, metadata={"clause": DDL_CLAUSE})
    table: T.StringType = pa.Field(nullable=True, str_length={"min_value": 0, "max_value": NAME}, metadata=LIMIT)

    rows_are_of_row_changes = NO_ROWS
    type_is_of_ddl = _DDL_TYPE


class RowChange(CanalMessage):
    database: T.StringType = pa.Field(str_length=NAMED, metadata=FIELDS)
    table: T.StringType = pa.Field(str_length=NAMED, metadata=FIELDS)
    is_ddl: T.BooleanType = pa.Field(alias="isDdl", eq=False, metadata=RESOLUTION)
    type: T.StringType = pa.Field(isin=list(ROW_TYPES), metadata=FIELDS)

    sql_is_of_ddl = rule(
        "sql_is_of_ddl", "sql is empty if isDdl is false", "coalesce(sql, '') = ''", clause=FIELDS["clause"]
    )
    old_is_of_update = rule(
        "old_is_of_update",
        "an INSERT has no rows in old (TiCDC before v5.4 writes [null])",
        "coalesce(type IN ('UPDATE', 'DELETE'), true) OR coalesce(NOT exists(old, row -> row IS NOT NULL), true)",
        clause=FIELDS["clause"],
    )
    key_is_short = at_most(
        "key_is_short", "pkNames", "size(pkNames)", KEY_COLUMNS, "names", clause=LIMIT["clause"], field="pkNames"
    )
    columns_are_few = rule(
        "columns_are_few",
        f"a row has at most {COLUMNS:,} columns",
        _no_row_has(f"size(row) > {COLUMNS}"),
        clause=LIMIT["clause"],
        field="data",
        found=f"concat(format_number({_COLUMNS}, 0), ' columns')",
    )
    column_names_are_short = rule(
        "column_names_are_short",
        f"the name of a column has at most {NAME} characters",
        _no_row_has(f"exists(map_keys(row), name -> {_LONG_NAME})"),
        clause=LIMIT["clause"],
        field="data",
        found=f"concat('a name of ', {_LONGEST}, ' characters')",
    )
