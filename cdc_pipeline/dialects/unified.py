"""Splits decoded records by `kind` into the pipeline's tables. The columns are the same for all dialects.

`commit_ts` orders changes. It is one of:

- the TSO of TiDB: physical ms in the upper 46 bits, a counter in the lower 18; then `exact_ts` is true
- `es << 18`, if the message has no TSO
- `sequenceId` of DataWorks (ADR 4)

`es` is the time of the change upstream, `ts` the time at which the encoder wrote the message, both in ms.

`at` is the position on the clock of the stream, which orders the partitions of a pipeline. It is `commit_ts`, but for Canal
`ts << 18` with the low 18 bits of the batch number: one thread builds the messages of a topic (canal-facts 3, 4, 47), and
`es` may step back. For DataWorks it is `ts << 18`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.mysql.ddl.statements import DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT
from cdc_pipeline.positions import BATCH_POSITION

TSO_SHIFT = 18
"""`tso >> 18` is the physical time in ms since the Unix epoch."""

# Kinds. Each record has exactly one: `batches.kinds` counts them, and the check `balance` compares the counts.
DDL, OTHER_DDL, STATEMENT, XA = DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT
ROW, WATERMARK, EMPTY, DEAD = "row_change", "watermark", "empty", "dead_letter"
# QUERY_TEXT: the SQL text of a statement whose rows follow
QUERY_TEXT, HEARTBEAT, TRANSACTION = "query_text", "heartbeat", "transaction"
KINDS = (ROW, DDL, OTHER_DDL, WATERMARK, HEARTBEAT, TRANSACTION, XA, STATEMENT, QUERY_TEXT, EMPTY, DEAD)
DDL_STATEMENTS = (DDL, OTHER_DDL)
"""Kinds with a DDL statement."""
COUNTED_ONLY = (HEARTBEAT, TRANSACTION, QUERY_TEXT, EMPTY)
"""Kinds that are only counted, and in no table but `raw_topic_snapshot`."""

RECORD_COLUMNS = (*BATCH_POSITION, "timestamp")
_NAME_WITH_ESCAPE = r'"(?:database|table|dbName|schemaName|tableName)"\s*:\s*"[^"]*\\u[dD][89a-fA-F]'
"""A message with a surrogate in a name."""

_TIME_COLUMNS = ("commit_ts", "at", "exact_ts", "es", "ts", "message_id")
CHANGE_COLUMNS = (
    *(*RECORD_COLUMNS, "row", "dialect", "database", "table", "op", *_TIME_COLUMNS),
    *("key_names", "only_key", "before", "after"),
)
DDL_COLUMNS = (*RECORD_COLUMNS, "kind", "dialect", "database", "table", "type", *_TIME_COLUMNS, "sql")
DEAD_LETTER_COLUMNS = (*RECORD_COLUMNS, "rule", "database", "table", "column", "reason", "key", "value")


def row_changes(decoded: DataFrame, *, one_row: bool = False) -> DataFrame:
    """Rows of `change_log`, one per row change. `one_row`: no message has several (`decode.has_one_row`).

    - `row`: index of the row in its message
    - `before`, `after`: column → text of the message, in message order. `before` is null for INSERT, `after` for DELETE. A
      column that only `after` has did not change. An UPDATE in two messages (DataWorks) is two rows with the same
      `commit_ts` and one image each. `before` of Canal's UPDATE is null if `old` has no values of the row.
    - `key_names`: the key that the message names. Of Canal: null if `pkNames` is null, empty if the message has no
      `pkNames`. Such an encoder may omit NULL columns, so a column that only `after` has may have been NULL.
    - `message_id`: Canal's batch number, which restarts with Canal (canal-facts 3); null for other dialects and for `id` 0
    - `only_key`: the row was too large for a message of TiCDC, so its images have handle-key columns only (ticdc-facts §7).
      False for DELETE, which needs no other columns.
    """
    columns = [column for column in CHANGE_COLUMNS if column not in ("row", "before", "after")]
    rows = (
        [F.lit(0).alias("row"), F.get("rows", F.lit(0)).alias("image")]
        if one_row
        else [F.posexplode("rows").alias("row", "image")]
    )
    return (
        decoded.where(F.col("kind") == ROW)
        .select(*columns, *rows)
        .withColumns({"before": F.col("image.before"), "after": F.col("image.after")})
        .select(*CHANGE_COLUMNS)
    )


def is_keyless() -> Column:
    """Whether the message of a row change names no key."""
    return F.coalesce(F.size("key_names"), F.lit(0)) <= 0


def ddl_events(decoded: DataFrame) -> DataFrame:
    """One row per DDL event, row change in statement format, and XA ROLLBACK, with its SQL text as sent."""
    return decoded.where(is_event()).select(*DDL_COLUMNS)


def is_event() -> Column:
    """Whether a record belongs in `ddl_history`."""
    kind = F.col("kind")
    return kind.isin(*DDL_STATEMENTS, STATEMENT) | ((kind == XA) & (F.col("type") == "XAROLLBACK"))


def dead_letters(decoded: DataFrame) -> DataFrame:
    """Rows of `dead_letters`, one per record that breaks a rule, with its bytes as received.

    `column`: the field of the rule, null for a rule over several. `database` and `table` are null if a name has an escape of
    half a surrogate pair, which no upstream name has.
    """
    # Spark decodes half of a surrogate pair to `?`, which may be the name of another table
    has_half = (F.col("rule") == "escapes_are_characters") & F.col("value").cast("string").rlike(_NAME_WITH_ESCAPE)
    names = {name: F.when(~F.coalesce(has_half, F.lit(False)), F.col(name)) for name in ("database", "table")}
    return decoded.where(F.col("kind") == DEAD).withColumns(names).select(*DEAD_LETTER_COLUMNS)
