"""Metadata values for Dagster's UI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dagster as dg

from cdc_pipeline.checks.results import code_span
from cdc_pipeline.lake.catalog import CatalogEntry
from cdc_pipeline.lake.delta import TableState
from cdc_pipeline.mirrors.cuts.cut_report import ReportedStatement
from cdc_pipeline.sources.intake import OffsetSpan

STATEMENTS = "ddl"
"""Metadata entry of `consistent_cuts` with the DDL statements of the cut."""
MOST_STATEMENTS = 100
"""Further statements of a cut are in `ddl_history` only."""
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
"""Column of the lake's own tables → what it is. A column has the same meaning in every table."""


def table_value(columns: Sequence[str], rows: Iterable[Sequence[str | int | float]]) -> dg.TableMetadataValue:
    """A metadata table; the values of a row are in the order of `columns`."""
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name) for name in columns]),
    )


def statements_metadata(statements: Sequence[ReportedStatement]) -> dict[str, dg.TableMetadataValue]:
    """Metadata entry with the first DDL statements of a cut; empty without statements."""
    if not statements:
        return {}
    rows = (
        (
            statement.status,
            ", ".join(map(str, statement.tables)),
            statement.statement,
            statement.effect,
            str(statement.position),
        )
        for statement in statements[:MOST_STATEMENTS]
    )
    return {STATEMENTS: table_value(["status", "tables", "statement", "effect", "position"], rows)}


def ranges_table(ranges: Iterable[OffsetSpan]) -> dg.TableMetadataValue:
    """The first and last offset of each partition."""
    columns = ["topic", "partition", "first", "last"]
    # as text: JSON numbers are exact up to 2^53 only
    return table_value(columns, ([str(getattr(span, name)) for name in columns] for span in ranges))


def delta_columns(table: TableState | None) -> dict[str, dg.TableSchema]:
    """Metadata entry with the column schema of one of the lake's own tables; empty if the table does not exist yet."""
    if table is None:
        return {}
    columns = [
        dg.TableColumn(field.name, type=field.dataType.simpleString(), description=COLUMN_TEXTS.get(field.name))
        for field in table.schema
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def column_schema(entry: CatalogEntry) -> dg.TableSchema:
    """The mirror's columns: type is the Delta type, description is the MySQL type as Markdown."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(column.name, column.delta_type, column.mysql_type and code_span(column.mysql_type))
            for column in entry.columns
        ]
    )
