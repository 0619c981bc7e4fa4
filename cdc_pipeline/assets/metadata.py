"""Metadata values for Dagster's UI: of tables, mirrors and `consistent_cuts`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta, timezone

import dagster as dg

from cdc_pipeline.checks.results import code_span
from cdc_pipeline.checks.streams import lag
from cdc_pipeline.lake.catalog import CatalogEntry
from cdc_pipeline.lake.delta import TableState
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, ReportedStatement, TableCounts, tso_datetime
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
        (one.status, ", ".join(map(str, one.tables)), one.statement, one.effect, str(one.position))
        for one in statements[:MOST_STATEMENTS]
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


MOST_MIRRORS = 50
"""Each cut stores the table, so it is short: held mirrors, then those with gaps, then those that the cut changed."""
_COLUMNS = ["mirror", "gaps", "held", "rows", "changes", "lag_seconds"]


def overview(report: CutReport, now: datetime | None = None) -> dg.TableMetadataValue:
    """A row per mirror: number of gaps, since which statement it is held, rows upstream has, changes of the cut, and lag.

    The lag of a held mirror counts from where it stopped; without TSOs and heartbeats it is empty.
    """
    held = {table.name: table for table in report.held}
    moment = now or datetime.now(timezone.utc)
    common = lag(report, moment)

    def order(entry: MirrorEntry) -> tuple[bool, bool, bool, str]:
        return entry.name not in held, not entry.gaps, entry.name not in report.changed, str(entry.name)

    def row(entry: MirrorEntry) -> list[str | int | float]:
        table, changed = held.get(entry.name), report.changed.get(entry.name)
        has_tso = table is not None and report.resolved_tso is not None and table.commit_ts > 0
        stopped = tso_datetime(table.commit_ts) if table is not None and has_tso else None
        behind = common if stopped is None else moment - stopped
        since = "" if table is None else ("quarantined" if table.error else f"since {table.statement}")
        return [
            str(entry.name),
            len(entry.gaps),
            since,
            entry.rows,
            0 if changed is None else changed.changes,
            "" if behind is None else round(behind.total_seconds(), 1),
        ]

    return table_value(_COLUMNS, map(row, sorted(report.mirrors, key=order)[:MOST_MIRRORS]))


def mirror_metadata(entry: MirrorEntry, counts: TableCounts, report: CutReport) -> dict[str, dg.MetadataValue]:
    # across renames; none for a new mirror
    before = report.versions_before.get(entry.mirror_id)
    return {
        "dagster/row_count": dg.MetadataValue.int(entry.rows),
        "resolved_tso": dg.MetadataValue.text(str(report.resolved_tso)),
        "resolved_time": dg.MetadataValue.text(str(report.resolved_time)),
        **_seconds("lag_seconds", lag(report)),
        **({} if before is None else {"delta_version_before": dg.MetadataValue.int(before)}),
        "delta_version": dg.MetadataValue.int(entry.version),
        "changes": dg.MetadataValue.int(counts.changes),
        "inserted": dg.MetadataValue.int(counts.inserted),
        "updated": dg.MetadataValue.int(counts.updated),
        "deleted": dg.MetadataValue.int(counts.deleted),
        "zero_dates": dg.MetadataValue.int(counts.zero_dates),
        "dead_letters": dg.MetadataValue.int(counts.bad_rows),
        "gaps": dg.MetadataValue.json(list(entry.gaps)),
        "seconds": dg.MetadataValue.float(round(counts.seconds, 1)),
    }


def _seconds(name: str, duration: timedelta | None) -> dict[str, dg.MetadataValue]:
    """A number, so that the UI plots it over the runs; empty if the duration is unknown."""
    return {} if duration is None else {name: dg.MetadataValue.float(round(duration.total_seconds(), 1))}


def cut_metadata(report: CutReport) -> dict[str, dg.MetadataValue]:
    age = None if report.newest_record is None else datetime.now(timezone.utc) - report.newest_record
    return {
        "overview": overview(report),
        "published": dg.MetadataValue.bool(report.published),
        "cut": dg.MetadataValue.int(report.cut_id),
        "resolved_tso": dg.MetadataValue.text(str(report.resolved_tso)),
        "resolved_time": dg.MetadataValue.text(str(report.resolved_time)),
        **_seconds("lag_seconds", lag(report)),
        "slowest_partition": dg.MetadataValue.text(str(report.streams.held_by)),
        "watermark_lag_seconds": dg.MetadataValue.float(round(report.streams.held_back_ms / 1000, 1)),
        "partitions_without_watermark": dg.MetadataValue.json(list(report.streams.without_watermark)),
        "mirrors": dg.MetadataValue.int(len(report.mirrors)),
        **{name: dg.MetadataValue.int(count) for name, count in asdict(report.totals).items()},
        "superseded": dg.MetadataValue.int(report.totals.superseded),
        **_seconds("produce_to_mirror_seconds", age),
        "stages": table_value(
            ["stage", "seconds"], ((stage, round(seconds, 1)) for stage, seconds in report.stages.items())
        ),
        "selection_changes": dg.MetadataValue.json(list(report.selection_changes)),
        "held_tables": dg.MetadataValue.json({str(table.name): str(table.gap) for table in report.held}),
        **statements_metadata(report.statements),
        "seconds": dg.MetadataValue.float(round(report.seconds, 1)),
    }
