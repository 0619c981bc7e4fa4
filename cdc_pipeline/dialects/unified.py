"""The unified change: what every dialect's messages become, and the tables made of them.

A dialect gives, for each record, a `kind` and the columns of that kind; these functions cut the one parsed frame into
the pipeline's tables. A TSO is TiDB's timestamp: physical milliseconds in the upper 46 bits, a counter in the lower 18.
Where a message has none, `commit_ts` is `es << 18` and `exact_ts` is false, so that both compare in one order; a
message of DataWorks has its `sequenceId` there, by which its records are to be ordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TSO_SHIFT = 18
"""`tso >> 18` is the physical time in ms since 1970."""

# What a record can be. Each record is exactly one of them: promise 1 of DESIGN §2 counts by these words.
DDL, OTHER_DDL, STATEMENT, XA = DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT
ROW, WATERMARK, EMPTY, DEAD = "row_change", "watermark", "empty", "dead_letter"
# QUERY_TEXT is the text of a statement whose rows follow.
QUERY_TEXT, HEARTBEAT, TRANSACTION = "query_text", "heartbeat", "transaction"
KINDS = (ROW, DDL, OTHER_DDL, WATERMARK, HEARTBEAT, TRANSACTION, XA, STATEMENT, QUERY_TEXT, EMPTY, DEAD)
DDL_STATEMENTS = (DDL, OTHER_DDL)
"""Kinds that have a DDL statement."""
COUNTED_ONLY = (HEARTBEAT, TRANSACTION, QUERY_TEXT, EMPTY)
"""Kinds that go into no table but the raw snapshot."""

PLACE = ("batch_id", "topic", "partition", "offset", "timestamp")

CHANGE_COLUMNS = (
    *PLACE,
    "row",
    "dialect",
    "database",
    "table",
    "op",
    "commit_ts",
    "exact_ts",
    "es",
    "ts",
    "message_id",
    "key_names",
    "only_key",
    "before",
    "after",
)
DDL_COLUMNS = (
    *PLACE,
    "kind",
    "dialect",
    "database",
    "table",
    "type",
    "commit_ts",
    "exact_ts",
    "es",
    "ts",
    "message_id",
    "sql",
)
WATERMARK_COLUMNS = (*PLACE, "watermark_ts", "es", "ts")
DEAD_LETTER_COLUMNS = (*PLACE, "rule", "database", "table", "column", "reason", "key", "value")


def row_changes(decoded: DataFrame) -> DataFrame:
    """`change_log`: one row per row change.

    `before` and `after` map column names to the texts of the message, in its order; `before` is null for INSERT,
    `after` for DELETE. A column that `before` lacks and `after` has did not change. `row` counts the rows of a message.
    An UPDATE that came as two messages (DataWorks) is two changes of one `commit_ts`, each with one image.
    `message_id` is Canal's number of the batch that it sent the message in, which begins again when Canal restarts; null
    for other dialects. `only_key`: the row was too large for a message of TiCDC, so that its images have the handle key
    alone, and the other columns are not known; never of a DELETE, which needs nothing else.
    """
    place = [column for column in CHANGE_COLUMNS if column not in ("row", "before", "after")]
    return (
        decoded.where(F.col("kind") == ROW)
        .select(*place, F.posexplode("rows").alias("row", "image"))
        .withColumns({"before": F.col("image.before"), "after": F.col("image.after")})
        .select(*CHANGE_COLUMNS)
    )


def ddl_events(decoded: DataFrame) -> DataFrame:
    """One row per message that says how a table changed other than by rows: DDL, a change logged as its statement, and
    an XA ROLLBACK; the statement as it was sent."""
    return decoded.where(is_event()).select(*DDL_COLUMNS)


def is_event() -> Column:
    """Whether a record goes into `ddl_history`."""
    kind = F.col("kind")
    return kind.isin(*DDL_STATEMENTS, STATEMENT) | ((kind == XA) & (F.col("type") == "XAROLLBACK"))


def watermarks(decoded: DataFrame) -> DataFrame:
    """`watermarks`: one row per watermark record. All changes with commit_ts < watermark_ts were sent before it."""
    return (
        decoded.where(F.col("kind") == WATERMARK)
        .select(*WATERMARK_COLUMNS)
        .withColumn("watermark_time", tso_time("watermark_ts"))
    )


def dead_letters(decoded: DataFrame) -> DataFrame:
    """`dead_letters`: one row per record that broke a rule: the rule, the table if the message names one, the field that
    the rule speaks of (null for a rule over several), the reason and the bytes as they came."""
    return decoded.where(F.col("kind") == DEAD).select(*DEAD_LETTER_COLUMNS)


def tso_time(column: str) -> Column:
    """The instant of a TSO, ms precision."""
    return F.timestamp_millis(F.shiftright(F.col(column), TSO_SHIFT))
