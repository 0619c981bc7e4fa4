"""Metadata of the mirrors and of `consistent_cuts` for Dagster's UI."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta, timezone

import dagster as dg

from cdc_pipeline.assets.metadata import statements_metadata, table_value
from cdc_pipeline.checks.streams import lag
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, TableCounts, tso_datetime

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
