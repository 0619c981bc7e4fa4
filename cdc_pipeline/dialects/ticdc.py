"""TiCDC Canal-JSON, default and with the TiDB extension.

Which event a message is follows the document's own resolution (ticdc-canal-json "Data resolution on the consumer
side"): `isDdl` true is a DDL event; else `type` TIDB_WATERMARK is a watermark; else it is a row change. A row message
has exactly one row (ticdc-facts §1); INSERT and DELETE have it in `data`, UPDATE has the new row in `data` and the
former values in `old`, all of them by default and only the changed ones under only-output-updated-columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.envelope import base_kind, is_empty, parsed, unreadable_rule
from cdc_pipeline.dialects.unified import DDL, DEAD, ROW, TSO_SHIFT, WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME = "ticdc"

# rule → (what a record that keeps it looks like, the Spark expression that is true where a record breaks it);
# `kind` is here what the record is meant to be
_RULES: dict[str, tuple[str, str]] = {
    "is_ddl_is_present": ("isDdl is true or false", "message.isDdl IS NULL"),
    "type_is_known": (
        "type is INSERT, UPDATE, DELETE or TIDB_WATERMARK where isDdl is false",
        f"kind = '{ROW}' AND NOT coalesce(message.type IN ('INSERT', 'UPDATE', 'DELETE'), false)",
    ),
    "watermark_has_tso": (
        "a TIDB_WATERMARK has _tidb.watermarkTs",
        f"kind = '{WATERMARK}' AND message._tidb.watermarkTs IS NULL",
    ),
    "commit_time_is_present": (
        "_tidb.commitTs is there, or es, a time in ms before the year 3084 (es << 18 has 63 bits)",
        f"kind <> '{WATERMARK}' AND message._tidb.commitTs IS NULL "
        f"AND NOT coalesce(message.es BETWEEN 0 AND {(1 << 63 - TSO_SHIFT) - 1}, false)",
    ),
    "ddl_has_statement": ("a DDL event has its statement in sql", f"kind = '{DDL}' AND coalesce(message.sql, '') = ''"),
    "row_has_table": (
        "a row change names database and table",
        f"kind = '{ROW}' AND (coalesce(message.database, '') = '' OR coalesce(message.table, '') = '')",
    ),
    "row_is_whole": (
        "a row change has its row in the message (large-message references are not resolved yet)",
        f"kind = '{ROW}' AND (coalesce(message._tidb.onlyHandleKey, false) "
        "OR message._tidb.claimCheckLocation IS NOT NULL)",
    ),
    "row_has_one_row": (
        "data has exactly one row, which has columns",
        f"kind = '{ROW}' AND (coalesce(size(message.data), -1) <> 1 OR coalesce(size(get(message.data, 0)), 0) < 1)",
    ),
    "update_has_old": (
        "an UPDATE has exactly one row in old",
        f"kind = '{ROW}' AND message.type = 'UPDATE' "
        "AND (coalesce(size(message.old), -1) <> 1 OR get(message.old, 0) IS NULL)",
    ),
}
_JSON_REASONS = {
    "value_is_utf8": "the value is UTF-8",
    "value_is_json_object": "the value is one JSON object whose fields have the types of Canal-JSON",
    "escapes_are_characters": "no \\u escape is half of a surrogate pair",
}


def decoded(raw: DataFrame) -> DataFrame:
    """Each raw record as exactly one kind, with the columns of every kind (`dialects.unified`); null where not its own.

    `raw` has the columns of `raw_topic_snapshot`. Nothing is dropped: as many rows come out as go in.
    """
    message = F.col("message")
    op = message["type"]
    commit_ts = F.col("message._tidb.commitTs")
    # Only `commitTs` orders exactly; without it the commit's millisecond stands in, with the counter at 0.
    tso = F.coalesce(commit_ts, F.shiftleft(message["es"], TSO_SHIFT))
    data, old = F.get(message["data"], F.lit(0)), F.get(message["old"], F.lit(0))
    return (
        parsed(raw)
        .withColumn("kind", _kind())
        .withColumn("rule", F.when(~is_empty(), F.coalesce(unreadable_rule(), _broken_rule())))
        .withColumn("kind", base_kind(F.col("kind")))
        .select(
            *raw.columns,
            "kind",
            "rule",
            _reason().alias("reason"),
            F.lit(NAME).alias("dialect"),
            message["database"].alias("database"),
            message["table"].alias("table"),
            op.alias("op"),
            message["type"].alias("type"),
            tso.alias("commit_ts"),
            commit_ts.isNotNull().alias("exact_ts"),
            F.col("message._tidb.watermarkTs").alias("watermark_ts"),
            message["es"].alias("es"),
            message["ts"].alias("ts"),
            message["sql"].alias("sql"),
            F.lit(0).alias("row"),
            message["pkNames"].alias("key_names"),
            # Before v5.4 a DELETE repeats its row in `old`; `data` has it in every version.
            F.when(op == "DELETE", data).when(op == "UPDATE", old).alias("before"),
            F.when(op != "DELETE", data).alias("after"),
            message["mysqlType"].alias("mysql_type"),
        )
    )


def _broken_rule() -> Column:
    rules = [F.when(F.expr(broken), F.lit(name)) for name, (_, broken) in _RULES.items()]
    return F.coalesce(*rules)


def _kind() -> Column:
    message = F.col("message")
    return (
        F.when(message["isDdl"], F.lit(DDL))
        .when(message["type"] == "TIDB_WATERMARK", F.lit(WATERMARK))
        .otherwise(F.lit(ROW))
    )


def _reason() -> Column:
    """What was expected of a record that broke a rule."""
    expected = {**_JSON_REASONS, **{name: text for name, (text, _) in _RULES.items()}}
    pairs = [part for name, text in expected.items() for part in (F.lit(name), F.lit(f"expected: {text}"))]
    return F.when(F.col("kind") == DEAD, F.create_map(*pairs)[F.col("rule")])
