"""Contracts of the tables that decoding writes. Pandera validates every batch with them after it was written.

They repeat the contracts of the messages in terms of the tables, so that a mistake in routing or decoding fails a check.
`dialects.unified` documents the columns.
"""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
from typing import TYPE_CHECKING, Literal, get_args

import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts.canal_json import FIRST_MS, LAST_MS, ROW_TYPES
from cdc_pipeline.contracts.checks import rule
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT, DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT

if TYPE_CHECKING:  # mypy needs a class as annotation, Pandera the complete Spark type
    from pyspark.sql.types import ArrayType as _Names
    from pyspark.sql.types import MapType as _Row
else:
    _Names = T.ArrayType(T.StringType())
    _Row = T.MapType(T.StringType(), T.StringType())

KnownDialect = Literal["ticdc", "canal", "dataworks"]
"""The names of the dialects in `dialects.traits`."""
_MS = {"min_value": FIRST_MS, "max_value": LAST_MS}
_NAMED = {"min_value": 1}
_TSO_IS_ES = rule(
    "tso_is_es",
    "the physical time of an exact commit_ts equals es",
    "NOT exact_ts OR shiftright(commit_ts, 18) = es",
    clause="ticdc-facts §1",
    warn=True,
)


class _Placed(pa.DataFrameModel):  # type: ignore[type-arg]
    """A row with the position of its record."""

    batch_id: T.LongType = pa.Field(nullable=True)
    topic: T.StringType = pa.Field()
    partition: T.IntegerType = pa.Field()
    offset: T.LongType = pa.Field(ge=0)
    timestamp: T.TimestampType = pa.Field(nullable=True)

    timestamp_is_known = rule(
        "timestamp_is_known",
        "the record has a timestamp in ms between the years 1 and 9999; timestamp_ms of the raw record has any other one",
        "timestamp IS NOT NULL",
        field="timestamp",
        warn=True,
    )


class _Timed(_Placed):
    dialect: T.StringType = pa.Field(isin=list(get_args(KnownDialect)))
    commit_ts: T.LongType = pa.Field(ge=0)
    exact_ts: T.BooleanType = pa.Field()
    es: T.LongType = pa.Field(in_range=_MS)
    ts: T.LongType = pa.Field(nullable=True, in_range=_MS)


class ChangeRow(_Timed):
    """A row of `change_log`."""

    row: T.IntegerType = pa.Field(ge=0)
    database: T.StringType = pa.Field(str_length=_NAMED)
    table: T.StringType = pa.Field(str_length=_NAMED)
    op: T.StringType = pa.Field(isin=list(ROW_TYPES))
    message_id: T.LongType = pa.Field(nullable=True)
    key_names: _Names = pa.Field(nullable=True)
    only_key: T.BooleanType = pa.Field()
    before: _Row = pa.Field(nullable=True)
    after: _Row = pa.Field(nullable=True)

    tso_is_es = _TSO_IS_ES
    images_fit_op = rule(
        "images_fit_op",
        "INSERT has only after, DELETE only before, UPDATE both (Canal: at least after, DataWorks: at least one); "
        "only before of an UPDATE may be empty",
        "CASE op WHEN 'INSERT' THEN before IS NULL AND size(after) > 0 "
        "WHEN 'DELETE' THEN after IS NULL AND size(before) > 0 "
        "ELSE ((before IS NOT NULL OR dialect = 'canal') AND size(after) > 0) "
        "OR (dialect = 'dataworks' AND size(coalesce(after, before)) > 0) END",
    )
    update_has_before = rule(
        "update_has_before",
        "an UPDATE has its before values; without them, its row is applied by key",
        "op <> 'UPDATE' OR dialect <> 'canal' OR before IS NOT NULL",
        clause="canal-facts 9",
        field="before",
        warn=True,
    )
    only_key_is_of_ticdc = rule(
        "only_key_is_of_ticdc",
        "only an INSERT or UPDATE of TiCDC has handle-key columns only",
        "NOT only_key OR (op <> 'DELETE' AND dialect = 'ticdc')",
    )
    key_is_in_row = rule(
        "key_is_in_row",
        "each column of key_names is in the row (Canal's names may be stale)",
        "dialect = 'canal' OR coalesce(size(key_names), 0) <= 0 "
        "OR size(array_except(key_names, map_keys(coalesce(after, before)))) = 0",
    )


class DdlRow(_Timed):
    """A row of `ddl_history`."""

    kind: T.StringType = pa.Field(isin=[DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT, BASELINE_EVENT])
    sql: T.StringType = pa.Field(nullable=True)

    tso_is_es = _TSO_IS_ES
    ddl_has_statement = rule(
        "ddl_has_statement",
        "a DDL or statement event has its SQL text in sql",
        f"kind = '{XA_EVENT}' OR length(sql) > 0",
    )


class WatermarkRow(_Placed):
    """A row of `watermarks`."""

    watermark_ts: T.LongType = pa.Field(ge=0)
    es: T.LongType = pa.Field(in_range=_MS)

    tso_is_es = rule(
        "tso_is_es",
        "the physical time of watermark_ts equals es",
        "shiftright(watermark_ts, 18) = es",
        clause="ticdc-facts §1",
        warn=True,
    )


class DeadLetter(_Placed):
    """A row of `dead_letters`."""

    rule: T.StringType = pa.Field(str_length=_NAMED)
    reason: T.StringType = pa.Field(str_length=_NAMED)


TABLES = {
    "change_log": ChangeRow,
    "ddl_history": DdlRow,
    "watermarks": WatermarkRow,
    "dead_letters": DeadLetter,
}
