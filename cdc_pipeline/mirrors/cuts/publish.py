"""Publishes a cut: appends its row to `consistent_cuts`, after the last commit of every mirror."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc_pipeline.lake.delta import Commit, append_once
from cdc_pipeline.mirrors.cuts.cut_report import tso_datetime
from cdc_pipeline.spark.small_frames import small_frame, struct_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport
    from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
    from cdc_pipeline.mysql.model.table import TableName

_MIRROR = (
    "STRUCT<`database`: STRING, `table`: STRING, mirror_id: STRING, path: STRING, version: BIGINT, `rows`: BIGINT, "
    "columns: INT, gaps: ARRAY<STRING>, keeps_deleted: BOOLEAN>"
)
_BREACH = (
    "STRUCT<`database`: STRING, `table`: STRING, changes: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>"
)
_HELD = (
    "STRUCT<`database`: STRING, `table`: STRING, topic: STRING, `partition`: INT, `offset`: BIGINT, commit_ts: BIGINT, "
    "sql: STRING, `rows`: BIGINT, error: STRING>"
)
_SOURCE = "STRUCT<`database`: STRING, `table`: STRING, upstream_database: STRING, upstream_table: STRING>"
CUTS_SCHEMA = (
    "cut_id BIGINT, resolved_tso BIGINT, resolved_time TIMESTAMP, last_batch BIGINT, run_id STRING, "
    "published_at TIMESTAMP, changes BIGINT, applied BIGINT, superseded BIGINT, rejected BIGINT, duplicates BIGINT, "
    "late BIGINT, breaches BIGINT, filtered BIGINT, pending BIGINT, held_by STRING, rebuilt BOOLEAN, "
    "time_zone STRING, keys MAP<STRING, ARRAY<STRING>>, ddl_policy STRING, selection STRING, column_rules STRING, "
    f"mirrors ARRAY<{_MIRROR}>, changed ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, breached ARRAY<{_BREACH}>, "
    f"held ARRAY<{_HELD}>, rebuilt_tables ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, sources ARRAY<{_SOURCE}>, "
    "heartbeats MAP<STRING, BIGINT>"
)


def publish(
    lake: Lake,
    window: Window,
    report: CutReport,
    note: dict[str, object],
    settings: CutSettings,
    *,
    rebuilt: bool = False,
    rebuilt_tables: Sequence[TableName] = (),
) -> None:
    """Appends one row: the resolved TSO, the Delta version of every mirror at it, and the outcome of the row changes.

    `settings` are stored for reads between cuts. `rebuilt`: the cut takes in all changes again, so the counts of earlier
    cuts no longer apply. `rebuilt_tables`: the same for these tables only.
    """
    row = {
        "run_id": note["run_id"],
        "published_at": datetime.now(timezone.utc),
        "rebuilt": rebuilt,
        "rebuilt_tables": [(name.database, name.table) for name in rebuilt_tables],
        **_window_fields(window),
        **_settings_fields(settings),
        **_change_fields(report),
        **_mirror_fields(report, lake.paths),
    }
    columns = struct_of(CUTS_SCHEMA).names
    assert row.keys() == set(columns), row.keys() ^ set(columns)
    frame = small_frame(lake.spark, [[row[column] for column in columns]], CUTS_SCHEMA)
    commit = Commit(lake.paths.app_id("consistent_cuts"), window.cut_id, note)
    append_once(frame, lake.paths.table("consistent_cuts"), commit)


def _window_fields(window: Window) -> dict[str, object]:
    return {
        "cut_id": window.cut_id,
        "resolved_tso": window.resolved_tso,
        "resolved_time": tso_datetime(window.resolved_tso),
        "last_batch": window.last_batch,
    }


def _settings_fields(settings: CutSettings) -> dict[str, object]:
    return {
        "time_zone": settings.time_zone,
        "keys": {table: list(columns) for table, columns in settings.keys.items()},
        "ddl_policy": settings.policy.to_json(),
        "selection": settings.selection.to_json(),
        "column_rules": json.dumps(settings.columns.to_plain(), ensure_ascii=False),
    }


def _change_fields(report: CutReport) -> dict[str, object]:
    """The outcome of the row changes, and the held tables."""
    totals = report.totals
    return {
        "changes": totals.changes,
        "applied": totals.applied,
        "superseded": totals.superseded,
        "rejected": totals.rejected,
        "duplicates": totals.duplicates,
        "late": totals.late,
        "breaches": totals.breaches,
        "filtered": totals.filtered,
        "pending": totals.pending,
        "held_by": report.streams.held_by,
        "heartbeats": dict(report.streams.heartbeats),
        "breached": [
            (breach.name.database, breach.name.table, breach.changes, breach.topic, breach.partition, breach.offset)
            for breach in report.breaches
        ],
        "held": [
            (
                table.name.database,
                table.name.table,
                *table.statement,
                table.commit_ts,
                table.sql,
                table.rows,
                table.error,
            )
            for table in report.held
        ],
    }


def _mirror_fields(report: CutReport, paths: LakePaths) -> dict[str, object]:
    """The mirrors with their versions, those that the cut changed, and their upstream tables."""
    return {
        "mirrors": [
            (
                entry.name.database,
                entry.name.table,
                entry.mirror_id,
                entry.path.removeprefix(f"{paths.home}/"),
                entry.version,
                entry.rows,
                entry.columns,
                list(entry.gaps),
                entry.keeps_deleted,
            )
            for entry in report.mirrors
        ],
        "changed": [(name.database, name.table) for name in sorted(report.changed)],
        "sources": [
            (mirror.database, mirror.table, source.database, source.table)
            for mirror, sources in sorted(report.sources.items())
            for source in sources
        ],
    }
