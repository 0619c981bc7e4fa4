"""What the columns of the lake's own tables are, for Dagster's UI."""

from __future__ import annotations

COLUMN_TEXTS = {
    # the record
    "batch_id": "Number of the batch that ingested the record",
    "topic": "Kafka topic",
    "partition": "Kafka partition",
    "offset": "Kafka offset",
    "timestamp": "Timestamp of the Kafka record",
    "key": "Key of the record, as received",
    "value": "Value of the record, as received",
    "headers": "Headers of the record, as received",
    "timestamp_ms": "Timestamp of the record as an integer, if its year is not between 1 and 9999",
    # the message
    "dialect": "Sender that the message was recognized by: ticdc, canal or dataworks",
    "database": "Upstream database",
    "table": "Upstream table",
    "commit_ts": "Orders the changes: a TSO of TiDB if exact_ts, else es << 18, or sequenceId of DataWorks",
    "at": "The position on the clock of the stream: commit_ts, or when Canal or DataWorks built the message (ms << 18)",
    "exact_ts": "Whether commit_ts is a TSO of TiDB",
    "es": "Time of the change upstream, in ms since 1970",
    "ts": "Time at which the encoder wrote the message, in ms since 1970",
    "message_id": "Batch number of Canal, which restarts with Canal",
    # change_log
    "row": "Index of the row in its message",
    "op": "INSERT, UPDATE or DELETE",
    "key_names": "Key columns that the message names",
    "only_key": "Whether the row was too large for a message of TiCDC, so that it has key columns only",
    "before": "The row before the change: column → text of the message",
    "after": "The row after the change: column → text of the message",
    # ddl_history
    "kind": "Kind of statement: DDL, other DDL, a row change sent as its statement, or XA ROLLBACK",
    "type": "Type that the message names, such as ALTER",
    "sql": "The statement as sent",
    "changes": "What the statement does, as parsed",
    "status": "pending: no cut has reached its commit_ts. not applied yet: this version cannot apply it. Others: final",
    "effect": "What it did to the mirrors, or why it could not be applied",
    "cut_id": "The cut that reached the statement",
    "tables": "The definitions that result from it",
    # watermarks
    "watermark_ts": "All changes of the partition with a lower commit_ts were sent before it",
    "watermark_time": "Physical time of watermark_ts",
    # dead_letters
    "rule": "The rule that the record breaks (`cdc-pipeline docs dialects`)",
    "column": "Field of the message, or column of the row",
    "reason": "What was expected, and what was found",
}
"""Column → text. A column has the same meaning in every table."""
